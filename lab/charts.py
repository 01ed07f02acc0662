"""Points of figures, from rows: what the charts of several experiments share.

A point is a flat mapping for one drawn mark; `docs/figures.md` says which keys a kind of figure
reads. What has no number stays visible as a point that says why, under `failed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from dgbench.lab.compare import Ratio
from dgbench.lab.evidence import uses_twin
from dgbench.lab.experiment import Contender, FigureSpec

Rows = Sequence[Any]
Point = dict[str, Any]
Points = Callable[[Rows], list[Point]]


def chart(
    kind: str,
    name: str,
    title: str,
    points: Points,
    /,
    *,
    contenders: Mapping[str, Contender] = MappingProxyType({}),
    **options: Any,
) -> FigureSpec:
    """A figure; `options` are those of its kind, see `docs/figures.md`."""
    return FigureSpec(
        kind=kind, name=name, title=title, points=points, options=options, contenders=contenders
    )


def sweep(name: str, title: str, points: Points, /, **options: Any) -> FigureSpec:
    """A figure of the kind `sweep`, as most are."""
    return chart("sweep", name, title, points, **options)


def failed(row: Any) -> str:
    """Why a row has no numbers, as the `failed` key of a point: its status and reason."""
    return f"{row.status}: {row.reason}" if row.reason else str(row.status)


def failures(rows: Iterable[Any], experiment: str, **params: Any) -> list[Any]:
    """Rows of an experiment, with these params, that did not run."""
    return [
        row
        for row in rows
        if row.experiment == experiment
        and row.status != "ok"
        and params.items() <= row.params.items()
    ]


def gap(row: Any, /, **fields: Any) -> Point:
    """A point for a row that did not run."""
    return {**fields, "failed": failed(row), "row_ids": [row.id]}


def mark(row: Any, /, **fields: Any) -> Point:
    """A point that rests on a row."""
    return {**fields, "twin": bool(row.data.get("twin")), "row_ids": [row.id]}


def titled(title: str, rows: Iterable[Any]) -> str:
    """A graph's title, with "(twin)" where any of the rows used a synthetic one."""
    return f"{title} {TWIN}" if uses_twin(rows) else title


TWIN: Final = "(twin)"
"""Suffix of a dataset's name where the data is synthetic."""


@dataclass(frozen=True, slots=True)
class PointFailure:
    """Why a point has no numbers: a status of rows, and what else is known ("" without)."""

    status: str
    reason: str

    def words(self, statuses: Mapping[str, str]) -> str:
        """For people: `statuses` are the words of statuses, others stay as they are."""
        word = statuses.get(self.status, self.status)
        return f"{word}: {self.reason}" if self.reason else word


def failure_of(point: Mapping[str, Any]) -> PointFailure:
    """Parse the `failed` field of a point, `"<status>: <reason>"`, into a `PointFailure`."""
    status, _, reason = str(point["failed"]).partition(":")
    return PointFailure(status.strip(), reason.strip())


def marked(title: object, twin: object, *beside: object) -> str:
    """A title with "(twin)" behind it where `twin`, unless it or what stands beside it says so."""
    said = any(TWIN in str(words) for words in (title, *beside))
    return f"{title} {TWIN}" if twin and not said else str(title)


def subject_and_form(series: str) -> tuple[str, str]:
    """Of a series "tgcn, dealt at peak speed": whose it is, and in which form ("" without one)."""
    subject, _, form = series.partition(",")
    return subject, form.strip()


def ratio_mark(ratio: Ratio, /, **fields: Any) -> Point:
    """A ratio as a mark of a `speedup` figure, with fields of its place."""
    return {
        "value": ratio.value,
        "low": ratio.low,
        "high": ratio.high,
        "n": ratio.n,
        "twin": ratio.twin,
        "row_ids": ratio.rows,
        **fields,
    }
