"""PiPAD's verdicts: what judges a claim, what may break it, and what decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import pytest
from pipad_rows import EXPERIMENTS, made, observation, quiet, race_rows, ran, verdict

from dgbench.harness.claims.evaluate import evaluate
from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.store.row import Row
from dgbench.lab.table import number
from dgbench.systems.base import Cell
from dgbench.systems.pipad import PAPER
from dgbench.systems.pipad.experiments import epochs, fig10
from dgbench.systems.pipad.experiments.settings import BY_NAME, MODELS
from dgbench.systems.pipad.ladders import BARE, OURS, PAPER_ORDER, PUBLISHED, REUSED, STAGES, stage

TIMES = {"pygt": 12.0, "pygt-r": 9.0, "pygt-g": 8.0, BARE: 6.0, REUSED: 4.0, PUBLISHED: 2.0,
         "pipad": 1.0}  # fmt: skip
LARGE, SMALL = "flickr", ("pems08", "covid19-england")
GRAPHS = (LARGE, *SMALL)


def race(times: Mapping[str, float] = TIMES, **changed: Mapping[str, float]) -> list[Row]:
    """Rows of all models on three graphs; `changed` times by graph or model."""
    rows = quiet()
    for dataset in GRAPHS:
        for model in MODELS:
            mine = {**times, **changed.get(dataset, {}), **changed.get(model, {})}
            rows += race_rows(mine, dataset, model)
    return rows


def without(rows: list[Row], **params: Any) -> list[Row]:
    return [row for row in rows if not params.items() <= row.params.items()]


# Denominators


def test_the_factor_is_a_product_of_three(wording) -> None:
    points = fig10.factor_points(race())
    assert not any(p.get("failed") for p in points)
    places: dict[Any, dict[str, float]] = {}
    for p in points:
        assert p["low"] <= p["y"] <= p["high"]
        places.setdefault((p["panel"], p["x"]), {})[p["series"]] = p["y"]
    assert len(places) == len(GRAPHS) * len(MODELS)
    for found in places.values():
        assert prod(found[name] for name in fig10.FACTORS) == pytest.approx(found["product"])
    wording(EXPERIMENTS["fig10"].answer(race()))


def test_a_factor_that_did_not_run_is_a_gap() -> None:
    points = fig10.factor_points(without(race(), system=BARE))
    assert {p["series"] for p in points if p.get("failed")} == {
        "re-implementation",
        "the paper's techniques",
    }


def test_quick_races_every_model_on_one_graph() -> None:
    cells = [cell.params for cell in fig10.Fig10().cells("quick", "cpu")]
    models = {(one["dataset"], one["model"]) for one in cells}
    whole = {(fig10.QUICK_WHOLE, model) for model in MODELS}
    assert models == whole | {(name, "mpnn_lstm") for name in fig10.QUICK_GRAPHS}


def test_stages_switch_off_what_is_not_theirs() -> None:
    assert not any(stage(BARE).values())
    assert {name for name, on in stage(REUSED).items() if on} == {"reuse", "pipeline"}
    assert stage(PUBLISHED) == dict.fromkeys(OURS, False) | {"slice_coalescing": True}
    assert set(OURS) <= set(PAPER_ORDER)
    cells = fig10.Fig10().cells("quick", "cpu")
    for group in {cell.group for cell in cells if not cell.params.get("check")}:
        raced = [cell.params["system"] for cell in cells if cell.group == group]
        assert {"pygt", *STAGES, "pipad"} <= set(raced)


SPEED = (
    "pipad-abs-speedup-range",
    "pipad-fig10-speedup-range-pygt",
    "pipad-fig10-avg-evolvegcn",
    "pipad-fig10-avg-mpnn-lstm",
    "pipad-fig10-avg-t-gcn",
    "pipad-fig10-pipad-best",
    "pipad-s52-evolvegcn-vs-pygtg",
)


@pytest.mark.parametrize("claim", SPEED)
def test_neither_the_engine_nor_our_techniques_carry_a_claim(claim: str) -> None:
    good = verdict(race(), claim)
    assert (good.side, good.strength) == ("for", "weak")
    baseline = "PyGT-G: 8x" if claim.endswith(("pygtg", "best")) else "PyGT: 12x"
    assert f"PiPAD as it is over {baseline}" in good.reason
    assert "re-implementation" in good.reason
    assert " ours" in good.reason
    slower = race({**TIMES, PUBLISHED: 7.0})  # PiPAD as it is stays 12 times as fast as PyGT
    assert verdict(slower, claim).side == "against"
    level = race({**TIMES, PUBLISHED: 4.0, BARE: 4.0})
    assert verdict(level, claim).glyph == "u"


@pytest.mark.parametrize("claim", SPEED)
def test_without_the_stages_a_speed_up_is_told_and_not_judged(wording, claim: str) -> None:
    rows = [row for row in race() if row.params.get("system") not in STAGES]
    found = verdict(rows, claim)
    assert found.verdict == "not run here"
    wording(found.reason)


# Missing is neither won nor lost


def test_a_workload_that_lacks_a_rival_is_not_lost(wording) -> None:
    claim = "pipad-fig10-pipad-best"
    rows = without(race(), dataset=LARGE, system=PUBLISHED)
    found = verdict(rows, claim)
    assert (found.side, found.measured) == ("for", "6 of 6 workloads")
    wording(found.reason)
    some = verdict(without(race(), dataset=LARGE, system="pygt-g"), claim)
    assert some.measured == "6 of 6 workloads"  # nor won, where only some rivals ran
    lost = without(race(flickr={BARE: 1.5}), dataset=LARGE, system="pygt-g")
    assert verdict(lost, claim).side == "against"


def test_the_answer_counts_workloads_that_ran(wording) -> None:
    rows = without(race(), dataset=LARGE, system=PUBLISHED)
    wording(EXPERIMENTS["fig10"].answer(rows))


def counted(metric: str, pipad: int | None, baseline: int | None) -> list[Row]:
    counts = {PUBLISHED: pipad, "pipad": pipad, BARE: baseline, "pygt": baseline}
    rows = []
    for system, count in counts.items():
        found = [observation("counted_steps", 3)]
        found += [] if count is None else [observation(metric, count)]
        params = {"dataset": LARGE, "model": "tgcn_model", "system": system}
        rows.append(made("fig10", params, found, round=9))
    return rows


def test_no_count_is_zero_only_beside_one_that_is_not() -> None:
    claim = "pipad-s44-reuse-removes-topology-transfer"
    assert verdict(counted("topology_sent", None, 40), claim).verdict == "reproduced"
    assert verdict(counted("topology_sent", 4, 40), claim).verdict == "contradicted"
    assert verdict(counted("topology_sent", None, None), claim).verdict == "not run here"


def test_a_counter_that_never_moved_is_an_observed_zero() -> None:
    params = {"dataset": "hepth", "model": "tgcn_model"}
    for system, zero in (("pipad", True), (BARE, False)):
        cell = Cell(
            paper="pipad", experiment="fig10", group="g", params=params | {"system": system}
        )
        row = ran(cell)
        for metric in fig10.NEVER_MOVED:
            assert (number(row, metric) == 0) is zero


def test_aggregations_left_break_the_claim() -> None:
    claim = "pipad-s52-tgcn-all-agg-removed"
    times = {"pygt-g": 9.0}
    rows = race(tgcn_model=times)
    assert verdict(rows, claim).verdict == "not run here"  # nobody counted
    assert verdict(rows + counted("aggregations", None, 48), claim).side == "for"
    assert verdict(rows + counted("aggregations", 3, 48), claim).side == "against"
    apart = race(tgcn_model={"pygt-g": 5.0})
    assert verdict(apart + counted("aggregations", None, 48), claim).side == "against"


# Ends of ranges, orders and bounds


def test_the_smallest_factor_must_be_where_the_paper_has_it() -> None:
    claim = "pipad-s52-mpnn-lowest"
    rows = quiet()
    for dataset in GRAPHS:
        for model in MODELS:
            lowest = dataset == LARGE and model == "mpnn_lstm"
            rows += race_rows({**TIMES, PUBLISHED: 3.3 if lowest else 2.0}, dataset, model)
    found = verdict(rows, claim)
    assert (found.side, found.measured) == ("for", pytest.approx(4 / 3.3))
    elsewhere = [
        *quiet(),
        *(row for d in GRAPHS for m in MODELS
          for row in race_rows({**TIMES, PUBLISHED: 3.9 if d in SMALL else 2.0}, d, m)),
    ]  # fmt: skip
    assert verdict(elsewhere, claim).side == "against"
    assert verdict(race(), claim).glyph in "us"  # all alike


def test_half_of_a_statement_is_a_sign_at_most() -> None:
    claim = "pipad-fig10-small-gain-more"
    more = race(flickr={PUBLISHED: 4.0})
    assert verdict(more, claim).agreement == "direction"
    assert verdict(race(flickr={PUBLISHED: 1.0}), claim).agreement == "opposite"
    assert verdict(race(), claim).agreement == "undecided"


def prepared(seconds: float, rows: int = 5) -> list[Row]:
    """Preparation of that long, beside epochs of 2 s of PyGT and of 1 s on our engine."""
    found = quiet()
    for turn in range(rows):
        noise = 1 + 0.001 * turn
        for system, metric, value in (
            (PUBLISHED, "preparation_time", seconds),
            ("pygt", "epoch_time", 2.0),
            (BARE, "epoch_time", 1.0),
        ):
            params = {"dataset": LARGE, "model": "evolvegcn", "system": system}
            one = observation(metric, value * (noise if system == PUBLISHED else 1.0))
            found.append(made("fig10", params, [one], round=turn + 1))
    return found


@pytest.mark.parametrize(
    ("seconds", "word"),
    [(1.0, "supported"), (3.0, "depends on the reading"), (5.0, "opposed")],
)
def test_a_broken_bound_is_opposite_under_either_reading(seconds: float, word: str) -> None:
    assert verdict(prepared(seconds), "pipad-s43-preprocessing-epochs").verdict == word


def layers(gain: Mapping[int, float]) -> list[Row]:
    """Layers on a small graph by length, over our engine; the released one is 10 times slower."""
    times = {
        "pygt": lambda g: 10 * g,
        BARE: lambda g: g,
        PUBLISHED: lambda g: 1.0,
        "pipad": lambda g: 0.1,
    }
    return [
        made(
            "fig11",
            {"dataset": "covid19-england", "dim": dim, "system": system},
            [observation("operation_time", time(g) * (1 + 0.001 * (number % 3)))],
            round=number + 1,
        )
        for number in range(5)
        for dim, g in gain.items()
        for system, time in times.items()
    ]


def test_a_layer_is_judged_over_our_own_and_its_bound_at_every_length(wording) -> None:
    claim = "pipad-fig11b-dim-sensitivity"
    assert verdict(quiet() + layers({2: 6.0, 16: 7.0, 32: 5.5}), claim).verdict == "supported"
    found = verdict(quiet() + layers({2: 6.0, 16: 7.0, 32: 2.0}), claim)
    assert found.verdict == "opposed"  # 20x over the released layer
    wording(found.reason)
    assert "re-implementation 10x" in found.reason
    mean = "pipad-fig11a-gnn-speedup-pygt"
    assert verdict(quiet() + layers({16: 5.6}), mean).agreement == "value"
    assert verdict(quiet() + layers({16: 0.5}), mean).agreement == "opposite"


def costs(*thirds: float, noise: float = 0.005) -> list[Row]:
    params = {"dataset": "covid19-england", "model": "evolvegcn", "system": "pipad"}
    return [
        made(
            "epochs",
            params,
            [
                observation(
                    "slowdown",
                    cost * (1 + noise * (number - 2)),
                    setting=part,
                    baseline=epochs.ALL_EPOCHS,
                )
                for part, cost in zip(epochs.PARTS, thirds, strict=True)
            ],
            round=number + 1,
        )
        for number in range(5)
    ]


def test_epochs_are_alike_where_no_third_differs() -> None:
    claim = "pipad-s43-epochs-similar"
    assert verdict(quiet() + costs(1.0, 1.01, 0.99), claim).verdict == "supported"
    assert verdict(quiet() + costs(1.3, 1.0, 0.9), claim).verdict == "opposed"
    assert verdict(quiet() + costs(0.7, 1.0, 1.0), claim).verdict == "opposed"
    assert verdict(quiet() + costs(1.0, 1.0, 1.0, noise=0.2), claim).verdict == "undecided"
    assert epochs.thirds([3.0, 3.0, 1.0, 2.0, 5.0, 5.0]) == {"first": 3, "middle": 1.5, "last": 5}


# What depends on a reading, a model or a device


def sizes(**changed: int) -> list[Row]:
    found = {"N": 129, "E": 82_529, "E_smoothed": 107_930, "T": 61, "D": 16} | changed
    of = {"N": ("vertices", {}), "E": ("edges", {"of": "raw"}),
          "E_smoothed": ("edges", {"of": "smoothed"}), "T": ("snapshots", {}),
          "D": ("length", {"of": "input"})}  # fmt: skip
    observed = [observation(of[key][0], value, **of[key][1]) for key, value in found.items()]
    data = {"dataset": "covid19-england", "kind": "real"}
    return [made("table1", {"dataset": "covid19-england"}, observed, data=data)]


def test_a_zero_behind_the_digits_is_read_both_ways() -> None:
    claim = "pipad-tab1-covid"
    found = verdict(sizes(), claim)
    assert found.verdict == "depends on the reading"
    assert set(found.readings.values()) == {"reproduced", "contradicted"}
    assert verdict(sizes(N=130), claim).verdict == "reproduced"
    assert verdict(sizes(N=200), claim).verdict == "contradicted"
    assert verdict(sizes(N=130, E_smoothed=1), claim).verdict == "reproduced"  # fitted: no say
    assert verdict(sizes(N=130, T=60), claim).verdict == "contradicted"


def loads(requests: float, transactions: float = 0.45, dataset: str = "youtube") -> Row:
    found = [observation("saving", share, of=of)
             for of, share in (("requests", requests), ("transactions", transactions))]  # fmt: skip
    found.append(observation("empty_share", 0.9))
    return made("memory", {"dataset": dataset}, found)


def test_a_count_by_a_model_of_the_device_is_weak_either_way() -> None:
    claim = "pipad-fig11a-requests"
    for share, agreement in ((0.57, "value"), (0.87, "direction"), (-0.2, "opposite")):
        found = verdict([loads(share)], claim)
        assert (found.strength, found.agreement, found.source) == ("weak", agreement, "projected")


def test_memory_accesses_are_requests_or_transactions() -> None:
    claim = "pipad-fig11a-youtube-memory"
    first = [loads(0.9, 0.8), loads(0.5, 0.5, "flickr")]
    assert verdict(first, claim).verdict == "supported"
    mixed = [loads(0.9, 0.2), loads(0.5, 0.5, "flickr")]
    assert verdict(mixed, claim).verdict == "depends on the reading"
    assert verdict([loads(0.4, 0.2), loads(0.5, 0.5, "flickr")], claim).verdict == "opposed"


def busy(share: Mapping[str, float]) -> list[Row]:
    return [
        made("table2", {"dataset": dataset, "model": model, "system": system},
             [observation("utilisation", value)], device="cuda")
        for dataset in ("hepth", "pems08")
        for model in MODELS
        for system, value in share.items()
    ]  # fmt: skip


def test_more_than_half_of_the_cells_is_not_all_of_them() -> None:
    claim = "pipad-tab2-order-pipad-over-pygtg"
    rows = busy({"pygt-g": 0.5, "pipad": 0.6})
    assert verdict(rows, claim).agreement == "value"
    rows[-1].observed[0] = observation("utilisation", 0.1)
    assert verdict(rows, claim).agreement == "direction"
    assert verdict(busy({"pygt-g": 0.6, "pipad": 0.5}), claim).agreement == "opposite"


def reordered(*seconds: float) -> list[Row]:
    params = {"part": "reorder", "dataset": "flickr"}
    return [
        made("preparation", params, [observation("operation_time", s, phase="reordering")],
             round=number, data={"scale": 1.0, "twin": True})
        for number, s in enumerate(seconds)
    ]  # fmt: skip


def test_seconds_are_told_by_five_processes() -> None:
    claim = "pipad-s2-reordering-cost"
    assert verdict(quiet() + reordered(2.0, 2.1, 2.0, 2.2, 2.0), claim).verdict == "reproduced"
    assert verdict(quiet() + reordered(2.0), claim).verdict == "supported"
    assert verdict(quiet() + reordered(*[0.2] * 5), claim).verdict == "contradicted"
    assert verdict(quiet() + reordered(*[80.0] * 5), claim).verdict == "contradicted"
    assert verdict(quiet() + reordered(0.9, 1.1, 0.9, 1.1, 1.0), claim).verdict == "undecided"
    whole = next(c for c in EXPERIMENTS["preparation"].cells("quick", "cpu") if "part" in c.params)
    assert whole.repeats == 5


def test_a_reuse_that_changes_results_is_no_reuse() -> None:
    claim = "pipad-s33-first-agg-param-free"
    for gap, word in ((1e-7, "reproduced"), (1e-2, "contradicted")):
        found = [observation("relative_error", gap, of="reuse")]
        row = made("preparation", {"dataset": "hepth"}, found, deviation={"output": gap})
        assert verdict([row], claim).verdict == word
        assert verdict([row], claim).source == "counted"


# The ledger


def test_settings_and_arithmetic_are_by_definition() -> None:
    found = {claim.id: claim.definition for claim in load_ledger(PAPER.ledger) if claim.definition}
    settings = {"s33-stride", "s41-slice-cap", "s43-sper-options", "s51-feature-dims",
                "s51-protocol"}  # fmt: skip
    warp = {"s32-access-granularity", "fig5-request-transaction-knees", "s42-coalesce-num",
            "s42-vector-widths", "s53-example-dim2", "s53-example-dim16"}  # fmt: skip
    formulas = {f"s41-space-{name}" for name in ("sliced-csr", "csr", "coo")}
    assert set(found) == {f"pipad-{name}" for name in settings | warp | formulas}


def test_printed_bounds_are_told() -> None:
    bounds = {claim.id: claim.bound for claim in load_ledger(PAPER.ledger) if claim.bound}
    upper = {"s1-gpu-util-bound", "fig3-sm-util", "s43-preprocessing-epochs", "s44-memory-bound"}
    assert bounds == dict.fromkeys((f"pipad-{name}" for name in upper), "upper") | {
        "pipad-fig11b-dim-sensitivity": "lower"
    }


def test_hints_of_an_empty_run_could_change_a_verdict() -> None:
    for found in evaluate(PAPER, []).verdicts:
        assert "--preset full" not in found.reason
        if "--device cuda" in found.reason:
            assert "weak" in found.reason


def test_graphs_of_quick_are_large_and_small() -> None:
    assert {BY_NAME[name].small for name in fig10.QUICK_GRAPHS} == {True, False}
