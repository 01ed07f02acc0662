"""The same numbers twice: what differs is found, and what only wavers as it says it does is not."""

from __future__ import annotations

import random

import msgspec
import pytest
from fake_run import make_run
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.harness.quantities import exact
from dgbench.harness.repeat import LEVEL, RepeatedRatio, agreement, coverage
from dgbench.harness.store import Row, Store
from dgbench.lab.table import observation
from dgbench.runtime.statistics import ConfidenceInterval, paired_ratio


def counted(**counts):
    return [observation(name, count) for name, count in counts.items()]


def cell(name, **fields):
    fields = {"observed": counted(edges=7, turns=9), "group": name} | fields
    hash_ = f"{name}{fields.get('params', {})}"
    fields = {"params": {"dataset": name}} | fields
    return Row(id=f"{name}-r1", cell_hash=hash_, paper="toy", experiment="fig1", **fields)


def changed(row, **fields):
    return msgspec.structs.replace(row, **fields)


def test_a_run_agrees_with_its_copy(tmp_path):
    rows = Store.open(make_run(tmp_path)).rows()
    found = agreement(rows, rows)
    assert (found.apart, found.only_a, found.only_b, found.disagree) == ([], [], [], [])
    assert found.counters == sum(len(exact(r)) for r in rows) > 0
    assert found.exit_code == 0


@pytest.mark.parametrize(
    ("name", "value"), [("edges", 8), ("edges", None), ("vertices", 1)], ids=["off", "gone", "new"]
)
@pytest.mark.parametrize(
    "kind", [{}, {"instrumented": True}, {"params": {"control": "aa"}}, {"round": 2}], ids=str
)
def test_one_counter_of_one_process_is_enough(kind, name, value):
    rows = [cell("a"), cell("b", **kind)]
    before = exact(rows[1])
    after = {k: v for k, v in (before | {name: value}).items() if v is not None}
    found = agreement(rows, [rows[0], changed(rows[1], observed=counted(**after))])
    (one,) = found.apart
    assert (one.what, one.a, one.b) == (name, before.get(name), after.get(name))
    assert found.exit_code == 1


def test_a_process_that_fails_or_is_missing_is_said():
    rows = [cell("a"), cell("b")]
    failed = agreement(rows, [rows[0], changed(rows[1], status="oom", observed=[])])
    assert [(one.what, one.a, one.b) for one in failed.apart] == [("status", "ok", "oom")]
    missing = agreement(rows, rows[:1])
    assert missing.only_a == ["toy/fig1 b round 1"]
    assert failed.exit_code == missing.exit_code == 1
    machine = Row(id="m", paper="-", experiment="machine", cell_hash="m", observed=counted(edges=1))
    assert agreement([machine], []).processes == agreement([machine], []).exit_code == 0


def raced(seed, shift=0.0, turns=11, cells=120):
    """Processes whose settings took turns; `shift` is how far whole processes lie apart."""
    draw = random.Random(seed)
    rows = []
    for number in range(cells):
        bias = draw.lognormvariate(0, shift)
        slow = [3 * bias * draw.lognormvariate(0, 0.1) for _ in range(turns)]
        fast = [draw.lognormvariate(0, 0.1) for _ in range(turns)]
        ratio = paired_ratio(slow, fast, method="sign")
        one = observation("speedup", ratio.value, low=ratio.low, high=ratio.high, setting="fast")
        rows.append(cell(f"d{number}", observed=[one]))
    return rows


def test_ratios_of_one_truth_agree_as_often_as_they_say():
    found = agreement(raced(1), raced(2))
    assert found.coverage.n == found.coverage.clusters == 120
    assert found.coverage.share >= 0.92
    assert found.exit_code == 0


def test_processes_that_lie_further_apart_than_their_turns_say_are_found_out():
    found = agreement(raced(1, 0.15), raced(2, 0.15))
    assert found.coverage.share < 0.8
    assert found.coverage.high < LEVEL
    assert found.exit_code == 1
    assert found.disagree[0].size == max(p.size for p in found.pairs)


def rounds(own, other):
    """Five rounds of two systems in one group."""
    return [
        cell("x", round=number, params={"system": system}, samples=[seconds])
        for system, times in (("toy", own), ("base", other))
        for number, seconds in enumerate(times, 1)
    ]


def test_races_are_held_to_the_spread_of_their_rounds():
    a = rounds([1.0, 1.1, 0.9, 1.0, 1.05], [2.0, 2.1, 2.0, 1.9, 2.0])
    near = agreement(a, rounds([1.05, 1.0, 1.0, 0.95, 1.1], [2.1, 2.0, 1.9, 2.0, 2.1]))
    (pair,) = near.pairs
    assert pair.name == "toy/fig1: toy / base"
    assert pair.a == pytest.approx(2.0, rel=0.1)
    assert pair.agrees
    far = agreement(a, rounds([1.0, 1.1, 0.9, 1.0, 1.05], [6.0, 6.1, 6.0, 5.9, 6.0]))
    assert not far.pairs[0].agrees
    assert far.pairs[0].apart.value == pytest.approx(1 / 3, rel=0.05)
    # one ratio alone may be the one in twenty
    assert far.coverage.high >= LEVEL


# -- the interval of the share


def pair(cluster, agrees):
    apart = ConfidenceInterval(1.0, 0.9, 1.1, 5) if agrees else ConfidenceInterval(2.0, 1.9, 2.1, 5)
    return RepeatedRatio("r", ("toy", "fig1", str(cluster)), 1.0, 1.0, apart)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.booleans(), min_size=2, max_size=40))
def test_independent_ratios_have_the_exact_binomial_interval(flags):
    from scipy.stats import binomtest

    found = coverage(pair(i, flag) for i, flag in enumerate(flags))
    exact = binomtest(sum(flags), len(flags)).proportion_ci(method="exact")
    # Clusters of one spread a little more than a binomial by chance: never narrower than that.
    assert found.low <= exact.low + 1e-9
    assert found.high >= exact.high - 1e-9
    assert found.low <= found.share <= found.high


@settings(deadline=None, max_examples=40)
@given(st.lists(st.booleans(), min_size=2, max_size=20), st.integers(2, 6))
def test_saying_the_same_several_times_teaches_nothing(flags, times):
    once = coverage(pair(i, flag) for i, flag in enumerate(flags))
    often = coverage(pair(i, flag) for i, flag in enumerate(flags) for _ in range(times))
    assert often.n == times * once.n
    assert often.high - often.low >= 0.9 * (once.high - once.low)
