"""Training by several ranks gives the losses, parameters and scores of one."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
import torch

from dgbench.datasets.events import EventStream
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.stream import (
    StreamData,
    StreamTrainer,
    StreamWorkload,
    batches,
    stream_data,
)
from dgbench.systems.gnnflow.owners import AssignedOwners, MachineLayout
from dgbench.systems.gnnflow.ranked import (
    GraphPlacement,
    StreamRankedRun,
    race_ranked,
    train_ranked,
)
from dgbench.systems.gnnflow.remote_access import GraphRankSettings
from dgbench.systems.gnnflow.system import GnnflowSystem

MODELS = {
    "tgn": {"fanouts": (4,), "chunks": 2},
    "tgat": {"fanouts": (3, 2), "sampling": "uniform"},
    "dysat": {"fanouts": (3, 2), "sampling": "uniform", "window": 30.0, "snapshots": 2},
    "graphsage": {"fanouts": (3, 2), "sampling": "uniform", "undirected": False},
    "gat": {"fanouts": (3, 2), "sampling": "uniform"},
}
N, E, FIRST = 31, 200, 80
LAYOUTS = {"tgn": (MachineLayout(1, 2), MachineLayout(2, 2))}
"""Of the others: two machines with a rank each, and with two."""


def workload(model: str, **fields: object) -> StreamWorkload:
    return StreamWorkload(
        **{
            "dataset": "tiny", "model": model, "node_dim": 5, "edge_dim": 3, "hidden_dim": 8,
            "time_dim": 4, "memory_dim": 6, "heads": 2, "batch": 42, "lr": 1e-2,
            **MODELS[model], **fields,
        }
    )  # fmt: skip


def data(task: StreamWorkload) -> StreamData:
    draw = torch.Generator().manual_seed(4)
    src = torch.randint(0, 20, (E,), generator=draw)
    dst = torch.randint(20, N - 1, (E,), generator=draw)
    t = torch.randint(0, E, (E,), generator=draw).sort().values
    return stream_data(EventStream.build(src, dst, t, num_nodes=N, num_src=20), task)


@functools.cache
def alone(model: str) -> tuple[StreamRankedRun, tuple[float, ...]]:
    """One rank, and the losses of the system without ranks."""
    task = workload(model)
    run = train_ranked(
        task, GraphRankSettings(MachineLayout(1)), data=data(task),
        first=FIRST, epochs=2, score=(FIRST, E), dtype=torch.float64,
    )  # fmt: skip
    plain: StreamTrainer = GnnflowSystem().open(task, data=data(task), dtype=torch.float64)
    plain.insert(E)
    losses = []
    for epoch in range(2):
        plain.reset_memory()
        losses.append(plain.train(FIRST, E, epoch=epoch))
    return run, tuple(losses)


@pytest.mark.parametrize("model", MODELS)
def test_one_rank_is_the_system_without_ranks(model: str) -> None:
    run, losses = alone(model)
    # 120 events: batches of 42, 42 and 36; TGN's first batch is a random number of chunks shorter.
    assert sum(losses) > 0
    if model != "tgn":
        for epoch, loss in enumerate(losses):
            a, b, c = run.losses[3 * epoch : 3 * epoch + 3]
            assert (42 * a + 42 * b + 36 * c) / 120 == pytest.approx(loss, rel=1e-12)
    assert run.traffic.total() == 0


def test_ranks_hold_what_batches_of_a_long_time_value_write() -> None:
    """Few time values, each of several batches that read the same memories on every rank."""
    task = workload("tgn", batch=12, chunks=1)
    fine = data(task)
    coarse = replace(fine, events=replace(fine.events, t=(fine.events.t / 40).floor()))
    how = {"data": coarse, "first": FIRST, "score": (FIRST, E), "dtype": torch.float64}
    one, two = (
        train_ranked(task, GraphRankSettings(layout), **how)
        for layout in (MachineLayout(1), MachineLayout(2))
    )
    assert len(one.losses) > coarse.events.t[FIRST:].unique().numel()
    assert two.losses == pytest.approx(one.losses, rel=1e-9)
    assert two.scores.loss == pytest.approx(one.scores.loss, rel=1e-6)
    plain: StreamTrainer = GnnflowSystem().open(task, data=coarse, dtype=torch.float64)
    plain.insert(E)
    parts = batches(task, torch.arange(FIRST, E), coarse.events.t[FIRST:])
    total = sum(part.numel() * loss for part, loss in zip(parts, one.losses, strict=True))
    assert plain.train(FIRST, E) == pytest.approx(total / (E - FIRST), rel=1e-9)


@pytest.mark.parametrize("model", MODELS)
def test_ranks_give_the_losses_of_one(model: str) -> None:
    task, (expected, _) = workload(model), alone(model)
    for layout in LAYOUTS.get(model, (MachineLayout(2), MachineLayout(2, 2))):
        cached = {"node_cache": 0.3, "edge_cache": 0.1} if layout.ranks == 4 else {}
        run = train_ranked(
            task, GraphRankSettings(layout, **cached), data=data(task), first=FIRST, epochs=2,
            score=(FIRST, E), ingest=30, dtype=torch.float64,
        )  # fmt: skip
        assert run.losses == pytest.approx(expected.losses, rel=1e-9)
        # Networks that see no times give many pairs the same score but for its last bits, which
        # hang on how many rows a product has: ties may break another way.
        ties = 2e-3 if model in ("dysat", "graphsage", "gat") else 1e-9
        assert run.scores.loss == pytest.approx(expected.scores.loss, rel=1e-6)
        assert run.scores.ap == pytest.approx(expected.scores.ap, rel=ties)
        assert run.scores.loss == pytest.approx(expected.scores.loss, rel=1e-9)
        for name, value in expected.state.items():
            assert torch.allclose(run.state[name], value, rtol=1e-7, atol=1e-9), name
        assert len(run.work_s) == len(run.sample_s) == layout.ranks
        assert run.throughput > 0
        assert run.own_throughput > 0
        if layout.machines > 1:
            assert run.insert_traffic.total() > 0
            assert run.counters[0]["targets_asked"] > 0
        if cached:
            assert run.counters[0]["edge_requests"] >= run.counters[0]["edge_hits"] >= 0


def test_partition_graph_and_schedule_change_no_loss() -> None:
    task, (expected, _) = workload("tgat"), alone("tgat")
    part = torch.arange(N) // 11 % 2
    contenders = {
        "hash": GraphPlacement(GraphRankSettings(MachineLayout(2))),
        "cut": GraphPlacement(
            GraphRankSettings(MachineLayout(2), graph="rows"), AssignedOwners(part, 2)
        ),
        "whole": GraphPlacement(
            GraphRankSettings(MachineLayout(1, 2), schedule="random", graph="rows")
        ),
    }
    runs = race_ranked(task, contenders, data=data(task), first=FIRST, epochs=2, clocks=True)
    for run in runs.values():
        assert run.losses == pytest.approx(expected.losses, rel=1e-5)
        assert {"sample", "fetch", "compute", "communicate"} <= set(run.phases[0])


@pytest.mark.machines_arithmetic
def test_ranks_without_an_event_take_part() -> None:
    task = workload("tgn", batch=3, chunks=1)
    found = [
        train_ranked(
            task, GraphRankSettings(layout), data=data(task), first=E - 8, score=(FIRST, E),
            dtype=torch.float64,
        )
        for layout in (MachineLayout(1), MachineLayout(4))
    ]  # fmt: skip
    assert found[0].events == [3, 2]
    assert found[1].losses == pytest.approx(found[0].losses, rel=1e-9)
    assert found[1].scores.ap == pytest.approx(found[0].scores.ap, rel=1e-9)


def test_what_cannot_be_trained_is_refused() -> None:
    task = workload("gat")
    with pytest.raises(InvalidInputError, match="equally many"):
        race_ranked(
            task,
            {
                name: GraphPlacement(GraphRankSettings(MachineLayout(k)))
                for k, name in enumerate("ab", 1)
            },
            data=data(task),
        )
    with pytest.raises(InvalidInputError, match="at least one epoch"):
        train_ranked(task, GraphRankSettings(MachineLayout(1)), data=data(task), epochs=0)
    with pytest.raises(InvalidInputError, match=r"events \[5, 5\)"):
        train_ranked(task, GraphRankSettings(MachineLayout(1)), data=data(task), first=5, last=5)
