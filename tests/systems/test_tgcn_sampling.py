"""T-GCN's sampling experiments on small sets, and what checks say of times made by hand."""

from __future__ import annotations

import pytest
import torch
from tgcn_rows import asked, judged, made, observation, ran

from dgbench.harness.store.row import Row
from dgbench.lab.table import Table
from dgbench.systems.base import Finding
from dgbench.systems.tgcn import frontier, sampling_tasks, single_draws
from dgbench.systems.tgcn.experiments import depth, fig7, fig8
from dgbench.systems.tgcn.findings.draws import per_decade
from dgbench.systems.tgcn.methods import (
    ITS,
    LINEAR,
    TITLES,
    arity_of,
    name_of,
    series_of,
    timed,
)

SIZES = (1_000, 10_000, 100_000, 1_000_000)


@pytest.fixture(autouse=True)
def private_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path_factory.getbasetemp() / "tgcn-paper"))
    monkeypatch.delenv("DGBENCH_DATA", raising=False)
    yield
    frontier.ring_of.cache_clear()


def test_methods_have_names() -> None:
    assert set(LINEAR) < set(ITS) < set(TITLES)
    assert (name_of("sis8"), arity_of("sis8"), arity_of("sis")) == ("sis", 8, 2)
    assert len(set(TITLES.values())) == len(TITLES)


def test_turns_alternate_and_the_first_is_dropped() -> None:
    order: list[str] = []
    seconds: dict[str, list[float]] = {}
    for turn in (-1, 0, 1):
        timed({name: lambda name=name: order.append(name) for name in "ab"}, seconds, turn)
    assert order == ["b", "a", "a", "b", "b", "a"]
    assert {name: len(found) for name, found in seconds.items()} == {"a": 2, "b": 2}


# Figure 8.


@pytest.fixture(scope="module")
def small_fig8():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(single_draws.SIZES, "smoke", (64, 1024))
        patch.setattr(single_draws, "READ", 100_000)
        patch.setattr(single_draws, "DRAWS", 2_000)
        patch.setattr(frontier, "READ", 100_000)
        patch.setattr(frontier, "STEPS", 500)
        return ran("fig8", {"weights": "equal"})


def test_counts_of_draws(small_fig8) -> None:
    found, verdict = judged("s3-sis-no-repeats", [small_fig8])
    assert found.measured.startswith("0 of ")
    assert verdict.verdict == "reproduced"
    for name in ("s3-sis-query-complexity", "s3-sis-modify-complexity", "s3-tree-height-example"):
        assert judged(name, [small_fig8])[1].verdict == "reproduced", name
    assert judged("s2-brs-complexity", [small_fig8])[1].verdict == "reproduced"
    assert judged("s2-its-complexity", [small_fig8])[1].verdict == "reproduced"
    found, verdict = judged("s3-sis-total-complexity", [small_fig8])
    assert verdict.verdict == "direction only"
    assert "ITS bitmap" in found.measured["not linear"]
    assert "ITS scan" in found.measured["linear"]


def test_figure_8_is_drawn(small_fig8) -> None:
    for figure in fig8.Fig8().figures():
        points = figure.points([small_fig8])
        name, value = ("system", "seconds") if figure.kind == "correctness" else ("series", "y")
        assert {"SIS", "BRS"} <= {point[name].replace("tgcn", "SIS") for point in points}
        assert all(point[value] > 0 for point in points if "failed" not in point)
    assert fig8.Fig8().answer([small_fig8])


def test_half_of_a_large_set_is_left_out(small_fig8) -> None:
    gaps = [p for p in fig8.time_points([small_fig8]) if "failed" in p]
    assert {(p["series"], p["x"]) for p in gaps} == {(series_of(name), 1024) for name in LINEAR}
    assert all(p["failed"].startswith("skipped: ") for p in gaps)


def grown(**factors) -> Row:
    """A row of figure 8 by the growth of its forms for ten times the set."""
    found = [
        observation("sampling_time", 1e-7, method="sis", setting="ready", size=n) for n in SIZES
    ]
    for name, factor in factors.items():
        method, setting = name.split("__")
        found += [
            observation("growth", factor, method=method, setting=setting, size=n) for n in SIZES[1:]
        ]
    return made("fig8", {"weights": "equal"}, found, deviation={"repeats": 0.0})


LINEARLY = {
    "its_linear__ready": 10.0, "its_list__half": 10.0, "its_rebuild__ready": 10.0,
    "brs__replaced": 9.0,
}  # fmt: skip


def test_growth_of_draws() -> None:
    row = grown(sis__ready=1.4, sis__half=1.3, its_bitmap__ready=1.3, brs__ready=1.5, **LINEARLY)
    assert judged("fig8-sis-flat", [row])[1].verdict == "reproduced"
    found, verdict = judged("fig8-its-brs-grow", [row])
    assert verdict.verdict == "direction only"
    assert "ITS bitmap" in found.reason
    found, verdict = judged("fig8-order", [row])
    assert verdict.verdict == "direction only"
    assert "ITS bitmap no worse" in found.reason
    row = grown(sis__ready=1.4, sis__half=1.3, **LINEARLY)
    assert judged("fig8-its-brs-grow", [row])[1].verdict == "reproduced"
    assert judged("fig8-order", [row])[1].verdict == "reproduced"
    steep = grown(sis__ready=4.0, sis__half=1.3, **LINEARLY)
    assert judged("fig8-sis-flat", [steep])[0].direction is False
    assert per_decade({}) is None


# Figure 7.


@pytest.fixture(scope="module")
def small_fig7():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sampling_tasks.STEPS, "smoke", 20)
        patch.setitem(sampling_tasks.READ, "smoke", 1e6)
        return ran("fig7", {"dataset": "lastfm"})


def test_sampling_is_raced(small_fig7) -> None:
    row = small_fig7
    for task in sampling_tasks.TASKS:
        ways = sampling_tasks.FRONTIERS if task.startswith("subgraph") else sampling_tasks.POOLED
        for way in ways[1:]:
            raced = fig7.gain(row, task, way) is not None
            assert raced != bool(fig7.left_out(row, task, way)), (task, way)
    slots = Table.of([row]).where("vertices", setting="subgraph 10^4", of="frontier")
    assert slots.get() == 10_000  # more than there are vertices
    for figure in fig7.Fig7().figures():
        points = figure.points([row])
        assert len(points) == len({(p["panel"], p["row"]) for p in points})
    assert fig7.Fig7().answer([row])
    for name in fig7.Fig7().claims:
        assert isinstance(asked(name.removeprefix("tgcn-"), [row]), Finding)


FIRST = "subgraph 10^4"


def raced(dataset, task="", gains=None, edges=1000, seconds=None) -> Row:
    """A row of figure 7 by the gains of SIS over other ways, and the seconds of a call."""
    found = [
        observation("edges", edges),
        observation("vertices", 100),
        observation("edges", 500, setting="node 2", of="pool", method="mean"),
        observation("vertices", 10_000, setting=FIRST, of="frontier"),
        observation("draw_work", 1_000, setting=FIRST, of="draws"),
    ]
    found += [
        observation("speedup", g, low=g * 0.9, high=g * 1.1, setting=task, baseline=way)
        for way, g in (gains or {}).items()
    ]
    found += [
        observation("sampling_time", s, setting=FIRST, method=way)
        for way, s in (seconds or {}).items()
    ]
    return made("fig7", {"dataset": dataset}, found, data={"twin": True})


def test_gains_by_form() -> None:
    gains = dict(zip(ITS, (8.0, 0.7, 6.0, 9.0), strict=True))
    rows = [
        raced("lastfm", "node 2", gains),
        raced("wikipedia", "node 2", {**gains, "its_linear": 80.0}),
    ]
    found, verdict = judged("fig7-nodewise-2layer", rows)
    assert found.measured["ITS scan"] == "8x"
    assert found.measured["ITS bitmap"] == "0.7x"
    assert "ahead of ITS scan, ITS list, ITS rebuild" in found.reason
    assert "real graphs: ITS scan 80x" in found.reason
    assert verdict.verdict == "direction only"
    behind = [raced("lastfm", "node 2", dict.fromkeys(gains, 0.5))]
    assert judged("fig7-nodewise-2layer", behind)[1].other_way
    same = [raced("lastfm", "node 2", dict.fromkeys(gains, 1.02))]
    assert asked("fig7-nodewise-2layer", same).undecided


def test_the_largest_gain() -> None:
    rows = [
        raced("lastfm", FIRST, {"brs": 60.0, "brs rest": 30.0}),
        raced("wikipedia", FIRST, {"brs": 90.0}),
    ]
    found, verdict = judged("abs-sampling-max-speedup", rows)
    assert (found.measured, found.target) == (pytest.approx(60.0), 38.8)
    assert "BRS half 30x" in found.reason
    assert verdict.verdict == "direction only"
    row = raced("twitter", seconds=dict.fromkeys(("brs", "brs rest", "sis"), 3.7e-3))
    found, verdict = judged("s1-brs-twitter-time", [row])
    assert found.measured == pytest.approx(1.5, abs=0.01)
    assert verdict.glyph == "p"


def test_degrees_and_gains() -> None:
    def rows(dense, sparse):
        return [
            raced("lastfm", "node 2", dict.fromkeys(ITS, dense), edges=10_000),
            raced("flickr", "node 2", dict.fromkeys(ITS, sparse), edges=200),
        ]

    assert asked("fig7-degree-trend", rows(9.0, 3.0)).holds
    assert asked("fig7-degree-trend", rows(3.0, 9.0)).holds is False
    assert judged("fig7-degree-trend", rows(3.0, 9.0)[:1])[1].verdict == "not run here"


# Frontiers and depth.


def test_a_frontier_steps() -> None:
    table = frontier.ring_of(500)
    assert table.num_nodes == 500
    assert int(table.degrees.min()) > 0
    sample = frontier.walk("brs", 500, 40)
    assert sample.stats.draws == 40
    assert sample.stats.elements_scanned == 40 * 500  # the whole table, each step
    assert frontier.walk("sis", 500, 40).stats.elements_scanned == 0
    assert frontier.frontier_calls(frontier.MAX_FRONTIER + 1) == {}


def test_depth_is_counted() -> None:
    table = frontier.ring_of(2_000)
    drawn = depth.samples(table, torch.arange(20))
    found = {way: depth.counts(sample) for way, sample in drawn.items()}
    assert found["node"][0] <= depth.FANOUT
    assert found["node"][2] > 2 * found["node"][1]
    assert found["layer"] == [20 * 8 if n < 0 else n for n in found["layer"]]
    assert max(found["layer"]) <= depth.WIDTH
