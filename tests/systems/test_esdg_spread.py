"""ESDG on several ranks against the plain timeline on one process: losses, gradients, parts."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from tiny_data import TinySequence

from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.collectives import Communicator, LocalCommunicator
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.runtime.ranks import launch
from dgbench.systems.base.timeline import PlainTimeline, TimelineWorkload
from dgbench.systems.esdg.partition import BlockShares, block_ranges
from dgbench.systems.esdg.partition_trainer import SnapshotRankTrainer
from dgbench.systems.esdg.vertex_parts import VertexParts

MODELS = ("cd_gcn", "tm_gcn", "evolvegcn_o")
STEPS_TRAINED = 2
LIMIT_S = 240.0  # stops a hang; a busy machine may take a minute


@cache
def data(steps: int = 8, nodes: int = 11, seed: int = 1, per_node: float = 2.0) -> TinySequence:
    """Random snapshots with values; some vertices are isolated and one snapshot is empty."""
    draw = torch.Generator().manual_seed(seed)
    topology = []
    for t in range(steps):
        chance = 0.0 if t == 2 else per_node / nodes
        there = torch.rand(nodes, nodes, generator=draw) < chance
        there.fill_diagonal_(False)
        rows, cols = there.nonzero().unbind(1)
        indptr = torch.zeros(nodes + 1, dtype=torch.int64)
        indptr[1:] = there.sum(1).cumsum(0)
        values = torch.rand(len(rows), generator=draw) + 0.5 if t % 2 else None
        topology.append(Csr(indptr, cols.to(torch.int32), nodes, values))
    features = torch.randn(steps, nodes, 2, generator=draw)
    return TinySequence(topology, features, torch.randn(steps, nodes, generator=draw), nodes)


def workload(model: str, task: str) -> TimelineWorkload:
    return TimelineWorkload(
        dataset="tiny", model=model, task=task, window=3, theta=0.5, lr=0.01, norm="sym"
    )


Case = tuple[str, str, dict[str, Any]]


def cases() -> list[Case]:
    """(model, task, options) that every group of ranks runs."""
    found: list[Case] = []
    for model in MODELS:
        for partition in ("snapshot", "vertex"):
            for checkpoint, pieces, task in (
                (False, 1, "link"),
                (True, 1, "link"),
                (True, 2, "class"),
                (False, 3, "node"),
            ):
                options = {
                    "partition": partition,
                    "checkpoint": checkpoint,
                    "blocks": 3,
                    "pieces": pieces,
                    "precompute": pieces < 3,
                }
                found.append((model, task, options))
    return found


def train(comm: Communicator, todo: list[Case], sizes: tuple[int, int], dtype: torch.dtype) -> Any:
    """Losses, parameters and outputs of all cases on this rank."""
    found = []
    for model, task, options in todo:
        options = dict(options)
        if options["partition"] == "vertex":
            owner = torch.arange(sizes[1]) * 7 % comm.size  # interleaved, so that much is remote
            options["parts"] = VertexParts(owner, comm.size)
        trainer = SnapshotRankTrainer(
            comm, workload(model, task), data(*sizes), dtype=dtype, **options
        )
        losses = [trainer.train_epoch() for _ in range(STEPS_TRAINED)]
        found.append((losses, trainer.gradients(), torch.stack(trainer.outputs())))
    return found


@cache
def plain(model: str, task: str, sizes: tuple[int, int], dtype: torch.dtype) -> Any:
    trainer = PlainTimeline(workload(model, task), data(*sizes), dtype=dtype)
    losses = [trainer.train_epoch() for _ in range(STEPS_TRAINED)]
    return losses, trainer.gradients(), torch.stack(list(trainer.outputs()))


def check(results: Any, todo: list[Case], sizes: tuple[int, int], dtype: torch.dtype) -> None:
    close = {torch.float64: (1e-9, 1e-9), torch.float32: (1e-5, 1e-4)}[dtype]
    for rank, found in enumerate(results):
        for (model, task, options), (losses, gradients, outputs) in zip(todo, found, strict=True):
            want = plain(model, task, sizes, dtype)
            told = f"rank {rank}, {model}, {task}, {options}"
            assert losses == pytest.approx(want[0], rel=close[0]), told
            for name, gradient in want[1].items():
                torch.testing.assert_close(
                    gradients[name],
                    gradient,
                    rtol=close[1],
                    atol=close[1] * 0.1,
                    msg=lambda m, told=f"{told}, {name}": f"{told}: {m}",
                )
            torch.testing.assert_close(outputs, want[2], rtol=close[1], atol=close[1])


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_train_as_one_process_does(ranks):
    """8 steps and 11 vertices: neither divides by 4, and blocks of 2 or 3 leave ranks idle.

    Every second case on two ranks and the others on four, each option of a model on either.
    """
    todo = [case for i, case in enumerate(cases()) if (i + i // 4) % 2 == (ranks == 4)]
    sizes = (8, 11)
    results = launch(
        train, ranks, (todo, sizes, torch.float64), timeout_s=LIMIT_S, stall_s=20, threads=1
    )
    check(results, todo, sizes, torch.float64)


def test_one_rank_needs_no_group():
    todo, sizes = cases(), (8, 11)
    check([train(LocalCommunicator(), todo, sizes, torch.float64)], todo, sizes, torch.float64)


def test_fewer_vertices_and_snapshots_than_ranks():
    """Ranks without a vertex, without a snapshot, and without either."""
    sizes = (3, 3)
    todo = [(m, t, {**o, "blocks": 1}) for m, t, o in cases()[::2]]
    results = launch(
        train, 4, (todo, sizes, torch.float64), timeout_s=LIMIT_S, stall_s=20, threads=1
    )
    check(results, todo, sizes, torch.float64)


def test_single_precision_stays_within_the_bar():
    todo, sizes = cases()[::2], (8, 11)
    results = launch(
        train, 2, (todo, sizes, torch.float32), timeout_s=LIMIT_S, stall_s=20, threads=1
    )
    check(results, todo, sizes, torch.float32)


def test_shares():
    shares = BlockShares(range(5, 12), 5, 3, 2)
    assert shares.steps == [
        [range(5, 7), range(7, 8)],
        [range(8, 9), range(9, 10)],
        [range(10, 11), range(11, 12)],
    ]
    assert shares.vertices == [range(0, 2), range(2, 4), range(4, 5)]
    assert BlockShares(range(2), 1, 4).steps == [
        [range(0, 1)],
        [range(1, 2)],
        [range(2, 2)],
        [range(2, 2)],
    ]
    assert block_ranges(7, 3) == [range(0, 3), range(3, 5), range(5, 7)]
    with pytest.raises(InvalidInputError, match="blocks"):
        block_ranges(3, 4)
    with pytest.raises(InvalidInputError, match="pieces"):
        BlockShares(range(2), 1, 1, 0)


def test_wrong_arguments_are_named():
    def make(**options):
        job = workload("tm_gcn", "class")
        return SnapshotRankTrainer(LocalCommunicator(), job, data(), **options)

    with pytest.raises(UnknownKeyError, match="partition"):
        make(partition="edges")
    with pytest.raises(InvalidInputError, match="parts"):
        make(parts=VertexParts(torch.zeros(11, dtype=torch.int64), 1))
    with pytest.raises(InvalidInputError, match="parts"):
        make(partition="vertex", parts=VertexParts(torch.zeros(3, dtype=torch.int64), 1))
