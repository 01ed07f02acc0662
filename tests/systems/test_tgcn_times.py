"""The experiments that train T-GCN: what a smoke run measures, and what the checks make of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tgcn_rows import (
    EXPERIMENTS,
    asked,
    five,
    glyphs,
    judged,
    made,
    observation,
    smoke_rows,
)

from dgbench.harness.store.row import Row
from dgbench.systems.base import Measurement
from dgbench.systems.tgcn import races
from dgbench.systems.tgcn.experiments import ablation, fig6, table2, table3
from dgbench.systems.tgcn.races import DYGNN, JODIE, JODIE_RELAXED, PARTS, RELAXED, TGCN
from dgbench.systems.tgcn.settings import SMALL_NAMES

NAMES = ("fig6", "table2", "table3", "ablation")


@pytest.fixture(scope="module", autouse=True)
def _small():
    """Fewer events than a smoke run has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(races.EVENTS, "smoke", 160)
        patch.setitem(races.BATCH, "smoke", 10)
        patch.setattr(races, "INTERVAL", 60)
        yield


@pytest.mark.parametrize("name", NAMES)
def test_a_smoke_run_answers(name):
    experiment, rows = EXPERIMENTS[name], smoke_rows(name)
    assert rows
    assert all(gap <= 1e-9 for row in rows for gap in row.deviation.values())
    assert experiment.answer(rows)
    for figure in experiment.figures():
        assert figure.points(rows)
    for claim in experiment.claims:
        found = asked(claim.removeprefix("tgcn-"), rows)
        assert not found.empty or found.reason, claim


def test_cells_name_graphs_of_every_preset():
    for experiment in (EXPERIMENTS[name] for name in NAMES):
        for preset in ("smoke", "quick", "full", "paper"):
            for device in ("cpu", "cuda"):
                cells = experiment.cells(preset, device)
                assert len({str(sorted(c.params.items())) for c in cells}) == len(cells)
                for cell in cells:
                    races.task_of(str(cell.params["dataset"]), preset).check()


# The main race, on rows made by hand.


def raced(over, parts=None, *, name, spread=0.01, count=5) -> list[Row]:
    """Processes of a race by the gains of T-GCN over others, and of its form on whole parts."""
    found = [observation("speedup", gain, baseline=other) for other, gain in over.items()]
    found += [
        observation("speedup", gain, baseline=other, setting=PARTS)
        for other, gain in (parts or {}).items()
    ]
    found += [
        observation("throughput", rate, setting=system)
        for system, rate in ((TGCN, 8e5), (DYGNN, 2e3), (JODIE, 4e3))
    ]
    params, data = {"dataset": name, "what": "race"}, {"dataset": name, "twin": True}
    return five("fig6", params, found, spread=spread, count=count, data=data)


def race(same, parts, strict=300.0, **fields) -> list[Row]:
    """Three graphs on which T-GCN gains as much over both baselines in the same order."""
    over = {DYGNN: strict, JODIE: strict, RELAXED: same, JODIE_RELAXED: same, PARTS: same / parts}
    forms = {RELAXED: parts, JODIE_RELAXED: parts}
    return [row for name in SMALL_NAMES for row in raced(over, forms, name=name, **fields)]


RACED = ("fig6-vs-dygnn", "fig6-vs-jodie", "fig6-beats-both-everywhere", "abs-e2e-max-speedup")


def test_a_lead_over_a_strict_baseline_is_none_of_the_papers():
    rows = race(0.8, 0.6)
    assert [glyphs(name, rows) for name in RACED] == ["O"] * 4
    found, verdict = judged("fig6-vs-dygnn", rows)
    assert verdict.side == "against"
    for words in ("300x as fast", "375x by the relaxed order", "0.80x by the paper's techniques"):
        assert words in found.reason
    ahead = race(3.5, 3.0)
    assert [glyphs(name, ahead) for name in RACED] == ["S", "S", "S", "s"]


def test_exchanging_the_contenders_exchanges_the_verdict():
    for name in RACED:
        assert {judged(name, race(x, x))[1].side for x in (3.3, 1 / 3.3)} == {"for", "against"}
        assert judged(name, race(1.01, 1.01))[1].glyph == "u"
        assert judged(name, race(3.3, 1 / 3.3))[1].side == "for"


def test_intervals_are_over_processes_of_each_graph():
    rows = [
        row
        for name, gain in zip(SMALL_NAMES, (1.5, 4.0, 9.0), strict=True)
        for row in raced({RELAXED: gain}, name=name)
    ]
    ratio = fig6.gain(rows, RELAXED)
    assert ratio.processes == 5
    assert ratio.low > 3.7  # graphs that differ are no noise
    assert fig6.gain(rows[::5], RELAXED).low is None  # one process of each has no interval
    assert judged("fig6-vs-dygnn", race(4.0, 3.0, count=1))[1].glyph == "u"


def test_a_graph_that_is_missing_decides_nothing():
    rows = race(0.5, 0.5)[:10]
    assert [judged(name, rows)[1].glyph for name in RACED] == ["-"] * 4


def test_a_rate_of_another_class_of_device_is_neither_for_nor_against():
    rows = race(4.0, 3.0)
    for name in ("s62-throughput-dygnn", "s62-throughput-jodie", "s62-throughput-tgcn"):
        assert judged(name, rows)[1].glyph == "-"
    assert judged("s24-prior-throughput-floor", rows)[1].glyph == "-"


def timed(io, compute, wait=None, *, whole=None, name="lastfm", spread=0.001) -> list[Row]:
    """Processes of Table 2 by the seconds of each contender."""
    found = []
    for setting in io:
        waited = io[setting] if wait is None else wait[setting]
        total = (whole or {}).get(setting, compute[setting] + waited)
        found.append(observation("epoch_time", total, setting=setting))
        parts = {"io": io[setting], "compute": compute[setting], "wait": waited}
        found += [
            observation("part_time", seconds, setting=setting, phase=phase)
            for phase, seconds in parts.items()
        ]
    data = {"dataset": name, "twin": True}
    return five("table2", {"dataset": name}, found, spread=spread, data=data)


def test_parts_are_compared_in_the_same_order():
    def said(relaxed):
        io = {TGCN: 1.0, RELAXED: relaxed, DYGNN: 900.0}
        return glyphs("tab2-both-parts-reduced", timed(io, io))

    assert [said(2.0), said(0.5), said(1.001)] == ["S", "O", "u"]


def test_a_mean_inside_the_printed_range_is_no_share_of_each():
    def said(ours, theirs):
        compute = {TGCN: ours, DYGNN: theirs}
        rest = {key: 100 - share for key, share in compute.items()}
        return glyphs("tab2-compute-share", timed(rest, compute))

    assert said(75.0, 95.0) == "O"
    assert said(84.0, 87.0) == "S"


def test_copies_that_overlap():
    keys = (TGCN, table2.SERIAL, table2.STREAMED, table2.STREAMED_SERIAL)

    def rows(waits, whole=1.0):
        io, compute = dict.fromkeys(keys, 2.0), dict.fromkeys(keys, 4.0)
        wait = dict(zip(keys, waits, strict=True))
        totals = {key: (4.0 + wait[key]) * whole for key in keys}
        return timed(io, compute, wait, whole=totals)

    hidden = rows((0.5, 2.0, 0.5, 2.0), whole=1.5)
    assert glyphs("tab2-overlap", hidden) == "v(SSO)"
    assert glyphs("s43-pingpong-no-conflict", hidden) == "S(SS)"
    none = rows((2.0, 2.0, 2.0, 2.0))
    assert glyphs("tab2-overlap", none) == "u(uuu)"
    assert judged("s43-pingpong-no-conflict", none)[1].side == ""
    worse = rows((2.0, 0.5, 2.5, 0.5))
    assert glyphs("s43-pingpong-no-conflict", worse) == "O(OO)"


def ladder(gains, **fields) -> list[Row]:
    found = [
        observation("speedup", gains.get(step, 1.5), setting=step, baseline=ablation.BEFORE)
        for step in ablation.STEPS[1:]
    ]
    data = {"dataset": "lastfm", "twin": True}
    return five("ablation", {"dataset": "lastfm"}, found, data=data, **fields)


def test_every_step_has_to_gain():
    assert glyphs("s65-ablation-order", ladder({})) == "S"
    assert glyphs("s65-ablation-order", ladder({"partition": 0.8})) == "O"
    assert glyphs("s65-ablation-order", ladder({"partition": 1.01})) == "u"
    assert glyphs("s65-ablation-order", ladder({"overlap": 0.5})) == "S"  # none of the three
    assert glyphs("s65-ablation-order", ladder({}, count=1)) == "u"


def held(ours, streamed, theirs, device="cpu", scale=1 / 16) -> list[Row]:
    return [
        made(
            "table3",
            {"dataset": name, "system": system},
            [
                observation("memory", round(1e6 * mb), method=method)
                for method in ("held", "driver")
            ],
            device=device,
            data={"dataset": name, "twin": True, "scale": scale},
        )
        for name in SMALL_NAMES
        for system, mb in (
            (TGCN, ours), (table3.STREAMED, streamed), (DYGNN, theirs), (JODIE, theirs),
        )
    ]  # fmt: skip


def test_where_states_lie_is_a_reading():
    assert glyphs("tab3-ordering", held(100, 50, 80)) == "v(OS)"
    assert glyphs("tab3-ordering", held(50, 50, 129)) == "S(SS)"
    assert glyphs("s66-max-space-saving", held(100, 50, 80)) == "v(Os)"
    assert glyphs("s66-max-space-saving", held(50, 50, 129)) == "S(SS)"
    added_up = judged("tab3-ordering", held(50, 50, 129))[1]
    assert added_up.source == "projected"
    on_gpu = judged("tab3-ordering", held(50, 50, 129, device="cuda"))[1]
    assert on_gpu.source == "counted"


def test_memory_is_compared_at_the_printed_size():
    assert judged("tab3-tgcn-memory", held(822, 1, 1, device="cuda"))[1].glyph == "-"
    assert glyphs("tab3-tgcn-memory", held(822, 1, 1, device="cuda", scale=1.0)) == "O(OO)"


# What only a GPU can show, on rows made by hand.


def on_gpu(experiment, found, **params):
    return made(experiment, {"dataset": "lastfm", **params}, found, device="cuda")


def test_seconds_and_overlap_on_a_gpu(wording):
    parts = {"io": 2.0, "wait": 1.0, "compute": 6.0}
    found = [observation("epoch_time", 10.0, setting="tgcn")]
    found += [observation("part_time", s, setting="tgcn", phase=p) for p, s in parts.items()]
    spans = [("copy", 0.0, 4.0), ("train", 1.0, 5.0)]
    regions = SimpleNamespace(timeline=SimpleNamespace(start=list, stop=lambda: spans))
    runner = SimpleNamespace(turn=list, trainer=SimpleNamespace(regions=[regions]))
    timed = Measurement()
    table2.observe_timeline(timed, runner)
    row = on_gpu("table2", [*found, *timed.observations])
    assert asked("tab2-tgcn-io", [row]).measured == {"Lastfm": 2.0}
    assert asked("tab2-tgcn-total", [row]).measured == {"Lastfm": 10.0}
    assert asked("tab2-dygnn-io", [row]).measured is None
    assert asked("tab2-both-parts-reduced", [row]).measured is None  # DyGNN did not run
    said = asked("s43-pingpong-no-conflict", [row])
    assert said.measured == "75% to 75% of copy time beside training"
    assert said.holds
    wording(asked("tab2-dygnn-io", []).reason)


def test_rates_on_a_gpu():
    twitter = [observation("edge_time", 2e-6, setting="tgcn"), observation("edges", 1_000)]
    row = made("fig6", {"dataset": "twitter", "what": "rate"}, twitter, device="cuda")
    said = asked("fig6-twitter-time", [row])
    assert (said.measured, said.target) == (pytest.approx(2940.0), 9237.4)
    copies = [
        observation("bandwidth", rate, link=link, size=1 << 28)
        for link, rate in (("gpu to gpu", 40e9), ("host to gpu", 12e9))
    ]
    copies.append(observation("links", 0, of="peers"))
    said = asked("s1-nvlink-faster-than-pcie", [made("schedule", {"kind": "copies"}, copies)])
    assert said.holds
    assert said.measured == {"GPU to GPU": 40.0, "host to GPU": 12.0}
    assert "no peers" in said.reason
