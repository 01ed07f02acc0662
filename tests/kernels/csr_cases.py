"""Random matrices for the operator tests, with the edge cases that break offsets."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from hypothesis import strategies as st

from dgbench.kernels_cuda.csr import Csr


def csr_of(rows: list[list[int]], num_cols: int, values: list[float] | None = None) -> Csr:
    """The matrix with these columns in each row."""
    lengths = [len(row) for row in rows]
    indptr = torch.tensor(np.cumsum([0, *lengths]), dtype=torch.int64)
    indices = torch.tensor([c for row in rows for c in row], dtype=torch.int32)
    weights = None if values is None else torch.tensor(values, dtype=torch.float32)
    return Csr(indptr, indices, num_cols, weights)


def random_csr(
    seed: int, num_rows: int, num_cols: int, density: float, *, weighted: bool = False
) -> Csr:
    """Strictly ascending columns, each entry present with probability `density`."""
    generator = np.random.default_rng(seed)
    present = generator.random((num_rows, num_cols)) < density
    rows = [np.flatnonzero(row).tolist() for row in present]
    nnz = int(present.sum())
    return csr_of(rows, num_cols, generator.normal(size=nnz).tolist() if weighted else None)


def hub_csr(seed: int, n: int, hub: int, *, most: int = 8) -> Csr:
    """Weighted rows of up to `most` entries, some empty, with repeats, and one of `hub` entries."""
    g = torch.Generator().manual_seed(seed)
    degree = torch.randint(0, most, (n,), generator=g) * torch.randint(0, 2, (n,), generator=g)
    degree[5] = hub
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)])
    indices = torch.randint(0, n, (int(indptr[-1]),), generator=g).int()
    return Csr(indptr, indices, n, torch.rand(indices.numel(), generator=g))


def changed_pairs() -> list[tuple[Csr, Csr]]:
    """Two snapshots each between which everything or little changes."""
    shares = (0.0, 0.05, 0.5, 0.97, 1.0)
    tiles = [random_csr(seed, 90, 70, share) for seed, share in enumerate(shares)]
    full = range(3000)
    few = [csr_of([[*row] for row in rows], 3000) for rows in (
        [[], []], [full, full], [full[1::2]] * 2, [full[::2]] * 2, [[0, 2999]] * 2, [[0, 1], [2]],
        [[38, 39], []],
    )]  # fmt: skip
    # A block of sixteen can receive more than it holds.
    sparse = csr_of([[0, 100, 200], list(range(0, 320, 20))], 400)
    dense = csr_of([list(range(0, 300)), sorted({*range(0, 320, 20), *range(41, 60)})], 400)
    top = 2**31 - 2
    low, high = csr_of([[0, top - 1], [top]], top + 1), csr_of([[top - 1, top], [0]], top + 1)
    lone = [csr_of([[c] if r in rows else [] for r in range(9000)], 4)
            for c, rows in ((1, (0, 4095, 8999)), (2, (1, 4096, 8999)))]  # fmt: skip
    nothing, everything, odd, even, ends, left, right = few
    return [
        (nothing, everything), (nothing, nothing), (even, odd), (ends, everything), (left, right),
        (left, left), (sparse, dense), (low, high), (lone[0], lone[1]),
        (csr_of([], 5), csr_of([], 5)), *pairwise(tiles), (tiles[1], tiles[3]),
    ]  # fmt: skip


def rows_of(csr: Csr) -> torch.Tensor:
    """Row of each entry."""
    return torch.repeat_interleave(torch.arange(csr.num_rows), csr.indptr.diff())


def dense(csr: Csr) -> torch.Tensor:
    """float64[rows, columns]; repeated entries add up."""
    values = torch.ones(csr.nnz) if csr.values is None else csr.values
    out = torch.zeros(csr.num_rows, csr.num_cols, dtype=torch.float64)
    return out.index_put((rows_of(csr), csr.indices.long()), values.double(), accumulate=True)


def entries(csr: Csr) -> list[tuple[int, int]]:
    """(row, column) of every entry in storage order."""
    return list(zip(rows_of(csr).tolist(), csr.indices.tolist(), strict=True))


@st.composite
def snapshot_groups(draw: st.DrawFn) -> list[Csr]:
    """1 to 5 snapshots of one shape that share a random part of their entries."""
    count = draw(st.integers(1, 5))
    num_rows, num_cols = draw(st.integers(0, 6)), draw(st.integers(1, 90))
    weighted = draw(st.booleans())
    seed = draw(st.integers(0, 2**16))
    density = draw(st.sampled_from([0.0, 0.1, 0.5, 0.95, 1.0]))
    keep = draw(st.sampled_from([0.0, 0.5, 0.98, 1.0]))
    generator = np.random.default_rng(seed)
    common = generator.random((num_rows, num_cols)) < density
    group = []
    for _ in range(count):
        fresh = generator.random((num_rows, num_cols)) < density
        chosen = np.where(generator.random((num_rows, num_cols)) < keep, common, fresh)
        rows = [np.flatnonzero(row).tolist() for row in chosen]
        values = generator.normal(size=int(chosen.sum())).tolist() if weighted else None
        group.append(csr_of(rows, num_cols, values))
    return group
