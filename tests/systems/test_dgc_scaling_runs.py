"""Cells of DGC's races and curves on a tiny real graph: what rows hold, and what stops a cell."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from dgc_rows import kept
from dgc_tiny import random_sequence, sequence_of, tiny_workload
from tiny_data import tiny_sequence

from dgbench.harness.store.row import Row
from dgbench.lab.compare import AGAIN, control_ratios
from dgbench.lab.table import Table
from dgbench.runtime.errors import UnsupportedError
from dgbench.systems.base import Measurement, RunContext
from dgbench.systems.base.sequences import SequenceWorkload
from dgbench.systems.dgc.experiments import fig4, fig5c, fig12, fig18, race_runs
from dgbench.systems.dgc.experiments.fig12_rows import projected, projected_gain, sent_shares
from dgbench.systems.dgc.experiments.projection_runs import project_all
from dgbench.systems.dgc.experiments.race_rows import races
from dgbench.systems.dgc.experiments.race_runs import (
    ADDED,
    CONTIGUOUS,
    DGC,
    EVERY,
    EXACT,
    FAIR,
    FUSED,
    HELD_NAMES,
    PAPER_NAMES,
    PLACED,
    PLAIN,
    PSS,
    PTS,
    SHOWN,
    TWINS,
    WIRE,
    RaceJob,
    contenders,
    race,
)
from dgbench.systems.dgc.experiments.settings import MODELS
from dgbench.systems.dgc.projection import LINKS, Rates
from dgbench.systems.dgc.sequence_oracle import NOTHING_SCORED, SequenceOracle

PRESETS = ("smoke", "quick", "full", "paper")
EXPERIMENTS = (fig4.Fig4(), fig5c.Fig5c(), fig12.Fig12(), fig18.Fig18())
CONTEXT = RunContext(device="cpu", preset="smoke", threads=1)


def job(model: str = "tgcn_2layer", **fields) -> RaceJob:
    task = SequenceWorkload(
        dataset="email-eu-core", model=model, feature_dim=3, hidden_dim=4, **fields
    )
    chosen = {n: s for n, s in contenders().items() if n in (PTS, EXACT, DGC)}
    return RaceJob("email-eu-core", task, tiny_sequence(features=3), chosen)


def live_job() -> RaceJob:
    """A job whose network is alive."""
    return replace(job(), task=tiny_workload(hidden_dim=8), data=random_sequence(30, 7, 60, 8))


def row_of(found: Measurement, experiment: str, **params) -> Row:
    params = {"part": "race", "dataset": "email-eu-core", "ranks": 2, "link": "gloo", **params}
    return kept(found, experiment, params)


@pytest.fixture(scope="module")
def raced() -> Measurement:
    """Two models in one row."""
    return race([job(), job("dysat")], 2, CONTEXT, least=2, budget_s=0.01)


@pytest.mark.parametrize("preset", PRESETS)
def test_cells_are_cheap_and_apart(preset) -> None:
    for experiment in EXPERIMENTS:
        cells = experiment.cells(preset, "cpu")
        assert cells, experiment.name
        assert len({c.group for c in cells}) == len(cells)
        assert len({str(sorted(c.params.items())) for c in cells}) == len(cells)
        assert all(not c.unavailable for c in cells)
        assert all(c.unavailable for c in experiment.cells(preset, "cuda") if "ranks" in c.params)


def test_the_whole_paper_is_planned_in_full() -> None:
    groups = fig12.groups("full")
    for name in (*HELD_NAMES, *TWINS):
        assert any(g.dataset == name and g.models == MODELS and g.ranks == 4 for g in groups), name
    assert {g.link for g in groups if g.dataset == fig12.QUICK} == {"gloo", "wire"}
    assert set().union(*fig4.sets("full").values()) == {*HELD_NAMES, *TWINS}


def test_contenders_differ_by_what_their_names_say() -> None:
    every = contenders(*EVERY)
    assert tuple(every) == EVERY
    assert tuple(contenders()) == PAPER_NAMES
    for name in PLACED:
        plain, fused = every[name], every[FUSED[name]]
        assert plain.partition == fused.partition != "chunks"
        assert (plain.spatial_fusion, fused.spatial_fusion) == (False, True)
        assert (plain.temporal, fused.temporal) == ("padded", "packed")
    assert len({every[name].partition for name in PLACED}) == len(PLACED)
    assert every[PLAIN].partition == every[EXACT].partition == every[DGC].partition == "chunks"
    for name in (PLAIN, EXACT, DGC):
        assert (every[name].chunks.levels, every[name].chunks.refine) == (1, False)
    assert replace(every[ADDED], chunks=every[DGC].chunks) == every[DGC]
    assert every[ADDED].chunks.refine
    assert {n for n, s in every.items() if s.stale} == {DGC, ADDED}
    assert {s.wire for s in contenders(link="wire").values()} == {WIRE}


def test_baselines_race_with_fusion_and_dgc_with_refinement_on_real_graphs() -> None:
    for preset in ("quick", "full", "paper"):
        names = set(fig12.racing(fig12.QUICK, preset))
        every = {*PAPER_NAMES, *FAIR, CONTIGUOUS, ADDED}
        assert names == every - ({fig12.SLOW} if preset == "quick" else set())
        assert set(fig12.racing("movie", preset)) == {*PAPER_NAMES, CONTIGUOUS} - {fig12.SLOW}


@pytest.mark.parametrize("experiment", [fig4.Fig4(), fig12.Fig12()])
def test_a_race_is_five_processes_and_no_control(experiment) -> None:
    cells = [c for c in experiment.cells("quick", "cpu") if c.params.get("part") != "projected"]
    assert {(cell.repeats, cell.interleaved) for cell in cells} == {(5, True)}


def test_later_processes_compare_losses_and_an_audited_epoch(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path))
    race([live_job()], 2, CONTEXT, least=1, budget_s=0.01, clocked=0)
    later = replace(CONTEXT, round=2)
    found = race([live_job()], 2, later, least=1, budget_s=0.01, clocked=0)
    assert [check.words for check in found.checks if not check.passed] == []
    assert {check.of for check in found.checks} == {
        "losses", "updates", "moments", "updates so far",
    }  # fmt: skip
    assert not found.deviation
    table = Table.of([row_of(found, "fig12")])
    assert table.where("epoch_time")
    assert not table.where("phase_time")


def test_a_race_keeps_every_turn_and_every_count(raced) -> None:
    found = races([row_of(raced, "fig12")], "fig12")
    assert [one.model for one in found] == ["tgcn_2layer", "dysat"]
    for one in found:
        assert set(one.names) == {PTS, EXACT, DGC}
        assert all(len(one.turns(n)) == 2 and min(one.turns(n)) > 0 for n in one.names)
        assert one.number("vertex_steps") > 0
        assert one.number("exchanged", PTS) > 0
        assert one.number("divergence", EXACT) >= 1
        assert one.has("row_share", DGC)
        assert 0 <= one.number("row_share", DGC) <= 1
        assert not one.has("row_share", EXACT)
        assert one.row.deviation[one.key] < 1e-5
    shares = sent_shares([row_of(raced, "fig12")])
    assert shares == {}  # a twin's rows do not say what is held back


def test_without_a_job_there_is_no_row() -> None:
    with pytest.raises(UnsupportedError):
        race([], 2, CONTEXT, least=1, budget_s=0.01)


def test_a_contender_that_computes_something_else_fails_its_check(monkeypatch) -> None:
    true = race_runs.take_rank_turns

    def wrong(*args, **options):
        turns = true(*args, **options)
        turns.output[PTS] = turns.output[PTS] + 1
        return turns

    monkeypatch.setattr(race_runs, "take_rank_turns", wrong)
    found = race([live_job()], 2, CONTEXT, least=1, budget_s=0.01)
    assert [(c.of, c.system) for c in found.checks if not c.passed] == [("outputs", PTS)]


def test_the_first_contender_may_race_itself():
    found = race([job()], 2, CONTEXT, least=2, budget_s=0.01, control=True)
    table = Table.of([row_of(found, "fig12")])
    (pair,) = table.where("control_ratio")
    assert pair["setting"] == next(iter(job().contenders))
    assert pair.value > 0
    assert AGAIN not in table.by("setting")
    assert control_ratios([row_of(found, "fig12")]) == [pair.value]


def test_curves_of_all_systems(monkeypatch) -> None:
    monkeypatch.setattr(fig18, "load_sequences", lambda task: tiny_sequence(features=3))
    monkeypatch.setattr(
        fig18, "task_of", lambda dataset, model, preset, **f: job(model, lr=fig18.LR).task
    )
    cell = fig18.Fig18().cells("smoke", "cpu")[0]
    measured = fig18.Fig18().run(cell, CONTEXT)
    row = row_of(measured, "fig18", model="tgcn_2layer")
    (one,) = fig18.trained([row])
    assert set(one.names) == {fig18.ONE, *fig18.SYSTEMS} - {PLAIN}
    for name in one.names:
        if name != DGC:
            assert max(one.gaps(name)) < 1e-4, name
        assert len(one.curve("accuracy", name)) == one.epochs
    assert one.seconds(EXACT) > 0
    points = fig18.curve_points([row], "loss")
    assert {p["target"] for p in points} == {one.curve("loss", fig18.ONE)[-1]}
    timed = [p["seconds"] for p in points if p["series"] == SHOWN[DGC]]
    assert timed == sorted(timed)
    assert not any("seconds" in p for p in points if p.get("reference"))
    row.status, row.reason = "oom", "9 GiB"
    (point,) = fig18.curve_points([row], "loss")
    assert point["failed"] == "oom: 9 GiB"


def test_projections_of_twins(monkeypatch) -> None:
    from dgbench.systems.dgc.experiments import projection_runs

    monkeypatch.setattr(projection_runs, "load_sequences", lambda task: tiny_sequence(features=2))
    rates = {m: Rates(1e-6, 1e-7, 2e-6, 1e-4, 1e10) for m in MODELS}
    measured = project_all(("amazon", "stack"), "quick", rates=rates)
    row = row_of(measured, "fig12", part="projected")
    found = projected([row])
    assert set(found) == {(d, m, k) for d in ("amazon", "stack") for m in MODELS for k in LINKS}
    for epochs in found.values():
        assert set(epochs) == {*PLACED, PLAIN, EXACT}
        assert all(e.seconds > 0 for e in epochs.values())
        assert projected_gain(epochs, EXACT) >= projected_gain(epochs, PLAIN)
        assert projected_gain(epochs, DGC) is None  # no race said what still travels
    assert measured.data["dataset"] == "amazon, stack"
    assert fig12.projected_points([row])


def test_quarters_cover_a_graph_and_overlap_by_their_targets(monkeypatch) -> None:
    whole = tiny_sequence(snapshots=9, features=3)
    cut: list[tuple[int, int]] = []

    def piece(begin: int, end: int):
        cut.append((begin, end))
        return SimpleNamespace(topology=whole.topology[begin:end])

    fake = type("Fake", (), {"slice": staticmethod(piece), "__len__": lambda self: 9})()
    monkeypatch.setattr(fig5c, "load_sequences", lambda task: fake)
    jobs = list(fig5c.quarters("email-eu-core", "full"))
    assert [j.dims["quarter"] for j in jobs] == [1, 2, 3, 4]
    assert [j.key for j in jobs] == [f"email-eu-core#{i}/dysat" for i in (1, 2, 3, 4)]
    assert cut == [(0, 3), (2, 5), (4, 7), (6, 9)]
    assert torch.equal(whole.topology[2].indices, jobs[0].data.topology[-1].indices)


def test_a_row_says_where_next_to_nothing_is_scored(monkeypatch) -> None:
    one = job()
    one = RaceJob(one.dataset, one.task, one.data, {PTS: one.contenders[PTS]})
    for fewest, said in ((0, False), (10**9, True)):
        monkeypatch.setattr(race_runs, "FEWEST", fewest)
        found = race([one], 1, CONTEXT, least=1, budget_s=0.0)
        assert any("nothing is" in note for note in found.notes) == said
        assert Table.of([row_of(found, "fig12")]).where("scored", **one.dims).one().value > 0


def test_time_that_is_left_goes_to_turns() -> None:
    one = job()
    one = RaceJob(one.dataset, one.task, one.data, {PTS: one.contenders[PTS]})
    few, many = (
        sum(o.metric == "epoch_time" for o in race([one], 1, CONTEXT, **given).observations)
        for given in ({"least": 2, "budget_s": 0.0}, {"least": 2, "budget_s": 0.0, "total_s": 2.0})
    )
    assert few == 2
    assert many > 2


@pytest.mark.parametrize("model", MODELS)
def test_rows_of_scored_pairs_are_recounted(model, monkeypatch) -> None:
    """Ends of a pair meet at one worker: an honest race of links passes, a forgotten end fails."""
    names = (PSS, PTS, EXACT, DGC)
    task = tiny_workload(model, hidden_dim=8, task="link")
    chosen = {name: settings for name, settings in contenders().items() if name in names}
    made = RaceJob(task.dataset, task, random_sequence(30, 7, 60, 8), chosen)
    found = race([made], 2, CONTEXT, least=1, budget_s=0.01, clocked=0)
    assert [check.words for check in found.checks if not check.passed] == []
    rows = race_runs.EdgeRecount.rows
    monkeypatch.setattr(
        race_runs.EdgeRecount, "rows", lambda self, placement, shape, pairs: rows(
            self, placement, shape, pairs[:1].repeat(2, axis=0)
        ),
    )  # fmt: skip
    forgot = race([made], 2, CONTEXT, least=1, budget_s=0.01, clocked=0)
    assert {c.system for c in forgot.checks if not c.passed and c.of == "counters"} <= set(names)
    assert any(not check.passed for check in forgot.checks)


def test_checks_of_a_task_that_scores_nothing_say_so() -> None:
    """On a network that never changes every vertex has an edge next: any trainer would pass."""
    ring = [(i, (i + 1) % 12) for i in range(12)]
    made = replace(job(), task=tiny_workload(hidden_dim=8), data=sequence_of([ring] * 5, 12))
    for task, said in ((made.task, True), (tiny_workload(hidden_dim=8, task="link"), False)):
        oracle = SequenceOracle(task, made.data)
        check = oracle.check_losses(oracle.losses, DGC)
        assert check.passed
        assert (NOTHING_SCORED in check.words) is said
    found = race([made], 2, CONTEXT, least=1, budget_s=0.01, clocked=0)
    assert any("next to nothing is scored" in note for note in found.notes)
