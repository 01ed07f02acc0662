"""Ways to draw, as the sampling experiments name them, and how they are timed; steps of a frontier
on a graph made for it: the drawn slot moves on (2.3, Algorithm 5)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final, TypeVar

import torch

from dgbench.kernels_cuda.edge_sampling import EdgeTable, SubgraphSample, sample_subgraph

K = TypeVar("K")

FORMS: Final = {
    "sis": ("SIS",),
    "sis8": ("SIS", "wide"),
    "its_linear": ("ITS", "scan"),
    "its_bitmap": ("ITS", "bitmap"),
    "its_list": ("ITS", "list"),
    "its_rebuild": ("ITS", "rebuild"),
    "alias": ("Alias tables",),
    "brs": ("BRS",),
    "brs_literal": ("BRS", "as printed"),
    "reservoir": ("Fisher-Yates",),
    "keys": ("Exponential keys",),
}
"""Family and form of every method of `kernels_cuda.weighted`; `sis` is the paper's binary tree,
`sis8` ours."""
TITLES: Final = {name: " ".join(words) for name, words in FORMS.items()}
BASE: Final = "sis"
"""Baseline of all gains: the paper's tree."""
ITS: Final = ("its_linear", "its_bitmap", "its_list", "its_rebuild")
"""The forms that "inverse transform sampling" may have had (dossier 3.4)."""
LINEAR: Final = ("its_linear", "its_list", "its_rebuild")
"""Those whose draw costs time linear in the set."""


def series_of(method: str) -> str:
    """The name of a line: forms of one method share a colour, by what stands before the comma."""
    return ", ".join(FORMS[method])


def name_of(method: str) -> str:
    """The name that the kernels know a method by."""
    return "sis" if method == "sis8" else method


def arity_of(method: str) -> int:
    """Children of a node of the tree: two in the paper, eight in a cache line."""
    return 8 if method == "sis8" else 2


def timed(
    calls: Mapping[K, Callable[[], object]],
    seconds: dict[K, list[float]],
    turn: int,
    results: dict[K, object] | None = None,
) -> None:
    """Run all calls once, every second turn in reverse order; the turns below 0 warm up.

    Taken is the processor time of this thread, which others on the machine do not lengthen. All
    calls run on one thread.

    Args:
        calls: by name.
        seconds: by name, one number appended from turn 0 on.
        turn: which one this is.
        results: by name, what the calls of this turn gave; None to drop it.
    """
    for name in calls if turn % 2 == 0 else reversed(list(calls)):
        start = time.thread_time()
        result = calls[name]()
        spent = time.thread_time() - start
        if results is not None:
            results[name] = result
        if turn >= 0:
            seconds.setdefault(name, []).append(spent)


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
