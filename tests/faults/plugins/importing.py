"""A module that does at import what `DGBENCH_FAULTS_IMPORT` says; `write` makes others like it."""

from __future__ import annotations

from pathlib import Path

HARM = {
    "raises": "raise ValueError('not today')",
    "exits": "import sys; sys.exit('I am done')",
    "interrupts": "raise KeyboardInterrupt('no')",
    "leaves": "import os; os._exit(7)",
    "aborts": "import os; os.abort()",
    "segfaults": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "hangs": "import time; time.sleep(600)",
    "closes": "import os; os.closerange(3, 4096)",
    "redirects": "import os; os.environ['DGBENCH_CACHE'] = '/nowhere'",
    "threads": "import threading, time; threading.Thread(target=time.sleep, args=(900,),"
    " daemon=True).start()",
    "forks": "import os, time\nif os.fork() == 0:\n    time.sleep(600)\n    os._exit(0)",
    "prints": "print('\\x1b[31m' + 'noise ' * 200_000)",
    "wrong": "def of(:",
    "walks": "import os; os.chdir('/')",
}
"""Sources of modules by name."""


def write(folder: Path) -> list[str]:
    """Write a module `harm_<name>` for each; returns their names."""
    for name, code in HARM.items():
        (folder / f"harm_{name}.py").write_text(f"{code}\n\n\n{_RUN}")
    return [f"harm_{name}" for name in HARM]


_RUN = """def run(cell, context):
    from dgbench.systems.base import Measurement

    return Measurement()
"""
