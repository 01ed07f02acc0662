"""An emulated wire: exchanges of ranks on one machine take the time of links that it does not have.

Data travel as they do without it; an operation is held back until its data would have arrived. A
rank that waits for them sleeps, so a core that has something to compute computes on, as it would
beside a network card. Whatever is timed on it is a result of this emulation, not of a network, and
is to be labelled "emulated wire".

The rule: every rank has one outgoing link. A message of b bytes keeps it busy for
`seconds_per_message + b / bytes_per_second`. Messages leave in the order in which they were given
to it, those of one exchange by the distance of their receivers (rank + 1 first), and a message is
there when its last byte has left. An exchange has arrived when the share of the slowest sender has.
Incoming links are as wide as they need to be.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from dgbench.runtime.errors import InvalidInputError, UnsupportedError

SLOTS: Final = 1024
"""Operations of a group that may be under way at a time."""


@dataclass(frozen=True, slots=True)
class LinkEmulation:
    """Latency and bandwidth of emulated links; the same on all ranks of a group.

    Attributes:
        seconds_per_message: cost of a message whatever its size, >= 0.
        bytes_per_second: bandwidth of a rank's outgoing link, > 0 (infinite is allowed).

    Raises:
        InvalidInputError: a number out of range.
    """

    seconds_per_message: float
    bytes_per_second: float

    def __post_init__(self) -> None:
        if not 0 <= self.seconds_per_message < float("inf"):
            raise InvalidInputError(
                f"'seconds_per_message' is {self.seconds_per_message!r}, needed: >= 0"
            )
        if not self.bytes_per_second > 0:
            raise InvalidInputError(f"'bytes_per_second' is {self.bytes_per_second!r}, needed: > 0")

    def seconds(self, messages: int, count: int) -> float:
        """For how long `messages` messages of `count` bytes in all keep a link busy."""
        return messages * self.seconds_per_message + count / self.bytes_per_second


class Clock(Protocol):
    """Seconds that all ranks of the machine agree on, and a way to let them pass."""

    def now(self) -> float: ...

    def sleep_until(self, moment: float, now: float) -> float:
        """Let it become `moment`, if it is not later; `now` was read just before. The new time."""
        ...


class MonotonicClock:
    """The machine's monotonic clock, which on Linux is one for all processes."""

    def now(self) -> float:
        return time.monotonic()

    def sleep_until(self, moment: float, now: float) -> float:
        # A sleep is never shorter than asked for; the loop is for moments that round down.
        while now < moment:
            time.sleep(moment - now)
            now = time.monotonic()
        return now


class ProcessorClock:
    """Time as it would pass if this rank had a core of its own that nobody else asks for.

    It is the processor time of the thread that asks, and what that has slept on this clock, which
    takes no time. Four ranks on two busy cores are then timed as on four, given that their work
    does not slow each other down; what the real transfer takes is not in it, except for copies that
    the thread makes itself. Clocks of ranks agree after a barrier.
    """

    def __init__(self) -> None:
        self._slept = 0.0

    def now(self) -> float:
        return time.thread_time() + self._slept

    def sleep_until(self, moment: float, now: float) -> float:
        # The clock is not read again: that takes more time here than all else in an exchange.
        self._slept += max(0.0, moment - now)
        return max(moment, now)


class EmulatedLink:
    """The outgoing link of one rank.

    Communicators of one rank that share its network card (a group and a part of it) are given the
    same link.

    Attributes:
        wire: what it is like. free_at: moment when all that was given to it has left.
    """

    def __init__(self, wire: LinkEmulation) -> None:
        self.wire, self.free_at = wire, 0.0

    def depart(self, now: float, messages: Iterable[tuple[int, int]]) -> list[float]:
        """Give it messages, each a pair (number of messages, bytes in all); when each is there."""
        arrivals = []
        self.free_at = max(self.free_at, now)
        for number, count in messages:
            self.free_at += self.wire.seconds(number, count)
            arrivals.append(self.free_at)
        return arrivals


class Timetable:
    """When whose data arrive where; a piece of memory that the ranks of a group share.

    Every rank writes its own rows before it sends, so whoever has received the data of an operation
    can read when they were due.

    Attributes:
        wire: of all ranks.
    """

    def __init__(
        self,
        memory: mmap.mmap,
        rank: int,
        size: int,
        link: EmulatedLink,
        clock: Clock | None = None,
    ) -> None:
        self.wire, self._rank, self._size = link.wire, rank, size
        self._link, self._clock = link, clock or MonotonicClock()
        # [rank, slot]: number of the operation, then the moment of arrival at each rank.
        self._width = size + 1
        self._rows = memoryview(memory).cast("d")

    @staticmethod
    def nbytes(size: int) -> int:
        """Of the memory of a group."""
        return 8 * size * SLOTS * (size + 1)

    def depart(
        self, number: int, leaving: Mapping[int, tuple[int, int]], *, whole: bool = False
    ) -> float:
        """Note when this rank's part of an operation arrives; seconds that its link is busy.

        Args:
            number: of the operation, the same on all ranks.
            leaving: receiver -> (messages, bytes).
            whole: nobody goes on before this rank has come here and all of its part has left (a
                reduction, a barrier); else each does when its share has arrived.
        """
        rows, now = self._rows, self._clock.now()
        first = self._row(self._rank, number)
        order = sorted(leaving, key=lambda to: (to - self._rank) % self._size)
        moments = self._link.depart(now, (leaving[to] for to in order))
        if whole:
            order, moments = list(range(self._size)), [max([now, *moments])] * self._size
        for to, moment in zip(order, moments, strict=True):
            rows[first + 1 + to] = moment
        rows[first] = number
        return sum(self.wire.seconds(*what) for what in leaving.values())

    def due(self, number: int, senders: Iterable[int]) -> float:
        """When the data of these ranks have arrived here; to be asked when they are here.

        Raises:
            UnsupportedError: a sender has begun `SLOTS` operations since.
        """
        latest = 0.0
        for rank in senders:
            first = self._row(rank, number)
            moment = self._rows[first + 1 + self._rank]
            if self._rows[first] != number:
                raise UnsupportedError(
                    f"an emulated wire holds {SLOTS} operations, rank {rank} has begun more since "
                    f"operation {number}",
                    hint="wait for exchanges before beginning so many others",
                )
            latest = max(latest, moment)
        return latest

    def _row(self, rank: int, number: int) -> int:
        return (rank * SLOTS + number % SLOTS) * self._width

    def now(self) -> float:
        return self._clock.now()

    def sleep_until(self, moment: float, now: float) -> float:
        return self._clock.sleep_until(moment, now)
