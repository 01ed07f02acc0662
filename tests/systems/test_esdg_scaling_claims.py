"""Checks of ESDG's scaling claims: each can hold and can fail, and no projection reproduces."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from esdg_rows import decided, edited, judge, number, processes, row, row_of, seen
from esdg_rows import gain as speedup
from paper_rows import answered_by

from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.store.row import Row
from dgbench.lab.table import Observation
from dgbench.systems.base import RunContext
from dgbench.systems.esdg import PAPER
from dgbench.systems.esdg import claims as table
from dgbench.systems.esdg.checks import scaling
from dgbench.systems.esdg.experiments import fig5, fig5_curves, fig7, parts
from dgbench.systems.esdg.experiments.projection import (
    exchange_excess,
    speedups,
    with_excess,
)
from dgbench.systems.esdg.experiments.settings import MODELS, table2

CHECKS = answered_by(table.TABLE, scaling)

CLAIMS = {claim.id: claim for claim in load_ledger(PAPER.ledger) if claim.id in CHECKS}
VERTEX_STEP = {"tm_gcn": 3e-7, "cd_gcn": 5e-7, "evolvegcn_o": 2e-7}
PLAIN = {"tm_gcn": 1.1e8, "cd_gcn": 1.24e7, "evolvegcn_o": 1.04e8}
CURVES5, CURVES7 = fig5_curves.curves, fig7.curves


def costs(model: str, rate: float) -> list[Observation]:
    """Observed cost of computing on this machine, and bandwidth of a thread's copy."""
    return [
        seen("epoch_time", 0.004),
        seen("operation_time", 5e-5, of="partner"),
        seen("operation_time", 1.5e-4, of="step"),
        seen("operation_time", VERTEX_STEP[model], of="vertex_step"),
        seen("relative_error", 0.2, of="costs", statistic="largest"),
        seen("relative_error", 0.1, of="costs", statistic="median"),
        seen("bandwidth", rate, of="copy"),
    ]


def shares5(
    model: str,
    *,
    rate: float = 4e10,
    gain: float = 13.0,
    ends: tuple[float, float] | None = None,
) -> Row:
    found = [
        *costs(model, rate),
        seen("estimate", PLAIN[model], of="snapshot"),
        seen("portion", 0.3, of="differences"),
        speedup(gain, *(ends or (0.95 * gain, 1.05 * gain)), ranks=16),
        seen("estimate", 15.3, of="speedup", ranks=16),
        seen("snapshots", 200),
        seen("vertices", 1_000_000),
        seen("smoothing_length", 16),
    ]
    params = {"part": "shares", "dataset": "amlsim", "model": model}
    return row("fig5", params, *found, data={"twin": True})


def shares7(model: str, *changed: Observation, rate: float = 4e10) -> Row:
    params = {"part": "shares", "dataset": "random-weak", "model": model}
    return edited(row("fig7", params, *costs(model, rate), data={"twin": False}), *changed)


def rows(**more: Any) -> list[Row]:
    found = [shares5(m, **more) for m in MODELS] + [shares7(m) for m in MODELS]
    errors = [
        seen("relative_error", error, of="links", statistic=statistic)
        for statistic, error in (("largest", 0.4), ("median", 0.1))
    ]
    return [*found, row("fig5", {"part": "links"}, *errors)]


@pytest.fixture
def network(monkeypatch):
    """Set the bytes per second of a node, for every projection of the checks."""

    def choose(rate: float) -> None:
        monkeypatch.setattr(fig5_curves, "curves", partial(CURVES5, network=rate))
        monkeypatch.setattr(fig7, "curves", partial(CURVES7, network=rate))

    return choose


def only_bandwidth(monkeypatch) -> None:
    """Leave out the reading by printed seconds, which slows devices down."""
    monkeypatch.setattr(fig5_curves, "printed_speed", lambda job: None)


# Projected statements.


def test_every_projection_is_weak_and_may_speak_for_or_against(monkeypatch):
    monkeypatch.setattr(scaling, "remote_per_vertex_step", lambda *a: 1.0)
    projected = 0
    for claim in CLAIMS.values():
        finding = CHECKS[claim.id](claim, rows())
        for name, one in finding.readings.items():
            projected += 1
            assert name in scaling.TITLES.values()
            assert one.model == "alpha-beta model"
            assert one.rows, claim.id
            assert not one.undecided, claim.id
        if finding.readings:
            found = decided(claim, finding, rows())
            assert found.glyph in "SsOv-", claim.id
            assert found.source == "projected"
            # The error of the model of links
            assert "10% off such a model (median, at most 40%)" in finding.reason, claim.id
    assert projected == 2 * 15


def test_without_rows_nothing_is_said():
    for claim in CLAIMS.values():
        finding = CHECKS[claim.id](claim, [])
        assert finding.empty, claim.id
        assert finding.reason, claim.id


def test_the_network_decides_who_is_the_bottleneck(monkeypatch, network):
    only_bandwidth(monkeypatch)
    # With an endless network NVLink is left; a thread as fast as a V100 makes that small.
    assert judge("fig5-comm-bottleneck", rows()).glyph == "S"
    network(1e14)
    assert judge("fig5-comm-bottleneck", rows(rate=9e11)).glyph == "O"


def test_the_boundary_drops_on_a_slow_network_only(monkeypatch, network):
    only_bandwidth(monkeypatch)
    network(2e9)
    assert judge("fig5-node-boundary-drop", rows()).glyph == "S"
    network(1e14)
    assert judge("fig5-node-boundary-drop", rows()).glyph == "O"


def test_readings_that_differ_are_both_shown(network):
    network(12e9)
    found = judge("fig5-node-boundary-drop", rows(rate=1e9))
    assert found.glyph == "v"
    assert set(found.readings.values()) == {"supported", "opposed"}


def test_half_of_the_lines_are_not_all(monkeypatch):
    only_bandwidth(monkeypatch)

    def mixed(found, **more):
        lines = CURVES5(found, **more)
        for key, line in lines["bandwidth"].items():
            if key[1] == "tm_gcn":
                line[16] = replace(line[8], compute_s=line[8].compute_s * 3)
        return lines

    assert judge("fig5-node-boundary-drop", rows(rate=9e11)).glyph == "O"
    monkeypatch.setattr(fig5_curves, "curves", mixed)
    finding = scaling.boundary_drop(CLAIMS["esdg-fig5-node-boundary-drop"], rows(rate=9e11))
    assert [one.holds for one in finding.readings.values()] == [False]


def test_recovery_needs_gains_beyond_two_nodes(monkeypatch, network):
    only_bandwidth(monkeypatch)
    assert judge("s63-recovers-with-nodes", rows()).glyph == "S"
    network(1e14)  # nothing to recover from
    assert judge("s63-recovers-with-nodes", rows(rate=9e11)).glyph == "O"


def test_sublinear_fails_where_a_node_slows_its_ranks(monkeypatch):
    assert judge("s1-sublinear-nodes", rows()).glyph == "S"

    def steep(found, **more):
        lines = CURVES5(found, **more)
        for line in (line for many in lines.values() for line in many.values()):
            line[128] = replace(line[128], compute_s=line[8].seconds / 40, transfer_s=0.0,
                                communicate_s=0.0)  # fmt: skip
        return lines

    monkeypatch.setattr(fig5_curves, "curves", steep)
    assert judge("s1-sublinear-nodes", rows()).glyph == "O"


def test_the_best_line_is_the_answer_to_thirty():
    claim = CLAIMS["esdg-abs-strong-scaling"]
    readings = scaling.strong(claim, rows()).readings
    assert list(readings) == list(scaling.TITLES.values())
    finding = readings[scaling.TITLES["bandwidth"]]
    lines = fig5_curves.curves(rows())["bandwidth"].values()
    best = max(128 / 128 * line[1].seconds / line[128].seconds for line in lines)
    assert finding.measured == pytest.approx(best)
    assert finding.target == 30
    assert judge("abs-strong-scaling", rows()).source == "projected"


def test_compute_scales_by_measured_shares():
    good = judge("fig5-compute-scales", rows())
    assert (good.glyph, good.source) == ("S", "timed")
    assert "1 of 5 processes" in good.lacks
    assert judge("fig5-compute-scales", rows(gain=10.5)).glyph == "O"  # 69 % of perfect
    one_of_three = [*rows(), *processes(shares5("tm_gcn", gain=6.0))]
    assert judge("fig5-compute-scales", one_of_three).glyph == "O"
    noisy = judge("fig5-compute-scales", rows(ends=(2.0, 20.0)))
    assert noisy.glyph == "u"


# Weak scaling.


def test_throughput_is_linear_without_overheads_and_network(monkeypatch, network):
    only_bandwidth(monkeypatch)
    network(1e14)
    free = [
        seen("epoch_time", 0.0),
        seen("operation_time", 0.0, of="partner"),
        seen("operation_time", 0.0, of="step"),
    ]
    found = [shares7(m, *free) for m in MODELS]
    lines = fig7.curves(found)["bandwidth"]
    assert fig7.gains(lines["evolvegcn_o"])[128] == pytest.approx(128, rel=0.05)
    assert (
        judge("s63-weak-evolvegcn", found).agreement == "opposite"
    )  # superlinear is what is claimed


def test_launches_make_evolvegcn_superlinear(monkeypatch):
    only_bandwidth(monkeypatch)
    found = judge("s63-weak-evolvegcn", rows())
    assert found.glyph in "Ss"
    assert found.measured > 128
    launch = row(
        "fig7",
        {"part": "launch"},
        speedup(1.6, None, None, setting="few", baseline="many"),
        seen("snapshots", 256, setting="many"),
        seen("snapshots", 2, setting="few"),
    )
    claim = CLAIMS["esdg-s63-weak-evolvegcn"]
    assert "1.60x" in scaling.weak(claim, [*rows(), launch]).reason


@pytest.mark.parametrize("name", ["s63-weak-tmgcn", "s63-weak-cdgcn"])
def test_weak_scaling_is_a_factor_with_the_printed_target(name):
    readings = scaling.weak(CLAIMS[f"esdg-{name}"], rows()).readings
    assert len(readings) == 2
    for one in readings.values():
        assert one.target in (125, 79)
        assert 1 < one.measured < 128
        near = abs(one.measured / one.target - 1) <= scaling.WITHIN
        assert one.holds == near  # whatever was measured, 128 ranks gain over one


def test_weak_drop_goes_away_with_the_network(monkeypatch, network):
    only_bandwidth(monkeypatch)
    assert judge("s63-weak-drop", rows()).glyph == "S"
    network(1e14)
    assert judge("s63-weak-drop", [shares7(m, rate=9e11) for m in MODELS]).glyph == "O"


def sizes(*changed: Observation) -> list[Row]:
    found = [
        seen("vertices", 2**14, of="first"),
        seen("vertices", 2**21, of="last"),
        seen("processes", 7, of="doublings"),
        seen("edges", 2**24, of="first"),
        seen("edges", 2**31, of="last"),
        seen("edges", 2**24 - 100, of="first_stored"),
        seen("edges", 29 * 10**6, of="first", life=2),
    ]
    return [edited(row("fig7", {"part": "sizes"}, *found), *changed)]


def test_arithmetic_of_printed_numbers_is_by_definition():
    for name in ("s63-weak-sizes", "s63-weak-n"):
        assert judge(name, sizes()).glyph == "="
    assert judge("s63-weak-n", sizes()).measured == {"start": 2**14, "end": 2**21}
    edges = CLAIMS["esdg-s63-weak-sizes"], CLAIMS["esdg-s63-weak-n"]
    assert scaling.weak_sizes(edges[0], sizes()).holds is True
    assert scaling.weak_nodes(edges[1], sizes()).holds is False
    million = sizes(seen("vertices", 2**20, of="last"), seen("edges", 2**30, of="last"))
    assert scaling.weak_sizes(edges[0], million).holds is False
    assert scaling.weak_nodes(edges[1], million).holds is True


# Counted statements.


def test_shares_inside_nodes_are_exact():
    good = row("fig5", {"part": "counted"}, *parts.counted((16,)).observations)
    share, idle = CLAIMS["esdg-s63-inter-node-share"], CLAIMS["esdg-s65-idle-when-t-small"]
    assert scaling.inter_node(share, [good]).holds is scaling.idle(idle, [good]).holds is True
    assert {judge(c.id.removeprefix("esdg-"), [good]).glyph for c in (share, idle)} == {"="}
    between = {"of": "between", "ranks": 16}
    off = edited(good, seen("floats", number(good, "floats", **between) + 1, **between))
    assert scaling.inter_node(share, [off]).holds is False
    busy = edited(good, seen("processes", 0, of="idle", ranks=128))
    assert scaling.idle(idle, [busy]).holds is False


def test_the_largest_machine_is_a_description():
    assert judge("s1-max-system", rows()).glyph == "="


# Table 2.


@pytest.mark.parametrize("name", ["tmgcn", "cdgcn", "egcn"])
def test_snapshot_times_are_met_within_a_quarter(name):
    claim = CLAIMS[f"esdg-tab2-time-{name}"]
    finding = scaling.snapshot_times(claim, rows())
    assert set(finding.readings) == set(scaling.TITLES.values())
    for one in finding.readings.values():
        assert set(one.measured) == {"4", "16", "64"}
        wanted = {str(p): ms for p, ms in claim.value.items()}
        right = all(abs(one.measured[p] / wanted[p] - 1) <= 0.25 for p in wanted)
        assert one.holds is right
        assert one.direction is None  # a table of times has no sign
    # The second reading meets its own anchor.
    fitted = finding.readings[scaling.TITLES["printed"]].measured["4"]
    assert fitted == table2("time", scaling.MODEL_OF[claim.id])[4]


def test_hyper_times_need_parted_vertices(monkeypatch):
    monkeypatch.setattr(scaling, "remote_per_vertex_step", lambda rows, model, p: None)
    assert "table2" in judge("tab2-hyper-time-tmgcn", rows()).reason
    monkeypatch.setattr(scaling, "remote_per_vertex_step", lambda rows, model, p: p / 10)
    claim = CLAIMS["esdg-tab2-hyper-time-egcn"]
    with_rows = scaling.hyper_times(claim, rows(rate=9e9)).readings
    monkeypatch.setattr(scaling, "remote_per_vertex_step", lambda rows, model, p: 0.0)
    without = scaling.hyper_times(claim, rows(rate=9e9)).readings
    for name, one in with_rows.items():
        assert one.measured["64"] > one.measured["16"]  # rows that many ranks ask for
        assert without[name].measured["64"] < one.measured["64"]
    assert judge("tab2-hyper-time-egcn", rows()).glyph == "-"  # shares of a twin


# The experiments.


@pytest.mark.parametrize("experiment", [fig5.Fig5(), fig7.Fig7()])
def test_cells_are_planned_without_data(experiment):
    for preset in ("smoke", "quick", "full", "paper"):
        cells = experiment.cells(preset, "cpu")
        assert len({str(sorted(c.params.items())) for c in cells}) == len(cells)
        assert {c.params["part"] for c in cells} >= {"shares", "ranks"}
        assert not any(c.unavailable for c in cells)
    there = experiment.cells("quick", "cuda")
    assert all(bool(c.unavailable) == (c.params["part"] in ("ranks", "links")) for c in there)


def run(experiment, preset, params):
    cell = next(c for c in experiment.cells(preset, "cpu") if c.params == params)
    return row_of(cell, experiment.run(cell, RunContext("cpu", preset, 1, budget_s=0.02)))


def test_weak_scaling_runs_and_draws():
    experiment = fig7.Fig7()
    where = {"dataset": "random-weak", "model": "tm_gcn"}
    found = [run(experiment, "smoke", {"part": "shares", **where})]
    for ranks in (1, 2):
        found.append(run(experiment, "smoke", {"part": "ranks", **where, "ranks": ranks}))
        assert found[-1].deviation["loss"] < 1e-5
        assert number(found[-1], "edges") == pytest.approx(16 * 128 * ranks * 4, rel=0.05)
    found.append(run(experiment, "smoke", {"part": "launch"}))
    found.append(run(experiment, "smoke", {"part": "sizes"}))
    assert scaling.weak_sizes(CLAIMS["esdg-s63-weak-sizes"], found).holds is True
    for spec in experiment.figures():
        points = spec.points(found)
        assert any(p.get("projected") for p in points)
        assert any(not p.get("projected") for p in points)
    assert "TM-GCN" in experiment.answer(found)


def test_figures_keep_projections_apart(wording):
    experiment = fig5.Fig5()
    ranked = [
        row(
            "fig5",
            {"part": "ranks", "dataset": "amlsim", "model": "tm_gcn", "ranks": p},
            seen("cores", 2),
            seen("epoch_time", 1.0 / p, samples=[1.0 / p]),
            seen("epoch_time", 1.0, setting="alone"),
            speedup(float(p), p - 0.1, p + 0.1),
            seen("phase_time", 0.7 / p, phase="compute"),
            seen("phase_time", 0.1, phase="communicate"),
            seen("phase_time", 0.9, phase="compute", setting="alone"),
            seen("phase_time", 0.0, phase="communicate", setting="alone"),
            group="amlsim/tm_gcn",
            deviation={"loss": 1e-7},
            data={"twin": True},
        )
        for p in (4, 2)
    ]
    found = [*rows(), *ranked]
    by_name = {spec.name: spec.points(found) for spec in experiment.figures()}
    measured = [p for p in by_name["fig5"] if not p.get("projected")]
    assert [p["x"] for p in measured] == [1, 2]  # four ranks share two cores: no speed-up
    assert measured[0]["y"] == 1.0
    assert [measured[1][end] for end in ("low", "y", "high")] == pytest.approx([1.9, 2.0, 2.1])
    modelled = [p for p in by_name["fig5"] if p.get("projected")]
    assert {p["series"] for p in measured}.isdisjoint({p["series"] for p in modelled})
    assert all(p["low"] <= p["y"] <= p["high"] for p in modelled)
    assert all(p["model_error"] >= 0 for p in modelled)
    assert all(p["projected"] for p in by_name["fig5_projected_split"])
    assert all(p["projected"] for p in by_name["fig5_h200"])
    bars = by_name["fig5_measured_split"]
    assert list(dict.fromkeys(p["row"] for p in bars)) == ["P = 1", "P = 2", "P = 4, 2 cores"]
    assert {p["total"] for p in bars} == {1.0, 0.5, 0.25}
    assert all(p["total"] > 0 for p in bars)
    wording(experiment.answer(found))
    assert experiment.answer([]) == ""


def test_strong_scaling_says_what_is_left_out_and_slower_exchanges():
    found = judge_reason("abs-strong-scaling")
    assert "left out are what launches cost on a GPU" in found
    assert "with exchanges 2.0 times slower, which Table 2 implies" in found
    line = fig5_curves.curves(rows())["bandwidth"]["amlsim", "tm_gcn"]
    slower = with_excess(line)
    for p, epoch in line.items():
        extra = (exchange_excess() - 1) * epoch.communicate_s
        assert slower[p].seconds == pytest.approx(epoch.seconds + extra)
    assert speedups(slower)[128] < speedups(line)[128]


def judge_reason(name):
    claim = CLAIMS[f"esdg-{name}"]
    return CHECKS[claim.id](claim, rows()).reason
