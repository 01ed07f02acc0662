"""Training on ranks by one call: equal to one process, measured, and in processes of their own."""

from __future__ import annotations

import os
import pickle
import sys

import pytest
import torch
from esdg_tiny import LIMIT_S, data, plain, workload

from dgbench.datasets import SnapshotSequence
from dgbench.datasets.origin import Origin
from dgbench.runtime.collectives import Communicator, LocalCommunicator
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError, UnsupportedError
from dgbench.runtime.ranks import launch
from dgbench.systems.base.timeline import PlainTimeline
from dgbench.systems.base.transport import bind, carrier, use_transport
from dgbench.systems.esdg import ranked
from dgbench.systems.esdg.partition import block_ranges
from dgbench.systems.esdg.partition_trainer import SnapshotRankTrainer, published
from dgbench.systems.esdg.volumes import snapshot_floats, timeline

BAR = 1e-5


def losses_of(model: str, epochs: int = 2) -> list[float]:
    """Losses of one process in single precision."""
    return plain(model, "link", (8, 11), torch.float32, epochs).losses


def test_ranks_train_as_published():
    """Blocks with checkpoints, differences that are brought."""
    job = workload("cd_gcn", "link")
    trainer = ranked.TimelineRanks().open(LocalCommunicator(), 1, job, data())
    assert len(trainer.blocks) > 1
    assert trainer.checkpoint
    assert trainer.train_epoch() == pytest.approx(losses_of("cd_gcn")[0], rel=BAR)
    counters = trainer.meter.counters
    assert counters["bytes_topology"] > 0
    assert counters["snapshots_difference"] + counters["snapshots_plain"] == 2 * 7
    assert counters["bytes_recorded"] * 2 == (
        counters["bytes_topology"] + counters["bytes_features"]
    )
    trainer.close()
    run = ranked.train_ranked(job, 1, epochs=2, data=data())
    assert run.counters["bytes_topology"] == counters["bytes_topology"]
    assert run.losses == pytest.approx(losses_of("cd_gcn"), rel=BAR)
    # One step is one block.
    assert published(1) == {**published(7), "blocks": 1}


def test_one_call_measures_a_group():
    run = ranked.train_ranked(
        workload("tm_gcn"),
        2,
        ranked.SnapshotRankSettings(blocks=2, wire=(0.01, 1e9)),
        epochs=4,
        accuracy=True,
        data=data(),
        timeout_s=LIMIT_S,
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
    assert [set(rank) for rank in run.phases] == [set(ranked.PHASES)] * 2
    for rank in run.phases:
        assert min(rank["compute"], rank["exchange"], rank["update"]) > 0
        assert rank["transfer"] == 0
    assert len(run.accuracy) == 4
    assert all(0 <= share <= 1 for share in run.accuracy)
    assert len(run.peak_rss_bytes) == 2


def in_processes(comm: Communicator) -> tuple[list[str], list[float], bool, set[int]]:
    """Carrier of rows by transport, losses over Gloo, and the cores that a rank is bound to."""
    found = []
    for transport in ("auto", "gloo"):
        use_transport(comm, transport)
        comm.all_to_all(torch.ones(comm.size, 1), [1] * comm.size, [1] * comm.size)
        found.append(carrier(comm))
    trainer = SnapshotRankTrainer(comm, workload("cd_gcn"), data(), scored=True, reuse=True)
    losses = [trainer.train_epoch() for _ in range(2)]
    if not hasattr(os, "sched_getaffinity"):
        return found, losses, False, set()
    return found, losses, bind(comm.rank, comm.size), os.sched_getaffinity(0)


def test_the_transport_is_a_setting_and_ranks_are_bound_evenly_or_not_at_all():
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    results = launch(in_processes, 2, (), timeout_s=LIMIT_S, stall_s=30, threads=1)
    for rank, (carriers, losses, bound, mine) in enumerate(results):
        assert carriers[1] == "Gloo"
        assert carriers[0] == "shared memory" or sys.platform != "linux"
        assert losses == pytest.approx(losses_of("cd_gcn"), rel=BAR)
        if cores:
            assert bound
            assert mine == {sorted(cores)[rank % len(cores)]}
    alone = LocalCommunicator()
    use_transport(alone, "gloo")
    assert carrier(alone) == "nothing"
    if len(cores) > 1:  # more ranks than cores, and not as many on each
        assert not bind(0, len(cores) + 1)
        assert os.sched_getaffinity(0) == cores


def test_one_rank_runs_here_and_a_budget_ends_it():
    run = ranked.train_ranked(
        workload("evolvegcn_o", "class"), 1, budget_s=1e-6, data=data(), accuracy=True
    )
    assert len(run.samples) == 3
    assert run.traffic.total() == 0
    assert len(run.accuracy) == len(run.losses) == run.warmup + 3
    brought = ranked.train_ranked(
        workload("cd_gcn", "link"),
        1,
        ranked.SnapshotRankSettings(difference=True),
        epochs=1,
        data=data(),
    )
    assert brought.phases[0]["transfer"] > 0
    assert brought.counters["bytes_topology"] > 0
    assert brought.warmup == 0
    assert len(brought.samples) == 1


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


def test_calls_that_cannot_be():
    for name, options in (
        ("size", {"size": 0}),
        ("epochs", {"size": 1, "epochs": 0}),
        ("budget_s", {"size": 1, "budget_s": 0}),
    ):
        with pytest.raises(InvalidInputError, match=name):
            ranked.train_ranked(workload("cd_gcn"), data=data(), **options)
    if not torch.cuda.is_available():
        with pytest.raises(UnsupportedError, match="CUDA"):
            ranked.train_ranked(workload("cd_gcn"), 2, data=data(), device="cuda")
