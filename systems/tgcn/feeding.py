"""A plan's arrays in the form that they are sent in, and their way to a device ahead of time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dgbench.runtime.transfer import PendingTransfer, Staged, TransferLink
from dgbench.systems.tgcn.intervals import IntervalTask, Pairs, PartRows, TimeInterval
from dgbench.systems.tgcn.regions import Regions

Key = tuple[int, int, int]
"""Interval, source part, destination part (-1: the rows of the part)."""


@dataclass(slots=True, eq=False)
class StagedInterval:
    """One interval, staged.

    Attributes:
        key: tells it from all other intervals of its trainer.
        events: int64[n] ordinals, in time order.
        shares: by part, in host memory; what is sent of it.
        travelling: of every part, rows that travel round the ring.
        grids: pairs by source and destination part, in host memory; what is sent of them.
        tasks: pairs in stream order, where there are no grids.
        edge_order, negative_order: int64[n], for each edge (negative) in grid order its place among
            `events`; None where that is the order, or where only one part is kept.
        following: the interval after it, where that is known.
    """

    key: int
    events: Tensor
    shares: dict[int, tuple[PartRows, Staged]]
    travelling: list[int]
    grids: dict[tuple[int, int], tuple[Pairs, Staged]]
    tasks: list[tuple[IntervalTask, Staged]]
    edge_order: Tensor | None
    negative_order: Tensor | None
    following: StagedInterval | None = None

    @classmethod
    def of(
        cls, interval: TimeInterval, link: TransferLink, key: int, own: int | None = None
    ) -> StagedInterval:
        """Stage an interval; the arrays it came from may then be dropped.

        Args:
            own: the only part whose rows, and source part whose grids, are kept; None: all.
        """
        shares = {}
        for part, share in enumerate(interval.shares):
            if own is None or part == own:
                staged = link.stage_all(share.tensors())
                shares[part] = (share.received(list(staged)), staged)
        grids = {}
        for i, j, pairs in interval.grids():
            if own is None or i == own:
                tensors = pairs.tensors()
                if own is not None:  # a view would keep the pairs of all parts
                    tensors = [one.clone() for one in tensors]
                staged = link.stage_all(tensors)
                grids[i, j] = (pairs.received(list(staged)), staged)
        tasks = []
        for task in interval.tasks:
            staged = link.stage_all(task.pairs.tensors())
            tasks.append(
                (
                    IntervalTask(task.sources, task.targets, task.pairs.received(list(staged))),
                    staged,
                )
            )
        travelling = [share.travelling for share in interval.shares]
        orders = (interval.edge_order, interval.negative_order) if own is None else (None, None)
        return cls(key, interval.events, shares, travelling, grids, tasks, *orders)

    @property
    def rows(self) -> int:
        """Rows of all parts that are kept."""
        return sum(share.ids.numel() for share, _ in self.shares.values())

    @property
    def nbytes(self) -> int:
        """Bytes in host memory."""
        staged = [one for _, one in (*self.shares.values(), *self.grids.values(), *self.tasks)]
        return self.events.nbytes + sum(one.layout.span for one in staged)

    def in_order(self, pieces: list[Tensor], order: Tensor | None) -> Tensor:
        """Scores by grid, each grid's in time order, as one column in the order of `events`."""
        scores = torch.cat(pieces)
        if order is None or not scores.numel():
            return scores
        found = torch.empty_like(scores)
        found[order.to(scores.device)] = scores
        return found


class Feeder:
    """Brings a device what it trains on next while it trains (R3), or when asked (no overlap)."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions
        self._open: dict[Key, PendingTransfer] = {}
        self._used: set[Key] = set()

    def ahead(self, key: Key, staged: Staged) -> None:
        """Begin to bring what will be asked for; nothing without a third region."""
        if not self._regions.overlap or key in self._open:
            return
        waiting = [one for one in self._open if one not in self._used]
        if len(waiting) < 2:
            self._open[key] = self._regions.send(staged)
            self._account()

    def get(self, key: Key, staged: Staged) -> list[Tensor]:
        """The tensors, on the device until `done`."""
        if key not in self._open:
            for stale in [one for one in self._open if one not in self._used and one[0] != key[0]]:
                self.done(stale)
            self._open[key] = self._regions.send(staged)
            self._account()
        self._used.add(key)
        return self._regions.arrived(self._open[key])

    def done(self, key: Key) -> None:
        """They are not needed any more."""
        self._used.discard(key)
        ticket = self._open.pop(key, None)
        if ticket is not None:
            ticket.release()
            self._account()

    def forget(self) -> None:
        """Release everything."""
        for key in list(self._open):
            self.done(key)

    def _account(self) -> None:
        now = sum(t.nbytes for key, t in self._open.items() if key in self._used)
        all_ = sum(t.nbytes for t in self._open.values())
        account = self._regions.account
        account.hold("R2 edges", now)
        account.hold("R3 edges", all_ - now)
