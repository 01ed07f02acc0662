"""Training on ranks by one call: equal to one process, measured, counted, and under any switch."""

from __future__ import annotations

import os
import pickle
import sys
from functools import cache
from typing import Any

import pytest
import torch
from test_esdg_spread import LIMIT_S, MODELS, data, workload

from dgbench.datasets import SnapshotSequence
from dgbench.datasets.origin import Origin
from dgbench.runtime.collectives import Communicator, LocalCommunicator
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError, UnsupportedError
from dgbench.runtime.ranks import RankTimeoutError, launch
from dgbench.systems.base.timeline import PlainTimeline
from dgbench.systems.base.transport import bind, carrier, use_transport
from dgbench.systems.esdg.partition import block_ranges, consecutive
from dgbench.systems.esdg.partition_trainer import SnapshotRankTrainer, published
from dgbench.systems.esdg.ranked import (
    PHASES,
    SharedSequence,
    SnapshotRankSettings,
    TimelineRanks,
    train_ranked,
)
from dgbench.systems.esdg.transfer import Delivery
from dgbench.systems.esdg.vertex_parts import VertexParts
from dgbench.systems.esdg.volumes import snapshot_floats, timeline

EPOCHS, BAR = 20, 1e-5


@cache
def plain(model: str, epochs: int = EPOCHS) -> tuple[list[float], dict[str, torch.Tensor]]:
    trainer = PlainTimeline(workload(model, "link"), data())
    return [trainer.train_epoch() for _ in range(epochs)], trainer.state()


def epochs(
    comm: Communicator, todo: list[tuple[str, dict[str, Any]]], count: int = EPOCHS
) -> list[list[float]]:
    """Losses of `count` epochs of all cases on this rank."""
    found = []
    for model, options in todo:
        if options["partition"] == "vertex":
            parts = VertexParts(torch.arange(11) * 7 % comm.size, comm.size)
            options = {**options, "parts": parts}
        trainer = SnapshotRankTrainer(comm, workload(model, "link"), data(), **options)
        found.append([trainer.train_epoch() for _ in range(count)])
    return found


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_twenty_steps_stay_within_the_bar(ranks):
    """Single precision. What more ranks have beside it shows in three steps: a rank that has no
    snapshot of a block with four, one vertex with eight.

    Two ranks train every model without checkpoints, too; test_esdg_spread does so with four.
    """
    todo = [
        (model, {"partition": partition, "checkpoint": checkpoint, "blocks": 1 + checkpoint})
        for model in MODELS
        for partition in ("snapshot", "vertex")
        for checkpoint in (True, False)
        if ranks < 4 or checkpoint or model == "cd_gcn"
    ]
    count = EPOCHS if ranks < 4 else 3
    if ranks == 1:
        results = [epochs(LocalCommunicator(), todo)]
    else:
        results = launch(epochs, ranks, (todo, count), timeout_s=LIMIT_S, stall_s=30, threads=1)
    for found in results:
        for (model, options), losses in zip(todo, found, strict=True):
            assert losses == pytest.approx(plain(model)[0][:count], rel=BAR), (model, options)


SWITCHES = (
    {"reuse": True},
    {"reuse": True, "pieces": 2},
    {"lean": True},
    {"lean": True, "reuse": True},
    {"lean": True, "partition": "vertex"},
    {"difference": True},
    {"difference": False},
    {"difference": True, "prefetch": True},
    {"difference": True, "checkpoint": False, "precompute": False},
    {"fused": False},
    {"partition": "hybrid", "group": 2},
    {"late": True},
    {"late": True, "precompute": False},
    {"late": True, "reuse": True, "pieces": 2},
    {"late": True, "reuse": True, "precompute": False, "lean": True},
    {"scored": True},
    {"scored": True, "late": True, "reuse": True},
    {"scored": True, "pieces": 2, "lean": True},
)


def switched(comm: Communicator, models: tuple[str, ...]) -> list[Any]:
    """Per model: gradients plainly on ranks, and loss, gradients, floats, counters by switch."""
    found = []
    for model in models:
        rows = []
        for options in ({}, *SWITCHES):
            trainer = SnapshotRankTrainer(
                comm, workload(model, "link"), data(), blocks=3, dtype=torch.float64, **options
            )
            gradients = trainer.gradients()
            comm.traffic.clear()
            comm.meter.reset()
            loss = trainer.accumulate()
            matrix = comm.all_traffic()
            floats = {
                phase: matrix.total("floats", operation="all_to_all", phase=phase)
                for phase in ("forward", "rerun", "backward")
            }
            rows.append((loss, gradients, floats, dict(comm.meter.counters)))
            trainer.close()
        found.append(rows)
    return found


@pytest.fixture(scope="module")
def results() -> Any:
    return launch(switched, 4, (MODELS,), timeout_s=LIMIT_S, stall_s=30, threads=1)


@pytest.mark.parametrize("model", MODELS)
def test_every_switch_gives_the_same_gradients(results, model):
    trainer = PlainTimeline(workload(model, "link"), data(), dtype=torch.float64)
    want, loss = trainer.gradients(), trainer.last_loss
    for rank in results:
        rows = rank[MODELS.index(model)]
        for options, row in zip(({}, *SWITCHES), rows, strict=True):
            # Shipped graphs have weights and scales of single precision.
            close = 1e-6 if "difference" in options else 1e-9
            assert row[0] == pytest.approx(loss, rel=close), options
            for name, gradient in want.items():
                torch.testing.assert_close(row[1][name], gradient, rtol=close, atol=close)


@pytest.mark.parametrize("model", MODELS)
def test_volumes_of_the_switches(results, model):
    """Kept exchanges leave two passes of three; lean passes what follows the last temporal half."""
    rows = dict(zip(map(str, ({}, *SWITCHES)), results[0][MODELS.index(model)], strict=True))
    net, blocks = timeline(model), block_ranges(7, 3)
    three = snapshot_floats(net, 11, blocks, 4)
    two = snapshot_floats(net, 11, blocks, 4, checkpoint=False)
    assert sum(rows["{}"][2].values()) == three
    for options in ({"reuse": True}, {"reuse": True, "pieces": 2}):
        found = rows[str(options)][2]
        assert sum(found.values()) == two
        assert found["rerun"] == 0
        assert found["forward"] == found["backward"]
    lean = rows[str({"lean": True})][2]
    assert lean["rerun"] == lean["backward"] == three // 3
    # All but the last block, and of that all but the last way back.
    dims = net.redistributed_dims
    width = sum(map(sum, dims))
    first = snapshot_floats(net, 11, blocks[:-1], 4) // 3
    assert lean["forward"] == (first * (width - dims[-1][1]) // width if dims else 0)
    both = rows[str({"lean": True, "reuse": True})][2]
    assert sum(both.values()) == two
    assert both["forward"] == lean["forward"]
    late = rows[str({"late": True})][2]
    # What each layer but the first aggregates goes there, its temporal output comes back.
    narrow = sum(net.input_dims[1 : len(dims)]) + sum(back for _, back in dims)
    assert late["forward"] == late["rerun"] == late["backward"]
    assert late["forward"] == (three // 3 * narrow // width if dims else 0)
    each = rows[str({"late": True, "precompute": False})][2]
    assert each["backward"] == late["backward"]
    extra = three // 3 * net.input_dims[0] // width if dims else 0
    assert each["forward"] == each["rerun"] == late["forward"] + extra
    thrifty = rows[str({"late": True, "reuse": True, "pieces": 2})][2]
    assert thrifty == {**late, "rerun": 0}
    scored = rows[str({"scored": True})][2]
    if model == "cd_gcn":
        # No way back from the last layer, but for ends of pairs that the step's owner lacks.
        back = dims[-1][1]
        assert scored["forward"] == three // 3 * (width - back) // width
        assert scored["rerun"] == scored["backward"] == scored["forward"] + back * lacked(blocks)
        both = rows[str({"scored": True, "late": True, "reuse": True})][2]
        assert both["rerun"] == back * lacked(blocks)
    else:
        # What is scored is where it was made.
        assert scored == rows["{}"][2]
    vertex = rows[str({"lean": True, "partition": "vertex"})][2]
    assert vertex["rerun"] == vertex["backward"] or model == "evolvegcn_o"
    if not dims:
        assert vertex["forward"] == 0


def lacked(blocks: list[range]) -> int:
    """Ends of pairs, each once a step, that are not vertices of the step's owner among four."""
    task = PlainTimeline(workload("cd_gcn", "link"), data()).task
    vertices, found = consecutive(range(11), 4), 0
    for times in blocks:
        for rank, steps in enumerate(consecutive(times, 4)):
            for t in steps:
                found += len(set(task.pairs(t)[0].flatten().tolist()) - set(vertices[rank]))
    return found


def test_what_is_kept_is_counted(results):
    """Everything that the exchanges of a pass bring, own shares included, as doubles."""
    for model in MODELS:
        at = 1 + SWITCHES.index({"reuse": True})
        kept = sum(rank[MODELS.index(model)][at][3].get("reuse_bytes", 0) for rank in results)
        assert kept == 8 * 7 * 11 * sum(map(sum, timeline(model).redistributed_dims))


@pytest.mark.parametrize("model", MODELS)
def test_each_rank_brings_its_share_by_difference(results, model):
    """Bytes of Delivery, said again: 20 n plain, 16 (a + r) + 4 n else, whichever is less."""
    edges = []
    for csr in data().topology:
        rows = torch.repeat_interleave(torch.arange(11), csr.indptr.diff())
        edges.append(set(zip(rows.tolist(), csr.indices.tolist(), strict=True)))
    for options in (
        {"difference": True},
        {"difference": False},
        {"difference": True, "prefetch": True},
    ):
        want, plains = 0, 0
        for times in block_ranges(7, 3):
            for own in consecutive(times, 4):
                for t in own:
                    whole = 20 * len(edges[t])
                    less = whole
                    if options["difference"] and t > own.start:
                        less = 16 * len(edges[t] ^ edges[t - 1]) + 4 * len(edges[t])
                    want += min(whole, less)
                    plains += 2 * (less >= whole)
        at = 1 + SWITCHES.index(options)
        counters = [rank[MODELS.index(model)][at][3] for rank in results]
        assert sum(c.get("bytes_topology", 0) for c in counters) == 2 * want
        assert sum(c.get("snapshots_plain", 0) for c in counters) == plains
        assert sum(c.get("bytes_features", 0) for c in counters) == 2 * 7 * 11 * 2 * 8


@pytest.mark.parametrize("model", MODELS)
def test_the_next_block_is_on_its_way_while_one_computes(monkeypatch, model):
    """Every block but the first of an epoch has been asked for when it is loaded."""
    bring, coming = Delivery._bring, []

    def noted(self, block, *args):
        coming.append(self._coming is not None and self._coming.block == block)
        return bring(self, block, *args)

    monkeypatch.setattr(Delivery, "_bring", noted)
    counted = []
    for prefetch in (True, False):
        trainer = SnapshotRankTrainer(
            LocalCommunicator(), workload(model, "link"), data(), blocks=3, difference=True,
            prefetch=prefetch,
        )  # fmt: skip
        losses = [trainer.train_epoch() for _ in range(2)]
        assert losses == pytest.approx(plain(model)[0][:2], rel=BAR)
        assert coming == 2 * [False, *[prefetch] * 5]
        coming.clear()
        counted.append({k: v for k, v in trainer.meter.counters.items() if "bytes" in k})
        trainer.outputs()
        trainer.close()
        coming.clear()
    assert counted[0] == counted[1]


def test_ranks_train_as_published():
    """Blocks with checkpoints, differences that are brought."""
    job = workload("cd_gcn", "link")
    trainer = TimelineRanks().open(LocalCommunicator(), 1, job, data())
    assert len(trainer.blocks) > 1
    assert trainer.checkpoint
    assert trainer.train_epoch() == pytest.approx(plain("cd_gcn")[0][0], rel=BAR)
    counters = trainer.meter.counters
    assert counters["bytes_topology"] > 0
    assert counters["snapshots_difference"] + counters["snapshots_plain"] == 2 * 7
    assert counters["bytes_recorded"] * 2 == (
        counters["bytes_topology"] + counters["bytes_features"]
    )
    trainer.close()
    run = train_ranked(job, 1, epochs=2, data=data())
    assert run.counters["bytes_topology"] == counters["bytes_topology"]
    assert run.losses == pytest.approx(plain("cd_gcn")[0][:2], rel=BAR)
    # One step is one block.
    assert published(1) == {**published(7), "blocks": 1}


def test_one_call_measures_a_group():
    job = workload("tm_gcn", "link")
    run = train_ranked(
        job,
        2,
        SnapshotRankSettings(blocks=2),
        epochs=6,
        accuracy=True,
        data=data(),
        timeout_s=LIMIT_S,
    )
    losses, state = plain("tm_gcn", 6)
    assert run.losses == pytest.approx(losses, rel=BAR)
    for name, value in state.items():
        torch.testing.assert_close(run.state[name], value, rtol=1e-4, atol=1e-6)
    assert run.warmup + len(run.samples) == 6
    assert run.warmup >= 1
    assert min(run.samples) > 0
    floats = snapshot_floats(timeline("tm_gcn"), 11, block_ranges(7, 2), 2)
    assert run.traffic.total("floats", operation="all_to_all") == floats
    names = [f"all_to_all_floats_{phase}" for phase in ("forward", "rerun", "backward")]
    assert sum(run.counters[name] for name in names) == floats
    assert [set(rank) for rank in run.phases] == [set(PHASES)] * 2
    for rank in run.phases:
        assert rank["compute"] > 0
        assert rank["exchange"] > 0
        assert rank["update"] > 0
        assert rank["transfer"] == 0
    assert len(run.accuracy) == 6
    assert all(0 <= share <= 1 for share in run.accuracy)
    assert len(run.peak_rss_bytes) == 2


def test_one_rank_runs_here_and_a_budget_ends_it():
    run = train_ranked(
        workload("evolvegcn_o", "class"), 1, budget_s=1e-6, data=data(), accuracy=True
    )
    assert len(run.samples) == 3
    assert run.traffic.total() == 0
    assert len(run.accuracy) == len(run.losses) == run.warmup + 3
    brought = train_ranked(
        workload("cd_gcn", "link"), 1, SnapshotRankSettings(difference=True), epochs=1, data=data()
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
    right = trainer.task.hits(trainer.model.head, step, trainer.output(step))
    assert right[1] == truth.numel()
    with torch.no_grad():
        scores = trainer.model.head(trainer.output(step), pairs)
    assert trainer.accuracy() == float((scores.argmax(-1) == label).double().mean())


def test_the_wire_makes_exchanges_slower_and_changes_nothing_else():
    job, options = workload("tm_gcn", "link"), {"epochs": 2, "data": data(), "timeout_s": LIMIT_S}
    run = train_ranked(job, 2, SnapshotRankSettings(wire=(0.01, 1e9)), **options)
    assert run.losses == pytest.approx(plain("tm_gcn", 2)[0], rel=BAR)
    # Two exchanges a pass, three passes, each with one message to the other rank: a lower bound.
    assert min(run.samples) > 0.06


def test_gloo_carries_the_same():
    job, options = workload("cd_gcn", "link"), {"epochs": 2, "data": data(), "timeout_s": LIMIT_S}
    run = train_ranked(
        job, 2, SnapshotRankSettings(transport="gloo", scored=True, reuse=True), **options
    )
    assert run.losses == pytest.approx(plain("cd_gcn", 2)[0], rel=BAR)


def carriers(comm: Communicator) -> list[str]:
    """Carrier of rows by transport."""
    found = []
    for transport in ("gloo", "auto"):
        use_transport(comm, transport)
        comm.all_to_all(torch.ones(comm.size, 1), [1] * comm.size, [1] * comm.size)
        found.append(carrier(comm))
    return found


def test_the_transport_is_a_setting():
    for found in launch(carriers, 2, (), timeout_s=LIMIT_S, stall_s=30, threads=1):
        assert found[0] == "Gloo"
        if sys.platform == "linux":
            assert found[1] == "shared memory"
    alone = LocalCommunicator()
    use_transport(alone, "gloo")
    assert carrier(alone) == "nothing"


def bound(comm: Communicator) -> tuple[bool, set[int]]:
    """Return True if a rank was bound to cores, and the cores it may run on."""
    return bind(comm.rank, comm.size), os.sched_getaffinity(0)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no binding to cores here")
def test_ranks_are_bound_evenly_or_not_at_all():
    cores = os.sched_getaffinity(0)
    for size in (2, len(cores) + 1):
        found = launch(bound, size, (), timeout_s=LIMIT_S, stall_s=30, threads=1)
        even = size <= len(cores) or size % len(cores) == 0
        assert [done for done, _ in found] == [even] * size
        for rank, (_, mine) in enumerate(found):
            assert mine == ({sorted(cores)[rank % len(cores)]} if even else cores)


def test_a_group_that_takes_too_long_is_ended():
    with pytest.raises(RankTimeoutError, match="rank"):
        train_ranked(workload("cd_gcn", "link"), 2, epochs=10**6, data=data(), timeout_s=1.5)


def test_a_sequence_travels_in_one_file(tmp_path):
    tiny = data()
    whole = SnapshotSequence(
        topology=tiny.topology,
        features=tiny.features,
        targets=tiny.targets,
        num_nodes=11,
        origin=Origin("tiny", "twin"),
    )
    parcel = SharedSequence(whole, tmp_path)
    for _ in range(2):
        there = pickle.loads(pickle.dumps(parcel)).open()
        assert torch.equal(there.features, whole.features)
        for a, b in zip(there.topology, whole.topology, strict=True):
            assert torch.equal(a.indices, b.indices)
            assert (a.values is None) == (b.values is None)
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(InvalidInputError, match="folder"):
        pickle.dumps(SharedSequence(whole))


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
        SnapshotRankSettings(**options).check()


def test_calls_that_cannot_be():
    job = workload("cd_gcn", "link")
    for options, named in (
        ({"size": 0}, "size"),
        ({"size": 1, "epochs": 0}, "epochs"),
        ({"size": 1, "budget_s": 0}, "budget_s"),
    ):
        with pytest.raises(InvalidInputError, match=named):
            train_ranked(job, data=data(), **options)
    with pytest.raises(InvalidInputError, match="aggregator"):
        SnapshotRankTrainer(LocalCommunicator(), job, data(), difference=True, aggregator=object())
    with pytest.raises(InvalidInputError, match="step"):
        SnapshotRankTrainer(LocalCommunicator(), job, data()).output(7)
    if not torch.cuda.is_available():
        with pytest.raises(UnsupportedError, match="CUDA"):
            train_ranked(job, 2, data=data(), device="cuda")
