"""Ranks of all papers where NCCL connects them: no tensor of the host reaches it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pretended_cuda
import pytest
import torch
from dgc_tiny import random_sequence, tiny_workload
from esdg_tiny import data, workload
from pretended_cuda import Pretended, PretendedEvent
from pretended_gnnflow import launch_pretended
from pretended_nccl import CALLED, launch_on_nccl
from test_gnnflow_ranked import FIRST, E, alone
from test_gnnflow_ranked import data as gnnflow_data
from test_gnnflow_ranked import workload as gnnflow_workload

from dgbench.runtime.collectives import Communicator
from dgbench.systems.base import ranked as base_ranked
from dgbench.systems.base.plain_sequences import PlainSequences
from dgbench.systems.base.timeline import PlainTimeline
from dgbench.systems.dgc import turns as dgc_turns
from dgbench.systems.dgc.halo_lists import RowLists
from dgbench.systems.dgc.partition import ChunkSettings
from dgbench.systems.dgc.settings_run import BASELINES, LADDER, ChunkRankSettings
from dgbench.systems.dgc.stale import StaleRows, StaleSettings
from dgbench.systems.esdg.experiments import rank_turns as esdg_turns
from dgbench.systems.gnnflow import ranked as gnnflow_ranked
from dgbench.systems.gnnflow.owners import IdentityHash, MachineLayout

pytestmark = pytest.mark.filterwarnings("ignore:PyTorch was compiled without cuDNN")
LIMIT_S = 240.0
SEQUENCE = random_sequence(16, 5, 30, 8)
CHUNKS = ChunkSettings(per_worker=2, workload="edges")


def small(settings: ChunkRankSettings) -> ChunkRankSettings:
    return replace(settings, chunks=CHUNKS)


def waits_of_collectives(comm: Communicator) -> list[dict[str, float]]:
    """Seconds that a rank stood still, after each operation and after `reset`."""
    comm.meter.reset()
    rows, found = torch.ones(2, 3).to("cuda"), []
    for operation in (
        lambda: comm.all_to_all(rows, [1, 1], [1, 1]),
        lambda: comm.all_reduce(rows),
        lambda: comm.all_gather(rows, [2, 2]),
        lambda: comm.broadcast(rows),
        comm.meter.reset,
    ):
        operation()
        found.append(dict(comm.meter.spent))
    return found


def waits_of_stale_rows(comm: Communicator) -> list[tuple[int, int]]:
    """Count how often the host waited for a number or a size in each epoch's exchange."""
    rows, other = StaleRows(comm, StaleSettings(threshold=0.5)), 1 - comm.rank
    counts = [0, 0]
    counts[other] = 3
    lists = RowLists(torch.tensor([0, 2, 3]), counts, counts).to("cuda")
    draw, found = torch.Generator().manual_seed(comm.rank), []
    for _ in range(4):
        x = torch.randn(5, 3, generator=draw).to("cuda").requires_grad_()
        before = pretended_cuda.CURRENT.noted.copy()
        rows.fetch("structure1", x, lists)
        spent = pretended_cuda.CURRENT.noted - before
        found.append((spent["to_host"], spent["sized"]))
        rows.end_epoch(1.0)
    assert any(epoch.sent and epoch.held for epoch in rows.history)
    assert all(epoch.largest["structure1"] > 0 for epoch in rows.history[1:])
    return found


def exchanges(comm: Communicator) -> tuple[Any, ...]:
    return waits_of_collectives(comm), waits_of_stale_rows(comm)


@pytest.fixture(scope="module")
def exchanged():
    """Notes of two ranks on their exchanges: waits and stale rows."""
    found = launch_on_nccl(exchanges, 2, (), device="cuda", timeout_s=LIMIT_S, threads=1)
    return list(zip(*found, strict=True))


def test_a_device_that_waits_for_the_others_is_noted(exchanged):
    for waits in exchanged[0]:
        tick = PretendedEvent.TICK_MS / 1e3
        assert [one.get("communicate_wait", 0) for one in waits] == pytest.approx(
            [tick, 2 * tick, 3 * tick, 4 * tick, 0]
        )
        assert waits[-2]["exchange_wait"] == pytest.approx(tick)


def test_an_exchange_of_stale_rows_waits_once(exchanged):
    """For the numbers of rows that leave and come, and D with them; the first sorts its lists."""
    assert exchanged[1] == ([(0, 1), (1, 0), (1, 0), (1, 0)],) * 2


def test_contenders_of_dgc_train_over_nccl(monkeypatch):
    monkeypatch.setattr(dgc_turns, "launch", launch_on_nccl)
    work = tiny_workload("tgcn_2layer", hidden_dim=8)
    contenders = {
        "both": BASELINES["PyGT-PSS-TS"], "dgc": small(LADDER["DGC"]),
        "stale": small(ChunkRankSettings(stale=StaleSettings(threshold=0.0))),
    }  # fmt: skip
    found = dgc_turns.take_rank_turns(
        work, SEQUENCE, 2, contenders, least=1, budget_s=0.01, timeout_s=LIMIT_S, device="cuda",
        transport="backend", clocked=1,
    )  # fmt: skip
    oracle = PlainSequences(work, SEQUENCE)
    losses = [oracle.train_epoch() for _ in range(dgc_turns.WARM + 1)]
    assert found.carrier == "NCCL"
    for name, settings in contenders.items():
        exact = settings.stale is None or settings.stale.threshold == 0
        count = len(losses) if exact else 1  # rows that are held back change later losses
        assert found.losses[name][:count] == pytest.approx(losses[:count], rel=1e-4), name


def test_contenders_of_esdg_train_over_nccl(monkeypatch):
    monkeypatch.setattr(esdg_turns, "launch", launch_on_nccl)
    contenders = {
        "late": {"partition": "snapshot", "late": True, "reuse": True, "pieces": 2},
        "vertex": {"partition": "vertex"},
        "hybrid": {"partition": "hybrid", "group": 2},
    }
    found = esdg_turns.take_rank_turns(
        workload("cd_gcn"), data(), 2, contenders, least=1, budget_s=0.01, timeout_s=LIMIT_S,
        device="cuda", transport="backend",
    )  # fmt: skip
    assert found.carrier == "NCCL"
    plain = PlainTimeline(workload("cd_gcn"), data())
    losses = [plain.train_epoch() for _ in range(3)]
    for name in contenders:
        assert found.losses[name][:3] == pytest.approx(losses, rel=1e-4), name


LAYOUTS = (MachineLayout(1, 2), MachineLayout(2, 1))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_ranks_of_gnnflow_train_over_nccl(monkeypatch, layout):
    """Losses are those of one rank on the CPU; rows, memories and gradients stay on devices."""
    task, (expected, _) = gnnflow_workload("tgn"), alone("tgn")
    monkeypatch.setattr(base_ranked, "launch", launch_pretended)
    run = gnnflow_ranked.train_ranked(
        task, gnnflow_ranked.GraphRankSettings(layout), data=gnnflow_data(task), first=FIRST,
        epochs=2, score=(FIRST, E), device="cuda", timeout_s=LIMIT_S, dtype=torch.float64,
    )  # fmt: skip
    assert run.losses == pytest.approx(expected.losses, rel=1e-9)
    assert run.scores.loss == pytest.approx(expected.scores.loss, rel=1e-6)


def trained(comm: Communicator) -> list[list[dict[str, int]]]:
    """Calls of a rank's group for each of three batches of TGN, by layout."""
    # Strictly, a batch that ends inside a time value writes with a later one.
    task = gnnflow_workload("tgn", chunks=1, strict_time=False)
    found = []
    for layout in LAYOUTS:
        settings = gnnflow_ranked.GraphRankSettings(layout)
        owners = IdentityHash(layout.machines)
        trainer = gnnflow_ranked.StreamRankTrainer(comm, owners, task, gnnflow_data(task), settings)
        trainer.insert(E)
        trainer.access.finish()
        found.append([])
        for number in range(3):
            before = CALLED.copy()
            events = torch.arange(FIRST + 30 * number, FIRST + 30 * (number + 1))
            trainer.train_batch(events, 0)
            found[-1].append(dict(CALLED - before))
            assert isinstance(trainer.memory.state()[0], Pretended)
            assert all(isinstance(p, Pretended) for p in trainer.model.parameters())
    return found


def test_sizes_are_exchanged_only_where_they_depend_on_the_data():
    """Number of memories that a rank writes; on two machines also the targets of the hop, its
    vertices, edges and memories."""
    for found in launch_pretended(trained, 2, (), device="cuda", timeout_s=LIMIT_S, threads=1):
        for each, sizes in zip(found, (1, 1 + 4), strict=True):
            assert [calls.get("host all_to_all_single", 0) for calls in each] == [sizes] * 3
