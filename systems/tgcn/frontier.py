"""Steps of a frontier on a graph made for it: the drawn slot moves on (2.3, Algorithm 5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

import torch

from dgbench.kernels_cuda.edge_sampling import EdgeTable, SubgraphSample, sample_subgraph
from dgbench.systems.tgcn.methods import arity_of, name_of

REPLACED: Final = "replaced"
"""Setting of a step of a frontier."""
FIRST, MANY = "first", "steps"
METHODS: Final = ("sis", "sis8", "its_bitmap", "its_linear", "brs", "keys")
"""Of a frontier. What ITS keeps of the taken plays no part: nothing is taken, slots move."""
FAST: Final = ("sis", "sis8", "keys")
"""Those whose step does not read the frontier."""
MAX_FRONTIER: Final = 1_000_000
"""Largest frontier: a tenth of the vertices of the paper's second largest graph."""
DEGREE: Final = 8
"""Mean degree of the graph."""
EXPONENT: Final = 2.1
LARGEST: Final = 1_000
STEPS: Final = 20_000
READ: Final = 4_000_000
"""Steps of a fast method in a call, and elements that another may read."""


@cache
def ring_of(size: int) -> EdgeTable:
    """A graph of `size` vertices, out-degrees by a power law, each edge to any vertex."""
    numbers = torch.Generator().manual_seed(9)
    drawn = torch.rand(size, generator=numbers, dtype=torch.float64)
    degrees = (1 - drawn).pow(-1 / (EXPONENT - 1)).clamp_(max=LARGEST)
    degrees = (degrees * DEGREE / degrees.mean()).ceil().long()
    src = torch.repeat_interleave(torch.arange(size), degrees)
    dst = torch.randint(size, (src.numel(),), generator=numbers)
    return EdgeTable.build(src, dst, torch.arange(src.numel(), dtype=torch.float64), size)


def steps_of(method: str, size: int) -> int:
    """Steps of the longer of two timed calls; the shorter has one."""
    return STEPS if method in FAST else max(8, min(STEPS, READ // size))


def walk(method: str, size: int, steps: int) -> SubgraphSample:
    """A frontier of `size` slots on as many vertices, so many steps; no induced edges."""
    return sample_subgraph(
        ring_of(size), size, steps, method=name_of(method), arity=arity_of(method),
        replacement=True, induced=False, seed=7, threads=1,
    )  # fmt: skip


def frontier_calls(size: int) -> dict[tuple[str, str], Callable[[], SubgraphSample]]:
    """Calls of one step and of many, by method and call."""
    if size > MAX_FRONTIER:
        return {}

    def call(method: str, steps: int) -> Callable[[], SubgraphSample]:
        return lambda: walk(method, size, steps)

    calls: dict[tuple[str, str], Callable[[], SubgraphSample]] = {}
    for method in METHODS:
        calls[method, FIRST] = call(method, 1)
        calls[method, MANY] = call(method, steps_of(method, size))
    return calls


def frontier_draws(
    size: int, seconds: Mapping[tuple[str, str], list[float]]
) -> dict[tuple[str, str], list[float]]:
    """Seconds of one step in each turn, by method and `REPLACED`; at least a nanosecond."""
    return {
        (method, REPLACED): [
            max(1e-9, (long - short) / (steps_of(method, size) - 1))
            for long, short in zip(seconds[method, MANY], seconds[method, FIRST], strict=True)
        ]
        for method in METHODS
        if (method, MANY) in seconds
    }
