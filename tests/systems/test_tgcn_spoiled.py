"""Wrong results of T-GCN and its baselines are caught by the checks of the cells that made them."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
import torch

import dgbench.systems.tgcn.experiments as tgcn_experiments
from dgbench.runtime.meter import Meter
from dgbench.systems.base import RunContext
from dgbench.systems.base.interaction_baseline import BaselineTrainer
from dgbench.systems.tgcn import program, races, recounts, scaling_cells, scaling_runs, schedule
from dgbench.systems.tgcn.experiments import depth, fig7
from dgbench.systems.tgcn.grids import Grids
from dgbench.systems.tgcn.single_draws import SegmentTree
from dgbench.systems.tgcn.trainer import TgcnTrainer

BY_NAME = {one.name: one for one in tgcn_experiments.EXPERIMENTS}


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """Sizes at which a cell takes less than a second."""
    monkeypatch.setitem(races.EVENTS, "smoke", 200)
    monkeypatch.setattr(races, "CHECKED", 24)


def failed(experiment: str, number: int = 1, **params) -> set[str]:
    """Subjects of a smoke cell's failed checks, run in this process as its round `number`."""
    one = BY_NAME[experiment]
    cell = msgspec.structs.replace(one.cells("smoke", "cpu")[0], params=params)
    context = RunContext("cpu", "smoke", 1, meter=Meter(timing=False), budget_s=0.02)
    context.round = number
    checks = one.run(cell, context).checks
    assert checks
    return {check.of for check in checks if not check.passed}


def spoil_steps(monkeypatch, kind, spoil) -> None:
    """Let `spoil(trainer, events, result, number, scale)` change what a step of `kind` gives."""
    right, calls = kind.run_step, SimpleNamespace(count=0)

    def run_step(self, events, *, scale):
        result = right(self, events, scale=scale)
        spoil(self, events, result, calls.count, scale)
        calls.count += 1
        return result

    monkeypatch.setattr(kind, "run_step", run_step)


def scores_half_more(trainer, events, result, number, scale):
    result.positives *= 1.5


def scores_half_more_later(trainer, events, result, number, scale):
    result.positives *= 1.5 if number >= 2 else 1


def losses_off(trainer, events, result, number, scale):
    result.loss *= 1.01


def no_gradients(trainer, events, result, number, scale):
    for p in trainer.model.parameters():
        p.grad = None


def one_gradient_off(trainer, events, result, number, scale):
    p = next(trainer.model.parameters())
    if scale is not None and p.grad is not None:
        p.grad *= 1.05


def rows_swapped(trainer, events, result, number, scale):
    ends = trainer.data.events.src[events[-1:]], trainer.data.events.dst[events[-1:]]
    rows = trainer.rows_of(torch.cat(ends))
    table = trainer.vertices.hs if hasattr(trainer.vertices, "hs") else trainer.vertices.user
    table[rows] = table[rows.flip(0)] + 0.1


TRAINERS = {
    "tgcn": TgcnTrainer, "tgcn, streamed": TgcnTrainer, "dygnn": BaselineTrainer,
    "jodie": BaselineTrainer,
}  # fmt: skip
SPOILED = {
    scores_half_more: "outputs", scores_half_more_later: "outputs", losses_off: "losses",
    no_gradients: "gradients", one_gradient_off: "gradients", rows_swapped: "outputs",
}  # fmt: skip


@pytest.mark.parametrize("system", TRAINERS)
def test_right_results_pass(system):
    assert not failed("table3", dataset="lastfm", system=system)


def test_contenders_that_are_spoiled_in_a_later_process_fail(monkeypatch):
    monkeypatch.setitem(races.EVENTS, "smoke", 120)
    params = {"dataset": "lastfm", "what": "race"}
    assert not failed("fig6", 2, **params)
    spoil_steps(monkeypatch, TgcnTrainer, no_gradients)
    assert SPOILED[no_gradients] in failed("fig6", 2, **params)


CASES = [
    *(("tgcn", spoil) for spoil in SPOILED), ("tgcn, streamed", scores_half_more_later),
    ("dygnn", scores_half_more), ("dygnn", one_gradient_off), ("jodie", losses_off),
    ("jodie", rows_swapped), ("jodie", no_gradients),
]  # fmt: skip


@pytest.mark.parametrize(("system", "spoil"), CASES)
def test_wrong_steps_fail(monkeypatch, system, spoil):
    spoil_steps(monkeypatch, TRAINERS[system], spoil)
    assert SPOILED[spoil] in failed("table3", dataset="lastfm", system=system)


def test_a_sample_that_lacks_an_edge_or_takes_another_fails(monkeypatch):
    right = program.Program.sampling
    monkeypatch.setattr(program.Program, "sampling", lambda self, edges: right(self, edges)[:-1])
    assert "samples" in failed("table3", dataset="lastfm", system="tgcn")

    def another(self, edges):
        kept = right(self, edges)
        free = sorted(set(range(len(edges))) - set(kept.tolist()))
        return torch.cat([kept[1:], torch.tensor(free[-1:])]).sort().values

    monkeypatch.setattr(program.Program, "sampling", another)
    assert "samples" in failed("table3", dataset="lastfm", system="tgcn")


def test_bytes_that_are_off_by_one_fail(monkeypatch):
    regions, report = TgcnTrainer.region_bytes.fget, BaselineTrainer.report
    monkeypatch.setattr(
        TgcnTrainer, "region_bytes", property(lambda self: regions(self) | {"R1 state": 1})
    )
    monkeypatch.setattr(
        BaselineTrainer, "report", lambda self: report(self) | {"planned_bytes": 1.0}
    )
    for system in ("tgcn", "dygnn", "jodie"):
        assert "bytes" in failed("table3", dataset="lastfm", system=system)


def order_swapped(grids):
    grids.order[[0, -1]] = grids.order[[-1, 0]]
    return grids


def edges_rolled(sample):
    for layer in sample.layers:
        layer.eids.copy_(layer.eids.roll(1))
    return sample


def row_more(load):
    load.rows[0, 0] += 1
    return load


def one_more(found):
    return found + 1


GRIDS, DRAWS = {"kind": "fill", "dataset": "lastfm"}, {"dataset": "lastfm"}
LINKS, LOADS = {"kind": "ring", "machine": "dgx1-v100"}, {"kind": "virtual", "dataset": "reddit"}
WRONG = [
    (Grids, "build", order_swapped, "partition", GRIDS, "order"),
    (depth, "sample_nodewise", edges_rolled, "depth", DRAWS, "samples"),
    (schedule, "traffic", one_more, "schedule", LINKS, "bytes"),
    (schedule, "traffic", one_more, "schedule", {"kind": "volume", **DRAWS}, "bytes"),
    (scaling_runs, "load_of", row_more, "fig10", LOADS, "counters"),
]


@pytest.fixture
def small_loads(monkeypatch):
    monkeypatch.setitem(scaling_cells.EVENTS, "smoke", 3000)
    monkeypatch.setattr(scaling_cells, "CHECKED", (120, 3))
    monkeypatch.setattr(scaling_cells, "PROJECTED", (1, 4))


@pytest.mark.parametrize(("where", "name", "change", "experiment", "params", "kind"), WRONG)
def test_what_is_wrong_fails(
    monkeypatch, small_loads, where, name, change, experiment, params, kind
):
    right = getattr(where, name)
    monkeypatch.setattr(where, name, lambda *args, **fields: change(right(*args, **fields)))
    assert kind in failed(experiment, **params)


@pytest.mark.parametrize(
    ("experiment", "params"), [("partition", GRIDS), ("depth", DRAWS), ("schedule", LINKS)]
)
def test_what_is_right_passes(experiment, params):
    assert not failed(experiment, **params)


def test_grids_that_are_miscounted_fail(monkeypatch):
    right = Grids.counts
    more = property(lambda self: right.fget(self) + (right.fget(self) > 0))
    monkeypatch.setattr(Grids, "counts", more)
    assert "counters" in failed("partition", **GRIDS)


def test_samples_of_timed_turns_that_are_wrong_fail(monkeypatch):
    assert not failed("fig7", 2, **DRAWS)
    right = fig7.timed

    def timed(calls, spent, turn, results):
        right(calls, spent, turn, results)
        for sample in (results or {}).values():
            if hasattr(sample, "layers"):
                edges_rolled(sample)

    monkeypatch.setattr(fig7, "timed", timed)
    assert "samples" in failed("fig7", 1, **DRAWS)
    assert "samples" in failed("fig7", 2, **DRAWS)


def test_a_tree_whose_changes_spread_fails(monkeypatch):
    right = SegmentTree.modify
    monkeypatch.setattr(
        SegmentTree, "modify", lambda self, at, w: (right(self, at, w), right(self, 0, w))
    )
    assert {"counters", "outputs"} <= failed("fig8", weights="equal")


def test_draws_by_another_law_fail():
    weights = (1, 2, 3, 5, 8, 1)
    assert all(one.passed for one in fig7.checked_draws())
    biased = {"brs_literal": {"method": "brs_literal", "arity": 2}}  # as the paper prints it
    assert not all(one.passed for one in recounts.check_draws(biased, weights))


def test_ranks_that_train_on_other_scores_fail(monkeypatch, small_loads):
    params = {"kind": "ranks", "dataset": "reddit", "ranks": 1}
    assert not failed("fig10", **params)
    spoil_steps(monkeypatch, TgcnTrainer, one_gradient_off)
    assert {"gradients", "parameters"} <= failed("fig10", **params)
