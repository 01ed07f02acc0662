"""pylibcugraph as a contender of sampling, by a slow stand-in that follows its documented calls."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch
from gnnflow_rows import number
from slow_rapids import SlowCuGraph, SlowWholeGraph, install

from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base import RunContext
from dgbench.systems.gnnflow.contenders import CONTENDERS, ContenderEvents, ReferenceResult
from dgbench.systems.gnnflow.contenders.rapids import CuGraph, CuGraphWindow
from dgbench.systems.gnnflow.contenders.stream import batch_roots, synthetic_events
from dgbench.systems.gnnflow.experiments import cache_ablation, contenders
from dgbench.systems.gnnflow.experiments.accesses import Accesses
from dgbench.systems.gnnflow.experiments.settings import BY_NAME
from dgbench.systems.gnnflow.wholegraph_cache import WholeGraphCache

CLEAN = {"recall": 1.0, "leaks": 0.0, "foreign": 0.0, "duplicates": 0.0}
BOTH = pytest.mark.parametrize("one", [CuGraph, CuGraphWindow])


def use(monkeypatch, **settings) -> SlowCuGraph:
    """A stand-in where pylibcugraph would be, on the CPU."""
    library = SlowCuGraph(**settings)
    install(monkeypatch, library)
    monkeypatch.setattr(CuGraph, "device", "cpu")
    return library


@pytest.fixture(scope="module")
def events() -> ContenderEvents:
    return synthetic_events(60, 1500)


def quality(
    one, events: ContenderEvents, nodes, times, policy: str, fanouts=(10,)
) -> dict[str, float]:
    made = one()
    made.build(events)
    answer = made.first_hop(made.sample(nodes, times, fanouts, policy))
    found = ReferenceResult(events).judge(nodes, times, fanouts[0], policy, *answer)
    return {key: getattr(found, key) for key in CLEAN}


@BOTH
@pytest.mark.parametrize("fanouts", [(10,), (10, 3)])
@pytest.mark.parametrize("policy", ["recent", "uniform"])
@pytest.mark.parametrize("flag", [True, False])
def test_a_documented_sampler_is_without_fault(monkeypatch, one, policy, fanouts, flag, events):
    use(monkeypatch, flag=flag)
    assert one.unavailable() == ""
    nodes, times = batch_roots(events, 700, 40)
    assert quality(one, events, nodes, times, policy, fanouts) == CLEAN


@BOTH
@pytest.mark.parametrize("shift", [0.0, 0.25])
def test_times_of_roots_are_strict_and_their_own(monkeypatch, one, shift):
    """One vertex at several times, before all edges, at an edge's time and between two."""
    library = use(monkeypatch)
    t = torch.tensor([2, 2, 3, 5, 8]).double() + shift
    events = ContenderEvents(6, torch.tensor([0, 0, 1, 0, 4]), torch.tensor([1, 2, 2, 0, 4]), t)
    nodes = torch.tensor([0, 0, 3, 0, 0, 2, 4])
    times = torch.tensor([2, 3, 9, 2.5, 9, 2.1, 9]).double() + shift
    for policy in ("recent", "uniform"):
        assert quality(one, events, nodes, times, policy) == CLEAN
    made = one()
    made.build(events)
    assert bool(made.remarks()) == bool(shift)  # ranks are told
    before = len(library.calls)
    root, eid = made.first_hop(made.sample(nodes[:1], times[:1], [5], "recent"))
    assert root.numel() == eid.numel() == 0
    assert len(library.calls) == before  # nobody has an edge: nothing is asked


def test_an_edge_of_the_roots_own_time_is_told(monkeypatch, events):
    use(monkeypatch, strict=False)
    nodes, times = batch_roots(events, 700, 40)
    assert quality(CuGraph, events, nodes, times, "recent")["leaks"] > 0


@pytest.mark.parametrize(("begin", "marked"), [(0, False), (2**53, False), (1.7e18, True)])
def test_times_that_last_ranks_inexactly_are_marked(monkeypatch, begin, marked):
    use(monkeypatch)
    ends = torch.arange(40) % 5
    times = begin - 1000.0 * torch.arange(40).double().flip(0)
    events = ContenderEvents(5, ends, (ends + 1) % 5, times)
    made = CuGraph()
    made.build(events)
    assert any("2^53" in remark for remark in made.remarks()) == marked
    made.add(events, 20)
    assert any("2^53" in remark for remark in made.remarks()) == marked


def test_a_release_without_last_samples_uniformly(monkeypatch, events):
    use(monkeypatch, last=False)
    assert CuGraph.unavailable() == ""
    made = CuGraph()
    made.build(events)
    assert made.policies == ("uniform",)
    assert any("'recent'" in remark for remark in made.remarks())


def test_what_is_missing_is_a_gap_with_its_reason(monkeypatch):
    experiment = contenders.Contenders()
    for name in ("cugraph", "cugraph-window"):
        if CONTENDERS[name].absent():
            (cell,) = [
                c for c in experiment.cells("full", "cuda") if c.params["contenders"] == name
            ]
            assert "dgbench[rapids]" in cell.unavailable
    library = use(monkeypatch)
    monkeypatch.setattr(CuGraph, "device", "cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "CUDA device" in CuGraph.unavailable()
    del library.neighbor_sample
    install(monkeypatch, library)
    assert "26.10" in CuGraph.unavailable()


def test_it_is_judged_and_raced_like_the_others(monkeypatch, events):
    use(monkeypatch)
    late = ContenderEvents(events.num_vertices, events.src, events.dst, events.t + 1.7e18)
    names = ("blocks", "cugraph", "cugraph-window")
    monkeypatch.setattr(contenders, "CONTENDERS", {n: CONTENDERS[n] for n in names})
    monkeypatch.setattr(CuGraph, "origin", classmethod(lambda cls: "a stand-in"))
    monkeypatch.setattr(contenders, "LEFT_OUT", {})
    monkeypatch.setattr(contenders, "BATCHES", (20,))
    monkeypatch.setattr(contenders, "RACES", {"smoke": ((1, 20), (2, 20))})
    found = contenders.measure(late, {}, RunContext("cpu", "smoke", 1))
    for name in names:
        for policy in ("recent", "uniform"):
            which = {"setting": name, "policy": policy, "batch": 20}
            marks = [number(found, "portion", statistic=m, **which) for m in contenders.MARKS]
            assert marks == [1, 0, 0]
            assert number(found, "operation_time", layers=2, **which) > 0
    assert any(note.startswith("cuGraph: times above 2^53") for note in found.notes)


@pytest.fixture
def whole(monkeypatch) -> SlowWholeGraph:
    """A stand-in where pylibwholegraph would be, on the CPU."""
    package, library = ModuleType("pylibwholegraph"), SlowWholeGraph()
    package.torch = library
    monkeypatch.setitem(sys.modules, "pylibwholegraph", package)
    monkeypatch.setitem(sys.modules, "pylibwholegraph.torch", library)
    monkeypatch.setattr(WholeGraphCache, "device", "cpu")
    return library


def test_wholegraph_gives_the_rows_of_the_table(whole):
    table, threads = torch.rand(20, 3), torch.get_num_threads()
    cache = WholeGraphCache(table, 5)
    assert whole.policy[-1] == 0.25
    assert torch.get_num_threads() == threads
    ids = torch.tensor([3, 19, 3, 0])
    assert torch.equal(cache.fetch(ids), table[ids])
    for capacity in (0, 21):
        with pytest.raises(InvalidInputError, match=f"capacity is {capacity}"):
            WholeGraphCache(table, capacity)


def test_caches_are_compared_with_the_table_before_they_count(whole):
    preset = "smoke"
    graph = BY_NAME["college-msg"]
    accesses = Accesses(graph, "tgn", preset, batch=cache_ablation.EVENTS[preset], chunks=1)
    context = RunContext("cpu", preset, 1)
    found = cache_ablation.race_on_device(accesses, context)
    assert number(found, "speedup", baseline=cache_ablation.WHOLEGRAPH) > 0
    whole.gather = lambda ids: whole._rows[ids] + 1
    wrong = [c for c in cache_ablation.race_on_device(accesses, context).checks if not c.passed]
    assert [check.of for check in wrong] == ["rows"]
    assert "WholeGraph" in wrong[0].part


@pytest.mark.parametrize(("device", "said"), [("cpu", "CUDA device"), ("cuda", "dgbench[rapids]")])
def test_without_wholegraph_its_race_is_a_gap(device, said):
    if not WholeGraphCache.absent():
        pytest.skip("pylibwholegraph is installed")
    cells = cache_ablation.CacheAblation().cells("quick", device)
    (cell,) = [c for c in cells if c.params["part"] == "device"]
    assert said in cell.unavailable
