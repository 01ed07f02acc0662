"""Other ways to keep rows, to race the compiled cache with: vectorised in torch, and listed.

Both are LRU over a host table and give the rows of `FeatureCache.fetch`. What they keep may differ
in which misses of a batch are admitted.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import check_ids
from dgbench.kernels_cuda.build_info import extension
from dgbench.kernels_cuda.workspace import scratch
from dgbench.runtime.errors import InvalidInputError

_EMPTY = -(1 << 30)
"""Score of a slot that was never used: the first to go."""


class TorchCache:
    """GNNFlow's vectorised LRU as section 4.3 writes it, with torch's operators.

    Scores fall by one in every batch and are 0 after a use; top-k finds who goes. The lowest ids
    among the misses are admitted, at most `admission` of the capacity.
    """

    def __init__(self, table: Tensor, capacity: int, *, admission: float = 0.2) -> None:
        _check(table, capacity)
        self.table, self.hits, self.requests = table, 0, 0
        self._limit = min(capacity, max(1, int(admission * capacity)))
        self._slot_of = torch.full((table.shape[0],), -1, dtype=torch.int64)
        self._ids = torch.full((capacity,), -1, dtype=torch.int64)
        self._score = torch.full((capacity,), _EMPTY, dtype=torch.int32)
        self._rows = torch.zeros(capacity, table.shape[1])

    def fetch(self, ids: Tensor) -> Tensor:
        """float32[n, D], the rows of ids int64[n]."""
        check_ids(ids, "ids", self.table.shape[0])
        unique, inverse = ids.unique(return_inverse=True)
        slots = self._slot_of[unique]
        hit = slots >= 0
        rows = self.table.new_empty(unique.numel(), self.table.shape[1])
        rows[hit] = self._rows[slots[hit]]
        rows[~hit] = self.table[unique[~hit]]
        self.requests += ids.numel()
        self.hits += int(hit[inverse].sum())
        self._score -= 1
        self._score[slots[hit]] = 0
        spare = int((self._score < 0).sum())
        admitted = (~hit).nonzero().flatten()[: min(self._limit, spare)]
        victims = self._score.topk(admitted.numel(), largest=False).indices
        gone = self._ids[victims]
        self._slot_of[gone[gone >= 0]] = -1
        self._ids[victims] = unique[admitted]
        self._slot_of[unique[admitted]] = victims
        self._rows[victims] = rows[admitted]
        self._score[victims] = 0
        return rows[inverse]


class ListedCache:
    """An LRU that is a linked list behind a lock, one id at a time: what section 4.3 argues
    against, compiled (`kernels_cuda/row_cache/cpu_list_cache.cpp`). Every miss is admitted."""

    def __init__(self, table: Tensor, capacity: int, *, threads: int = 1) -> None:
        _check(table, capacity)
        self.table, self.hits, self.requests, self.threads = table, 0, 0, threads
        self._list = extension(table.device).ListCache(table.shape[0], capacity, table.shape[1])

    def fetch(self, ids: Tensor) -> Tensor:
        """float32[n, D], the rows of ids int64[n]."""
        check_ids(ids, "ids", self.table.shape[0])
        out = scratch.empty((ids.numel(), self.table.shape[1]), self.table)
        self.hits += self._list.fetch(ids.contiguous(), self.table, out, self.threads)
        self.requests += ids.numel()
        return out


def _check(table: Tensor, capacity: int) -> None:
    if table.dtype != torch.float32 or table.dim() != 2 or not table.is_contiguous():
        raise InvalidInputError(
            f"table is {table.dtype} {list(table.shape)}, expected float32[N, D]"
        )
    if capacity < 1:
        raise InvalidInputError(f"capacity is {capacity}, allowed are values from 1")
