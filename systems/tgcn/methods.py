"""Ways to draw, as the sampling experiments name them, and how they are timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

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
