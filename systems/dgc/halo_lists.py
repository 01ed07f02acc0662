"""Halo lists: rows that each worker sends to each other (DGC, section 4).

They hang on the partition alone, so they are made once. All are over vertex-steps, numbered as in
`Supergraph`: rows of a worker are its ids in ascending order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class RowLists:
    """One worker's messages of one exchange.

    What arrives is grouped by sender, ids ascending in each group.

    Attributes:
        send: int64, numbers of own rows, grouped by receiver, ascending in each group.
        send_counts: rows for each worker; 0 for the worker itself.
        receive_counts: rows from each worker.
        idle: no worker has anything for another. All know it from the placement, so that none of
            them has to take part.
    """

    send: Tensor
    send_counts: list[int]
    receive_counts: list[int]
    idle: bool = False

    @property
    def sent(self) -> int:
        """Rows sent to all others."""
        return sum(self.send_counts)

    @property
    def received(self) -> int:
        """H, rows that arrive."""
        return sum(self.receive_counts)

    def to(self, device: torch.device | str) -> RowLists:
        """The same with `send` on a device."""
        return replace(self, send=self.send.to(device))


def halo_lists(
    owner: Tensor,
    rows: Tensor,
    rank: int,
    size: int,
    reader: Tensor,
    target: Tensor,
    *,
    idle: bool = False,
) -> tuple[Tensor, RowLists]:
    """Lists for "worker `reader[i]` reads vertex-step `target[i]`", all workers' reads.

    Args:
        owner: int32[V], the worker that has a vertex-step.
        rows: int64[R], ascending, the ids of `rank`.
        rank, size: this worker and their number.
        reader: integers [K] in [0, size). Reads of own rows are left out, repeated ones made once.
        target: int64[K].
        idle: see `RowLists`.

    Returns:
        int64[H], the ids that arrive, in order of arrival; and the lists.
    """
    has = owner[target]
    wanted = _distinct(target[(reader == rank) & (has != rank)], owner.numel())
    ours = (has == rank) & (reader != rank)
    by, what = reader[ours], target[ours]
    asked = [_distinct(what[by == q], owner.numel()) for q in range(size)]
    return make_lists(owner, rows, rank, size, wanted, asked, idle=idle)


def make_lists(
    owner: Tensor,
    rows: Tensor,
    rank: int,
    size: int,
    wanted: Tensor,
    asked: Sequence[Tensor],
    *,
    idle: bool = False,
) -> tuple[Tensor, RowLists]:
    """Lists from the ids a worker wants of others and those that each other wants of it.

    Args:
        owner, rows, rank, size: as in `halo_lists`.
        wanted: int64[H], distinct and ascending, none of `rank`.
        asked: by worker, distinct and ascending ids of `rank`.
        idle: see `RowLists`.

    Returns:
        As `halo_lists`.
    """
    owners = owner[wanted]
    halo = wanted[torch.argsort(owners, stable=True)]
    receive = torch.bincount(owners, minlength=size).tolist()
    send = torch.searchsorted(rows, torch.cat(list(asked)))
    return halo, RowLists(send, [ids.numel() for ids in asked], receive, idle)


def _distinct(ids: Tensor, below: int) -> Tensor:
    """Ascending distinct ids, by a mark for each where that is less than sorting them."""
    if ids.numel() < below // 64:
        return torch.unique(ids)
    marks = torch.zeros(below, dtype=torch.bool)
    marks[ids] = True
    return marks.nonzero().squeeze(1)
