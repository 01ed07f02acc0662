"""Messages between the runner, the fork server and a cell's process."""

from __future__ import annotations

import os
import signal
import socket
import struct
from collections.abc import Callable
from typing import Any

import msgspec

from dgbench.lab.experiment import Cell, Measurement
from dgbench.runtime.errors import DgbenchError

UNWRITTEN = 74
"""Exit code of a cell's process that could not write its result (EX_IOERR of sysexits.h)."""

LEFT_WORK_S = 0.1
"""Processor time of a process that was left behind from which on it worked, and did not start."""

_HEAD = struct.Struct("<I")


class Setup(msgspec.Struct, tag=True, kw_only=True):
    """First message to the server: what to import before anything is forked.

    `lookup` is `module:name` of a function from a paper's name to a `Paper`; `file` is where
    that module lies, for modules that no path leads to. `without`: what ended an earlier server
    while it was loaded, in the words of `Loading`.
    """

    lookup: str
    file: str
    papers: list[str]
    modules: list[str]
    without: list[str] = []


class Loading(msgspec.Struct, tag=True, kw_only=True):
    """The server begins to load this; the last one heard of is to blame if the server ends."""

    what: str


class Ready(msgspec.Struct, tag=True, kw_only=True):
    """The server can fork. `threads`: operating-system threads it has (1 is right). `pid`: of the
    process that cells are forks of, which `sys.executable` may have started in its turn."""

    seconds: float
    threads: int
    pid: int
    notes: list[str]


class Refused(msgspec.Struct, tag=True, kw_only=True):
    """The server cannot work."""

    reason: str


class Job(msgspec.Struct, tag=True, kw_only=True):
    """One process to start. `cell.paper == "-"` measures the machine's limits.

    `log` and `result` are absolute paths; the result is written whole or not at all. `round` is 1
    until a process of the cell has compared its result. `draws` seeds what is drawn to be compared.
    `kept` are numbers that earlier processes of its group have made sure of (`systems.base.kept`).
    """

    cell: Cell
    device: str
    preset: str
    threads: int
    instrumented: bool
    budget_s: float
    seed: int
    log: str
    result: str
    round: int = 1
    draws: str = ""
    kept: dict[str, dict[str, Any]] = {}


class Start(msgspec.Struct, kw_only=True):
    """Arguments of a process that replaces a server or a child.

    Attributes:
        setup: of the server. notes: what it found so far. job: of the child.
    """

    setup: Setup
    notes: list[str] = []
    job: Job | None = None


class Started(msgspec.Struct, tag=True, kw_only=True):
    """The process runs; it leads a group of its own. `at`: `time.monotonic` when it was forked."""

    pid: int
    at: float = 0.0


class Ended(msgspec.Struct, tag=True, kw_only=True):
    """The process is gone, its group too.

    Attributes:
        code: exit code, or the negative number of the signal that ended it.
        seconds: from fork to exit. peak_rss_bytes: largest resident set of one process of it.
        cpu_s: user and system time of it and its children. voluntary, involuntary: context
            switches. read_bytes, written_bytes: block input and output.
        left: names of the processes that it left running; they were ended, too.
        left_cpu_s: processor time that these used when it had ended.
    """

    pid: int
    code: int
    seconds: float
    peak_rss_bytes: int
    cpu_s: float
    voluntary: int
    involuntary: int
    read_bytes: int
    written_bytes: int
    left: list[str] = []
    left_cpu_s: float = 0.0

    @classmethod
    def of_stuck(cls, pid: int) -> Ended:
        """The end of a process that even SIGKILL did not end; nothing is known of it."""
        return cls(
            pid=pid,
            code=-signal.SIGKILL,
            seconds=0.0,
            peak_rss_bytes=0,
            cpu_s=0.0,
            voluntary=0,
            involuntary=0,
            read_bytes=0,
            written_bytes=0,
        )


class Result(msgspec.Struct, kw_only=True):
    """Result file of a cell's process.

    `told`: when its phases began and ended (`probes.series.tell`), where it was instrumented.
    `notes`: what the process saw of itself, beside what the experiment says.
    `touched`: what it touched (`runtime.touched`).
    `metrics`: kind and words of metrics that a plugin registered and its observations have.
    `made`, `used`: numbers to be kept for later processes, and kept ones that it used.
    """

    status: str
    reason: str = ""
    measurement: Measurement = msgspec.field(default_factory=Measurement)
    base_rss_bytes: int = 0
    told: dict[str, Any] = {}
    notes: list[str] = []
    touched: dict[str, Any] = {}
    metrics: dict[str, tuple[str, str]] = {}
    made: dict[str, dict[str, Any]] = {}
    used: dict[str, dict[str, Any]] = {}


Message = Setup | Loading | Ready | Refused | Job | Started | Ended
_DECODER = msgspec.msgpack.Decoder(Message)
_ENCODER = msgspec.msgpack.Encoder()


def send(sock: socket.socket, message: Any) -> None:
    """Send one message. Raises OSError if the other side is gone."""
    payload = _ENCODER.encode(message)
    sock.sendall(_HEAD.pack(len(payload)) + payload)


def receive(sock: socket.socket) -> Any | None:
    """Wait for one message; None when the other side is gone."""
    head = _exactly(sock, _HEAD.size)
    if head is None:
        return None
    payload = _exactly(sock, _HEAD.unpack(head)[0])
    return None if payload is None else _DECODER.decode(payload)


def name_of(lookup: Callable[[str], Any]) -> tuple[str, str]:
    """(`module:name`, file) of a module-level function, as the server can import it.

    Raises:
        DgbenchError: the function has no name that another process could find it by.
    """
    module, name = lookup.__module__, lookup.__qualname__
    if "<" in name:
        raise DgbenchError(
            f"the paper lookup '{name}' is local", hint="use a function at module level"
        )
    code = getattr(lookup, "__code__", None)
    file = os.path.abspath(code.co_filename) if code is not None else ""
    return f"{module}:{name}", file


def signal_name(number: int) -> str:
    """`SIGABRT` for 6; `signal 77` for what has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _exactly(sock: socket.socket, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        try:
            part = sock.recv(count - len(parts))
        except ConnectionError:
            return None
        if not part:
            return None
        parts += part
    return bytes(parts)
