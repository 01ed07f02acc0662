"""Ratios of paired observations, their intervals, and what may be said about them.

Every interval here is formed on logarithms, because a ratio's errors multiply: 2x and 0.5x
are equally far from 1. Pairs are taken from the same round of an interleaved run, so that slow
drift of the machine is in both sides and cancels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from dgbench.runtime.errors import InvalidInputError

Word = Literal["FAST", "SLOW", "SAME", "AMBG"]

MAX_FLOOR: Final = 0.5
"""Noise floor above which nothing is judged: an A/A control that far apart was disturbed."""

LARGEST: Final = 1e60
"""No time or ratio that was measured lies beyond it, nor below its inverse. Ratios of such numbers,
and their intervals on logarithms, are positive and finite."""
_WIDEST: Final = 700.0
"""Largest logarithm of an end; two observations a side that differ wildly ask for more."""


class ConfidenceInterval(NamedTuple):
    """A value with its confidence interval.

    Attributes:
        value: the estimate.
        low, high: the interval, or None where a single observation gives none.
        n: number of observations (pairs).
    """

    value: float
    low: float | None
    high: float | None
    n: int


def measurable(value: Any) -> bool:
    """Return True if a clock or a ratio of clocks can give this number (see `LARGEST`)."""
    return isinstance(value, int | float) and 1 / LARGEST <= value <= LARGEST


def bounded_exp(logarithm: float) -> float:
    """The exponential as a positive finite number: too far out means as far out as floats go."""
    return math.exp(max(-_WIDEST, min(_WIDEST, logarithm)))


def median(values: Sequence[float]) -> float:
    """Median of at least one number. Raises InvalidInputError for an empty sequence."""
    if len(values) == 0:
        raise InvalidInputError("'values' is empty", hint="a median needs at least one number")
    return float(np.median(np.asarray(values, dtype=np.float64)))


def paired_ratio(
    a: Sequence[float],
    b: Sequence[float],
    *,
    level: float = 0.95,
    method: Literal["t", "sign", "bootstrap"] = "t",
    seed: int = 1,
) -> ConfidenceInterval:
    """Ratio a/b of paired positive observations: a[i] and b[i] are of one round.

    Args:
        a, b: n numbers each, positive and finite.
        level: coverage of the interval.
        method: `t` is the t interval of the mean log ratio; `sign` the order-statistic interval
            of the median log ratio, which assumes no distribution but needs n >= 6 for 95 %
            (with fewer it has no interval); `bootstrap` resamples pairs (percentile), for
            skewed ratios with n of 10 and more.
        seed: of the bootstrap.

    Returns:
        The ratio with its interval; `low` and `high` are None where n is too small for one.

    Raises:
        InvalidInputError: lengths differ, nothing is given, or a number is not positive.
    """
    logs = _log_ratios(a, b)
    n = len(logs)
    if method == "sign":
        return _sign(logs, level)
    value = bounded_exp(logs.mean())
    if n < 2:
        return ConfidenceInterval(value, None, None, n)
    if method == "bootstrap":
        rng = np.random.default_rng(seed)
        means = rng.choice(logs, size=(4000, n)).mean(axis=1)
        low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
        return ConfidenceInterval(value, bounded_exp(low), bounded_exp(high), n)
    half = t_quantile(n - 1, level) * logs.std(ddof=1) / math.sqrt(n)
    mean = float(logs.mean())
    return ConfidenceInterval(value, bounded_exp(mean - half), bounded_exp(mean + half), n)


def pooled_ratio(
    groups: Sequence[tuple[Sequence[float], Sequence[float]]],
    *,
    weights: Sequence[float] | None = None,
    nodes: Sequence[Sequence[str]] | None = None,
    level: float = 0.95,
) -> ConfidenceInterval:
    """Geometric mean over fixed workloads of their paired ratios.

    The workloads are the ones named, not a sample of some population, so the interval holds only
    the noise inside each of them: the variances of the groups' means add up, with the degrees of
    freedom of Welch and Satterthwaite. A group with one pair has no variance of its own; then
    the interval is None.

    Pairs of several nodes are processes within nodes: a group of two or more is the mean of its
    nodes' means, whose spread holds the variance of nodes and that of processes, so that the
    interval holds for nodes of this kind. What a node does to one group it may do to another, so
    groups that share such nodes vary together. A group on a single node cannot tell the node's part
    from the workload's, and its interval holds on that node.

    Args:
        groups: (a, b) per workload, as `paired_ratio` takes them; `n` counts all pairs.
        nodes: names of the nodes of every group's pairs; one node where None.
        weights: how many workloads a group stands for; one each where None. Workloads that share
            a denominator come as one group, averaged round by round.

    Raises:
        InvalidInputError: as `paired_ratio`, or no group is given.
    """
    if not groups:
        raise InvalidInputError("'groups' is empty", hint="give at least one (a, b) pair of lists")
    logs = [_log_ratios(a, b) for a, b in groups]
    share = np.ones(len(logs)) if weights is None else np.asarray(weights, dtype=np.float64)
    n = int(sum(count * len(x) for count, x in zip(share, logs, strict=True)))
    named = [[""] * len(x) for x in logs] if nodes is None else nodes
    apart = [_node_means(x, one) for x, one in zip(logs, named, strict=True)]
    logs = [x for x, _ in apart]
    mean = float(np.average([x.mean() for x in logs], weights=share))
    if min(len(x) for x in logs) < 2:
        return ConfidenceInterval(bounded_exp(mean), None, None, n)
    share = share / share.sum()
    parts, free = _variances(logs, share, [where for _, where in apart])
    variance = parts.sum()
    if variance == 0:
        return ConfidenceInterval(bounded_exp(mean), bounded_exp(mean), bounded_exp(mean), n)
    df = variance**2 / float((parts**2 / free).sum())
    half = t_quantile(df, level) * math.sqrt(variance)
    return ConfidenceInterval(
        bounded_exp(mean), bounded_exp(mean - half), bounded_exp(mean + half), n
    )


def _node_means(logs: np.ndarray, nodes: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """Mean of every node and the nodes, where there are several; else the logs as they are."""
    if len(nodes) != len(logs):
        raise InvalidInputError(f"'nodes' names {len(nodes)} nodes for {len(logs)} pairs")
    where = sorted(set(nodes))
    if len(where) < 2:
        return logs, []
    of = np.asarray(nodes)
    return np.array([logs[of == node].mean() for node in where]), where


def _variances(
    logs: Sequence[np.ndarray], share: np.ndarray, nodes: Sequence[Sequence[str]]
) -> tuple[np.ndarray, np.ndarray]:
    """Variances that add up to that of the weighted mean of groups, and degrees of freedom of each.

    Groups with a node in common are one summand: their deviations are added up node by node.
    """
    together: list[tuple[set[str], list[int]]] = []
    for group, where in enumerate(nodes):
        meet = [one for one in together if one[0] & set(where)]
        together = [one for one in together if one not in meet]
        members = [member for _, one in meet for member in one]
        together.append((set(where).union(*(one for one, _ in meet)), [*members, group]))
    parts, free = [], []
    for _, members in together:
        if len(members) == 1:
            x = logs[members[0]]
            parts.append(x.var(ddof=1) / len(x) * share[members[0]] ** 2)
        else:
            by_node: dict[str, float] = {}
            for group in members:
                x = logs[group]
                scale = share[group] / math.sqrt(len(x) * (len(x) - 1))
                for node, deviation in zip(nodes[group], x - x.mean(), strict=True):
                    by_node[node] = by_node.get(node, 0.0) + scale * deviation
            parts.append(sum(value**2 for value in by_node.values()))
        free.append(min(len(logs[group]) for group in members) - 1)
    return np.array(parts), np.array(free)


def geometric_mean(ratios: Sequence[float], *, level: float = 0.95) -> ConfidenceInterval:
    """Geometric mean of positive ratios; the interval is over their spread (a t interval on logs),
    that is, over what another workload of the same kind may show. Raises InvalidInputError."""
    return paired_ratio(ratios, [1.0] * len(ratios), level=level)


def noise_floor(ratios: Sequence[float], *, share: float = 0.95) -> float | None:
    """Noise floor: relative difference between two runs of the same thing on this machine.

    Args:
        ratios: A/A ratios, one per pair.
        share: share of the pairs that the floor holds. With fewer than 20 pairs this is the
            largest of them: a small sample must not look quieter than it is.

    Returns:
        Relative difference (0.035 is 3.5 %), or None without pairs.
    """
    if len(ratios) == 0:
        return None
    logs = np.abs(_log_ratios(ratios, [1.0] * len(ratios)))
    return float(math.expm1(np.quantile(logs, share, method="higher")))


def control_disturbed(floor: float | None) -> bool:
    """Return True if a noise floor is too large to judge anything by (`MAX_FLOOR`)."""
    return floor is not None and floor > MAX_FLOOR


def side(low: float | None, high: float | None, floor: float | None = 0.0) -> Literal[-1, 0, 1]:
    """Side of 1x that a ratio lies on: 1 above, -1 below, 0 where that is not decided.

    Decided is a ratio whose whole interval lies outside the noise floor around 1x. A single pair
    has no interval, and beside a disturbed control nothing is judged.

    Args:
        low, high: interval of the ratio, None where it has none.
        floor: relative noise floor; None where none was measured, which counts as 0.
    """
    if low is None or high is None or control_disturbed(floor):
        return 0
    edge = 1 + (floor or 0.0)
    return 1 if low > edge else -1 if high * edge < 1 else 0


def within_floor(value: float, floor: float | None) -> bool:
    """Return True if a ratio lies inside a noise floor by which something is judged."""
    if floor is None or control_disturbed(floor):
        return False
    return 1 / (1 + floor) <= value <= 1 + floor


def verdict(ratio: ConfidenceInterval, floor: float = 0.0) -> Word:
    """Classify a time ratio new/old as FAST, SLOW, SAME or AMBG (ambiguous).

    FAST and SLOW are decided by `side`. SAME is an interval inside the noise floor, or one that
    leaves 1 out around a value inside the floor: a difference that is real and smaller than it.
    All else, and a single pair, is AMBG: more rounds would tell.
    """
    if ratio.low is None or ratio.high is None or control_disturbed(floor):
        return "AMBG"
    if which := side(ratio.low, ratio.high, floor):
        return "SLOW" if which > 0 else "FAST"
    inside = all(within_floor(end, floor) for end in (ratio.low, ratio.high))
    real = (ratio.low > 1 or ratio.high < 1) and within_floor(ratio.value, floor)
    return "SAME" if inside or real else "AMBG"


def t_quantile(df: float, level: float) -> float:
    """Two-sided quantile of Student's t with `df` degrees of freedom at coverage `level`."""
    from scipy.special import stdtrit  # scipy.stats would take a second to import

    return float(stdtrit(df, (1 + level) / 2))


def _log_ratios(a: Sequence[float], b: Sequence[float]) -> np.ndarray:
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape:
        raise InvalidInputError(
            f"'a' and 'b' must be pairs, found {first.shape} and {second.shape} numbers",
            hint="pair by round: give one number of each side per round",
        )
    if first.size == 0:
        raise InvalidInputError("'a' and 'b' are empty", hint="a ratio needs at least one pair")
    for name, values in (("a", first), ("b", second)):
        bad = ~(np.isfinite(values) & (values > 0))
        if bad.any():
            raise InvalidInputError(
                f"'{name}' holds {values[bad][0]}, a ratio needs positive finite numbers"
            )
    return np.log(first) - np.log(second)


def median_interval(
    values: Sequence[float] | np.ndarray, *, level: float = 0.95
) -> tuple[float, float | None, float | None]:
    """The median and the order statistics that bound it, whatever the distribution.

    Needs n >= 6 for 95 %; with fewer the bounds are None. Raises InvalidInputError for no values.
    """
    if len(values) == 0:
        raise InvalidInputError("'values' is empty", hint="a median needs at least one value")
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    n = len(ordered)
    value = float(np.median(ordered))
    # The median lies outside the k-th values from both ends with probability 2 * P(Bin <= k).
    k = _below(n, (1 - level) / 2)
    if k < 0:
        return value, None, None
    return value, float(ordered[k]), float(ordered[n - 1 - k])


def _below(n: int, share: float) -> int:
    """The largest k with P(Bin(n, 1/2) <= k) <= share; -1 where there is none."""
    if n > 1000:  # binomials as numbers of their own outgrow a float
        from scipy.stats import binom

        return int(binom.ppf(share, n, 0.5)) - 1
    tail, k = 0.0, -1
    while k + 1 < n:
        tail += math.comb(n, k + 1) * 0.5**n
        if tail > share:
            break
        k += 1
    return k


def _sign(logs: np.ndarray, level: float) -> ConfidenceInterval:
    value, *bounds = median_interval(logs, level=level)
    low, high = (None if b is None else bounded_exp(b) for b in bounds)
    return ConfidenceInterval(bounded_exp(value), low, high, len(logs))
