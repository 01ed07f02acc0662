"""Contenders of sampling: what each returns on a stream small enough to know all answers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from gnnflow_rows import number, row
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.harness.store.row import Row
from dgbench.lab.table import Table
from dgbench.systems.base import RunContext
from dgbench.systems.gnnflow.contenders import ContenderEvents, ReferenceResult, contender
from dgbench.systems.gnnflow.contenders.judge import SampleQuality
from dgbench.systems.gnnflow.contenders.released import spread
from dgbench.systems.gnnflow.contenders.stream import batch_roots, synthetic_events
from dgbench.systems.gnnflow.experiments import contenders


def graph_of(name: str, events: ContenderEvents):
    """A contender that holds the events; skips what is not installed, and what loads too long."""
    one = contender(name)
    if reason := one.absent() or one.unavailable():
        pytest.skip(reason)
    made = one()
    made.build(events)
    return made


@pytest.fixture(scope="module")
def events() -> ContenderEvents:
    return synthetic_events(300, 6000)


@pytest.mark.parametrize("name", ["blocks", "tcsr"])
@pytest.mark.parametrize("policy", ["recent", "uniform"])
def test_ours_are_without_fault(name: str, policy: str, events: ContenderEvents) -> None:
    made = graph_of(name, events if contender(name).looks_back else events.first(3000))
    nodes, times = batch_roots(events, 3000, 60)
    answer = made.first_hop(made.sample(nodes, times, [10], policy))
    found = ReferenceResult(events).judge(nodes, times, 10, policy, *answer)
    assert (found.recall, found.leaks, found.foreign, found.duplicates) == (1, 0, 0, 0)
    assert found.returned == found.wanted


@pytest.mark.parametrize("name", ["blocks", "tcsr", "tglite"])
def test_what_is_added_is_found(name: str, events: ContenderEvents) -> None:
    made = graph_of(name, events.first(5900))
    made.add(events, 5900)
    nodes, times = events.src[-20:], torch.full((20,), 2.0**24, dtype=torch.float64)
    answer = made.first_hop(made.sample(nodes, times, [10], "recent"))
    found = ReferenceResult(events).judge(nodes, times, 10, "recent", *answer)
    assert (found.recall, found.leaks) == (1, 0)
    assert int(answer[1].max()) >= 5900


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 6)), max_size=30),
    st.integers(1, 4),
    st.integers(0, 10**6),
)
def test_the_judge_counts_as_a_reader_would(edges, fanout, seed) -> None:
    edges = sorted(edges, key=lambda edge: edge[2])
    src, dst, t = (torch.tensor([e[k] for e in edges], dtype=torch.int64) for k in range(3))
    events = ContenderEvents(5, src, dst, t.double())
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
            good = Counter(e for e in truth if policy == "uniform" or edges[e][2] >= least)
            mine = [e for of, e in given_ if of == r]
            wanted += perfect
            right += min(perfect, (good & Counter(mine)).total())
            leaks += sum(edges[e][2] >= time for e in mine)
            foreign += sum(node not in edges[e][:2] for e in mine)
        assert found.wanted == wanted
        found_shares = (found.recall, found.leaks, found.foreign)
        count = max(1, len(given_))
        shares = (right / wanted if wanted else 1.0, leaks / count, foreign / count)
        assert found_shares == pytest.approx(shares)


def test_duplicates_are_seen_and_one_answer_goes_to_all_roots_of_a_vertex() -> None:
    ends = torch.tensor([[0, 0], [1, 0]])
    events = ContenderEvents(2, ends[0], ends[1], torch.tensor([0.0, 1.0]).double())
    root = torch.tensor([0]), torch.tensor([2.0]).double()
    for event, share in ((0, 0.5), (1, 0)):  # a self edge stands twice
        given_ = torch.tensor([0, 0]), torch.tensor([event, event])
        judge = ReferenceResult(events).judge
        assert judge(*root, 5, "uniform", *given_).duplicates == share
    nodes = torch.tensor([7, 2, 7])
    root, eid = spread(nodes, torch.tensor([2, 7, 7]), torch.tensor([10, 11, 12]))
    assert list(zip(root.tolist(), eid.tolist(), strict=True)) == [
        (0, 11), (0, 12), (1, 10), (2, 11), (2, 12),
    ]  # fmt: skip


@pytest.fixture
def few_contenders(monkeypatch):
    ours, shown = (
        {name: contenders.CONTENDERS[name] for name in ("blocks", "tcsr")},
        ((1, 60), (2, 40)),
    )
    for name, value in (("CONTENDERS", ours), ("BATCHES", (40, 60)), ("LEFT_OUT", {}),
                        ("RACES", {"smoke": shown}), ("_SHOWN", shown)):  # fmt: skip
        monkeypatch.setattr(contenders, name, value)


def contender_row() -> Row:
    data = {"dataset": "power law", "twin": True, "scale": 1.0, "note": ""}
    context = RunContext("cpu", "smoke", threads=1)
    found = contenders.measure(synthetic_events(200, 3000), data, context)
    params = {"dataset": "power law", "contenders": "all that are here"}
    return row("contenders", params, found)


@pytest.mark.usefixtures("few_contenders")
def test_contenders_are_judged_and_raced(monkeypatch) -> None:
    one = contender_row()
    quality = Table.of([one]).where("portion").numbers("setting", "policy", "batch", "statistic")
    assert quality["blocks", "recent", 60, "recall"] == 1
    assert quality["tcsr", "uniform", 40, "duplicates"] == 0
    assert quality["blocks", "uniform", 60, "repeats"] == 0
    assert number(one, "speedup", baseline="tcsr", policy="uniform", layers=2) > 0
    assert number(one, "speedup", baseline="tcsr", phase="add") > 0
    monkeypatch.setattr(
        ReferenceResult, "judge", lambda *a, **k: SampleQuality(10, 0.9, 9, 0.1, 0.0, 0.0)
    )
    assert not all(check.passed for check in contender_row().checks)


@pytest.mark.parametrize("where", ["build", "sample", "add", "origin"])
@pytest.mark.usefixtures("few_contenders")
def test_a_contender_that_raises_fails_alone(monkeypatch, where) -> None:
    class Broken(contenders.CONTENDERS["tcsr"]):
        name, title, ours = "broken", "Broken", False

    def fail(*given, **named):
        raise RuntimeError("no such row\nand more")

    monkeypatch.setattr(Broken, where, classmethod(fail) if where == "origin" else fail)
    found = {**contenders.CONTENDERS, "broken": Broken}
    monkeypatch.setattr(contenders, "CONTENDERS", found)
    made = contender_row()
    assert "Broken failed: RuntimeError: no such row" in made.notes
    (only,) = (one for one in made.observations if "broken" in one.dims.values())
    assert (only.metric, only.value, only.dims["statistic"]) == ("portion", 1.0, "failed")
    assert number(made, "speedup", baseline="tcsr", phase="add") > 0
    assert all(check.passed for check in made.checks)
    monkeypatch.delattr(contenders.CONTENDERS["blocks"], "sample")  # one of ours ends its cell
    with pytest.raises(TypeError):
        contender_row()
