"""Warm interpreter: a process that has imported torch and dgbench, and forks for every program.

Starting `dgbench` takes 2.5 s of processor time, nearly all of it imports. A fork takes
milliseconds and comes to its end as any other process does. It is for tests of what programs do:
those of how a process starts, or is stopped, start one.

    python warm.py SOCKET -m MODULE ... | -c CODE ... | FILE ...

stands for `python -m MODULE ...` in the interpreter that listens there: with this process's
folder, environment, cores and standard streams, and with the exit code of the program.
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


@contextlib.contextmanager
def warm_interpreter(folder: Path) -> Iterator[list[str]]:
    """Words that stand for `python` as long as the interpreter, whose socket lies here, runs."""
    import subprocess

    address = folder / "socket"
    here, there = socket.socketpair()
    command = [sys.executable, __file__, "--serve", str(address), str(there.fileno())]
    with here, subprocess.Popen(
        command, cwd=folder, pass_fds=[there.fileno()], stdin=subprocess.DEVNULL
    ) as process:  # fmt: skip
        there.close()
        try:
            here.settimeout(START_S)
            assert here.recv(1), "the interpreter ended before it listened"
            yield [sys.executable, "-S", "-E", __file__, str(address)]
        finally:
            process.kill()


def ask(address: str, words: list[str]) -> int:
    """Exit code of a program."""
    order = {
        "words": words, "folder": os.getcwd(), "environment": dict(os.environ),
        "cores": sorted(os.sched_getaffinity(0)),
    }  # fmt: skip
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asked:
        asked.connect(address)
        socket.send_fds(asked, [json.dumps(order).encode()], [0, 1, 2])
        code = int(asked.recv(100))
    return code if code >= 0 else 128 - code  # as a shell has it


def serve(address: str, ready: int) -> dict[str, Any]:
    """Fork for every program that is asked for; returns the order of one in its fork."""
    _import_ahead()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen()
    os.write(ready, b"1")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait for programs
    while True:
        asked, _ = listener.accept()
        if os.fork() == 0:
            break
        asked.close()
    listener.close()
    os.close(ready)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    order, streams, _, _ = socket.recv_fds(asked, 1 << 18, 3)
    if program := os.fork():
        _wait(program, asked, streams)
    asked.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    return json.loads(order)


def _wait(program: int, asked: socket.socket, streams: list[int]) -> NoReturn:
    """Tell how a program ended, or end it when nobody waits for it any more."""
    for stream in streams:
        os.close(stream)
    with contextlib.suppress(AttributeError, OSError):  # a kernel without such descriptors
        ended = os.pidfd_open(program)
        if ended not in select.select([ended, asked], [], [])[0]:
            os.kill(program, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    with contextlib.suppress(OSError):
        asked.send(str(code).encode())
    os._exit(0)


def _import_ahead() -> None:
    """Modules of dgbench's own entry points; nothing that remembers what is installed is called."""
    import gc
    import importlib.metadata

    import torch._dynamo  # noqa: F401 - torch's optimisers import it at their first step

    import dgbench.harness.cli  # noqa: F401

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
    inherited = _python_path()
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.path[:] = ["", *_python_path(), *(p for p in sys.path[1:] if p not in inherited)]
    importlib.invalidate_caches()  # what has been installed since
    how, *rest = order["words"]
    if how == "-m":
        sys.argv, sys.path[0] = rest, os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif how == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv, sys.path[0] = [how, *rest], str(Path(how).resolve().parent)
        runpy.run_path(how, run_name="__main__")


def _python_path() -> list[str]:
    return [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        execute(serve(sys.argv[2], int(sys.argv[3])))
    else:
        sys.exit(ask(sys.argv[1], sys.argv[2:]))
