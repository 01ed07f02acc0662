"""What the checks share: how strong rows are as evidence, and findings from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dgbench.systems.base import Finding
from dgbench.systems.base.evidence import from_ratio, ids, strength, uses_twin
from dgbench.systems.base.paper import Evidence
from dgbench.systems.gnnflow.experiments.settings import GRAPHS

__all__ = [
    "NEEDS_CUDA",
    "finding",
    "from_ratio",
    "ids",
    "missing",
    "of_the_paper",
    "papers_graphs",
    "some",
    "strength",
    "uses_twin",
]

NEEDS_CUDA = "needs CUDA devices: nox -s reproduce -- gnnflow --device cuda"

_GRAPHS = {graph.name for graph in GRAPHS}


def of_the_paper(row: Any) -> bool:
    """Whether a row rests on one of the paper's graphs, or on none."""
    name = row.params.get("dataset")
    return name is None or name in _GRAPHS


def papers_graphs(rows: Iterable[Any]) -> list[Any]:
    """Rows that rest on the paper's graphs, for claims about these; claims about a mechanism that
    every graph shows take all rows."""
    return [row for row in rows if of_the_paper(row)]


def some(number: int, word: str, many: str = "") -> str:
    """A number and what it counts: `1 graph`, `4 graphs`; `many` where an s is not enough."""
    return f"{number} {word if number == 1 else many or word + 's'}"


def missing(reason: str) -> Finding:
    """Nothing was measured, and why."""
    return Finding(reason=reason)


def finding(
    rows: Sequence[Any],
    *,
    evidence: Evidence,
    measured: Any,
    holds: bool | None = None,
    direction: bool | None = None,
    target: float | None = None,
    undecided: bool = False,
    reason: str = "",
) -> Finding:
    """A finding that rests on these rows.

    Args:
        rows: whose ids, twins and largest deviation it takes.
        evidence, measured, holds, direction, target, undecided, reason: see `Finding`.
    """
    deviations: list[float] = []
    for row in rows:
        found: Mapping[str, float] = row.deviation
        deviations += [abs(value) for value in found.values()]
    return Finding(
        measured=measured,
        holds=holds,
        direction=direction,
        target=target,
        evidence=evidence,
        twin=uses_twin(rows),
        rows=ids(rows),
        reason=reason,
        deviation=max(deviations, default=None),
        undecided=undecided,
    )
