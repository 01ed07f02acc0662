"""Training on ranks by one call: equal to one process, measured, and in processes of their own."""

from __future__ import annotations

import os
import pickle
from itertools import product
from typing import Any

import pytest
import torch
from esdg_tiny import LIMIT_S, data, losses_of, workload
from torch import Tensor

from dgbench.datasets import SnapshotSequence
from dgbench.datasets.origin import Origin
from dgbench.runtime.collectives import Communicator, LinkEmulation, LocalCommunicator
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.runtime.ranks import launch
from dgbench.systems.base.timeline import PlainTimeline
from dgbench.systems.base.transport import bind, carrier, use_transport
from dgbench.systems.esdg import ranked
from dgbench.systems.esdg.partition import block_ranges
from dgbench.systems.esdg.partition_trainer import SnapshotRankTrainer, published
from dgbench.systems.esdg.volumes import snapshot_floats, timeline
from tests.runtime.ranks_workers import FakeClock

BAR = 1e-5


def test_ranks_train_as_published():
    """Blocks with checkpoints, differences that are brought."""
    job = workload("cd_gcn")
    trainer = ranked.TimelineRanks().open(LocalCommunicator(), 1, job, data())
    assert trainer.checkpoint
    assert trainer.train_epoch() == pytest.approx(losses_of("cd_gcn")[0], rel=BAR)
    counters = trainer.meter.counters
    assert counters["snapshots_difference"] + counters["snapshots_plain"] == 2 * 7
    brought = counters["bytes_topology"] + counters["bytes_features"]
    assert brought == 2 * counters["bytes_recorded"] > counters["bytes_features"] > 0
    trainer.close()
    run = ranked.train_ranked(job, 1, epochs=2, data=data())
    assert run.counters["bytes_topology"] == counters["bytes_topology"]
    assert run.losses == pytest.approx(losses_of("cd_gcn"), rel=BAR)
    assert run.phases[0]["transfer"] > 0
    # One step is one block.
    assert published(1) == {**published(7), "blocks": 1}


def test_one_call_measures_a_group():
    settings = ranked.SnapshotRankSettings(blocks=2, wire=(0.01, 1e9))
    run = ranked.train_ranked(
        workload("tm_gcn"), 2, settings, epochs=4, accuracy=True, data=data(), timeout_s=LIMIT_S
    )
    alone = PlainTimeline(workload("tm_gcn"), data())
    assert run.losses == pytest.approx([alone.train_epoch() for _ in range(4)], rel=BAR)
    for name, value in alone.state().items():
        torch.testing.assert_close(run.state[name], value, rtol=1e-4, atol=1e-6)
    assert run.warmup + len(run.samples) == 4
    # Two exchanges a pass, three passes, each with one message to the other rank: a lower bound.
    assert min(run.samples) > 0.06
    floats = snapshot_floats(timeline("tm_gcn"), 11, block_ranges(7, 2), 2)
    assert run.traffic.total("floats", operation="all_to_all") == floats
    names = [f"all_to_all_floats_{phase}" for phase in ("forward", "rerun", "backward")]
    assert sum(run.counters[name] for name in names) == floats
    for rank in run.phases:
        assert min(rank["compute"], rank["exchange"], rank["update"]) > 0
        assert rank["transfer"] == 0
    assert all(0 <= share <= 1 for share in run.accuracy)


def test_ranks_are_bound_evenly_or_not_at_all(monkeypatch):
    """The transport is a setting, too: test_dgc_ranked."""
    alone = LocalCommunicator()
    use_transport(alone, "gloo")
    assert carrier(alone) == "nothing"
    if not hasattr(os, "sched_setaffinity"):
        assert not bind(0, 1)
        return
    bound: list[set[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: bound.append(cores))
    for rank in range(4):
        assert bind(rank, 4)
        assert bound[-1] == {[3, 5][rank % 2]}
    count = len(bound)
    assert not bind(0, 3)  # more ranks than cores, and not as many on each
    assert len(bound) == count


def test_accuracy_is_on_pairs_that_the_loss_does_not_score():
    trainer = SnapshotRankTrainer(LocalCommunicator(), workload("cd_gcn", "link"), data())
    step, (pairs,), label = trainer.test_pairs
    trained, truth = trainer.task.pairs(step)
    known = {tuple(p) for p in trained[:, truth == 1].t().tolist()}
    edges = {tuple(p) for p in pairs[:, label == 1].t().tolist()}
    assert edges
    assert not edges & known
    assert int(label.sum()) * 2 == label.numel()
    with torch.no_grad():
        scores = trainer.model.head(trainer.output(step), pairs)
    assert trainer.accuracy() == float((scores.argmax(-1) == label).double().mean())


def test_a_sequence_travels_in_one_file(tmp_path):
    tiny = data()
    origin = Origin("tiny", "twin")
    whole = SnapshotSequence(tiny.topology, tiny.features, tiny.targets, 11, origin)
    there = pickle.loads(pickle.dumps(ranked.SharedSequence(whole, tmp_path))).open()
    assert torch.equal(there.features, whole.features)
    for a, b in zip(there.topology, whole.topology, strict=True):
        assert torch.equal(a.indices, b.indices)
        assert (a.values is None) == (b.values is None)
    with pytest.raises(InvalidInputError, match="folder"):
        pickle.dumps(ranked.SharedSequence(whole))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"partition": "edges"}, "partition"),
        ({"blocks": 0}, "blocks"),
        ({"pieces": True}, "pieces"),
        ({"partition": "vertex", "reuse": True}, "reuse"),
        ({"partition": "vertex", "difference": False}, "difference"),
        ({"checkpoint": False, "reuse": True}, "checkpoint"),
        ({"group": 2}, "group"),
        ({"checkpoint": False, "scored": True}, "checkpoint"),
        ({"partition": "vertex", "scored": True}, "scored"),
        ({"prefetch": True}, "prefetch"),
        ({"prefetch": True, "difference": True, "checkpoint": False}, "prefetch"),
        ({"transport": "pigeon"}, "transport"),
        ({"wire": (0.0, 0.0)}, "bytes_per_second"),
    ],
)
def test_settings_that_cannot_be(options, named):
    with pytest.raises((InvalidInputError, UnknownKeyError), match=named):
        ranked.SnapshotRankSettings(**options).check()


# Time hidden by overlap, exact on simulated clocks.

ROWS = 4 * 6
"""Rows of a message of an exchange in one piece: steps of a rank, vertices of the other."""
WIDTHS = {"tm_gcn": ([6, 6], []), "cd_gcn": ([8, 6, 12], [6])}
"""Widths of the exchanges of a pass that convolutions stand beside, and of those without."""
PIECES, ENOUGH = (1, 2, 4), 1000.0


class Costly(torch.autograd.Function):
    """The identity, which takes its time both ways."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, clock: FakeClock, seconds: float) -> Tensor:
        ctx.clock, ctx.seconds = clock, seconds
        clock.moment += seconds
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        ctx.clock.moment += ctx.seconds
        return gradient, None, None


def exposed(comm: Communicator) -> dict[tuple[str, int, float], tuple[float, float]]:
    """Seconds exposed, and of an epoch, by model, pieces and cost of a step's convolution.

    A row of a step, 4 bytes a float, takes a second on the wire for each float.
    """
    found = {}
    for model, pieces in product(WIDTHS, PIECES):
        trainer = SnapshotRankTrainer(
            comm, workload(model, "class"), data(8, 12), checkpoint=False, pieces=pieces
        )
        trainer.train_epoch()
        clock, plain = FakeClock(), trainer.split._spatial
        comm.use_wire(LinkEmulation(0.0, 4.0), clock=clock)
        for cost in (0.0, ENOUGH):

            def timed(layer, times, steps, *rest, plain=plain, clock=clock, cost=cost):
                return Costly.apply(plain(layer, times, steps, *rest), clock, cost * len(steps))

            trainer.split._spatial = timed
            comm.barrier()
            comm.meter.reset()
            begin = clock.moment
            trainer.accumulate()
            found[model, pieces, cost] = comm.meter.spent["exchange_wait"], clock.moment - begin
        comm.use_wire(None)
    return found


def test_all_but_one_piece_is_hidden_forward_and_backward() -> None:
    """Where convolutions take longer than what travels beside them, each way, with no time lost."""
    for found in launch(exposed, 2, (), timeout_s=LIMIT_S, threads=1):
        for model, widths in WIDTHS.items():
            beside, alone = (2 * ROWS * sum(some) for some in widths)
            whole = found[model, 1, ENOUGH][1]
            assert whole - found[model, 1, 0.0][1] == pytest.approx(2 * 2 * ENOUGH * 4)
            for pieces in PIECES:
                waited, epoch = found[model, pieces, ENOUGH]
                assert waited == pytest.approx(beside / pieces + alone)
                assert epoch - waited == pytest.approx(whole - beside - alone, rel=1e-3)
                # Nothing to stand beside: no piece is hidden, and none costs more.
                assert found[model, pieces, 0.0][0] == pytest.approx(beside + alone)
