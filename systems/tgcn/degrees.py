"""Tails of degrees, and what sampling half of every neighbourhood does to them (section 6.1.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from dgbench.lab.laws import Laws, fit
from dgbench.runtime.errors import InvalidInputError

CANDIDATES: Final = 24
"""Starts of a tail that are tried."""
MIN_TAIL: Final = 50
"""Vertices that a tail must hold."""
MIN_TAIL_SHARE: Final = 0.1
"""Share of the vertices that it must hold too: a few hubs fit anything."""
GRID: Final = tuple(2.0**k for k in range(-5, 10))
"""Degrees, in means of the graph, at which distributions are kept for the figure."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The part of a distribution that a power law fits best.

    Attributes:
        laws: both fits from `least` on.
        least: the smallest degree of the tail.
        share: of the vertices with an edge, those in the tail.
    """

    laws: Laws
    least: int
    share: float


def tail_of(degrees: np.ndarray, least: int = 0) -> Tail | None:
    """The tail from `least` on, or else the one that is nearest to its fitted power law.

    Nearest is meant by the distance of Kolmogorov and Smirnov.

    Args:
        degrees: int[n] >= 0; vertices without an edge take no part.
        least: where the tail begins; 0 to look for it.

    Returns:
        The tail, or None where fewer than `MIN_TAIL` vertices or two different degrees are left.
        A tail has `MIN_TAIL_SHARE` of the vertices.
        Starts are degrees that occur, at most `CANDIDATES` of them, evenly spaced in logarithms
        (Clauset, Shalizi and Newman, SIAM Review 2009, section 3.3).
    """
    some = np.asarray(degrees)[np.asarray(degrees) > 0]
    best: Tail | None = None
    for start in [least] if least else _starts(some).tolist():
        inside = some[some >= start]
        try:
            found = fit(inside, start)
        except InvalidInputError:  # one degree only
            continue
        if best is None or found.power_gap < best.laws.power_gap:
            best = Tail(found, start, len(inside) / len(some))
    return best


def _starts(degrees: np.ndarray) -> np.ndarray:
    if len(degrees) < MIN_TAIL:
        return np.empty(0, dtype=np.int64)
    size = max(MIN_TAIL, int(MIN_TAIL_SHARE * len(degrees)))
    last = np.partition(degrees, len(degrees) - size)[len(degrees) - size]
    there = np.unique(degrees[degrees <= last])
    if len(there) <= CANDIDATES:
        return there
    wanted = np.geomspace(there[0], there[-1], CANDIDATES)
    return np.unique(there[np.searchsorted(there, wanted).clip(max=len(there) - 1)])


def rescaled_gap(before: np.ndarray, after: np.ndarray, least: int = 1) -> float:
    """Distance of Kolmogorov and Smirnov between two sets of degrees, each over its mean.

    Args:
        before: int[n], degrees of the whole graph.
        after: int[n], of the sampled one, same vertices.
        least: vertices with a smaller degree before are left out; 1 keeps all with an edge.
    """
    there = before >= max(1, least)
    one, other = before[there].astype(np.float64), after[there].astype(np.float64)
    if not one.size or not other.sum():
        return 1.0
    one, other = np.sort(one / one.mean()), np.sort(other / other.mean())
    at = np.concatenate([one, other])
    below = [np.searchsorted(part, at, side="right") / len(part) for part in (one, other)]
    return float(np.abs(below[0] - below[1]).max())


def shares_above(degrees: np.ndarray) -> list[float]:
    """Shares of the vertices with more than each degree of `GRID`, of those with an edge."""
    some = np.asarray(degrees)[np.asarray(degrees) > 0]
    if not some.size:
        return [0.0] * len(GRID)
    return [float((some > x * some.mean()).mean()) for x in GRID]
