"""The process that has imported one plugin and answers questions about it.

It is a fork of the command, in a session of its own, without the command's files and output. The
plugin may change whatever it likes there; it may hang, exit or crash, and the question that waits
for it ends with the reason.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import struct
import sys
import time
import weakref
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from dgbench.harness.probes.cpu import Tree
from dgbench.harness.runner.protocol import signal_name
from dgbench.harness.runner.readable import describe, message
from dgbench.harness.signals import die_with_parent, raise_pending
from dgbench.runtime.errors import InvalidInputError

IMPORT_S: Final = 10.0
"""Seconds that a plugin may take until it is imported and has described itself, unless
`DGBENCH_PLUGIN_SECONDS` says otherwise."""

WAKE_S: Final = 1.0
"""Longest time without a look at signals: one that comes just before a wait does not end it."""
CALL_S: Final = 60.0
"""Seconds that a check, a figure or the cells of an experiment may take."""

ANSWER_BYTES: Final = 64 << 20
"""Most bytes of an answer; the points of the largest figure of all papers take 1 MB."""

_GONE_S: Final = 2.0
"""Seconds that a killed process has to be gone."""

_HEAD: Final = struct.Struct("<I")
_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=lambda value: _plain(value))

_open: weakref.WeakSet[PluginProcess] = weakref.WeakSet()


def import_seconds() -> float:
    """Seconds that a plugin may take until it has described itself. Raises InvalidInputError."""
    name = "DGBENCH_PLUGIN_SECONDS"
    said = os.environ.get(name, "")
    try:
        seconds = float(said) if said else IMPORT_S
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise InvalidInputError(f"{name} is '{said}', allowed: a number above 0, at most 3600")
    return seconds


class PluginError(Exception):
    """A plugin could not answer; the message is one line that says why."""


class PluginProcess:
    """A process that has imported one plugin; it is forked when the first question is asked.

    A process that took too long or broke is not started again: every further question fails with
    the first reason. In a fork of the command it is forked anew, since two cannot share it.

    Attributes:
        kind: `system` or `paper`. name: of its entry point.
    """

    def __init__(self, kind: str, name: str) -> None:
        self.kind, self.name = kind, name
        self._owner = self._pid = 0
        self._sock: socket.socket | None = None
        self._fault, self._ready_by = "", 0.0
        self._sent: dict[int, tuple[int, Any]] = {}

    def ask(
        self,
        function: str,
        *arguments: Any,
        rows: Sequence[Any] | None = None,
        describes: bool = False,
    ) -> Any:
        """Answer of a function of `answers.py` about the plugin, as plain values.

        Args:
            arguments: plain values, structs or dataclasses. rows: of a run, given to the function
                as its last argument; each one travels once.
            describes: whether it is the first question, which waits for the import.

        Raises:
            PluginError: the plugin raised, its process ended, or the time is over.
        """
        if self._fault:
            raise PluginError(self._fault)
        self.start()
        fresh, places = self._places(rows)
        payload = _ENCODER.encode([function, arguments, fresh, places])
        begin = time.monotonic()
        end = max(begin + 1.0, self._ready_by) if describes else begin + CALL_S
        try:
            answer = self._exchange(payload, end)
        except TimeoutError:
            seconds = import_seconds() if describes else CALL_S
            self._end(f"it took longer than {seconds:g} s to give its {function}")
        except (OSError, EOFError):
            self._end(f"its process {self._how()} before it gave its {function}")
        except (msgspec.MsgspecError, ValueError) as error:
            self._end(f"its {function} cannot be read: {message(error)}")
        except BaseException:  # Ctrl-C: an answer that still comes must not be taken for the next
            self.close()
            raise
        if answer.error:
            raise PluginError(answer.error)
        return answer.value

    def start(self) -> None:
        """Begin to import the plugin, in this process's own fork; does nothing if it has begun."""
        if self._owner != os.getpid() and not self._fault:
            self._fork()
            self._ready_by = time.monotonic() + import_seconds()

    def close(self) -> None:
        """End the process and all below it; may be called twice."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None
        if self._pid and self._owner == os.getpid():
            for pid in [*Tree(self._pid).pids(), self._pid]:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)
            self._wait(_GONE_S)
        self._pid = self._owner = 0
        self._sent = {}

    def _fork(self) -> None:
        from dgbench.harness.plugins.answers import serve

        self._sock = None  # of the command that this is a fork of, where it is one
        self._sent = {}
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            try:
                _apart(theirs.fileno())
                serve(theirs, self.kind, self.name)
            finally:
                os._exit(0)
        theirs.close()
        self._sock, self._pid, self._owner = ours, pid, os.getpid()
        _open.add(self)

    def _places(self, rows: Sequence[Any] | None) -> tuple[list[Any], list[int] | None]:
        """Rows that the process has not seen yet, and where each of `rows` stands in all."""
        if rows is None:
            return [], None
        fresh = []
        for row in rows:
            if id(row) not in self._sent:  # kept with the row, or its id might become another's
                self._sent[id(row)] = len(self._sent), row
                fresh.append(row)
        return fresh, [self._sent[id(row)][0] for row in rows]

    def _exchange(self, payload: bytes, end: float) -> _Answer:
        sock = self._sock
        assert sock is not None
        sock.settimeout(max(0.0, end - time.monotonic()) or 1e-3)
        sock.sendall(_HEAD.pack(len(payload)) + payload)
        size = _HEAD.unpack(self._read(_HEAD.size, end))[0]
        if size > ANSWER_BYTES:
            raise ValueError(f"it takes {size:,} bytes, at most {ANSWER_BYTES:,} are read")
        return msgspec.msgpack.decode(self._read(size, end), type=_Answer)

    def _read(self, count: int, end: float) -> bytes:
        assert self._sock is not None
        parts = bytearray()
        while len(parts) < count:
            left = max(0.0, end - time.monotonic())
            self._sock.settimeout(min(left, WAKE_S) or 1e-3)
            try:
                part = self._sock.recv(min(count - len(parts), 1 << 20))
            except TimeoutError:
                raise_pending()
                if left > WAKE_S:
                    continue
                raise
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)

    def _how(self) -> str:
        """Describe the process's end in words; it is not reaped, so that its id stays taken."""
        ended = self._wait(0.5, os.WNOWAIT)
        if ended is None:
            return "closed its connection"
        if ended.si_code == os.CLD_EXITED:
            return f"ended with exit code {ended.si_status}"
        return f"was killed by {signal_name(ended.si_status)}"

    def _wait(self, patience_s: float, more: int = 0) -> os.waitid_result | None:
        """Wait for the process's end and reap it; None if it is still running or is not known."""
        end = time.monotonic() + patience_s
        with contextlib.suppress(ChildProcessError):
            while time.monotonic() < end:
                found = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | more)
                if found is not None:
                    return found
                time.sleep(0.002)
        return None

    def _end(self, fault: str) -> None:
        self.close()
        self._fault = fault
        raise PluginError(fault) from None


class _Answer(msgspec.Struct):
    value: Any = None
    error: str = ""


def _apart(keep: int) -> None:
    """Make a fork of the command harmless to it: no files, no output, no handlers, no threads."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    with contextlib.suppress(OSError):
        os.setsid()
    die_with_parent()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    most = os.sysconf("SC_OPEN_MAX")
    os.closerange(3, keep)
    os.closerange(keep + 1, min(most, 1 << 16) if most > 0 else 1 << 16)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for the life of the process
    sys.stdout = sys.stderr = open(1, "w", closefd=False)  # noqa: SIM115
    if "torch" in sys.modules:  # OpenMP's threads do not survive a fork, and are waited for
        sys.modules["torch"].set_num_threads(1)


def _plain(value: Any) -> Any:
    """Scalars of numpy and torch as Python's own, and paths as words."""
    if hasattr(value, "item"):
        return value.item()
    if hasattr(value, "__fspath__"):
        return os.fspath(value)
    raise ValueError(f"a {type(value).__name__} is no plain value")


def answer_of(value: Any, error: BaseException | str = "") -> bytes:
    """An answer as it is sent; one that cannot be sent becomes the reason."""
    text = error if isinstance(error, str) else describe(error)
    try:
        payload = _ENCODER.encode({"value": value, "error": text})
    except Exception as trouble:  # values of a plugin may do anything when they are looked at
        payload = _ENCODER.encode({"value": None, "error": describe(trouble)})
    return _HEAD.pack(len(payload)) + payload


@atexit.register
def close_all() -> None:
    """End the processes of all plugins that were asked, with what these have started."""
    for process in list(_open):
        process.close()
