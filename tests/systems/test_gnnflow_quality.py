"""Whole trainings beside predictors that train nothing, and torch_geometric's TGN on our tasks."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from gnnflow_rows import row as row_of
from stream_tiny import tiny_events

from dgbench import datasets
from dgbench.datasets import EventStream
from dgbench.harness.plan.plan import Plan
from dgbench.lab.quality import MIN_SEEDS, TITLES
from dgbench.lab.quality_study import CONTINUED
from dgbench.lab.table import observation
from dgbench.lab.time_to_quality import PROCESSOR
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base import RunContext, get_paper, link_baseline_checks
from dgbench.systems.base.link_ranking import RankingTask, rank_scores, time_windows
from dgbench.systems.gnnflow.experiments import quality as experiment
from dgbench.systems.gnnflow.released_tgn import ReleasedTgn, _Ranker

STUDY = experiment.StreamQuality()


@pytest.fixture
def tiny_messages(monkeypatch):
    events = tiny_events(3600, 20)
    monkeypatch.setattr(datasets, "open_events", lambda *_: replace(events, t=events.t * 3600.0))


def trained(model: str, mean: float, step: float = 0.001, observed=(), seeds: int = MIN_SEEDS):
    params = {"dataset": "enron", "part": "trained", "model": model}
    return [
        row_of("quality", {**params, "seed": seed}, [
            observation("mrr", mean + step * seed), *observed
        ])
        for seed in range(1, seeds + 1)
    ]  # fmt: skip


def dictionary(value: float):
    told = [observation("mrr", value, method="local_recency")]
    return row_of("quality", {"dataset": "enron", "part": "untrained"}, told)


def test_an_untrained_cell_has_all_methods_and_a_wrong_rank_fails_it(tiny_messages, monkeypatch):
    cell = STUDY.cells("smoke", "cpu")[0]
    found = STUDY.run(cell, RunContext("cpu", "smoke", 1))
    assert all(check.passed for check in found.checks)
    methods = {one.dims.get("method") for one in found.observations} - {None}
    assert methods == {name for name in TITLES if name not in ("last_value", "historical_mean")}
    plain = link_baseline_checks._plain_ranks
    monkeypatch.setattr(
        link_baseline_checks, "_plain_ranks",
        lambda *given: (found := plain(*given)) | {"local_recency": found["local_recency"] + 0.5},
    )  # fmt: skip
    assert not STUDY.run(cell, RunContext("cpu", "smoke", 1)).checks[0].passed


@pytest.mark.parametrize(("mean", "below"), [(0.04, True), (0.6, False)])
def test_a_model_below_the_dictionary_is_hollow(mean, below):
    rows = [*trained("tgn", mean, observed=[observation("mrr", 0.2, of=CONTINUED)]),
            dictionary(0.36)]  # fmt: skip
    drawn = [p for p in STUDY.figures()[0].points(rows) if p["series"] == "trained"]
    assert ["below" in point for point in drawn] == [below]
    assert STUDY.quality_of(rows, "enron", "tgn").below == below
    assert STUDY.quality_of(rows[1:], "enron", "tgn") is None
    assert STUDY.scores(rows, "enron", "tgn")[1] == pytest.approx(mean + 0.001)


@pytest.mark.parametrize(("mean", "word"), [(0.5, "worse"), (0.7, "better")])
def test_rounds_are_judged_beside_whole_trainings(mean, word):
    rows = [*trained("tgn", 0.6), dictionary(0.3), *trained("tgn_rounds", mean, 0.0011)]
    assert STUDY.quality_of(rows, "enron", "tgn_rounds").word == word
    assert STUDY.quality_of(rows, "enron", "tgn").reference is None


def test_rate_and_time_to_quality_come_from_the_epochs():
    def epochs(model: str, seconds: float, scores: list[float], mrr: float) -> list:
        observed = []
        for epoch, score in enumerate(scores):
            observed += [
                observation("epoch_time", seconds, epoch=epoch, clock=PROCESSOR),
                observation("mrr", score, epoch=epoch, of="validation"),
            ]
        return trained(model, mrr, 0, observed)

    rows = [
        *epochs("tgn", 20.0, [0.1, 0.3], 0.25),
        *epochs("tgn_1000", 5.0, [0.1, 0.1, 0.3, 0.2], 0.24),
        *epochs("tgn_10000", 1.0, [0.1, 0.1], 0.05),
        dictionary(0.36),
    ]
    fast, slow = (STUDY.quality_of(rows, "enron", name).time for name in ("tgn_1000", "tgn_10000"))
    assert (fast.target, fast.seconds, fast.reference, fast.reached) == (0.3, 15.0, 40.0, 5)
    assert (slow.gain, slow.reached) == (None, 0)
    points = {point["series"]: point for point in STUDY.figures()[1].points(rows)}
    assert points["TGN"]["x"] == pytest.approx(STUDY.epoch_work("enron") / 20, rel=0.05)


def test_a_plan_of_the_preset_states_its_hours_and_names_what_lacks_it():
    papers = [get_paper(name) for name in ("gnnflow", "pipad", "tgcn")]
    plan = Plan.build(papers, None, "quality", "cpu")
    assert {planned.cell.experiment for planned in plan.cells} == {"quality"}
    assert all(planned.stated for planned in plan.cells)
    assert 4 * 3600 < plan.seconds < 2 * 6 * 3600
    with pytest.raises(InvalidInputError, match="preset"):
        Plan.build(papers[:1], ["gnnflow/fig10"], "quality", "cpu")
    assert Plan.build(papers[:1], ["fig10", "gnnflow/quality"], "quality", "cpu").problems


# --- torch_geometric's TGN ------------------------------------------------------------------------

EVENTS, FIRST = 240, 180


def stream(seed: int = 0) -> EventStream:
    """Five sources, each with a partner of its own among six destinations most of the time."""
    draw = torch.Generator().manual_seed(seed)
    src = torch.randint(5, (EVENTS,), generator=draw)
    other = torch.randint(6, (EVENTS,), generator=draw)
    dst = torch.where(torch.rand(EVENTS, generator=draw) < 0.9, src, other) + 5
    return EventStream.build(src, dst, torch.arange(EVENTS).double(), num_nodes=11)


def tgn_of(events: EventStream, like: ReleasedTgn | None = None, **fields) -> ReleasedTgn:
    tgn = ReleasedTgn(events, **({"width": 8, "batch": 20, "lr": 1e-2, "seed": 1} | fields))
    if like is not None:
        tgn.model.load_state_dict(like.model.state_dict())
    return tgn


def task_of(events: EventStream) -> RankingTask:
    return RankingTask(events, time_windows(events.t, FIRST, EVENTS, 10.0))


def scores_of(tgn: ReleasedTgn, task: RankingTask) -> list[torch.Tensor]:
    ranker, found = _Ranker(tgn, task), []
    tgn.reset()
    tgn.take(task.first)
    rank_scores(task, lambda block: found.append(ranker(block)) or found[-1])
    return found


def test_events_of_a_window_change_none_of_its_scores():
    events = stream()
    tgn = tgn_of(events)
    tgn.train_epoch(FIRST)
    dst = events.dst.clone()
    dst[-10:] = dst[-10:].flip(0)
    changed = replace(events, dst=dst)
    both = scores_of(tgn, task_of(events)), scores_of(tgn_of(changed, tgn), task_of(changed))
    assert all(torch.equal(one, two) for one, two in zip(*both, strict=True))


def test_ranks_depend_on_parameters_and_events_alone():
    events = stream()
    task, tgn = task_of(events), tgn_of(events)
    tgn.train_epoch(FIRST)
    before = deepcopy(tgn)
    anew = tgn.rank(task)
    assert tgn.rank(task) == tgn_of(events, tgn).rank(task) == anew
    for taken in (0, 60, FIRST):  # batches end there
        tgn.reset()
        tgn.take(taken)
        assert tgn.rank(task, anew=False) == anew
    copy = deepcopy(before)
    assert copy.rank(task, anew=False) == before.rank(task, anew=False) != anew
    everyone = task.destinations
    others = torch.stack([everyone[everyone != dst] for dst in events.dst[FIRST:].tolist()])
    given = RankingTask(events, task.windows, others)
    assert tgn.rank(given).mrr == pytest.approx(anew.mrr)


def test_a_seed_decides_all_and_training_brings_the_loss_down():
    events = stream()
    one, two, other = (tgn_of(events, seed=seed) for seed in (1, 1, 2))
    losses = [one.train_epoch(FIRST) for _ in range(8)]
    assert [two.train_epoch(FIRST) for _ in range(2)] == losses[:2]
    assert other.train_epoch(FIRST) != losses[0]
    assert losses[-1] < 0.9 * losses[0]
    with pytest.raises(InvalidInputError, match="width"):
        tgn_of(events, width=7)
