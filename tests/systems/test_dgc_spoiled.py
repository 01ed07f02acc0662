"""DGC and its baselines, spoiled one way at a time: a check fails, and no verdict is left."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial

import pytest
import torch
from dgc_tiny import random_sequence, scattered, tiny_workload

from dgbench.lab.result_checks import ResultCheck
from dgbench.systems.base import RunContext
from dgbench.systems.base.kept import CONFIRMED
from dgbench.systems.base.sequences import vertex_steps
from dgbench.systems.dgc import time_encoders as encoders
from dgbench.systems.dgc.chunk_samples import cuts_of
from dgbench.systems.dgc.experiments import fig7, partition
from dgbench.systems.dgc.experiments.fig7 import Fig7
from dgbench.systems.dgc.experiments.fig16 import check_study
from dgbench.systems.dgc.experiments.race_runs import DGC, EXACT, PTS, RaceJob, contenders, race
from dgbench.systems.dgc.loading import ON, Loader, dealt_out, plans_of
from dgbench.systems.dgc.partition import ChunkSettings
from dgbench.systems.dgc.placement import by_sequences
from dgbench.systems.dgc.predictor import Mlp
from dgbench.systems.dgc.recount import EdgeRecount
from dgbench.systems.dgc.sequence_oracle import SequenceOracle
from dgbench.systems.dgc.stale import LastSent, StaleSettings
from dgbench.systems.dgc.stale_audit import AuditedStaleWorkers
from dgbench.systems.dgc.stale_workers import StaleWorkers, Workers
from dgbench.systems.dgc.study import StudySize, study
from dgbench.systems.dgc.trainer import ChunkRankTrainer
from dgbench.systems.dgc.volumes import shape_of

CONTEXT = RunContext(device="cpu", preset="smoke", threads=1)


def failed(checks: list[ResultCheck]) -> set[str]:
    """Subjects of the checks that did not pass."""
    assert checks
    return {check.of for check in checks if not check.passed}


def swapped(output: torch.Tensor) -> torch.Tensor:
    """Two vertices' rows in each other's place."""
    order = torch.arange(output.shape[0])
    other = int((output != output[0]).any(1).nonzero()[0])
    order[0], order[other] = other, 0
    return output[order]


DATA = random_sequence(20, 5, 30, 3)
TASK = tiny_workload()


def raced(number: int = 1) -> list[ResultCheck]:
    """Checks of a race of a baseline, of DGC without stale rows and of DGC, as a cell's process."""
    chunks = ChunkSettings(rounds=0, workload="vertices")
    chosen = {PTS: contenders()[PTS]}
    chosen |= {name: replace(contenders()[name], chunks=chunks) for name in (EXACT, DGC)}
    job = RaceJob("email-eu-core", TASK, DATA, chosen)
    return race([job], 1, replace(CONTEXT, round=number), least=1, budget_s=0.0).checks


def spoil(monkeypatch, method: str, change, late: int = 1) -> None:
    """Change what a trainer's method does to its parameters, or returns, after `late` calls."""
    true, calls = getattr(ChunkRankTrainer, method), Counter()

    def wrong(self):
        found, calls[self] = true(self), calls[self] + 1
        return change(self, found) if calls[self] > late else found

    monkeypatch.setattr(ChunkRankTrainer, method, wrong)


def no_gradients(trainer, loss):
    for parameter in trainer.model.parameters():
        parameter.grad.zero_()
    return loss


def five_percent(trainer, loss):
    next(p for p in trainer.model.parameters() if p.grad.norm() > 0).grad.mul_(1.05)
    return loss


def other_loss(trainer, loss):
    return 1.001 * loss


@pytest.mark.parametrize(
    ("subject", "method", "change", "late"),
    [
        ("outputs", "outputs", lambda _, out: 1.5 * out, 0),
        ("outputs", "outputs", lambda _, out: swapped(out), 1),
        ("gradients", "accumulate", no_gradients, 0),
        ("gradients", "accumulate", five_percent, 1),
        ("losses", "accumulate", other_loss, 1),
    ],
)
def test_a_trainer_that_computes_something_else_fails(
    monkeypatch, subject, method, change, late
) -> None:
    spoil(monkeypatch, method, change, late)
    assert subject in failed(raced())


def test_a_later_process_is_compared_with_the_first(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path))
    # Without a first one it is compared itself.
    assert {c.of for c in raced(2)} >= {"outputs", "gradients", "losses"}
    assert not failed(raced())
    found = raced(2)
    assert not failed(found)
    assert ("losses", CONFIRMED) in {(c.of, c.against) for c in found}
    assert {c.of for c in found} == {"losses", "updates", "moments", "updates so far"}
    for change in (no_gradients, other_loss):
        with monkeypatch.context() as patch:
            spoil(patch, "accumulate", change)
            assert "losses" in failed(raced(2))


def counted() -> list[ResultCheck]:
    """Checks of counted partitions of a tiny graph."""
    tasks = {"tgcn_2layer": TASK, "dysat": tiny_workload("dysat")}
    settings = ChunkSettings(rounds=0, workload="vertices")
    return partition.count_partitions(DATA, tasks, (2, 3), settings=settings, controls=()).checks


def one_row_more(true, *args):
    found = true(*args)
    found.flows[0].rows[0, -1] += 1
    return found


COUNTS = [
    ("traffic_of", one_row_more, "counters"),
    ("critical_path", lambda true, *args: (true(*args)[0], true(*args)[1] + 1e-6), "values"),
    ("most_heard", lambda true, *args: true(*args) + 1, "counters"),
]


@pytest.mark.parametrize(("name", "wrong", "subject"), COUNTS)
def test_wrong_counts_of_partitions_fail(monkeypatch, name, wrong, subject) -> None:
    monkeypatch.setattr(partition, name, partial(wrong, getattr(partition, name)))
    assert subject in failed(counted())


def test_a_baseline_placed_by_another_rule_fails(monkeypatch) -> None:
    def elsewhere(graph, workers):
        placement = by_sequences(graph, workers)
        placement.structure[0] = (placement.structure[0] + 1) % workers
        return placement

    assert not failed(counted())
    monkeypatch.setitem(partition.PLACED, "sequences", elsewhere)
    assert "workers of vertex-steps" in failed(counted())


def laid_out(workers: int) -> Workers:
    graph = vertex_steps(DATA, TASK)
    return Workers(TASK, DATA, graph, scattered(graph, workers, 0), attention=False)


def audited() -> list[ResultCheck]:
    """Checks of stale rows of four workers in one process."""
    trainer = AuditedStaleWorkers(laid_out(4), StaleSettings(), EdgeRecount(DATA), "adaptive")
    for _ in range(4):
        trainer.train_epoch()
    return trainer.checks()


@pytest.mark.parametrize("what", ["right", "held", "sent", "stale copy", "count"])
def test_stale_rows_that_are_not_by_the_rule_fail(monkeypatch, what) -> None:
    choose, fetch, count = LastSent.choose, StaleWorkers._fetch, StaleWorkers._count

    def turned(value):
        def wrong(self, x, share, over_all=None):
            sent = choose(self, x, share, over_all)
            some = (sent != value).nonzero().flatten()
            if share is not None and some.numel():
                sent[some[0]] = value
            return sent

        return wrong

    def off(self, name, x, boundary):
        found = fetch(self, name, x, boundary)
        return found * 1.5 if self.threshold.share is not None else found

    def more(self, name, sent, pairs, width, passes, index):
        count(self, name, sent + (index > 0), pairs, width, passes, index)

    spoils = {
        "held": (LastSent, "choose", turned(False)), "sent": (LastSent, "choose", turned(True)),
        "stale copy": (StaleWorkers, "_fetch", off), "count": (StaleWorkers, "_count", more),
    }  # fmt: skip
    if what != "right":
        monkeypatch.setattr(*spoils[what])
    found = failed(audited())
    assert bool(found) == (what != "right"), found


def test_stale_trainers_are_compared_as_they_are_left() -> None:
    oracle, trainer = SequenceOracle(TASK, DATA), StaleWorkers(laid_out(3), StaleSettings())
    for _ in range(3):
        trainer.train_epoch()
    assert not failed(oracle.check_used({"DGC": trainer}, stale=["DGC"]))
    trainer.workers.loop = trainer.workers.loop * 1.01
    assert failed(oracle.check_used({"DGC": trainer}, stale=["DGC"])) >= {"outputs", "gradients"}


@pytest.mark.parametrize("encoder", ["structure", "time", ""])
def test_chunks_that_compute_something_else_fail(monkeypatch, encoder) -> None:
    if encoder:
        prepare = getattr(fig7.ChunkTimer, f"_{encoder}")

        def wrong(self, chunk):
            work = prepare(self, chunk)
            return type(work)(lambda: 1.5 * work.run(), work.x, work.others, work.grad)

        monkeypatch.setattr(fig7.ChunkTimer, f"_{encoder}", wrong)
    checks = Fig7().run(Fig7().cells("smoke", "cpu")[0], CONTEXT).checks
    assert failed(checks) == ({"outputs"} if encoder else set())


@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_perceptrons_that_predict_something_else_fail(monkeypatch, factor) -> None:
    true = Mlp.__call__
    monkeypatch.setattr(Mlp, "__call__", lambda self, inputs: factor * true(self, inputs))
    size = StudySize(train=8, test=4, largest=64, budget_s=0.5, epochs=2, units=4, aim_s=1e-5)
    cuts = cuts_of(vertex_steps(DATA, TASK), [8], source="tiny")
    found = study("tgcn_2layer", cuts, size)
    assert failed(check_study(found)) == (set() if factor == 1 else {"predictions"})
    found.errors["time", "mlp"] = replace(found.errors["time", "mlp"], mean=0.0)
    assert "values" in failed(check_study(found))


BARE = tiny_workload("mpnn_lstm_bare")


def test_loads_that_leave_a_row_out_fail() -> None:
    plan = plans_of(DATA, dealt_out(BARE, DATA, 3, "cpu"), norm="sym", names=(ON,))[ON]
    loader = Loader(plan, shape_of(SequenceOracle(BARE, DATA).plain.model), "cpu")
    loader.load()
    assert loader.check(ON).passed
    loader._runs[0][2].zero_()
    assert not loader.check(ON).passed


@pytest.mark.parametrize("compare", [True, False])
def test_time_encoders_that_compute_something_else_fail(monkeypatch, compare) -> None:
    dealt = dealt_out(BARE, DATA, 2, "cpu")
    found = encoders.time_encoders(BARE, DATA, dealt, "cpu", 1, 0.0, compare=compare)
    assert not failed([check for form in found.values() for check in form.checks])
    true = encoders._torch
    other = lambda *args: lambda x, run=true(*args): swapped(run(x))  # noqa: E731
    monkeypatch.setattr(encoders, "_torch", other)
    found = encoders.time_encoders(BARE, DATA, dealt, "cpu", 1, 0.0, compare=compare)
    assert failed(found[encoders.TORCH].checks) == {"outputs", "gradients"}
