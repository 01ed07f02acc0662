"""Strength of rows as evidence, and findings from ratios, for the checks of any paper."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

from dgbench.lab.compare import Ratio
from dgbench.lab.paper import Check, Claim, Evidence, Finding


def strength(rows: Iterable[Any]) -> Evidence:
    """Timed rows of a GPU are measured; on a CPU they stand for the GPU as an analogue."""
    return "measured" if all(row.device == "cuda" for row in rows) else "analogue"


def uses_twin(rows: Iterable[Any]) -> bool:
    """Return True if any of the rows used a synthetic twin."""
    return any(bool(row.data.get("twin")) for row in rows)


def ids(rows: Iterable[Any]) -> list[str]:
    """Ids of the rows, in their order."""
    return [row.id for row in rows]


def from_ratio(
    ratio: Ratio | None,
    rows: Sequence[Any],
    *,
    target: float | None = None,
    deviation: float | None = None,
    missing: str = "",
    reason: str = "",
) -> Finding:
    """A finding from a ratio of times; `target` is the paper's factor."""
    if ratio is None:
        return missing_finding(missing)
    used = [row for row in rows if row.id in set(ratio.rows)]
    return Finding(
        measured=ratio.value,
        direction=ratio.value > 1,
        low=ratio.low,
        high=ratio.high,
        target=target,
        evidence=strength(used),
        twin=ratio.twin,
        rows=ratio.rows,
        reason=reason,
        deviation=ratio.deviation if deviation is None else deviation,
    )


def missing_finding(reason: str) -> Finding:
    """Nothing was measured, and why."""
    return Finding(reason=reason or "no row of this run measures it")


def missing(reason: str) -> Finding:
    """Nothing was measured, and why."""
    return Finding(reason=reason)


def some(number: int, word: str, many: str = "") -> str:
    """A number and what it counts: `1 graph`, `4 graphs`; `many` where an s is not enough."""
    return f"{number} {word if number == 1 else many or word + 's'}"


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


@dataclass(frozen=True, slots=True)
class PapersGraphs:
    """The graphs that a paper uses; rows of others take no part in claims about these.

    Attributes:
        names: of the graphs.
        families: what the names of graphs of the paper's own generators begin with.
    """

    names: Collection[str]
    families: tuple[str, ...] = ()

    def __contains__(self, row: object) -> bool:
        """Return True if a row uses one of the paper's graphs, or names no dataset."""
        name = row.params.get("dataset")  # type: ignore[attr-defined]
        return name is None or name in self.names or name.startswith(self.families)

    def of(self, rows: Iterable[Any]) -> list[Any]:
        """Rows that rest on the paper's graphs, or on none."""
        return [row for row in rows if row in self]

    def guard(self, checks: Mapping[str, Check]) -> dict[str, Check]:
        """Checks of which each gets rows of the paper's graphs only, where its claim names some.

        Claims that name no dataset (formulas, mechanisms) and checks marked with `any_graph` take
        rows of any graph.
        """
        return {name: self._guarded(check) for name, check in checks.items()}

    def _guarded(self, check: Check) -> Check:
        if getattr(check, "any_graph", False):
            return check

        @wraps(check)
        def checked(claim: Claim, rows: Sequence[Any]) -> Finding:
            return check(claim, self.of(rows) if claim.workload.get("datasets") else rows)

        return checked


def any_graph(check: Check) -> Check:
    """Mark a check that takes rows of any graph, though its claim names the paper's.

    For statements about a mechanism that every graph shows. Its evidence on other graphs is
    `analogue` at most, and its reason names them.
    """
    check.any_graph = True  # type: ignore[attr-defined]
    return check
