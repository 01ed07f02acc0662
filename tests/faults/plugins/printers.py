"""Plugins that print."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dgbench.systems.base import Cell, Measurement, RunContext
from tests.faults.plugins import harm

MIB = 1 << 20


def _log() -> Path:
    return Path(os.readlink("/proc/self/fd/1"))


@harm("ok")
def binary(cell: Cell, context: RunContext) -> Measurement:
    os.write(1, bytes(range(256)) * 4096)
    return Measurement()


@harm("ok", "printed 100.0 MiB; the middle of its log is left out")
def a_hundred_megabytes(cell: Cell, context: RunContext) -> Measurement:
    for _ in range(100):
        os.write(1, b"all is well\n" * (MIB // 12) + b"\n" * (MIB % 12))
    return Measurement()


@harm("crash", "stopped because it printed more than 256 MiB")
def without_end(cell: Cell, context: RunContext) -> Measurement:
    while True:
        os.write(2, b"x" * MIB)


@harm("ok", "printed 8.0 MiB")
def one_line(cell: Cell, context: RunContext) -> Measurement:
    os.write(1, b"y" * (8 * MIB))
    return Measurement()


@harm("crash", "RuntimeError: and then it broke", "clear red")
def colours_and_a_crash(cell: Cell, context: RunContext) -> Measurement:
    print("\x1b[2J\x1b[Hclear \x1b[31mred\x1b[0m \x07\x1b]0;owned\x07", flush=True)
    raise RuntimeError("and then it broke")


@harm("crash", "killed by SIGABRT", "last line of its log: half a le")
def binary_and_a_crash(cell: Cell, context: RunContext) -> Measurement:
    os.write(2, b"\xff\xfe\x00\x01\nhalf a le\xc3\n")
    os.abort()


@harm("ok")
def closed_streams(cell: Cell, context: RunContext) -> Measurement:
    sys.stdout.close()
    sys.stderr.close()
    os.close(1)
    os.close(2)
    return Measurement()


@harm("crash", "ValueError: unseen")
def closed_streams_and_an_error(cell: Cell, context: RunContext) -> Measurement:
    sys.stdout.close()
    sys.stderr.close()
    raise ValueError("unseen")


@harm("ok")
def no_streams(cell: Cell, context: RunContext) -> Measurement:
    sys.stdout = sys.stderr = None  # type: ignore[assignment]
    return Measurement()


@harm("ok")
def a_log_that_is_gone(cell: Cell, context: RunContext) -> Measurement:
    print("you will not read this", flush=True)
    _log().unlink()
    return Measurement()


@harm("ok")
def a_pipe_for_a_log(cell: Cell, context: RunContext) -> Measurement:
    path = _log()
    path.unlink()
    os.mkfifo(path)
    return Measurement()


@harm("ok")
def a_folder_for_a_log(cell: Cell, context: RunContext) -> Measurement:
    path = _log()
    path.unlink()
    path.mkdir()
    return Measurement()
