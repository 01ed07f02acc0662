"""Draws of what is compared: frames, batches, vertices.

The harness seeds them in every process of a cell by the run and the round, so that all contenders
of a round are compared on the same draws and no process can ask for others. Elsewhere each process
draws its own. Like `errors` and `meter` this module imports nothing of dgbench.
"""

from __future__ import annotations

import random

_seed = ""
_sources: dict[str, random.Random] = {}


def seed_draws(seed: str) -> None:
    """Let all draws of this process follow from a seed; "" gives them back to the system."""
    global _seed
    _seed = seed
    _sources.clear()


def draws_of(what: str) -> random.Random:
    """Source of the draws of one kind, such as `frames`; the same at every call of a process.

    Kinds do not disturb one another: a contender that has more of one kind to draw gets the same
    draws of another as its rivals.
    """
    if not _seed:
        return random.SystemRandom()
    return _sources.setdefault(what, random.Random(f"{_seed}/{what}"))
