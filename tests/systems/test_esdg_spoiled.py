"""ESDG spoiled in turn: whatever is wrong, a check of the row fails, and no verdict rests on it."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec import structs

from dgbench.harness.claims.evaluate import evaluate
from dgbench.harness.store.store import Store
from dgbench.systems.base import Measurement, RunContext
from dgbench.systems.base.kept import CONFIRMED
from dgbench.systems.base.registry import get_paper
from dgbench.systems.esdg import oracle, vertex_parts
from dgbench.systems.esdg.experiments import (
    EXPERIMENTS,
    ablation,
    encoding,
    fig4,
    fig6,
    fig7,
    memory,
    parts,
    preparation,
    sec65,
    shares,
    table2_runs,
)
from dgbench.systems.esdg.experiments.common import Changes
from dgbench.systems.esdg.experiments.random_graphs import random_graphs
from dgbench.systems.esdg.partition_trainer import SnapshotRankTrainer
from dgbench.systems.esdg.system import EsdgTrainer

CONTEXT = RunContext("cpu", "smoke", 1, budget_s=0.01)
AGAIN = RunContext("cpu", "smoke", 1, budget_s=0.01, round=2)
KEPT = Path(__file__).parents[2] / "results" / "reference" / "amd-epyc-2-cores" / "esdg"
NODES, STEPS = 32, 6


@pytest.fixture(autouse=True)
def served(monkeypatch):
    """A small random graph in place of every workload's."""
    data = random_graphs(NODES, steps=STEPS + 1)
    chance = random.Random(1)
    monkeypatch.setattr(oracle, "draws_of", lambda what: chance)
    for module in (ablation, fig4, fig6, memory, preparation, sec65, table2_runs):
        monkeypatch.setattr(module, "load_timeline", lambda task: data)
    for module in (ablation, fig4):
        monkeypatch.setattr(module, "BUDGETS" if module is fig4 else "SECONDS", {"smoke": 0.0})
    return data


def ran(name: str, context: RunContext = CONTEXT, **params: Any) -> Measurement:
    """Measurement of the first smoke cell with these params."""
    (experiment,) = (e for e in EXPERIMENTS if e.name == name)
    cells = [c for c in experiment.cells("smoke", "cpu") if params.items() <= c.params.items()]
    return experiment.run(cells[0], context)


def failed(found: Measurement) -> set[str]:
    """Kinds of the checks that failed; there is at least one check."""
    assert found.checks
    return {check.of for check in found.checks if not check.passed}


# What a spoiled trainer gives: `how(right result, trainer)`, or `how(trainer, loss)` for gradients.


def scaled_outputs(outputs: list[torch.Tensor], _: Any) -> list[torch.Tensor]:
    return [1.5 * out for out in outputs]


def later_outputs(outputs: list[torch.Tensor], _: Any) -> list[torch.Tensor]:
    return [outputs[0], *(1.5 * out for out in outputs[1:])]


def swapped_rows(outputs: list[torch.Tensor], _: Any) -> list[torch.Tensor]:
    shown = next(out for out in reversed(outputs) if out.any())
    order = torch.arange(len(shown))
    other = next(i for i in order.tolist() if not torch.equal(shown[0], shown[i]))
    order[[0, other]] = order[[other, 0]]
    return [out[order] for out in outputs]


def worn_outputs(outputs: list[torch.Tensor], trainer: Any) -> list[torch.Tensor]:
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


OUTPUTS = (scaled_outputs, later_outputs, swapped_rows, worn_outputs)
GRADIENTS = (no_gradients, one_gradient, worn_gradients, other_losses)
SPOILED = (*OUTPUTS, *GRADIENTS)


def spoil(monkeypatch, trainer: type, how: Any, *, only: str = "") -> str:
    """Let a trainer give something else, of ranks those of one partition; the kind of it."""
    outputs, accumulate = trainer.outputs, trainer.accumulate

    def chosen(self: Any) -> bool:
        return not only or self.partition == only

    def other_outputs(self: Any) -> Any:
        found = list(outputs(self))
        return how(found, self) if chosen(self) else found

    def other_accumulate(self: Any) -> float:
        loss = accumulate(self)
        return how(self, loss) if chosen(self) else loss

    if how in OUTPUTS:
        monkeypatch.setattr(trainer, "outputs", other_outputs)
        return "outputs"
    monkeypatch.setattr(trainer, "accumulate", other_accumulate)
    return "losses" if how is other_losses else "gradients"


@pytest.mark.parametrize("how", SPOILED)
def test_spoiled_trainers_of_one_process_fail(monkeypatch, how):
    kind = spoil(monkeypatch, EsdgTrainer, how)
    assert kind in failed(ran("fig4", part="timed", model="tm_gcn"))


@pytest.mark.parametrize("how", OUTPUTS)
def test_trainers_that_are_spoiled_in_a_later_process_fail(monkeypatch, how):
    spoil(monkeypatch, EsdgTrainer, how)
    assert "outputs" in failed(ran("fig4", AGAIN, part="timed", model="tm_gcn"))


@pytest.mark.parametrize(
    ("name", "params"), [("ablation", {"kind": "precompute"}), ("memory", {"part": "sweep"})]
)
def test_later_processes_of_other_experiments_compare_too(monkeypatch, name, params):
    assert not failed(ran(name, AGAIN, **params))
    spoil(monkeypatch, EsdgTrainer, scaled_outputs)
    assert "outputs" in failed(ran(name, AGAIN, **params))


@pytest.mark.parametrize("name", ["ablation", "memory"])
def test_other_experiments_of_one_process_fail_too(monkeypatch, name):
    params = {"kind": "precompute"} if name == "ablation" else {"part": "budget"}
    assert not failed(ran(name, **params))
    spoil(monkeypatch, EsdgTrainer, scaled_outputs)
    assert "outputs" in failed(ran(name, **params))


@pytest.mark.parametrize("how", SPOILED)
def test_spoiled_shares_fail(monkeypatch, how):
    monkeypatch.setattr(shares, "HELD_STEPS", 2)
    wanted = [(random_graphs(40, steps=9), 2), (random_graphs(24, steps=9), 3)]
    kind = spoil(monkeypatch, SnapshotRankTrainer, how)
    taken = shares.take_shares(fig7.task_of("tm_gcn"), wanted, turns=1)
    checks = [check for share in taken for check in share.checks]
    assert kind in failed(Measurement(checks=checks))


@pytest.mark.parametrize(
    ("run", "only"),
    [
        (lambda: ran("fig5", part="ranks"), "snapshot"),
        (lambda: ran("table2", part="time"), "vertex"),
        (lambda: ran("sec65", part="split"), "hybrid"),
        (lambda: ran("overlap"), "snapshot"),
        (lambda: ran("fig7", part="ranks", ranks=2), "snapshot"),
    ],
    ids=["fig5", "table2", "sec65", "overlap", "fig7"],
)
def test_spoiled_ranks_fail(monkeypatch, run, only, served):
    for module in ("parts", "overlap"):
        monkeypatch.setattr(f"dgbench.systems.esdg.experiments.{module}.load_timeline",
                            lambda task: served)  # fmt: skip
    monkeypatch.setattr(fig7, "BASE", {"smoke": (NODES // 2, STEPS)})
    spoil(monkeypatch, SnapshotRankTrainer, worn_gradients, only=only)
    assert "gradients" in failed(run())


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("fig5", {"part": "ranks"}),
        ("table2", {"part": "time"}),
        ("fig7", {"part": "ranks", "ranks": 2}),
    ],
)
def test_ranks_that_are_spoiled_in_a_later_process_fail(
    monkeypatch, name, params, served, tmp_path
):
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(parts, "load_timeline", lambda task: served)
    monkeypatch.setattr(fig7, "BASE", {"smoke": (NODES // 2, STEPS)})
    assert any(c.against == oracle.AGAINST for c in ran(name, AGAIN, **params).checks)
    later = ran(name, AGAIN, **params)
    assert not failed(later)
    assert CONFIRMED in {c.against for c in later.checks if c.of == "losses"}
    spoil(monkeypatch, SnapshotRankTrainer, no_gradients)
    assert "losses" in failed(ran(name, AGAIN, **params))


# Counts, parts, samples and fits that are off by one thing.


def off_by_one(function: Any) -> Any:
    return lambda *args, **fields: function(*args, **fields) + 1


def test_wrong_counts_of_entries_fail(monkeypatch):
    assert not failed(ran("table1", dataset="youtube"))
    right = Changes.of.__func__

    def wrong(cls: Any, lives: Any, life: int) -> Changes:
        found = right(cls, lives, life)
        entries = found.entries.copy()
        entries[-2] += 1
        return Changes(entries, found.added, found.removed)

    monkeypatch.setattr(Changes, "of", classmethod(wrong))
    for name in ("table1", "smoothing"):
        assert "counters" in failed(ran(name))
    assert "counters" in failed(ran("fig4", part="bytes"))


def test_wrong_bytes_of_differences_fail(monkeypatch):
    assert not failed(ran("encoding", part="pair"))
    monkeypatch.setattr(encoding, "difference_bytes", off_by_one(encoding.difference_bytes))
    assert failed(ran("encoding", part="pair")) == {"counters"}
    assert failed(ran("encoding", part="sequence")) == {"counters"}


def test_a_snapshot_that_is_rebuilt_wrong_fails(monkeypatch):
    right = encoding.rebuild

    def wrong(old: Any, difference: Any, **fields: Any) -> Any:
        found = right(old, difference, **fields)
        indices = found.indices.clone()
        indices[-1] += 1
        return replace(found, indices=indices)

    monkeypatch.setattr(encoding, "rebuild", wrong)
    assert failed(ran("encoding", part="pair")) == {"entries"}


@pytest.mark.parametrize("name", ["remote_reads", "vertex_floats", "snapshot_floats"])
def test_wrong_volumes_fail(monkeypatch, name):
    monkeypatch.setattr(table2_runs, name, off_by_one(getattr(table2_runs, name)))
    part = {"remote_reads": "parts", "vertex_floats": "time", "snapshot_floats": "walk"}[name]
    assert "counters" in failed(ran("table2", part=part))


def test_a_walk_that_leaves_a_pass_out_fails(monkeypatch):
    right = table2_runs.count_snapshot
    monkeypatch.setattr(
        table2_runs, "count_snapshot", lambda *a, **f: right(*a, **{**f, "checkpoint": False})
    )
    assert "counters" in failed(ran("table2", part="walk"))


def test_vertices_that_no_part_has_fail(monkeypatch):
    def wrong(self: Any, part: int) -> torch.Tensor:
        return self.order[self.starts[part] : self.starts[part + 1] - 1]

    monkeypatch.setattr(vertex_parts.VertexParts, "vertices", wrong)
    assert "parts" in failed(ran("preparation", method="ranges"))
    assert "parts" in failed(ran("table2", part="parts"))


def test_wrong_closed_forms_and_idle_ranks_fail(monkeypatch):
    assert not failed(ran("fig5", part="counted"))
    right = parts.redistribution

    def wrong(*args: Any, **fields: Any) -> Any:
        count, messages = right(*args, **fields)
        count[0, 1] += 4
        return count, messages

    monkeypatch.setattr(parts, "redistribution", wrong)
    assert failed(ran("fig5", part="counted")) == {"counters"}


def test_wrong_sizes_fail(monkeypatch):
    assert not failed(ran("memory", part="sizes", model="cd_gcn"))
    monkeypatch.setattr(memory, "border_bytes", off_by_one(memory.border_bytes))
    assert "bytes" in failed(ran("memory", part="sizes", model="cd_gcn"))


def test_a_pair_that_is_no_edge_fails(monkeypatch, served):
    task = fig7.task_of("tm_gcn")
    counters = fig6._drawn(task, served)
    assert all(check.passed for check in fig6._sample_checks(task, served, counters))
    right = fig6.TimelineTask.pairs

    def wrong(self: Any, t: int) -> tuple[torch.Tensor, torch.Tensor]:
        pairs, label = right(self, t)
        pairs = pairs.clone()
        if t == STEPS - 1:
            pairs[:, 0] = pairs[0, 0]  # a loop, which no snapshot has
        return pairs, label

    monkeypatch.setattr(fig6.TimelineTask, "pairs", wrong)
    assert not all(check.passed for check in fig6._sample_checks(task, served, counters))


def test_costs_that_are_no_fit_fail():
    table = [(1.0, 2.0), (1.0, 5.0), (1.0, 9.0)]
    seconds = [3.0, 7.5, 12.0]
    rows = np.array(table) / np.array(seconds)[:, None]
    costs = np.linalg.lstsq(rows, np.ones(3), rcond=None)[0]
    assert parts.least_squares_gap(table, seconds, costs) < parts.FITTED
    assert parts.least_squares_gap(table, seconds, 1.01 * costs) > parts.FITTED
    assert parts.least_squares_gap(table, seconds, [-costs[0], costs[1]]) == np.inf


# Verdicts.


@pytest.mark.parametrize("change", ["failed", "unchecked"])
def test_no_verdict_rests_on_rows_that_were_not_right(change):
    rows = Store.open(KEPT).written()
    assert len(rows) > 40
    fields = {"status": "check", "reason": "spoiled"} if change == "failed" else {"checks": []}
    spoiled = [structs.replace(row, **fields) if row.status == "ok" else row for row in rows]
    verdicts = evaluate(get_paper("esdg"), spoiled).verdicts
    assert sum(verdict.void for verdict in verdicts) > 30
    for verdict in verdicts:
        assert verdict.void or verdict.glyph in "-=", verdict.id
