"""Whole trainings beside predictors that train nothing, and torch_geometric's TGN on our tasks."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from stream_tiny import tiny_events

from dgbench import datasets
from dgbench.datasets import EventStream
from dgbench.lab.quality import TITLES
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base import RunContext, link_baseline_checks
from dgbench.systems.base.link_ranking import RankingTask, rank_scores, time_windows
from dgbench.systems.gnnflow.experiments import quality as experiment
from dgbench.systems.gnnflow.released_tgn import ReleasedTgn, _Ranker

STUDY = experiment.StreamQuality()


@pytest.fixture
def tiny_messages(monkeypatch):
    events = tiny_events(3600, 20)
    monkeypatch.setattr(datasets, "open_events", lambda *_: replace(events, t=events.t * 3600.0))


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
