"""What the checks share: how strong rows are as evidence, and findings from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dgbench.systems.base import Check, Finding
from dgbench.systems.base.evidence import from_ratio, ids, strength, uses_twin
from dgbench.systems.base.paper import Evidence
from dgbench.systems.dgc.experiments.settings import GRAPHS

__all__ = [
    "NEEDS_CUDA",
    "any_graph",
    "finding",
    "from_ratio",
    "ids",
    "missing",
    "of_the_paper",
    "some",
    "strength",
    "uses_twin",
]

NEEDS_CUDA = "needs CUDA devices: nox -s reproduce -- dgc --device cuda"

_GRAPHS = {graph.name for graph in GRAPHS}
_SYNTHETIC = "synthetic"
"""Names of graphs of the paper's own generator begin so: any run of it is data of the paper."""


def of_the_paper(row: Any) -> bool:
    """Whether a row rests on one of the paper's graphs, or on none."""
    name = row.params.get("dataset")
    return name is None or name in _GRAPHS or name.startswith(_SYNTHETIC)


def any_graph(check: Check) -> Check:
    """Mark a check that takes rows of any graph, though its claim names the paper's.

    For statements about a mechanism that every graph shows. Without the mark a check gets rows of
    the paper's own graphs only. Its evidence on other graphs is `analogue` at most, and its reason
    names them.
    """
    check.any_graph = True  # type: ignore[attr-defined]
    return check


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
