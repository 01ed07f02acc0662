"""Ranks of networks with a state per vertex, against plain loops over events and pairs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from interactions_tiny import tiny_interactions, tiny_task

from dgbench.systems.base import get_system
from dgbench.systems.base.interaction_checks import plain_of, stored
from dgbench.systems.base.interaction_ranking import InteractionRanker, rank_interactions
from dgbench.systems.base.interactions import interaction_data
from dgbench.systems.base.link_ranking import (
    RankingTask,
    rank_scores,
    seeded_negatives,
    time_windows,
)

FIRST = 40
CONTENDERS = ("jodie", "dygnn", "tgcn")


def ranking(events, negatives: bool) -> RankingTask:
    end = len(events)
    drawn = seeded_negatives(events, FIRST, end, count=3, seed=1) if negatives else None
    return RankingTask(events, time_windows(events.t, FIRST, end, 4.0), drawn)


def opened(system: str, events=None):
    task = tiny_task(model="jodie" if system == "jodie" else "dygnn", intervals=4)
    data = interaction_data(tiny_interactions() if events is None else events, task)
    options = {"scoring": "t-batches"} if system == "tgcn" else {}
    trainer = get_system(system).open(task, data=data, dtype=torch.float64, **options)
    trainer.prepare()
    return trainer


def trained(system: str, events=None):
    trainer = opened(system, events)
    trainer.reset_state()
    trainer.train(0, 30)
    return trainer


def collected(trainer, task) -> dict[int, torch.Tensor]:
    trainer.reset_state()
    trainer.evaluate_range(0, int(task.windows.seen[0]), remember=True)
    ranker = InteractionRanker(trainer, task)
    return {
        int(event): row
        for block in task.blocks()
        for event, row in zip(block.events, ranker(block), strict=True)
    }


@pytest.mark.parametrize("system", CONTENDERS)
@pytest.mark.parametrize("negatives", [False, True])
def test_scores_are_those_of_a_state_that_stopped_at_the_window(system, negatives):
    trainer = trained(system)
    task = ranking(trainer.data.events, negatives)
    found = collected(trainer, task)
    assert sorted(found) == list(range(FIRST, len(trainer.data.events)))
    ends = torch.arange(trainer.data.events.num_nodes)
    for block in task.blocks():
        # Batches are cut at windows: what DyGNN pushes to neighbours depends on the cut.
        seen = dict.fromkeys(task.windows.seen[: block.window + 1].tolist())
        trainer.reset_state()
        for begin, end in pairwise([0, *seen]):
            trainer.evaluate_range(begin, end, remember=True)
        now = trainer.model.refresh(*trainer.read(ends))
        for row, event in enumerate(block.events.tolist()):
            for place, vertex in enumerate(block.candidates[row].tolist()):
                source = int(block.src[row])
                with torch.no_grad():
                    one = trainer.model.pairs(
                        now[torch.tensor([source])], now[torch.tensor([vertex])], block.opens
                    )
                torch.testing.assert_close(found[event][place], one[0, 0])


@pytest.mark.parametrize("system", CONTENDERS)
def test_a_pair_has_the_score_of_the_event_that_it_becomes(system):
    """The score of a pair is the one that training gives to an event at that time."""
    trainer = trained(system)
    last = 30
    trainer.reset_state()
    trainer.evaluate_range(0, last, remember=True)
    stream = trainer.data.events
    ids = torch.tensor([int(stream.src[last]), int(stream.dst[last])])
    now = trainer.model.refresh(*trainer.read(ids))
    pair = trainer.model.pairs(
        now[torch.tensor([0])], now[torch.tensor([1])], float(stream.t[last])
    )
    events = torch.arange(last, last + 1)
    plain = plain_of(
        trainer.workload, trainer.data, trainer.state(),
        stored(trainer, torch.arange(stream.num_nodes)),
    )  # fmt: skip
    with torch.no_grad():
        positive = plain.run(events)[1][0, 0]
    torch.testing.assert_close(pair[0, 0].detach(), positive.to(pair))


@pytest.mark.parametrize("system", CONTENDERS)
def test_events_of_a_window_change_none_of_its_scores(system):
    trainer = trained(system)
    events = trainer.data.events
    task = ranking(events, negatives=False)
    block = next(iter(task.blocks()))
    other = replace(events, src=events.src.clone(), dst=events.dst.clone())
    other.src[block.seen :] = (other.src[block.seen :] + 3) % 8
    other.dst[block.seen :] = (other.dst[block.seen :] + 5) % 8
    scores = []
    for stream in (events, other):
        one = trained(system, stream)
        one.model.load_state_dict(trainer.model.state_dict())
        one.reset_state()
        one.evaluate_range(0, block.seen, remember=True)
        scores.append(InteractionRanker(one, replace(task, events=stream))(block))
    assert torch.equal(*scores)


@pytest.mark.parametrize("system", CONTENDERS)
def test_ranks_do_not_depend_on_the_state_before(system):
    trainer = trained(system)
    task = ranking(trainer.data.events, negatives=False)
    found = rank_interactions(trainer, task)
    assert rank_interactions(trainer, task) == found
    assert found.n == len(trainer.data.events) - FIRST
    trainer.reset_state()
    trainer.evaluate_range(0, int(task.windows.seen[0]), remember=True)
    assert rank_scores(task, InteractionRanker(trainer, task)) == found


@pytest.mark.parametrize("taken", [0, 17, FIRST])
@pytest.mark.parametrize("system", CONTENDERS)
def test_a_ranking_goes_on_from_the_events_that_a_state_holds(system, taken):
    trainer = trained(system)
    task = ranking(trainer.data.events, negatives=False)
    cuts = [0, taken, FIRST]
    trainer.reset_state()
    for begin, end in pairwise(cuts):
        trainer.evaluate_range(begin, end, remember=True)
    expected = rank_scores(task, InteractionRanker(trainer, task))
    trainer.reset_state()
    trainer.evaluate_range(0, taken, remember=True)
    kept = trainer.memory_state()
    trainer.train(taken, FIRST)  # other rows, which the copy takes back
    trainer.restore_memory(kept)
    trainer.model.load_state_dict(trained(system).model.state_dict())
    assert rank_interactions(trainer, task, taken=taken).mrr == expected.mrr
