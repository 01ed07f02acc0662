"""Checks of stale aggregation on made rows: each can hold, fail, and find nothing."""

from __future__ import annotations

import msgspec
import pytest
import yaml
from dgc_rows import but, judged, seen
from test_dgc_stale_runs import row_of_runs, stale_row

from dgbench.systems.base import Claim
from dgbench.systems.dgc import PAPER
from dgbench.systems.dgc.experiments.fig11 import Fig11, cdf_points
from dgbench.systems.dgc.experiments.settings import DATASET_OF, MODEL_OF
from dgbench.systems.dgc.experiments.stale_ablation import StaleAblation
from dgbench.systems.dgc.experiments.table2 import Table2
from dgbench.systems.dgc.experiments.table3 import Table3

LEDGER = {
    entry["id"]: msgspec.convert(entry, Claim)
    for entry in yaml.safe_load(PAPER.ledger.read_text("utf-8"))
}
ABLATION = "stale_ablation"
PARTS = ("fig11", "s52", "tab2", "tab3", "s733-comm", "s733-adaptive", "s733-static")
CHECKS = {n: c for n, c in PAPER.checks.items() if n.removeprefix("dgc-").startswith(PARTS)}
ACC = sorted(name for name in CHECKS if "-acc-" in name)
COMM = sorted(name for name in CHECKS if "-comm-" in name and "tab" in name)


def check(name, rows):
    """Through the table of all checks, as the harness calls them."""
    return PAPER.checks[name](LEDGER[name], rows)


def where_of(claim):
    """(experiment, our dataset, our model) that the claim's numbers are of."""
    dataset = DATASET_OF[claim.workload["datasets"][0]]
    if claim.id.startswith("dgc-tab2"):
        return "table2", dataset, "dysat"
    return "table3", dataset, MODEL_OF[claim.workload["model"]]


def ours(key):
    return "without" if key == "0" else key


def held_rows(runs, experiment):
    """Runs by (graph, model, setting) with one without stale aggregation beside each."""
    whole = {(g, m, "without"): (0.8, 0.0) for g, m, _ in runs}
    return [row_of_runs(whole | runs, experiment=experiment)]


def test_every_claim_of_this_part_has_its_check_and_no_other():
    mine = {name for name in LEDGER if name.removeprefix("dgc-").startswith(PARTS)}
    assert mine == set(CHECKS)
    assert len(CHECKS) == 45


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_nothing_is_found_without_rows(name):
    finding = check(name, [])
    assert finding.measured is None
    assert finding.holds is None
    assert finding.reason


@pytest.mark.parametrize("name", ACC)
def test_printed_accuracies_hold_and_others_do_not(name):
    claim = LEDGER[name]
    experiment, dataset, model = where_of(claim)
    for shift, holds in ((0.0, True), (-0.03, False)):
        runs = {
            (dataset, model, ours(str(key))): (
                value + (shift if ours(str(key)) != "without" else 0),
                0.5,
            )
            for key, value in claim.value.items()
        }
        finding = check(name, [row_of_runs(runs, experiment=experiment, twin=True)])
        assert finding.holds is holds
        assert finding.measured["without"] == pytest.approx(
            claim.value.get("without", claim.value.get("0")), abs=1e-3
        )


@pytest.mark.parametrize("name", COMM)
def test_printed_savings_hold_and_others_do_not(name):
    claim = LEDGER[name]
    experiment, dataset, model = where_of(claim)
    for shift, holds in ((0.0, True), (-0.06, False)):
        runs = {(dataset, model, str(key)): (0.7, value / 100 + shift) for key, value in
                claim.value.items()}  # fmt: skip
        runs[dataset, model, "without"] = (0.7, 0.0)
        assert check(name, [row_of_runs(runs, experiment=experiment)]).holds is holds


def test_savings_that_do_not_rise_point_the_other_way():
    runs = {("stack", "dysat", f"0.{k}D"): (0.7, 0.9 - k / 10) for k in (1, 3, 5, 7)}
    runs["stack", "dysat", "without"] = (0.7, 0.0)
    assert check("dgc-tab2-comm-stack", [row_of_runs(runs, experiment="table2")]).direction is False


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("dgc-fig11-movie-10", 0.85, 0.7),
        ("dgc-fig11-stack-10", 0.78, 0.9),
        ("dgc-fig11-movie-100", 0.97, 0.9),
    ],
)
def test_shares_of_figure_11(name, inside, outside):
    claim = LEDGER[name]
    dataset = DATASET_OF[claim.workload["datasets"][0]]
    epoch, limit = claim.workload["epoch"], claim.workload["threshold"]
    for share, holds in ((inside, True), (outside, False)):
        observed = [seen("cumulative_share", share, dataset=dataset, epoch=epoch, limit=limit)]
        finding = check(name, [stale_row(observed, "fig11", graphs=dataset)])
        assert finding.holds is holds
        assert finding.measured == pytest.approx(100 * share)


def test_distances_must_fall_on_every_graph(wording):
    def row(late):
        observed = [
            seen("distance", median, dataset=name, epoch=epoch, quantile=0.5)
            for name, last in (("wikipedia", 0.1), ("email-eu-core", late))
            for epoch, median in ((2, 1.0), (20, last))
        ]
        return [stale_row(observed, "fig11", graphs="wikipedia email-eu-core")]

    assert check("dgc-s52-distance-shrinks", row(0.5)).holds
    assert not check("dgc-s52-distance-shrinks", row(2.0)).holds
    wording(Fig11().answer(row(0.5)))


def test_copies_must_be_those_of_the_formula():
    run = {"dataset": "wikipedia", "model": "dysat", "method": "ranks"}
    held = {"copies": 400, "formula": 400, "received": 600}
    row = stale_row([seen("memory", size, of=of, **run) for of, size in held.items()], ABLATION)
    finding = check("dgc-s52-cache-memory", [row])
    assert finding.holds
    assert "1.5 times" in finding.reason
    other = but(row, "memory", 404, of="formula", **run)
    assert check("dgc-s52-cache-memory", [other]).holds is False


def test_the_trade_off_of_stack_and_the_threshold_of_movie():
    stack = {
        ("stack", "dysat", "without"): (0.697, 0.0),
        ("stack", "dysat", "0.3D"): (0.621, 0.855),
    }
    row = row_of_runs(stack, experiment="table2")
    assert check("dgc-s52-stack-03d", [row]).holds
    stack["stack", "dysat", "0.3D"] = (0.69, 0.855)
    assert not check("dgc-s52-stack-03d", [row_of_runs(stack, experiment="table2")]).holds
    movie = {("movie", "dysat", "without"): (0.8, 0.0)}
    for saved, holds in ((0.81, True), (0.2, False)):
        movie["movie", "dysat", "0.3D"] = (0.79, 0.5)
        movie["movie", "dysat", "0.5D"] = (0.78, saved)
        finding = check("dgc-s52-movie-05d", [row, row_of_runs(movie, experiment="table2")])
        assert finding.holds is holds


def seeds(drops, saved, dataset="wikipedia", experiment="table2", setting="0.9D"):
    """Rows of as many seeds as there are losses of accuracy."""
    rows = []
    for seed, drop in enumerate(drops, 1):
        runs = {
            (dataset, "dysat", "0.1D"): (0.8, saved[0]),
            (dataset, "dysat", setting): (0.8 - drop, saved[1]),
        }
        (row,) = held_rows(runs, experiment)
        row.id, row.params["seed"] = f"{row.id}-{seed}", seed
        rows.append(row)
    return rows


@pytest.mark.parametrize(
    ("drops", "saved", "glyph"),
    [
        ((0.2,), (0.1, 0.5), "S"),
        ((0.0,), (0.1, 0.5), "u"),
        ((0.2,), (0.5, 0.1), "O"),
        ((-0.15,), (0.1, 0.5), "O"),
        ((0.02, 0.021, 0.019, 0.02, 0.022), (0.1, 0.5), "S"),
        ((0.02, -0.01, 0.03, -0.02, 0.0), (0.1, 0.5), "u"),
        ((-0.02, -0.021, -0.019, -0.02, -0.02), (0.1, 0.5), "O"),
    ],
)
def test_more_saved_must_cost_accuracy_beyond_the_noise_of_seeds(drops, saved, glyph):
    told = judged(LEDGER["dgc-s52-theta-monotone"], seeds(drops, saved))
    assert (told.glyph, told.source, told.data) == (glyph, "learned", "other")
    assert ("of 5 seeds" in str(told.lacks)) == (len(drops) < 5)


def test_graphs_of_the_same_site_stand_in_before_others():
    claim = LEDGER["dgc-tab2-comm-amazon"]
    printed = {("amazon-magazine", "dysat", k): (0.7, v / 100) for k, v in claim.value.items()}
    printed["amazon-magazine", "dysat", "without"] = (0.7, 0.0)
    near = row_of_runs(printed, experiment="table2")
    far = row_of_runs(
        {
            ("wikipedia", "dysat", "without"): (0.7, 0.0),
            ("wikipedia", "dysat", "0.1D"): (0.7, 0.9),
            ("wikipedia", "dysat", "0.9D"): (0.7, 0.1),
        },
        experiment="table2",
    )
    far.id = "far"
    twin = row_of_runs(
        {("amazon", "dysat", "without"): (0.7, 0.0), ("amazon", "dysat", "0.1D"): (0.7, 0.5)},
        experiment="table2", twin=True,
    )  # fmt: skip
    twin.id = "twin"
    assert judged(claim, [near, far, twin]).glyph == "S"
    told = judged(claim, [far, twin])
    assert (told.glyph, told.data) == ("O", "other")
    assert judged(claim, [twin]).glyph == "-"
    # What is Stack's own is not told by any graph.
    assert judged(LEDGER["dgc-s52-stack-03d"], [near, far]).glyph == "-"


def test_a_part_of_the_columns_is_no_table():
    for name, metric in (("dgc-tab3-acc-amazon-dysat", 0), ("dgc-tab3-comm-amazon-dysat", 1)):
        value = LEDGER[name].value["adaptive"]
        run = (value, 0.7) if metric == 0 else (0.68, value / 100)
        base = LEDGER["dgc-tab3-acc-amazon-dysat"].value["without"]
        runs = {
            ("amazon-magazine", "dysat", "without"): (base, 0.0),
            ("amazon-magazine", "dysat", "adaptive"): run,
        }
        assert check(name, [row_of_runs(runs, experiment="table3")]).holds is False


def test_a_gain_of_accuracy_opposes_a_printed_loss_and_noise_decides_nothing():
    claim = LEDGER["dgc-tab2-acc-amazon"]
    for drops, glyph in (
        ((0.02, 0.021, 0.019, 0.02, 0.02), "s"),
        ((0.01, -0.01, 0.02, -0.02, 0.0), "u"),
        ((-0.02, -0.021, -0.019, -0.02, -0.02), "O"),
    ):
        rows = seeds(drops, (0.1, 0.5), dataset="amazon-magazine")
        assert judged(claim, rows).glyph == glyph


def test_the_printed_formula_falls_and_the_other_sign_rises():
    def row(printed):
        run = {"dataset": "wikipedia", "model": "dysat"}
        observed = [
            seen("threshold", share, setting=setting, of=of, **run)
            for setting, last in (("adaptive", 0.6), ("printed", printed))
            for of, share in (("first", 0.5), ("last", last))
        ]
        return [stale_row(observed, ABLATION)]

    finding = check("dgc-s52-eq6-direction", row(0.4))
    assert finding.holds is False
    assert "+0.10" in finding.reason
    assert check("dgc-s52-eq6-direction", row(0.6)).holds


def test_range_and_mean_of_table_3_are_of_held_graphs():
    def rows(low, high, accuracy):
        runs = {
            ("wikipedia", "dysat", "0.5D"): (0.79, low),
            ("email-eu-core", "dysat", "adaptive"): (accuracy, high),
            ("stack", "dysat", "adaptive"): (0.1, 0.0),  # a twin: not asked
        }
        return held_rows(runs, "table3")

    assert check("dgc-s733-comm-range", rows(0.33, 0.97, 0.79)).holds
    assert not check("dgc-s733-comm-range", rows(0.5, 0.97, 0.79)).holds
    finding = check("dgc-s733-adaptive-mean", rows(0.3, 0.8, 0.784))
    assert finding.holds
    assert finding.measured == {"accuracy_drop": 1.6, "traffic_saved": 80.0}
    assert not check("dgc-s733-adaptive-mean", rows(0.3, 0.6, 0.784)).holds
    assert not check("dgc-s733-adaptive-mean", rows(0.3, 0.8, 0.7)).holds


def test_fixed_thresholds_on_stack_movie_and_epinion():
    def rows(stack, movie):
        return held_rows(
            {
                ("stack", "dysat", "0.5D"): (0.8, stack),
                ("movie", "mpnn_lstm_bare", "0.5D"): (0.8, movie),
            },
            "table3",
        )

    assert check("dgc-s733-static-spread", rows(0.8, 0.33)).holds
    assert not check("dgc-s733-static-spread", rows(0.8, 0.6)).holds
    name = "dgc-s733-static-epinion"
    for accuracy, holds in ((0.722, True), (0.79, False)):
        runs = held_rows({("epinions", "dysat", "0.5D"): (accuracy, 0.697)}, "table3")
        assert check(name, runs).holds is holds


@pytest.mark.parametrize("experiment", [Fig11(), Table2(), Table3(), StaleAblation()])
@pytest.mark.parametrize("preset", ["smoke", "quick", "full", "paper"])
def test_cells_hold_twins_or_held_graphs_and_never_both(experiment, preset):
    cells = experiment.cells(preset, "cpu")
    assert cells
    for cell in cells:
        names = str(cell.params["graphs"]).split()
        assert len({name in DATASET_OF.values() for name in names}) == 1
        assert experiment.jobs(cell, preset)
    assert experiment.answer([]) == ""
    for figure in experiment.figures():
        assert figure.points([]) == []


def test_figures_show_runs_and_failures():
    runs = {
        ("wikipedia", "dysat", "0.5D"): (0.79, 0.5),
        ("wikipedia", "dysat", "adaptive"): (0.79, 0.6),
        ("wikipedia", "dysat", "past"): (0.79, 0.9),
    }
    rows = held_rows(runs, "table3")
    rows = [but(rows[0], "epochs", 20, dataset="wikipedia", model="dysat")]
    table, means, curve = (figure.points(rows) for figure in Table3().figures())
    assert {point["setting"] for point in curve} == {"0.5D", "adaptive", "past"}
    assert {p["series"] for p in table} == {"0.5D", "adaptive", "adaptive, D of all epochs"}
    assert {round(p["y"]) for p in table if "rows saved" in p["panel"]} == {50, 60, 90}
    assert {round(point["y"]) for point in means if point["series"] == "rows"} == {50, 60, 90}
    answer = Table3().answer(rows)
    paper, ours = answer.split("Our switch")
    assert "missed, by bytes as well" in paper
    assert "reached, by bytes as well" in ours
    rows[0].status, rows[0].reason = "oom", "1 of 1 GiB"
    assert Table3().figures()[0].points(rows)[0]["failed"] == "oom: 1 of 1 GiB"
    alone = seen("cumulative_share", 0.5, dataset="wikipedia", epoch=2, limit=1.0)
    assert cdf_points([stale_row([alone], "fig11")]) == []
