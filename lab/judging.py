"""Context in which a check of a claim runs: which numbers it reads, and the run's noise floor.

A check says what it found and never how strong that is. The harness opens a context around it, in
which every number that is read from a row leaves a trace; the conditions under which these numbers
were obtained decide the strength (`lab.evidence`). Ratios take the noise floor from here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Read(NamedTuple):
    """A number of a row that a check read: id of the row, metric, the seed that it is of, and
    whether it is as a publisher printed it."""

    row: str
    metric: str
    seed: Any = None
    printed: bool = False


@dataclass(slots=True)
class Judging:
    """Noise floor and numbers read while one check runs.

    Attributes:
        floor: relative noise floor of the run, or None where none was measured.
        reads: the numbers that were read so far.
        ratios: every ratio that was formed.
        asked: ratios of which the check asked on which side they lie.
    """

    floor: float | None = None
    reads: set[Read] = field(default_factory=set)
    ratios: list[Any] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)

    def deciding(self, low: float | None = None, high: float | None = None) -> list[Any]:
        """Ratios that decide the outcome of a check: those whose side it asked for and those whose
        interval it returns as its own; where there are none, all that it formed."""
        mine = [] if low is None else [r for r in self.ratios if (r.low, r.high) == (low, high)]
        return [*self.asked, *mine] or self.ratios


_CURRENT: ContextVar[Judging | None] = ContextVar("judging", default=None)


@contextmanager
def judging(floor: float | None) -> Iterator[Judging]:
    """A context for one check; numbers read inside it are kept in `reads`."""
    current = Judging(floor)
    token = _CURRENT.set(current)
    try:
        yield current
    finally:
        _CURRENT.reset(token)


@contextmanager
def judging_apart() -> Iterator[Judging]:
    """A context for one reading of the check that runs; what it reads is noted for both."""
    outer = _CURRENT.get()
    with judging(outer.floor if outer is not None else None) as current:
        yield current
    if outer is not None:
        outer.reads |= current.reads
        outer.ratios += current.ratios
        outer.asked += current.asked


def note_read(row: Any, metric: str, seed: Any = None, printed: bool = False) -> None:
    """Keep that a number of a row was read; outside of a check nothing happens."""
    current = _CURRENT.get()
    if current is not None:
        current.reads.add(Read(getattr(row, "id", ""), metric, seed, printed))


def note_ratio(ratio: Any) -> None:
    """Keep a ratio that was formed; outside of a check nothing happens."""
    current = _CURRENT.get()
    if current is not None:
        current.ratios.append(ratio)


def note_decision(ratio: Any) -> None:
    """Keep that the side of a ratio decided something; outside of a check nothing happens."""
    current = _CURRENT.get()
    if current is not None:
        current.asked.append(ratio)


def current_floor() -> float:
    """The noise floor of the check that runs; 0 outside of one, and where none was measured."""
    current = _CURRENT.get()
    return (current.floor or 0.0) if current is not None else 0.0
