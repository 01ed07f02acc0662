"""Contenders of sampling: what each returns on a stream small enough to know all answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.runtime.errors import UnknownKeyError
from dgbench.systems.gnnflow.contenders import (
    CONTENDERS,
    ContenderEvents,
    ReferenceResult,
    contender,
)
from dgbench.systems.gnnflow.contenders.released import spread
from dgbench.systems.gnnflow.contenders.stream import batch_roots, synthetic_events


def graph_of(name: str, events: ContenderEvents):
    """A contender that holds the events; skips what is not installed, and what loads too long."""
    one = contender(name)
    if reason := one.absent() or one.unavailable():
        pytest.skip(reason)
    made = one()
    made.build(events)
    return made


def quality(name: str, policy: str, events: ContenderEvents, first: int, count: int):
    one = contender(name)
    made = graph_of(name, events if one.looks_back else events.first(first))
    nodes, times = batch_roots(events, first, count)
    answer = made.sample(nodes, times, [10], policy)
    return ReferenceResult(events).judge(nodes, times, 10, policy, *made.first_hop(answer))


@pytest.fixture(scope="module")
def events() -> ContenderEvents:
    return synthetic_events(300, 6000)


@pytest.mark.parametrize("name", ["blocks", "tcsr"])
@pytest.mark.parametrize("policy", ["recent", "uniform"])
def test_ours_are_without_fault(name: str, policy: str, events: ContenderEvents) -> None:
    found = quality(name, policy, events, 3000, 60)
    assert (found.recall, found.leaks, found.foreign, found.duplicates) == (1, 0, 0, 0)
    assert found.returned == found.wanted


def test_blocks_and_rows_draw_the_same(events: ContenderEvents) -> None:
    nodes, times = batch_roots(events, 3000, 60)
    made = [graph_of(name, events) for name in ("blocks", "tcsr")]
    answers = [one.first_hop(one.sample(nodes, times, [10, 5], "uniform")) for one in made]
    assert all(torch.equal(a, b) for a, b in zip(*answers, strict=True))


@pytest.mark.parametrize("name", ["blocks", "tcsr", "tglite"])
def test_what_is_added_is_found(name: str, events: ContenderEvents) -> None:
    made = graph_of(name, events.first(5900))
    made.add(events, 5900)
    nodes, times = events.src[-20:], torch.full((20,), 2.0**24, dtype=torch.float64)
    answer = made.first_hop(made.sample(nodes, times, [10], "recent"))
    found = ReferenceResult(events).judge(nodes, times, 10, "recent", *answer)
    assert (found.recall, found.leaks) == (1, 0)
    assert int(answer[1].max()) >= 5900


def test_tglite_repeats_itself_and_draws_twice(events: ContenderEvents) -> None:
    made = graph_of("tglite", events)
    nodes, times = batch_roots(events, 3000, 60)
    one, two = (made.first_hop(made.sample(nodes, times, [10], "uniform"))[1] for _ in range(2))
    assert torch.equal(one, two)
    found = quality("tglite", "uniform", events, 3000, 60)
    assert found.leaks == found.foreign == 0
    assert found.duplicates > 0


def test_tglite_rounds_times_of_seconds() -> None:
    """Unix seconds are multiples of 128 in float32, so edges near a root's time are lost."""
    count = 400
    ends = torch.arange(count) % 5
    seconds = 1.5e9 + torch.arange(count, dtype=torch.float64)
    events = ContenderEvents(5, ends, (ends + 1) % 5, seconds)
    assert quality("tglite", "recent", events, 200, 50).recall < 0.9
    assert quality("tcsr", "recent", events, 200, 50).recall == 1


def test_dgl_knows_no_time(events: ContenderEvents) -> None:
    found = quality("dgl", "uniform", events, 3000, 60)
    assert found.leaks > 0.3
    assert found.foreign == 0
    assert contender("dgl").temporal is False


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 6)), max_size=30),
    st.integers(1, 4),
    st.integers(0, 10**6),
)
def test_the_judge_counts_as_a_reader_would(edges, fanout, seed) -> None:
    edges = sorted(edges, key=lambda edge: edge[2])
    src, dst, t = ([e[k] for e in edges] for k in range(3))
    events = ContenderEvents(
        5, *(torch.tensor(ends, dtype=torch.int64) for ends in (src, dst)),
        torch.tensor(t, dtype=torch.float64),
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    nodes, times = torch.tensor([0, 3]), torch.tensor([3.0, 7.0], dtype=torch.float64)
    picked = rng.integers(0, len(edges), (2, 3)).tolist() if edges else [[], []]
    given_ = [(r, e) for r in range(2) for e in picked[r]]
    root, eid = (torch.tensor([g[k] for g in given_], dtype=torch.int64) for k in range(2))
    for policy in ("recent", "uniform"):
        found = ReferenceResult(events).judge(nodes, times, fanout, policy, root, eid)
        wanted = right = leaks = foreign = 0
        for r, (node, time) in enumerate(zip(nodes.tolist(), times.tolist(), strict=True)):
            truth = [e for e, (a, b, when) in enumerate(edges) for end in (a, b)
                     if end == node and when < time]  # fmt: skip
            perfect = min(fanout, len(truth))
            least = sorted(edges[e][2] for e in truth)[-perfect] if perfect else 0
            good = [e for e in truth if policy == "uniform" or edges[e][2] >= least]
            mine = [e for of, e in given_ if of == r]
            hits = 0
            for e in mine:
                if e in good:
                    good.remove(e)
                    hits += 1
                leaks += edges[e][2] >= time
                foreign += node not in edges[e][:2]
            wanted += perfect
            right += min(perfect, hits)
        assert found.wanted == wanted
        assert found.recall == pytest.approx(right / wanted if wanted else 1.0)
        assert found.leaks == pytest.approx(leaks / max(1, len(given_)))
        assert found.foreign == pytest.approx(foreign / max(1, len(given_)))


def test_the_judge_sees_duplicates() -> None:
    ends = torch.tensor([[0, 0], [1, 0]])
    events = ContenderEvents(2, ends[0], ends[1], torch.tensor([0.0, 1.0]).double())
    nodes, times = torch.tensor([0]), torch.tensor([2.0]).double()
    twice = torch.tensor([0, 0]), torch.tensor([0, 0])
    assert ReferenceResult(events).judge(nodes, times, 5, "uniform", *twice).duplicates == 0.5
    loop = torch.tensor([0, 0]), torch.tensor([1, 1])  # a self edge stands twice
    assert ReferenceResult(events).judge(nodes, times, 5, "uniform", *loop).duplicates == 0


def test_one_answer_goes_to_all_roots_of_a_vertex() -> None:
    nodes = torch.tensor([7, 2, 7])
    root, eid = spread(nodes, torch.tensor([2, 7, 7]), torch.tensor([10, 11, 12]))
    assert list(zip(root.tolist(), eid.tolist(), strict=True)) == [
        (0, 11), (0, 12), (1, 10), (2, 11), (2, 12),
    ]  # fmt: skip


def test_the_stream_is_the_same_each_time() -> None:
    one, two = synthetic_events(50, 200, seed=3), synthetic_events(50, 200, seed=3)
    assert torch.equal(one.src, two.src)
    assert torch.equal(one.t, two.t.sort().values)
    assert int(one.t.max()) < 2**24
    nodes, times = batch_roots(one, 190, 40)
    assert (nodes.numel(), times.numel()) == (30, 30)


def test_a_name_that_is_not_known() -> None:
    with pytest.raises(UnknownKeyError, match="tgllite"):
        contender("tgllite")
    assert set(CONTENDERS) == {
        "blocks", "tcsr", "tglite", "cugraph", "cugraph-window", "dgl", "pyg-last",
    }  # fmt: skip
