"""Spatial fusion: which chunks of a worker the structure encoder takes together (section 5.1.1).

A chunk loads its own rows and those that its rows hear. Two chunks that hear each other, taken one
after the other, load each other's boundary a second time. So the pair that does most of this is
fused, again and again, until nothing is left to save or memory ends.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr

Merge = Literal["distinct", "sum"]
CLOSE = 0.9
"""Share of the memory limit from which on a fused chunk takes no other: "close to" the limit."""


@dataclass(frozen=True, slots=True, eq=False)
class UnitReads:
    """Who loads whose rows without fusion, each pair of a unit and a row of another once.

    Attributes:
        units: number of units, those of other workers included.
        reader: int64[D], the unit that loads.
        row: int64[D], the row of the worker that it loads.
        owner: int64[D], the unit that has the row.
    """

    units: int
    reader: Tensor
    row: Tensor
    owner: Tensor

    def pairs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Pairs of units a < b with r(a, b) > 0: a, b and r in rows, int64[K] each.

        r(a, b) is the number of rows of a that b loads and of b that a loads.
        """
        low, high = torch.minimum(self.reader, self.owner), torch.maximum(self.reader, self.owner)
        key, rows = torch.unique(low * self.units + high, return_counts=True)
        return key // self.units, key % self.units, rows


def shared_rows(csr: Csr, unit: Tensor, units: int) -> UnitReads:
    """Rows that a worker's units load of each other.

    Rows of other workers are loaded by every unit that hears them, too; they are in no r, as the
    paper's pairs are of chunks on the same GPU.

    Args:
        csr: R x (R + H), a worker's matrix; columns from R on are rows of others.
        unit: int64[R] in [0, units).
        units: number of units.
    """
    rows = csr.num_rows
    reader = torch.repeat_interleave(unit, csr.indptr.diff(), output_size=csr.nnz)
    column = csr.indices.long()
    apart = column < rows
    apart &= unit[column.clamp(max=max(0, rows - 1))] != reader if rows else apart
    key = torch.unique(reader[apart] * max(1, rows) + column[apart])
    row = key % max(1, rows)
    return UnitReads(units, key // max(1, rows), row, unit[row])


@dataclass(frozen=True, slots=True, eq=False)
class FusedUnits:
    """Groups of units.

    Attributes:
        group: int64[units] in [0, groups), numbered by the smallest unit in each.
        groups: their number; a unit that was not fused is one.
        merges: pairs that were fused.
        saved_rows: loads that fusion spares in one round.
        frozen: groups that would have gone on but for the memory.
    """

    group: Tensor
    groups: int
    merges: int
    saved_rows: int
    frozen: int


def fuse_units(
    reads: UnitReads,
    *,
    row_bytes: int = 1,
    memory: Tensor | None = None,
    limit: float | None = None,
    present: Tensor | None = None,
    rest: Literal["together", "apart"] = "together",
) -> FusedUnits:
    """Fuse the pair of groups with the largest r, until none is left (section 5.1.1)."""
    units = reads.units
    size = torch.zeros(units, dtype=torch.float64) if memory is None else memory
    size = size.tolist()
    most = float("inf") if limit is None else float(limit)
    needs: list[set[int]] = [set() for _ in range(units)]
    home: dict[int, int] = {}
    for a, j, b in zip(
        reads.reader.tolist(), reads.row.tolist(), reads.owner.tolist(), strict=True
    ):
        needs[a].add(j)
        home[j] = b
    near: list[dict[int, int]] = [{} for _ in range(units)]
    for a, b, r in zip(*(t.tolist() for t in reads.pairs()), strict=True):
        near[a][b] = near[b][a] = r
    heap = [(-r, a, b) for a in range(units) for b, r in near[a].items() if a < b]
    heapq.heapify(heap)
    into = list(range(units))

    def find(a: int) -> int:
        while into[a] != a:
            into[a] = into[into[a]]
            a = into[a]
        return a

    merges = saved = 0
    frozen = [s >= CLOSE * most for s in size]
    while heap:
        r, a, b = heapq.heappop(heap)
        if into[a] != a or into[b] != b or near[a].get(b) != -r or frozen[a] or frozen[b]:
            continue
        if size[a] + size[b] > most:
            continue
        before = len(needs[a]) + len(needs[b])
        both = needs[a] & needs[b]
        for j in both:
            c = find(home[j])
            near[a][c] -= 1
            near[c][a] -= 1
        into[b] = a
        for c, shared in near[b].items():
            del near[c][b]
            if c != a:
                near[a][c] = near[c][a] = near[a].get(c, 0) + shared
        near[b] = {}
        needs[a] = {j for j in needs[a] | needs[b] if find(home[j]) != a}
        saved += before - len(needs[a])
        needs[b] = set()
        size[a] += size[b]
        frozen[a] = size[a] >= CLOSE * most
        merges += 1
        for c, shared in near[a].items():
            heapq.heappush(heap, (-shared, min(a, c), max(a, c)))
    root = torch.tensor([find(a) for a in range(units)], dtype=torch.int64)
    names, group = torch.unique(root, return_inverse=True)
    return FusedUnits(group, names.numel(), merges, saved, sum(frozen))
