"""Inputs of the benchmarks: seeded, skewed, of representative sizes."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.snapshots import edge_snapshots

VERTICES, EVENTS, SNAPSHOTS = 20_000, 400_000, 4


@cache
def events() -> tuple[Tensor, Tensor, Tensor]:
    """Source, destination and snapshot of 400,000 events; squaring skews the degrees."""
    draw = torch.Generator().manual_seed(1)
    ends = (torch.rand(2, EVENTS, generator=draw) ** 2 * VERTICES).long()
    return ends[0], ends[1], torch.randint(0, SNAPSHOTS, (EVENTS,), generator=draw)


@cache
def snapshots() -> list[Csr]:
    """Four snapshots that share most of their entries."""
    return edge_snapshots(*events(), SNAPSHOTS, VERTICES, edge_life=3)


@cache
def stream(vertices: int = 100_000, count: int = 2_000_000) -> tuple[Tensor, Tensor, Tensor]:
    """Source, destination and time of a long stream, too large for caches."""
    draw = torch.Generator().manual_seed(2)
    ends = (torch.rand(2, count, generator=draw) ** 2 * vertices).long()
    return ends[0], ends[1], torch.arange(count, dtype=torch.float64)


def topology_bytes(csr: Csr) -> int:
    """Bytes of a matrix without values."""
    return csr.indptr.nbytes + csr.indices.nbytes


def million(count: int) -> str:
    """A count for people."""
    if count < 1000:
        return str(count)
    return f"{count / 1e6:.3g} M" if count >= 1e6 else f"{count / 1e3:.3g} k"
