"""Small timelines for the tests of ESDG, and trainers on them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import torch
from tiny_data import TinySequence, matrix_of

from dgbench.kernels_cuda.csr import Csr
from dgbench.systems.base.timeline import PlainTimeline, TimelineWorkload
from dgbench.systems.esdg import EsdgSystem, EsdgTrainer
from dgbench.systems.esdg.techniques import ADDITIONS

MODELS = ("cd_gcn", "tm_gcn", "evolvegcn_o")
LIMIT_S = 240.0  # stops a hang; a busy machine may take a minute
STEPS = 13


@cache
def data(steps: int = 8, nodes: int = 11, seed: int = 1, per_node: float = 2.0) -> TinySequence:
    """Random snapshots with values; some vertices are isolated and one snapshot is empty."""
    draw = torch.Generator().manual_seed(seed)
    topology = []
    for t in range(steps):
        chance = 0.0 if t == 2 else per_node / nodes
        there = torch.rand(nodes, nodes, generator=draw) < chance
        csr = matrix_of(there.fill_diagonal_(False).nonzero().tolist(), nodes)
        values = torch.rand(csr.nnz, generator=draw) + 0.5 if t % 2 else None
        topology.append(replace(csr, values=values))
    features = torch.randn(steps, nodes, 2, generator=draw)
    return TinySequence(topology, features, torch.randn(steps, nodes, generator=draw), nodes)


def workload(model: str, task: str = "link") -> TimelineWorkload:
    norm = "mean" if task == "class" else "sym"
    return TimelineWorkload(
        dataset="tiny", model=model, task=task, window=3, theta=0.5, lr=0.01, norm=norm
    )


class PlainResult(NamedTuple):
    """Gradients and outputs of the plain trainer before its first step, losses of its epochs."""

    gradients: dict[str, torch.Tensor]
    losses: list[float]
    outputs: torch.Tensor


@cache
def plain(
    model: str, task: str, sizes: tuple[int, int] = (8, 11), dtype: Any = torch.float64,
    epochs: int = 1,
) -> PlainResult:  # fmt: skip
    """Result of one process without partitions."""
    trainer = PlainTimeline(workload(model, task), data(*sizes), dtype=dtype)
    gradients, outputs = trainer.gradients(), torch.stack(list(trainer.outputs()))
    return PlainResult(gradients, [trainer.train_epoch() for _ in range(epochs)], outputs)


def losses_of(model: str, task: str = "link", epochs: int = 2) -> list[float]:
    """Losses of one process in single precision."""
    return plain(model, task, (8, 11), torch.float32, epochs).losses


@cache
def timeline(nodes: int, edges: int, steps: int = STEPS) -> TinySequence:
    """Snapshots that share nine entries in ten; large enough for arrays to outweigh their rest."""
    draw = torch.Generator().manual_seed(0)
    keys = torch.randint(0, nodes * nodes, (edges,), generator=draw)
    topology = []
    for _ in range(steps):
        new = torch.rand(edges, generator=draw) < 0.1
        fresh = torch.randint(0, nodes * nodes, (edges,), generator=draw)
        keys = torch.where(new, fresh, keys)
        held = keys.unique()
        held = held[held // nodes != held % nodes]
        counts = torch.bincount(held // nodes, minlength=nodes).cumsum(0)
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts])
        topology.append(Csr(indptr, (held % nodes).int(), nodes))
    x = torch.randn(steps, nodes, 2, generator=draw)
    return TinySequence(topology, x, torch.randn(steps, nodes, generator=draw), nodes)


def open_on_arena(
    model: str, data: TinySequence, switches=None, *, window=3, task="node", **settings
) -> EsdgTrainer:
    """A trainer with dgbench's additions and an arena, but for these switches."""
    work = TimelineWorkload(dataset="tiny", model=model, task=task, window=window)
    on = EsdgSystem().switches(ADDITIONS | {"arena": True} | (switches or {}))
    return EsdgTrainer(work, data, on, **settings)
