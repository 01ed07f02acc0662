"""The edges of an interval as a network reads them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from dgbench.kernels_cuda.interact import Groups, LocalRows, group_edges


@dataclass(eq=False)
class IntervalEdges:
    """B edges over the rows of the U vertices that they name, sources and ends first.

    Attributes:
        ids: int64[U] vertices.
        src, dst: int64[B] rows; sources are rows [0, sources).
        neg: int64[B] rows that stand in for destinations, or empty.
        t: float64[B], not falling.
        sources, targets, ends: sources are rows [0, sources), destinations and negatives rows
            [targets, U), ends of edges rows [0, ends).
        events: int64[B] ordinals, on the CPU.
        real: how many edges, the first ones, are no padding.
    """

    ids: Tensor
    src: Tensor
    dst: Tensor
    neg: Tensor
    t: Tensor
    sources: int
    targets: int
    ends: int
    events: Tensor
    real: int

    @classmethod
    def of(cls, rows: LocalRows, t: Tensor, events: Tensor, device: torch.device) -> IntervalEdges:
        """From what `local_rows` found, on a device."""

        def put(column: Tensor) -> Tensor:
            return column.to(device)

        return cls(
            put(rows.ids), put(rows.src), put(rows.dst), put(rows.neg), put(t),
            rows.sources, rows.targets, rows.ends, events, events.numel(),
        )  # fmt: skip

    @property
    def device(self) -> torch.device:
        """Where the rows lie."""
        return self.ids.device

    @cached_property
    def by_src(self) -> Groups:
        """Edges grouped by source, over rows [0, sources)."""
        return group_edges(self.src, self.sources)

    @cached_property
    def target(self) -> Tensor:
        """int64[B]: destinations counted from row `targets`."""
        return self.dst - self.targets

    @cached_property
    def by_dst(self) -> Groups:
        """Edges grouped by destination, over rows [targets, U)."""
        return group_edges(self.target, self.ids.numel() - self.targets)

    def last_times(self, groups: Groups) -> Tensor:
        """float64[n]: time of the last edge of each row, 0 where there is none."""
        has = groups.offsets[1:] > groups.offsets[:-1]
        last = groups.order[(groups.offsets[1:] - 1).clamp_(min=0)]
        return torch.where(has, self.t[last], 0.0)
