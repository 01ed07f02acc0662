from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.statistics import (
    LARGEST,
    ConfidenceInterval,
    measurable,
    median_interval,
    noise_floor,
    paired_ratio,
    pooled_ratio,
    t_quantile,
    verdict,
)
from dgbench.runtime.steady import measure_steady

seconds = st.floats(1e-6, 1e3)
pairs = st.lists(st.tuples(seconds, seconds), min_size=2, max_size=20)


@given(st.lists(st.tuples(*2 * [st.floats(1 / LARGEST, LARGEST)]), min_size=2, max_size=5))
def test_no_pair_that_can_be_measured_has_an_interval_without_a_verdict(data):
    """Two pairs that differ wildly give ends that no float holds."""
    a, b = map(list, zip(*data, strict=True))
    for found in (paired_ratio(a, b), pooled_ratio([(a, b), (b, b)])):
        assert 0 < found.low <= found.value <= found.high < math.inf
        assert verdict(found) in ("FAST", "SLOW", "SAME", "AMBG")


@pytest.mark.parametrize(
    "value", [0.0, -1.0, math.nan, math.inf, 5e-324, 1e308, 10**400, "1", None]
)
def test_what_no_clock_shows_is_not_measurable(value):
    assert not measurable(value)
    assert measurable(1e-9)


@given(pairs)
def test_the_interval_is_scipys_paired_t_interval_on_logs(data):
    from scipy import stats  # a second of imports

    a, b = map(list, zip(*data, strict=True))
    found = paired_ratio(a, b)
    logs = np.log(a) - np.log(b)
    assert found.n == len(data)
    assert found.value == pytest.approx(math.exp(logs.mean()))
    if logs.std() > 1e-9:
        test = stats.ttest_rel(np.log(a), np.log(b)).confidence_interval(0.95)
        assert found.low == pytest.approx(math.exp(test.low), rel=1e-6)
        assert found.high == pytest.approx(math.exp(test.high), rel=1e-6)
    swapped = paired_ratio(b, a)
    assert swapped.value == pytest.approx(1 / found.value)
    assert swapped.low == pytest.approx(1 / found.high)


def test_what_has_no_ratio_is_refused():
    for a, b in (([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0]), ([1.0], [math.inf])):
        with pytest.raises(InvalidInputError):
            paired_ratio(a, b)


@given(st.lists(seconds, min_size=1, max_size=25))
def test_the_sign_interval_is_the_binomial_one(a):
    from scipy import stats

    found = paired_ratio(a, [1.0] * len(a), method="sign")
    assert found.value == pytest.approx(math.exp(np.median(np.log(a))))
    outside = [k for k in range(len(a)) if 2 * stats.binom.cdf(k, len(a), 0.5) <= 0.05]
    if not outside:
        assert len(a) < 6
        assert found.low is None
    else:
        ordered = sorted(a)
        assert found.low == pytest.approx(ordered[outside[-1]])
        assert found.high == pytest.approx(ordered[len(a) - 1 - outside[-1]])


def test_the_noise_floor_is_the_largest_of_few_and_a_share_of_many():
    assert noise_floor([]) is None
    assert noise_floor([1.0, 1.02, 1 / 1.05]) == pytest.approx(0.05)
    many = [1.01] * 99 + [2.0]
    assert noise_floor(many) == pytest.approx(0.01)


def test_two_equal_groups_halve_the_variance():
    ratios = np.exp(np.random.default_rng(19).normal(0, 0.1, 6))
    found = pooled_ratio([(ratios, np.ones(6))] * 2)
    half = t_quantile(10, 0.95) * np.log(ratios).std(ddof=1) / math.sqrt(12)
    assert math.log(found.high / found.value) == pytest.approx(half)
    # On the same nodes they are one: nothing is learned twice.
    together = pooled_ratio([(ratios, np.ones(6))] * 2, nodes=[[*"aabbcc"]] * 2)
    alone = pooled_ratio([(ratios, np.ones(6))], nodes=[[*"aabbcc"]])
    assert together[:3] == pytest.approx(alone[:3])


def test_nodes_are_a_level_only_where_there_are_several():
    rng = np.random.default_rng(23)
    a, b = np.exp(rng.normal(0, 0.1, (2, 6)))
    assert pooled_ratio([(a, b)], nodes=[["one"] * 6]) == pooled_ratio([(a, b)])
    two = pooled_ratio([(a, b)], nodes=[["one"] * 3 + ["two"] * 3])
    means = np.exp(np.log(a / b).reshape(2, 3).mean(axis=1))
    assert two[:3] == pytest.approx(paired_ratio(means, [1.0, 1.0])[:3])
    with pytest.raises(InvalidInputError):
        pooled_ratio([(a, b)], nodes=[["one", "two"]])


@pytest.mark.parametrize(
    ("ratio", "floor", "word"),
    [
        ((1.2, 1.1, 1.3), 0.05, "SLOW"),
        ((0.8, 0.7, 0.9), 0.05, "FAST"),
        ((1.01, 0.98, 1.03), 0.05, "SAME"),
        ((1.03, 1.02, 1.04), 0.05, "SAME"),
        ((1.04, 1.01, 1.08), 0.05, "SAME"),
        ((1.2, 0.9, 1.6), 0.05, "AMBG"),
        ((1.0, 0.8, 1.25), 0.05, "AMBG"),
        ((0.5, None, None), 0.0, "AMBG"),
    ],
)
def test_verdicts(ratio, floor, word):
    assert verdict(ConfidenceInterval(*ratio, 5), floor) == word


def _clocked(durations):
    """A step that takes the given durations by a clock of its own."""
    now, left = [0.0], list(durations)

    def step():
        now[0] += left.pop(0) if left else durations[-1]

    return step, lambda: now[0]


def test_steady_drops_the_first_and_falling_iterations_and_counts_them():
    step, clock = _clocked([5.0, 3.0, 2.0, 1.5, 1.2, *[1.0] * 30])
    found = measure_steady(step, budget_s=40, clock=clock)
    assert 1 < found.warmup <= 12
    assert found.time == 1.0
    assert max(found.samples) < 3


@pytest.mark.parametrize(("budget", "count"), [(0.5, 3), (10.0, 9), (1e9, 49)])
def test_steady_keeps_to_budget_fewest_and_most(budget, count):
    step, clock = _clocked([1.0])
    calls = []
    found = measure_steady(
        step, budget_s=budget, max_iters=50, clock=clock, on_settled=lambda: calls.append(1)
    )
    assert len(found.samples) == count
    assert found.warmup == 1
    assert calls == [1]


def test_the_device_is_waited_for_inside_the_clock():
    step, now = _clocked([2.0])
    found = measure_steady(lambda: None, budget_s=20, sync=step, clock=now)
    assert set(found.samples) == {2.0}
    with pytest.raises(InvalidInputError):
        measure_steady(lambda: None, budget_s=1, min_iters=0)


@pytest.mark.parametrize("n", [7, 50, 999, 1001, 20_000])
def test_a_median_of_many_values_has_bounds_that_hold(n):
    from scipy import stats

    value, low, high = median_interval(range(n))
    k = int(low)
    assert value == (n - 1) / 2
    assert high == n - 1 - k
    assert 2 * stats.binom.cdf(k, n, 0.5) <= 0.05 + 1e-12  # wide enough, and one further in is not
    assert 2 * stats.binom.cdf(k + 1, n, 0.5) > 0.05
