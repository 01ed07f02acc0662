"""T-GCN's sampling experiments on small sets, and what checks say of times made by hand."""

from __future__ import annotations

import pytest
import torch
from msgspec import structs
from tgcn_rows import asked, five, glyphs, judged, observation, ran

from dgbench.harness.store.row import Row
from dgbench.lab.table import Table
from dgbench.systems.base import Finding
from dgbench.systems.tgcn import frontier, sampling_tasks, single_draws
from dgbench.systems.tgcn.experiments import depth, fig7, fig8
from dgbench.systems.tgcn.experiments.fig8 import per_decade
from dgbench.systems.tgcn.methods import (
    ITS,
    LINEAR,
    TITLES,
    arity_of,
    name_of,
    series_of,
    timed,
)
from dgbench.systems.tgcn.settings import TWIN_NAMES

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
    for name in ("s3-sis-query-complexity", "s3-sis-modify-complexity"):
        assert judged(name, [small_fig8])[1].verdict == "reproduced", name
    assert judged("s3-tree-height-example", [small_fig8])[1].verdict == "by definition"
    assert judged("s2-brs-complexity", [small_fig8])[1].verdict == "reproduced"
    assert glyphs("s2-its-complexity", [small_fig8]) == "v(RRRXX)"
    assert glyphs("s3-sis-total-complexity", [small_fig8]) == "v(RRRXX)"


def test_other_counts_turn_the_verdicts(small_fig8) -> None:
    def changed(change):
        own = [
            structs.replace(one, value=change(one)) if one.metric == "draw_work" else one
            for one in small_fig8.observed
        ]
        return [structs.replace(small_fig8, observed=own)]

    def more(*of):
        return changed(lambda one: one.value + 1000 * (one.dims["of"] in of))

    assert glyphs("s3-sis-query-complexity", more("search")) == "X"
    assert glyphs("s3-sis-modify-complexity", more("modify")) == "X"
    assert glyphs("s3-sis-no-repeats", more("redraws")) == "X"
    level = changed(lambda one: 500 if one.dims["of"] == "read" else one.value)
    assert glyphs("s2-brs-complexity", level) == "X"


def test_figure_8_is_drawn(small_fig8) -> None:
    for figure in fig8.Fig8().figures():
        points = figure.points([small_fig8])
        name, value = ("system", "seconds") if figure.kind == "correctness" else ("series", "y")
        assert {"SIS", "BRS"} <= {point[name].replace("tgcn", "SIS") for point in points}
        assert all(point[value] > 0 for point in points if "failed" not in point)
    assert fig8.Fig8().answer([small_fig8])


def test_draws_that_building_hides_are_no_observations(monkeypatch) -> None:
    def as_long(calls, spent, turn) -> None:
        for call in calls:
            spent.setdefault(call, []).append(1.0)

    monkeypatch.setitem(single_draws.SIZES, "smoke", (64, 1024))
    monkeypatch.setattr(single_draws, "timed", as_long)
    found = single_draws.measure("equal", "smoke", control=True).observations
    assert {o.dims["setting"] for o in found if o.metric == "sampling_time"} == {"half"}
    assert {o.dims["setting"] for o in found if o.metric == "speedup"} == {"half"}


def test_half_of_a_large_set_is_left_out(small_fig8) -> None:
    gaps = [p for p in fig8.time_points([small_fig8]) if "failed" in p]
    assert {(p["series"], p["x"]) for p in gaps} == {(series_of(name), 1024) for name in LINEAR}
    assert all(p["failed"].startswith("skipped: ") for p in gaps)


def grown(spread=0.01, **factors) -> list[Row]:
    """Rows of figure 8 by the growth of its forms for ten times the set."""
    found = [
        observation("sampling_time", 1e-7, method="sis", setting="ready", size=n) for n in SIZES
    ]
    for name, factor in factors.items():
        method, setting = name.split("__")
        found += [
            observation("growth", factor, method=method, setting=setting, size=n) for n in SIZES[1:]
        ]
    return five("fig8", {"weights": "equal"}, found, spread=spread, deviation={"repeats": 0.0})


LINEARLY = {
    "its_linear__ready": 10.0, "its_list__half": 10.0, "its_rebuild__ready": 10.0,
    "brs__replaced": 9.0,
}  # fmt: skip


def test_growth_of_draws() -> None:
    rows = grown(sis__ready=1.4, sis__half=1.3, its_bitmap__ready=1.3, brs__ready=1.5, **LINEARLY)
    assert glyphs("fig8-sis-flat", rows) == "R"
    assert glyphs("fig8-its-brs-grow", rows) == "v(RRRXRX)"
    assert glyphs("fig8-order", rows) == "v(RRRXRR)"
    rows = grown(sis__ready=1.4, sis__half=1.3, **LINEARLY)
    assert glyphs("fig8-its-brs-grow", rows) == "S(RRR-R-)"  # a form that did not run is no loss
    assert glyphs("fig8-sis-flat", grown(sis__ready=4.0, sis__half=1.3)) == "X"


def test_growth_inside_the_noise_decides_nothing() -> None:
    near = grown(sis__ready=1.98, sis__half=1.3, its_linear__ready=2.05, spread=0.1)
    assert glyphs("fig8-sis-flat", near) == "u"
    assert judged("fig8-order", near)[1].readings["ITS scan"] == "undecided"
    clear = grown(sis__ready=1.4, sis__half=1.3)
    assert glyphs("fig8-sis-flat", clear[:1]) == "u"  # one process has no interval
    assert glyphs("fig8-sis-flat", clear[:4]) == "S"  # four are no strong evidence
    assert glyphs("fig8-sis-flat", clear, floor=0.6) == "u"
    assert per_decade([], "sis", "ready") is None


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
            raced = fig7.gain([row], task, way) is not None
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


def raced(dataset, task="", gains=None, edges=1000, seconds=None, spread=0.01) -> list[Row]:
    """Rows of figure 7 by the gains of SIS over other ways, and the seconds of a call."""
    found = [
        observation("edges", edges),
        observation("vertices", 100),
        observation("vertices", 10_000, setting=FIRST, of="frontier"),
        observation("draw_work", 1_000, setting=FIRST, of="draws"),
    ]
    found += [
        observation("speedup", g, setting=task, baseline=way) for way, g in (gains or {}).items()
    ]
    found += [
        observation("sampling_time", s, setting=setting, method=method)
        for (setting, method), s in (seconds or {}).items()
    ]
    params = {"dataset": dataset}
    return five("fig7", params, found, spread=spread, data={"dataset": dataset, "twin": True})


def on_all(task: str, gains) -> list[Row]:
    return [row for name in TWIN_NAMES for row in raced(name, task, gains)]


def test_each_form_of_the_baseline_is_a_reading() -> None:
    gains = dict(zip(ITS, (8.0, 0.7, 1.01, 9.0), strict=True))
    rows = on_all("node 2", gains)
    found, verdict = judged("fig7-nodewise-2layer", rows)
    assert glyphs("fig7-nodewise-2layer", rows) == "v(sOus)"
    assert found.readings["ITS scan"].measured["low"] == pytest.approx(8.0, rel=0.01)
    assert not verdict.side
    assert "(twin)" in found.readings["ITS scan"].reason
    # No graph of others counts, and one graph behind is not ahead everywhere.
    assert glyphs("fig7-nodewise-2layer", raced("wikipedia", "node 2", gains)) == "-"
    mixed = [*on_all("node 2", gains)[5:], *raced("lastfm", "node 2", {"its_linear": 0.5})]
    assert judged("fig7-nodewise-2layer", mixed)[1].readings["ITS scan"] == "opposed"


def test_a_range_is_met_by_all_four_graphs_alone() -> None:
    rows = [
        row
        for name, gain in zip(TWIN_NAMES, (5.4, 8.0, 9.0, 11.9), strict=True)
        for row in raced(name, "node 2", dict.fromkeys(ITS, gain))
    ]
    assert glyphs("fig7-nodewise-2layer", rows) == "S(SSSS)"
    assert glyphs("fig7-nodewise-2layer", rows[5:]) == "s(ssss)"
    assert glyphs("fig7-nodewise-2layer", rows, floor=9.0) == "u(uuuu)"


def test_the_largest_gain_depends_on_the_frontier() -> None:
    rows = raced("lastfm", FIRST, {"brs": 40.0, "brs rest": 20.0})
    rows += raced("flickr", "subgraph 10%", {"brs": 5.0, "brs rest": 0.5})
    assert glyphs("abs-sampling-max-speedup", rows) == "v(SssO)"
    assert glyphs("fig7-subgraph", rows) == "v(sssO)"


def test_hours_of_twitter() -> None:
    seconds = {(FIRST, "brs"): 7.4e-3, (FIRST, "brs rest"): 3.7e-3}
    rows = raced("twitter", seconds=seconds)
    found, verdict = judged("s1-brs-twitter-time", rows)
    assert found.readings["BRS half"].measured == pytest.approx(1.5, abs=0.02)
    assert verdict.readings == {"BRS": "opposed", "BRS half": "supported"}
    assert found.readings["BRS"].model


def test_degrees_and_gains() -> None:
    def rows(dense, sparse):
        return [
            *raced("lastfm", "node 2", dict.fromkeys(ITS, dense), edges=10_000),
            *raced("flickr", "node 2", dict.fromkeys(ITS, sparse), edges=200),
        ]

    assert glyphs("fig7-degree-trend", rows(9.0, 3.0)) == "S(SSSS)"
    assert glyphs("fig7-degree-trend", rows(3.0, 9.0)) == "O(OOOO)"
    assert glyphs("fig7-degree-trend", rows(3.0, 3.02)) == "u(uuuu)"
    assert glyphs("fig7-degree-trend", rows(3.0, 9.0)[:5]) == "-"


def test_costs_of_whole_graphs() -> None:
    def rows(node, subgraphs, batches, once):
        settings = (sampling_tasks.WHOLE_NODE, sampling_tasks.WHOLE_SUBGRAPHS,
                    sampling_tasks.WHOLE_BATCHES, sampling_tasks.WHOLE_ONCE)  # fmt: skip
        times = (node, subgraphs, batches, once)
        seconds = {(s, "sis"): t for s, t in zip(settings, times, strict=True)}
        apart = raced("lastfm", seconds=seconds)
        # Seconds of one process go up and down together.
        return apart + raced("reddit", seconds=seconds)

    assert glyphs("fig7-cost-order", rows(4.0, 2.0, 1.0, 3.0)) == "v(SO)"
    assert glyphs("fig7-cost-order", rows(1.0, 2.0, 1.0, 1.0)) == "O(OO)"
    assert glyphs("fig7-cost-order", raced("twitter")) == "-"


def test_a_third_layer_is_held_against_quadratic_growth() -> None:
    def rows(factor):
        seconds = {("node 2", "sis"): 1.0, ("node 3", "sis"): factor}
        found = raced("lastfm", seconds=seconds)
        roots = [observation("vertices", 10, setting=s, of="roots") for s in ("node 2", "node 3")]
        return [structs.replace(row, observed=[*row.observed, *roots]) for row in found]

    assert glyphs("fig7-3layer-exponential", rows(4.0)) == "S"
    assert glyphs("fig7-3layer-exponential", rows(2.25)) == "u"
    assert glyphs("fig7-3layer-exponential", rows(1.5)) == "O"


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
