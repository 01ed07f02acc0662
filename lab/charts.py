"""Points of figures, from races and rows: what the charts of several experiments share.

A point is a flat mapping for one drawn mark; `docs/figures.md` says which keys a kind of figure
reads. What has no number stays visible as a point that says why, under `failed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from types import MappingProxyType
from typing import Any, Final

from dgbench.lab.compare import Ratio
from dgbench.lab.contests import Race
from dgbench.lab.evidence import ids, uses_twin
from dgbench.lab.experiment import Contender, FigureSpec

Rows = Sequence[Any]
Point = dict[str, Any]
Points = Callable[[Rows], list[Point]]
Place = Callable[..., Mapping[str, str]]
"""Dimensions of a workload -> where its marks are drawn."""


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


def joined(points: Iterable[Point], *measured: str) -> list[Point]:
    """Points of several processes joined to one for each thing drawn: the medians of `measured`.

    Points belong together where all their other fields are equal; deviations are the largest.
    """
    groups: dict[tuple, list[Point]] = {}
    apart = {*measured, "row_ids", "deviation"}
    for point in points:
        key = tuple(sorted((k, repr(v)) for k, v in point.items() if k not in apart))
        groups.setdefault(key, []).append(point)
    made = []
    for mine in groups.values():
        one = dict(mine[0])
        for name in measured:
            if name in one:
                one[name] = median(point[name] for point in mine)
        gaps = [point["deviation"] for point in mine if point.get("deviation") is not None]
        if gaps:
            one["deviation"] = max(gaps)
        one["row_ids"] = list(dict.fromkeys(i for p in mine for i in p.get("row_ids", ())))
        made.append(one)
    return made


def gap(row: Any, /, **fields: Any) -> Point:
    """A point for a row that did not run."""
    return {**fields, "failed": failed(row), "row_ids": [row.id]}


def mark(row: Any, /, **fields: Any) -> Point:
    """A point that rests on a row."""
    return {**fields, "twin": bool(row.data.get("twin")), "row_ids": [row.id]}


def first_failed(rows: Iterable[Any], **where: Any) -> Any:
    """The first row with these params that failed; a tuple allows several values. Else None."""
    allowed = {name: one if isinstance(one, tuple) else (one,) for name, one in where.items()}
    for row in rows:
        if row.status != "ok" and all(row.params.get(n) in one for n, one in allowed.items()):
            return row
    return None


def why_not(rows: Iterable[Any], *, default: str = "skipped: not run", **where: Any) -> str:
    """Why rows with these params have no numbers, `default` where none failed."""
    bad = first_failed(rows, **where)
    return default if bad is None else failed(bad)


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


def interval(ratio: Ratio) -> Point:
    """A ratio with its interval as a mark of a `sweep`."""
    return {"y": ratio.value, "low": ratio.low, "high": ratio.high, "row_ids": ratio.rows}


def ratio_mark(ratio: Ratio, /, **fields: Any) -> Point:
    """A ratio as a mark of a `speedup` figure, with fields of its place."""
    return {**speedup(ratio), **fields}


def speedup(ratio: Ratio) -> Point:
    """A ratio as a mark of a `speedup` figure."""
    return {
        "value": ratio.value,
        "low": ratio.low,
        "high": ratio.high,
        "n": ratio.n,
        "twin": ratio.twin,
        "row_ids": ratio.rows,
    }


def speedups(
    race: Race, baseline: str, systems: Sequence[str], place: Place, order: Callable[..., Any]
) -> Points:
    """Points of the speed-ups of systems over a baseline, workload by workload.

    Args:
        race: its `judged` system plays no part: each one's own deviation is in its points.
        systems: in their order; those that a run did not plan are left out.
        place: where a workload is drawn. order: its place among the others.
    """

    def point(rows: Rows, system: str, where: Mapping[str, Any]) -> Point:
        head = {**place(**where), "system": system, "baseline": baseline, "failed": ""}
        for who in (system, baseline):
            if bad := first_failed(rows, system=who, **where):
                return {**head, "failed": failed(bad), "failed_system": who}
        found = race(baseline, system, **where).pooled(rows)
        if found is None:
            return {**head, "failed": "skipped: not run"}
        deviation = replace(race, judged=system).deviation(rows, **where)
        return {**head, **speedup(found), "deviation": deviation}

    def points(rows: Rows) -> list[Point]:
        rows = [row for row in rows if row.experiment == race.experiment]
        raced = {row.params["system"] for row in rows}
        return [
            point(rows, system, where)
            for where in sorted(race.workloads(rows), key=lambda where: order(**where))
            for system in systems
            if system in raced
        ]

    return points


def step_times(race: Race, place: Place) -> Points:
    """Points of the median step of every contender on every workload, failed ones among them."""

    def points(rows: Rows) -> list[Point]:
        names = (*race.by, race.contender)
        rows = [r for r in rows if r.experiment == race.experiment and not r.params.get("check")]
        steps = replace(race, metric="step_time").times(rows).by(*names)
        made = []
        for key in dict.fromkeys(tuple(row.params[name] for name in names) for row in rows):
            where = dict(zip(names, key, strict=True))
            point: Point = {**place(**where), "system": where[race.contender]}
            if found := steps.get(key):
                point["seconds"] = median(found.values)
                point["twin"] = uses_twin(found.rows)
                point["row_ids"] = ids(found.rows)
            else:
                point["failed"] = why_not(rows, **where)
            made.append(point)
        return made

    return points
