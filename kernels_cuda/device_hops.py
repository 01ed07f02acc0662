"""Room for the hops of a sample on a device, made before it is known how much they will hold.

Nothing is read back between hops: each has places for the most neighbours it may find, how many it
has stands on the device, and all counts come home together when the last hop is through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from dgbench.kernels_cuda.samples import Sample

MOST_PLACES: Final = 1 << 24
"""Places for the neighbours of a hop up to which they are taken without counting first."""
ARRAYS: Final = ("nodes", "times", "positions", "offsets", "neighbours", "eids", "edge_times")
"""Of a `Sample`, in its order."""


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
            candidates drawn int32[room, fanout] where they are drawn.
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
        chosen = nodes.new_empty(room * fanout, dtype=torch.int32) if uniform else None
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
