"""Who holds which destinations when: Algorithm 6 for any number of devices, and what it replaces.

Device i owns part i and trains every grid (i, j) of an interval. Destinations move, sources never.
In a round of the ring, G phases of one swap and one step each, every device has had every part, and
all are home again after the last swap; the grid (i, i) comes last. G = 1 has one phase without a
move. An odd number of devices cannot pair up, so there each hands its part on to the next one
(`shift`), which sends as much and uses every link in one direction only.

What travels: the embedding of each destination is *read*; sums over its partners and the gradient
of its embedding are *added* to, and have to come home. Nothing has been added yet when a part
leaves, and nobody reads it again when it comes home, so that each vector moves G - 1 times and not
G (`lean`; the paper swaps whole parts every time).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from dgbench.runtime.errors import InvalidInputError, unknown_key
from dgbench.runtime.topology.model import Topology
from dgbench.systems.tgcn.links import Links, hop_matrix, machine
from dgbench.systems.tgcn.ring import LITERAL, best_ring, pairs

KINDS: Final = ("ring", "shift", "gather", "direct")
"""Ways to bring destinations: round the ring by swaps or by handing on, all at once before training
starts, or one at a time from their owner, in turns, whatever is linked."""


class PartMove(NamedTuple):
    """One part that goes from a device to another before a phase's training.

    Attributes:
        source, target: devices. part: which part.
        reads, sums: whether what is read travels, and what is added to.
    """

    source: int
    target: int
    part: int
    reads: bool
    sums: bool


class SchedulePhase(NamedTuple):
    """Moves, and the destination parts that each device then trains.

    Attributes:
        moves: all at the same time.
        trains: for each device its destination parts, none in a phase that only brings sums home.
    """

    moves: tuple[PartMove, ...]
    trains: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class RingSchedule:
    """One round over the grids of an interval.

    Attributes:
        kind: a key of `KINDS`. size: devices G. ring: devices in the order of the ring.
        phases: in order.
    """

    kind: str
    size: int
    ring: tuple[int, ...]
    phases: tuple[SchedulePhase, ...]

    @property
    def assignments(self) -> list[tuple[int, ...]]:
        """The part that each device trains, phase by phase.

        Raises:
            InvalidInputError: a device trains several parts at once (`gather`).
        """
        if any(len(parts) != 1 for phase in self.phases for parts in phase.trains if parts):
            raise InvalidInputError(f"with '{self.kind}' devices train several parts at once")
        return [tuple(p[0] for p in phase.trains) for phase in self.phases if any(phase.trains)]

    @property
    def parts_held(self) -> int:
        """Destination parts that a device has to have room for while one of them is trained."""
        return max((len(p) for phase in self.phases for p in phase.trains), default=0)

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Different devices that send to each other, in the order of phases."""
        for phase in self.phases:
            for move in phase.moves:
                yield move.source, move.target


def make_schedule(
    size: int,
    kind: str = "ring",
    *,
    ring: Sequence[int] | None = None,
    lean: bool = True,
) -> RingSchedule:
    """The phases of an interval.

    Args:
        size: devices G, or parts that one device goes through.
        kind: see `KINDS`; `ring` is `shift` where G is odd and more than 1.
        ring: devices in ring order, for instance the best one of links that are known
            (`ring.best_ring`); None: the best ring of a DGX-1 where it has so many devices, else in
            the order of their numbers.
        lean: leave out what is still zero on the way out, and what nobody reads on the way home.

    Raises:
        UnknownKeyError: another kind. InvalidInputError: no device, or a ring without each of them.
    """
    if kind not in KINDS:
        raise unknown_key("kind", kind, KINDS)
    if size < 1:
        raise InvalidInputError(f"'size' is {size}, needed: at least 1")
    if ring is None:
        ring = best_ring(machine(size=size)) if size <= len(LITERAL) else range(size)
    order = tuple(ring)
    if sorted(order) != list(range(size)):
        raise InvalidInputError(f"'ring' is {list(order)}, needed: each of {size} devices once")
    if kind == "ring" and size % 2 and size > 1:
        kind = "shift"
    make = {"ring": _swaps, "shift": _shifts, "gather": _gather, "direct": _direct}[kind]
    return RingSchedule(kind, size, order, make(order, lean))


def _own(size: int) -> list[int]:
    return list(range(size))


def _swaps(ring: tuple[int, ...], lean: bool) -> tuple[SchedulePhase, ...]:
    size, held = len(ring), _own(len(ring))
    if size == 1:
        return (SchedulePhase((), ((0,),)),)
    sides = pairs(ring)
    phases = []
    for number in range(size):
        moves = []
        for a, b in sides[number % 2]:
            reads, sums = not lean or number < size - 1, not lean or number > 0
            moves += [PartMove(a, b, held[a], reads, sums), PartMove(b, a, held[b], reads, sums)]
            held[a], held[b] = held[b], held[a]
        phases.append(SchedulePhase(tuple(moves), tuple((part,) for part in held)))
    return tuple(phases)


def _shifts(ring: tuple[int, ...], lean: bool) -> tuple[SchedulePhase, ...]:
    size, held = len(ring), _own(len(ring))
    if size == 1:
        return (SchedulePhase((), ((0,),)),)
    phases = []
    for number in range(size):
        reads, sums = not lean or number < size - 1, not lean or number > 0
        moves = tuple(
            PartMove(a, ring[(i + 1) % size], held[a], reads, sums) for i, a in enumerate(ring)
        )
        for move in moves:
            held[move.target] = move.part
        phases.append(SchedulePhase(moves, tuple((part,) for part in held)))
    return tuple(phases)


def _gather(ring: tuple[int, ...], lean: bool) -> tuple[SchedulePhase, ...]:
    every = _own(len(ring))
    out = tuple(PartMove(j, i, j, True, not lean) for i in every for j in every if i != j)
    home = tuple(PartMove(i, j, j, not lean, True) for i in every for j in every if i != j)
    phases = (SchedulePhase(out, tuple(tuple(every) for _ in every)),)
    return (*phases, SchedulePhase(home, tuple(() for _ in every))) if home else phases


def _direct(ring: tuple[int, ...], lean: bool) -> tuple[SchedulePhase, ...]:
    size, phases = len(ring), []
    for number in range(1, size + 1):
        moves = []
        for i in _own(size):
            before, now = (i + number - 1) % size, (i + number) % size
            if number > 1:
                moves.append(PartMove(i, before, before, not lean, True))
            if now != i:
                moves.append(PartMove(now, i, now, True, not lean))
        phases.append(
            SchedulePhase(tuple(moves), tuple(((i + number) % size,) for i in _own(size)))
        )
    return tuple(phases)


def check_schedule(schedule: RingSchedule) -> None:
    """Follow every part round.

    Raises:
        InvalidInputError: a grid is left out or trained twice, a device sends or trains what it
            does not hold, or something is not home in the end.
    """
    size = schedule.size
    trained = np.zeros((size, size), dtype=np.int64)
    copies = schedule.kind in ("gather", "direct")
    holds = [{i} for i in range(size)]
    for number, phase in enumerate(schedule.phases):
        taken = [set(h) for h in holds]
        for move in phase.moves:
            if move.part not in holds[move.source]:
                raise InvalidInputError(
                    f"phase {number}: device {move.source} sends part {move.part}, which it does "
                    "not hold"
                )
            if not copies or move.target == move.part:
                taken[move.source].discard(move.part)
        for move in phase.moves:
            taken[move.target].add(move.part)
        holds = taken
        for i, parts in enumerate(phase.trains):
            for part in parts:
                if part not in holds[i]:
                    raise InvalidInputError(f"phase {number}: device {i} lacks part {part}")
                trained[i, part] += 1
    missed = np.argwhere(trained != 1)
    if len(missed):
        i, j = missed[0].tolist()
        raise InvalidInputError(f"grid ({i}, {j}) is trained {trained[i, j]} times, not once")
    if any(holds[i] != {i} for i in range(size)):
        raise InvalidInputError(f"in the end devices hold {holds}, not their own parts")


def traffic(schedule: RingSchedule, rows: Sequence[int], *, read: int, add: int) -> np.ndarray:
    """Bytes from device to device in each phase of a round, int64[phases, G, G].

    Args:
        rows: of each part, all or those that the interval names.
        read, add: bytes of a row that are read, and that are added to.

    Raises:
        InvalidInputError: not one number for each part.
    """
    if len(rows) != schedule.size:
        raise InvalidInputError(f"'rows' has {len(rows)} numbers for {schedule.size} parts")
    found = np.zeros((len(schedule.phases), schedule.size, schedule.size), dtype=np.int64)
    for number, phase in enumerate(schedule.phases):
        for move in phase.moves:
            each = read * move.reads + add * move.sums
            found[number, move.source, move.target] += each * int(rows[move.part])
    return found


def expected_bytes(schedule: RingSchedule, rows: Sequence[int], *, read: int, add: int) -> int:
    """Bytes that all devices send in a lean round by formula: (G - 1) V vectors of every kind."""
    return (schedule.size - 1) * sum(map(int, rows)) * (read + add)


def exchange_seconds(schedule: RingSchedule, sent: np.ndarray, topology: Topology) -> float:
    """Projected seconds of all exchanges of a round, one phase after the other."""
    return float(sum(topology.time(matrix) for matrix in sent))


def bytes_by_hops(sent: np.ndarray, links: Links) -> dict[int, int]:
    """Bytes by the NVLinks that they pass, -1 for those that go through the host."""
    total, hops = sent.sum(0), hop_matrix(links)
    return {int(h): int(total[hops == h].sum()) for h in np.unique(hops) if h != 0}


def host_placement(
    rows: Sequence[int], *, state: int, read: int, add: int, devices: int
) -> dict[str, int]:
    """Bytes over PCIe of an interval, beside its edges, where vectors live in host memory.

    Each device reads and writes the state of its own part, and reads every destination part and
    writes what it added to it (NeuGraph's placement, section 4.1). With vectors in the memory of
    the devices nothing of this passes PCIe.

    Args:
        rows: of each part. state, read, add: bytes of a row. devices: G.
    """
    total = sum(map(int, rows))
    return {
        "h2d": total * state + devices * total * read,
        "d2h": total * state + devices * total * add,
    }
