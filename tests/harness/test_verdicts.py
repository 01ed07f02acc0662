"""The rules of verdicts as one table, and the properties that hold for any finding."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from fake_papers import make_paper
from hypothesis import given
from hypothesis import strategies as st

from dgbench.harness.claims.verdict import AGAINST, FOR, GLYPHS, MAX_DEVIATION, agreement, decide
from dgbench.harness.store import Row
from dgbench.lab.evidence import MIN_PROCESSES, MIN_SEEDS, Conditions, Scope, strength
from dgbench.lab.evidence import conditions as conditions_of
from dgbench.lab.paper import Claim, Finding


def claim(**changes) -> Claim:
    base = {"id": "c", "where": "1", "statement": "s", "kind": "speedup", "value": 2.0, "unit": "x"}
    return Claim(**{**base, **changes})


def interval(value, low, high, **more) -> Finding:
    return Finding(measured=value, low=low, high=high, **more)


TIMED = Conditions(source="timed", processes=MIN_PROCESSES)
WEAK = Conditions(source="timed", processes=1)
COUNTED = Conditions(source="counted")
TWIN = Conditions(source="timed", processes=MIN_PROCESSES, data="twin")

SHARE = {"kind": "utilisation", "value": 40.0, "unit": "%"}
COUNT = {"kind": "volume", "value": 100, "unit": "bytes"}
ORDER = {"kind": "ordering", "value": "a > b", "unit": None}
LESS = {"kind": "speedup", "value": {"high": 40}, "unit": "% less execution time"}
NAMED = {"needs": {"real_dataset_required": True}}
UPPER = {"kind": "utilisation", "value": 5, "unit": "%", "bound": "upper"}
SECONDS = {"kind": "time", "value": 3.0, "unit": "s", "needs": {"gpus": 1}}
OPEN = interval(0.95, 0.8, 1.1)

TABLE = [
    # name, changes of the claim, finding, conditions, glyph
    ("nothing", {}, None, TIMED, "-"),
    ("said", {}, Finding(reason="needs 8 GPUs"), TIMED, "-"),
    ("nan", {}, interval(math.nan, 1, 2), TIMED, "-"),
    ("within", {}, interval(2.2, 2.1, 2.3), TIMED, "R"),
    ("wide", {}, interval(3.0, 2.9, 3.1), TIMED, "d"),
    ("own tolerance", {"tolerance": 0.6}, interval(3.0, 2.9, 3.1), TIMED, "R"),
    ("straddles", {}, interval(1.8, 0.9, 2.7), TIMED, "u"),
    ("other side", {}, interval(0.8, 0.7, 0.9), TIMED, "X"),
    ("undecided", {}, OPEN, TIMED, "u"),
    ("no interval", {}, Finding(measured=0.8), TIMED, "u"),
    ("range", {"value": {"low": 1.2, "high": 9}}, interval(4, 3, 5), TIMED, "R"),
    ("weak", {}, interval(2.1, 2, 2.2), WEAK, "S"),
    ("weak direction", {}, interval(3.0, 2.9, 3.1), WEAK, "s"),
    ("weak wrong", {}, interval(0.8, 0.7, 0.9), WEAK, "O"),
    ("weak open", {}, OPEN, WEAK, "u"),
    ("open order", ORDER, Finding(measured="a ~ b", holds=False, undecided=True), TIMED, "u"),
    ("model", {}, interval(2.1, 2, 2.2), Conditions(source="projected", model="law"), "S"),
    ("model wrong", {}, interval(0.5, 0.4, 0.6), Conditions(source="projected", model="law"), "O"),
    ("proxy", COUNT, Finding(measured=100), Conditions(proxy="words"), "S"),
    ("counted", COUNT, Finding(measured=100), COUNTED, "R"),
    ("counted off", COUNT, Finding(measured=101), COUNTED, "X"),
    ("note", {**COUNT, "notes": "Our reading."}, Finding(measured=104), COUNTED, "X"),
    ("own tolerance", {**COUNT, "tolerance": 0.05}, Finding(measured=104), COUNTED, "R"),
    ("counted sign", COUNT, Finding(measured=80, direction=True), COUNTED, "d"),
    ("share", SHARE, interval(41.0, 40, 42), TIMED, "R"),
    ("share off", SHARE, interval(20.0, 19, 21), TIMED, "X"),
    ("share near", SHARE, interval(36.0, 30, 42), TIMED, "u"),
    ("share wrong", SHARE, interval(20.0, 19, 21, direction=False), TIMED, "X"),
    ("saving", LESS, interval(39, 37, 41, target=40), TIMED, "R"),
    ("saving less", LESS, interval(9, 7, 11, target=40), TIMED, "d"),
    ("saving open", LESS, interval(2, -1, 5, target=40), TIMED, "u"),
    ("saving none", LESS, interval(-6, -9, -3, target=40), TIMED, "X"),
    ("saving weak", LESS, interval(-6, -9, -3, target=40), WEAK, "O"),
    ("bound kept", UPPER, interval(3, 2, 4), TIMED, "R"),
    ("bound broken", UPPER, interval(8.9, 8, 9), TIMED, "X"),
    ("bound open", UPPER, interval(4.9, 4, 6), TIMED, "u"),
    ("bound broken, weak", UPPER, interval(8.9, 8, 9), WEAK, "O"),
    ("bound by words", UPPER, Finding(measured="9 %", holds=False, direction=True), COUNTED, "X"),
    ("order", ORDER, Finding(measured="a > b", holds=True), COUNTED, "R"),
    ("order not", ORDER, Finding(measured="b > a", holds=False), COUNTED, "X"),
    ("order weak", ORDER, Finding(measured="b > a", holds=False), WEAK, "O"),
    ("order in part", ORDER, Finding(measured="5 of 6", holds=False, direction=True), COUNTED, "d"),
    ("twin, mechanism", {}, interval(2.1, 2, 2.2), TWIN, "R"),
    ("twin, named data", NAMED, interval(2.1, 2, 2.2), TWIN, "S"),
    ("twin, named data, against", NAMED, interval(0.8, 0.7, 0.9), TWIN, "O"),
    ("named data", NAMED, interval(2.1, 2, 2.2), TIMED, "R"),
    ("fitted twin", {"twin": "never", "twin_reason": "E is fitted"}, interval(2, 2, 2), TWIN, "-"),
    ("fitted, real", {"twin": "never"}, interval(2, 1.9, 2.1), TIMED, "R"),
    ("deviates", {}, interval(2, 1.9, 2.1, deviation=1e-3), TIMED, "d"),
    ("deviation nan", {}, interval(2, 1.9, 2.1, deviation=math.nan), TIMED, "d"),
    ("float noise", {}, interval(2, 1.9, 2.1, deviation=1e-6), TIMED, "R"),
    ("definition", {"definition": "a setting of ours"}, interval(2, 1.9, 2.1), TIMED, "="),
    ("definition, nothing", {"definition": "a setting of ours"}, None, TIMED, "="),
    ("seconds elsewhere", SECONDS, interval(3.0, 2.9, 3.1), TIMED, "-"),
    ("seconds there", SECONDS, interval(3.0, 2.9, 3.1),
     Conditions(source="timed", device="cuda", gpus=1, processes=MIN_PROCESSES), "R"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "finding", "found", "glyph"),
    [row[1:] for row in TABLE],
    ids=[row[0] for row in TABLE],
)
def test_rules(changes, finding, found, glyph):
    verdict = decide(claim(**changes), finding, found)
    assert verdict.glyph == glyph, verdict.reason
    assert verdict.verdict == GLYPHS[glyph]
    assert verdict.reason


def test_the_stricter_rule_for_twins_counts():
    found = interval(2.0, 1.9, 2.1)
    assert decide(claim(), found, TWIN, twin_rule=("allowed", "")).glyph == "R"
    assert decide(claim(), found, TWIN, twin_rule=("direction", "r")).glyph == "S"
    assert "why" in decide(claim(), found, TWIN, twin_rule=("never", "why")).reason
    assert decide(claim(twin="never"), found, TWIN, twin_rule=("allowed", "")).glyph == "-"


def test_a_smoke_run_times_nothing():
    assert decide(claim(), interval(2.0, 1.9, 2.1), TIMED, smoke=True).glyph == "-"
    assert decide(claim(**COUNT), Finding(measured=100), COUNTED, smoke=True).glyph == "R"


def test_a_run_without_a_noise_floor_decides_nothing_about_times():
    assert decide(claim(), interval(2.0, 1.9, 2.1), TIMED, floor=None).glyph == "u"
    assert decide(claim(**COUNT), Finding(measured=100), COUNTED, floor=None).glyph == "R"


def test_a_disturbed_control_and_a_single_pair_decide_nothing_about_times():
    assert decide(claim(), interval(2.0, 1.9, 2.1), TIMED, floor=0.5).glyph == "R"
    assert decide(claim(), interval(2.0, 1.9, 2.1), TIMED, floor=0.51).glyph == "u"
    order = Finding(measured="a > b", holds=True)
    assert decide(claim(**ORDER), order, TIMED, floor=0.51).glyph == "u"
    assert decide(claim(**COUNT), Finding(measured=100), COUNTED, floor=0.51).glyph == "R"
    for changes in ({}, {"bound": "lower"}, {"value": {"low": 0.5, "high": 3.0}}):
        assert decide(claim(**changes), Finding(measured=2.5), TIMED).glyph == "u"


@pytest.mark.parametrize(
    ("measured", "glyph"),
    [({"a": 2.1, "b": 3.1}, "R"), ({"a": 2.1, "b": 9.0}, "d"), ({"a": 2.1}, "d")],
)
def test_a_mapping_is_met_where_each_printed_number_is(measured, glyph):
    printed = claim(value={"a": 2.0, "b": 3.0, "of": "two graphs"})
    assert decide(printed, Finding(measured=measured, direction=True), TIMED).glyph == glyph


def test_a_difference_inside_the_noise_floor_decides_nothing():
    small = claim(value=1.2)
    assert decide(small, interval(1.2, 1.15, 1.25), TIMED, floor=0.1).glyph == "R"
    assert decide(small, interval(1.2, 1.15, 1.25), TIMED, floor=0.16).glyph == "u"
    assert decide(small, interval(0.8, 0.78, 0.9), TIMED, floor=0.16).glyph == "u"
    assert decide(small, interval(0.8, 0.78, 0.9), TIMED, floor=0.05).glyph == "X"
    # what is counted has no floor
    assert decide(small, interval(1.2, 1.15, 1.25), COUNTED, floor=0.16).glyph == "R"


BOTH = frozenset({"cpu", "cuda"})


@pytest.mark.parametrize(
    ("needs", "device", "found", "lacking"),
    [
        ({"gpus": 1}, "", Conditions(source="timed", processes=5), "a CPU stands for a GPU"),
        ({"gpus": 1}, "cpu", Conditions(source="timed", processes=5), ""),
        ({"gpus": 1}, "cpu", Conditions("timed", "cuda", 1, processes=5), "a GPU stands for a CPU"),
        ({"gpus": 8}, "", Conditions("timed", "cuda", 1, processes=5), "1 of 8 GPUs"),
        ({"gpus": 8}, "", Conditions("timed", "cuda", 8, processes=5), ""),
        ({"gpus": 1}, "both", Conditions("timed", processes=5), "no GPU among them"),
        ({"gpus": 1}, "both", Conditions("timed", "cuda", 1, processes=5), "no CPU among them"),
        ({"gpus": 1}, "both", Conditions("timed", processes=5, devices=BOTH), ""),
        ({"gpus": 1}, "both", Conditions("counted"), ""),
        ({"gpus": 1}, "", Conditions("timed", processes=5, devices=BOTH), "a CPU stands for a GPU"),
        ({"gpus": 8}, "", Conditions("printed", data="printed"), "counts that publishers print"),
        ({"gpus": 8}, "", Conditions("counted"), ""),
        ({"gpus": 1}, "", Conditions("learned", seeds=MIN_SEEDS), ""),
        ({"gpus": 1}, "", Conditions("learned", seeds=1), "1 of 5 seeds"),
        ({}, "", Conditions("timed", processes=4), "4 of 5 processes"),
        ({"real_dataset_required": True}, "", Conditions(data="real"), ""),
        ({"real_dataset_required": True}, "", Conditions(data="part"), "a part of the dataset"),
        ({"real_dataset_required": True}, "", Conditions(data="other"), "another dataset"),
        ({}, "", Conditions(data="other"), ""),
    ],
)
def test_strength_follows_from_scope_and_conditions(needs, device, found, lacking):
    strong, lacks = strength(Scope.of(claim(needs=needs, device=device)), found)
    assert (strong, lacks) == (("weak", [lacking]) if lacking else ("strong", []))


def rows_of_cells(marks) -> list[Row]:
    """A row for each mark, all of one experiment; marks are (cell, round, disturbed, replaced)."""
    return [
        Row(
            id=f"{cell}-{number}", experiment="e", params={"cell": cell}, round=number,
            disturbed="load" if disturbed else "", replaced=replaced,
        )
        for (cell, number), (disturbed, replaced) in marks.items()
    ]  # fmt: skip


@given(
    st.dictionaries(
        st.tuples(st.integers(0, 2), st.integers(1, 12)),
        st.tuples(st.booleans(), st.booleans()),
        min_size=1,
    )
)
def test_conditions_count_processes_that_stand_and_those_of_them_that_were_disturbed(marks):
    rows = rows_of_cells(marks)
    paper = make_paper()
    every = Finding(measured=2.0, rows=[row.id for row in rows])
    found = conditions_of(claim(), every, rows, [], paper)
    standing = Counter(cell for (cell, _), (_, replaced) in marks.items() if not replaced)
    assert found.processes == min(standing.values(), default=0)
    assert found.disturbed == sum(bad and not gone for bad, gone in marks.values())
    # A round that another repeats adds nothing, so it never makes a verdict stronger.
    kept = [row for row in rows if not row.replaced]
    fewer = Finding(measured=2.0, rows=[row.id for row in kept])
    again = conditions_of(claim(), fewer, rows, [], paper)
    assert (again.processes, again.disturbed) == (found.processes, found.disturbed)


def test_readings_agree_or_the_verdict_depends_on_them():
    high, low = interval(2.1, 2, 2.2), interval(0.8, 0.7, 0.9)
    found = {"a": TIMED, "b": TIMED}
    both = decide(claim(), Finding(readings={"a": high, "b": high}), found)
    assert (both.glyph, set(both.readings.values())) == ("R", {"reproduced"})
    apart = decide(claim(), Finding(readings={"a": high, "b": low}), found)
    assert apart.glyph == "v"
    assert apart.readings == {"a": "reproduced", "b": "contradicted"}
    wide = interval(3.0, 2.9, 3.1)  # readings of one side agree in the weakest of their words
    assert decide(claim(), Finding(readings={"a": high, "b": wide}), found).glyph == "d"
    # one of them may not have been measured
    lacking = decide(claim(), Finding(readings={"a": high, "b": Finding()}), found)
    assert lacking.readings == {"a": "reproduced", "b": "not run here"}
    assert (lacking.glyph, lacking.lacks) == ("S", ("not all readings",))
    assert decide(claim(), Finding(readings={"a": low, "b": Finding()}), found).glyph == "O"


factors = st.floats(0.05, 20)
widths = st.floats(1, 3)


@given(factors, factors, widths, widths, st.floats(0, 0.4), st.booleans())
def test_exchanging_the_contenders_exchanges_the_sides(printed, value, below, above, floor, weak):
    paper = claim(value=printed)
    found = WEAK if weak else TIMED
    ours = interval(value, value / below, value * above)
    theirs = interval(1 / value, 1 / (value * above), below / value)
    if printed == 1:
        return
    first, second = (decide(paper, one, found, floor=floor) for one in (ours, theirs))
    opposite = {"for": "against", "against": "for", "": ""}
    assert second.side == opposite[first.side], (first.reason, second.reason)
    assert first.strength == second.strength == ("weak" if weak else "strong")


@given(factors, factors, widths, st.floats(0.01, 1), st.floats(0, 0.4))
def test_more_evidence_takes_no_verdict_back(printed, value, width, share, floor):
    """A narrower interval round the same value decides what a wide one decided, the same way."""
    paper = claim(value=printed)
    narrow = 1 + (width - 1) * share
    wide_one, narrow_one = (
        decide(paper, interval(value, value / w, value * w), TIMED, floor=floor)
        for w in (width, narrow)
    )
    if wide_one.side and not 1 / 1.25 <= printed <= 1.25:
        assert narrow_one.side == wide_one.side


@given(factors, factors, widths, st.floats(0, 0.4))
def test_strength_changes_no_side(printed, value, width, floor):
    found = interval(value, value / width, value * width)
    strong, weak = (decide(claim(value=printed), found, c, floor=floor) for c in (TIMED, WEAK))
    assert strong.agreement == weak.agreement
    assert strong.side == weak.side


numbers = st.one_of(st.none(), st.floats(1e-3, 1e3))
findings = st.builds(
    Finding,
    measured=st.one_of(numbers, st.just("a > b")),
    holds=st.sampled_from([None, True, False]),
    direction=st.sampled_from([None, True, False]),
    low=numbers,
    high=numbers,
    target=numbers,
    undecided=st.booleans(),
    deviation=st.one_of(st.none(), st.floats(0, 1)),
)
claims = st.sampled_from([{}, SHARE, COUNT, ORDER, NAMED, UPPER, LESS, {"twin": "never"}])
conditions = st.builds(
    Conditions,
    source=st.sampled_from(["counted", "learned", "timed", "probed", "projected"]),
    device=st.sampled_from(["cpu", "cuda"]),
    data=st.sampled_from(["", "real", "part", "other", "printed", "twin"]),
    processes=st.integers(1, 6),
    seeds=st.integers(1, 6),
    proxy=st.sampled_from(["", "words"]),
)


@given(claims, findings, conditions)
def test_any_finding_gets_a_verdict_of_its_strength_and_a_reason(changes, finding, found):
    verdict = decide(claim(**changes), finding, found)
    assert verdict.glyph in GLYPHS
    assert verdict.reason
    if verdict.glyph in ("R", "d", "X"):
        assert (verdict.strength, verdict.lacks) == ("strong", ())
        assert found.source != "projected"
        assert not found.proxy
    if verdict.glyph in ("S", "s", "O"):
        assert verdict.strength == "weak"
        assert verdict.lacks
    if verdict.glyph in ("R", "S") and finding.deviation is not None:
        assert finding.deviation <= MAX_DEVIATION
    assert verdict.side == (
        "for" if verdict.glyph in FOR else "against" if verdict.glyph in AGAINST else ""
    )


def test_words_that_are_compared_with_nothing_have_no_verdict():
    assert agreement(claim(), Finding(measured="fast"), TIMED, 0.0)[0] == "none"
    ends = claim(value={"low": 1.2, "high": 9.6})
    measured = {"low": 1.3, "high": 9.0}
    assert decide(ends, Finding(measured=measured, direction=True), TIMED).glyph == "R"
    measured = {"low": 1.3, "high": 4.0}
    assert decide(ends, Finding(measured=measured, direction=True), TIMED).glyph == "d"
