"""Tasks of the arena: frozen definitions that no paper owns, and the table of their races.

A definition is changed by a new version alone: its digest stands in every row of the task.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from dgbench.lab.charts import speedup
from dgbench.lab.compare import CONTROL, Ratio, ratio, ratio_of_turns
from dgbench.lab.table import Table
from dgbench.runtime.statistics import median

Rows = Sequence[Any]
MIN_ROUNDS = 3
"""Rounds from which an interval is that over processes; below it is that over turns."""
NOT_ENTERED = ("skipped", "no-gpu", "not-supported", "not-built")
"""Status of rows of contenders that cannot enter, or are not here."""
_Reason = tuple[str, str]
"""Status and reason of a row."""
LEFT_OUT: _Reason = ("skipped", "it did not take part; the notes of the row say why")


@dataclass(frozen=True, slots=True)
class Entrant:
    """A contender of a task as people read of it.

    Attributes:
        title: its name.
        provenance: what it is: a release, or what it was re-implemented from.
        exact: whether its mathematics is that of the task; False where it approximates.
    """

    title: str
    provenance: str = ""
    exact: bool = True

    @property
    def released(self) -> bool:
        """True if it is code that others released, or functions of a library."""
        return self.provenance.startswith("released") or self.provenance.endswith("own functions")


@dataclass(frozen=True, slots=True)
class ArenaCase:
    """A workload of a task.

    Attributes:
        name: its key in rows.
        title: its dataset in words.
        presets: that run it.
        settings: what defines it.
    """

    name: str
    title: str
    presets: tuple[str, ...]
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaTask:
    """Frozen definition of a task, and how its rows are read.

    Attributes:
        name, version: `graph-update`, 1.
        title: what is done, in a few words.
        what: what every contender does, and what is timed.
        quality: what is compared beside the rate.
        unit: what the rate counts, a second.
        settings: what all cases have in common.
        cases: its workloads.
        entrants: contenders by their name in rows; systems of the registry need none.
        contender: dimension that tells contenders apart.
        time: metric that is compared. rate: metric that is shown, and its dimensions.
        factors: name of a factor -> (slower, faster) contender; they multiply.
    """

    name: str
    version: int
    title: str
    what: str
    quality: str
    unit: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    cases: tuple[ArenaCase, ...]
    entrants: Mapping[str, Entrant] = field(default_factory=dict)
    contender: str = "system"
    time: str = "step_time"
    rate: tuple[str, Mapping[str, Any]] = ("throughput", {})
    factors: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Name and version: `graph-update@1`."""
        return f"{self.name}@{self.version}"

    @property
    def digest(self) -> str:
        """Hash of what defines the task; titles of contenders and factors do not."""
        defined = {
            "name": self.name, "version": self.version, "what": self.what,
            "quality": self.quality, "unit": self.unit, "settings": dict(self.settings),
            "cases": [asdict(case) for case in self.cases],
            "time": self.time, "rate": [self.rate[0], dict(self.rate[1])],
        }  # fmt: skip
        text = json.dumps(defined, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def case(self, name: str) -> ArenaCase:
        """The case of that name. Raises UnknownKeyError."""
        from dgbench.runtime.errors import unknown_key

        found = {case.name: case for case in self.cases}
        if name not in found:
            raise unknown_key("case", name, found, of=self.label)
        return found[name]

    def of(self, rows: Iterable[Any]) -> list[Any]:
        """Rows of this very definition, controls apart."""
        return [
            row
            for row in rows
            if row.params.get("task") == self.label
            and row.params.get("definition") == self.digest
            and CONTROL not in row.params
            and not row.instrumented
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceEntry:
    """A contender in one race.

    Attributes:
        name: in rows. entrant: as people read of it.
        rate: items a second, the median over processes; None where it has none.
        ratio: its time over that of the fastest; None for the fastest and where it has none.
        failed: status and reason where it has no time.
        status: of its row.
        rows: ids that it rests on.
    """

    name: str
    entrant: Entrant
    rate: float | None = None
    ratio: Ratio | None = None
    failed: str = ""
    status: str = "ok"
    rows: tuple[str, ...] = ()

    @property
    def entered(self) -> bool:
        """True if it was to run, False where it cannot enter or is not here."""
        return self.status not in NOT_ENTERED

    @property
    def behind(self) -> bool:
        """True if it is slower than the fastest by more than its interval and the noise floor."""
        return self.ratio is not None and self.ratio.side > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaRace:
    """All contenders of a task on one workload, the fastest first.

    Attributes:
        task, case: what is raced. detail: settings inside the case, in words.
        twin: whether its data are synthetic.
        entries: contenders by speed, those without a time last.
        factors: of the system that the task takes apart: name -> ratio.
        processes: of the fastest.
    """

    task: ArenaTask
    case: ArenaCase
    detail: str
    twin: bool
    entries: tuple[RaceEntry, ...]
    factors: Mapping[str, Ratio]
    processes: int
    device: str

    @property
    def title(self) -> str:
        """Dataset and settings in words."""
        place = f"{self.case.title} (twin)" if self.twin else self.case.title
        return f"{place}, {self.detail}" if self.detail else place

    @property
    def timed(self) -> tuple[RaceEntry, ...]:
        """Entries that have a time."""
        return tuple(one for one in self.entries if one.rate is not None)

    @property
    def leaders(self) -> tuple[RaceEntry, ...]:
        """The fastest, and those that are not told from it."""
        return tuple(one for one in self.timed if not one.behind)


def races(
    task: ArenaTask,
    rows: Rows,
    entrant: Mapping[str, Entrant] | None = None,
    floor: float = 0.0,
) -> list[ArenaRace]:
    """Every race of a task that has rows, in the order of its cases.

    Args:
        entrant: titles of systems by name, beside those of the task.
        floor: relative noise floor; a difference inside it is none.
    """
    mine = task.of(rows)
    found: list[ArenaRace] = []
    for case in task.cases:
        here = [row for row in mine if row.params["case"] == case.name]
        if here:
            found += _races_of(task, case, here, {**(entrant or {}), **task.entrants})
    return [_with_floor(race, floor) for race in found]


def _with_floor(race: ArenaRace, floor: float) -> ArenaRace:
    """The race with a noise floor in all of its ratios."""
    entries = tuple(
        one if one.ratio is None else replace(one, ratio=replace(one.ratio, floor=floor))
        for one in race.entries
    )
    return replace(race, entries=entries)


def _races_of(
    task: ArenaTask, case: ArenaCase, rows: Rows, entrants: Mapping[str, Entrant]
) -> list[ArenaRace]:
    times = Table.of(rows).where(task.time, clock=None, caches=None)
    apart: dict[tuple, list[Any]] = {}
    for one in times:
        if one[task.contender] is not None:
            apart.setdefault(_setting(one, task), []).append(one)
    failed: dict[str, _Reason] = {}
    for row in rows:
        name = row.params.get(task.contender)
        if row.status != "ok" and isinstance(name, str):
            failed.setdefault(name, (row.status, row.reason))
    if not apart:
        bad = ((row.status, row.reason) for row in rows if row.status != "ok")
        why = next(bad, LEFT_OUT)
        names = failed or {"": why}
        entries = tuple(_gap(name, entrants, said) for name, said in names.items())
        return [_race(task, case, (), rows, entries, {})]
    return [
        _race(
            task,
            case,
            setting,
            rows,
            *_entries(task, Table(group), rows, setting, entrants, failed),
        )
        for setting, group in apart.items()
    ]


def _setting(one: Any, task: ArenaTask) -> tuple[tuple[str, Any], ...]:
    """Dimensions of an observation but for those that name its contender."""
    return tuple(sorted((k, v) for k, v in one.of.dims.items() if k != task.contender))


def _race(
    task: ArenaTask,
    case: ArenaCase,
    setting: tuple,
    rows: Rows,
    entries: tuple[RaceEntry, ...],
    factors: Mapping[str, Ratio],
) -> ArenaRace:
    data = [row.data for row in rows if row.data]
    return ArenaRace(
        task=task,
        case=case,
        detail=", ".join(_said(*one) for one in setting),
        twin=any(one.get("twin") for one in data) or bool(case.settings.get("twin")),
        entries=entries,
        factors=factors,
        processes=max((len(one.rows) for one in entries), default=0),
        device=rows[0].device,
    )


def _said(name: str, value: Any) -> str:
    """A setting in words."""
    forms = {
        "layers": "{} hops" if value != 1 else "{} hop", "batch": "{:,} events", "phase": "{}",
        "policy": "{}",
    }  # fmt: skip
    return forms.get(name, name + " {}").format(value)


def _entries(
    task: ArenaTask,
    times: Table,
    rows: Rows,
    setting: tuple,
    entrants: Mapping[str, Entrant],
    failed: Mapping[str, _Reason],
) -> tuple[tuple[RaceEntry, ...], dict[str, Ratio]]:
    by_name = times.by(task.contender)
    fastest = min(by_name, key=lambda name: median([float(x) for x in by_name[name].values]))
    metric, dims = task.rate
    rates = Table.of(rows).where(metric, **dims, **dict(setting)).by(task.contender)
    found = []
    for name, table in by_name.items():
        shown = [float(x) for x in rates.get(name, Table()).values]
        found.append(
            RaceEntry(
                name=name,
                entrant=entrants.get(name, Entrant(name)),
                rate=median(shown) if shown else None,
                ratio=None if name == fastest else time_ratio(table, by_name[fastest]),
                rows=tuple(row.id for row in table.rows),
            )
        )
    found.sort(key=lambda one: (one.name != fastest, -(one.rate or 0.0)))
    gaps = [
        _gap(name, entrants, failed.get(name, LEFT_OUT))
        for name in dict.fromkeys([*failed, *task.entrants])
        if name not in by_name
    ]
    factors = {}
    for said, (slow, fast) in task.factors.items():
        if slow in by_name and fast in by_name:
            one = time_ratio(by_name[slow], by_name[fast])
            if one is not None:
                factors[said] = one
    return (*found, *gaps), factors


def _gap(name: str, entrants: Mapping[str, Entrant], why: _Reason) -> RaceEntry:
    entrant, (status, reason) = entrants.get(name, Entrant(name or "all")), why
    return RaceEntry(name=name, entrant=entrant, failed=f"{status}: {reason}", status=status)


def time_ratio(slow: Table, fast: Table) -> Ratio | None:
    """Time of one contender over that of another: over processes where there are enough of them,
    else over the turns of their common process."""
    found = ratio(slow, fast)
    if found is not None and found.processes >= MIN_ROUNDS:
        return found
    pairs = [(one, other) for one in slow for other in fast if one.row.id == other.row.id]
    if pairs:
        one, other = pairs[0]
        if len(one.samples) == len(other.samples) > 1:
            return ratio_of_turns(one.samples, other.samples, [one.row])
    return found


def sentence(race: ArenaRace) -> str:
    """A sentence on a race that can be quoted: who is fastest, by how much, over what, where."""
    timed = race.timed
    where = f"{race.task.title} on {race.title}"
    if not timed:
        return f"{where}: nothing was timed."
    first = timed[0]
    rate = f"{shown_rate(first.rate or 0.0)} {race.task.unit}/s"
    conditions = f"{race.device.upper()}, {race.processes} process{'es' * (race.processes != 1)}"
    if len(timed) == 1:
        return f"{where}: {first.entrant.title} alone was timed, at {rate}."
    if timed[1].ratio is None or timed[1].ratio.low is None:
        return (
            f"{where}: {first.entrant.title} was first at {rate}, before {timed[1].entrant.title}; "
            f"{conditions}: no interval, so that nothing is decided."
        )
    ties = [one for one in timed[1:] if not one.behind]
    if ties:
        names = " and ".join([first.entrant.title, *(one.entrant.title for one in ties)])
        return f"{where}: {names} are not told apart, at {rate} ({conditions})."
    next_one = timed[1]
    assert next_one.ratio is not None
    return (
        f"{where}: {first.entrant.title} is fastest at {rate}, {factor_text(next_one.ratio)} as "
        f"fast as {next_one.entrant.title}, the next ({conditions})."
    )


def quotable(found: Sequence[ArenaRace]) -> str:
    """The sentence of the first race with one leader, else of the first one; "" without races."""
    told = [race for race in found if len(race.leaders) == 1 and len(race.timed) > 1]
    chosen = told or list(found)
    return sentence(chosen[0]) if chosen else ""


def race_points(found: Iterable[ArenaRace]) -> list[dict[str, Any]]:
    """Points of `speedup`: every contender's time over that of the fastest; gaps with reasons."""
    points: list[dict[str, Any]] = []
    for race in found:
        if not race.timed:
            continue
        best = race.timed[0]
        for one in (other for other in race.entries[1:] if other.entered):
            point: dict[str, Any] = {
                "panel": race.title, "row": f"{best.entrant.title} over {one.entrant.title}",
                "system": best.name, "baseline": one.name,
            }  # fmt: skip
            if one.ratio is None:
                point["failed"] = one.failed or "skipped: no pair of processes"
            else:
                point |= speedup(one.ratio)
            points.append(point)
    return points


def gain_text(race: ArenaRace) -> str:
    """The gain that a task takes apart as a product of factors; "" where one of them is missing
    or has no interval."""
    told = [one for one in race.factors.values() if one.low is not None]
    if not told or len(told) != len(race.task.factors):
        return ""
    sides = list(race.task.factors.values())
    titles = {one.name: one.entrant.title for one in race.entries}
    parts = " x ".join(f"{factor_text(one)} {name}" for name, one in race.factors.items())
    return f"{titles[sides[-1][1]]} over {titles[sides[0][0]]} is {parts}"


def factor_text(found: Ratio) -> str:
    """A factor with its interval: `2.1x [1.9, 2.3]`."""
    text = f"{_digits(found.value)}x"
    if found.low is None or found.high is None:
        return text
    return f"{text} [{_digits(found.low)}, {_digits(found.high)}]"


def _digits(value: float) -> str:
    """Two decimals below 2, two digits below 10, three above."""
    if value < 2:
        return f"{value:.2f}"
    return f"{value:.2g}" if value < 9.95 else f"{value:,.0f}" if value >= 99.5 else f"{value:.3g}"


def shown_rate(value: float) -> str:
    """A rate with three digits and an SI prefix: `1.23 M`."""
    for limit, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit * 0.9995:
            return f"{value / limit:.3g} {prefix}"
    return f"{value:.3g}"
