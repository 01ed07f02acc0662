"""Search the property tests for failing examples that their fixed examples do not show.

    python scripts/search_examples.py --minutes 60 --seed 1 tests/kernels tests/models

The suite draws fixed examples, so that it says the same to everyone. This search runs the property
tests (those of hypothesis) with one seed after the other until the time is over: a round per seed,
a pytest process per file, the files in an order drawn from the seed. Every failure is kept as a
file under build/search with its seed, its example and what repeats it. Exit code 1 if there is
one. What was found is mended and stays in its test as an explicit `@example`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PYTEST = [sys.executable, "-m", "pytest", "-o", "addopts=", "-m", "hypothesis", "-q"]
ENVIRONMENT = {"DGBENCH_EXAMPLES": "search"}
CALL = re.compile(
    r"(?:Falsifying example|Failing test case): \w+\((.*?)^\s*(?:E\s+)?\)", re.DOTALL | re.MULTILINE
)
NOTE = re.compile(r"^E\s+|\s+# or any other generated value$")
BLOB = re.compile(r"@reproduce_failure\(.*\)")
HELP = """\
To keep a failure: copy its @example(...) above @given(...) of the test, leaving out `self` and
fixtures, see the test fail, and mend what fails. Where the example comes from st.data() no
@example can hold it: put @reproduce_failure(...) there while you mend, then write the case as a
test of its own or draw it by arguments."""


@dataclass(frozen=True)
class FailingExample:
    """Failure of one property test. test: its node id. text: pytest's report of it."""

    test: str
    seed: int
    text: str

    def explicit(self) -> str:
        """`@example(...)` with the arguments of the failing call, or "" where none was printed."""
        call = CALL.search(self.text)
        if call is None:
            return ""
        lines = [NOTE.sub("", line).strip() for line in call[1].splitlines()]
        return f"@example({' '.join(line for line in lines if line).rstrip(', ')})"

    def describe(self) -> str:
        blob = BLOB.search(self.text)
        file = self.test.split("::")[0]
        command = " ".join(f"{name}={value}" for name, value in ENVIRONMENT.items())
        return "\n".join(
            [
                f"test: {self.test}",
                f"seed: {self.seed}",
                f"again: {command} python -m pytest -m hypothesis {file} "
                f"--hypothesis-seed={self.seed}",
                f"explicit: {self.explicit() or 'the report holds no example'}",
                f"blob: {blob[0] if blob else 'none'}",
            ]
        )

    def keep(self, folder: Path) -> Path:
        """Write the failure to a file of `folder` and return its path."""
        folder.mkdir(parents=True, exist_ok=True)
        name = re.sub(r"[^\w.-]+", "-", self.test.removeprefix("tests/"))[:120].strip("-")
        path = folder / f"{name}-seed{self.seed}.txt"
        path.write_text(f"{self.describe()}\n\n{self.text}\n", encoding="utf-8")
        return path


def property_tests(selection: Sequence[str]) -> dict[str, list[str]]:
    """Return file -> what pytest is given to run its selected property tests.

    Raises:
        ValueError: pytest refuses the selection, or it holds no property test.
    """
    files: set[str] = set()
    for part in selection:  # each by itself: folders have a conftest.py of the same name
        asked = [*PYTEST, "--collect-only", part]
        env = {**os.environ, **ENVIRONMENT}
        ended = subprocess.run(asked, capture_output=True, text=True, env=env)
        if ended.returncode not in (0, 5):
            raise ValueError(f"tests {part!r}: pytest refuses them:\n{ended.stdout[-2000:]}")
        files |= {line.split("::")[0] for line in ended.stdout.splitlines() if "::" in line}
    if not files:
        raise ValueError(f"tests {list(selection)}: no property test among them")
    parts = {file: [s for s in selection if s.startswith(f"{file}::")] for file in sorted(files)}
    return {file: part or [file] for file, part in parts.items()}


def run_file(
    tests: Sequence[str], seed: int, timeout: float
) -> tuple[int, list[FailingExample]] | None:
    """Run one file's tests; return (tests that ran, failures), or None where the time was over."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        log = Path(folder) / "log.txt"
        asked = [*PYTEST, "-p", "no:cacheprovider", "-p", "no:xdist", f"--junitxml={report}"]
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*asked, f"--hypothesis-seed={seed}", *tests],
                stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
                env={**os.environ, **ENVIRONMENT},
            )  # fmt: skip
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(process)
        if report.exists():
            return _read(report, tests[0].split("::")[0], seed)
        # A crash of the process writes no report: its log is what there is.
        tail = log.read_text(encoding="utf-8", errors="replace")[-8000:]
        text = f"pytest ended with {process.returncode} and no report\n{tail}"
        return 0, [FailingExample(tests[0].split("::")[0], seed, text)]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group; one that has ended may have left children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _read(report: Path, file: str, seed: int) -> tuple[int, list[FailingExample]]:
    cases = list(ElementTree.parse(report).iter("testcase"))
    failures = []
    for case in cases:
        for tag in ("failure", "error"):
            for part in case.iter(tag):
                text = f"{part.get('message', '')}\n{part.text or ''}"
                failures.append(FailingExample(f"{file}::{case.get('name')}", seed, text))
    return len(cases), failures


def search(
    files: dict[str, list[str]], folder: Path, *, minutes: float, seed: int, most: int | None = None
) -> list[FailingExample]:
    """Run rounds of all files, a seed each, until the time is over; keep failures in `folder`.

    Args:
        files: of `property_tests`. most: rounds; None for as many as there is time for.
    """
    end = time.monotonic() + 60 * minutes
    failures: list[FailingExample] = []
    runs = done = rounds = 0
    while time.monotonic() < end and rounds != most:
        order = sorted(files)
        random.Random(seed + rounds).shuffle(order)
        for file in order:
            began = time.monotonic()
            result = run_file(files[file], seed + rounds, end - began)
            if result is None:
                break
            count, new = result
            runs, done = runs + 1, done + count
            state = f"{len(new)} FAILED" if new else "ok"
            seconds = time.monotonic() - began
            print(f"seed {seed + rounds} {file}: {count} tests, {seconds:.0f} s, {state}")
            for failure in new:
                print(f"\n{failure.describe()}\nreport: {failure.keep(folder)}\n")
            sys.stdout.flush()
            failures += new
            if time.monotonic() >= end:
                break
        else:
            rounds += 1
            continue
        break
    print(
        f"{done} property tests in {runs} runs of {len(files)} files, {rounds} whole rounds from "
        f"seed {seed}: {len(failures)} failures"
    )
    if failures:
        print(f"kept in {folder}\n{HELP}")
    return failures


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=10, help="how long to search (default 10)")
    parser.add_argument("--seed", type=int, help="of the first round (default: drawn)")
    parser.add_argument("--rounds", type=int, help="at most; a round runs every file with one seed")
    parser.add_argument("--out", type=Path, default=Path("build/search"), help="where failures go")
    parser.add_argument("tests", nargs="*", default=["tests"], help="files, folders or node ids")
    options = parser.parse_args(arguments)
    if not options.minutes > 0:
        parser.error(f"--minutes {options.minutes:g}: must be above 0")
    if options.seed is not None and not 0 <= options.seed < 1 << 32:
        parser.error(f"--seed {options.seed}: must be 0 to {(1 << 32) - 1}")
    if options.rounds is not None and options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: must be at least 1")
    try:
        files = property_tests(options.tests)
    except ValueError as problem:
        print(problem, file=sys.stderr)
        return 2
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 31)
    print(f"{len(files)} files with property tests, {options.minutes:g} minutes from seed {seed}")
    found = search(files, options.out, minutes=options.minutes, seed=seed, most=options.rounds)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
