"""pylibcugraph by a slow stand-in that follows its documented calls."""

from __future__ import annotations

import pytest
import torch
from slow_rapids import SlowCuGraph, install

from dgbench.systems.gnnflow.contenders import ContenderEvents, ReferenceResult
from dgbench.systems.gnnflow.contenders.rapids import CuGraph, CuGraphWindow
from dgbench.systems.gnnflow.contenders.stream import batch_roots, synthetic_events

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
    graph = one()
    graph.build(events)
    answer = graph.first_hop(graph.sample(nodes, times, fanouts, policy))
    found = ReferenceResult(events).judge(nodes, times, fanouts[0], policy, *answer)
    return {key: getattr(found, key) for key in CLEAN}


@BOTH
@pytest.mark.parametrize("policy", ["recent", "uniform"])
@pytest.mark.parametrize("fanouts", [(10,), (10, 3)])
def test_a_documented_sampler_is_without_fault(monkeypatch, one, policy, fanouts, events):
    use(monkeypatch)
    assert one.unavailable() == ""
    nodes, times = batch_roots(events, 700, 40)
    assert quality(one, events, nodes, times, policy, fanouts) == CLEAN


@BOTH
@pytest.mark.parametrize("shift", [0.0, 0.25])
def test_times_of_roots_are_strict_and_their_own(monkeypatch, one, shift, events):
    """One vertex at several times, before all edges, at an edge's time and between two."""
    use(monkeypatch, strict=False)
    assert quality(CuGraph, events, *batch_roots(events, 700, 40), "recent")["leaks"] > 0
    library = use(monkeypatch)
    t = torch.tensor([2, 2, 3, 5, 8]).double() + shift
    events = ContenderEvents(6, torch.tensor([0, 0, 1, 0, 4]), torch.tensor([1, 2, 2, 0, 4]), t)
    nodes = torch.tensor([0, 0, 3, 0, 0, 2, 4])
    times = torch.tensor([2, 3, 9, 2.5, 9, 2.1, 9]).double() + shift
    for policy in ("recent", "uniform"):
        assert quality(one, events, nodes, times, policy) == CLEAN
    graph = one()
    graph.build(events)
    assert bool(graph.remarks()) == bool(shift)  # ranks are told
    before = library.calls
    root, eid = graph.first_hop(graph.sample(nodes[:1], times[:1], [5], "recent"))
    assert root.numel() == eid.numel() == 0
    assert library.calls == before  # nobody has an edge: nothing is asked


def test_what_a_release_lacks_is_a_gap(monkeypatch, events):
    library = use(monkeypatch, last=False)
    graph = CuGraph()
    graph.build(events)
    assert graph.policies == ("uniform",)
    monkeypatch.setattr(CuGraph, "device", "cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "CUDA device" in CuGraph.unavailable()
    del library.neighbor_sample
    install(monkeypatch, library)
    assert "26.10" in CuGraph.unavailable()
