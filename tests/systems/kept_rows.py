"""Kept rows of a paper with some of their numbers changed, and what its checks say of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import paper_rows
from msgspec.structs import replace

from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.claims.verdict import GLYPHS
from dgbench.harness.report.run import load_run
from dgbench.harness.store.row import Row
from dgbench.lab.paper import Paper
from dgbench.lab.table import observation

ANY: Callable[[Any], bool] = lambda value: True  # noqa: E731 - any value of a dimension
KEPT = Path(__file__).parents[2] / "results" / "reference"
Rows = list[Row]


@cache
def kept(machine: str, paper: str) -> tuple[Row, ...]:
    """Rows of a kept run that are right."""
    run = load_run(KEPT / machine / paper)
    return tuple(row for row in run.everything if row.paper == paper and row.status == "ok")


def of(rows: Sequence[Row], experiment: str = "", **params: Any) -> Rows:
    """Rows of an experiment with these params."""
    return [
        row for row in rows
        if experiment in ("", row.experiment) and params.items() <= row.params.items()
    ]  # fmt: skip


def put(rows: Sequence[Row], some: Sequence[Row], metric: str, value: Any, **dims: Any) -> Rows:
    """All rows, of which `some` have another value of a metric with exactly these dimensions.

    `value` is a number, its value with both ends, or a function of the row and the observation;
    a dimension a value, or a function that says whether a value is meant.
    """
    names = {row.id for row in some}
    count = 0

    def meant(one: Any) -> bool:
        return (
            one.metric == metric
            and one.dims.keys() == dims.keys()
            and all(d(one.dims[k]) if callable(d) else d == one.dims[k] for k, d in dims.items())
        )

    def changed(row: Row, one: Any) -> Any:
        nonlocal count
        if not meant(one):
            return one
        count += 1
        new = value(row, one) if callable(value) else value
        new, low, high = new if isinstance(new, tuple) else (new, None, None)
        return observation(metric, new, low=low, high=high, **one.dims)

    changed_rows = [
        replace(row, observed=[changed(row, one) for one in row.observations])
        if row.id in names
        else row
        for row in rows
    ]
    assert count, f"no row has a {metric} of {dims}"
    return changed_rows


def lacking(rows: Sequence[Row], some: Sequence[Row], meant: Callable[[Any], bool]) -> Rows:
    """All rows, of which `some` lack the observations that are meant."""
    names = {row.id for row in some}
    return [
        replace(row, observed=[one for one in row.observations if not meant(one)])
        if row.id in names
        else row
        for row in rows
    ]


def about(rows: Sequence[Row], some: Sequence[Row], **fields: Any) -> Rows:
    """All rows, of which `some` have other fields; of `data` and `params` these alone."""
    names = {row.id for row in some}

    def own(row: Row) -> dict[str, Any]:
        return {
            name: {**getattr(row, name), **value} if isinstance(value, dict) else value
            for name, value in fields.items()
        }

    return [replace(row, **own(row)) if row.id in names else row for row in rows]


def without(rows: Sequence[Row], some: Sequence[Row]) -> Rows:
    """All rows but some."""
    names = {row.id for row in some}
    return [row for row in rows if row.id not in names]


def glyphs_of(paper: Paper) -> Callable[..., str]:
    """A function of a claim and rows: the glyph of its verdict, in brackets those of its readings;
    of a claim by definition beside it whether the statement holds."""
    claims = {claim.id.removeprefix(f"{paper.name}-"): claim for claim in load_ledger(paper.ledger)}
    glyphs = {word: glyph for glyph, word in GLYPHS.items()}

    def shown(name: str, rows: Rows, floor: float = 0.0) -> str:
        finding, verdict = paper_rows.judged(paper, claims[name], rows, floor)
        each = "".join(glyphs[word] for word in verdict.readings.values())
        holds = {True: "T", False: "F", None: ""}[finding.holds] if verdict.glyph == "=" else ""
        return verdict.glyph + holds + (f"({each})" if each else "")

    return shown
