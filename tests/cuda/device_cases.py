"""Inputs of the device's kernels and how their results are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgbench.kernels_cuda.batch_rows import BatchMemory
from dgbench.kernels_cuda.csr import Csr
from dgbench.models.ctdg import MemoryRows
from dgbench.systems.base.stream_memory import Recalled, VertexMemory, last_messages

HOP = ("nodes", "times", "positions", "offsets", "neighbours", "eids", "edge_times")
"""Arrays of a sampled hop."""


def near(found: Tensor, expected: Any, bound: float = 2e-6) -> None:
    """Compare a float32 result with one in float64, by its norm."""
    expected = torch.as_tensor(expected).double()
    found = found.double().cpu()
    assert found.shape == expected.shape
    assert found.isfinite().all()
    assert (found - expected).norm() <= bound * max(expected.norm(), 1e-3)


def to_device(csr: Csr, device: str = "cuda") -> Csr:
    values = None if csr.values is None else csr.values.to(device)
    return Csr(csr.indptr.to(device), csr.indices.to(device), csr.num_cols, values)


def csr_where(present: np.ndarray | Tensor, values: Tensor | None = None) -> Csr:
    """The matrix of the entries that are True, with the values that stand there."""
    present = torch.as_tensor(present)
    indptr = torch.zeros(len(present) + 1, dtype=torch.int64)
    indptr[1:] = present.sum(1).cumsum(0)
    kept = None if values is None else values[present].float().contiguous()
    return Csr(indptr, present.nonzero()[:, 1].int(), present.shape[1], kept)


def stream_events(seed: int, count: int, begin: float = 0.0, vertices: int = 40) -> list[Tensor]:
    """src, dst, t: a hub, self edges, doubled edges and ties in whole units of time."""
    random = torch.Generator().manual_seed(seed)
    src, dst = torch.randint(0, max(1, vertices - 5), (2, count), generator=random)
    src[::3] = 1 % vertices
    dst[::7] = src[::7]
    src[1::11], dst[1::11] = src[:-1:11], dst[:-1:11]
    t = begin + torch.randint(0, max(1, count // 2), (count,), generator=random).double()
    return [src, dst, t.sort().values]


def assert_hops_equal(right: Any, found: Any) -> int:
    """Compare sampled hops with the CPU's, `HopSample`s or rooms of them; count neighbours."""
    total = 0
    for expected, got in zip(right, found, strict=True):
        for one, other in zip(expected, got, strict=True):
            if hasattr(other, "cut"):
                other = other.cut(int(other.targets.live), int(other.offsets[-1]))
            for field in HOP:
                wanted, home = getattr(one, field), getattr(other, field).cpu()
                assert home.dtype == wanted.dtype, field
                assert torch.equal(wanted, home), field
            total += one.neighbours.numel()
    return total


def same_memory(
    here: VertexMemory, there: BatchMemory, vertices: Tensor, place: Tensor, memories: Tensor,
    t: Tensor, edges: Tensor | None,
) -> None:  # fmt: skip
    """Compare what a device read of its memory and has written with what the CPU reads and writes.

    Args:
        vertices, place: distinct vertices of the batch, and the one at each of its places.
        memories: of the vertices, messages taken in. t, edges: of the events.
    """
    rows, count = here.read(vertices), vertices.numel()
    for name in MemoryRows.__slots__:
        assert torch.equal(getattr(there.rows, name)[:count].cpu(), getattr(rows, name)), name
    recalled = Recalled(vertices, place, rows, memories[:count])
    here.write(*last_messages(recalled, torch.arange(t.numel()), t, edges))
    for name in MemoryRows.__slots__:
        right = getattr(here.state(), name)
        assert torch.equal(getattr(there.tables, name).cpu(), right), name
