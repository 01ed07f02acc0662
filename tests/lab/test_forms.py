"""Forms of claims and figures on made rows: edges that every experiment in forms relies on."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dgbench.harness.store.row import Row
from dgbench.lab import entry_rules, line_rules, outcomes, race_rules, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.estimates import (
    Estimate,
    EvaluationContext,
    PaperForms,
    gaps_of_failures,
    on_gpu,
    prefer,
    real_data,
    unnoted,
)
from dgbench.lab.figure_forms import CopyShare, SpeedupBars, StackedTime, Sweep
from dgbench.lab.judging import judging
from dgbench.lab.paper import Claim
from dgbench.lab.quantities import computed, observed, of_rows, paired, speedup
from dgbench.lab.result_checks import ResultCheck
from dgbench.lab.table import observation
from dgbench.runtime.errors import UnknownKeyError

FORMS = PaperForms(
    "toy", labels={"dataset": str.upper, "phase": {"gnn": "GNN"}},
    facts={"size": ("dataset", lambda name: "small" if name == "g" else "large")},
    order={"dataset": ("h", "g")}, uncounted=frozenset({"other"}),
)  # fmt: skip


def row(dataset: str, *found: Any, number: int = 1, **fields: Any) -> Row:
    """A row of the experiment `made`; `found` are (metric, value, dims), `system` is a param."""
    params = {"dataset": dataset, **fields.pop("params", {})}
    return Row(
        id=f"{'-'.join(map(str, params.values()))}-{number}-{fields.get('instrumented', '')}",
        paper="toy", experiment="made", params=params, group=dataset, round=number,
        observed=[observation(name, value, **dims) for name, value, dims in found], **fields,
    )  # fmt: skip


def count(dataset: str, edges: int, **fields: Any) -> Row:
    return row(dataset, ("edges", edges, {}), **fields)


def raced(dataset: str, noise: float = 0.001, rounds: int = 5, **seconds: float) -> list[Row]:
    """Rounds of systems by seconds of a step."""
    return [
        row(dataset, ("step_time", time * (1 + noise * n * (-1) ** k), {}), number=n,
            params={"system": system})
        for n in range(1, rounds + 1) for k, (system, time) in enumerate(seconds.items())
    ]  # fmt: skip


def failed(dataset: str, **fields: Any) -> Row:
    return row(dataset, status="oom", reason="out of memory", **fields)


def context(*rows: Any, value: Any = None) -> EvaluationContext:
    claim = Claim(id="c", where="-", statement="-", kind="speedup", value=value, unit="x")
    every = [one for many in rows for one in (many if isinstance(many, list) else [many])]
    return EvaluationContext(every, "made", FORMS, claim)


def values(quantity: Any, *rows: Any) -> dict[Any, float]:
    """Numbers of a quantity by the values of its coordinates."""
    found = quantity.estimates(context(*rows))
    return {tuple(v for _, v in at): one.value for at, one in found.items()}


EDGES = observed("edges", per="dataset")
STEPS = observed("step_time", per="dataset")
FASTER = speedup(STEPS, "slow", "ours")
PARTS = [
    row("g", ("edges", 2, {"of": "raw"}), ("edges", 6, {"of": "smoothed"}), ("vertices", 4, {}))
]


@pytest.mark.parametrize(
    ("quantity", "rows", "wanted"),
    [
        (EDGES, [], {}),
        (EDGES, [failed("g")], {}),
        (EDGES, [count("g", 3), count("h", 5)], {("h",): 5, ("g",): 3}),  # order of the paper
        (EDGES, [count("g", 2), count("g", 4, number=2)], {("g",): 3}),  # several: their mean
        (EDGES.pooled("last"), [count("g", 2), count("g", 4, number=2)], {("g",): 4}),
        (EDGES.where(dataset=("g", "h").__contains__).pooled("workloads"),
         [count("g", 3), count("h", 5)], {("g",): pytest.approx(3), ("h",): pytest.approx(5)}),
        (observed("edges").pooled("workloads"), [count("g", 4), count("h", 9)],
         {(): pytest.approx(6)}),
        (EDGES.pooled("workloads"), [count("g", 0)], {}),
        (EDGES.pooled("seeds"), [count("g", 2), count("g", 4, number=2)], {("g",): 3}),
        (EDGES.where(dataset="g"), [count("g", 3), count("h", 5)], {(): 3}),
        (EDGES.where(size="small"), [count("g", 3), count("h", 5)], {("g",): 3}),
        (EDGES, PARTS, {}),  # a dimension that is not named must be absent
        (observed("edges", of=("smoothed", "raw")), PARTS, {("smoothed",): 6, ("raw",): 2}),
        (observed("edges", of="smoothed") / observed("edges", of="raw"), PARTS, {(): 3}),
        (100 * (1 - observed("edges", of="raw") / observed("edges", of="smoothed")), PARTS,
         {(): pytest.approx(200 / 3)}),
        (EDGES.mean_over("dataset"), [count("g", 3), count("h", 5)], {(): 4}),
        (EDGES.joined_over(max, "dataset"), [count("g", 3), count("h", 5)], {(): 5}),
        (EDGES.where(dataset="g").over(EDGES.where(dataset="h")), [count("g", 3), count("h", 6)],
         {(): 0.5}),
        (EDGES.or_else(observed("vertices", per="dataset")), PARTS, {("g",): 4}),
        (EDGES.printed({"g": 4.0}.get), [], {}),
        (EDGES.over(EDGES.printed(lambda at: {"g": 4.0}.get(at["dataset"]))),
         [count("g", 2), count("h", 5)], {("g",): 0.5}),
        (EDGES.keep(real_data), [count("g", 3, data={"twin": True}), count("h", 5)], {("h",): 5}),
        (EDGES.keep(prefer(on_gpu)), [count("g", 3)], {("g",): 3}),
        (EDGES.keep(on_gpu), [count("g", 3, device="cuda"), count("g", 3, number=2)], {}),  # mixed
        (EDGES.instrumented(), [count("g", 3, instrumented=True), count("h", 5)], {("g",): 3}),
        (EDGES.instrumented(also=True), [count("g", 3, instrumented=True), count("h", 5)],
         {("h",): 5, ("g",): 3}),
        (of_rows(lambda one: math.nan, per="dataset"), [count("g", 3)], {}),
        (FASTER, raced("g", noise=0, slow=2.0, ours=1.0), {("g",): pytest.approx(2)}),
        (FASTER, raced("g", slow=2.0), {}),
        (paired(EDGES, observed("vertices", per="dataset")), [count("g", 3)], {}),
    ],
)  # fmt: skip
def test_numbers_of_a_quantity(quantity, rows, wanted) -> None:
    assert values(quantity, rows) == wanted


def test_a_dimension_that_nobody_registered_is_an_error() -> None:
    with pytest.raises(UnknownKeyError, match="datasett"):
        values(observed("edges", per="datasett"), count("g", 3))


def test_computed_numbers_are_selected_like_others() -> None:
    made = computed(
        lambda _: [({"dataset": name, "epoch": n}, Estimate(n)) for name in "gh" for n in (1, 2)],
        per=("dataset", "epoch"),
    )
    assert values(made.where(dataset="g"), []) == {(1,): 1, (2,): 2}


def found(rule: Any, *rows: Any, value: Any = None, floor: float = 0.01) -> str:
    """Outcome in a letter: holds, fails, open, direction only, lacking."""
    with judging(floor):
        finding = rule(context(*rows, value=value)).finding()
    if finding.empty:
        return "lacking"
    if finding.undecided:
        return "open"
    if finding.holds is None:
        return {True: "direction", False: "other way", None: "number"}[finding.direction]
    return "holds" if finding.holds else "direction" if finding.direction else "fails"


TWO = [*raced("g", slow=2.0, ours=1.0), *raced("h", slow=2.0, ours=1.0)]
LOST = [*raced("g", slow=2.0, ours=1.0), *raced("h", slow=1.0, ours=2.0)]
NEAR = [*raced("g", slow=2.0, ours=1.0), *raced("h", slow=1.0, ours=1.0)]
ONE = raced("g", rounds=1, slow=2.0, ours=1.0)
ABOVE = rules.all_above(FASTER, 1.0)
BOTH_WAYS = combine.with_printed_value(rules.all_above(EDGES, 0.0), rules.all_above(EDGES, 4.0))
BY_NAME = {name: EDGES.where(dataset=name.lower()) for name in "GH"}
RANGE = rules.entries_near_claim({"low": FASTER.joined_over(min, "dataset")}, ABOVE)


@pytest.mark.parametrize(
    ("rule", "rows", "value", "wanted"),
    [
        *((ABOVE, rows, None, wanted) for rows, wanted in (
            (TWO, "holds"), (LOST, "fails"), (NEAR, "open"), (ONE, "open"), ([], "lacking"))),
        (rules.all_below(EDGES, 3), [count("g", 3)], None, "fails"),  # a bar is not below itself
        (rules.at_most(EDGES, 3), [count("g", 3)], None, "holds"),
        (rules.at_least(EDGES, 3), [count("g", 3)], None, "holds"),
        (rules.at_most_claim(EDGES), [count("g", 3), count("h", 5)], 4, "fails"),
        (rules.all_above(EDGES, 3.0, near=0.5), [count("g", 3)], None, "open"),
        (rules.all_within(FASTER, 1.5, 2.5), TWO, None, "holds"),
        (rules.all_within(FASTER, 1.5, 2.5), LOST, None, "fails"),
        (rules.all_within(FASTER, 1.5, 2.5), ONE, None, "open"),
        (rules.all_equal(EDGES, lambda value, at: value[at["dataset"]]), [count("g", 3)], {"g": 3},
         "holds"),
        (rules.all_equal(EDGES, 3, {"dataset": ("g", "h")}), [count("g", 3)], None, "lacking"),
        (rules.not_measurable("a cluster"), TWO, None, "lacking"),
        (rules.all_equal(EDGES, lambda value, at: value.get(at["dataset"]), within=0.1),
         [count("g", 43), count("h", 5)], {"g": 40}, "holds"),  # nothing is printed of h
        (rules.all_equal(EDGES, 40, within=0.05), [count("g", 43)], None, "fails"),
        (rules.all_equal(EDGES, 40, near=2), [count("g", 43)], None, "fails"),
        (rules.near_claim(EDGES, within=0.1), [count("g", 43)], 40, "holds"),
        (rules.near_claim(EDGES, within=0.1), [count("g", 45)], 40, "fails"),
        (rules.entries_near_claim({}, ABOVE), TWO, {}, "direction"),
        (combine.both(ABOVE, rules.all_above(EDGES, 0), whatever_ran=True), TWO, None, "holds"),
        (combine.both(ABOVE, rules.all_above(EDGES, 0), whatever_ran=True), [], None, "lacking"),
        *((rules.all_equal(EDGES, 3, near=1), [count("g", edges)], None, wanted)
          for edges, wanted in ((4, "holds"), (5, "fails"))),
        (rules.on_most(EDGES, lambda n: n > 3, "graph"), [count("g", 3), count("h", 5)], None,
         "fails"),
        (rules.on_most(EDGES, lambda n: n > 2, "graph", whole=True), [count("g", 3)], None,
         "holds"),
        (rules.largest_at(EDGES, "dataset", "h"), [count("g", 3), count("h", 5)], None, "holds"),
        (rules.largest_at(EDGES, "dataset", "h"), [count("h", 5)], None, "lacking"),
        (rules.clearly_larger(FASTER, {"dataset": "g"}), LOST, None, "holds"),
        (rules.clearly_larger(FASTER, {"dataset": "g"}), TWO, None, "open"),
        (rules.clearly_larger(FASTER, {"dataset": "g"}, required={"dataset": ("g", "i")}), LOST,
         None, "lacking"),
        (rules.rising(observed("edges", per="dim"), "dim"),
         [row("g", ("edges", n, {"dim": n})) for n in (1, 2)], None, "holds"),
        (combine.complete(ABOVE, FASTER, {"dataset": ("g", "h")}), TWO, None, "holds"),
        (combine.complete(ABOVE, FASTER, {"dataset": ("g", "i")}), TWO, None, "lacking"),
        *((line_rules.clearly_above(FASTER.where(dataset="g"), FASTER.where(dataset=other)), rows,
           None, wanted) for other, rows, wanted in (
            ("h", LOST, "holds"), ("h", TWO, "open"), ("i", TWO, "lacking"))),
        *((line_rules.each_line(EDGES, "dataset", lambda by: by["g"] < by["h"]),
           [count("g", 3), count("h", edges)], None, wanted)
          for edges, wanted in ((5, "holds"), (2, "fails"))),
        (rules.near_claim(EDGES), [count("g", 3)], {"low": 2, "high": 4}, "number"),
        (rules.near_claim(EDGES, above=2), [count("g", 3)], 3, "direction"),
        (rules.near_claim(FASTER, needs_interval=True), ONE, 2, "open"),
        (rules.equals_claim(lambda table: table.get(), "edges"), [count("g", 3)], 3, "holds"),
        (rules.equals_claim(lambda table: table.get(), "edges"), [], 3, "lacking"),
        *((entry_rules.near_entries(BY_NAME, points=1, share=0.1), [count("g", 3), count("h", 5)],
           value, wanted) for value, wanted in (
            ({"G": 4, "H": "5"}, "holds"), ({"G": 4, "H": 9}, "fails"))),
        (entry_rules.near_entries(BY_NAME), [count("g", 3)], {"G": 3, "H": 5}, "lacking"),
        *((entry_rules.in_order_of_entries(BY_NAME), [count("g", 3), count("h", 5)], value, wanted)
          for value, wanted in (({"G": 1, "H": "1K"}, "holds"), ({"G": 9, "H": 1}, "fails"))),
        (entry_rules.in_order_of_entries(BY_NAME, times=True), [count("g", 500), count("h", 501)],
         {"G": 1, "H": 2}, "open"),
        (entry_rules.within_claim(EDGES), [count("g", 3)], {"low": 3, "high": 4}, "holds"),
        (entry_rules.within_claim(EDGES), [count("g", 3)], {"low": 4, "high": 5}, "fails"),
        (entry_rules.within_claim(EDGES, slack=1), [count("g", 3)], {"low": 4, "high": 5}, "holds"),
        (RANGE, TWO, {"low": 2}, "direction"), (RANGE, LOST, {"low": 2}, "other way"),
        (BOTH_WAYS, [count("g", 5), count("h", 5)], None, "holds"),
        (BOTH_WAYS, [count("g", 5), count("h", 3)], None, "direction"),  # place by place
        (combine.both(ABOVE, rules.all_below(FASTER, 1.5)), TWO, None, "fails"),
        *((combine.both(ABOVE, rules.all_above(EDGES, 0), whatever_ran=ran), rows, None, wanted)
          for ran, rows, wanted in (
            (False, TWO, "lacking"), (True, TWO, "holds"), (True, [count("g", 3)], "holds"),
            (True, [*LOST, count("g", 3)], "fails"), (True, [], "lacking"))),
        (rules.near_claim(FASTER, above=1, report=rules.largest), LOST, 2, "direction"),
        (combine.or_direction(ABOVE, rules.all_above(EDGES, 0)), [*LOST, count("g", 3)], None,
         "direction"),
        (combine.or_direction(ABOVE, rules.all_above(EDGES, 0), settles=True),
         [*NEAR, count("g", 3)], None, "direction"),
        (combine.first_found(rules.all_above(EDGES, 0), ABOVE), TWO, None, "holds"),
        (combine.needs_gpu(ABOVE, "a GPU"), [], None, "lacking"),
        *((race_rules.ahead_of_all(lambda rival: speedup(STEPS, rival, "ours"), ("slow", "no")),
           rows, None, wanted) for rows, wanted in (
            (TWO, "holds"), (LOST, "fails"), (NEAR, "open"), ([], "lacking"))),
        *((race_rules.ahead_of_all(lambda rival: speedup(STEPS, rival, "ours"), ("slow",),
                                   most=True), rows, None, wanted)
          for rows, wanted in ((TWO, "holds"), (LOST, "fails"), (NEAR, "open"))),
        (race_rules.extreme_near_claim(FASTER, max, "high", {"dataset": "g"}), LOST, {"high": 2},
         "direction"),
        (race_rules.extreme_near_claim(FASTER, max, "high", {"dataset": "h"}), LOST, {"high": 2},
         "other way"),
    ],
)  # fmt: skip
def test_outcome_of_a_rule(rule, rows, value, wanted) -> None:
    assert found(rule, rows, value=value) == wanted


def test_interpretations_read_apart_and_what_is_shown_beside_is_no_evidence() -> None:
    rows = [row("g", ("edges", 3, {}), ("step_time", 1.0, {}))]
    many = combine.interpretations("?", {"a": rules.all_above(EDGES, 0), "b": ABOVE})
    readings = many(context(rows)).finding().readings
    assert {name: one.empty for name, one in readings.items()} == {"a": False, "b": True}
    assert {read.metric for read in readings["a"].reads} == {"edges"}
    with judging(None) as seen:
        shown = combine.shown_beside(rules.all_above(EDGES, 0), {"time": STEPS}, "s")
        assert "time 1 s" in shown(context(rows)).finding().reason
        with unnoted():
            STEPS.estimates(context(rows))
    assert {read.metric for read in seen.reads} == {"edges"}


def test_a_model_or_a_proxy_is_said_only_where_it_is_used() -> None:
    for device, used in (("cpu", "m"), ("cuda", "")):
        rows = context(count("g", 3, device=device))
        rule = rules.all_above(EDGES, 0)
        assert combine.by_model(rule, "m", on_cpu_only=True)(rows).finding().model == used
        assert combine.by_model(rule, "m", of_parts_only=True)(rows).finding().model == ""
        assert combine.as_proxy(rule, "m", on_cpu_only=True)(rows).finding().proxy == used


def test_arithmetic_reaches_numbers_that_were_computed_or_joined() -> None:
    half = Estimate(0.5, 0.4, 0.6, kind="ratio")
    made = computed(lambda _: [({"dataset": "g"}, half)], per=("dataset",))
    rows = [count("g", 3), count("h", 5)]
    (one,) = (100 * made).estimates(context(rows)).values()
    assert (one.value, one.low, one.high) == (50.0, 40.0, 60.0)
    (one,) = (1 - made).estimates(context(rows)).values()
    assert (one.low, one.high) == (0.4, 0.6)
    (one,) = (2 * EDGES.mean_over("dataset")).estimates(context(rows)).values()
    assert one.value == 8.0
    (one,) = made.over(EDGES.where(dataset="g")).estimates(context(rows)).values()
    assert (one.value, one.low) == (pytest.approx(0.5 / 3), pytest.approx(0.4 / 3))
    (one,) = made.over(made).estimates(context(rows)).values()  # which is no exact number
    assert one.low is None
    with pytest.raises(TypeError):
        made + EDGES


def test_pooled_ratios_keep_their_interval_under_a_function() -> None:
    saved = FASTER.map_pooled(lambda ratio: 100 * (1 - 1 / ratio))
    (one,) = saved.estimates(context(raced("g", slow=2.0, ours=1.0))).values()
    assert one.value == pytest.approx(50, abs=1)
    assert (one.low or 100) < one.value < (one.high or 0)
    assert one.processes == 5


@pytest.mark.parametrize(("floor", "side"), [(0.01, 1), (0.2, 0)])
def test_what_a_ratio_is_made_into_keeps_its_noise_floor(floor: float, side: int) -> None:
    rows = context(raced("g", slow=1.1, ours=1.0))
    for made, wanted in ((lambda x: 100 * (1 - 1 / x), side), (lambda x: 1 / x - 1, -side)):
        with judging(floor):
            (one,) = FASTER.map_pooled(made).estimates(rows).values()
        assert one.side(0.0) == wanted


def test_most_is_more_than_half() -> None:
    rows = [count(name, edges) for name, edges in (("g", 3), ("h", 5), ("i", 7))]
    assert rules.on_most(EDGES, lambda n: n > 3, "graph")(context(rows)).finding().holds is True


def test_claims_rest_on_no_graph_that_is_only_shown() -> None:
    claim = context(value=0).claim
    check = outcomes.check_of(FORMS, "made", rules.all_above(EDGES, 4))
    assert check(claim, [count("g", 5), count("other", 3)]).holds


def test_a_finding_says_what_all_its_numbers_are_on() -> None:
    parts = observed("edges", per=("dataset", "of"))
    outcome = rules.all_above(parts, 0)(context(*PARTS))
    assert (list(outcome.measured), outcome.remarks) == (["raw", "smoothed"], ("on G",))


def test_a_claim_shows_the_deviation_of_the_judged_system_alone() -> None:
    def gap(size: float) -> list[ResultCheck]:
        return [ResultCheck(of="outputs", against="o", gap=size, tolerance=1.0, compared=1)]

    rows = [count("g", 3, params={"system": who}, checks=gap(size), deviation={"output": 0.5})
            for who, size in (("ours", 0.1), ("slow", 0.3))]  # fmt: skip
    outcome = rules.all_above(EDGES, 0)(context(rows))
    assert [outcome.finding(who).deviation for who in ("ours", "slow", "")] == [0.1, 0.3, 0.5]


def marks(form: Any, *rows: Any) -> list[dict[str, Any]]:
    return form.figure("made", FORMS).points(context(*rows).rows)


def test_a_sweep_marks_twins_counts_and_what_did_not_run() -> None:
    form = Sweep("f", "F", EDGES, series="edges", x="{dataset}")
    made = marks(form, count("g", 3, data={"twin": True}), failed("h"), failed("g", number=2))
    assert made == [
        {"series": "edges", "x": "G (twin)", "y": 3, "row_ids": ["g-1-"], "counted": True},
        {"series": "edges", "x": "H", "failed": "oom: out of memory", "row_ids": ["h-1-"]},
    ]


def test_cells_of_another_part_hide_no_gap() -> None:
    """Where they have a param in place of a dimension of observations."""
    quantity = observed("edges", per=("dataset", "model"), part="a")
    form = Sweep("f", "F", quantity, series="{model}", x="{dataset}", gaps={"series": "all"})
    rows = [
        row("g", ("edges", 1, {"model": "m"}), params={"part": "a"}),
        failed("h", params={"part": "a"}),
        row("h", params={"part": "b", "model": "m"}),
    ]
    assert [one["series"] for one in marks(form, *rows)] == ["m", "all"]


def test_printed_numbers_and_gaps_of_failures_alone() -> None:
    parts = observed("edges", per="dataset", of=("raw", "smoothed")).keep(gaps_of_failures)
    paper = observed("edges", per="dataset", of="raw").printed(lambda at: 7)
    form = Sweep("f", "F", parts, series="of", x="{dataset}", gaps={"series": "raw"}, printed=paper)
    made = marks(form, row("g", ("edges", 1, {"of": "raw"})), failed("h"))
    assert [(one["series"], one["x"], one.get("y"), one.get("paper")) for one in made] == [
        ("raw", "G", 1, None), ("printed", "G", 7, True), ("raw", "H", None, None)
    ]  # fmt: skip


def test_one_gap_stands_for_all_series_of_a_place_that_has_none() -> None:
    quantity = observed("edges", per="dataset", of=("raw", "smoothed"))
    form = Sweep("f", "F", quantity, series="of", x="{dataset}", gaps={"series": "all"})
    made = marks(form, *PARTS, failed("h"), row("i", ("edges", 1, {"of": "raw"})))
    gaps = [(one["series"], one["x"], one["failed"]) for one in made if "failed" in one]
    assert gaps == [("all", "H", "oom: out of memory"), ("smoothed", "I", "skipped: not run")]
    explained = Sweep("f", "F", quantity.keep(gaps_of_failures), series="of", x="{dataset}")
    made = marks(explained, *PARTS, failed("h"), row("i", ("edges", 1, {"of": "raw"})))
    assert {one["x"] for one in made if "failed" in one} == {"H"}
    own = Sweep("f", "F", quantity, series="of", x="{dataset}", gaps={"series": "smoothed"})
    (gap,) = (one for one in marks(own, row("i", ("edges", 1, {"of": "raw"}))) if "failed" in one)
    assert gap["series"] == "smoothed"  # which is drawn as a gap where others are numbers


def test_a_gap_may_stand_for_all_marks_of_a_graph_and_printed_numbers_have_none() -> None:
    numbers = observed("edges", per="dataset", of=("raw", "smoothed"))
    every = {"ours": numbers, "paper": numbers.where(of="raw").printed(lambda at: 9.0)}
    form = Sweep("f", "F", every, panel="{of}", series="of", x="{dataset}",
                 gaps={"panel": "all", "series": "{dataset}"})  # fmt: skip
    made = marks(form, row("g", ("edges", 1, {"of": "raw"})), failed("h"), failed("i"))
    assert [(one["series"], one["y"]) for one in made if one.get("paper")] == [("paper", 9.0)]
    assert [one["series"] for one in made if "failed" in one] == ["H", "I"]


def test_a_row_with_numbers_plans_no_others_and_one_without_those_of_all() -> None:
    rows = [row(name, *(("edges", 1, {"dim": n}) for n in dims)) for name, dims in
            (("g", (1, 2)), ("h", (4,)))]  # fmt: skip
    made = marks(Sweep("f", "F", observed("edges", per=("dataset", "dim")), series="{dataset}",
                       x="dim"), *rows, failed("i"))  # fmt: skip
    assert sorted((one["series"], one["x"]) for one in made if "failed" in one) == [
        ("I", 1), ("I", 2), ("I", 4)
    ]  # fmt: skip


def test_speedups_say_who_failed_and_stacks_have_one_gap_a_bar() -> None:
    bars = SpeedupBars("f", "F", FASTER, row="{dataset}", system="ours", baseline="slow")
    rows = [*TWO, *raced("i", ours=1.0), failed("i", params={"system": "slow"})]
    *_, gap = marks(bars, rows)
    assert (gap["row"], gap["failed_system"]) == ("I", "slow")
    phases = observed("phase_time", per=("dataset", "phase"))
    stack = StackedTime("f", "F", phases, row="{dataset}", system="ours")
    made = marks(stack, row("g", *(("phase_time", 1.0, {"phase": p}) for p in "ab")), failed("h"))
    assert [(one["row"], one.get("phase")) for one in made] == [("G", "a"), ("G", "b"), ("H", None)]


def test_one_gap_stands_for_a_line_of_computed_numbers() -> None:
    line = [({"dataset": "g", "ranks": n}, Estimate(n)) for n in (1, 2)]
    quantity = computed(lambda _: line, per=("dataset", "ranks"))
    form = Sweep("f", "F", quantity, series="{dataset}", x="ranks", gaps={"x": 1})
    made = marks(form, count("g", 3), failed("h"), count("g", 4, params={"ranks": 4}))
    assert [(one["series"], one["x"], "failed" in one) for one in made] == [
        ("G", 1, False), ("G", 2, False), ("H", 1, True), ("G", 4, True),
    ]  # fmt: skip


def test_rates_are_drawn_against_copying_only_where_it_was_measured() -> None:
    form = CopyShare("c", "c", observed("bandwidth", per="dataset"), row="{dataset}", system="ours")
    rate = row("g", ("bandwidth", 2e9, {}))
    machine = Row(
        id="m", paper="-", experiment="machine", params={}, group="m", round=1,
        observed=[observation("bandwidth", 4e9, place="host", using="all")],
    )  # fmt: skip
    assert marks(form, rate) == []
    (mark,) = marks(form, rate, machine)
    assert (mark["row"], mark["value"], mark["limit"]) == ("G", 2.0, 4.0)
