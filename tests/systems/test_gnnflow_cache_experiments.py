"""Samples for cache experiments, the laws of access, and checks of their rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gnnflow_rows import by, judged, row
from paper_rows import answered_by

from dgbench.datasets import EventStream
from dgbench.harness.store.row import Row
from dgbench.lab.laws import fit, gini
from dgbench.lab.table import observation
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.gnnflow import PAPER
from dgbench.systems.gnnflow import claims as table
from dgbench.systems.gnnflow.checks import cache as cache_checks
from dgbench.systems.gnnflow.checks import traffic
from dgbench.systems.gnnflow.experiments import accesses, table3, table4
from dgbench.systems.gnnflow.experiments import cache_play as play
from dgbench.systems.gnnflow.experiments.settings import BY_NAME
from dgbench.systems.gnnflow.plain_cache import ListedCache, TorchCache
from dgbench.systems.gnnflow.rounds import Round


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> EventStream:
    """300 events in 30 rounds of a day between 12 and 8 vertices."""
    draw = torch.Generator().manual_seed(2)
    src = torch.randint(0, 12, (300,), generator=draw)
    dst = torch.randint(12, 20, (300,), generator=draw)
    t = torch.arange(300).double() * 8640.0
    made = EventStream.build(src, dst, t, num_nodes=20, num_src=12)
    monkeypatch.setattr("dgbench.datasets.open_events", lambda *_: made)
    return made


def opened(model: str = "tgn", **fields: Any) -> accesses.Accesses:
    return accesses.Accesses(BY_NAME["college-msg"], model, "quick", **fields)


@pytest.mark.parametrize("model", ["tgn", "tgat", "dysat"])
def test_no_edge_at_or_after_its_batch(stream: EventStream, model: str) -> None:
    run = opened(model, batch=10, chunks=1)
    for access in run.epoch(Round(0, 200, 210)):
        assert access.edges.numel() > 0
        assert int(access.edges.max()) < 210  # each event is a moment of its own
    first = run.batch(torch.tensor([0]))
    assert first.edges.numel() == 0
    nodes = 3 * run.task.snapshots
    assert first.nodes.numel() == nodes


def test_eight_share_the_events_and_draw_anew(stream: EventStream) -> None:
    shared = opened(gpus=8, batch=5, chunks=1)
    assert sum(a.events for a in shared.epoch(Round(0, 0, 80))) == 10
    run = opened("tgat", batch=50, chunks=1)
    one, again, other = (next(iter(run.epoch(Round(0, 200, 250), e))) for e in (0, 0, 1))
    assert torch.equal(one.edges, again.edges)
    assert not torch.equal(one.nodes[100:150], other.nodes[100:150])  # negatives


def test_traffic_is_counted_by_hand(stream: EventStream) -> None:
    run = opened(batch=30, chunks=1)
    found, check = table3.count(run, 3)
    assert check.passed
    assert found["events"] == 90
    assert found["node", "unique"] <= 3 * 20
    assert found["edge", "unique"] <= found["edge", "requests"]
    assert found["node", "requests"] == found["edge", "requests"] + 3 * 90
    ids = torch.tensor([4, 4, 9, 0, 9])
    assert table3.different(table3.RowCache(10, 1, 0), ids) == 3
    counts = {("node", "unique"): 10, ("edge", "unique"): 20}
    graph = SimpleNamespace(node_dim=100, edge_dim=50)
    assert table3.share(counts, "tgn", graph, "unique") == pytest.approx(1 / 2)
    assert table3.share(counts, "tgn", graph, "unique memory") == pytest.approx(1 / 3)


def test_sets_in_common() -> None:
    a, b = (torch.tensor(x).bool() for x in ([1, 1, 0, 1], [0, 1, 1, 1]))
    assert table4.jaccard(a, b) == 1 / 2
    assert table4.contained(a, b) == pytest.approx(2 / 3)
    assert table4.jaccard(a & ~a, b & ~b) == 0


@pytest.mark.parametrize("kind", ["node", "edge"])
def test_played_caches_serve_the_same_requests(stream: EventStream, kind: str) -> None:
    played = play.record(BY_NAME["college-msg"], "tgn", "quick", 4, 100, gpus=1, batch=5)
    asked = sum(access.of(kind).numel() for access in played.counted())
    everything = 1 / BY_NAME["college-msg"].edge_cache  # room for all ids
    dynamic = play.dynamic(played, play.narrow(played, kind, everything), kind)
    static, stale = play.static(
        played, play.narrow(played, kind, everything, "static"), kind, every=2
    )
    assert dynamic.requests == static.requests == asked
    assert dynamic.hits > 0
    assert stale.requests < static.requests
    assert stale.hits <= static.hits
    cold = play.dynamic(played, play.narrow(played, kind, 1.0), kind, reuse=False)
    assert cold.requests == asked


def test_laws_are_told_apart() -> None:
    draw = np.random.default_rng(4)
    power, exponential = draw.zipf(2.2, 4000), draw.geometric(0.05, 4000)
    assert fit(power).nearer == "power law"
    assert fit(power).exponent == pytest.approx(2.2, abs=0.1)
    assert fit(exponential).nearer == "exponential"
    assert fit(exponential).rate == pytest.approx(-np.log1p(-0.05), rel=0.1)
    assert fit(np.append(power, np.zeros(50, int)), 2).n == int((power >= 2).sum())
    with pytest.raises(InvalidInputError, match="different"):
        fit(np.array([3, 3, 3]))
    assert gini(np.ones(9)) == pytest.approx(0)
    assert gini(np.array([0, 0, 0, 8])) == pytest.approx(0.75)
    assert gini(np.zeros(0)) == 0


@pytest.mark.parametrize("kept", [TorchCache, ListedCache])
def test_other_caches_give_the_rows(kept: type) -> None:
    table = torch.rand(60, 4)
    cache = kept(table, 7)
    for ids in torch.randint(0, 60, (20, 11)):
        assert torch.equal(cache.fetch(ids), table[ids])
    assert 0 < cache.hits < cache.requests == 220
    with pytest.raises(InvalidInputError):
        cache.fetch(torch.tensor([60]))
    with pytest.raises(InvalidInputError, match="capacity"):
        kept(table, 0)


def test_every_check_says_what_it_needs() -> None:
    claim = {c.id: c for c in _ledger()}
    for name in answered_by(table.CHECKS, traffic, cache_checks):
        finding = PAPER.checks[name](claim[name], [])
        assert finding.measured is None
        assert finding.holds is None
        assert finding.reason


def _ledger() -> list[Any]:
    from dgbench.harness.claims.ledger import load_ledger

    return list(load_ledger(PAPER.ledger))


def test_checks_follow_the_numbers() -> None:
    claim = {c.id: c for c in _ledger()}
    printed = claim["gnnflow-tab3-tgat"].value
    for shift, holds in ((2.0, True), (-9.0, False)):
        rows = []
        for name, value in printed.items():
            shares = dict.fromkeys(("tgn", "tgat", "dysat"), (value + shift) / 100)
            told = by("portion", "model", shares, setting="unique memory")
            told += by("portion", "model", dict.fromkeys(shares, 0.2), setting="requests memory")
            rows.append(row("table3", {"dataset": name.lower()}, told))
        found, verdict = judged("tab3-tgat", rows)
        assert found.readings["once a batch"].holds is holds
        assert found.readings["every sample"].holds is False
        assert verdict.glyph == "v"
    name = "gnnflow-fig14d-static-edge-below-dynamic"
    for dynamic, holds in ((0.3, True), (0.1, False)):
        rates = {"dynamic": dynamic, "static": 0.2, "static with reuse": 0.15}
        twin = hits_row("netflix", rates)
        assert table.CHECKS[name](claim[name], [twin]).holds is holds
        other = hits_row("wikipedia", rates | {"dynamic": 0.3})
        found, verdict = judged(name, [twin, other])  # it has to hold on every workload
        assert found.holds is holds
        assert verdict.strength == "weak"
        assert len(found.rows) == 2


def hits_row(dataset: str, rates: dict[str, float]) -> Row:
    hits = by("hit_rate", "setting", rates, of="edge", capacity=1.0)
    return row("fig14", {"dataset": dataset, "part": "hits", "model": "tgn"}, hits)


def ablation_rows(lead: float, twin: bool = False) -> list[Row]:
    rates = dict.fromkeys(("lru", "lfu", "fifo", "lambda 1", "lambda 0.05", "neither"), 0.2)
    rates["lru"] += lead
    told = [
        one
        for gpus in (8, 1)
        for kind in ("node", "edge")
        for one in by("hit_rate", "setting", rates, ranks=gpus, of=kind)
    ]
    return [
        row(
            "cache_ablation", {"part": "hits", "dataset": name, "model": "tgn"}, told,
            data={"twin": twin, "scale": 1.0},
        )
        for name in ("wikipedia", "sx-mathoverflow", "college-msg")
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["s62-lru-best-dynamic", "s43-lambda-stabilises"])
def test_a_lead_of_a_hundredth_of_a_point_is_none(name: str) -> None:
    for lead, agreement in ((0.01, "value"), (0.0001, "undecided"), (-0.01, "opposite")):
        verdict = judged(name, ablation_rows(lead))[1]
        assert (verdict.agreement, verdict.strength, verdict.source) == (
            agreement, "strong", "counted"
        )  # fmt: skip
    assert judged(name, ablation_rows(0.01)[:2])[1].agreement == "undecided"
    assert judged(name, ablation_rows(0.01, twin=True))[1].glyph == "-"


def law_row(dataset: str, node: float, edge: float, *, twin: bool = False) -> Row:
    told = [
        observation("likelihood_z", z, model=model, task="link", of=kind, setting="upper half")
        for model in ("tgat", "tgn")
        for kind, z in (("node", node), ("edge", edge))
    ]
    return row("fig5", {"dataset": dataset}, told, data={"twin": twin, "scale": 1.0})


def test_laws_are_judged_on_real_streams() -> None:
    twin = law_row("reddit", -9.0, 9.0, twin=True)
    rows = [twin, law_row("wikipedia", 9.0, -9.0), law_row("sx-mathoverflow", 9.0, -9.0)]
    for name in ("fig5-node-access-powerlaw", "fig5-edge-access-exponential"):
        assert judged(name, rows)[1].agreement == "value"
        assert judged(name, [twin])[1].glyph == "-"
    bent = [*rows[:2], law_row("sx-mathoverflow", -9.0, 9.0)]
    assert judged("fig5-node-access-powerlaw", bent)[1].agreement == "opposite"
    assert judged("fig5-other-workloads", rows)[1].agreement == "value"
    open_ = [law_row("wikipedia", 0.5, -9.0)]
    assert judged("fig5-other-workloads", open_)[1].agreement == "undecided"
    apart = [law_row("wikipedia", 0.5, 9.0)]
    assert judged("fig5-other-workloads", apart)[1].agreement == "opposite"


def test_skew_is_judged_by_task() -> None:
    index = {"link": 0.2, "vertex": 0.2, "tenth": 0.8}
    told = by("gini_index", "task", index, model="graphsage", of="edge")
    found, verdict = judged("s43-static-gnn-edge-skew", [row("fig5", {"dataset": "enron"}, told)])
    assert [one.holds for one in found.readings.values()] == [False, False, True]
    assert verdict.glyph == "v"
    even = by("gini_index", "task", dict.fromkeys(index, 0.2), model="graphsage", of="edge")
    found, verdict = judged("s43-static-gnn-edge-skew", [row("fig5", {"dataset": "enron"}, even)])
    assert (verdict.strength, verdict.agreement) == ("strong", "opposite")
