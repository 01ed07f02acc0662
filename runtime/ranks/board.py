"""A board on which every rank notes where it stands, so that a hang has a name.

It is a small file that launcher and ranks map into memory: a note costs a few stores, works however
the ranks were started, and can still be read when a rank has stopped answering.
"""

from __future__ import annotations

import mmap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dgbench.runtime.collectives import OPERATIONS, RankProgress

STARTING, WORKING, WAITING, DONE = range(4)

_NAMES: Final = (*OPERATIONS, "barrier", "gather_objects", "share_memory")
_STATE, _OPERATION, _NUMBER, _SINCE, _BASE, _JOINED, _HELD = range(7)
_FIELDS: Final = 8  # one cache line a rank


@dataclass(frozen=True, slots=True)
class RankStatus:
    """Where one rank stands.

    Attributes:
        rank: which one. state: STARTING, WORKING, WAITING or DONE.
        operation: the collective it waits in, or waited in last; "" before the first.
        number: how many it had begun by then. seconds: since it came into this state.
    """

    rank: int
    state: int
    operation: str
    number: int
    seconds: float

    def __str__(self) -> str:
        last = f"{self.operation} (operation {self.number})" if self.operation else ""
        if self.state == STARTING:
            return f"had not joined the group after {self.seconds:.1f} s"
        if self.state == WAITING:
            return f"had waited {self.seconds:.1f} s in {last}"
        if self.state == DONE:
            return "was done"
        return f"had worked for {self.seconds:.1f} s since {last or 'it joined the group'}"


class StatusBoard:
    """The notes of all ranks; int64[P, 8] in a file."""

    def __init__(self, path: Path, size: int, *, create: bool = False) -> None:
        self._path, self._size = path, size
        if create:
            path.write_bytes(bytes(8 * _FIELDS * size))
        with path.open("r+b") as file:
            # Views of numpy cost more than all else in a note, and every wait makes two.
            self._notes = memoryview(mmap.mmap(file.fileno(), 8 * _FIELDS * size)).cast("q")
        if create:
            for rank in range(size):
                self._notes[rank * _FIELDS + _SINCE] = time.monotonic_ns()

    def place(self, rank: int) -> RankStatus:
        """Where `rank` stands now."""
        note = self._notes[rank * _FIELDS : (rank + 1) * _FIELDS].tolist()
        return RankStatus(
            rank=rank,
            state=note[_STATE],
            operation=_NAMES[note[_OPERATION]] if note[_NUMBER] else "",
            number=note[_NUMBER],
            seconds=(time.monotonic_ns() - note[_SINCE]) / 1e9,
        )

    def places(self) -> list[RankStatus]:
        """Where all ranks stand now."""
        return [self.place(rank) for rank in range(self._size)]

    def note(self, rank: int, state: int, operation: str = "", number: int = 0) -> None:
        """Write down that `rank` came into `state`."""
        notes, row = self._notes, rank * _FIELDS
        if number:
            notes[row + _OPERATION], notes[row + _NUMBER] = _NAMES.index(operation), number
        notes[row + _SINCE] = time.monotonic_ns()
        notes[row + _STATE] = state

    def base(self, rank: int, set_to: int | None = None) -> int:
        """Bytes of private memory that `rank` began with; 0 until it has said so."""
        if set_to is not None:
            self._notes[rank * _FIELDS + _BASE] = set_to
        return self._notes[rank * _FIELDS + _BASE]

    def held(self, rank: int, set_to: int | None = None) -> int:
        """Bytes of private memory that `rank` had when its work was done; 0 before."""
        if set_to is not None:
            self._notes[rank * _FIELDS + _HELD] = set_to
        return self._notes[rank * _FIELDS + _HELD]

    def joined_ns(self, rank: int, set_to: int | None = None) -> int:
        """Monotonic clock when `rank` had joined the group; 0 before."""
        if set_to is not None:
            self._notes[rank * _FIELDS + _JOINED] = set_to
        return self._notes[rank * _FIELDS + _JOINED]


class BoardProgress(RankProgress):
    """A communicator's notes, written on a board."""

    def __init__(self, board: StatusBoard, rank: int) -> None:
        self._board, self._rank = board, rank

    def waits(self, operation: str, number: int) -> None:
        self._board.note(self._rank, WAITING, operation, number)

    def goes_on(self) -> None:
        self._board.note(self._rank, WORKING)


def culprit(places: list[RankStatus]) -> RankStatus:
    """The rank that the others wait for.

    One that is not waiting, the furthest behind first; if all wait, the one in the earliest
    operation: then the ranks disagree about what comes next.
    """
    order = {STARTING: 0, WORKING: 1, WAITING: 2, DONE: 3}
    return min(places, key=lambda p: (order[p.state], p.number, -p.seconds, p.rank))
