#!/usr/bin/env python3
"""Race two systems with the dgbench that this Python has installed, without compiler and checkout.

    python scripts/race_wheel.py

The race runs in an empty folder. The only programs on its path are this Python's own, so that
nothing can be compiled, and dgbench must come from site-packages. Ends with 1 where a contender has
no result or one that is wrong.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "nvcc", "cmake", "ninja")
RACE = ("run", "pipad/fig10", "--preset", "smoke", "--device", "cpu", "--limit", "1", "--offline")
CHECK = """
import sys, sysconfig
from pathlib import Path
import dgbench
from dgbench.harness.store import Store, find_run

here = Path(dgbench.__file__).resolve()
if not here.is_relative_to(Path(sysconfig.get_path("platlib")).resolve()):
    sys.exit(f"dgbench is {here}, which is not in site-packages")
rows = Store.open(find_run("last")).rows()
mine = [row for row in rows if row.paper == "pipad"]
failed = [f"{row.id}: {row.status} {row.reason}" for row in mine if not row.ok]
systems = sorted({row.system for row in mine if row.ok and row.time is not None and row.system})
if failed or len(systems) < 2:
    sys.exit(f"raced {systems}; without a result: {failed}")
print(f"raced {', '.join(systems)} from {here.parent}")
"""


def main() -> int:
    """The exit code of the race or of the check that follows."""
    programs = Path(sysconfig.get_path("scripts"))
    with tempfile.TemporaryDirectory(prefix="dgbench-wheel-") as folder:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("DGBENCH_", "PYTHON"))}
        env |= {"HOME": folder, "PATH": str(programs), "CC": "no-compiler", "CXX": "no-compiler"}
        for name in COMPILERS:
            if found := shutil.which(name, path=str(programs)):
                print(f"error: {found} is on the path", file=sys.stderr)
                return 2
        for command in (["-m", "dgbench", *RACE], ["-c", CHECK]):
            done = subprocess.run([sys.executable, *command], cwd=folder, env=env, check=False)
            if done.returncode:
                return done.returncode
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
