"""Wrong results of T-GCN and its baselines are caught by the checks of the cells that made them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import torch

import dgbench.systems.tgcn.experiments as tgcn_experiments
from dgbench.harness.claims.evaluate import evaluate
from dgbench.harness.store.row import Row
from dgbench.harness.store.standing import judged
from dgbench.lab.result_checks import ResultCheck
from dgbench.runtime.meter import Meter
from dgbench.systems.base import RunContext
from dgbench.systems.base.interaction_baseline import BaselineTrainer
from dgbench.systems.tgcn import PAPER, program, races, scaling_runs
from dgbench.systems.tgcn.experiments import depth, fig7
from dgbench.systems.tgcn.grids import Grids
from dgbench.systems.tgcn.single_draws import SegmentTree
from dgbench.systems.tgcn.trainer import TgcnTrainer

KEPT = Path(__file__).parents[2] / "results/reference/amd-epyc-2-cores/tgcn/rows.jsonl.gz"
BY_NAME = {one.name: one for one in tgcn_experiments.EXPERIMENTS}


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """Sizes at which a cell takes less than a second."""
    monkeypatch.setitem(races.EVENTS, "smoke", 400)
    monkeypatch.setattr(races, "CHECKED", 24)


def checks_of(experiment: str, number: int = 1, **params) -> list[ResultCheck]:
    """Checks of a smoke cell with these parameters, run in this process as its round `number`."""
    one = BY_NAME[experiment]
    cell = msgspec.structs.replace(one.cells("smoke", "cpu")[0], params=params)
    context = RunContext("cpu", "smoke", 1, meter=Meter(timing=False), budget_s=0.02)
    context.round = number
    return one.run(cell, context).checks


def failed(experiment: str, number: int = 1, **params) -> set[str]:
    """Subjects of a smoke cell's failed checks."""
    checks = checks_of(experiment, number, **params)
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
    if number >= 2:
        result.positives *= 1.5


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
    "tgcn": TgcnTrainer,
    "tgcn, streamed": TgcnTrainer,
    "dygnn": BaselineTrainer,
    "jodie": BaselineTrainer,
}
SPOILED = {
    scores_half_more: "outputs",
    scores_half_more_later: "outputs",
    losses_off: "losses",
    no_gradients: "gradients",
    one_gradient_off: "gradients",
    rows_swapped: "outputs",
}


@pytest.mark.parametrize("system", TRAINERS)
def test_right_results_pass(system):
    assert not failed("table3", dataset="lastfm", system=system)


@pytest.mark.parametrize("spoil", [scores_half_more, losses_off, no_gradients])
def test_contenders_that_are_spoiled_in_a_later_process_fail(monkeypatch, spoil):
    params = {"dataset": "lastfm", "what": "race"}
    assert not failed("fig6", 2, **params)
    spoil_steps(monkeypatch, TgcnTrainer, spoil)
    assert SPOILED[spoil] in failed("fig6", 2, **params)


CASES = [
    *(("tgcn", spoil) for spoil in SPOILED),
    ("tgcn, streamed", scores_half_more_later),
    ("dygnn", scores_half_more),
    ("dygnn", one_gradient_off),
    ("jodie", losses_off),
    ("jodie", rows_swapped),
    ("jodie", no_gradients),
]


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


def test_grids_that_are_miscounted_or_out_of_order_fail(monkeypatch):
    params = {"kind": "fill", "dataset": "lastfm"}
    assert not failed("partition", **params)
    right = Grids.counts
    with monkeypatch.context() as patch:
        patch.setattr(
            Grids, "counts", property(lambda self: right.fget(self) + (right.fget(self) > 0))
        )
        assert "counters" in failed("partition", **params)
    build = Grids.build

    def swapped(*args, **options):
        grids = build(*args, **options)
        grids.order[[0, -1]] = grids.order[[-1, 0]]
        return grids

    monkeypatch.setattr(Grids, "build", swapped)
    assert "order" in failed("partition", **params)


def test_draws_around_roots_that_are_wrong_fail(monkeypatch):
    assert not failed("depth", dataset="lastfm")
    right = depth.sample_nodewise

    def nodewise(*args, **options):
        found = right(*args, **options)
        for layer in found.layers:
            layer.eids.copy_(layer.eids.roll(1))
        return found

    monkeypatch.setattr(depth, "sample_nodewise", nodewise)
    assert "samples" in failed("depth", dataset="lastfm")


@pytest.mark.parametrize("number", [1, 2])
def test_samples_of_timed_turns_that_are_wrong_fail(monkeypatch, number):
    assert not failed("fig7", number, dataset="lastfm")
    right = fig7.timed

    def timed(calls, spent, turn, results):
        right(calls, spent, turn, results)
        for sample in (results or {}).values():
            for layer in getattr(sample, "layers", ()):
                layer.eids.copy_(layer.eids.roll(1))

    monkeypatch.setattr(fig7, "timed", timed)
    assert "samples" in failed("fig7", number, dataset="lastfm")


def test_draws_by_another_law_fail():
    from dgbench.systems.tgcn import recounts

    weights = (1, 2, 3, 5, 8, 1)
    assert all(one.passed for one in fig7.checked_draws())
    ways = {"brs_literal": {"method": "brs_literal", "arity": 2}}
    assert not all(
        one.passed for one in recounts.check_draws(ways, weights)
    )  # biased, as the paper prints it


def test_a_tree_whose_changes_spread_fails(monkeypatch):
    right = SegmentTree.modify

    def modify(self, at, weight):
        right(self, at, weight)
        right(self, 0, weight)

    monkeypatch.setattr(SegmentTree, "modify", modify)
    assert {"counters", "outputs"} <= failed("fig8", weights="equal")


def test_schedules_and_volumes_that_are_off_fail(monkeypatch):
    assert not failed("schedule", kind="ring", machine="dgx1-v100")
    from dgbench.systems.tgcn import schedule as rounds

    right = rounds.traffic
    monkeypatch.setattr(rounds, "traffic", lambda *args, **options: right(*args, **options) + 1)
    assert "bytes" in failed("schedule", kind="ring", machine="dgx1-v100")
    assert "bytes" in failed("schedule", kind="volume", dataset="lastfm")


def test_loads_of_a_projection_that_are_off_by_one_fail(monkeypatch):
    from dgbench.systems.tgcn import scaling_cells

    monkeypatch.setitem(scaling_cells.EVENTS, "smoke", 3000)
    monkeypatch.setattr(scaling_cells, "CHECKED", (120, 3))
    monkeypatch.setattr(scaling_cells, "PROJECTED", (1, 4))
    right = scaling_runs.load_of

    def load_of(trainer):
        load = right(trainer)
        load.rows[0, 0] += 1
        return load

    monkeypatch.setattr(scaling_runs, "load_of", load_of)
    assert "counters" in failed("fig10", kind="virtual", dataset="reddit")


def test_ranks_that_train_on_other_scores_fail(monkeypatch):
    from dgbench.systems.tgcn import scaling_cells

    monkeypatch.setitem(scaling_cells.EVENTS, "smoke", 3000)
    monkeypatch.setattr(scaling_cells, "CHECKED", (120, 3))
    params = {"kind": "ranks", "dataset": "reddit", "ranks": 1}
    assert not failed("fig10", **params)
    spoil_steps(monkeypatch, TgcnTrainer, one_gradient_off)
    assert {"gradients", "parameters"} <= failed("fig10", **params)


# --- what rests on them ---------------------------------------------------------------------------


def kept_rows() -> list[Row]:
    """Rows of the kept run, each with one check that passed."""
    passed = ResultCheck(of="outputs", against="itself", gap=0.0, tolerance=0.0, compared=1)
    with gzip.open(KEPT, "rt", encoding="utf-8") as lines:
        rows = [msgspec.convert(json.loads(line)["row"], Row) for line in lines]
    return [msgspec.structs.replace(row, checks=[passed]) for row in rows]


def resting(rows: list[Row]) -> set[str]:
    """Claims whose verdict rests on a row."""
    found = evaluate(PAPER, rows)
    return {
        claim.id for claim, verdict in zip(found.claims, found.verdicts, strict=True)
        if verdict.rows and not verdict.void
    }  # fmt: skip


def test_no_verdict_rests_on_rows_without_a_check():
    rows = kept_rows()
    assert len(resting(rows)) > 30
    assert not resting([msgspec.structs.replace(row, checks=[]) for row in rows])


def test_no_verdict_rests_on_a_system_with_a_wrong_result():
    rows = kept_rows()
    before = judged(rows)
    for system in ("dygnn", "jodie"):
        first = next(row for row in rows if row.params.get("system") == system)
        deviates = ResultCheck(of="outputs", against="itself", gap=0.5, tolerance=0.0, compared=1)
        again = {"id": system, "round": first.round + 99}
        bad = msgspec.structs.replace(first, status="check", checks=[deviates], **again)
        after = judged([*rows, bad])[:-1]
        fallen = [row for row, now in zip(before, after, strict=True) if row.status != now.status]
        assert {row.params.get("system") for row in fallen} == {system}
        alike = [row for row in after if (row.cell_hash, row.status) == (first.cell_hash, "ok")]
        assert not alike
