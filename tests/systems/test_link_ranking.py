"""Ranks of link prediction, of networks and of predictors that train nothing, against loops."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from interactions_tiny import tiny_interactions
from interactions_tiny import tiny_task as tiny_interaction_task
from stream_tiny import tiny_stream, tiny_task

from dgbench.datasets import EventStream
from dgbench.models.ctdg import STREAM_MODELS
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base import get_system
from dgbench.systems.base.interaction_checks import plain_of, stored
from dgbench.systems.base.interaction_ranking import InteractionRanker, rank_interactions
from dgbench.systems.base.interactions import interaction_data
from dgbench.systems.base.link_baseline_checks import baseline_check
from dgbench.systems.base.link_baselines import (
    EdgeBank,
    KeyHistory,
    Popularity,
    link_baselines,
    recent_span,
)
from dgbench.systems.base.link_ranking import (
    HITS,
    RankingTask,
    event_windows,
    rank_scores,
    seeded_negatives,
    staleness,
    time_windows,
)
from dgbench.systems.base.plain_stream import PlainStream
from dgbench.systems.base.scores import average_precision
from dgbench.systems.base.stream import StreamTrainer
from dgbench.systems.base.stream_ranking import StreamRanker, rank_stream

streams = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=30
)
"""Few vertices and times, so that pairs repeat and times tie."""


def stream_of(rows) -> EventStream:
    src, dst, t = zip(*sorted(rows, key=lambda row: row[2]), strict=True)
    return EventStream.build(src, dst, [float(one) for one in t], num_nodes=4)


def task_of(rows, share: float, seconds: float | None, count: int | None = None) -> RankingTask:
    events = stream_of(rows)
    first, last = min(len(events) - 1, int(share * len(events))), len(events)
    windows = (
        event_windows(events.t, first, last, 3)
        if seconds is None
        else time_windows(events.t, first, last, seconds)
    )
    negatives = None
    if count is not None:
        negatives = seeded_negatives(events, first, last, count=count, seed=5)
    return RankingTask(events, windows, negatives)


@settings(deadline=None, max_examples=25)
@given(
    rows=streams, share=st.floats(0, 0.95), seconds=st.none() | st.sampled_from([0.5, 1.0, 3.0]),
    count=st.none() | st.integers(1, 4),
)  # fmt: skip
def test_baselines_rank_as_dictionaries_over_the_past_do(rows, share, seconds, count):
    task = task_of(rows, share, seconds, count)
    baselines = link_baselines(task.events, task.first)
    assert baseline_check(task, baselines, recent_span(task.events.t, task.first)).passed
    for baseline in baselines.values():
        scores = rank_scores(task, baseline)
        assert scores.n == task.last - task.first
        assert scores.pessimistic <= scores.mrr <= scores.optimistic <= 1
        assert list(scores.hits.values()) == sorted(scores.hits.values())


def test_ranks_are_means_over_events_with_ties_in_the_middle():
    events = stream_of([(0, 1, 0), (0, 2, 0), (0, 3, 0), (0, 1, 5), (0, 2, 6)])
    task = RankingTask(events, time_windows(events.t, 3, 5, 1.0))
    scores = rank_scores(task, lambda one: (one.candidates == 1).double())
    # The first event ranks 1 of 3; of the second one is above and one is equal.
    assert scores.mrr == pytest.approx((1 + 1 / 2.5) / 2)
    assert (scores.optimistic, scores.pessimistic) == (pytest.approx((1 + 1 / 2) / 2),
                                                       pytest.approx((1 + 1 / 3) / 2))  # fmt: skip
    assert scores.hits[HITS[0]] == sum(rank <= HITS[0] for rank in (1, 2.5)) / 2
    decayed = Popularity(events, 2.0)(next(iter(task.blocks())))
    assert decayed[0].tolist() == pytest.approx([0.5, 0.5**0.5, 1.0])


@given(rows=streams, share=st.floats(0, 0.95), seconds=st.sampled_from([0.3, 1.0, 2.5]))
def test_windows_hold_every_event_once_and_see_none_of_their_own(rows, share, seconds):
    events = stream_of(rows)
    t, first = events.t, min(len(events) - 1, int(share * len(events)))
    for windows in (
        time_windows(t, first, len(events), seconds), event_windows(t, first, len(events), 2)
    ):  # fmt: skip
        cuts = windows.cuts.tolist()
        assert (cuts[0], cuts[-1]) == (first, len(events))
        assert all(a < b for a, b in pairwise(cuts))
        for (begin, end), opens, seen in zip(
            pairwise(cuts), windows.opens.tolist(), windows.seen.tolist(), strict=True
        ):
            assert bool((t[begin:end] >= opens).all())
            assert seen == int((t < opens).sum())
    assert len(time_windows(t, first, len(events), 100.0).opens) == 1


def test_staleness_counts_earlier_events_only():
    t = torch.tensor([0.0, 1.0, 1.0, 4.0, 4.0])
    found = staleness(t, 2, torch.tensor([1, 1, 3]))
    # Event 2 lacks none (event 1 is of its own time), 3 lacks events 1 and 2, 4 lacks none.
    assert (found.events, found.most_events) == (pytest.approx(2 / 3), 2)
    assert (found.seconds, found.most_seconds) == (pytest.approx((1 + 4 + 3) / 3), 4.0)
    nothing = staleness(t, 0, torch.zeros(1, dtype=torch.int64))
    assert (math.isnan(nothing.seconds), nothing.events) == (True, 0)
    count, place = KeyHistory(torch.zeros(0, dtype=torch.int64)).before(torch.tensor([3]), 0)
    assert (int(count), int(place)) == (0, -1)


def test_negatives_are_seeded_true_of_nobody_and_half_of_the_past():
    events = EventStream.build(
        [0] * 6 + [0, 0, 1], [1, 2, 3, 4, 5, 6, 7, 8, 9], [*range(6), 7, 7, 8], num_nodes=12
    )
    found, again, other = (seeded_negatives(events, 6, 9, count=4, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(found, again)
    assert not torch.equal(found, other)
    for row in found[:2].tolist():
        assert len(set(row)) == 4 or -1 in row
        assert not {7, 8} & set(row)  # both are true at time 7
        assert len({1, 2, 3, 4, 5, 6} & set(row)) == 2
    every = seeded_negatives(events, 8, 9, count=20, seed=1)[0]
    assert sorted(every[every >= 0].tolist()) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_negative_that_is_a_true_edge_is_left_out():
    events = EventStream.build(
        [0, 0, 0, 0], [1, 2, 3, 4], [0.0, 1.0, 5.0, 5.0], num_nodes=6, sort=False
    )
    windows = time_windows(events.t, 2, 4, 10.0)
    drawn = torch.tensor([[3, 1, 2], [1, 3, 5]])  # its own, none, none; none, the other one's, none

    def higher_first(block) -> torch.Tensor:  # true edges are ranked highest, so they would count
        return block.candidates.double() + 100.0 * (block.candidates >= 3)

    scores = rank_scores(RankingTask(events, windows, drawn), higher_first)
    assert scores.mrr == pytest.approx((1 / 1 + 1 / 2) / 2)
    assert rank_scores(RankingTask(events, windows), higher_first).mrr == pytest.approx(1.0)
    events = stream_of([(0, 1, 0), (0, 2, 1)])
    task = RankingTask(events, time_windows(events.t, 1, 2, 1.0), torch.tensor([[2, 2]]))
    assert rank_scores(task, lambda one: torch.zeros(one.candidates.shape)).mrr == 1.0
    unseen = task_of([(0, 1, 0), (0, 1, 1), (0, 3, 2)], 0.7, 1.0)  # in training
    assert unseen.destinations.tolist() == [1, 3]
    assert rank_scores(unseen, EdgeBank(unseen.events)).mrr == pytest.approx(1 / 2)


def test_only_every_so_many_th_window_is_ranked():
    events = stream_of([(0, 1 + number % 3, number) for number in range(20)])
    windows = time_windows(events.t, 4, 20, 2.0)
    seen: list[int] = []

    def scorer(block) -> torch.Tensor:
        seen.extend(block.events.tolist())
        return torch.zeros(block.candidates.shape)

    assert rank_scores(RankingTask(events, windows, every=3), scorer).n == 6
    assert seen == [4, 5, 10, 11, 16, 17]


def test_bad_input_is_named():
    events = stream_of([(0, 1, 0), (1, 2, 1)])
    windows, nan = time_windows(events.t, 1, 2, 1.0), torch.tensor([math.nan, 1.0])
    values, ones = torch.tensor([0.1, 0.5, 0.5]), torch.ones(3, dtype=torch.int64)
    assert average_precision(values, ones) == 1.0
    assert math.isnan(average_precision(values, 0 * ones))
    assert average_precision(torch.ones(4), torch.tensor([1, 0, 0, 0])) == 0.25  # one big tie
    closed = tiny_task("tgat", closed=True)
    data = tiny_stream(closed)
    for name, call in (
        ("score", lambda: time_windows(events.t, 2, 2, 1.0)),
        ("seconds", lambda: time_windows(events.t, 0, 2, 0.0)),
        ("size", lambda: event_windows(events.t, 0, 2, 0)),
        ("rows", lambda: RankingTask(events, windows, torch.zeros(3, 1, dtype=torch.int64))),
        ("every", lambda: RankingTask(events, windows, every=0)),
        ("count", lambda: seeded_negatives(events, 1, 2, count=0, seed=1)),
        ("finite", lambda: rank_scores(
            RankingTask(events, windows), lambda one: torch.full(one.candidates.shape, math.nan))),
        ("finite", lambda: average_precision(nan, ones[:2])),
        ("window", lambda: EdgeBank(events, -1.0)),
        ("half_life", lambda: Popularity(events, 0.0)),
        ("closed", lambda: rank_stream(trained("stream", closed, data), ranking(data.events))),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match=name):
            call()


FIRST = 40
STATEFUL = ("jodie", "dygnn", "tgcn")
RANKERS = [("stream", model) for model in STREAM_MODELS] + [(name, "") for name in STATEFUL]


def ranking(events: EventStream, kind: str = "time") -> RankingTask:
    end = len(events)
    if kind == "events":
        return RankingTask(events, event_windows(events.t, FIRST, end, 7))
    negatives = seeded_negatives(events, FIRST, end, count=3, seed=1)
    windows = time_windows(events.t, FIRST, end, 4.0)
    return RankingTask(events, windows, negatives if kind == "negatives" else None)


def trained(family: str, task: Any = None, data: Any = None) -> Any:
    """A trainer after an epoch of its first events, with no later ones in its graph."""
    if family == "stream":
        trainer = StreamTrainer(task, data, PlainStream(task, data), dtype=torch.float64)
        trainer.insert(FIRST)
        trainer.train(0, FIRST)
        return trainer
    task = tiny_interaction_task(model="jodie" if family == "jodie" else "dygnn", intervals=4)
    data = interaction_data(tiny_interactions(), task)
    options = {"scoring": "t-batches"} if family == "tgcn" else {}
    trainer = get_system(family).open(task, data=data, dtype=torch.float64, **options)
    trainer.prepare()
    trainer.reset_state()
    trainer.train(0, 30)
    return trainer


def opened(family: str, model: str) -> Any:
    """A trained network."""
    if family != "stream":
        return trained(family)
    task = tiny_task(model, sampling="recent")
    return trained("stream", task, tiny_stream(task))


def collected(family: str, trainer: Any, task: RankingTask) -> dict[int, torch.Tensor]:
    """Scores of every event's candidates."""
    if family == "stream":
        ranker: Any = StreamRanker(trainer, task)
    else:
        seen_first(trainer, [0, int(task.windows.seen[0])])
        ranker = InteractionRanker(trainer, task)
    return {
        int(event): row
        for block in task.blocks()
        for event, row in zip(block.events, ranker(block), strict=True)
    }


def seen_first(trainer: Any, cuts: list[int]) -> None:
    """Let a trainer with states see events in parts; what DyGNN pushes depends on the cut."""
    trainer.reset_state()
    for begin, end in pairwise(cuts):
        trainer.evaluate_range(begin, end, remember=True)


class Stopped:
    """A network that sees what a window may see, and nothing else; windows come in order."""

    def __init__(self, family: str, model: str, ranks: RankingTask, trainer: Any) -> None:
        self.stream, self.done = family == "stream", 0
        self.one = opened(family, model) if self.stream else trainer
        seen = torch.cat([torch.zeros(1, dtype=torch.int64), ranks.windows.seen])
        self.cuts = ranks.windows.cuts if self.stream else seen
        if not self.stream:
            trainer.reset_state()

    def go_to(self, block: Any) -> None:
        if self.stream:
            self.one.insert(block.seen)
        end = block.window + (not self.stream)
        for first, last in pairwise(self.cuts[self.done : end + 1].tolist()):
            if first < last:
                self.one.evaluate_range(first, last, remember=True)
        self.done, self.opens = end, block.opens

    def score(self, src: int, dst: int) -> torch.Tensor:
        if self.stream:
            hidden = self.one.embed(torch.tensor([src, dst, dst]), self.opens, draw=0)
            return self.one.model.head(hidden)[0][0].detach()
        now = self.one.model.refresh(*self.one.read(torch.tensor([src, dst])))
        return self.one.model.pairs(now[:1], now[1:], self.opens)[0, 0].detach()


@pytest.mark.parametrize(
    ("family", "model", "kind"),
    [*((*one, "time") for one in RANKERS), ("stream", "tgn", "events"), ("dygnn", "", "events"),
     ("stream", "dysat", "negatives"), ("jodie", "", "negatives")],
)  # fmt: skip
def test_scores_are_those_of_a_network_that_stopped_at_the_window(family, model, kind):
    trainer = opened(family, model)
    ranks = ranking(trainer.data.events, kind)
    found = collected(family, trainer, ranks)
    assert sorted(found) == list(range(FIRST, len(trainer.data.events)))
    stopped = Stopped(family, model, ranks, trainer)
    for block in ranks.blocks():
        stopped.go_to(block)
        for row, event in enumerate(block.events.tolist()):
            for place, vertex in enumerate(block.candidates[row].tolist()):
                right = stopped.score(int(block.src[row]), vertex)
                torch.testing.assert_close(found[event][place], right)


def test_memories_are_afterwards_as_before():
    trainer = opened("stream", "tgn")
    ranks, before = ranking(trainer.data.events), trainer.memory_state().rows
    found = rank_stream(trainer, ranks)
    after = trainer.memory_state().rows
    for name in type(before).__slots__:
        assert torch.equal(getattr(before, name), getattr(after, name))
    assert rank_stream(trainer, ranks) == found == rank_scores(ranks, StreamRanker(trainer, ranks))


@pytest.mark.parametrize("system", STATEFUL)
def test_a_pair_has_the_score_of_the_event_that_it_becomes(system):
    """The score of a pair is the one that training gives to an event at that time."""
    trainer, last = trained(system), 30
    seen_first(trainer, [0, last])
    stream = trainer.data.events
    ids = torch.tensor([int(stream.src[last]), int(stream.dst[last])])
    now = trainer.model.refresh(*trainer.read(ids))
    pair = trainer.model.pairs(now[:1], now[1:], float(stream.t[last]))
    plain = plain_of(
        trainer.workload, trainer.data, trainer.state(),
        stored(trainer, torch.arange(stream.num_nodes)),
    )  # fmt: skip
    with torch.no_grad():
        positive = plain.run(torch.arange(last, last + 1))[1][0, 0]
    torch.testing.assert_close(pair[0, 0].detach(), positive.to(pair))


@pytest.mark.parametrize(
    ("system", "taken"), [("jodie", 0), *((system, 17) for system in STATEFUL)]
)
def test_a_ranking_goes_on_from_the_events_that_a_state_holds(system, taken):
    trainer = trained(system)
    task = ranking(trainer.data.events)
    found = rank_interactions(trainer, task)
    assert rank_interactions(trainer, task) == found  # whatever the state was before
    seen_first(trainer, [0, taken, FIRST])
    expected = rank_scores(task, InteractionRanker(trainer, task))
    seen_first(trainer, [0, taken])
    kept = trainer.memory_state()
    trainer.train(taken, FIRST)  # other rows, which the copy takes back
    trainer.restore_memory(kept)
    trainer.model.load_state_dict(trained(system).model.state_dict())
    assert rank_interactions(trainer, task, taken=taken).mrr == expected.mrr
