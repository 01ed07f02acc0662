from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.statistics import (
    LARGEST,
    ConfidenceInterval,
    geometric_mean,
    measurable,
    median,
    median_interval,
    noise_floor,
    paired_ratio,
    pooled_ratio,
    t_quantile,
    verdict,
)
from dgbench.runtime.steady import falling_warmup, measure_steady

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


@given(st.lists(seconds, min_size=1, max_size=9), st.floats(0.1, 10))
def test_a_constant_ratio_has_no_spread(a, factor):
    found = paired_ratio([factor * x for x in a], a)
    assert found.value == pytest.approx(factor)
    if len(a) == 1:
        assert found.low is None
        assert found.high is None
    else:
        assert found.low == pytest.approx(factor)
        assert found.high == pytest.approx(factor)


@pytest.mark.parametrize(
    ("a", "b"),
    [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0]), ([1.0], [math.inf]), ([math.nan], [1.0])],
)
def test_what_has_no_ratio_is_refused(a, b):
    with pytest.raises(InvalidInputError):
        paired_ratio(a, b)


@given(st.lists(seconds, min_size=1, max_size=25))
def test_the_sign_interval_is_the_binomial_one(a):
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


def _drifting(rng, n, order, step=0.02, noise=0.01, slope=0.0):
    """Times of A (truth 1) and B (truth 1.1) on a clock that wanders, in a given order."""
    wander = np.cumsum(rng.normal(slope, step, 2 * n))
    times = {"A": [], "B": []}
    for slot, name in enumerate(order):
        truth = 1.0 if name == "A" else 1.1
        times[name].append(truth * math.exp(wander[slot] + rng.normal(0, noise)))
    return times["A"], times["B"]


def _welch_covers(a, b, truth):
    x, y = np.log(b), np.log(a)
    found = stats.ttest_ind(x, y, equal_var=False).confidence_interval(0.95)
    return found.low <= math.log(truth) <= found.high


@pytest.mark.parametrize("n", [5, 10])
def test_interleaved_pairs_survive_a_wandering_clock_and_blocks_do_not(n):
    rng = np.random.default_rng(11)
    runs = 600
    inside = blocked = 0
    for _ in range(runs):
        a, b = _drifting(rng, n, "AB" * n)
        found = paired_ratio(b, a)
        inside += found.low <= 1.1 <= found.high
        blocked += _welch_covers(*_drifting(rng, n, "A" * n + "B" * n), 1.1)
    assert inside / runs > 0.92
    assert blocked / runs < 0.65


def test_pooling_keeps_each_workloads_own_ratio_out_of_the_noise():
    rng = np.random.default_rng(4)
    groups = []
    for truth in (1.5, 3.0, 12.0):
        b = np.exp(rng.normal(0, 0.01, 6))
        groups.append((truth * b * np.exp(rng.normal(0, 0.01, 6)), b))
    found = pooled_ratio(groups)
    assert found.n == 18
    assert found.value == pytest.approx((1.5 * 3 * 12) ** (1 / 3), rel=0.02)
    assert found.high / found.low < 1.05
    assert pooled_ratio(groups[:1]) == pytest.approx(paired_ratio(*groups[0]))
    spread = geometric_mean([1.5, 3.0, 12.0])
    assert spread.high / spread.low > 5
    assert pooled_ratio([([1.0], [2.0]), ([1.0, 1.1], [2.0, 2.0])]).low is None
    with pytest.raises(InvalidInputError):
        pooled_ratio([])


def test_the_noise_floor_is_the_largest_of_few_and_a_share_of_many():
    assert noise_floor([]) is None
    assert noise_floor([1.0, 1.02, 1 / 1.05]) == pytest.approx(0.05)
    many = [1.01] * 99 + [2.0]
    assert noise_floor(many) == pytest.approx(0.01)


def test_ratios_over_one_denominator_cover_the_truth_only_together():
    """Four contenders over one noisy baseline, six rounds: the mean of their ratios."""
    rng = np.random.default_rng(7)
    trials, truth = 1500, 1.3
    together = apart = 0
    for _ in range(trials):
        base = np.exp(rng.normal(0, 0.1, size=6))
        each = [truth * np.exp(rng.normal(0, 0.05, size=6)) for _ in range(4)]
        joint = pooled_ratio([(np.exp(np.mean(np.log(each), axis=0)), base)], weights=[4])
        alone = pooled_ratio([(one, base) for one in each])
        assert joint.value == pytest.approx(alone.value)
        assert joint.n == alone.n == 24
        together += joint.low <= truth <= joint.high
        apart += alone.low <= truth <= alone.high
    assert 0.93 <= together / trials <= 0.97
    assert apart / trials < 0.85


@pytest.mark.parametrize("counts", [(7, 2), (6, 1, 2, 4)])
@pytest.mark.parametrize("spread", [0.0, 0.05])
def test_processes_within_nodes_cover_the_truth(counts, spread):
    """Nodes differ by `spread`, processes of one by 0.01: with the level of nodes 95 % are held,
    whatever the spread; without it the more are missed, the more nodes differ."""
    rng = np.random.default_rng(13)
    trials, truth = 1500, 1.2
    where = [f"node{i}" for i, count in enumerate(counts) for _ in range(count)]
    held = plain = 0
    for _ in range(trials):
        of_node = np.repeat(rng.normal(0, spread, len(counts)), counts)
        ratios = truth * np.exp(of_node + rng.normal(0, 0.01, len(where)))
        pairs = [(ratios, np.ones(len(where)))]
        found, alone = pooled_ratio(pairs, nodes=[where]), pooled_ratio(pairs)
        assert found.n == alone.n == len(where)
        held += found.low <= truth <= found.high
        plain += alone.low <= truth <= alone.high
    assert 0.92 <= held / trials <= 0.98
    if spread == 0.05:
        assert plain / trials < 0.75


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
    mixed = pooled_ratio([(a, b), (b, a)], nodes=[["one"] * 3 + ["two"] * 3, ["one"] * 6])
    half = math.log(means[0] / means[1]) / 2  # one weight of two groups; the other is sharper
    assert mixed.value == pytest.approx(math.sqrt(two.value * pooled_ratio([(b, a)]).value))
    assert math.log(mixed.high / mixed.low) / 2 > t_quantile(6, 0.95) * abs(half) / 2
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


def test_small_pieces():
    assert median([3.0, 1.0, 2.0, 10.0]) == 2.5
    with pytest.raises(InvalidInputError):
        median([])
    assert t_quantile(4, 0.95) == pytest.approx(stats.t.ppf(0.975, 4))


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


@given(st.lists(seconds, min_size=0, max_size=40))
def test_warmup_is_at_least_one_and_at_most_a_third(samples):
    dropped = falling_warmup(samples)
    if len(samples) < 2:
        assert dropped == 0
    else:
        assert 1 <= dropped <= max(1, len(samples) // 3)


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
    now = [0.0]

    def sync():
        now[0] += 2.0

    found = measure_steady(lambda: None, budget_s=20, sync=sync, clock=lambda: now[0])
    assert set(found.samples) == {2.0}
    with pytest.raises(InvalidInputError):
        measure_steady(lambda: None, budget_s=1, min_iters=0)


@pytest.mark.parametrize("n", [7, 50, 999, 1001, 20_000])
def test_a_median_of_many_values_has_bounds_that_hold(n):
    from scipy.stats import binom

    value, low, high = median_interval(range(n))
    k = int(low)
    assert value == (n - 1) / 2
    assert high == n - 1 - k
    assert 2 * binom.cdf(k, n, 0.5) <= 0.05 + 1e-12  # wide enough, and one further in is not
    assert 2 * binom.cdf(k + 1, n, 0.5) > 0.05
