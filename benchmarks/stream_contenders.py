"""Contenders of sampling and updating, and the stream they race on; what is here and what is not.

Usage: python benchmarks/stream_contenders.py

Races import from here: `CONTENDERS`, `Events`, `Truth`, `synthetic_events`, `batch_roots`,
`available`.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor

from dgbench.systems.gnnflow.contenders import CONTENDERS, Contender, Events, Quality, Truth
from dgbench.systems.gnnflow.contenders.stream import batch_roots, synthetic_events

__all__ = [
    "CONTENDERS",
    "Contender",
    "Events",
    "Quality",
    "Truth",
    "available",
    "batch_roots",
    "synthetic_events",
]


def available() -> dict[str, type[Contender]]:
    """Contenders that run here, by name; the others are said on standard error with reasons."""
    found = {}
    for name, one in CONTENDERS.items():
        reason = one.unavailable()
        if reason:
            print(f"{one.title} does not run here: {reason}", file=sys.stderr)
        else:
            found[name] = one
    return found


def sample_once(one: type[Contender]) -> Tensor:
    """Edges that a contender returns for one batch of a small stream."""
    events = synthetic_events(1000, 20_000)
    nodes, times = batch_roots(events, 10_000, 100)
    graph = one()
    graph.build(events if one.looks_back else events.first(10_000))
    answer = graph.sample(nodes, times, [10], one.policies[0])
    return graph.first_hop(answer)[1]


def main() -> int:
    torch.set_num_threads(1)
    for name, one in available().items():
        note = f"; {one.note}" if one.note else ""
        print(f"{name:10} {one.title} ({one.origin()}), {sample_once(one).numel()} edges{note}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
