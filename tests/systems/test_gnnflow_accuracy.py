"""Experiments and checks on accuracy: epochs, schedules, replay, and the plain path."""

from __future__ import annotations

import math

import pytest
import torch
from gnnflow_rows import row as row_of
from paper_rows import answered_by
from stream_tiny import tiny_events, tiny_stream, tiny_task

from dgbench import datasets
from dgbench.lab.table import observation as told
from dgbench.models.ctdg import STREAM_MODELS
from dgbench.systems.base import Measurement, RunContext, get_paper
from dgbench.systems.base.plain_stream import PlainStream
from dgbench.systems.base.stream import StreamTrainer
from dgbench.systems.gnnflow import claims as table
from dgbench.systems.gnnflow.checks import accuracy as checks
from dgbench.systems.gnnflow.experiments import accuracy, fig10, fig11
from dgbench.systems.gnnflow.experiments.accuracy_runs import (
    PairedDifference,
    difference,
    observe_series,
    pooled,
    series,
)
from dgbench.systems.gnnflow.system import GnnflowSystem

CHECKS = answered_by(table.CHECKS, checks)

EXPERIMENTS = (fig10.Fig10, fig11.Fig11, accuracy.Accuracy)


@pytest.fixture
def tiny_wikipedia(monkeypatch):
    monkeypatch.setattr(datasets, "open_events", lambda *_: tiny_events(300, 24, bipartite=True))


# --- the plain path -------------------------------------------------------------------------------


@pytest.mark.parametrize("model", STREAM_MODELS)
def test_gnnflow_trains_like_the_plain_path(model) -> None:
    task = tiny_task(model, chunks=2)
    data = tiny_stream(task, events=90)
    ours = GnnflowSystem().open(task, data=data, dtype=torch.float64)
    plain = StreamTrainer(task, data, PlainStream(task, data), dtype=torch.float64)
    found = []
    for trainer in (ours, plain):
        trainer.insert(50)
        losses = [trainer.train(0, 50)]
        trainer.insert(90)
        losses += [trainer.train(50, 90, epoch=1), trainer.evaluate_range(50, 90).loss]
        found.append(losses)
    assert found[0] == pytest.approx(found[1], rel=1e-9)


# --- experiments ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", EXPERIMENTS)
def test_smoke_cells_run_and_answer(kind, tiny_wikipedia) -> None:
    experiment = kind()
    rows = []
    for cell in experiment.cells("smoke", "cpu"):
        assert cell.experiment == experiment.name
        found = experiment.run(cell, RunContext("cpu", "smoke", threads=1))
        rows.append(row_of(cell.experiment, cell.params, found))
    assert experiment.answer(rows)
    assert experiment.answer([]) == ""
    for figure in experiment.figures():
        points = figure.points(rows)
        assert points
        assert all(math.isfinite(point["y"]) for point in points)
    for name, check in CHECKS.items():
        if name in experiment.claims:
            assert check(None, rows).measured is not None


@pytest.mark.parametrize("kind", EXPERIMENTS)
@pytest.mark.parametrize("preset", ["smoke", "quick", "full", "paper"])
def test_cells_have_names_of_their_own(kind, preset) -> None:
    cells = kind().cells(preset, "cpu")
    assert len({str(cell.params) for cell in cells}) == len(cells) > 0


def test_a_row_that_failed_is_a_gap(tiny_wikipedia) -> None:
    for kind, params in (
        (fig10.Fig10, {"dataset": "wikipedia", "model": "tgn", "seed": 1}),
        (fig11.Fig11, {"dataset": "wikipedia", "model": "tgn", "seed": 1}),
        (accuracy.Accuracy, {"dataset": "wikipedia", "models": "tgn tgat"}),
    ):
        row = row_of(kind.name, params, status="oom", reason="too big")
        for figure in kind().figures():
            assert any(p.get("failed") == "oom: too big" for p in figure.points([row]))
        assert kind().answer([row]) == ""


def test_a_path_that_parts_from_the_reference_fails(tiny_wikipedia, monkeypatch) -> None:
    sample = PlainStream.sample
    monkeypatch.setattr(
        PlainStream, "sample", lambda self, *a, draw, **k: sample(self, *a, draw=draw + 1, **k)
    )
    one = accuracy.Accuracy()
    found = one.run(one.cells("smoke", "cpu")[0], RunContext("cpu", "smoke", threads=1))
    assert {check.of for check in found.checks if not check.passed} >= {"losses", "outputs"}


# --- numbers --------------------------------------------------------------------------------------


def test_differences_have_intervals_of_their_pairs() -> None:
    found = difference([0.6, 0.7, 0.8], [0.5, 0.5, 0.5])
    assert found.value == pytest.approx(20)
    assert found.error == pytest.approx(10 / 3**0.5)
    assert found.high - found.value == pytest.approx(4.3027 * found.error, rel=1e-4)
    assert found.side == 0
    assert difference([0.6], [0.5]).side == 0
    assert difference([0.6, 0.61, 0.6], [0.5, 0.5, 0.5]).side == 1
    both = pooled([PairedDifference(2.0, 3.0, 5), PairedDifference(4.0, 4.0, 7)])
    assert (both.value, both.error, both.n) == (3.0, 2.5, 11)
    made = Measurement()
    observe_series(made, [0.25, 0.5], setting="a b")
    observe_series(made, [1.0], setting="a")
    row = row_of("x", {}, made)
    assert series(row, setting="a b") == [0.25, 0.5]
    assert series(row, setting="c") == []


# --- checks ---------------------------------------------------------------------------------------

WAVE = [0.01, -0.01, 0.02, -0.02, 0.0, 0.01, -0.01, 0.0]


def epochs_row(model, means, times=(1.0, 2.0, 3.0, 4.0), noise=0.01):
    made = Measurement()
    for epochs, mean, seconds in zip(fig10.EPOCHS, means, times, strict=True):
        bumps = [w + noise * math.sin(5 * i * epochs) for i, w in enumerate(WAVE)]
        observe_series(made, [mean + bump for bump in bumps], epochs_per_round=epochs)
        made.observe("round_time", seconds, epochs_per_round=epochs)
    made.observe("rounds", 8)
    params = {"dataset": "wikipedia", "model": model, "seed": 1}
    return row_of("fig10", params, made, id=f"row{model}")


def schedule_row(model, gaps, every=4, replay=(0.0, 0.0), budget=1.0):
    often = [0.9 + w for w in WAVE]
    made = Measurement()
    curves = {
        fig11.OFTEN: often,
        fig11.SELDOM: [a - gap for a, gap in zip(often, gaps, strict=True)],
        fig11.NEVER: [a - 0.05 for a in often],
    }
    for ratio, more in zip(fig11.RATIOS, replay, strict=True):
        curves[fig11.replayed(ratio)] = [a + more + w / 9 for a, w in zip(often, WAVE, strict=True)]
    for setting, curve in curves.items():
        observe_series(made, curve, setting=setting)
    for turn in range(2):
        made.observe("round_time", 1.0, setting=fig11.OFTEN, turn=turn)
        made.observe("round_time", budget * (1 + 0.001 * turn), setting=fig11.SELDOM, turn=turn)
    made.observe("rounds", 8)
    made.observe("rounds", every, of="between retrainings")
    made.observe("events", 100, of="round")
    params = {"dataset": "wikipedia", "model": model, "seed": 1}
    return row_of("fig11", params, made, id=f"row{model}")


def test_rounds_are_curves_and_leads_are_means() -> None:
    row = schedule_row("tgat", [0.01] * 8)
    points = fig11.curve_points([row])
    assert list(dict.fromkeys(p["series"] for p in points)) == [
        "gnnflow", "tgl", "gnnflow, replay 50%", "gnnflow, replay 100%", "gnnflow, no retraining"
    ]  # fmt: skip
    assert not any("seconds" in p for p in points)
    trained = [told("operation_time", 2.0, setting=fig11.OFTEN, round=i) for i in range(8)]
    more = row_of("fig11", row.params, [*row.observations, *trained])
    mine = [p for p in fig11.curve_points([more]) if p["series"] == "gnnflow"]
    assert [p["seconds"] for p in mine] == [2.0 * i for i in range(8)]
    ahead = [p["y"] for p in fig11.lead_points([row]) if p["series"] == fig11.OFTEN]
    assert ahead == pytest.approx([5.0] * 8)


def run(name, rows):
    return CHECKS[f"gnnflow-{name}"](None, rows)


def both(make, *args, **kwargs):
    return [make(model, *args, **kwargs) for model in ("tgn", "tgat")]


@pytest.mark.parametrize(
    ("name", "means", "noise", "holds", "undecided"),
    [
        ("fig10-diminishing", (0.80, 0.84, 0.86, 0.865), 0.001, True, False),
        ("fig10-diminishing", (0.80, 0.81, 0.83, 0.90), 0.001, False, False),
        ("fig10-diminishing", (0.80, 0.80, 0.80, 0.80), 0.02, True, True),
        ("fig10-drop-3-to-4", (0.80, 0.84, 0.86, 0.84), 0.001, True, False),
        ("fig10-drop-3-to-4", (0.80, 0.84, 0.86, 0.88), 0.001, False, False),
        ("fig10-drop-3-to-4", (0.80, 0.84, 0.86, 0.86), 0.02, False, True),
        ("fig10-sweet-spot", (0.80, 0.84, 0.86, 0.85), 0.001, True, False),
        ("fig10-sweet-spot", (0.86, 0.84, 0.83, 0.90), 0.001, False, False),
        ("fig10-sweet-spot", (0.86, 0.86, 0.86, 0.86), 0.02, False, True),
        ("s1-epochs-per-round", (0.80, 0.84, 0.86, 0.84), 0.001, True, False),
        ("s1-epochs-per-round", (0.86, 0.84, 0.82, 0.80), 0.001, False, False),
        ("s1-epochs-per-round", (0.86, 0.86, 0.86, 0.86), 0.02, None, True),
    ],
)
def test_checks_on_epochs(name, means, noise, holds, undecided) -> None:
    found = run(name, both(epochs_row, means, noise=noise))
    assert found.undecided is undecided
    assert holds is None or found.holds is holds
    assert found.evidence == "analogue"
    assert found.rows == ["rowtgn", "rowtgat"]


def test_more_epochs_that_cost_nothing_are_not_the_trend() -> None:
    rows = both(epochs_row, (0.80, 0.84, 0.86, 0.865), (1.0, 1.1, 1.2, 1.3), noise=0.001)
    assert run("fig10-diminishing", rows).holds is False


GAPS = [0.02, 0.03, 0.04, 0.05, 0.01, 0.02, 0.03, 0.03]


def test_checks_on_schedules() -> None:
    rows = both(schedule_row, GAPS, replay=(0.01, 0.02))
    assert run("fig11-accuracy-gap", rows).direction is True
    assert "up to 5.0" in run("fig11-accuracy-gap", rows).measured["TGN"]
    assert run("fig11-always-ahead", rows).holds is True
    assert run("fig11-replay", rows).holds is True
    assert run("fig11-tgl-jump", rows).holds is True
    assert run("fig11-no-retrain", rows).holds is True
    assert run("s61-equal-budget", rows).holds is True

    rows = both(schedule_row, [-gap for gap in GAPS], replay=(-0.01, -0.02), budget=2.0)
    assert run("fig11-accuracy-gap", rows).direction is False
    assert not run("fig11-accuracy-gap", rows).undecided
    assert run("fig11-replay", rows).holds is False
    assert run("fig11-tgl-jump", rows).holds is False
    assert run("s61-equal-budget", rows).holds is False
    assert not run("s61-equal-budget", rows).undecided

    swings = [0.01, -0.01] * 4
    rows = both(schedule_row, swings)
    for name in ("fig11-accuracy-gap", "fig11-always-ahead"):
        assert run(name, rows).undecided, name
    assert run("fig11-replay", rows).undecided
    behind = run("fig11-always-ahead", both(schedule_row, [0.01] * 7 + [-0.2]))
    assert behind.holds is False
    assert not behind.undecided


def test_every_claim_has_a_check_that_says_what_it_needs() -> None:
    ledger = get_paper("gnnflow").ledger.read_text()
    for name, check in CHECKS.items():
        assert f"id: {name}\n" in ledger
        found = check(None, [])
        assert found.measured is None
        assert "did not run" in found.reason
    assert set(CHECKS) == {*fig10.Fig10.claims, *fig11.Fig11.claims}
