"""The rules of verdicts as one table, and the properties that hold for any finding."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgbench.harness.claims.verdict import AGAINST, FOR, GLYPHS, MAX_DEVIATION, decide
from dgbench.lab.evidence import MIN_PROCESSES, MIN_SEEDS, Conditions, Scope, strength
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
    ("no interval", {}, Finding(measured=0.8), TIMED, "u"),
    ("weak", {}, interval(2.1, 2, 2.2), WEAK, "S"),
    ("weak wrong", {}, interval(0.8, 0.7, 0.9), WEAK, "O"),
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
    ("saving", LESS, interval(39, 37, 41, target=40), TIMED, "R"),
    ("saving less", LESS, interval(9, 7, 11, target=40), TIMED, "d"),
    ("saving none", LESS, interval(-6, -9, -3, target=40), TIMED, "X"),
    ("bound kept", UPPER, interval(3, 2, 4), TIMED, "R"),
    ("bound broken", UPPER, interval(8.9, 8, 9), TIMED, "X"),
    ("bound open", UPPER, interval(4.9, 4, 6), TIMED, "u"),
    ("bound by words", UPPER, Finding(measured="9 %", holds=False, direction=True), COUNTED, "X"),
    ("order", ORDER, Finding(measured="a > b", holds=True), COUNTED, "R"),
    ("order not", ORDER, Finding(measured="b > a", holds=False), COUNTED, "X"),
    ("order in part", ORDER, Finding(measured="5 of 6", holds=False, direction=True), COUNTED, "d"),
    ("twin, mechanism", {}, interval(2.1, 2, 2.2), TWIN, "R"),
    ("twin, named data", NAMED, interval(2.1, 2, 2.2), TWIN, "S"),
    ("twin, named data, against", NAMED, interval(0.8, 0.7, 0.9), TWIN, "O"),
    ("fitted twin", {"twin": "never", "twin_reason": "E is fitted"}, interval(2, 2, 2), TWIN, "-"),
    ("fitted, real", {"twin": "never"}, interval(2, 1.9, 2.1), TIMED, "R"),
    ("deviates", {}, interval(2, 1.9, 2.1, deviation=1e-3), TIMED, "d"),
    ("deviation nan", {}, interval(2, 1.9, 2.1, deviation=math.nan), TIMED, "d"),
    ("definition", {"definition": "a setting of ours"}, interval(2, 1.9, 2.1), TIMED, "="),
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


NEAR = claim(value=1.2)
SLIGHT = interval(1.2, 1.15, 1.25)
TWICE = interval(2.0, 1.9, 2.1)
EXACT = (claim(**COUNT), Finding(measured=100), COUNTED)


@pytest.mark.parametrize(
    ("judged", "more", "glyph"),
    [
        ((claim(), TWICE, TIMED), {"smoke": True}, "-"),
        (EXACT, {"smoke": True}, "R"),
        ((claim(), TWICE, TIMED), {"floor": None}, "u"),
        (EXACT, {"floor": None}, "R"),
        ((claim(), TWICE, TIMED), {"floor": 0.5}, "R"),
        ((claim(), TWICE, TIMED), {"floor": 0.51}, "u"),
        ((claim(**ORDER), Finding(measured="a > b", holds=True), TIMED), {"floor": 0.51}, "u"),
        (EXACT, {"floor": 0.51}, "R"),
        ((claim(), Finding(measured=2.5), TIMED), {}, "u"),
        ((claim(bound="lower"), Finding(measured=2.5), TIMED), {}, "u"),
        ((claim(value={"low": 0.5, "high": 3}), Finding(measured=2.5), TIMED), {}, "u"),
        ((NEAR, SLIGHT, TIMED), {"floor": 0.1}, "R"),
        ((NEAR, SLIGHT, TIMED), {"floor": 0.16}, "u"),
        ((NEAR, interval(0.8, 0.78, 0.9), TIMED), {"floor": 0.16}, "u"),
        ((NEAR, interval(0.8, 0.78, 0.9), TIMED), {"floor": 0.05}, "X"),
        ((NEAR, SLIGHT, COUNTED), {"floor": 0.16}, "R"),
    ],
)
def test_smoke_runs_noise_floors_and_single_pairs_decide_nothing_about_times(judged, more, glyph):
    assert decide(*judged, **more).glyph == glyph


@pytest.mark.parametrize(
    ("measured", "glyph"),
    [({"a": 2.1, "b": 3.1}, "R"), ({"a": 2.1, "b": 9.0}, "d"), ({"a": 2.1}, "d")],
)
def test_a_mapping_is_met_where_each_printed_number_is(measured, glyph):
    printed = claim(value={"a": 2.0, "b": 3.0, "of": "two graphs"})
    assert decide(printed, Finding(measured=measured, direction=True), TIMED).glyph == glyph


BOTH = frozenset({"cpu", "cuda"})


@pytest.mark.parametrize(
    ("needs", "device", "found", "lacking"),
    [
        ({"gpus": 1}, "", Conditions(source="timed", processes=5), "a CPU stands for a GPU"),
        ({"gpus": 1}, "cpu", Conditions(source="timed", processes=5), ""),
        ({"gpus": 8}, "", Conditions("timed", "cuda", 1, processes=5), "1 of 8 GPUs"),
        ({"gpus": 8}, "", Conditions("timed", "cuda", 8, processes=5), ""),
        ({"gpus": 1}, "both", Conditions("timed", processes=5), "no GPU among them"),
        ({"gpus": 1}, "both", Conditions("timed", processes=5, devices=BOTH), ""),
        ({"gpus": 8}, "", Conditions("printed", data="printed"), "counts that publishers print"),
        ({"gpus": 8}, "", Conditions("counted"), ""),
        ({"gpus": 1}, "", Conditions("learned", seeds=MIN_SEEDS), ""),
        ({"gpus": 1}, "", Conditions("learned", seeds=1), "1 of 5 seeds"),
        ({}, "", Conditions("timed", processes=4), "4 of 5 processes"),
        ({"real_dataset_required": True}, "", Conditions(data="part"), "a part of the dataset"),
        ({"real_dataset_required": True}, "", Conditions(data="other"), "another dataset"),
        ({}, "", Conditions(data="other"), ""),
    ],
)
def test_strength_follows_from_scope_and_conditions(needs, device, found, lacking):
    strong, lacks = strength(Scope.of(claim(needs=needs, device=device)), found)
    assert (strong, lacks) == (("weak", [lacking]) if lacking else ("strong", []))


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
