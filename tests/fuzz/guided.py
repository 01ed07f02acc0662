"""Mutation guided by coverage: atheris (libFuzzer) over our Python, in a process of its own.

    python -m tests.fuzz.guided TARGET RUNS SECONDS SEED FOLDER

libFuzzer ends its process itself, so what was found is written down as it goes: `tally.json` and
`findings/` in FOLDER; inputs that reached new code lie in FOLDER/corpus. What is instrumented: the
modules of dgbench below `WATCHED`, and the standard library's readers of archives.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.target import Target, targets

WATCHED = ("dgbench.datasets", "dgbench.harness", "dgbench.runtime.statistics",
           "dgbench.lab.compare", "tarfile", "zipfile", "gzip", "yaml",
           "numpy.lib._format_impl", "numpy.lib.format", "numpy.lib._npyio_impl")  # fmt: skip
LATE_S = 240
"""A child that takes this much longer than it was given (it also has to start) hangs."""


def missing() -> str:
    """Why there is no coverage guidance here, or ""."""
    try:
        import atheris  # noqa: F401
    except ImportError as error:
        return (
            f"atheris is not installed ({error}); it has wheels for Linux and Python 3.11 to 3.13"
        )
    return ""


def run(target: Target, *, runs: int, seconds: float, seed: int):
    """Fuzz one target in a child; see `mutate.run`."""
    from tests.fuzz.attempt import Finding, Tally

    with tempfile.TemporaryDirectory(prefix="dgbench-guided-") as name:
        folder = Path(name)
        (folder / "corpus").mkdir()
        for number, data in enumerate(target.seeds()):
            (folder / "corpus" / f"seed-{number}").write_bytes(data)
        call = [sys.executable, "-m", "tests.fuzz.guided", target.name, str(runs),
                str(int(seconds)), str(seed), name]  # fmt: skip
        tally, note = Tally(target.name, "atheris"), ""
        begin = time.monotonic()
        try:
            done = subprocess.run(call, capture_output=True, timeout=seconds + LATE_S, check=False)
            tail = done.stderr.decode(errors="replace")[-2000:]
            code = done.returncode
        except subprocess.TimeoutExpired:
            tail, code = "", None
        tally.seconds = time.monotonic() - begin
        known = folder / "tally.json"
        if known.exists():
            found = json.loads(known.read_bytes())
            tally.accepted, tally.refused = found["accepted"], found["refused"]
            tally.failed = found["failed"]
            tally.findings = {
                k: Finding(target.name, bytes.fromhex(f["data"]), k, f["words"], f["trace"])
                for k, f in found["findings"].items()
            }
        if code != 0:
            left = sorted(folder.glob("*-*"), key=lambda p: p.stat().st_mtime)
            data = left[-1].read_bytes() if left else b""
            note = "hangs" if code is None else f"ends with {code}"
            key = f"the process {note}"
            tally.findings[key] = Finding(target.name, data, key, key, tail)
        seeds = set(target.seeds())
        new = [p.read_bytes() for p in sorted((folder / "corpus").glob("*"))]
        return tally, [data for data in new if data not in seeds]


def instrument() -> int:
    """Instrument the functions of every module below `WATCHED` that is loaded; their number.

    An import hook would not see them: an editable install has a finder of its own.
    """
    import types

    import atheris

    count = 0
    for name, module in list(sys.modules.items()):
        if not name.startswith(WATCHED) or module is None:
            continue
        holders = [module, *(v for v in vars(module).values() if isinstance(v, type))]
        for holder in holders:
            for value in list(vars(holder).values()):
                inner = getattr(value, "__func__", getattr(value, "fget", value))
                own = isinstance(inner, types.FunctionType) and inner.__module__ == name
                if own and not getattr(inner, "_watched", False):
                    inner.__code__ = atheris.instrument_func(inner).__code__
                    inner._watched = True
                    count += 1
    return count


def main(name: str, runs: int, seconds: int, seed: int, folder: Path) -> None:
    """Fuzz in this process until libFuzzer ends it."""
    import atheris

    from tests.fuzz.attempt import Tally, limits, watched

    target, tally = targets()[name], Tally(name, "atheris")
    for data in target.seeds():  # also imports what is imported late
        watched_once(target, data)
    instrument()
    last = [time.monotonic()]

    def write() -> None:
        plain = {
            "accepted": tally.accepted,
            "refused": tally.refused,
            "failed": tally.failed,
            "findings": {
                k: {"data": f.data.hex(), "words": f.words, "trace": f.trace}
                for k, f in tally.findings.items()
            },
        }
        (folder / "tally.json").write_text(json.dumps(plain))

    def one(data: bytes) -> None:
        watched(target, data, tally)
        if tally.inputs >= runs or time.monotonic() - last[0] > 1:
            last[0] = time.monotonic()
            write()

    options = [
        *("fuzz", f"-runs={runs}", f"-max_total_time={seconds}", f"-seed={seed}", "-max_len=16384"),
        *("-rss_limit_mb=6000", "-timeout=60", "-print_final_stats=1", "-len_control=10"),
        f"-artifact_prefix={folder}/artifact-",
    ]
    if target.tokens:
        words = folder / "words.dict"
        words.write_text("".join(f'"{_quoted(t)}"\n' for t in target.tokens if 0 < len(t) < 64))
        options.append(f"-dict={words}")
    with limits():
        atheris.Setup([*options, str(folder / "corpus")], one)
        atheris.Fuzz()


def watched_once(target: Target, data: bytes) -> None:
    """Run an input for what it imports."""
    import contextlib

    with contextlib.suppress(Exception):
        target.run(data)


def _quoted(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
