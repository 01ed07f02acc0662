"""SIGTERM and SIGHUP as a way to end in order, as Ctrl-C is one; and ending with the parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from dgbench.runtime.errors import SignalExit

_pending: list[int] = []
"""Numbers of the signals that ended this process's outermost `signals_unwind`, at most one."""


@contextlib.contextmanager
def signals_unwind() -> Iterator[None]:
    """SIGTERM and SIGHUP raise SignalExit(128 + number), the first time; later ones do nothing.

    Outside the main thread, which alone may set handlers, nothing changes. Nor does it where a
    signal is ignored, or in a process that is forked meanwhile: that one ends at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner, numbers = os.getpid(), (signal.SIGTERM, signal.SIGHUP)
    handlers = {n: signal.getsignal(n) for n in numbers}

    def unwind(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:
            os._exit(128 + number)
        if not _pending:
            _pending.append(number)
            raise SignalExit(128 + number)

    for number, handler in handlers.items():
        if handler is signal.SIG_DFL:
            signal.signal(number, unwind)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if handler is signal.SIG_DFL:
                signal.signal(number, handler)
        if any(handler is signal.SIG_DFL for handler in handlers.values()):
            _pending.clear()


def raise_pending() -> None:
    """Raise SignalExit again where a library has caught it; long waits ask now and then."""
    if _pending:
        raise SignalExit(128 + _pending[0])


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent ends; elsewhere this does nothing."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
