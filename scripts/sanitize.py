"""The operators' tests under sanitizers: every read, write, sum and lock of `_cpu` is watched.

    python scripts/sanitize.py [address|thread|all] [--quick] [-- PYTEST ARGUMENTS]

`address` is AddressSanitizer and UndefinedBehaviorSanitizer, compiled by g++, over all tests of the
operators, the CUDA kernels among them as they are played through on the host. `thread`
is ThreadSanitizer over the same with four threads; it needs clang++ and its OpenMP, because gcc's
says nothing of its locks (Debian: apt-get install clang libomp-dev). Linux only.

Each build has a folder of its own, build/sanitize-NAME, and is installed there: what is installed
elsewhere is not touched. Before the tests one fault of each kind is committed on purpose, and the
sanitizer must name it. Ends with a table; exit code 1 if anything was found or a test failed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUPPRESSIONS = ROOT / "scripts" / "sanitizers"

# Each with the words by which a report names it. `none` is a sound program that must stay unnamed.
PLANTED = {
    "overflow": "heap-buffer-overflow",
    "freed": "heap-use-after-free",
    "undefined": "signed integer overflow",
    "cast": "is outside the range of representable values",
    "vector": "AddressSanitizer: ABRT",  # the C++ library's own check of an index
    "race": "data race",
    "none": "",
}

# The tests of an editable install would get its operators, whatever the path says.
SITE_CUSTOMIZE = """import sys

sys.meta_path[:] = [f for f in sys.meta_path if not type(f).__module__.startswith("_editable_")]
"""


@dataclass(frozen=True)
class Check:
    """One kind of build and what is run with it."""

    name: str
    flags: str
    compiler: str
    # Libraries and the compiler that has them, to stand in front of all else in the process.
    preloaded: tuple[tuple[str, str], ...]
    planted: tuple[str, ...]
    tests: tuple[str, ...]
    quick: tuple[str, ...]
    threads: int
    workers: int  # processes that share the tests; one that a finding ends is replaced
    settings: dict[str, str]

    @property
    def folder(self) -> Path:
        return ROOT / "build" / f"sanitize-{self.name}"

    @property
    def site(self) -> Path:
        return self.folder / "site"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @staticmethod
    def library(compiler: str, name: str) -> str:
        """Where the compiler has a library of its own; "" where it has none."""
        if shutil.which(compiler) is None:
            return ""
        asked = [compiler, f"-print-file-name={name}"]
        found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        return str(Path(found).resolve()) if "/" in found and Path(found).exists() else ""

    def missing(self) -> str:
        """Why it cannot run here, or ""."""
        if sys.platform != "linux":
            return "sanitizers are run on Linux only"
        if shutil.which(self.compiler) is None:
            return f"no {self.compiler}"
        for compiler, name in self.preloaded:
            if not self.library(compiler, name):
                return f"no {name} of {compiler}"
        return ""

    def environment(self) -> dict[str, str]:
        """Of a process that runs the checked operators."""
        kept = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "LD_PRELOAD"}}
        log = f"log_path={self.logs}/report"
        options = {name: f"{text}:{log}" for name, text in self.settings.items()}
        if self.name == "thread":
            openmp = self.library("clang++", "libomp.so.5")
            archer = Path(openmp).parent / "libarcher.so"  # tells it of OpenMP's locks
            options |= {"OMP_TOOL_LIBRARIES": str(archer), "KMP_BLOCKTIME": "0"}
        return kept | options | {
            "LD_PRELOAD": " ".join(self.library(*one) for one in self.preloaded),
            "PYTHONPATH": str(self.site),
            "PYTHONMALLOC": "malloc",  # Python's own blocks would hide what lies in them
            "OMP_NUM_THREADS": str(self.threads),
            "OMP_WAIT_POLICY": "passive",  # threads that wait in a loop are slow to watch
            "DGBENCH_SANITIZER": self.name,
        }  # fmt: skip


CHECKS = {
    "address": Check(
        name="address",
        flags="address,undefined,float-cast-overflow",
        compiler="g++",
        # Also the C++ library: where it came later, throwing would not be seen.
        preloaded=(("g++", "libasan.so"), ("g++", "libubsan.so"), ("g++", "libstdc++.so.6")),
        planted=("overflow", "freed", "undefined", "cast", "vector", "none"),
        tests=("tests/kernels", "tests/runtime/test_transfer.py"),
        quick=("tests/kernels", "tests/runtime/test_transfer.py"),
        threads=2,
        workers=2,
        settings={
            # Python keeps most of what it allocates to the end, so leaks say nothing here;
            # `nox -s soak` looks for growth instead.
            "ASAN_OPTIONS": "detect_leaks=0:handle_abort=1:allocator_may_return_null=1:"
            "quarantine_size_mb=64",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        },
    ),
    "thread": Check(
        name="thread",
        flags="thread",
        compiler="clang++",
        # What clang compiles calls the same functions as what gcc does; its own library of them
        # does not start with the C library of Debian 12. torch gets the same OpenMP.
        preloaded=(("g++", "libtsan.so"), ("clang++", "libomp.so.5")),
        planted=("race", "none"),
        tests=("tests/kernels", "tests/runtime/test_transfer.py"),
        quick=("tests/kernels/test_thread_counts.py", "tests/runtime/test_transfer.py"),
        threads=4,
        workers=0,
        settings={
            # torch's and Python's own locks are not compiled to be followed.
            "TSAN_OPTIONS": "ignore_noninstrumented_modules=1:history_size=4:"
            f"second_deadlock_stack=1:suppressions={SUPPRESSIONS / 'thread.supp'}",
        },
    ),
}


def build(check: Check) -> None:
    """Compile the operators with the sanitizer and install the package beside them."""
    command = [
        sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps",
        "--upgrade", "--target", str(check.site), "-C", f"build-dir={check.folder}",
        "-C", "install.strip=false",
        "-C", f"cmake.define.DGBENCH_SANITIZE={check.flags}",
        "-C", f"cmake.define.CMAKE_CXX_COMPILER={shutil.which(check.compiler)}",
        "-C", "cmake.define.DGBENCH_CUDA=off", str(ROOT),
    ]  # fmt: skip
    subprocess.run(command, check=True, cwd=ROOT)
    (check.site / "sitecustomize.py").write_text(SITE_CUSTOMIZE)


def python(check: Check, *arguments: str) -> int:
    # ThreadSanitizer's shadow leaves no room for addresses that are drawn far apart.
    fixed = ["setarch", "-R"] if check.name == "thread" else []
    command = [*fixed, sys.executable, *arguments]
    # UndefinedBehaviorSanitizer beside another one writes there, wherever it is told to.
    with (check.logs / "report.stderr").open("ab") as errors:
        done = subprocess.run(
            command, cwd=ROOT, env=check.environment(), stderr=errors, check=False
        )
    return done.returncode


def take_reports(folder: Path) -> list[str]:
    """Reports that the sanitizers wrote since the last call, in order of file."""
    found: list[str] = []
    for path in sorted(folder.glob("report*")):
        found += split_reports(path.read_text(errors="replace"))
        path.unlink()
    # What asks for more than there is throws std::bad_alloc elsewhere, and the tests ask for it.
    return [report for report in found if "allocator is out of memory" not in report]


BEGIN = re.compile(r"^(?:==\d+==ERROR: |WARNING: ThreadSanitizer: |\S+: runtime error: )", re.M)


def split_reports(text: str) -> list[str]:
    """A log as its reports; text before the first one counts to none."""
    starts = [match.start() for match in BEGIN.finditer(text)]
    return [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=False)]


PLACE = re.compile(r"\S*?(kernels_cuda/[\w./]+|tests/cuda/emulated/[\w.]+):(\d+)")


def title(report: str) -> str:
    """Fault and place of a report in one line: equal for reports of the same fault."""
    what = re.sub(r"^==\d+==ERROR: ", "", report.splitlines()[0])
    what = re.sub(r"^\S+: (runtime error: [^:]+).*", r"\1", what)  # what follows are the numbers
    what = re.sub(r" \(pid=\d+\)| (?:on|at) (?:unknown )?address.*|0x[0-9a-f]+", "", what)
    place = PLACE.search(report)
    return f"{what.strip()} at {place[1]}:{place[2]}" if place else what.strip()


def prove(check: Check) -> list[str]:
    """Commit the planted faults; what the sanitizer did not name, or named without cause."""
    wrong = []
    for kind in check.planted:
        code = f"from dgbench.kernels_cuda import _cpu; _cpu._commit_fault({kind!r}, 1)"
        status = python(check, "-c", code)
        said = take_reports(check.logs)
        wanted = PLANTED[kind]
        if wanted and not any(wanted in report for report in said):
            wrong.append(f"a planted fault was not seen: {kind} (exit code {status})")
        if not wanted and (said or status):
            wrong += [f"a sound program was named: {title(r)}" for r in said] or [f"exit {status}"]
    return wrong


def run(check: Check, *, quick: bool, posargs: list[str]) -> tuple[int, list[str], float]:
    """Exit code of the tests, the reports, and seconds taken."""
    began = time.monotonic()
    tests = posargs if any("tests" in word for word in posargs) else []
    named = [] if tests else list(check.quick if quick else check.tests)
    status = python(
        check, "-m", "pytest", "-m", "not cuda", "-n", str(check.workers), "-p",
        "no:faulthandler", "-o", f"cache_dir={check.folder / 'pytest'}", "--timeout", "0",
        "--capture=sys",
        *named, *posargs,
    )  # fmt: skip
    return status, take_reports(check.logs), time.monotonic() - began


def table(lines: Iterable[tuple[str, ...]]) -> str:
    lines = list(lines)
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    pad = "  "
    return "\n".join(
        pad.join(word.ljust(w) for word, w in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("kind", nargs="?", default="all", choices=[*CHECKS, "all"])
    parser.add_argument("--quick", action="store_true", help="what fits into eight minutes")
    parser.add_argument("--no-build", action="store_true", help="run what was built before")
    parser.add_argument("posargs", nargs="*", metavar="-- PYTEST ARGUMENTS")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    asked = arguments(words)
    # The tests of threads alone would take CI's whole time to compile for.
    default = ["address"] if asked.quick else list(CHECKS)
    names = default if asked.kind == "all" else [asked.kind]
    lines = [("sanitizer", "planted", "tests", "findings", "build s", "tests s")]
    failed = False
    for name in names:
        check = CHECKS[name]
        if reason := check.missing():
            print(f"{name}: not run, {reason}", file=sys.stderr)
            lines.append((name, "-", f"not run: {reason}", "-", "-", "-"))
            failed |= asked.kind == name  # what was asked for by name must run
            continue
        began = time.monotonic()
        if not asked.no_build:
            build(check)
        built = time.monotonic() - began
        shutil.rmtree(check.logs, ignore_errors=True)
        check.logs.mkdir(parents=True)
        blind = prove(check)
        status, reports, seconds = run(check, quick=asked.quick, posargs=asked.posargs)
        counts = Counter(map(title, reports))
        shown = {title(report): report for report in reversed(reports)}
        for what, count in counts.most_common():
            print(f"\n{'=' * 80}\n{what} ({count} times)\n{shown[what]}", file=sys.stderr)
        for what in blind:
            print(f"{name}: {what}", file=sys.stderr)
        seen = len(check.planted) - len(blind)
        lines.append((
            name, f"{seen} of {len(check.planted)} told", "passed" if status == 0 else
            f"failed (exit code {status})", str(len(counts)), f"{built:.0f}", f"{seconds:.0f}",
        ))  # fmt: skip
        failed |= bool(status or counts or blind)
    print(table(lines))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
