"""`python -m tests.faults`: inject every fault, print what came of it, exit 1 on any loss."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path


def main() -> int:
    """Parse, prepare the environment of all processes, run."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    only = "kinds whose name contains it, or all of a module of cases"
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help=only)
    parser.add_argument("--seed", type=int, default=1, help="of all random moments and places")
    parser.add_argument("--list", action="store_true", help="name the kinds and end")
    one = "one fault of each kind, the first; the others are left to the whole campaign"
    parser.add_argument("--quick", action="store_true", help=one)
    given = parser.parse_args()
    if "DGBENCH_FAULTS" not in os.environ:
        return _prepared(sys.argv[1:], given.list)
    from tests.faults.campaign import chosen

    kinds = chosen(given.only)
    if not kinds:
        print(f"error: no kind of fault is called {' or '.join(given.only)}", file=sys.stderr)
        return 2
    if given.list:
        for kind in kinds:
            print(f"{kind.count:4d}  {kind.name}: {kind.about}")
        return 0
    return _run(kinds, given.seed, Path(os.environ["DGBENCH_FAULTS_FOLDER"]), given.quick)


def _run(kinds: list, seed: int, root: Path, quick: bool) -> int:
    from tests.faults.campaign import run_kind

    injected = losses = 0
    for kind in kinds:
        report = run_kind(kind, seed, root, quick=quick)
        injected, losses = injected + report.injected, losses + len(report.losses)
        done = f"left out: {report.skipped}" if report.skipped else f"{report.passed} passed"
        print(f"{kind.name}: {report.injected} faults, {done}, {report.seconds:.1f} s", flush=True)
        for loss in report.losses[:12]:
            print(f"LOST in {kind.name}: {loss}", flush=True)
    print(f"{injected} faults injected (seed {seed}), {losses} losses.")
    return int(losses > 0)


def _prepared(arguments: list[str], listing: bool) -> int:
    """Run this again with the failing disk preloaded and a mark that all its processes have."""
    from tests.faults.shim import STATE, Disk, compile_shim

    folder = Path(tempfile.mkdtemp(prefix="dgbf"))
    environment = os.environ | {
        "DGBENCH_FAULTS": uuid.uuid4().hex,
        "DGBENCH_FAULTS_FOLDER": str(folder),
        "DGBENCH_CACHE": str(folder / "cache"),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "JE_ARROW_MALLOC_CONF": "background_thread:false",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    library = None if listing else compile_shim(folder)
    if library is not None:
        Disk.make(folder / "state")
        before = os.environ.get("LD_PRELOAD", "")
        environment["LD_PRELOAD"] = f"{library} {before}".strip()
        environment[STATE] = str(folder / "state")
    try:
        command = [sys.executable, "-m", "tests.faults", *arguments]
        return subprocess.run(command, env=environment).returncode
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
