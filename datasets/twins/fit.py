"""Finding parameters of a twin from published numbers, one target per parameter."""

from __future__ import annotations

import math

import numpy as np

from dgbench.kernels_cuda.twins import RankCopySpec
from dgbench.runtime.errors import InvalidInputError

Q_RANGE = (1e-3, 1e12)
"""Where `solve_q` looks."""


def first_weight(s: float, q: float, vertices: np.ndarray) -> np.ndarray:
    """Probability of rank 0 under (x + q)^-s over 0 .. vertices - 1, for each vertex count."""
    e = 1.0 - s
    vertices = np.asarray(vertices, dtype=np.float64)
    if abs(e) < 1e-9:
        return np.log1p(1.0 / q) / np.log1p(vertices / q)
    return np.expm1(e * math.log1p(1.0 / q)) / np.expm1(e * np.log1p(vertices / q))


def root_share(spec: RankCopySpec, side: int) -> float:
    """Share of rank draws among what every endpoint of a side goes back to (the others are
    arrivals), counted over the events that are neither copies nor replies."""
    if spec.num_dst:
        own = (spec.num_src, spec.num_dst)[side] / spec.events
        other = (spec.num_dst, spec.num_src)[side] / spec.events
        arriving = own + other - own * other
    else:
        arriving = spec.num_src / spec.events
        own = arriving * (spec.p_src, 1.0 - spec.p_src)[side]
    drawn = arriving + (1.0 - arriving) * (1.0 - spec.repeat) * (1.0 - spec.reply) - own
    by_rank = max(drawn, 0.0) * (1.0 - (spec.mem_src, spec.mem_dst)[side])
    return by_rank / (by_rank + own) if by_rank + own > 0 else 0.0


def hub_share(spec: RankCopySpec, side: int) -> float:
    """Expected share of the events that the first vertex holds on a side (0 source, 1
    destination): the root share times the mean weight of rank 0 while the graph grows."""
    return root_share(spec, side) * float(np.mean(_weights(spec, side, _law(spec, side)[1])))


def solve_q(spec: RankCopySpec, side: int, share: float) -> float:
    """The offset q at which the first vertex holds `share` of the events of a side.

    Bisection on log q; no graph is generated. Where no q in `Q_RANGE` reaches the share, the
    nearer end is returned: a flat law cannot have a smaller hub.

    Raises:
        InvalidInputError: share is not in (0, 1).
    """
    if not 0 < share < 1:
        raise InvalidInputError(f"hub share is {share}; a number in (0, 1) is allowed")
    root = root_share(spec, side)
    low, high = (math.log(x) for x in Q_RANGE)
    for _ in range(60):
        middle = 0.5 * (low + high)
        if root * float(np.mean(_weights(spec, side, math.exp(middle)))) > share:
            low = middle
        else:
            high = middle
    # Rounded, so that the last bits of a machine's libm do not decide which edges there are.
    return float(f"{math.exp(0.5 * (low + high)):.9g}")


def distinct_pairs(src: np.ndarray, dst: np.ndarray) -> int:
    """Number of distinct (source, destination) pairs."""
    keys = np.sort(src * np.int64(dst.max(initial=0) + 1) + dst)
    return int(np.count_nonzero(keys[1:] != keys[:-1])) + 1 if len(keys) else 0


def _law(spec: RankCopySpec, side: int) -> tuple[float, float]:
    return ((spec.s_src, spec.q_src), (spec.s_dst, spec.q_dst))[side]


def _weights(spec: RankCopySpec, side: int, q: float) -> np.ndarray:
    second = side == 1 and spec.num_dst > 0
    total, beta = (spec.num_dst, spec.beta_dst) if second else (spec.num_src, spec.beta_src)
    x = (np.arange(512) + 0.5) / 512
    return first_weight(_law(spec, side)[0], q, np.maximum(total * x**beta, 1.0))
