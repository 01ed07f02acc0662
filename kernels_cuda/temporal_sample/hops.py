"""Memory for the hops of a sample on a device, allocated before their sizes are known.

Nothing is read back between hops: each has capacity for the most neighbours it may find, how many
it has stands on the device, and all counts come home together when the last hop is through. A
batch of usual size is one array, laid out here and filled by one compiled call; where that is too
much to allocate without counting, every hop is called on its own.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from dgbench.kernels_cuda.temporal_sample.samples import Sample

MAX_UNCOUNTED: Final = 1 << 24
"""Capacity for the neighbours of a hop up to which it is allocated without counting them first."""
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


def draw_words(targets: int, fanout: int) -> int:
    """Words of 4 bytes that uniform draws of a hop take, with the tables of large fan-outs."""
    if fanout <= _LONG_DRAW:
        return targets * fanout
    table = (1 << (2 * fanout - 1).bit_length()) + 2 * -(-fanout // 32)
    return targets * fanout + min(targets, _TABLE_WORDS // table + 1) * table


@dataclass(frozen=True)
class Layout:
    """Where the arrays of a batch stand in one array of words of 8 bytes.

    Attributes:
        fanouts: by hop.
        capacities: most targets by hop.
        arrays: for each snapshot and its hops seven starts: nodes, times and positions of the
            targets, offsets, neighbours, edge ids and times of edges.
        staged: words in front that are copied from the host: the number of roots and the roots.
        words: all of them.
        scratch: words that are needed beside them.
        named: start of the vertices that the farthest hop names, targets first; 0 where they are
            not asked for.
    """

    fanouts: tuple[int, ...]
    capacities: tuple[int, ...]
    arrays: tuple[tuple[int, ...], ...]
    staged: int
    words: int
    scratch: int
    named: int = 0

    @functools.cached_property
    def starts(self) -> list[int]:
        """`arrays` in one list, as the compiled function takes them."""
        return [start for seven in self.arrays for start in seven]

    @property
    def most(self) -> list[int]:
        """Neighbours that each hop may have."""
        once = [c * f for c, f in zip(self.capacities, self.fanouts, strict=True)]
        return once * (len(self.arrays) // len(once))

    @property
    def names(self) -> int:
        """Vertices that the farthest hop may name."""
        return self.capacities[-1] * (1 + self.fanouts[-1])

    def cut(self, memory: Tensor, totals: Sequence[int]) -> list[list[Sample]]:
        """[snapshot][hop], views of int64 `memory`, given the numbers of neighbours."""
        times, hops = memory.view(torch.float64), len(self.fanouts)
        every: list[list[Sample]] = []
        live = 0
        for number, (at, taken) in enumerate(zip(self.arrays, totals, strict=True)):
            hop = number % hops
            if hop == 0:
                every.append([])
                live = self.capacities[0]
            sample = Sample(
                memory[at[0] : at[0] + live], times[at[1] : at[1] + live],
                memory[at[2] : at[2] + live], memory[at[3] : at[3] + live + 1],
                memory[at[4] : at[4] + taken], memory[at[5] : at[5] + taken],
                times[at[6] : at[6] + taken], self.fanouts[hop],
            )  # fmt: skip
            every[-1].append(sample)
            live += taken
        return every


def lay_out(
    roots: int, fanouts: tuple[int, ...], snapshots: int, uniform: bool, *, named: bool = False
) -> Layout | None:
    """The layout of a batch; None where hops are to be called one by one.

    Args:
        named: with room for the vertices that the farthest hop of the only snapshot names; how many
            they are is word 1.
    """
    return _lay_out(roots, fanouts, snapshots, uniform, named, MAX_UNCOUNTED)


@functools.lru_cache(maxsize=64)
def _lay_out(
    roots: int,
    fanouts: tuple[int, ...],
    snapshots: int,
    uniform: bool,
    named: bool,
    max_uncounted: int,
) -> Layout | None:
    capacities = [roots]
    for fanout in fanouts:
        capacities.append(capacities[-1] * (1 + fanout))
    found = [targets * fanout for targets, fanout in zip(capacities, fanouts, strict=False)]
    if roots == 0 or max(found) > max_uncounted:
        return None
    end = _ALIGNED  # the first word is the number of roots, the second that of named vertices

    def take(words: int) -> int:
        nonlocal end
        start, end = end, end + -(-words // _ALIGNED) * _ALIGNED
        return start

    nodes, positions = take(roots), take(roots)
    first = [(nodes, take(roots), positions) for _ in range(snapshots)]
    staged, arrays = end, []
    for targets in first:
        at = targets
        for hop, count in enumerate(found):
            arrays.append((*at, take(capacities[hop] + 1), take(count), take(count), take(count)))
            if hop + 1 < len(fanouts):
                at = take(capacities[hop + 1]), take(capacities[hop + 1]), take(capacities[hop + 1])
    names = take(capacities[-1]) if named else 0
    most = max(capacities[:-1])
    scratch = 2 * len(arrays) + -(-most // _SCAN_TILE) + 3 * -(-most // 2)
    if uniform:
        scratch += -(-max(map(draw_words, capacities, fanouts)) // 2)
    return Layout(fanouts, tuple(capacities[:-1]), tuple(arrays), staged, end, scratch, names)


@dataclass(frozen=True, slots=True)
class Targets:
    """Targets of a hop: `live` int64[1] of them, in arrays that may be longer."""

    live: Tensor
    nodes: Tensor
    times: Tensor
    positions: Tensor

    @classmethod
    def allocate(cls, count: int, device: torch.device) -> Targets:
        """Uninitialised arrays for `count`, none of them live."""
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
        located: counts, positions of the first record and candidates int32[capacity], and the
            candidates drawn int32[draw_words(capacity, fanout)] where they are drawn.
        offsets: int64[capacity + 1], the sums of the counts.
        found: neighbours and edge ids int64[max_neighbours], times float64[max_neighbours].
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
        """Arrays for what the search for windows finds."""
        nodes = targets.nodes
        capacity = nodes.numel()
        counts, firsts, totals = nodes.new_empty((3, capacity), dtype=torch.int32)
        chosen = (
            nodes.new_empty(draw_words(capacity, fanout), dtype=torch.int32) if uniform else None
        )
        return cls(targets, fanout, (counts, firsts, totals, chosen), nodes.new_zeros(capacity + 1))

    def allocate_neighbours(self, *, last: bool) -> None:
        """Sum the counts up and allocate the neighbours; exactly as many where the most is much."""
        nodes = self.targets.nodes
        torch.cumsum(self.located[0], 0, dtype=torch.int64, out=self.offsets[1:])
        capacity = nodes.numel() * self.fanout
        if capacity > MAX_UNCOUNTED:
            capacity = int(self.offsets[-1])
        self.found = (
            nodes.new_empty(capacity),
            nodes.new_empty(capacity),
            self.targets.times.new_empty(capacity),
        )
        if not last:
            self.following = Targets.allocate(nodes.numel() + capacity, nodes.device)

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
