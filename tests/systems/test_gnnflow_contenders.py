"""Contenders of sampling: what each returns on a stream small enough to know all answers."""

from __future__ import annotations

import random
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from gnnflow_rows import number, row
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.harness.store.row import Row
from dgbench.lab.table import Table
from dgbench.systems.base import RunContext
from dgbench.systems.gnnflow.contenders import (
    ContenderEvents,
    ReferenceResult,
    contender,
)
from dgbench.systems.gnnflow.contenders.judge import SampleQuality
from dgbench.systems.gnnflow.contenders.rapids import CuGraph, CuGraphWindow
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
    ours = {name: contenders.CONTENDERS[name] for name in ("blocks", "tcsr")}
    monkeypatch.setattr(contenders, "CONTENDERS", ours)
    monkeypatch.setattr(contenders, "BATCHES", (40, 60))
    monkeypatch.setattr(contenders, "LEFT_OUT", {})
    shown = ((1, 60), (2, 40))
    monkeypatch.setattr(contenders, "RACES", {"smoke": shown})
    monkeypatch.setattr(contenders, "_SHOWN", shown)


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


# --- pylibcugraph, by a slow stand-in -------------------------------------------------------------


def install(monkeypatch, library) -> None:
    """Put a stand-in of pylibcugraph, and cupy with it, where imports find them."""
    cupy = ModuleType("cupy")
    cupy.from_dlpack = lambda tensor: np.from_dlpack(tensor)
    module = ModuleType("pylibcugraph")
    module.__spec__ = SimpleNamespace(name="pylibcugraph")
    for name in ("ResourceHandle", "GraphProperties", "SGGraph", "neighbor_sample"):
        if hasattr(library, name):
            setattr(module, name, getattr(library, name))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "pylibcugraph", module)


class SlowCuGraph:
    """pylibcugraph's names.

    Args:
        last: whether `neighbor_selection="last"` is implemented.
        strict: whether edges of the bound's own time are left out, as documented.
    """

    def __init__(self, *, last: bool = True, strict: bool = True) -> None:
        self.last, self.strict, self.calls = last, strict, 0
        self.neighbor_sample = self._sample

    class ResourceHandle:
        pass

    class GraphProperties:
        def __init__(self, *, is_symmetric: bool, is_multigraph: bool) -> None:
            assert is_multigraph, "parallel edges would be merged"
            assert not is_symmetric

    class SGGraph:
        def __init__(
            self, handle, properties, sources, targets, *, weight_array, store_transposed,
            renumber, do_expensive_check, edge_id_array, edge_start_time_array, vertices_array,
            drop_self_loops, drop_multi_edges, symmetrize,
        ) -> None:  # fmt: skip
            assert not any((renumber, drop_self_loops, drop_multi_edges, symmetrize))
            assert sources.dtype == targets.dtype == edge_id_array.dtype == vertices_array.dtype
            assert edge_start_time_array.dtype == np.int64
            self.type = sources.dtype
            self.edges: dict[int, list[tuple[int, int, int]]] = {}
            rows = zip(
                sources.tolist(), targets.tolist(), edge_id_array.tolist(),
                edge_start_time_array.tolist(), strict=True,
            )  # fmt: skip
            for source, target, eid, time in rows:
                self.edges.setdefault(source, []).append((target, eid, time))

    def _sample(
        self, handle, graph, starts, fanouts, *, starting_vertex_start_times=None,
        starting_vertex_end_times=None, starting_vertex_label_offsets=None, with_replacement,
        do_expensive_check, disjoint_sampling=False, return_hops=False, random_state=None,
        temporal_sampling_comparison=None, neighbor_selection="random", fixed_window=False,
    ):  # fmt: skip
        if neighbor_selection == "last" and not self.last:
            raise NotImplementedError("'last' is not yet implemented")
        assert starts.dtype == graph.type
        assert fanouts.dtype == np.int32
        assert disjoint_sampling, "temporal sampling needs it"
        assert return_hops
        assert not with_replacement
        assert starting_vertex_label_offsets.tolist() == list(range(len(starts) + 1))
        self.calls += 1
        draw = random.Random(random_state)
        edges, offsets = [], [0]
        for label, start in enumerate(starts.tolist()):
            end = int(starting_vertex_end_times[label])
            front = [(start, end)]
            for fanout in fanouts.tolist():
                reached = []
                for vertex, bound in front:
                    may = graph.edges.get(vertex, [])
                    if fixed_window:
                        begin = int(starting_vertex_start_times[label])
                        may = [e for e in may if begin <= e[2] <= end]
                    else:
                        assert temporal_sampling_comparison == "strictly_decreasing"
                        may = [
                            e for e in may if e[2] < bound or (not self.strict and e[2] == bound)
                        ]
                    if neighbor_selection == "last":
                        may = sorted(may, key=lambda e: -float(e[2]))[:fanout]
                    else:
                        may = draw.sample(may, min(fanout, len(may)))
                    reached += may
                edges += [eid for _, eid, _ in reached]
                offsets.append(len(edges))
                front = [(target, time) for target, _, time in reached]
        return {
            "edge_id": np.asarray(edges, dtype=graph.type),
            "label_hop_offsets": np.asarray(offsets, dtype=np.int64),
        }


CLEAN = {"recall": 1.0, "leaks": 0.0, "foreign": 0.0, "duplicates": 0.0}
BOTH = pytest.mark.parametrize("one", [CuGraph, CuGraphWindow])


def use(monkeypatch, **settings) -> SlowCuGraph:
    """A stand-in where pylibcugraph would be, on the CPU."""
    library = SlowCuGraph(**settings)
    install(monkeypatch, library)
    monkeypatch.setattr(CuGraph, "device", "cpu")
    return library


@pytest.fixture(scope="module")
def few_events() -> ContenderEvents:
    return synthetic_events(60, 1500)


def clean_marks(
    one, few_events: ContenderEvents, nodes, times, policy: str, fanouts=(10,)
) -> dict[str, float]:
    graph = one()
    graph.build(few_events)
    answer = graph.first_hop(graph.sample(nodes, times, fanouts, policy))
    found = ReferenceResult(few_events).judge(nodes, times, fanouts[0], policy, *answer)
    return {key: getattr(found, key) for key in CLEAN}


@BOTH
@pytest.mark.parametrize("policy", ["recent", "uniform"])
@pytest.mark.parametrize("fanouts", [(10,), (10, 3)])
def test_a_documented_sampler_is_without_fault(monkeypatch, one, policy, fanouts, few_events):
    use(monkeypatch)
    assert one.unavailable() == ""
    nodes, times = batch_roots(few_events, 700, 40)
    assert clean_marks(one, few_events, nodes, times, policy, fanouts) == CLEAN


@BOTH
@pytest.mark.parametrize("shift", [0.0, 0.25])
def test_times_of_roots_are_strict_and_their_own(monkeypatch, one, shift, few_events):
    """One vertex at several times, before all edges, at an edge's time and between two."""
    use(monkeypatch, strict=False)
    assert (
        clean_marks(CuGraph, few_events, *batch_roots(few_events, 700, 40), "recent")["leaks"] > 0
    )
    library = use(monkeypatch)
    t = torch.tensor([2, 2, 3, 5, 8]).double() + shift
    few_events = ContenderEvents(6, torch.tensor([0, 0, 1, 0, 4]), torch.tensor([1, 2, 2, 0, 4]), t)
    nodes = torch.tensor([0, 0, 3, 0, 0, 2, 4])
    times = torch.tensor([2, 3, 9, 2.5, 9, 2.1, 9]).double() + shift
    for policy in ("recent", "uniform"):
        assert clean_marks(one, few_events, nodes, times, policy) == CLEAN
    graph = one()
    graph.build(few_events)
    assert bool(graph.remarks()) == bool(shift)  # ranks are told
    before = library.calls
    root, eid = graph.first_hop(graph.sample(nodes[:1], times[:1], [5], "recent"))
    assert root.numel() == eid.numel() == 0
    assert library.calls == before  # nobody has an edge: nothing is asked


def test_what_a_release_lacks_is_a_gap(monkeypatch, few_events):
    library = use(monkeypatch, last=False)
    graph = CuGraph()
    graph.build(few_events)
    assert graph.policies == ("uniform",)
    monkeypatch.setattr(CuGraph, "device", "cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "CUDA device" in CuGraph.unavailable()
    del library.neighbor_sample
    install(monkeypatch, library)
    assert "26.10" in CuGraph.unavailable()
