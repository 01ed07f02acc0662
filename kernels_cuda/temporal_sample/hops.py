"""Room for the hops of a sample on a device, made before it is known how much they will hold.

Nothing is read back between hops: each has places for the most neighbours it may find, how many it
has stands on the device, and all counts come home together when the last hop is through. A batch
of usual size is one array, laid out here and filled by one compiled call; where the places are too
many to be taken without counting, every hop is called on its own.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from dgbench.kernels_cuda.temporal_sample.samples import Sample

MOST_PLACES: Final = 1 << 24
"""Places for the neighbours of a hop up to which they are taken without counting first."""
ARRAYS: Final = ("nodes", "times", "positions", "offsets", "neighbours", "eids", "edge_times")
"""Of a `Sample`, in its order."""


_ALIGNED: Final = 32
"""Words of 8 bytes that arrays of a batch begin at multiples of."""
_SCAN_TILE: Final = 2048
"""Counts that a block of the prefix sum takes (`temporal_sample/cuda_launchers.h`)."""
_LONG_DRAW: Final = 64
"""Fan-out up to which a draw needs no table (`temporal_sample/cuda_launchers.h`)."""
_TABLE_WORDS: Final = 1 << 24
"""Words of 4 bytes of all tables, about (`temporal_sample/cuda_launchers.h`)."""


def draw_words(room: int, fanout: int) -> int:
    """Words of 4 bytes that uniform draws of a hop take, with the tables of large fan-outs."""
    if fanout <= _LONG_DRAW:
        return room * fanout
    table = (1 << (2 * fanout - 1).bit_length()) + 2 * -(-fanout // 32)
    return room * fanout + min(room, _TABLE_WORDS // table + 1) * table


@dataclass(frozen=True)
class Layout:
    """Where the arrays of a batch stand in one array of words of 8 bytes.

    Attributes:
        fanouts: by hop.
        rooms: most targets by hop.
        places: for each snapshot and its hops seven starts: nodes, times and positions of the
            targets, offsets, neighbours, edge ids and times of edges.
        staged: words in front that are copied from the host: the number of roots and the roots.
        words: all of them.
        scratch: words that are needed beside them.
    """

    fanouts: tuple[int, ...]
    rooms: tuple[int, ...]
    places: tuple[tuple[int, ...], ...]
    staged: int
    words: int
    scratch: int

    @functools.cached_property
    def starts(self) -> list[int]:
        """`places` in one list, as the compiled function takes them."""
        return [start for seven in self.places for start in seven]

    def cut(self, memory: Tensor, totals: Sequence[int]) -> list[list[Sample]]:
        """[snapshot][hop], views of int64 `memory`, given the numbers of neighbours."""
        times, hops = memory.view(torch.float64), len(self.fanouts)
        every: list[list[Sample]] = []
        live = 0
        for number, (at, taken) in enumerate(zip(self.places, totals, strict=True)):
            hop = number % hops
            if hop == 0:
                every.append([])
                live = self.rooms[0]
            sample = Sample(
                memory[at[0] : at[0] + live], times[at[1] : at[1] + live],
                memory[at[2] : at[2] + live], memory[at[3] : at[3] + live + 1],
                memory[at[4] : at[4] + taken], memory[at[5] : at[5] + taken],
                times[at[6] : at[6] + taken], self.fanouts[hop],
            )  # fmt: skip
            every[-1].append(sample)
            live += taken
        return every


def lay_out(roots: int, fanouts: tuple[int, ...], snapshots: int, uniform: bool) -> Layout | None:
    """The layout of a batch; None where hops are to be called one by one."""
    return _lay_out(roots, fanouts, snapshots, uniform, MOST_PLACES)


@functools.lru_cache(maxsize=64)
def _lay_out(
    roots: int, fanouts: tuple[int, ...], snapshots: int, uniform: bool, most_places: int
) -> Layout | None:
    rooms = [roots]
    for fanout in fanouts:
        rooms.append(rooms[-1] * (1 + fanout))
    found = [room * fanout for room, fanout in zip(rooms, fanouts, strict=False)]
    if roots == 0 or max(found) > most_places:
        return None
    end = _ALIGNED  # the first word is the number of roots

    def take(words: int) -> int:
        nonlocal end
        start, end = end, end + -(-words // _ALIGNED) * _ALIGNED
        return start

    nodes, positions = take(roots), take(roots)
    first = [(nodes, take(roots), positions) for _ in range(snapshots)]
    staged, places = end, []
    for targets in first:
        at = targets
        for hop, count in enumerate(found):
            places.append((*at, take(rooms[hop] + 1), take(count), take(count), take(count)))
            if hop + 1 < len(fanouts):
                at = take(rooms[hop + 1]), take(rooms[hop + 1]), take(rooms[hop + 1])
    most = max(rooms[:-1])
    scratch = 2 * len(places) + -(-most // _SCAN_TILE) + 3 * -(-most // 2)
    if uniform:
        scratch += -(-max(map(draw_words, rooms, fanouts)) // 2)
    return Layout(fanouts, tuple(rooms[:-1]), tuple(places), staged, end, scratch)


@dataclass(frozen=True, slots=True)
class Targets:
    """Targets of a hop: `live` int64[1] of them, in arrays that may be longer."""

    live: Tensor
    nodes: Tensor
    times: Tensor
    positions: Tensor

    @classmethod
    def room(cls, count: int, device: torch.device) -> Targets:
        """Uninitialised places for `count`, none of them live."""
        ids = {"dtype": torch.int64, "device": device}
        return cls(
            torch.zeros(1, **ids),
            torch.empty(count, **ids),
            torch.empty(count, dtype=torch.float64, device=device),
            torch.empty(count, **ids),
        )

    @property
    def all(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The four arrays, as the compiled functions take them."""
        return self.live, self.nodes, self.times, self.positions


@dataclass(slots=True)
class Hop:
    """Arrays of one hop.

    Attributes:
        targets: whose neighbours are looked for.
        fanout: at most so many of each.
        located: counts, positions of the first record and candidates int32[room], and the
            candidates drawn int32[draw_words(room, fanout)] where they are drawn.
        offsets: int64[room + 1], the sums of the counts.
        found: neighbours and edge ids int64[places], times float64[places].
        following: targets of the next hop, None after the last one.
    """

    targets: Targets
    fanout: int
    located: tuple[Tensor, Tensor, Tensor, Tensor | None]
    offsets: Tensor
    found: tuple[Tensor, ...] = ()
    following: Targets | None = None

    @classmethod
    def of(cls, targets: Targets, fanout: int, uniform: bool) -> Hop:
        """Room for what the search for windows finds."""
        nodes = targets.nodes
        room = nodes.numel()
        counts, firsts, totals = nodes.new_empty((3, room), dtype=torch.int32)
        chosen = nodes.new_empty(draw_words(room, fanout), dtype=torch.int32) if uniform else None
        return cls(targets, fanout, (counts, firsts, totals, chosen), nodes.new_zeros(room + 1))

    def make_places(self, *, last: bool) -> None:
        """Sum the counts up and make room for the neighbours; exact where the most is much."""
        nodes = self.targets.nodes
        torch.cumsum(self.located[0], 0, dtype=torch.int64, out=self.offsets[1:])
        places = nodes.numel() * self.fanout
        if places > MOST_PLACES:
            places = int(self.offsets[-1])
        self.found = (
            nodes.new_empty(places),
            nodes.new_empty(places),
            self.targets.times.new_empty(places),
        )
        if not last:
            self.following = Targets.room(nodes.numel() + places, nodes.device)

    def cut(self, live: int, taken: int) -> Sample:
        """The sample, once it is known how many targets and neighbours there are."""
        _, nodes, times, positions = self.targets.all
        neighbours, eids, edge_times = (array[:taken] for array in self.found)
        return Sample(
            nodes[:live], times[:live], positions[:live], self.offsets[: live + 1],
            neighbours, eids, edge_times, self.fanout,
        )  # fmt: skip


def cut_all(hops: list[list[Hop]]) -> list[list[Sample]]:
    """[snapshot][hop], read by the host in one piece."""
    counts = [part for one in hops for hop in one for part in (hop.targets.live, hop.offsets[-1:])]
    sizes = iter(torch.cat(counts).tolist())
    return [[hop.cut(next(sizes), next(sizes)) for hop in one] for one in hops]


def bring_home(samples: list[list[Sample]]) -> list[list[Sample]]:
    """The same samples with their arrays on the CPU."""
    return [
        [
            Sample(*(getattr(hop, name).cpu() for name in ARRAYS), hop.fanout)  # type: ignore[arg-type]
            for hop in hops
        ]
        for hops in samples
    ]
