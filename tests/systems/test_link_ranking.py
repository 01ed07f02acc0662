"""Ranks of link prediction and predictors that train nothing, against plain Python."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.datasets import EventStream
from dgbench.runtime.errors import InvalidInputError
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
from dgbench.systems.base.scores import average_precision

streams = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=30
)
"""Few vertices and times, so that pairs repeat and times tie."""


def stream_of(rows) -> EventStream:
    src, dst, t = zip(*sorted(rows, key=lambda row: row[2]), strict=True)
    return EventStream.build(src, dst, [float(one) for one in t], num_nodes=4)


def task_of(rows, share: float, seconds: float | None, count: int | None = None) -> RankingTask:
    events = stream_of(rows)
    first = min(len(events) - 1, int(share * len(events)))
    windows = (
        event_windows(events.t, first, len(events), 3)
        if seconds is None
        else time_windows(events.t, first, len(events), seconds)
    )
    negatives = None
    if count is not None:
        negatives = seeded_negatives(events, first, len(events), count=count, seed=5)
    return RankingTask(events, windows, negatives)


def past_of(task: RankingTask, number: int) -> list[tuple[int, int, float]]:
    """Events that a prediction of event `number` may use, by going through all of them."""
    window = next(w for w, end in enumerate(task.windows.cuts[1:].tolist()) if number < end)
    opens = float(task.windows.opens[window])
    events = task.events
    everything = zip(events.src.tolist(), events.dst.tolist(), events.t.tolist(), strict=True)
    return [one for one in everything if one[2] < opens]


def plain_score(name: str, past, src: int, dst: int, window: float) -> float:
    """Score of a pair by a dictionary over its past."""
    pairs = [i for i, (u, v, _) in enumerate(past) if (u, v) == (src, dst)]
    into = [i for i, (_, v, _) in enumerate(past) if v == dst]
    if name == "edgebank":
        return float(bool(pairs))
    if name == "edgebank_window":
        return float(any(past[i][2] >= past[-1][2] - window for i in pairs))
    if name == "local_recency":
        return float(pairs[-1] if pairs else -1)
    if name == "global_recency":
        return float(into[-1] if into else -1)
    if name == "popularity":
        return float(len(into))
    if name == "poptrack":
        return sum(0.5 ** ((len(past) - 1 - i) / 3400) for i in into)
    return 2.0 * bool(pairs) + len(into) / max(1, len(past))


def candidates_of(task: RankingTask, number: int) -> list[int]:
    """Destinations that an event is ranked among, its own first."""
    events, true = task.events, int(task.events.dst[number])
    if task.negatives is not None:
        drawn = task.negatives[number - task.first].tolist()
        return [true, *(one for one in drawn if one >= 0)]
    together = {
        int(events.dst[i])
        for i in range(task.first, task.last)
        if events.src[i] == events.src[number] and events.t[i] == events.t[number]
    }
    return [true, *sorted(set(events.dst.tolist()) - together)]


def plain_ranks(task: RankingTask, name: str, window: float) -> list[tuple[float, float, float]]:
    """(optimistic, pessimistic, mean) rank of every scored event."""
    found = []
    for number in range(task.first, task.last):
        past, src = past_of(task, number), int(task.events.src[number])
        wanted, *others = (
            plain_score(name, past, src, dst, window) for dst in candidates_of(task, number)
        )
        above = sum(one > wanted for one in others)
        equal = sum(math.isclose(one, wanted, rel_tol=1e-12) for one in others)
        found.append((above + 1, above + equal + 1, above + equal / 2 + 1))
    return found


@settings(deadline=None, max_examples=40)
@given(
    rows=streams, share=st.floats(0, 0.95), seconds=st.none() | st.sampled_from([0.5, 1.0, 3.0]),
    count=st.none() | st.integers(1, 4),
)  # fmt: skip
def test_baselines_rank_as_dictionaries_over_the_past_do(rows, share, seconds, count):
    task = task_of(rows, share, seconds, count)
    window = recent_span(task.events.t, task.first)
    for name, baseline in link_baselines(task.events, task.first).items():
        right = plain_ranks(task, name, window)
        found = rank_scores(task, baseline)
        assert found.n == len(right)
        for value, column in zip(
            (found.optimistic, found.pessimistic, found.mrr), zip(*right, strict=True), strict=True
        ):
            assert value == pytest.approx(sum(1 / r for r in column) / len(column)), name
        for k in HITS:
            assert found.hits[k] == pytest.approx(sum(r[2] <= k for r in right) / len(right))


@settings(deadline=None, max_examples=30)
@given(rows=streams, share=st.floats(0, 0.95), later=streams)
def test_what_happens_in_a_window_changes_none_of_its_scores(rows, share, later):
    task = task_of(rows, share, 2.0)
    events = task.events
    changed = replace(
        events,
        src=events.src.clone(),
        dst=events.dst.clone(),
    )
    block = next(iter(task.blocks()))
    for at, (src, dst, _) in zip(range(block.seen, len(events)), later * 30, strict=False):
        changed.src[at], changed.dst[at] = src, dst
    before, after = (link_baselines(one, task.first) for one in (events, changed))
    for name in before:
        assert torch.equal(before[name](block), after[name](block)), name


@given(rows=streams, share=st.floats(0, 0.95), seconds=st.sampled_from([0.3, 1.0, 2.5]))
def test_windows_hold_every_event_once_and_see_none_of_their_own(rows, share, seconds):
    events = stream_of(rows)
    t, first = events.t, min(len(events) - 1, int(share * len(events)))
    for windows in (
        time_windows(t, first, len(events), seconds),
        event_windows(t, first, len(events), 2),
    ):
        cuts = windows.cuts.tolist()
        assert (cuts[0], cuts[-1]) == (first, len(events))
        assert all(a < b for a, b in itertools.pairwise(cuts))
        for begin, end, opens, seen in zip(
            cuts, cuts[1:], windows.opens.tolist(), windows.seen.tolist(), strict=False
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
    assert math.isnan(nothing.seconds)
    assert nothing.events == 0


def test_negatives_are_seeded_true_of_nobody_and_half_of_the_past():
    events = EventStream.build(
        [0] * 6 + [0, 0, 1], [1, 2, 3, 4, 5, 6, 7, 8, 9], [*range(6), 7, 7, 8], num_nodes=12
    )
    found = seeded_negatives(events, 6, 9, count=4, seed=1)
    assert torch.equal(found, seeded_negatives(events, 6, 9, count=4, seed=1))
    assert not torch.equal(found, seeded_negatives(events, 6, 9, count=4, seed=2))
    assert torch.equal(found[1:], seeded_negatives(events, 6, 9, count=4, seed=1)[1:])
    for row in found[:2].tolist():
        assert len(set(row)) == 4 or -1 in row
        assert not {7, 8} & set(row)  # both are true at time 7
        assert len({1, 2, 3, 4, 5, 6} & set(row)) == 2
    all_others = seeded_negatives(events, 8, 9, count=20, seed=1)[0]
    assert sorted(all_others[all_others >= 0].tolist()) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_bad_input_is_refused():
    events = stream_of([(0, 1, 0), (1, 2, 1)])
    windows = time_windows(events.t, 1, 2, 1.0)
    with pytest.raises(InvalidInputError, match="none to score"):
        time_windows(events.t, 2, 2, 1.0)
    with pytest.raises(InvalidInputError, match="seconds"):
        time_windows(events.t, 0, 2, 0.0)
    with pytest.raises(InvalidInputError, match="size"):
        event_windows(events.t, 0, 2, 0)
    with pytest.raises(InvalidInputError, match="rows"):
        RankingTask(events, windows, torch.zeros(3, 1, dtype=torch.int64))
    with pytest.raises(InvalidInputError, match="count"):
        seeded_negatives(events, 1, 2, count=0, seed=1)
    with pytest.raises(InvalidInputError, match="not finite"):
        rank_scores(
            RankingTask(events, windows), lambda one: torch.full(one.candidates.shape, math.nan)
        )
    with pytest.raises(InvalidInputError, match="window"):
        EdgeBank(events, -1.0)
    with pytest.raises(InvalidInputError, match="half_life"):
        Popularity(events, 0.0)


def test_a_history_without_events_has_none():
    count, place = KeyHistory(torch.zeros(0, dtype=torch.int64)).before(torch.tensor([3]), 0)
    assert (int(count), int(place)) == (0, -1)


def test_a_destination_unseen_in_training_is_a_candidate():
    task = task_of([(0, 1, 0), (0, 1, 1), (0, 3, 2)], 0.7, 1.0)
    assert task.destinations.tolist() == [1, 3]
    assert rank_scores(task, EdgeBank(task.events)).mrr == pytest.approx(1 / 2)


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
    whole = rank_scores(RankingTask(events, windows), higher_first)
    assert whole.mrr == pytest.approx(1.0)


def test_where_all_negatives_are_true_the_rank_is_the_first():
    events = stream_of([(0, 1, 0), (0, 2, 1)])
    windows = time_windows(events.t, 1, 2, 1.0)
    task = RankingTask(events, windows, torch.tensor([[2, 2]]))
    assert rank_scores(task, lambda one: torch.zeros(one.candidates.shape)).mrr == 1.0


def test_only_every_so_many_th_window_is_ranked():
    rows = [(0, 1 + number % 3, number) for number in range(20)]
    events = stream_of(rows)
    windows = time_windows(events.t, 4, 20, 2.0)
    seen: list[int] = []

    def scorer(block) -> torch.Tensor:
        seen.extend(block.events.tolist())
        return torch.zeros(block.candidates.shape)

    assert rank_scores(RankingTask(events, windows, every=3), scorer).n == 6
    assert seen == [4, 5, 10, 11, 16, 17]
    with pytest.raises(InvalidInputError, match="every"):
        RankingTask(events, windows, every=0)


def test_scores_of_one_class_alone():
    ones, zeros = torch.ones(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
    values = torch.tensor([0.1, 0.5, 0.5])
    assert average_precision(values, ones) == 1.0
    assert math.isnan(average_precision(values, zeros))
    assert average_precision(torch.ones(4), torch.tensor([1, 0, 0, 0])) == 0.25  # one big tie
    with pytest.raises(InvalidInputError, match="not finite"):
        average_precision(torch.tensor([math.nan, 1.0]), ones[:2])
