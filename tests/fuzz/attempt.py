"""One input through one target, with a limit of time and memory, and what became of it."""

from __future__ import annotations

import contextlib
import re
import resource
import signal
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import NoReturn

from dgbench.runtime.errors import DgbenchError
from tests.fuzz.target import Nonsense, Target

SECONDS = 5.0
"""An input that takes longer hangs."""
MEMORY = 6 << 30
"""Bytes of address space beyond what the process has when it begins."""


class Hang(BaseException):
    """An input took longer than `SECONDS`."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An input that breaks a promise; its key is the kind of error and the place in our code."""

    target: str
    data: bytes
    key: str
    words: str
    trace: str


@dataclass(slots=True)
class Tally:
    """Counts of the outcomes of one target's inputs."""

    target: str
    accepted: int = 0
    refused: int = 0
    failed: int = 0
    findings: dict[str, Finding] = field(default_factory=dict)

    @property
    def inputs(self) -> int:
        """All inputs."""
        return self.accepted + self.refused + self.failed


@contextlib.contextmanager
def limits() -> Iterator[None]:
    """Bound the memory of this process and make `watched` work."""
    with open("/proc/self/statm") as stream:
        size = int(stream.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, hard))
    before, alarm = signal.signal(signal.SIGALRM, _hang), signal.getitimer(signal.ITIMER_REAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *alarm)  # of pytest
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def watched(target: Target, data: bytes, tally: Tally) -> str:
    """Run one input for at most `SECONDS`; returns a word, the same for inputs that did alike."""
    try:
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            target.run(data)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except DgbenchError as error:
        tally.refused += 1
        return _alike(f"{type(error).__name__} {error}")
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # MemoryError, RecursionError and Hang are what is looked for
        found = _finding(target, data, error)
        tally.failed += 1
        tally.findings.setdefault(found.key, found)
        return found.key
    tally.accepted += 1
    return "accepted"


def _hang(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Hang(f"more than {SECONDS:g} s")


def _finding(target: Target, data: bytes, error: BaseException) -> Finding:
    frames = traceback.extract_tb(error.__traceback__)
    other = ("site-packages", "/lib/python", "tests/fuzz", "<frozen")
    place = ([f for f in frames if not any(part in f.filename for part in other)] or frames)[-1]
    file = "/".join(place.filename.split("/")[-3:])
    key = f"{type(error).__name__} at {file}:{place.lineno}"
    if isinstance(error, Nonsense):
        key = _alike(f"{key} {error}")
    trace = "".join(traceback.format_exception(error, limit=-12))
    return Finding(target.name, data, key, f"{type(error).__name__}: {error}"[:500], trace)


def _alike(words: str) -> str:
    """Words without what differs from input to input."""
    plain = re.sub(r"'[^']*'|\"[^\"]*\"|b'[^']*'", "'…'", words[:300])
    return re.sub(r"[0-9.+-]+|[^\x20-\x7e]+", "#", plain)[:80]
