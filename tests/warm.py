"""Warm interpreter: a process that has imported torch and dgbench, and forks for every program.

Starting `dgbench`, or the fork server of a run, takes 2.5 s of processor time, nearly all of it
imports. A fork takes milliseconds and comes to its end as any other process does. It is for tests
of what programs do: those of how a process starts, or is stopped, start one.

    python warm.py SOCKET -m MODULE ... | -c CODE ... | FILE ...

stands for `python -m MODULE ...` in the interpreter that listens there: with this process's
folder, environment, cores and open files; with the signals that it gets, and with the program's
end. What tells the two apart is `/proc/PID/environ`: a fork keeps that of the interpreter.

A program finds as its `sys.executable` what starts others in the same way, so the fork server and
the sides of a race are forks as well.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

START_S = 240.0
"""Most seconds that a busy machine may take to import everything."""

MOST_FILES = 250
"""Most files that a program inherits; Linux passes 253 at once."""

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals to a process that waits for a program, which the program gets."""

EXECUTABLE = """#!/bin/sh
case "$1 $2" in
  -c\\ * | *.py\\ * | -m\\ dgbench*) exec {python} -S -E {file} {address} "$@" ;;
  *) exec {python} "$@" ;;
esac
"""
"""Stands for `python`: other programs than dgbench's, as pip, get an interpreter of their own."""


@contextlib.contextmanager
def warm_interpreter(folder: Path) -> Iterator[list[str]]:
    """Words that stand for `python` as long as the interpreter, whose socket lies here, runs.

    It is one word, the path of an executable file. The interpreter may still be importing.
    """
    import shlex
    import subprocess

    address, executable = folder / "socket", folder / "python"
    words = {"python": sys.executable, "file": __file__, "address": str(address)}
    executable.write_text(EXECUTABLE.format(**{k: shlex.quote(v) for k, v in words.items()}))
    executable.chmod(0o755)
    command = [sys.executable, __file__, "--serve", str(address)]
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL) as process:
        try:
            yield [str(executable)]
        finally:
            process.kill()


def await_interpreter(words: list[str]) -> None:
    """Return once the interpreter behind these words listens."""
    import time

    address, end = Path(words[0]).with_name("socket"), time.monotonic() + START_S
    while not address.exists():
        assert time.monotonic() < end, "the interpreter ended before it listened"
        time.sleep(0.02)


def ask(address: str, words: list[str]) -> int:
    """Wait for a program; returns its exit code, or ends by the signal that ended it."""
    files = [n for n in map(int, os.listdir("/proc/self/fd")) if _is_open(n)]
    order = {
        "words": words, "folder": os.getcwd(), "environment": dict(os.environ), "files": files,
        "cores": sorted(os.sched_getaffinity(0)),
        "executable": str(Path(address).with_name("python")),
    }  # fmt: skip
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asked:
        asked.connect(address)
        socket.send_fds(asked, [json.dumps(order).encode()], files)
        for number in PASSED_ON:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda got, _: asked.send(str(int(got)).encode()))
        code = int(asked.recv(100))
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL needs none
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _is_open(descriptor: int) -> bool:
    """Return True for what a program inherits; the descriptor of the listing itself is gone."""
    try:
        return os.get_inheritable(descriptor)
    except OSError:
        return False


def serve(address: str) -> dict[str, Any]:
    """Fork for every program that is asked for; returns the order of one in its fork."""
    _import_ahead()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"{address}.new")
    listener.listen()
    os.rename(f"{address}.new", address)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait for programs
    while True:
        asked, _ = listener.accept()
        if os.fork() == 0:
            break
        asked.close()
    listener.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    text, files, _, _ = socket.recv_fds(asked, 1 << 18, MOST_FILES)
    if program := os.fork():
        _wait(program, asked, files)
    asked.close()
    order = json.loads(text)
    _place(files, order["files"])
    return order


def _place(files: list[int], numbers: list[int]) -> None:
    """Give open files the numbers that they have in the process that waits."""
    above = max([*files, *numbers]) + 1
    for place, descriptor in enumerate(files):  # out of each other's way
        os.dup2(descriptor, above + place)
        os.close(descriptor)
    for place, number in enumerate(numbers):
        os.dup2(above + place, number)
        os.close(above + place)


def _wait(program: int, asked: socket.socket, files: list[int]) -> NoReturn:
    """Tell how a program ended, pass on signals, end it when nobody waits for it any more."""
    for descriptor in files:
        os.close(descriptor)
    with contextlib.suppress(AttributeError, OSError):  # a kernel without such descriptors
        ended, number = os.pidfd_open(program), 0
        while number != signal.SIGKILL and ended not in select.select([ended, asked], [], [])[0]:
            number = int(asked.recv(100) or signal.SIGKILL)
            os.kill(program, number)
    code = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    with contextlib.suppress(OSError):
        asked.send(str(code).encode())
    os._exit(0)


def _import_ahead() -> None:
    """Modules of dgbench's own entry points; nothing that remembers what is installed is called."""
    import gc
    import importlib.metadata

    # Commands import what a report needs when they come to it, torch's optimisers their compiler.
    import matplotlib.pyplot  # noqa: F401
    import pandas  # noqa: F401
    import torch._dynamo  # noqa: F401

    import dgbench.harness.cli
    import dgbench.harness.figures.draw
    import dgbench.harness.report.build  # noqa: F401
    from dgbench.harness.runner.client import MODULES

    for module in MODULES:  # the fork server imports them
        with contextlib.suppress(ImportError):
            importlib.import_module(module)

    for group in ("dgbench.systems", "dgbench.papers"):
        for point in importlib.metadata.entry_points(group=group):
            if point.module.startswith("dgbench."):
                importlib.import_module(point.module)
    gc.collect()
    gc.freeze()  # or the first collection of a fork would copy every page that it looks at


def execute(order: dict[str, Any]) -> None:
    """Be the program of an order."""
    import runpy

    os.chdir(order["folder"])
    os.sched_setaffinity(0, order["cores"])
    sys.executable = order["executable"]
    inherited = _python_path()
    os.environ.clear()
    os.environ.update(order["environment"])
    first = [] if os.environ.get("PYTHONSAFEPATH") else [""]
    sys.path[:] = [*first, *_python_path(), *(p for p in sys.path[1:] if p not in inherited)]
    importlib.invalidate_caches()  # what has been installed since
    how, *rest = order["words"]
    if how == "-m":
        sys.argv, sys.path[: len(first)] = rest, [os.getcwd()] * len(first)
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif how == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv, sys.path[: len(first)] = (
            [how, *rest],
            [str(Path(how).resolve().parent)] * len(first),
        )
        runpy.run_path(how, run_name="__main__")


def _python_path() -> list[str]:
    return [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        execute(serve(sys.argv[2]))
    else:
        sys.exit(ask(sys.argv[1], sys.argv[2:]))
