"""Training races: of processes, in turns inside one, and the main one of each paper."""

from __future__ import annotations

import pytest
from tiny_data import serve, tiny_sequence, tiny_workload

from dgbench.lab.catalogue import METER_METRICS
from dgbench.lab.experiment import RunContext
from dgbench.lab.metrics import metric
from dgbench.runtime.errors import CheckFailed, UnsupportedError
from dgbench.runtime.meter import Meter
from dgbench.runtime.readback import Readback
from dgbench.runtime.steady import measure_steady
from dgbench.systems.base import get_paper, get_system, race, system_names
from dgbench.systems.base.timeline import TimelineWorkload
from dgbench.systems.base.turns import RaceContender, opened, turns_of
from dgbench.systems.esdg import system as esdg_system

WORK = tiny_workload(model="evolvegcn")


def context() -> RunContext:
    return RunContext("cpu", "smoke", 1, meter=Meter(), budget_s=0.01)


@pytest.mark.parametrize("system", ["reference", "pygt", "pipad"])
def test_counters_are_the_same_however_long_a_process_trains(monkeypatch, system) -> None:
    if system == "pygt":
        pytest.importorskip("torch_geometric_temporal")
    serve(monkeypatch, tiny_sequence(nodes=15, edges=50, snapshots=8))
    found = []
    for steps in (4, 11):  # a clock decides on this otherwise

        def steady(step, *, steps=steps, **options):
            return measure_steady(step, **options | {"budget_s": 60.0, "max_iters": steps})

        monkeypatch.setattr(race, "measure_steady", steady)
        here = context()
        measured = race.timed(system, WORK, here)
        assert len(measured.steady) + measured.warmup == steps
        told = {one.metric for one in measured.observations}
        left = {METER_METRICS.get(name, name) for name in here.meter.counters}
        assert left <= told  # the harness adds what a cell leaves in its meter
        exact = (one for one in measured.observations if metric(one.metric).exact)
        found.append({one.metric: one.value for one in exact})
    assert found[0] == found[1]
    assert found[0]["counted_steps"] == race.COUNTED_STEPS
    assert found[0]["edges_aggregated"] > 0


@pytest.fixture
def reference(monkeypatch):
    """The class of the reference's trainers, for a test to change."""
    serve(monkeypatch, tiny_sequence(nodes=15, edges=50, snapshots=8))
    return type(get_system("reference").open(WORK, device="cpu"))


def test_a_loss_that_is_no_number_has_no_time(monkeypatch, reference) -> None:
    enqueue = reference.enqueue
    losses = map(Readback, [1.0, 1.0, float("nan")])
    monkeypatch.setattr(reference, "enqueue", lambda self, i: next(losses, enqueue(self, i)))
    with pytest.raises(CheckFailed, match="step 3 "):
        race.timed("reference", WORK, context())


# Turns inside one process.

TURNS = {
    "base": RaceContender("esdg", {"difference": False, "arena": True}, {"nb": 2}),
    "gd": RaceContender("esdg", {"arena": True}, {"nb": 3}),
}


def test_settings_of_a_timeline_take_turns(monkeypatch):
    data = tiny_sequence(features=2)
    for where in (race, esdg_system):
        monkeypatch.setattr(where, "load_timeline", lambda workload: data)
    task = TimelineWorkload(dataset="tiny", model="cd_gcn")
    oracle = race.oracle_of(task, context())
    with opened(TURNS, task, context(), timing=True) as trainers:
        assert [len(t.blocks) for t in trainers.values()] == [2, 3]
        found = turns_of(trainers, 3, 0.0)
        assert all(check.passed for check in oracle.settings(trainers, first=True))
        assert found.sent == {name: trainer.epoch_bytes() for name, trainer in trainers.items()}
        for name in TURNS:
            parts = found.parts[name]
            assert all(len(parts[part]) == 3 for part in ("transfer", "update", "copy_busy"))
            assert all(s >= 0 for part in parts.values() for s in part)
            phases = zip(found.seconds[name], parts["transfer"], strict=True)
            assert all(whole > part for whole, part in phases)
        # Another answer is no result.
        kind = type(trainers["gd"])
        right = kind.evaluate
        monkeypatch.setattr(kind, "evaluate", lambda self, *frame: 1.5 * right(self, *frame))
        (outputs, gradients, _) = oracle.settings({"gd": trainers["gd"]}, first=True)
        assert not outputs.passed
        assert gradients.passed
    with pytest.raises(UnsupportedError), opened({"e": TURNS["gd"]}, WORK, context()):
        pass


# The main race of each paper.


@pytest.mark.parametrize("name", ["pipad", "esdg", "dgc", "gnnflow", "tgcn"])
def test_every_paper_races_a_headline_and_a_fairer_baseline(name):
    raced = [e for e in get_paper(name).experiments if e.main_race is not None]
    comparisons = [one for e in raced for one in e.main_race.comparisons]
    assert {one.fairer for one in comparisons} == {True, False}
    # A name is that of a system, or of its stage as in "pipad, all off".
    systems = {name.partition(",")[0] for one in comparisons for name in one.systems or ()}
    assert systems <= set(system_names())
    # A release is named with its version, and with what it is where it is not installed.
    assert all(bool(one.package) == bool(one.rival_without) for one in comparisons)
    for experiment in raced:
        race = experiment.main_race
        if all(one.fairer for one in race.comparisons):
            continue
        for preset in ("smoke", "quick", "full"):
            cells = experiment.cells(preset, "cpu")
            found = [workload for cell in cells for workload in race.workloads(cell.params)]
            assert found
            assert all(list(one) == list(race.dims) for one in found)
