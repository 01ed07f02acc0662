"""The rules of verdicts as one table, and the properties that hold for any finding."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgbench.harness.claims.verdict import GLYPHS, decide, digits, show, tolerance_of
from dgbench.lab.paper import Claim, Finding


def claim(**changes) -> Claim:
    base = {"id": "c", "where": "1", "statement": "s", "kind": "speedup", "value": 2.0, "unit": "x"}
    return Claim(**{**base, **changes})


def interval(value, low, high, evidence="measured", **more) -> Finding:
    return Finding(measured=value, low=low, high=high, evidence=evidence, **more)


SHARE = {"kind": "utilisation", "value": 40.0, "unit": "%"}
COUNT = {"kind": "volume", "value": 100, "unit": "bytes"}
ORDER = {"kind": "ordering", "value": "a > b", "unit": None}
LESS = {"kind": "speedup", "value": {"high": 40}, "unit": "% less execution time"}
BOUND = {"needs": {"real_dataset_required": True}}

TABLE = [
    # name, changes of the claim, finding, verdict, glyph, words in the reason
    ("nothing", {}, None, "not run here", "-", "no experiment"),
    ("needs", {"needs": {"gpus": 1}}, None, "not run here", "-", "one CUDA device"),
    ("said", {}, Finding(reason="needs 8 GPUs"), "not run here", "-", "8 GPUs"),
    ("nan", {}, interval(math.nan, 1, 2), "not run here", "-", "nan"),
    ("within", {}, interval(2.2, 2.1, 2.3), "reproduced", "R", "within 25%"),
    ("wide", {}, interval(3.0, 2.9, 3.1), "direction only", "d", "right sign"),
    ("own tolerance", {"tolerance": 0.6}, interval(3.0, 2.9, 3.1), "reproduced", "R", "60%"),
    ("straddles", {}, interval(1.8, 0.9, 2.7), "direction only", "d", "includes 1x"),
    ("other side", {}, interval(0.8, 0.7, 0.9), "contradicted", "X", "other side"),
    ("undecided", {}, interval(0.95, 0.8, 1.1), "not run here", "-", "undecided"),
    ("no interval", {}, Finding(measured=0.8, evidence="measured"), "not run here", "-", "without"),
    ("range", {"value": {"low": 1.2, "high": 9}}, interval(4, 3, 5), "reproduced", "R", "25%"),
    ("analogue", {}, interval(2.1, 2, 2.2, "analogue"), "direction only", "d", "direction only"),
    ("analogue wrong", {}, interval(0.8, 0.7, 0.9, "analogue"), "not run here", "-", "way: 0.8x"),
    ("analogue open", {}, interval(0.95, 0.8, 1.1, "analogue"), "not run here", "-", "includes 1x"),
    ("analogue open above", {}, interval(1.05, 0.9, 1.2, "analogue"), "not run here", "-",
     "includes 1x"),
    ("open order", ORDER, Finding(measured="a ~ b", holds=False, undecided=True, reason="a near b"),
     "not run here", "-", "a near b"),
    ("projected", {}, interval(2.1, 2, 2.2, "projected"), "direction only", "p", "projection"),
    ("projected wrong", {}, interval(0.5, 0.4, 0.6, "projected"), "not run here", "-", "other way"),
    ("counted", COUNT, Finding(measured=100, evidence="counted"), "reproduced", "R", "exactly"),
    ("counted off", COUNT, Finding(measured=101, evidence="counted"), "contradicted", "X", ""),
    ("reading", {**COUNT, "notes": "Our reading."}, Finding(measured=104, evidence="counted"),
     "reproduced", "R", "5%"),
    ("counted sign", COUNT, Finding(measured=80, direction=True, evidence="counted"),
     "direction only", "d", "right sign"),
    ("share", SHARE, interval(41.0, 40, 42), "reproduced", "R", "5%"),
    ("share off", SHARE, interval(20.0, 19, 21), "direction only", "d", "not within"),
    ("share wrong", SHARE, interval(20.0, 19, 21, direction=False), "contradicted", "X", ""),
    ("saving", LESS, interval(39, 37, 41, target=40), "reproduced", "R", "5%"),
    ("saving less", LESS, interval(9, 7, 11, target=40), "direction only", "d", "right sign"),
    ("saving open", LESS, interval(-1, -4, 2, target=40), "not run here", "-", "both sides"),
    ("saving straddles", LESS, interval(2, -1, 5, target=40), "direction only", "d", "0 %"),
    ("saving none", LESS, interval(-6, -9, -3, target=40), "contradicted", "X", "other side"),
    ("saving weak", LESS, interval(2, -1, 5, "analogue", target=40), "not run here", "-", "0 %"),
    ("order", ORDER, Finding(measured="a > b", holds=True, evidence="counted"),
     "reproduced", "R", ""),
    ("order not", ORDER, Finding(measured="b > a", holds=False, evidence="counted"),
     "contradicted", "X", ""),
    ("order clock", ORDER, interval(0.8, 0.7, 0.9, holds=False), "contradicted", "X", ""),
    ("order open", ORDER, interval(0.9, 0.7, 1.2, holds=False), "not run here", "-", "undecided"),
    ("order analogue", ORDER, Finding(measured="b > a", holds=False), "not run here", "-",
     "points the other way: b > a"),
    ("twin mechanism", {}, interval(2.1, 2, 2.2, twin=True), "reproduced", "R", ""),
    ("twin bound", BOUND, interval(2.1, 2, 2.2, twin=True), "direction only", "d", "a twin"),
    ("twin bound X", BOUND, interval(0.8, 0.7, 0.9, twin=True), "not run here", "-", "other way"),
    ("real bound", BOUND, interval(2.1, 2, 2.2), "reproduced", "R", ""),
    ("twin never", {"twin": "never", "twin_reason": "E is fitted"}, interval(2, 2, 2, twin=True),
     "not run here", "-", "E is fitted"),
    ("never, real", {"twin": "never"}, interval(2, 1.9, 2.1), "reproduced", "R", ""),
    ("deviates", {}, interval(2, 1.9, 2.1, deviation=1e-3), "direction only", "d", "1.0e-03"),
    ("deviation nan", {}, interval(2, 1.9, 2.1, deviation=math.nan), "direction only", "d", ""),
    ("float noise", {}, interval(2, 1.9, 2.1, deviation=1e-6), "reproduced", "R", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "finding", "verdict", "glyph", "words"),
    [row[1:] for row in TABLE],
    ids=[row[0] for row in TABLE],
)
def test_rules(changes, finding, verdict, glyph, words):
    found = decide(claim(**changes), finding)
    assert (found.verdict, found.glyph) == (verdict, glyph), found.reason
    assert words in found.reason
    assert found.reason


def test_the_stricter_rule_for_twins_counts():
    twin = interval(2.0, 1.9, 2.1, twin=True)
    assert decide(claim(), twin, twin_rule=("allowed", "")).verdict == "reproduced"
    assert decide(claim(), twin, twin_rule=("direction", "r")).verdict == "direction only"
    assert "why" in decide(claim(), twin, twin_rule=("never", "why")).reason
    assert decide(claim(twin="never"), twin, twin_rule=("allowed", "")).verdict == "not run here"


def test_a_smoke_run_times_nothing():
    timed = decide(claim(), interval(2.0, 1.9, 2.1), smoke=True)
    assert timed.verdict == "not run here"
    assert "smoke" in timed.reason
    counted = Finding(measured=100, evidence="counted")
    assert decide(claim(**COUNT), counted, smoke=True).verdict == "reproduced"


def test_weak_evidence_pointing_away_is_marked():
    found = decide(claim(), interval(0.8, 0.7, 0.9, "analogue"))
    assert found.other_way
    assert not decide(claim(), interval(0.8, 0.7, 1.1, "analogue")).other_way
    assert not decide(claim(), interval(2, 1.9, 2.1, "analogue")).other_way


numbers = st.one_of(st.none(), st.floats(1e-3, 1e3))
findings = st.builds(
    Finding,
    measured=st.one_of(numbers, st.just("a > b")),
    holds=st.sampled_from([None, True, False]),
    direction=st.sampled_from([None, True, False]),
    low=numbers,
    high=numbers,
    target=numbers,
    evidence=st.sampled_from(["measured", "analogue", "counted", "projected"]),
    twin=st.booleans(),
    deviation=st.one_of(st.none(), st.floats(0, 1)),
)
claims = st.sampled_from([{}, SHARE, COUNT, ORDER, BOUND, {"twin": "never"}])


@given(claims, findings)
def test_any_finding_gets_one_of_five_and_a_reason(changes, finding):
    found = decide(claim(**changes), finding)
    assert found.glyph in GLYPHS
    assert found.reason
    if finding.evidence in ("analogue", "projected"):
        assert found.verdict in ("direction only", "not run here")
    if finding.twin and changes in (BOUND, {"twin": "never"}):
        assert found.verdict in ("direction only", "not run here")
    if found.verdict == "reproduced" and finding.deviation is not None:
        assert finding.deviation <= 1e-5
    if found.verdict == "contradicted" and finding.evidence == "measured":
        assert finding.low is not None


def test_default_tolerances():
    assert tolerance_of(claim()) == 0.25
    assert tolerance_of(claim(**SHARE)) == 0.05
    assert tolerance_of(claim(**COUNT)) == 0.0
    assert tolerance_of(claim(**COUNT, notes="our reading: raw graphs")) == 0.05


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (2.13, "x", "2.1x"),
        (9.57, "x (end-to-end)", "9.6x"),
        (0.82, "x", "0.82x"),
        (38.7, "% of time", "38.7 %"),
        (None, "x", ""),
        ({"low": 1.22, "high": 9.57}, "x", "1.2 to 9.6x"),
        ([32, 64], None, "32, 64"),
        (1234567, "bytes", "1 234 567"),
        ("CSR <= COO", None, "CSR <= COO"),
        ({"high": 4.1}, "x (transfer time)", "up to 4.1x"),
        ({4: 5.25, 16: 6.5}, "billions of floats", "4: 5.2, 16: 6.5"),
    ],
)
def test_values_are_shown_shortly(value, unit, text):
    assert show(value, unit) == text


def test_digits():
    assert [digits(v) for v in (0.8249, 1.54, 2.06, 15.234, 152.4)] == [
        "0.82", "1.5", "2.1", "15.2", "152",
    ]  # fmt: skip
