"""Ranks of networks over streams, against pairs that are scored one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from stream_tiny import tiny_stream, tiny_task

from dgbench.datasets import EventStream
from dgbench.models.ctdg import STREAM_MODELS
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.link_ranking import (
    RankingTask,
    event_windows,
    rank_scores,
    seeded_negatives,
    time_windows,
)
from dgbench.systems.base.plain_stream import PlainStream
from dgbench.systems.base.stream import StreamData, StreamTrainer, stream_data
from dgbench.systems.base.stream_ranking import StreamRanker, rank_stream

FIRST = 40


def trained(task, data: StreamData, last: int = FIRST) -> StreamTrainer:
    """A trainer after one epoch of the events before `last`, with no later ones in its graph."""
    trainer = StreamTrainer(task, data, PlainStream(task, data), dtype=torch.float64)
    trainer.insert(last)
    trainer.train(0, last)
    return trainer


def ranking(data: StreamData, kind: str) -> RankingTask:
    events, end = data.events, len(data.events)
    if kind == "events":
        return RankingTask(events, event_windows(events.t, FIRST, end, 7))
    windows = time_windows(events.t, FIRST, end, 4.0)
    negatives = seeded_negatives(events, FIRST, end, count=3, seed=1)
    return RankingTask(events, windows, negatives if kind == "negatives" else None)


def collected(trainer: StreamTrainer, task: RankingTask) -> dict[int, torch.Tensor]:
    """Scores of every event's candidates."""
    ranker = StreamRanker(trainer, task)
    return {
        int(event): row
        for block in task.blocks()
        for event, row in zip(block.events, ranker(block), strict=True)
    }


def tensors_of(held) -> list[torch.Tensor]:
    """All tensors of nested tuples."""
    return (
        [held] if isinstance(held, torch.Tensor) else [t for one in held for t in tensors_of(one)]
    )


@pytest.mark.parametrize("model", STREAM_MODELS)
@pytest.mark.parametrize("kind", ["time", "events", "negatives"])
def test_scores_are_those_of_a_network_that_stopped_at_the_window(model, kind):
    task = tiny_task(model, sampling="recent")
    data = tiny_stream(task)
    ranks = ranking(data, kind)
    found = collected(trained(task, data), ranks)
    assert sorted(found) == list(range(FIRST, len(data.events)))
    for block in ranks.blocks():
        # Parameters after the same training, and memories of what came before the window.
        fresh = trained(task, data)
        fresh.insert(block.seen)
        for begin, end in pairwise(ranks.windows.cuts[: block.window + 1].tolist()):
            fresh.evaluate_range(begin, end, remember=True)
        for row, event in enumerate(block.events.tolist()):
            for place, vertex in enumerate(block.candidates[row].tolist()):
                ends = torch.tensor([int(block.src[row]), vertex, vertex])
                hidden = fresh.embed(ends, block.opens, draw=0)
                right = fresh.model.head(hidden)[0]
                torch.testing.assert_close(found[event][place], right[0].detach())


@pytest.mark.parametrize("model", ["tgn", "tgat"])
def test_events_of_a_window_change_none_of_its_scores(model):
    task = tiny_task(model)
    data = tiny_stream(task)
    ranks = ranking(data, "time")
    block = next(iter(ranks.blocks()))
    events = data.events
    other = replace(events, src=events.src.clone(), dst=events.dst.clone())
    other.src[block.seen :] = (other.src[block.seen :] + 3) % 8
    other.dst[block.seen :] = (other.dst[block.seen :] + 5) % 8
    changed = StreamData(other, data.node_feat, data.edge_feat)
    assert block.seen == FIRST  # else training would differ
    first, second = (
        StreamRanker(trained(task, one), replace(ranks, events=one.events))(block)
        for one in (data, changed)
    )
    assert torch.equal(first, second)


def test_memories_are_afterwards_as_before():
    task = tiny_task("tgn")
    data = tiny_stream(task)
    trainer, ranks = trained(task, data), ranking(data, "time")
    before = trainer.memory_state()
    found = rank_stream(trainer, ranks)
    again = trainer.memory_state()
    for old, new in zip(tensors_of(before.rows), tensors_of(again.rows), strict=True):
        assert torch.equal(old, new)
    assert rank_stream(trainer, ranks) == found
    assert found == rank_scores(ranks, StreamRanker(trainer, ranks))


def test_a_workload_that_leaks_is_refused():
    task = tiny_task("tgat", closed=True)
    data = tiny_stream(task)
    with pytest.raises(InvalidInputError, match="closed"):
        rank_stream(trained(task, data), ranking(data, "time"))


@pytest.mark.parametrize(("model", "node_dim"), [("tgn", 0), ("tgat", 0), ("tgn", 3)])
def test_without_features_partners_of_equal_times_cannot_be_told_apart(model, node_dim):
    """Networks that see ids through features alone rank twins of a partner beside it.

    Two pairs, (0, 2) and (1, 3), interact at the same times and with nobody else.
    """
    pairs = torch.tensor([[0, 2], [1, 3]]).repeat(30, 1)
    stream = EventStream.build(
        pairs[:, 0], pairs[:, 1], torch.arange(30).repeat_interleave(2).double() + 1, num_nodes=5
    )
    task = tiny_task(model, node_dim=node_dim, edge_dim=0, sampling="recent")
    data = stream_data(stream, task)
    trainer = trained(task, data)
    hidden = trainer.embed(torch.tensor([0, 2, 3]), float(stream.t[FIRST]), draw=0)
    own, other = trainer.model.head.pairs(hidden[:1], hidden[1:]).tolist()
    assert (own == pytest.approx(other, abs=1e-9)) == (node_dim == 0)
