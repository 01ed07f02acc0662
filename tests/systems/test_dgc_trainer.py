"""DGC's engine against the plain trainer: every placement, model, task and switch."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial

import pytest
import torch
from dgc_ranks import as_ranks, rank_trainer
from dgc_tiny import placements, random_sequence, scattered, tiny_workload
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_data import entries_of

from dgbench.lab.result_checks import largest
from dgbench.models import SEQUENCE_MODELS
from dgbench.runtime.collectives import LocalCommunicator
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.base import sequences
from dgbench.systems.base.plain_sequences import PlainSequences
from dgbench.systems.base.race import relative
from dgbench.systems.base.sequences import (
    SequenceTask,
    sequence_model,
    untrained_accuracy,
    vertex_steps,
)
from dgbench.systems.base.workload import Workload
from dgbench.systems.dgc.partition import ChunkSettings
from dgbench.systems.dgc.placement import by_sequences
from dgbench.systems.dgc.settings_run import ChunkRankSettings
from dgbench.systems.dgc.stale import StaleSettings
from dgbench.systems.dgc.system import DgcSystem, DgcTrainer
from dgbench.systems.dgc.trainer import ChunkRankTrainer
from dgbench.systems.dgc.unit_bytes import UnitBytes
from dgbench.systems.dgc.volumes import count_traffic, shape_of

opened = partial(rank_trainer, dtype=torch.float64)


def answers(trainer, epochs=2):
    return {
        "output": trainer.evaluate(), "gradients": trainer.gradients(),
        "accuracy": trainer.accuracy(),
        "losses": [trainer.train_epoch() for _ in range(epochs)],
    }  # fmt: skip


def differ(found, want):
    """The largest relative deviation of anything."""
    losses = zip(found["losses"], want["losses"], strict=True)
    return max(
        relative(found["output"], want["output"]),
        largest(found["gradients"], want["gradients"]),
        abs(found["accuracy"] - want["accuracy"]),
        *(abs(a - b) / max(abs(b), 1e-30) for a, b in losses),
    )


def train(work, data, placement, **options):
    def be(comm):
        trainer = opened(comm, work, data, placement, **options)
        found = answers(trainer)
        comm.traffic.clear()
        comm.meter.counters.clear()
        trainer.train_epoch()
        return found | {"counters": dict(comm.meter.counters), "stages": trainer.stages}

    return as_ranks(placement.workers, be)


@settings(max_examples=25)
@given(
    model=st.sampled_from(SEQUENCE_MODELS), task=st.sampled_from(["active", "link"]),
    presence=st.sampled_from(["span", "edges", "tail"]), workers=st.integers(1, 4),
    nodes=st.integers(2, 9), steps=st.integers(2, 6), most=st.integers(0, 14),
    kind=st.integers(0, 6), fusion=st.sampled_from(["none", "spatial", "whole"]),
    temporal=st.sampled_from(["packed", "padded", "packed_sequence"]), seed=st.integers(0, 9999),
)  # fmt: skip
def test_any_placement_trains_the_same(
    model, task, presence, workers, nodes, steps, most, kind, fusion, temporal, seed
):
    """As the oracle, whose A-hat is not rounded; and as much is sent as is counted."""
    data = random_sequence(nodes, steps, most, seed)
    work = tiny_workload(model, task=task, presence=presence, held_out=0.3)
    graph = vertex_steps(data, work)
    every = placements(graph, workers, seed)
    placement = [*every, scattered(graph, workers, seed, moves=True, units=5)][kind]
    want = answers(PlainSequences(work, data, dtype=torch.float64))
    found = train(work, data, placement, fusion=fusion, temporal=temporal)
    assert max(differ(rank, want) for rank in found) < 1e-6
    assert len({rank["stages"] for rank in found}) == 1
    as_counted(data, work, placement, found)


def as_counted(data, work, placement, found) -> None:
    """Check that ranks sent what is counted of the placement, flow by flow."""
    graph = vertex_steps(data, work)
    sent: Counter[str] = Counter()
    for rank in found:
        sent.update(rank["counters"])
    counted = 0
    for flow in count_traffic(data, graph, placement, shape_of(sequence_model(work))).flows:
        stem = r"state\d*" if flow.name == "state" else flow.name
        of_flow = re.compile(rf"{stem}_.*floats_{flow.direction}")
        floats = sum(n for name, n in sent.items() if of_flow.fullmatch(name))
        assert floats == int(flow.rows.sum()) * flow.width, flow.name
        counted += floats
    spent = sum(n for k, n in sent.items() if k.startswith("all_to_all_floats"))
    of_task = sum(n for k, n in sent.items() if k.startswith("task_floats"))
    assert spent == counted + of_task
    assert work.task == "link" or not of_task


@pytest.mark.parametrize(
    ("model", "precompute"), [("tgcn_2layer", True), ("dysat", False), ("mpnn_lstm_bare", True)]
)
def test_units_are_measured_in_the_first_epoch_and_fused_after_it(model, precompute):
    data = random_sequence(14, 5, 40, 3)
    work = tiny_workload(model)
    placement = scattered(vertex_steps(data, work), 2, 1, units=6)
    limit = 6000
    options = {"fusion": "spatial", "memory_limit": limit}
    want = answers(PlainSequences(work, data, dtype=torch.float64), epochs=4)

    def be(comm):
        trainer = opened(comm, work, data, placement, **options)
        if precompute:
            trainer.worker.fetch_inputs()
        before = [group.units.tolist() for group in trainer.plan.structure.groups]
        assert trainer.unit_bytes is None
        found = answers(trainer, epochs=1)
        after = [group.units.tolist() for group in trainer.plan.structure.groups]
        found["losses"] += [trainer.train_epoch() for _ in range(3)]
        assert after == [group.units.tolist() for group in trainer.plan.structure.groups]
        return found | {"before": before, "after": after, "bytes": trainer.unit_bytes}

    found = as_ranks(2, be)
    for rank in found:
        assert differ(rank, want) < 1e-6
        assert all(len(units) == 1 for units in rank["before"])
        mine = [unit for units in rank["before"] for unit in units]
        assert sorted(mine) == sorted(unit for units in rank["after"] for unit in units)
        assert bool((rank["bytes"][mine] > 0).all())
        for units in rank["after"]:
            assert len(units) == 1 or float(rank["bytes"][units].sum()) <= limit
    assert any(1 < len(rank["after"]) < len(rank["before"]) for rank in found)


def test_bytes_of_a_unit_are_what_it_keeps():
    weight = torch.ones(3, 3, requires_grad=True)
    table = torch.ones(8, 3, requires_grad=True)
    given = torch.arange(4)
    counted = UnitBytes(3, [weight])
    pieces = table.split([5, 2, 1])
    with counted.of(0, pieces[0]):
        kept = (pieces[0] @ weight).exp()  # keeps its input, which is counted, and what it gives
    with counted.of(1, pieces[1], given):
        dropped = pieces[1] + 1  # keeps nothing
    with counted.of(1, pieces[1]):
        again = dropped @ weight  # another round keeps what the first one gave
    assert counted.bytes == [4 * 3 * (5 + 5), 4 * 3 * 2 + 8 * 4 + 4 * 3 * (2 + 2), 0]
    (kept.sum() + again.sum()).backward()
    torch.testing.assert_close(table.grad[:5], torch.full((5, 3), 3 * float(torch.e) ** 3))


@settings(max_examples=15)
@given(st.integers(2, 9), st.integers(3, 6), st.integers(1, 15), st.integers(0, 999))
def test_predictors_that_train_nothing_look_at_the_past_alone(nodes, steps, most, seed):
    data = random_sequence(nodes, steps, most, seed)
    work = tiny_workload(held_out=0.5, seed=seed, presence="span")
    graph = vertex_steps(data, work)
    task = SequenceTask(data, work, graph)
    found = untrained_accuracy(data, task, graph)
    present = [{end for entry in entries_of(csr) for end in entry} for csr in data.topology]
    scored, hits = task.scored, {"last_value": [], "historical_mean": []}
    for place, label, test in zip(scored.places, scored.label, scored.test, strict=True):
        if test:
            vertex, t = int(graph.entity[place]), int(graph.step[place])
            past = [vertex in present[s] for s in range(t + 1)]
            hits["last_value"].append(past[-1] == bool(label))
            hits["historical_mean"].append((2 * sum(past) >= len(past)) == bool(label))
    if not task.tested:
        assert found == {}
        return
    assert found == {name: pytest.approx(sum(h) / len(h)) for name, h in hits.items()}


SMALL = ChunkRankSettings(chunks=ChunkSettings(per_worker=3, workload="edges"))
DATA = random_sequence(30, 8, 12, 3)
SWITCHES = ("pgc", "refine", "predictor", "spatial_fusion", "temporal_fusion", "precompute")


@pytest.fixture
def system(monkeypatch):
    monkeypatch.setattr("dgbench.datasets.open_snapshots", lambda spec: DATA)
    return DgcSystem()


@pytest.mark.parametrize("model", SEQUENCE_MODELS)
def test_exact_switches_train_as_the_reference(system, model):
    """Each switch alone: test_cuda_dgc on the host."""
    work = tiny_workload(model)
    oracle = PlainSequences(work, DATA, dtype=torch.float64)
    output, gradients = oracle.evaluate(), oracle.gradients()
    losses = [oracle.train_epoch() for _ in range(3)]
    accuracy = oracle.accuracy()
    for flip in ((), ("predictor",), SWITCHES):
        on = system.switches()
        on |= {name: not on[name] for name in flip}
        trainer = system.open(work, switches=on, settings=SMALL, dtype=torch.float64)
        trainer.prepare()
        assert relative(trainer.evaluate(), output) < 1e-6
        assert largest(trainer.gradients(), gradients) < 1e-6
        assert [trainer.step(0) for _ in range(3)] == pytest.approx(losses, rel=1e-6)
        assert trainer.accuracy() == pytest.approx(accuracy)
        assert largest(trainer.state(), oracle.state()) < 1e-4
        trainer.close()


def test_the_last_snapshots_are_loaded(system):
    loaded = sequences.load_sequences(tiny_workload(snapshots=4))
    assert len(loaded) == 5
    assert loaded.topology[-1] is DATA.topology[-1]


def test_wrong_arguments_are_named(system):
    data, work, on = random_sequence(8, 4, 9, 1), tiny_workload(), system.switches(None)
    graph, other = vertex_steps(data, work), vertex_steps(random_sequence(9, 5, 12, 2), work)
    ids = ChunkRankSettings(store=True, stale=StaleSettings(index="ids"))

    def rank(placement, **fields):
        ChunkRankTrainer(LocalCommunicator(), work, data, placement, **fields)

    of_workloads = {"held_out": 1.0, "theta": 0.0, "hidden_dim": 0, "snapshots": 0}
    words = {"task": "node", "presence": "always", "norm": "max", "model": "tgcn"}
    of_settings = {"partition": "rows", "temporal": "sorted", "transport": "mail"}
    for error, name, call in (
        *((InvalidInputError, n, tiny_workload(**{n: v}).check) for n, v in of_workloads.items()),
        *((UnknownKeyError, n, tiny_workload(**{n: v}).check) for n, v in words.items()),
        *((UnknownKeyError, n, ChunkRankSettings(**{n: v}).check) for n, v in of_settings.items()),
        (InvalidInputError, "memory_limit_bytes", ChunkRankSettings(memory_limit_bytes=0).check),
        (InvalidInputError, r"stale\.index", ids.check),
        (InvalidInputError, "placement", lambda: rank(by_sequences(graph, 2))),
        (InvalidInputError, "placement", lambda: rank(by_sequences(other, 1), graph=graph)),
        (InvalidInputError, r"settings\.store",
         lambda: DgcTrainer(work, data, on, settings=ChunkRankSettings(store=True))),
        (InvalidInputError, "", lambda: PlainSequences(work, random_sequence(4, 1, 5, 0))),
        (InvalidInputError, "feature_dim",
         lambda: PlainSequences(tiny_workload(feature_dim=3), data)),
        (InvalidInputError, "frame", lambda: PlainSequences(work, data).step(1)),
        (UnknownKeyError, "fuse", lambda: system.open(work, switches={"fuse": True})),
        (InvalidInputError, "workers", lambda: system.open(work, workers=0)),
    ):  # fmt: skip
        with pytest.raises(error, match=name or None):
            call()
    ChunkRankSettings(store=True, stale=StaleSettings()).check()
    assert system.unsupported(work, "cpu") == []
    assert system.unsupported(Workload(dataset="tiny", model="tgcn_model"), "cpu")
