"""ESDG spoiled in turn: whatever is wrong, a check of the row fails; and what is compared."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from dgbench.systems.base import Measurement, RunContext
from dgbench.systems.base.conditioning import MIN_TOLERANCE
from dgbench.systems.base.kept import CONFIRMED, begin_kept, kept_key, read, write
from dgbench.systems.base.timeline import PlainTimeline, TimelineWorkload
from dgbench.systems.esdg import experiments as ex
from dgbench.systems.esdg import oracle, plan
from dgbench.systems.esdg.experiments.common import Changes
from dgbench.systems.esdg.experiments.fig7 import random_graphs
from dgbench.systems.esdg.oracle import TimelineOracle, TimelineResult
from dgbench.systems.esdg.partition_trainer import SnapshotRankTrainer
from dgbench.systems.esdg.system import EsdgTrainer
from dgbench.systems.esdg.vertex_parts import VertexParts

CONTEXT = RunContext("cpu", "smoke", 1, budget_s=0.01)
AGAIN = RunContext("cpu", "smoke", 1, budget_s=0.01, round=2)
NODES, STEPS = 32, 6
TIMED = {"part": "timed", "model": "tm_gcn"}
SIZES = {"part": "sizes", "model": "cd_gcn"}
RANGES = {"method": "ranges"}


@pytest.fixture(autouse=True)
def served(monkeypatch):
    """A small random graph in place of every workload's."""
    data = random_graphs(NODES, steps=STEPS + 1)
    chance = random.Random(1)
    monkeypatch.setattr(oracle, "draws_of", lambda what: chance)
    for name in ("ablation", "fig4", "fig6", "memory", "preparation", "sec65", "table2_runs"):
        monkeypatch.setattr(getattr(ex, name), "load_timeline", lambda task: data)
    monkeypatch.setattr(ex.fig4, "BUDGETS", {"smoke": 0.0})
    monkeypatch.setattr(ex.ablation, "SECONDS", {"smoke": 0.0})
    return data


def ran(name: str, context: RunContext = CONTEXT, **params: Any) -> Measurement:
    """Measurement of the first smoke cell with these params."""
    (experiment,) = (e for e in ex.EXPERIMENTS if e.name == name)
    cells = [c for c in experiment.cells("smoke", "cpu") if params.items() <= c.params.items()]
    return experiment.run(cells[0], context)


def failed(found: Measurement) -> set[str]:
    """Kinds of the checks that failed; there is at least one check."""
    assert found.checks
    return {check.of for check in found.checks if not check.passed}


# What a spoiled trainer gives: `how(right result, trainer)`, or `how(trainer, loss)` for gradients.


def later_outputs(outputs: Any, _: Any) -> Any:
    return [outputs[0], *(1.5 * out for out in outputs[1:])]


def swapped_rows(outputs: Any, _: Any) -> Any:
    shown = next(out for out in reversed(outputs) if out.any())
    order = torch.arange(len(shown))
    other = next(i for i in order.tolist() if not torch.equal(shown[0], shown[i]))
    order[[0, other]] = order[[other, 0]]
    return [out[order] for out in outputs]


def worn_outputs(outputs: Any, trainer: Any) -> Any:
    return [1.5 * out for out in outputs] if len(trainer.losses) >= 2 else outputs


def no_gradients(trainer: Any, loss: float) -> float:
    for parameter in trainer.model.parameters():
        if parameter.grad is not None:
            parameter.grad.zero_()
    return loss


def one_gradient(trainer: Any, loss: float) -> float:
    next(p for p in trainer.model.parameters() if p.grad is not None).grad.mul_(1.05)
    return loss


def worn_gradients(trainer: Any, loss: float) -> float:
    return no_gradients(trainer, loss) if len(trainer.losses) >= 2 else loss


def other_losses(trainer: Any, loss: float) -> float:
    return 1.05 * loss


OUTPUTS = (later_outputs, swapped_rows, worn_outputs)
GRADIENTS = (no_gradients, one_gradient, worn_gradients, other_losses)


def spoil(monkeypatch, trainer: type, how: Any, *, only: str = "") -> str:
    """Let a trainer give something else, of ranks those of one partition; the kind of it."""
    method = "outputs" if how in OUTPUTS else "accumulate"
    right = getattr(trainer, method)

    def wrong(self: Any) -> Any:
        found = right(self)
        if only and self.partition != only:
            return found
        return how(list(found), self) if how in OUTPUTS else how(self, found)

    monkeypatch.setattr(trainer, method, wrong)
    return "losses" if how is other_losses else "outputs" if how in OUTPUTS else "gradients"


OTHERS = [
    ("ablation", CONTEXT, {"kind": "precompute"}),
    ("ablation", AGAIN, {"kind": "precompute"}),
    ("memory", CONTEXT, {"part": "budget"}),
    ("memory", AGAIN, {"part": "sweep"}),
]


@pytest.mark.parametrize(
    ("how", "name", "context", "params"),
    [
        *((how, "fig4", CONTEXT, TIMED) for how in (*OUTPUTS, *GRADIENTS)),
        *((how, "fig4", AGAIN, TIMED) for how in OUTPUTS),
        *((later_outputs, *other) for other in OTHERS),
    ],
)
def test_spoiled_trainers_of_one_process_fail(monkeypatch, how, name, context, params):
    kind = spoil(monkeypatch, EsdgTrainer, how)
    assert kind in failed(ran(name, context, **params))


@pytest.mark.parametrize("how", [later_outputs, swapped_rows, worn_gradients, other_losses])
def test_spoiled_shares_fail(monkeypatch, how):
    monkeypatch.setattr(ex.parts, "HELD_STEPS", 2)
    wanted = [(random_graphs(40, steps=9), 2), (random_graphs(24, steps=9), 3)]
    kind = spoil(monkeypatch, SnapshotRankTrainer, how)
    taken = ex.parts.take_shares(ex.fig7.task_of("tm_gcn"), wanted, turns=1)
    checks = [check for share in taken for check in share.checks]
    assert kind in failed(Measurement(checks=checks))


@pytest.mark.parametrize(
    ("name", "params", "only"),
    [
        ("table2", {"part": "time"}, "vertex"),
        ("sec65", {"part": "split"}, "hybrid"),
        ("fig7", {"part": "ranks", "ranks": 2}, "snapshot"),
    ],
)
def test_spoiled_ranks_fail(monkeypatch, name, params, only):
    monkeypatch.setattr(ex.fig7, "BASE", {"smoke": (NODES // 2, STEPS)})
    spoil(monkeypatch, SnapshotRankTrainer, worn_gradients, only=only)
    assert "gradients" in failed(ran(name, **params))


def test_ranks_that_are_spoiled_in_a_later_process_fail(monkeypatch, tmp_path):
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(ex.fig7, "BASE", {"smoke": (NODES // 2, STEPS)})
    params = {"part": "ranks", "ranks": 2}
    assert any(c.against == oracle.AGAINST for c in ran("fig7", AGAIN, **params).checks)
    later = ran("fig7", AGAIN, **params)
    assert not failed(later)
    assert CONFIRMED in {c.against for c in later.checks if c.of == "losses"}
    spoil(monkeypatch, SnapshotRankTrainer, no_gradients)
    assert "losses" in failed(ran("fig7", AGAIN, **params))


# Counts, parts and sizes that are off by one thing.


def entry_more(found: Changes) -> Changes:
    entries = found.entries.copy()
    entries[-2] += 1
    return Changes(entries, found.added, found.removed)


def index_more(found: Any) -> Any:
    return replace(found, indices=found.indices + (torch.arange(found.nnz) == found.nnz - 1).int())


def bytes_more(found: Any) -> Any:
    count = found[0].copy()
    count[0, 1] += 4
    return count, found[1]


def one_more(found: Any) -> Any:
    return found + 1


def one_less(found: Any) -> Any:
    return found[:-1]


WRONG = [
    (Changes, "of", entry_more, "table1", {"dataset": "youtube"}, "counters"),
    (Changes, "of", entry_more, "smoothing", {}, "counters"),
    (Changes, "of", entry_more, "fig4", {"part": "bytes"}, "counters"),
    (ex.encoding, "difference_bytes", one_more, "encoding", {"part": "pair"}, "counters"),
    (ex.encoding, "difference_bytes", one_more, "encoding", {"part": "sequence"}, "counters"),
    (ex.encoding, "rebuild", index_more, "encoding", {"part": "pair"}, "entries"),
    (ex.encoding, "rebuild", index_more, "encoding", {"part": "sequence"}, "entries"),
    (ex.table2_runs, "remote_reads", one_more, "table2", {"part": "parts"}, "counters"),
    (ex.table2_runs, "vertex_floats", one_more, "table2", {"part": "time"}, "counters"),
    (ex.table2_runs, "snapshot_floats", one_more, "table2", {"part": "walk"}, "counters"),
    (VertexParts, "vertices", one_less, "preparation", RANGES, "parts"),
    (VertexParts, "vertices", one_less, "table2", {"part": "parts"}, "parts"),
    (ex.parts, "redistribution", bytes_more, "fig5", {"part": "counted"}, "counters"),
    (plan, "border_bytes", one_more, "memory", SIZES, "bytes"),
]


@pytest.mark.parametrize(("where", "name", "change", "experiment", "params", "kind"), WRONG)
def test_wrong_counts_fail(monkeypatch, where, name, change, experiment, params, kind):
    right = getattr(where, name)
    monkeypatch.setattr(where, name, lambda *args, **fields: change(right(*args, **fields)))
    assert kind in failed(ran(experiment, **params))


def test_a_pair_that_is_no_edge_fails(monkeypatch, served):
    task = ex.fig7.task_of("tm_gcn")
    assert not failed(ex.fig6._drawn(task, served))
    right = ex.fig6.TimelineTask.pairs

    def loops(self: Any, t: int) -> tuple[torch.Tensor, torch.Tensor]:
        pairs, label = right(self, t)
        return (pairs[:1].expand_as(pairs) if t == STEPS - 1 else pairs), label

    monkeypatch.setattr(ex.fig6.TimelineTask, "pairs", loops)
    assert "samples" in failed(ex.fig6._drawn(task, served))


def test_costs_that_are_no_fit_fail():
    table = [(1.0, 2.0), (1.0, 5.0), (1.0, 9.0)]
    seconds = [3.0, 7.5, 12.0]
    rows = np.array(table) / np.array(seconds)[:, None]
    costs = np.linalg.lstsq(rows, np.ones(3), rcond=None)[0]
    assert ex.parts.least_squares_gap(table, seconds, costs) < ex.parts.FITTED
    assert ex.parts.least_squares_gap(table, seconds, 1.01 * costs) > ex.parts.FITTED
    assert ex.parts.least_squares_gap(table, seconds, [-costs[0], costs[1]]) == np.inf


# Parameters whose outputs tell something, found once for all processes.

DATA = random_graphs(48, steps=9)
TASK = TimelineWorkload(dataset="random", model="evolvegcn_o")


class DeadTimeline(PlainTimeline):
    """Plain trainer whose outputs are all zero with the workload's first parameters."""

    def forward(self) -> list[torch.Tensor]:
        first = self.workload.seed == TASK.seed and all(
            torch.equal(own.float(), made.float())
            for own, made in zip(self.model.parameters(), FIRST, strict=True)
        )
        return [0 * out if first else out for out in super().forward()]


FIRST = [p.detach().clone() for p in PlainTimeline(TASK, DATA).model.parameters()]


@pytest.fixture
def dead(monkeypatch, tmp_path):
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path))
    begin_kept({})
    monkeypatch.setattr(oracle, "PlainTimeline", DeadTimeline)
    chance = random.Random(7)
    monkeypatch.setattr(oracle, "draws_of", lambda what: chance)
    return kept_key((TASK, "parameters of live outputs"))


def test_outputs_that_are_all_zero_are_not_what_is_compared(dead) -> None:
    judge = TimelineOracle(TASK, DATA)
    asked = judge.request
    found = TimelineResult.of(PlainTimeline(TASK, DATA), asked)
    assert asked.parameters is not None
    assert all(out.any() for out in found.outputs.values())
    checks = judge.checks({"plain": found}, "")
    assert all(check.passed for check in checks)
    slopes = [check.tolerance for check in checks if check.of == "gradients"]
    assert set(slopes) == {MIN_TOLERANCE}


def test_parameters_of_live_outputs_are_found_once(dead, monkeypatch) -> None:
    write(dead, {"seed": TASK.seed})  # whose outputs are zero
    judge = TimelineOracle(TASK, DATA)
    found = TimelineResult.of(PlainTimeline(TASK, DATA), judge.request)
    assert all(out.any() for out in found.outputs.values())
    checks = judge.checks({"plain": found}, "")
    assert all(check.passed for check in checks)
    assert {c.tolerance for c in checks if c.of == "gradients"} == {MIN_TOLERANCE}
    first = judge.request.parameters
    assert read(dead)["seed"] != TASK.seed
    monkeypatch.setattr(oracle, "DRAWN_PARAMETERS", 0)  # nothing more is drawn
    again = TimelineOracle(TASK, DATA).request.parameters
    assert all(torch.equal(first[name], again[name]) for name in first)


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_later_processes_compare_live_outputs_of_a_dead_model(dead, monkeypatch, factor) -> None:
    class Spoiled(DeadTimeline):
        def outputs(self):
            return [factor * out for out in super().outputs()]

    for _ in range(2):  # with and without a kept seed
        found = TimelineOracle(TASK, DATA).later_checks({"plain": Spoiled(TASK, DATA)})
        assert {check.of for check in found} >= {"outputs"}
        compared = [check for check in found if check.of == "outputs"]
        assert all(check.passed for check in compared) is (factor == 1.0)
        # That the workload's own parameters give no output is a result, too.
        (dead,) = (check for check in found if check.of == "liveness")
        assert not dead.passed
