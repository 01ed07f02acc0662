"""Tasks of the arena: frozen definitions that no paper owns, and the numbers of their races.

A definition is changed by a new version alone: its digest stands in every row of the task. Words
are put to races at the edge (`harness.figures.race_words`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from dgbench.lab.compare import CONTROL, Ratio, ratio, ratio_of_turns
from dgbench.lab.table import Table
from dgbench.runtime.statistics import median

Rows = Sequence[Any]
IN_PLACE_OF = "in_place_of"
"""Param of cells on another dataset than the case of the task that they are made of: its name."""
MIN_ROUNDS = 3
"""Rounds from which an interval is that over processes; below it is that over turns."""
NOT_ENTERED = ("skipped", "no-gpu", "not-supported", "not-built")
"""Status of rows of contenders that cannot enter, or are not here."""
LEFT_OUT = ("skipped", "it did not take part; the notes of the row say why")
"""Status and reason of a contender that no row names."""
_Reason = tuple[str, str]
Code = Literal["released", "re-implemented", "dgbench"]


@dataclass(frozen=True, slots=True)
class Entrant:
    """A contender of a task as people read of it.

    Attributes:
        title: its name.
        provenance: what it is: a release, or what it was re-implemented from.
        code: whose code it is: others' own, ours after their paper, or a part of dgbench.
        exact: whether its mathematics is that of the task; False where it approximates.
        form_of: name of the contender that it is a form of, with other switches; "" where it stands
            for itself. A system does not race against its own forms.
        absent: why runs have no rows of it, where they do not say why; "": they do.
    """

    title: str
    provenance: str = ""
    code: Code = "re-implemented"
    exact: bool = True
    form_of: str = ""
    absent: str = ""


@dataclass(frozen=True, slots=True)
class QualitySource:
    """Experiment whose whole trainings say how well a task's models predict.

    Attributes:
        paper, experiment: `pipad`, `quality`.
        metric: of the scores. validation: metric observed after each epoch; "" for `metric`.
        floor: whether a rate must never be shown without it.
    """

    paper: str
    experiment: str
    metric: str
    validation: str = ""
    floor: bool = False


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

    def on(self, dataset: str) -> ArenaCase:
        """The same work on another dataset."""
        name = self.name.removeprefix(str(self.settings["dataset"]))
        title = ", ".join([dataset, *self.title.split(", ")[1:]])
        settings = {**self.settings, "dataset": dataset}
        return replace(self, name=dataset + name, title=title, settings=settings)


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
        reads: what of a dataset it takes, `events` or `snapshots`; "": it takes none.
        stand_ins: dataset of a case -> bundled dataset that a run takes instead where the first is
            not here and would be a twin.
        entrants: contenders by their name in rows; systems of the registry need none.
        contender: dimension that tells contenders apart.
        time: metric that is compared. rate: metric that is shown, and its dimensions.
        factors: name of a factor -> (slower, faster) contender; those that share a contender
            multiply.
        words: dimension of a setting inside a case -> how its value is written, "" for not at all;
            `{}` without.
        trained: where whole trainings of its models are kept; None where there are none.
        untrained: why there are none of models that it trains; "" where it trains nothing.
    """

    name: str
    version: int
    title: str
    what: str
    quality: str
    unit: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    cases: tuple[ArenaCase, ...]
    reads: Literal["events", "snapshots", ""] = ""
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    entrants: Mapping[str, Entrant] = field(default_factory=dict)
    contender: str = "system"
    time: str = "step_time"
    rate: tuple[str, Mapping[str, Any]] = ("throughput", {})
    factors: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    trained: QualitySource | None = None
    untrained: str = ""

    @property
    def chains(self) -> list[tuple[str, ...]]:
        """Names of factors that multiply, each beginning with the contender where one ended."""
        found: list[list[str]] = []
        for name, (slow, _) in self.factors.items():
            if found and self.factors[found[-1][-1]][1] == slow:
                found[-1].append(name)
            else:
                found.append([name])
        return [tuple(chain) for chain in found]

    @property
    def label(self) -> str:
        """Name and version: `graph-update@1`."""
        return f"{self.name}@{self.version}"

    @property
    def digest(self) -> str:
        """Hash of what defines the task; titles of contenders and factors do not."""
        return self._digest(self.cases)

    def _digest(self, cases: Sequence[ArenaCase]) -> str:
        defined = {
            "name": self.name, "version": self.version, "what": self.what,
            "quality": self.quality, "unit": self.unit, "settings": dict(self.settings),
            "cases": [asdict(case) for case in cases],
            "time": self.time, "rate": [self.rate[0], dict(self.rate[1])],
        }  # fmt: skip
        text = json.dumps(defined, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def absent(self, contender: str) -> str:
        """Why runs need not have rows of a contender, or ""."""
        return self.entrants[contender].absent if contender in self.entrants else ""

    def case(self, name: str) -> ArenaCase:
        """The case of that name. Raises UnknownKeyError."""
        from dgbench.runtime.errors import unknown_key

        found = {case.name: case for case in self.cases}
        if name not in found:
            raise unknown_key("case", name, found, of=self.label)
        return found[name]

    def case_of(self, params: Mapping[str, Any]) -> ArenaCase:
        """The case of a cell, perhaps on another dataset. Raises UnknownKeyError."""
        if IN_PLACE_OF not in params:
            return self.case(str(params["case"]))
        return self.case(str(params[IN_PLACE_OF])).on(str(params["dataset"]))

    def definition(self, case: ArenaCase) -> str:
        """Digest for rows of a case; one on another dataset has its own, frozen in the same way."""
        return self.digest if case in self.cases else self._digest((case,))

    def on_dataset(self, params: Mapping[str, Any], dataset: str) -> dict[str, Any]:
        """Params of a cell on another dataset."""
        original = str(params.get(IN_PLACE_OF, params["case"]))
        case = self.case(original).on(dataset)
        return {
            **params, "case": case.name, "definition": self.definition(case),
            "dataset": dataset, IN_PLACE_OF: original,
        }  # fmt: skip

    def of(self, rows: Iterable[Any]) -> list[Any]:
        """Rows of this very definition, controls apart."""
        return [
            row
            for row in rows
            if row.params.get("task") == self.label
            and self._defines(row.params)
            and CONTROL not in row.params
            and not row.instrumented
        ]

    def _defines(self, params: Mapping[str, Any]) -> bool:
        if IN_PLACE_OF not in params:
            return bool(params.get("definition") == self.digest)
        if all(case.name != params[IN_PLACE_OF] for case in self.cases):
            return False
        return bool(params.get("definition") == self.definition(self.case_of(params)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceEntry:
    """A contender in one race.

    Attributes:
        name: in rows. entrant: as people read of it.
        rate: items a second, the median over processes; None where it has none.
        time: seconds of what is timed, the median over processes; None where it has none.
        ratio: its time over that of the fastest; None for the fastest and where it has none.
        status: of its row. reason: why it has no time.
        rows: ids that it rests on.
    """

    name: str
    entrant: Entrant
    rate: float | None = None
    time: float | None = None
    ratio: Ratio | None = None
    status: str = "ok"
    reason: str = ""
    rows: tuple[str, ...] = ()

    @property
    def entered(self) -> bool:
        """True if it was to run, False where it cannot enter or is not here."""
        return self.status not in NOT_ENTERED

    @property
    def family(self) -> str:
        """Name of the contender whose form it is, its own where it is nobody's."""
        return self.entrant.form_of or self.name

    @property
    def behind(self) -> bool:
        """True if it is slower than the fastest by more than its interval and the noise floor."""
        return self.ratio is not None and self.ratio.side > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaRace:
    """All contenders of a task on one workload, the fastest first.

    Attributes:
        task, case: what is raced. setting: dimensions inside the case that tell races apart.
        twin: whether its data are synthetic.
        entries: contenders by speed, those without a time last.
        factors: of the system that the task takes apart: name -> ratio.
        processes: of the fastest. device: `cpu` or `cuda`.
    """

    task: ArenaTask
    case: ArenaCase
    setting: tuple[tuple[str, Any], ...]
    twin: bool
    entries: tuple[RaceEntry, ...]
    factors: Mapping[str, Ratio]
    processes: int
    device: str

    @property
    def timed(self) -> tuple[RaceEntry, ...]:
        """Entries that have a time."""
        return tuple(one for one in self.entries if one.rate is not None)

    @property
    def first(self) -> RaceEntry | None:
        """The fastest; None where nothing was timed."""
        return self.timed[0] if self.timed else None

    @property
    def rival(self) -> RaceEntry | None:
        """The next that is no form of the fastest; where all are its forms, the next of these."""
        others = [one for one in self.timed[1:] if one.family != self.timed[0].family]
        return next(iter([*others, *self.timed[1:]]), None)

    @property
    def lead(self) -> Ratio | None:
        """Time of the rival over that of the fastest; None where there is none with an interval."""
        found = None if self.rival is None else self.rival.ratio
        return found if found is not None and found.low is not None else None

    @property
    def decided(self) -> bool:
        """True if one contender, alone or with its own forms, is ahead of all others."""
        apart = len({one.family for one in self.timed}) > 1
        ahead = {one.family if apart else one.name for one in self.leaders}
        return self.lead is not None and len(ahead) == 1

    @property
    def chain(self) -> dict[str, Ratio]:
        """Factors of one chain of the task that were all measured with an interval; else none.

        A contender that may be absent ends a chain before it.
        """
        here = {one.name for one in self.timed}
        for whole in self.task.chains:
            fast = [self.task.factors[name][1] for name in whole]
            gone = [one not in here and bool(self.task.absent(one)) for one in fast]
            names = whole[: gone.index(True)] if True in gone else whole
            if not names:
                continue
            parts = {name: self.factors[name] for name in names if name in self.factors}
            if len(parts) == len(names) and all(one.low is not None for one in parts.values()):
                return parts
        return {}

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
    by_case: dict[str, dict[str, list[Any]]] = {case.name: {} for case in task.cases}
    for row in task.of(rows):
        original = row.params.get(IN_PLACE_OF, row.params["case"])
        by_case[original].setdefault(row.params["definition"], []).append(row)
    found: list[ArenaRace] = []
    for here in (one for some in by_case.values() for one in some.values()):
        case = task.case_of(here[0].params)
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
        for wrong, why in getattr(row, "dropped", {}).items():
            failed.setdefault(wrong, ("check", why))
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
        setting=setting,
        twin=any(one.get("twin") for one in data) or bool(case.settings.get("twin")),
        entries=entries,
        factors=factors,
        processes=max((len(one.rows) for one in entries), default=0),
        device=rows[0].device,
    )


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
                time=median([float(x) for x in table.values]),
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
    if why == LEFT_OUT and entrant.absent:
        reason = entrant.absent
    return RaceEntry(name=name, entrant=entrant, status=status, reason=reason)


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
