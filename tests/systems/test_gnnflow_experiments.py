"""Numbers that GNNFlow's experiments count and derive, against slow and obvious forms; contenders
of sampling on a stream small enough to know all answers."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gnnflow_rows import number, row
from hypothesis import given, settings
from hypothesis import strategies as st
from stream_tiny import tiny_events

from dgbench import datasets
from dgbench.datasets import EventStream
from dgbench.harness.store.row import Row
from dgbench.kernels_cuda.temporal_sample import count_walk
from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore
from dgbench.lab.laws import DECIDED, fit, gini
from dgbench.lab.quality import TITLES
from dgbench.lab.table import Table
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base import RunContext, link_baseline_checks
from dgbench.systems.base.link_ranking import RankingTask, rank_scores, time_windows
from dgbench.systems.gnnflow import experiments as ex
from dgbench.systems.gnnflow.block_counts import BlockCounts
from dgbench.systems.gnnflow.contenders import ContenderEvents, ReferenceResult, contender
from dgbench.systems.gnnflow.contenders.judge import SampleQuality
from dgbench.systems.gnnflow.contenders.released import spread
from dgbench.systems.gnnflow.contenders.stream import synthetic_events
from dgbench.systems.gnnflow.experiments import contenders
from dgbench.systems.gnnflow.experiments import quality as experiment
from dgbench.systems.gnnflow.experiments.accuracy_runs import over_seeds
from dgbench.systems.gnnflow.experiments.round_race import loss_gap, rounds_of
from dgbench.systems.gnnflow.experiments.settings import BY_NAME
from dgbench.systems.gnnflow.released_tgn import ReleasedTgn, _Ranker


def test_differences_have_intervals_of_their_seeds() -> None:
    rows = [row("x", {"dataset": "wikipedia", "seed": seed}) for seed in (1, 2, 3)]
    found = over_seeds(rows, [10.0, 20.0, 30.0])
    assert (found.value, found.side()) == (20, 0)
    assert found.high - found.value == pytest.approx(4.3027 * 10 / 3**0.5, rel=1e-4)
    assert over_seeds(rows[:1], [10.0]).side() == 0  # rounds of one seed are no sample of seeds
    assert over_seeds(rows, [10.0, 11.0, 10.0]).side() == 1
    assert over_seeds(rows, [-10.0, -11.0, -10.0]).side() == -1
    assert over_seeds(rows, [10.0, 20.0, 30.0], 0.99).low < found.low
    other = [row("x", {"dataset": "enron", "seed": seed}) for seed in (1, 2)]
    both = over_seeds([*rows, *other], [1.0, 2.0, 3.0, 5.0, 7.0])
    assert both.value == 4.0
    assert both.high - 4.0 == pytest.approx(12.706 * (1 / 3 + 1.0) ** 0.5 / 2, rel=1e-4)


def test_laws_and_shares() -> None:
    a, b = (torch.tensor(x).bool() for x in ([1, 1, 0, 1], [0, 1, 1, 1]))
    assert (ex.table4.jaccard(a, b), ex.table4.contained(a, b)) == (1 / 2, pytest.approx(2 / 3))
    assert ex.table4.jaccard(a & ~a, b & ~b) == 0
    assert ex.table3.different(ex.table3.RowCache(10, 1, 0), torch.tensor([4, 4, 9, 0, 9])) == 3
    counts = {("node", "unique"): 10, ("edge", "unique"): 20}
    graph = SimpleNamespace(node_dim=100, edge_dim=50)
    assert ex.table3.share(counts, "tgn", graph, "unique") == pytest.approx(1 / 2)
    assert ex.table3.share(counts, "tgn", graph, "unique memory") == pytest.approx(1 / 3)
    draw = np.random.default_rng(4)
    power, exponential = draw.zipf(2.2, 4000), draw.geometric(0.05, 4000)
    assert fit(power).z > DECIDED
    assert fit(power).exponent == pytest.approx(2.2, abs=0.1)
    assert fit(exponential).z < -DECIDED
    assert fit(exponential).rate == pytest.approx(-np.log1p(-0.05), rel=0.1)
    assert fit(np.append(power, np.zeros(50, int)), 2).n == int((power >= 2).sum())
    with pytest.raises(InvalidInputError):
        fit(np.array([3, 3, 3]))
    assert [gini(np.array(x)) for x in ([1] * 9, [0, 0, 0, 8], [])] == pytest.approx([0, 0.75, 0])


@settings(max_examples=60)
@given(
    batches=st.lists(st.lists(st.integers(0, 5), max_size=25), max_size=8),
    name=st.sampled_from(("adaptive", "adaptive_literal", "fixed", "strawman", "static")),
    size=st.integers(1, 12),
)
def test_counting_gives_the_blocks_of_the_store(batches, name, size) -> None:
    policy = BlockPolicy(name, size)
    counted = BlockCounts(6, policy)
    store = TemporalStore(6, policy=policy if name != "static" else BlockPolicy())
    for now, owners in enumerate(batches):
        counted.add(*np.unique(np.array(owners, np.int64), return_counts=True))
        src = torch.tensor(owners, dtype=torch.int64)
        store.insert(src, src, torch.full((len(owners),), float(now), dtype=torch.float64))
    if name == "static":
        src = torch.tensor([one for owners in batches for one in owners], dtype=torch.int64)
        store = TemporalStore.static(6, src, src, torch.zeros(src.numel(), dtype=torch.float64))
    memory = store.memory()
    assert counted.blocks.tolist() == store.list_lengths().tolist()
    assert (counted.slots, counted.records) == (memory.slots, memory.records)


def test_a_walk_counts_blocks_and_comparisons() -> None:
    store = TemporalStore(2, policy=BlockPolicy("fixed", 4))
    ids, times = torch.zeros(16, dtype=torch.int64), torch.arange(16).double()
    store.insert(ids, ids, times)
    begins, ends = (torch.tensor(x).double() for x in ([12.0, 0, -5], [16.0, 16, 0]))
    blocks, compared = count_walk(store, ids[:3], begins, ends)
    # Blocks that begin at 12, 8, 4, 0. The first walk sees that the next block ends before 12, the
    # second has all, the third passes all as they are newer.
    assert blocks.tolist() == [2, 4, 4]
    assert 0 == compared[2] < compared[0] < compared[1]


def test_rounds_lie_where_most_of_the_stream_is_there() -> None:
    ends = torch.zeros(100, dtype=torch.int64)
    half_days = torch.arange(100, dtype=torch.float64) * 43200
    data, at_once = (SimpleNamespace(events=EventStream.build(ends, ends, t))
                     for t in (half_days, ends))  # fmt: skip
    graph = BY_NAME["gdelt"]
    assert [one.first for one in rounds_of(graph, data, 3)] == [66, 68, 70]
    assert rounds_of(graph, data, 30)[-1].last == 100
    with pytest.raises(InvalidInputError):
        rounds_of(graph, at_once, 1)
    one, same, other = ([SimpleNamespace(losses=[1.0, last])] for last in (0.5, 0.5, 0.6))
    assert (loss_gap([one, same]), loss_gap([one, same, other])) == (0.0, pytest.approx(1 / 6))


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


EVENTS, FIRST = 240, 180


def pairs_of_partners(seed: int = 0) -> EventStream:
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
    events = pairs_of_partners()
    tgn = tgn_of(events)
    tgn.train_epoch(FIRST)
    changed = replace(events, dst=torch.cat([events.dst[:-10], events.dst[-10:].flip(0)]))
    both = scores_of(tgn, task_of(events)), scores_of(tgn_of(changed, tgn), task_of(changed))
    assert all(torch.equal(one, two) for one, two in zip(*both, strict=True))


def test_ranks_depend_on_parameters_and_events_alone():
    events = pairs_of_partners()
    task, tgn = task_of(events), tgn_of(events)
    tgn.train_epoch(FIRST)
    before, anew = deepcopy(tgn), tgn.rank(task)
    assert tgn.rank(task) == tgn_of(events, tgn).rank(task) == anew
    for taken in (0, 60, FIRST):  # batches end there
        tgn.reset()
        tgn.take(taken)
        assert tgn.rank(task, anew=False) == anew
    assert deepcopy(before).rank(task, anew=False) == before.rank(task, anew=False) != anew
    everyone = task.destinations
    others = torch.stack([everyone[everyone != dst] for dst in events.dst[FIRST:].tolist()])
    assert tgn.rank(RankingTask(events, task.windows, others)).mrr == pytest.approx(anew.mrr)


# --- contenders -----------------------------------------------------------------------------------


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
    assert all(check.passed for check in one.checks)
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
