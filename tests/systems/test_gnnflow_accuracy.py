"""Experiments and checks on accuracy: epochs, schedules, replay, and the plain path."""

from __future__ import annotations

import math

import pytest
import torch
from gnnflow_rows import judged
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
    difference,
    observe_series,
    over_seeds,
    series,
    task_of,
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
    for name in CHECKS:
        if name in experiment.claims:
            assert judged(name, rows)[0].measured is not None


@pytest.mark.parametrize("kind", EXPERIMENTS)
@pytest.mark.parametrize("preset", ["smoke", "quick", "full", "paper"])
def test_cells_have_names_of_their_own(kind, preset) -> None:
    cells = kind().cells(preset, "cpu")
    assert len({str(cell.params) for cell in cells}) == len(cells) > 0


@pytest.mark.parametrize("kind", [fig10.Fig10, fig11.Fig11])
@pytest.mark.parametrize("preset", ["smoke", "quick", "full", "paper"])
def test_every_cell_has_a_workload(kind, preset) -> None:
    for cell in kind().cells(preset, "cpu"):
        task = task_of(size=kind.sizes[preset], preset=preset, **cell.params)
        assert task.model == cell.params["model"]


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


def seed_row(dataset="wikipedia", seed=1):
    return row_of("x", {"dataset": dataset, "seed": seed})


def test_differences_have_intervals_of_their_seeds() -> None:
    assert difference([0.6, 0.7, 0.8], [0.5, 0.5, 0.5]) == pytest.approx(20)
    rows = [seed_row(seed=seed) for seed in (1, 2, 3)]
    found = over_seeds(rows, [10.0, 20.0, 30.0])
    assert (found.value, found.n, found.side) == (20, 3, 0)
    assert found.error == pytest.approx(10 / 3**0.5)
    assert found.high - found.value == pytest.approx(4.3027 * found.error, rel=1e-4)
    assert over_seeds(rows[:1], [10.0]).side == 0  # rounds of one seed are no sample of seeds
    assert over_seeds(rows, [10.0, 11.0, 10.0]).side == 1
    assert over_seeds(rows, [-10.0, -11.0, -10.0]).side == -1
    wide = over_seeds(rows, [10.0, 20.0, 30.0], 0.99)
    assert wide.low < found.low
    other = [seed_row("enron", seed) for seed in (1, 2)]
    both = over_seeds([*rows, *other], [1.0, 2.0, 3.0, 5.0, 7.0])
    assert (both.value, both.n) == (4.0, 2)
    assert both.error == pytest.approx((1 / 3 + 1.0) ** 0.5 / 2)
    made = Measurement()
    observe_series(made, [0.25, 0.5], setting="a b")
    observe_series(made, [1.0], setting="a")
    row = row_of("x", {}, made)
    assert series(row, setting="a b") == [0.25, 0.5]
    assert series(row, setting="c") == []


# --- checks ---------------------------------------------------------------------------------------

WAVE = [0.01, -0.01, 0.02, -0.02, 0.0, 0.01, -0.01, 0.0]


def epochs_row(model, means, times=(1.0, 2.0, 3.0, 4.0), noise=0.01, seed=1):
    made = Measurement()
    for epochs, mean, seconds in zip(fig10.EPOCHS, means, times, strict=True):
        shift = noise * math.sin(5 * seed * epochs)
        bumps = [w + shift for w in WAVE]
        observe_series(made, [mean + bump for bump in bumps], epochs_per_round=epochs)
        made.observe("round_time", seconds, epochs_per_round=epochs)
    made.observe("rounds", 8)
    params = {"dataset": "wikipedia", "model": model, "seed": seed}
    return row_of("fig10", params, made, id=f"row{model}{seed}")


def schedule_row(model, gaps, every=4, replay=(0.0, 0.0), budget=1.0, noise=0.0, seed=1):
    often = [0.9 + w for w in WAVE]
    made = Measurement()
    curves = {
        fig11.OFTEN: often,
        fig11.SELDOM: [
            a - gap - noise * math.sin(5 * seed + 3 * k * seed)
            for k, (a, gap) in enumerate(zip(often, gaps, strict=True))
        ],
        fig11.NEVER: [a - 0.05 for a in often],
    }
    for ratio, more in zip(fig11.RATIOS, replay, strict=True):
        shift = 0.002 * (-1) ** seed * ratio
        curves[fig11.replayed(ratio)] = [a + more + shift for a in often]
    for setting, curve in curves.items():
        observe_series(made, curve, setting=setting)
    which = {"setting": fig11.OFTEN, "baseline": fig11.SELDOM}
    made.observe("speedup", budget * (1 + 0.001 * seed), **which)
    made.observe("rounds", 8)
    made.observe("rounds", every, of="between retrainings")
    made.observe("events", 100, of="round")
    params = {"dataset": "wikipedia", "model": model, "seed": seed}
    return row_of("fig11", params, made, id=f"row{model}{seed}")


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


SEEDS = range(1, 6)


def both(make, *args, seeds=SEEDS, **kwargs):
    return [make(model, *args, seed=seed, **kwargs) for model in ("tgn", "tgat") for seed in seeds]


@pytest.mark.parametrize(
    ("name", "means", "noise", "agreement"),
    [
        ("fig10-diminishing", (0.80, 0.84, 0.86, 0.865), 0.001, "value"),
        ("fig10-diminishing", (0.80, 0.81, 0.83, 0.90), 0.001, "opposite"),
        ("fig10-diminishing", (0.80, 0.80, 0.80, 0.80), 0.02, "undecided"),
        ("fig10-drop-3-to-4", (0.80, 0.84, 0.86, 0.84), 0.001, "value"),
        ("fig10-drop-3-to-4", (0.80, 0.84, 0.86, 0.88), 0.001, "opposite"),
        ("fig10-drop-3-to-4", (0.80, 0.84, 0.86, 0.86), 0.02, "undecided"),
        ("fig10-sweet-spot", (0.80, 0.84, 0.86, 0.85), 0.001, "value"),
        ("fig10-sweet-spot", (0.86, 0.84, 0.83, 0.90), 0.001, "opposite"),
        ("fig10-sweet-spot", (0.86, 0.86, 0.86, 0.86), 0.02, "undecided"),
        ("s1-epochs-per-round", (0.80, 0.84, 0.86, 0.84), 0.001, "value"),
        ("s1-epochs-per-round", (0.86, 0.84, 0.82, 0.80), 0.001, "opposite"),
        ("s1-epochs-per-round", (0.80, 0.82, 0.84, 0.86), 0.001, "opposite"),
        ("s1-epochs-per-round", (0.86, 0.86, 0.86, 0.86), 0.02, "undecided"),
    ],
)
def test_checks_on_epochs(name, means, noise, agreement) -> None:
    found, verdict = judged(name, both(epochs_row, means, noise=noise))
    assert verdict.agreement == agreement
    # A practice that names no graph is decided on any; GDELT's curves are not.
    assert verdict.strength == ("strong" if name.startswith("s1") else "weak")
    assert len(found.rows) == 2 * len(SEEDS)
    one = judged(name, both(epochs_row, means, noise=noise, seeds=[1]))[1]
    assert one.agreement == "undecided"


def test_more_epochs_that_cost_nothing_are_not_the_trend() -> None:
    rows = both(epochs_row, (0.80, 0.84, 0.86, 0.865), (1.0, 1.1, 1.2, 1.3), noise=0.001)
    assert judged("fig10-diminishing", rows)[1].agreement == "opposite"


GAPS = [0.02, 0.03, 0.04, 0.05, 0.01, 0.02, 0.03, 0.03]


def agreements(rows) -> dict[str, str]:
    names = ("fig11-accuracy-gap", "fig11-always-ahead", "fig11-replay", "fig11-tgl-jump",
             "s61-equal-budget")  # fmt: skip
    return {name: judged(name, rows)[1].agreement for name in names}


def test_checks_on_schedules() -> None:
    rows = both(schedule_row, GAPS, replay=(0.01, 0.02), noise=0.002)
    assert agreements(rows) == {
        "fig11-accuracy-gap": "direction", "fig11-always-ahead": "value", "fig11-replay": "value",
        "fig11-tgl-jump": "value", "s61-equal-budget": "value",
    }  # fmt: skip
    assert "up to 5.0" in judged("fig11-accuracy-gap", rows)[0].measured["TGN"]

    gaps = [-gap for gap in GAPS]
    rows = both(schedule_row, gaps, replay=(-0.01, -0.02), budget=2.0, noise=0.002)
    assert set(agreements(rows).values()) == {"opposite"}

    rows = both(schedule_row, [0.0] * 8, noise=0.02)
    found = agreements(rows)
    assert found.pop("s61-equal-budget") == "value"
    assert set(found.values()) == {"undecided"}
    single = agreements(both(schedule_row, GAPS, seeds=[1]))
    assert set(single.values()) == {"undecided"}


def test_one_round_that_is_clearly_behind_is_behind() -> None:
    rows = both(schedule_row, [0.01] * 7 + [-0.2], noise=0.001)
    assert judged("fig11-always-ahead", rows)[1].agreement == "opposite"


def test_a_curve_for_reference_is_a_setting() -> None:
    found, verdict = judged("fig11-no-retrain", both(schedule_row, GAPS))
    assert verdict.glyph == "="
    assert "+5.00" in found.measured["TGN"]


def test_every_claim_has_a_check_that_says_what_it_needs(wording) -> None:
    ledger = get_paper("gnnflow").ledger.read_text()
    for name, check in CHECKS.items():
        assert f"id: {name}\n" in ledger
        found = check(None, [])
        assert found.measured is None
        wording(found.reason)
    assert set(CHECKS) == {*fig10.Fig10.claims, *fig11.Fig11.claims}
