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
from dgbench.lab.judging import judging
from dgbench.lab.table import Table
from dgbench.runtime.errors import unknown_key
from dgbench.runtime.statistics import median

Rows = Sequence[Any]
IN_PLACE_OF = "in_place_of"
"""Param of cells on another dataset than the case of the task that they are made of: its name."""
DIVISION = "division"
"""Param of cells in which each contender has settings of its own: `TUNED`. Those in which all have
the settings of the task are without it."""
BASE, TUNED = "base", "tuned"
MIN_ROUNDS = 3
"""Rounds from which an interval is that over processes; below it is that over turns."""
NOT_ENTERED = ("skipped", "no-gpu", "not-supported", "not-built")
"""Status of rows of contenders that cannot enter, or are not here."""
LEFT_OUT = ("skipped", "it did not take part; the notes of the row say why")
"""Status and reason of a contender that no row names."""
_Reason = tuple[str, str]
Code = Literal["released", "re-implemented", "dgbench"]
Division = Literal["base", "tuned"]


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
        adds_to: name of the contender that it is with additions of dgbench; "" for none. It does
            not rank unless that is asked for: a system is ranked as it was published.
        absent: why runs have no rows of it, where they do not say why; "": they do.
    """

    title: str
    provenance: str = ""
    code: Code = "re-implemented"
    exact: bool = True
    form_of: str = ""
    adds_to: str = ""
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
    """A workload of a task: its key in rows, its dataset in words, the presets that run it, and the
    settings that define it."""

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
        untuned: why it has no tuned division; "" where it has one.
        batch: why no contender has a batch of its own there.
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
    untuned: str = ""
    batch: str = ""

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

    def of(self, rows: Iterable[Any], division: Division = "base") -> list[Any]:
        """Rows of this very definition and of one division, controls apart."""
        return [
            row
            for row in rows
            if row.params.get("task") == self.label
            and row.params.get(DIVISION, BASE) == division
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


@dataclass(frozen=True, slots=True)
class TunedSettings:
    """Settings that a search chose for a contender.

    Attributes:
        threads: of torch and the compiled operators. trials: settings that were timed.
        switches: techniques that differ from those of the base division, and whether they are on.
    """

    threads: int
    trials: int
    switches: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceEntry:
    """A contender in one race.

    Attributes:
        name: in rows. entrant: as people read of it.
        rate: items a second, the median over processes; None where it has none.
        time: seconds of what is timed, the median over processes; None where it has none.
        ratio: its time over that of the fastest; None for the fastest and where it has none.
        gain: time of the contender that it adds to over its own; None where it adds to none, or
            one of both has no time.
        status: of its row. reason: why it has no time.
        rows: ids that it rests on.
        tuned: its own settings in the first of them; None in the base division.
    """

    name: str
    entrant: Entrant
    rate: float | None = None
    time: float | None = None
    ratio: Ratio | None = None
    gain: Ratio | None = None
    status: str = "ok"
    reason: str = ""
    rows: tuple[str, ...] = ()
    tuned: TunedSettings | None = None

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


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The gain of one contender over another as a product of ratios by name of the factor."""

    slow: str
    fast: str
    parts: Mapping[str, Ratio]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaRace:
    """All contenders of a task on one workload, the fastest first.

    Attributes:
        task, case: what is raced. setting: dimensions inside the case that tell races apart.
        twin: whether its data are synthetic.
        entries: contenders by speed, then those that do not rank, those without a time last.
        breakdown: a gain that the task takes apart, of the leader over its rival where it can.
        processes: of the fastest. device: `cpu` or `cuda`.
        with_ours: whether contenders with additions of dgbench rank, too.
    """

    task: ArenaTask
    case: ArenaCase
    setting: tuple[tuple[str, Any], ...]
    twin: bool
    entries: tuple[RaceEntry, ...]
    breakdown: Breakdown | None = None
    processes: int
    device: str
    with_ours: bool = False

    @property
    def timed(self) -> tuple[RaceEntry, ...]:
        """Entries that rank: those that have a time, as they were published."""
        return tuple(
            one
            for one in self.entries
            if one.rate is not None and (self.with_ours or not one.entrant.adds_to)
        )

    @property
    def additions(self) -> tuple[RaceEntry, ...]:
        """Entries that have a time and do not rank, as dgbench added to them."""
        ranked = {one.name for one in self.timed}
        return tuple(e for e in self.entries if e.rate is not None and e.name not in ranked)

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
    def leaders(self) -> tuple[RaceEntry, ...]:
        """The fastest, and those that are not told from it."""
        return tuple(one for one in self.timed if not one.behind)


def races(
    task: ArenaTask,
    rows: Rows,
    entrant: Mapping[str, Entrant] | None = None,
    floor: float = 0.0,
    *,
    with_ours: bool = False,
    division: Division = "base",
) -> list[ArenaRace]:
    """Every race of a task that has rows in a division, in the order of its cases.

    Args:
        entrant: titles of systems by name, beside those of the task.
        floor: relative noise floor; a difference inside it is none.
        with_ours: whether contenders with additions of dgbench rank, too.
        division: whose rows count; no ratio is formed over both.
    """
    by_case: dict[str, dict[str, list[Any]]] = {case.name: {} for case in task.cases}
    for row in task.of(rows, division):
        original = row.params.get(IN_PLACE_OF, row.params["case"])
        by_case[original].setdefault(row.params["definition"], []).append(row)
    found: list[ArenaRace] = []
    entrants = {**(entrant or {}), **task.entrants}
    with judging(floor):
        for here in (one for some in by_case.values() for one in some.values()):
            found += _races_of(task, here, entrants, with_ours)
    return found


def _races_of(
    task: ArenaTask, rows: Rows, entrants: Mapping[str, Entrant], with_ours: bool
) -> list[ArenaRace]:
    """Races of one case, one for each setting inside it."""
    times = Table.of(rows).where(task.time, clock=None, caches=None)
    apart: dict[tuple, list[Any]] = {}
    for one in times:
        if one[task.contender] is not None:
            inside = {name: value for name, value in one.of.dims.items() if name != task.contender}
            apart.setdefault(tuple(sorted(inside.items())), []).append(one)
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
        return [_race(task, (), rows, entries, with_ours)]
    found = []
    for setting, group in apart.items():
        by_name = Table(group).by(task.contender)
        entries = _entries(task, by_name, rows, setting, entrants, failed, with_ours)
        race = _race(task, setting, rows, entries, with_ours)
        found.append(replace(race, breakdown=_breakdown(race, by_name)))
    return found


def _race(
    task: ArenaTask, setting: tuple, rows: Rows, entries: tuple[RaceEntry, ...], with_ours: bool
) -> ArenaRace:
    case = task.case_of(rows[0].params)
    data = [row.data for row in rows if row.data]
    return ArenaRace(
        task=task,
        case=case,
        setting=setting,
        twin=any(one.get("twin") for one in data) or bool(case.settings.get("twin")),
        entries=entries,
        processes=max((len(one.rows) for one in entries), default=0),
        device=rows[0].device,
        with_ours=with_ours,
    )


def _entries(
    task: ArenaTask,
    by_name: Mapping[str, Table],
    rows: Rows,
    setting: tuple,
    entrants: Mapping[str, Entrant],
    failed: Mapping[str, _Reason],
    with_ours: bool,
) -> tuple[RaceEntry, ...]:
    """Contenders that rank, the fastest first, those that do not, and those without a time."""
    known = {name: entrants.get(name, Entrant(name)) for name in by_name}
    middle = {name: median([float(x) for x in by_name[name].values]) for name in by_name}
    apart = {name for name, one in known.items() if one.adds_to and not with_ours}
    fastest = min(middle, key=lambda name: (name in apart, middle[name]))
    metric, dims = task.rate
    rates = Table.of(rows).where(metric, **dims, **dict(setting)).by(task.contender)
    found = []
    for name, table in by_name.items():
        shown = [float(x) for x in rates.get(name, Table()).values]
        parent = by_name.get(known[name].adds_to)
        found.append(
            RaceEntry(
                name=name,
                entrant=known[name],
                rate=median(shown) if shown else None,
                time=middle[name],
                ratio=None if name == fastest else time_ratio(table, by_name[fastest]),
                gain=None if parent is None else time_ratio(parent, table),
                rows=tuple(row.id for row in table.rows),
                tuned=_tuned(task, table.rows[0], name),
            )
        )
    found.sort(key=lambda one: (one.name in apart, one.name != fastest, -(one.rate or 0.0)))
    gaps = [
        _gap(name, entrants, failed.get(name, LEFT_OUT))
        for name in dict.fromkeys([*failed, *task.entrants])
        if name not in by_name
    ]
    return (*found, *gaps)


def _tuned(task: ArenaTask, row: Any, name: str) -> TunedSettings | None:
    """Settings that a row of the tuned division has for a contender; None in the base division."""
    if row.params.get(DIVISION) != TUNED:
        return None
    mine = Table.of([row]).where("tuned_setting")
    chosen = {str(one["of"]): int(one.value) for one in mine if one[task.contender] == name}
    if not {"threads", "trials"} <= chosen.keys():
        return None
    threads, trials = chosen.pop("threads"), chosen.pop("trials")
    return TunedSettings(threads, trials, {switch: bool(on) for switch, on in chosen.items()})


def _breakdown(race: ArenaRace, times: Mapping[str, Table]) -> Breakdown | None:
    """The gain of a chain of factors up to its last contender that ranks, where all have intervals.

    The leader's is over its rival, where that is none of the chain: its first factor begins there.
    """
    ranked = {one.name for one in race.timed}
    first, rival = race.first, race.rival
    chains = [[race.task.factors[name] for name in chain] for chain in race.task.chains]
    found = []
    for names, sides in zip(race.task.chains, chains, strict=True):
        count = next((n for n, (_, fast) in enumerate(sides) if fast not in ranked), len(sides))
        if not count:
            continue
        links = dict(zip(names[:count], sides[:count], strict=True))
        leads = first is not None and first.name == sides[count - 1][1]
        if leads and rival is not None and rival.name not in {fast for _, fast in sides}:
            links[names[0]] = rival.name, sides[0][1]
        parts = {
            name: time_ratio(times[slow], times[fast])
            for name, (slow, fast) in links.items()
            if slow in times
        }
        good = {name: one for name, one in parts.items() if one and one.low is not None}
        if len(good) == count:
            found.append((not leads, Breakdown(links[names[0]][0], sides[count - 1][1], good)))
    return min(found, key=lambda one: one[0])[1] if found else None


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
