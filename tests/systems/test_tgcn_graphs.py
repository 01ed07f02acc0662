"""The graphs of T-GCN: sizes against Table 1, tails of degrees, and what halving leaves of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec import structs

from dgbench.datasets.twins.limits import twin_rule
from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.claims.verdict import decide
from dgbench.harness.store.row import Row
from dgbench.systems.base import RunContext
from dgbench.systems.tgcn import PAPER
from dgbench.systems.tgcn.experiments import cited, depth, table1
from dgbench.systems.tgcn.experiments.degrees import (
    GRID,
    LEAST_TAIL,
    rescaled_gap,
    shares_above,
    tail_of,
)

BY_ID = {claim.id.removeprefix("tgcn-"): claim for claim in load_ledger(PAPER.ledger)}


@pytest.fixture(autouse=True)
def private_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path_factory.getbasetemp() / "tgcn-paper"))
    monkeypatch.delenv("DGBENCH_DATA", raising=False)


def row_of(experiment, params, **fields) -> Row:
    return Row(
        **{
            "id": f"{experiment.name}-{'-'.join(map(str, params.values()))}", "run": "test",
            "cell_hash": "x", "status": "ok", "paper": "tgcn", "experiment": experiment.name,
            "params": dict(params), "group": "x", "device": "cpu", "preset": "quick", "round": 1,
            **fields,
        }
    )  # fmt: skip


def run(experiment, params, preset="smoke") -> Row:
    cell = next(c for c in experiment.cells(preset, "cpu") if c.params == params)
    found = experiment.run(cell, RunContext("cpu", preset, 1))
    assert all(math.isfinite(v) for v in found.values.values()), found.values
    return row_of(experiment, params, **structs.asdict(found))


def judged(name, rows):
    claim = BY_ID[name]
    found = PAPER.checks[claim.id](claim, rows)
    return found, decide(claim, found, twin_rule=twin_rule(claim.id))


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
    assert tail_of(np.arange(1, LEAST_TAIL)) is None
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
    assert table1.rounds_to(number, printed) is agrees


# Table 1.


@pytest.fixture(scope="module")
def machine_row():
    experiment = table1.Table1()
    return row_of(
        experiment,
        {"part": table1.MACHINE},
        counters=table1.machine() | table1.sizes(),
        data={"dataset": "none", "twin": False, "scale": 1.0, "note": ""},
    )


def test_sizes_against_the_table(machine_row) -> None:
    found, verdict = judged("tab1-vertices", [machine_row])
    assert found.measured["Lastfm"] == 1980
    assert verdict.verdict == "contradicted"
    assert "LastFM has 1,980" in verdict.reason
    found, verdict = judged("tab1-edges", [machine_row])
    assert found.holds
    assert verdict.verdict == "direction only"  # the publishers' counts, not ours
    found, verdict = judged("tab1-avg-degree", [machine_row])
    assert found.measured["Flickr"] == "14.4 or 28.8"
    assert verdict.verdict == "contradicted"
    assert judged("s1-twitter-edge-count", [machine_row])[0].holds
    assert "not explained" in judged("tab1-feature", [machine_row])[1].reason
    assert "needs a DGX" in judged("s61-testbed", [machine_row])[1].reason


def test_halving_of_a_twin_gives_no_verdict(machine_row) -> None:
    row = run(table1.Table1(), {"dataset": "lastfm"})
    assert row.counters["kept"] == pytest.approx(row.counters["edges"] / 2, rel=0.05)
    assert set(table1.sides_of(row)) == {"sources", "destinations"}
    verdict = judged("s61-power-law", [row])[1]
    assert verdict.verdict == "not run here"
    assert "drawn from a power law" in verdict.reason
    points = [p for f in table1.Table1().figures() for p in f.points([row, machine_row])]
    assert {p["series"] for p in points} >= {"E/V", "2 E/V", "printed", "whole graph", "half"}
    assert table1.Table1().answer([row])


def real_row(**values):
    named = {f"all {key.replace('_', ' ')}": value for key, value in values.items()}
    return row_of(
        table1.Table1(), {"dataset": "enron"}, values=named,
        data={"dataset": "enron", "twin": False, "scale": 1.0, "note": ""},
    )  # fmt: skip


def test_tails_of_real_graphs() -> None:
    base = {"gap": 0.01, "tail_gap": 0.01, "tail": 8.0, "exponent": 2.0, "exponent_after": 2.02}
    found, verdict = judged("s61-power-law", [real_row(z=5.0, **base)])
    assert (found.holds, verdict.verdict) == (True, "direction only")
    assert judged("s61-power-law", [real_row(z=-5.0, **base)])[1].other_way
    assert judged("s61-power-law", [real_row(z=0.5, **base)])[0].undecided
    assert judged("s61-sampling-keeps-degree-dist", [real_row(z=5.0, **base)])[0].holds
    moved = real_row(z=5.0, **{**base, "gap": 0.3})
    assert judged("s61-sampling-keeps-degree-dist", [moved])[1].other_way


# The paper against itself, and samples by depth.


def test_printed_numbers_against_each_other() -> None:
    row = run(cited.Cited(), {"what": "arithmetic"})
    found, verdict = judged("s24-marius-throughput", [row])
    assert (found.measured, verdict.verdict) == ("115.9K", "reproduced")
    assert judged("s24-marius-epoch-time", [row])[1].verdict == "not run here"
    known = {one.words: one for one in cited.derived()}
    assert known["mean gain over DyGNN"].follows == pytest.approx(2.54, abs=0.01)
    assert not known["largest saving of memory"].agrees
    assert "2.54" in cited.Cited().answer([row])


def test_depth_by_hand() -> None:
    def row(node, layer):
        values = {f"node {k}": v for k, v in enumerate(node, 1)}
        values |= {f"layer {k}": v for k, v in enumerate(layer, 1)}
        return row_of(depth.Depth(), {"dataset": "flickr"}, values=values, data={"twin": True})

    grown = [4.0**k for k in range(1, depth.LAYERS + 1)]
    flat = [256.0] * depth.LAYERS
    assert judged("s2-nodewise-exponential", [row(grown, flat)])[1].verdict == "reproduced"
    assert judged("s2-layerwise-linear", [row(grown, flat)])[1].verdict == "reproduced"
    assert judged("s2-nodewise-exponential", [row(flat, flat)])[1].verdict == "contradicted"
    assert judged("s2-layerwise-linear", [row(grown, grown)])[1].verdict == "contradicted"
