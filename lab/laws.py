"""Test of a power law against an exponential law for counts.

Both are fitted to whole numbers by maximum likelihood, k^-a / zeta(a, m) and its discrete
exponential (geometric) rival for k >= m, and compared by Vuong's test: the mean difference of the
log likelihoods over its standard error, positive where the power law is nearer (Clauset, Shalizi
and Newman, SIAM Review 2009). A straight line through a histogram does not tell them apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dgbench.runtime.errors import InvalidInputError

DECIDED = 2.0
"""|z| from which one law is taken to be nearer."""


@dataclass(frozen=True, slots=True)
class Laws:
    """Both fits.

    Attributes:
        exponent: a of the power law. rate: of the exponential, per access.
        z: Vuong's statistic; above 0 the power law is nearer.
        power_gap: largest distance of the fitted power law's distribution function from the one
            found (Kolmogorov and Smirnov).
        n: numbers fitted.
    """

    exponent: float
    rate: float
    z: float
    power_gap: float
    n: int


def fit(counts: np.ndarray, least: int = 1) -> Laws:
    """Fit both laws to the counts that are at least `least`.

    Args:
        counts: int[n] >= 0; those below `least` are left out.
        least: m, from 1.

    Raises:
        InvalidInputError: fewer than two different counts are left.
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import zeta

    counts = np.asarray(counts)
    values, often = np.unique(counts[counts >= max(1, least)], return_counts=True)
    if len(values) < 2:
        raise InvalidInputError(f"counts hold {len(values)} different values from {least} on, "
                                "at least 2 are needed")  # fmt: skip
    n, m = int(often.sum()), int(max(1, least))
    logs = np.log(values)
    mean_log = float((often * logs).sum() / n)
    best = minimize_scalar(
        lambda a: a * mean_log + np.log(zeta(a, m)), bounds=(1.0001, 20.0), method="bounded"
    )
    a = float(best.x)
    power = -a * logs - np.log(zeta(a, m))
    excess = float((often * (values - m)).sum() / n)
    rate = float(np.log1p(1 / excess))
    exponential = -rate * (values - m) + np.log(-np.expm1(-rate))
    gap = power - exponential
    mean = float((often * gap).sum() / n)
    spread = float(np.sqrt((often * (gap - mean) ** 2).sum() / n))
    found = np.cumsum(often) / n
    below_power = 1 - zeta(a, values + 1.0) / zeta(a, m)
    return Laws(
        exponent=a,
        rate=rate,
        z=mean / spread * np.sqrt(n) if spread > 0 else 0.0,
        power_gap=float(np.abs(found - below_power).max()),
        n=n,
    )


def gini(counts: np.ndarray) -> float:
    """0 where all are accessed alike, towards 1 where a few take all."""
    ordered = np.sort(np.asarray(counts, dtype=np.float64))
    if not ordered.size or not ordered.sum():
        return 0.0
    rank = np.arange(1, ordered.size + 1)
    return float(2 * (rank * ordered).sum() / (ordered.size * ordered.sum()) - 1 - 1 / ordered.size)
