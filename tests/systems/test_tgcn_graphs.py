"""The graphs of T-GCN: sizes against Table 1, tails of degrees, and what halving leaves of them."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import structs
from tgcn_rows import glyphs, judged, made, observation, ran

from dgbench.lab.printed import same_printed
from dgbench.lab.table import Table
from dgbench.systems.tgcn import graph_runs
from dgbench.systems.tgcn.degrees import (
    GRID,
    MIN_TAIL,
    rescaled_gap,
    shares_above,
    tail_of,
)
from dgbench.systems.tgcn.experiments import cited, depth, table1


@pytest.fixture(autouse=True)
def private_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path_factory.getbasetemp() / "tgcn-paper"))
    monkeypatch.delenv("DGBENCH_DATA", raising=False)


# Tails.


def test_the_tail_of_a_power_law_is_found() -> None:
    numbers = np.random.default_rng(3)
    body = numbers.integers(1, 20, 4000)
    tail = np.floor(20 * (1 - numbers.random(4000)) ** (-1 / 1.5)).astype(np.int64)
    found = tail_of(np.concatenate([body, tail]))
    assert 14 <= found.least <= 40
    assert found.laws.exponent == pytest.approx(2.5, abs=0.15)
    assert found.laws.nearer == "power law"
    assert found.laws.power_gap < 0.05


def test_an_exponential_tail_is_none() -> None:
    drawn = 1 + np.floor(np.random.default_rng(4).exponential(30, 5000)).astype(np.int64)
    assert tail_of(drawn).laws.nearer == "exponential"


def test_too_few_or_equal_degrees_have_no_tail() -> None:
    assert tail_of(np.zeros(500, dtype=np.int64)) is None
    assert tail_of(np.arange(1, MIN_TAIL)) is None
    assert tail_of(np.full(500, 7)) is None


def test_scaled_degrees_do_not_differ() -> None:
    degrees = 2 * np.random.default_rng(5).integers(1, 50, 300)
    assert rescaled_gap(degrees, degrees // 2) == 0
    assert rescaled_gap(degrees, np.zeros_like(degrees)) == 1
    mixed = np.where(np.arange(300) % 2, degrees, 0)
    assert rescaled_gap(degrees, mixed) == pytest.approx(0.5, abs=0.1)
    assert rescaled_gap(degrees, degrees // 2, least=10**9) == 1  # nothing is left


def test_shares_fall() -> None:
    shares = shares_above(np.arange(0, 200))
    assert len(shares) == len(GRID)
    assert shares == sorted(shares, reverse=True)
    assert shares_above(np.zeros(3)) == [0.0] * len(GRID)


@pytest.mark.parametrize(
    ("number", "printed", "agrees"),
    [
        (10_984, 10_000, True), (1_980, 7_000, False), (2_302_925, 2_300_000, True),
        (41_652_230, 41_600_000, True), (1_468_365_182, 1.47e9, True), (28.78, 28.8, True),
        (28.7, 28.8, False), (67.2, 67.0, True), (1_468_365_182, 1.46e9, True),
    ],
)  # fmt: skip
def test_numbers_round_to_printed_ones(number, printed, agrees) -> None:
    assert same_printed(number, printed) is agrees


# Table 1.

PRINTED = {"dataset": "all", "note": "publishers' sizes"}


@pytest.fixture(scope="module")
def machine_row():
    found = [*graph_runs.machine(), *graph_runs.sizes()]
    return made("table1", {"part": table1.MACHINE}, found, data=PRINTED)


def test_sizes_against_the_table(wording, machine_row) -> None:
    found, verdict = judged("tab1-vertices", [machine_row])
    assert found.measured["Lastfm"] == 1980
    wording(verdict.reason)
    assert glyphs("s1-twitter-edge-count", [machine_row]) == "v(SO)"  # cut, and rounded
    assert glyphs("tab1-avg-degree", [machine_row]) == "O(OO)"
    assert "not explained" in judged("tab1-feature", [machine_row])[1].reason
    assert glyphs("s61-testbed", [machine_row]) == "="


def test_publishers_counts_are_as_strong_for_as_against(machine_row) -> None:
    for name, side in (("tab1-edges", "for"), ("tab1-vertices", "against")):
        _, verdict = judged(name, [machine_row])
        assert (verdict.strength, verdict.side, verdict.source) == ("weak", side, "printed")
    counted = [
        observation(one.metric, one.value, **{**one.dims, "method": "counted"})
        for one in machine_row.observed
        if one.dims.get("method") == "stated"
    ]
    here = made("table1", {"part": table1.MACHINE}, counted, data=PRINTED)
    assert judged("tab1-edges", [here])[1].glyph == "R"
    assert judged("tab1-vertices", [here])[1].glyph == "X"


def test_halving_of_a_twin_gives_no_verdict(wording, machine_row) -> None:
    row = ran("table1", {"dataset": "lastfm"})
    edges = Table.of([row]).where("edges").numbers("of")
    assert edges["sampled"] == pytest.approx(edges[None] / 2, rel=0.05)
    assert set(table1.sides_of(row)) == {"sources", "destinations"}
    verdict = judged("s61-power-law", [row])[1]
    assert verdict.verdict == "not run here"
    wording(verdict.reason)
    points = [p for f in table1.Table1().figures() for p in f.points([row, machine_row])]
    assert {p["series"] for p in points} >= {"E/V", "2 E/V", "printed", "whole graph", "half"}
    assert table1.Table1().answer([row])


def real_row(*, z, gap=0.01):
    """A graph whose exponent moves by one percent."""
    about = {"of": "all", "setting": graph_runs.WHOLE}
    found = [
        observation("likelihood_z", z, **about),
        observation("degree", 8.0, method="tail", **about),
        observation("tail_exponent", 2.0, **about),
        observation("tail_exponent", 2.02, of="all", setting=graph_runs.HALF),
        observation("distribution_gap", gap, of="all", method="halved"),
        observation("distribution_gap", 0.01, of="all", method="halved tail"),
    ]
    return made("table1", {"dataset": "enron"}, found, data={"dataset": "enron", "twin": False})


def test_tails_of_real_graphs() -> None:
    assert glyphs("s61-power-law", [real_row(z=5.0)]) == "S"
    assert glyphs("s61-power-law", [real_row(z=-5.0)]) == "O"
    assert glyphs("s61-power-law", [real_row(z=0.5)]) == "u"
    assert glyphs("s61-sampling-keeps-degree-dist", [real_row(z=5.0)]) == "S(SS)"
    assert glyphs("s61-sampling-keeps-degree-dist", [real_row(z=5.0, gap=0.3)]) == "v(OS)"


def test_a_tail_that_is_open_is_no_power_law() -> None:
    open_one = structs.replace(real_row(z=0.5), id="open", params={"dataset": "college-msg"})
    rows = [structs.replace(real_row(z=5.0), id=str(k)) for k in range(4)]
    assert glyphs("s61-power-law", [*rows, open_one]) == "u"


# The paper against itself, and samples by depth.


def test_printed_numbers_against_each_other() -> None:
    row = ran("cited", {"what": "arithmetic"})
    found, verdict = judged("s24-marius-throughput", [row])
    assert (found.measured, verdict.verdict) == ("115.9K", "by definition")
    assert judged("s24-marius-epoch-time", [row])[1].verdict == "not run here"
    known = {one.words: one for one in cited.derived()}
    assert known["mean gain over DyGNN"].follows == pytest.approx(2.54, abs=0.01)
    assert not known["largest saving of memory"].agrees
    assert "2.54" in cited.Cited().answer([row])


def test_depth_by_hand() -> None:
    def row(node, layer):
        found = [
            observation("degree", edges, method=method, layer=number)
            for method, drawn in (("node", node), ("layer", layer))
            for number, edges in enumerate(drawn, 1)
        ]
        return made("depth", {"dataset": "flickr"}, found, data={"twin": True})

    grown = [4.0**k for k in range(1, depth.LAYERS + 1)]
    flat = [256.0] * depth.LAYERS
    assert judged("s2-nodewise-exponential", [row(grown, flat)])[1].verdict == "reproduced"
    assert judged("s2-layerwise-linear", [row(grown, flat)])[1].verdict == "by definition"
    assert judged("s2-nodewise-exponential", [row(flat, flat)])[1].verdict == "contradicted"
