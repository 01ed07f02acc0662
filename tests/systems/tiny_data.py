"""Tiny snapshot sequences for the tests of systems, and how to give them to a workload."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.systems.base import Workload
from dgbench.systems.base import data as workload_data


@dataclass
class TinyOrigin:
    dataset: str = "tiny"
    kind: str = "twin"
    scale: float = 1.0
    seed: int = 1
    notes: tuple[str, ...] = ()


@dataclass
class TinySequence:
    """Part of a SnapshotSequence that a trainer reads."""

    topology: list[Csr]
    features: Tensor
    targets: Tensor
    num_nodes: int
    origin: Any = field(default_factory=TinyOrigin)

    def __len__(self) -> int:
        return len(self.topology)


def matrix_of(entries: Iterable[tuple[int, int]], rows: int, columns: int | None = None) -> Csr:
    """CSR of (row, column) entries, square unless `columns` says otherwise; all of them stay."""
    ordered = sorted(entries)
    row = torch.tensor([r for r, _ in ordered], dtype=torch.int64)
    counts = torch.bincount(row, minlength=rows).cumsum(0)
    indices = torch.tensor([c for _, c in ordered], dtype=torch.int32)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts])
    return Csr(indptr, indices, rows if columns is None else columns)


def csr_of(pairs: Iterable[tuple[int, int]], nodes: int, weights: dict | None = None) -> Csr:
    """CSR (rows destinations) of (source, destination) pairs, duplicates merged, loops dropped."""
    entries = sorted({(d, s) for s, d in pairs if s != d})
    found = matrix_of(entries, nodes)
    if weights is None:
        return found
    values = torch.tensor([weights[s, d] for d, s in entries], dtype=torch.float32)
    return replace(found, values=values)


def entries_of(csr: Csr) -> list[tuple[int, int]]:
    """(row, column) of each entry, in order."""
    rows = torch.arange(csr.num_rows).repeat_interleave(csr.indptr.diff())
    return list(zip(rows.tolist(), csr.indices.tolist(), strict=True))


def tiny_sequence(
    nodes: int = 12,
    snapshots: int = 7,
    edges: int = 30,
    features: int = 3,
    *,
    weighted: bool = False,
    kept: float = 0.8,
    seed: int = 0,
) -> TinySequence:
    """Random directed snapshots that keep a share of their edges from one to the next.

    The last vertex has no edges; snapshot 1 has none at all; snapshots 3 and 4 share one object.
    """
    draw = torch.Generator().manual_seed(seed)

    def some(count: int) -> list[tuple[int, int]]:
        found = torch.randint(0, max(1, nodes - 1), (count, 2), generator=draw)
        return [tuple(pair) for pair in found.tolist()]

    pairs = some(edges)
    topology: list[Csr] = []
    for t in range(snapshots):
        if t == 4:
            topology.append(topology[3])
            continue
        stay = torch.rand(len(pairs), generator=draw) < kept
        pairs = [p for p, s in zip(pairs, stay.tolist(), strict=True) if s]
        pairs += some(edges - len(pairs))
        now = [] if t == 1 else pairs
        weights = None
        if weighted:
            values = torch.rand(nodes, nodes, generator=draw) + 0.1
            weights = {(s, d): float(values[s, d]) for s, d in now}
        topology.append(csr_of(now, nodes, weights))
    x = torch.randn(snapshots, nodes, features, generator=draw)
    y = torch.randn(snapshots, nodes, generator=draw)
    return TinySequence(topology, x, y, nodes)


def serve(monkeypatch: Any, data: TinySequence) -> None:
    """Make every system load `data`, whatever dataset the workload names."""
    monkeypatch.setattr(
        workload_data, "load", lambda workload: workload_data.checked(data, workload)
    )


def tiny_workload(**fields: Any) -> Workload:
    """A workload of frame 4 on `tiny`, hidden width 5."""
    base = {"dataset": "tiny", "model": "tgcn_model", "frame": 4, "feature_dim": 3, "hidden_dim": 5}
    return Workload(**(base | fields))
