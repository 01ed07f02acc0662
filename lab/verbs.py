"""Verbs of claims of the papers that are not in forms yet (`lab/rules.py`): a check is one line of
a table, `claim id: verb(what is looked at, ...)`.

A verb says what is asked of rows and makes a `Check`: (claim, rows) -> `Finding`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from dgbench.lab.compare import Ratio, ratio_of
from dgbench.lab.evidence import finding, missing
from dgbench.lab.judging import judging_apart
from dgbench.lab.paper import Check, Claim, Finding
from dgbench.lab.table import Table, rows_of

Rows = Sequence[Any]


def readings(said: str = "", **checks: Check) -> Check:
    """A check of a claim that can be read in several ways: one check a reading, by its name.

    The verdict holds for all of them, or says that it depends on the reading.
    """

    def check(claim: Claim, rows: Rows) -> Finding:
        found = {}
        for name, one in checks.items():
            with judging_apart() as read:
                found[name] = one(claim, rows)
            found[name].reads = frozenset(read.reads)
        if all(one.empty for one in found.values()):
            return missing(next(iter(found.values())).reason)
        return Finding(reason=said, readings=found)

    return check


# ESDG


def turns_gain(rows: Rows, **dims: Any) -> Ratio | None:
    """The speed-up that processes formed over their turns, pooled over these rows."""
    return ratio_of(Table.of(rows).where("speedup", **dims))


# DGC


def asking(
    select: Callable[[Rows], Sequence[Any]], none: str
) -> Callable[[Callable[[Claim, Any], Mapping[str, Any]]], Check]:
    """A decorator that makes a check of a function from what was found to fields of a finding.

    Args:
        select: rows -> what is asked about: rows, a table, or anything that has a `row`. The
            finding rests on all of them, where the function returns no `rows`.
        none: why nothing is said where it finds nothing.
    """

    def decorate(say: Callable[[Claim, Any], Mapping[str, Any]]) -> Check:
        @wraps(say)
        def check(claim: Claim, rows: Rows) -> Finding:
            found = select(rows)
            if not found:
                return missing(none)
            said = dict(say(claim, found))
            used = said.pop("rows", found)
            used = list({row.id: row for row in (getattr(o, "row", o) for o in used)}.values())
            return finding(used, **said)

        return check

    return decorate


# T-GCN

Judge = Callable[[Claim, list[Any]], Mapping[str, Any] | Finding | None]
"""(claim, rows of a selection) -> fields of the finding that rests on them; None where these rows
do not hold what is asked."""


@dataclass(frozen=True)
class RowSelection:
    """Usable rows of one experiment.

    Attributes:
        experiment: its name. none: why nothing was found, where there are none.
        where: params or columns that they have. pick: those of them that are looked at.
    """

    experiment: str
    none: str
    where: Mapping[str, Any] = field(default_factory=dict)
    pick: Callable[[list[Any]], list[Any]] = list

    def __call__(self, rows: Rows) -> list[Any]:
        """The rows."""
        return self.pick(rows_of(rows, experiment=self.experiment, **self.where))


def rows_with(
    experiment: str, none: str, pick: Callable[[list[Any]], list[Any]] = list, **where: Any
) -> RowSelection:
    """Rows of an experiment with these params."""
    return RowSelection(experiment, none, where, pick)


def last(rows: list[Any]) -> list[Any]:
    """The last row alone, or none."""
    return rows[-1:]


def cells_of(rows: Iterable[Any]) -> list[list[Any]]:
    """The rows of each cell, its processes, in order of the first."""
    cells: dict[str, list[Any]] = {}
    for row in rows:
        cells.setdefault(f"{row.experiment} {sorted(row.params.items())}", []).append(row)
    return list(cells.values())


def last_of_each(rows: list[Any]) -> list[Any]:
    """The last row of each cell."""
    return list({str(sorted(row.params.items())): row for row in rows}.values())


def says(selection: RowSelection, judge: Judge) -> Check:
    """A finding that `judge` forms from the rows of a selection."""

    def check(claim: Claim, rows: Rows) -> Finding:
        found = selection(rows)
        fields = judge(claim, found) if found else None
        if fields is None:
            return missing(selection.none)
        if isinstance(fields, Finding):
            return fields
        plain = dict(fields)
        if "target" in plain:
            plain["target"] = float(plain["target"])
        return finding(plain.pop("rows", found), **plain)

    return check
