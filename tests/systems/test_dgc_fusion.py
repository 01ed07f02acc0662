"""Spatial fusion against sets and a plain heap, and against counting what groups load."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.dgc.fusion import CLOSE, fuse_units, shared_rows, unit_loads, unit_memory


def matrix(rows: int, columns: int, entries: set[tuple[int, int]]) -> Csr:
    """A matrix from pairs of row and column."""
    counts = np.bincount([r for r, _ in entries], minlength=rows)
    indptr = torch.from_numpy(np.concatenate([[0], counts.cumsum()]).astype(np.int64))
    indices = torch.tensor([c for _, c in sorted(entries)], dtype=torch.int32)
    return Csr(indptr, indices, columns)


@st.composite
def workers(draw) -> tuple[Csr, Tensor, int]:
    rows, halo = draw(st.integers(0, 14)), draw(st.integers(0, 4))
    units = draw(st.integers(1, 8))
    cells = st.tuples(st.integers(0, max(0, rows - 1)), st.integers(0, max(0, rows + halo - 1)))
    entries = draw(st.sets(cells, max_size=60)) if rows else set()
    entries = {(r, c) for r, c in entries if r != c}
    unit = draw(st.lists(st.integers(0, units - 1), min_size=rows, max_size=rows))
    return matrix(rows, rows + halo, entries), torch.tensor(unit, dtype=torch.int64), units


def entries_of(csr: Csr) -> list[tuple[int, int]]:
    ends = csr.indptr.tolist()
    columns = csr.indices.tolist()
    return [(r, c) for r in range(csr.num_rows) for c in columns[ends[r] : ends[r + 1]]]


def loads(csr: Csr, group: list[int]) -> int:
    """Rows that groups load of this worker's: their own and, once each, others that they hear."""
    others = {
        (group[r], c) for r, c in entries_of(csr) if c < csr.num_rows and group[c] != group[r]
    }
    return len(group) + len(others)


def plain_fusion(
    csr: Csr, unit: list[int], units: int, memory: list[float], limit: float
) -> tuple[list[int], int]:
    """Group of each unit and merges: r counted anew from sets after every merge."""
    group = list(range(units))
    size = list(memory)

    def shared() -> dict[tuple[int, int], int]:
        pairs = {(group[unit[r]], c) for r, c in entries_of(csr) if c < csr.num_rows}
        found: dict[tuple[int, int], int] = {}
        for a, c in pairs:
            b = group[unit[c]]
            if a != b:
                found[min(a, b), max(a, b)] = found.get((min(a, b), max(a, b)), 0) + 1
        return found

    merges = 0
    while True:
        heap = [
            (-r, a, b)
            for (a, b), r in shared().items()
            if max(size[a], size[b]) < CLOSE * limit and size[a] + size[b] <= limit
        ]
        if not heap:
            return group, merges
        _, a, b = min(heap)
        heapq.heapify(heap)
        assert heap[0][1:] == (a, b)
        group = [a if g == b else g for g in group]
        size[a] += size[b]
        merges += 1


@settings(deadline=None, max_examples=150)
@given(workers(), st.data())
def test_fusion_is_that_of_sets_counted_anew(worker, data) -> None:
    csr, unit, units = worker
    limited = data.draw(st.booleans())
    memory = data.draw(st.lists(st.integers(0, 9), min_size=units, max_size=units))
    limit = float(data.draw(st.integers(1, 30))) if limited else float("inf")
    found = fuse_units(
        shared_rows(csr, unit, units),
        memory=torch.tensor(memory, dtype=torch.float64),
        limit=limit if limited else None,
        rest="apart",
    )
    group, merges = plain_fusion(csr, unit.tolist(), units, [float(m) for m in memory], limit)
    names = {g: i for i, g in enumerate(sorted({*group}))}
    assert found.group.tolist() == [names[g] for g in group]
    assert (found.merges, found.groups) == (merges, len(names))
    before = loads(csr, unit.tolist())
    after = loads(csr, [group[u] for u in unit.tolist()])
    assert found.saved_rows == before - after
    every = {
        (unit[r].item(), c) for r, c in [*entries_of(csr), *((r, r) for r in range(len(unit)))]
    }
    counts = [sum(u == one for u, _ in every) for one in range(units)]
    assert unit_loads(csr, unit, units).tolist() == counts
    if limited:
        size = torch.zeros(found.groups, dtype=torch.float64)
        size.index_add_(0, found.group, torch.tensor(memory, dtype=torch.float64))
        counts = torch.bincount(found.group)
        assert bool((size[counts > 1] <= limit).all())
        assert found.frozen == int((size >= CLOSE * limit).sum())


def test_what_shares_nothing_is_joined_as_memory_allows() -> None:
    csr = matrix(4, 4, set())
    unit = torch.arange(4)
    reads = shared_rows(csr, unit, 4)
    assert fuse_units(reads, rest="apart").groups == 4
    assert fuse_units(reads).groups == 1
    memory = torch.tensor([2.0, 2.0, 3.0, 1.0], dtype=torch.float64)
    assert fuse_units(reads, memory=memory, limit=4.0).group.tolist() == [0, 0, 1, 1]


def test_memory_of_a_unit_grows_with_what_it_loads() -> None:
    csr = matrix(3, 5, {(0, 1), (0, 3), (1, 3), (1, 4), (2, 0)})
    unit = torch.tensor([0, 1, 1])
    # Unit 0: row 0 and columns 1, 3; unit 1: rows 1, 2 and columns 0, 3, 4.
    assert unit_memory(csr, unit, 2, 10).tolist() == [
        (3 + 1) * 40 + 2 * 8,
        (5 + 2) * 40 + 3 * 8,
    ]


def test_refused() -> None:
    reads = shared_rows(matrix(2, 2, {(0, 1)}), torch.tensor([0, 1]), 2)
    with pytest.raises(UnknownKeyError):
        fuse_units(reads, rest="none")
    two = torch.ones(2, dtype=torch.float64)
    for bad in ({"limit": 3.0}, {"memory": two, "limit": 0.0}, {"memory": -two},
                {"memory": torch.ones(3, dtype=torch.float64)}):  # fmt: skip
        with pytest.raises(InvalidInputError, match=list(bad)[-1]):
            fuse_units(reads, **bad)
