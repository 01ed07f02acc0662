"""The edges of an interval as a network reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
        written: int64[k], the ends whose state is written, each vertex once; None: all of them.
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
    written: Tensor | None = None

    @classmethod
    def of(cls, rows: LocalRows, t: Tensor, events: Tensor) -> IntervalEdges:
        """From what `local_rows` found, in host memory."""
        return cls(
            rows.ids, rows.src, rows.dst, rows.neg, t, rows.sources, rows.targets, rows.ends,
            events, events.numel(),
        )  # fmt: skip

    def columns(self) -> dict[str, Tensor]:
        """Columns that are sent to a device, of eight bytes each."""
        found = {name: getattr(self, name) for name in ("ids", "src", "dst", "neg", "t")}
        return found if self.written is None else {**found, "written": self.written}

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


class EdgeBlock:
    """Edges of several steps in one piece of host memory, which one copy brings to a device.

    On CUDA it is page-locked, so that the host does not wait for the copy.

    Args:
        steps: in host memory; at least one.
        device: where they go.
    """

    def __init__(self, steps: Sequence[IntervalEdges], device: torch.device) -> None:
        every = [step.columns() for step in steps]
        flat = [column.contiguous() for columns in every for column in columns.values()]
        block = torch.cat([column.view(torch.int64) for column in flat])
        self._device = device
        self._block = block.pin_memory() if device.type == "cuda" else block
        self._sizes = [column.numel() for column in flat]
        self._names = [tuple(columns) for columns in every]
        none = block.new_empty(0)  # columns are in the block, events in the layout
        self._steps = [
            replace(step, events=none, **dict.fromkeys(names, none))
            for step, names in zip(steps, self._names, strict=True)
        ]

    def holds(self, group: Sequence[Tensor]) -> bool:
        """Return True if the steps are as long as the events of a group's."""
        return [step.real for step in self._steps] == [events.numel() for events in group]

    def bring(self, group: Sequence[Tensor]) -> list[IntervalEdges]:
        """The steps on the device, behind the work that it was given.

        Args:
            group: int64[B] events of each step.
        """
        parts = iter(self._block.to(self._device, non_blocking=True).split(self._sizes))
        found = []
        for step, names, events in zip(self._steps, self._names, group, strict=True):
            columns = {name: next(parts) for name in names}
            columns["t"] = columns["t"].view(torch.float64)
            found.append(replace(step, events=events, **columns))
        return found
