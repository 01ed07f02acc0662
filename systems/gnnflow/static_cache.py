"""Static caches that GNNFlow is compared with: which rows they choose before a round begins.

GNNLab (EuroSys 2022) samples the coming batches for some epochs, counts visits and keeps what was
visited most; PaGraph (SoCC 2020) keeps the vertices of highest degree. Neither changes its contents
while it trains, so a stream asks for a new choice every round, or every few.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from dgbench.kernels_cuda.row_cache import RowCache
from dgbench.runtime.errors import InvalidInputError

PRESAMPLED_EPOCHS = 2
"""Epochs that GNNLab samples ahead, as GNNFlow runs it (section 6.2)."""


class Visits:
    """Visits of each id; an id counts once a batch, as its row is fetched once.

    Attributes:
        counts: int64[num_ids].
    """

    def __init__(self, num_ids: int) -> None:
        if num_ids < 0:
            raise InvalidInputError(f"num_ids is {num_ids}, allowed are values from 0")
        self.counts = torch.zeros(num_ids, dtype=torch.int64)
        self._nothing = RowCache(num_ids, 1, 0)  # finds the different ids faster than a sort

    def add(self, ids: Tensor) -> None:
        """Count one batch of ids int64[n]."""
        self.counts[self._nothing.lookup(ids).misses] += 1

    def top(self, capacity: int) -> Tensor:
        """int64[k <= capacity], the most visited ids, ties by id; never one without a visit."""
        return most(self.counts, capacity)


def most(counts: Tensor, capacity: int) -> Tensor:
    """int64[k <= capacity], ids of the largest counts above 0, ties by id, largest first."""
    if capacity < 0:
        raise InvalidInputError(f"capacity is {capacity}, allowed are values from 0")
    seen = counts.nonzero().flatten()
    order = torch.sort(counts[seen], descending=True, stable=True).indices
    return seen[order[:capacity]]


def presampled(num_ids: int, batches: Iterable[Tensor], capacity: int) -> Tensor:
    """GNNLab's choice: the ids that most of these batches visit."""
    visits = Visits(num_ids)
    for ids in batches:
        visits.add(ids)
    return visits.top(capacity)


def by_degree(degrees: Tensor, capacity: int) -> Tensor:
    """PaGraph's choice: vertices int64[k] of the highest degree, of degrees int64[N]."""
    return most(degrees, capacity)
