"""torch_geometric's TGN on our tasks: what it sees, what it forgets, what it learns."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from dgbench.datasets import EventStream
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.link_ranking import RankingTask, rank_scores, time_windows
from dgbench.systems.gnnflow.released_tgn import ReleasedTgn, _Ranker

EVENTS, FIRST = 240, 180


def stream(seed: int = 0) -> EventStream:
    """Five sources, each with a partner of its own among six destinations most of the time."""
    draw = torch.Generator().manual_seed(seed)
    src = torch.randint(5, (EVENTS,), generator=draw)
    other = torch.randint(6, (EVENTS,), generator=draw)
    dst = torch.where(torch.rand(EVENTS, generator=draw) < 0.9, src, other) + 5
    return EventStream.build(src, dst, torch.arange(EVENTS).double(), num_nodes=11)


def tgn_of(events: EventStream, **fields) -> ReleasedTgn:
    return ReleasedTgn(events, **({"width": 8, "batch": 20, "lr": 1e-2, "seed": 1} | fields))


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
    before = scores_of(tgn, task_of(events))
    dst = events.dst.clone()
    dst[-10:] = dst[-10:].flip(0)
    changed = replace(events, dst=dst)
    other = tgn_of(changed)
    other.model.load_state_dict(tgn.model.state_dict())
    for one, two in zip(before, scores_of(other, task_of(changed)), strict=True):
        assert torch.equal(one, two)


def test_ranks_depend_on_parameters_and_events_alone():
    events = stream()
    tgn = tgn_of(events)
    tgn.train_epoch(FIRST)
    task = task_of(events)
    assert tgn.rank(task) == tgn.rank(task)
    fresh = tgn_of(events)
    fresh.model.load_state_dict(tgn.model.state_dict())
    assert fresh.rank(task) == tgn.rank(task)


def test_a_ranking_goes_on_from_what_was_taken_in():
    events = stream()
    task, tgn = task_of(events), tgn_of(events)
    tgn.train_epoch(FIRST)
    trained = deepcopy(tgn)
    anew = tgn.rank(task)
    for taken in (0, 60, FIRST):  # batches end there
        tgn.reset()
        tgn.take(taken)
        assert tgn.rank(task, anew=False) == anew
    copy = deepcopy(trained)
    going_on = trained.rank(task, anew=False)
    assert copy.rank(task, anew=False) == going_on
    assert going_on != anew  # other parameters wrote these memories


def test_shared_candidates_and_given_ones_have_the_same_scores():
    events = stream()
    tgn, task = tgn_of(events), task_of(events)
    tgn.train_epoch(FIRST)
    everyone = task.destinations
    others = torch.stack([everyone[everyone != dst] for dst in events.dst[FIRST:].tolist()])
    given = RankingTask(events, task.windows, others)
    assert tgn.rank(given).mrr == pytest.approx(tgn.rank(task).mrr)


def test_a_seed_decides_all_and_training_brings_the_loss_down():
    events = stream()
    one, two, other = (tgn_of(events, seed=seed) for seed in (1, 1, 2))
    losses = [one.train_epoch(FIRST) for _ in range(8)]
    assert [two.train_epoch(FIRST) for _ in range(2)] == losses[:2]
    assert other.train_epoch(FIRST) != losses[0]
    assert losses[-1] < 0.9 * losses[0]


def test_a_width_that_heads_do_not_divide_is_refused():
    with pytest.raises(InvalidInputError, match="width is 7"):
        tgn_of(stream(), width=7)
