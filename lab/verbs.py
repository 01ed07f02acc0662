"""Verbs of claims: a check is one line of a table, `claim id: verb(what is looked at, ...)`.

A *race* names timed contenders, workload by workload; a *selection* names observations of an
experiment. A verb says what is asked of them and makes a `Check`: (claim, rows) -> `Finding`.

    race = Race("fig10", by=("dataset", "model"), metric="end_to_end_time", none="no race ran")
    CHECKS = {"pipad-fig10-speedup-range-pygt": spread(race("pygt", "pipad"))}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from dgbench.lab import metrics
from dgbench.lab.compare import Ratio, ratio_of
from dgbench.lab.compare import observe_speedup as observe_speedup
from dgbench.lab.contests import Contest, Key, Race, Rows
from dgbench.lab.evidence import finding, ids, missing
from dgbench.lab.judging import judging_apart
from dgbench.lab.paper import Check, Claim, Finding
from dgbench.lab.table import OF_ROW, Entry, Table, rows_of
from dgbench.lab.table import number as number


@dataclass(frozen=True)
class Selection:
    """Observations of one experiment.

    Attributes:
        experiment: its name. metric: of the observations, or None for all of a row.
        none: why nothing was found, where nothing ran.
        where: dimensions that they have.
    """

    experiment: str
    metric: str | tuple[str, ...] | None = None
    none: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in (self.metric,) if isinstance(self.metric, str) else self.metric or ():
            metrics.metric(name)
        for name in self.where:
            if name not in OF_ROW:
                metrics.dimension(name)

    def __call__(self, rows: Rows, **more: Any) -> Table:
        """The observations in these rows."""
        found = Table.of(rows, experiment=self.experiment)
        return found.where(self.metric, **{**self.where, **more})

    @property
    def missing(self) -> Finding:
        """The finding where there are none."""
        return missing(self.none or f"the experiment '{self.experiment}' did not run")


def observed(
    experiment: str, metric: str | tuple[str, ...] | None = None, **where: Any
) -> Selection:
    """Observations of an experiment with these dimensions."""
    return Selection(experiment, metric, where=where)


# Verbs over races


def factor(
    found: Ratio | None, contest: Contest, rows: Rows, where: Mapping[str, Any], **fields: Any
) -> Finding:
    """A finding from one ratio against a printed factor."""
    if found is None:
        return missing(contest.race.none)
    deviation = contest.race.deviation(rows, **where)
    return contest.race.finding(
        rows,
        [found],
        measured=found.value,
        low=found.low,
        high=found.high,
        direction=found.value > 1,
        deviation=found.deviation if deviation is None else deviation,
        **fields,
    )


def mean(contest: Contest, said: str = "", target: str = "mean") -> Check:
    """The pooled ratio against the claim's value, or its `target`; {n} in `said` is how many
    workloads there are."""

    def check(claim: Claim, rows: Rows) -> Finding:
        count = len(contest.each(rows))
        return factor(
            contest.pooled(rows), contest, rows, contest.params,
            target=_printed(claim, target), reason=said.format(n=count),
        )  # fmt: skip

    return check


def _printed(claim: Claim, name: str) -> float:
    """The printed number of a claim: its value, or the entry of that name where it has several."""
    return float(claim.value[name] if isinstance(claim.value, Mapping) else claim.value)


def spread(low: Contest, high: Contest | None = None) -> Check:
    """The lowest ratio of `low` and the highest of `high`; all of `low` must lie above 1x."""

    def check(claim: Claim, rows: Rows) -> Finding:
        lows, highs = low.each(rows), (high or low).each(rows)
        if not lows or not highs:
            return missing(low.race.none)
        least = min(lows, key=lambda key: lows[key].value)
        most = max(highs, key=lambda key: highs[key].value)
        side = min(one.side for one in lows.values())
        return low.race.finding(
            rows,
            [*lows.values(), *highs.values()],
            measured={"low": lows[least].value, "high": highs[most].value},
            direction=side > 0,
            undecided=side == 0,
            reason=f"lowest on {low.label(least)}, highest on {low.label(most)}",
        )

    return check


def best_everywhere(race: Race, contender: str, rivals: Sequence[str]) -> Check:
    """`contender` ahead of each rival on every workload where it met all of them.

    Rivals that met it nowhere were not planned. A workload where a rival is missing is not won,
    and lost only to those that ran.
    """

    def check(claim: Claim, rows: Rows) -> Finding:
        found = {rival: race(rival, contender).each(rows) for rival in rivals}
        found = {rival: each for rival, each in found.items() if each}
        used = [one for each in found.values() for one in each.values()]
        if not used:
            return missing(race.none)
        sides: dict[Key, int] = {}
        for key in dict.fromkeys(key for each in found.values() for key in each):
            met = [each[key].side for each in found.values() if key in each]
            if len(met) == len(found) or min(met) < 0:
                sides[key] = min(met)
        if not sides:
            return missing(race.none)
        absent = len(race.workloads(rows)) - len(sides)
        label = race(contender, contender).label
        lost, level = (
            sorted(label(k) for k, side in sides.items() if side == at) for at in (-1, 0)
        )
        remarks = [f"not on {'; '.join(lost)}"] if lost else []
        remarks += [f"inside the noise on {'; '.join(level)}"] if level else []
        remarks += [f"missing on {absent} more"] if absent else []
        won = sum(side > 0 for side in sides.values())
        return race.finding(
            rows,
            used,
            measured=f"{won} of {len(sides)} workloads",
            holds=not lost,
            undecided=bool(level) and not lost,
            reason=", ".join(remarks),
        )

    return check


def ahead_on_most(race: Race, contender: str, rivals: Sequence[str]) -> Check:
    """`contender` ahead of all rivals on more than half of the workloads that they share."""

    def check(claim: Claim, rows: Rows) -> Finding:
        every = [each for rival in rivals if (each := race(rival, contender).each(rows))]
        keys = set.intersection(*map(set, every)) if every else set()
        if not keys:
            return missing(race.none)
        ahead = sum(all(each[key].side > 0 for each in every) for key in keys)
        behind = sum(any(each[key].side < 0 for each in every) for key in keys)
        return race.finding(
            rows,
            [one for each in every for one in each.values()],
            measured=f"ahead on {ahead}, behind on {behind} of {len(keys)} workloads",
            holds=2 * ahead > len(keys),
            undecided=2 * ahead <= len(keys) and 2 * behind < len(keys),
        )

    return check


def larger(first: str, contests: Mapping[str, Contest]) -> Check:
    """The pooled ratio called `first` above each other one, by intervals that do not meet."""

    def check(claim: Claim, rows: Rows) -> Finding:
        race = contests[first].race
        found = {name: contest.pooled(rows) for name, contest in contests.items()}
        ratios = {name: one for name, one in found.items() if one is not None}
        if len(ratios) < len(found):
            return missing(race.none)
        sides = (ratios[first].against(one) for name, one in ratios.items() if name != first)
        side = min(sides)
        return race.finding(
            rows,
            ratios.values(),
            measured={name: f"{one.value:.2g}x" for name, one in ratios.items()},
            holds=side > 0,
            undecided=side == 0,
        )

    return check


# Verbs over selections


def equals(selection: Selection, of: Callable[[Table], Any], said: str = "") -> Check:
    """Check that a value of the last round's observations equals the printed one exactly."""

    def check(claim: Claim, rows: Rows) -> Finding:
        found = selection(rows)
        if not found:
            return selection.missing
        measured = of(found.where(round=found[-1].row.round))
        return finding(
            found.rows, measured=measured, holds=measured == claim.value, reason=said,
        )  # fmt: skip

    return check


def average(selection: Selection, said: str = "", *, scale: float = 1.0, model: str = "") -> Check:
    """The mean of the observations against a printed number.

    Args:
        model: that the observations were computed with, see `Finding`.
        said: remark; {n} in it is how many observations there are.
        scale: factor from the metric's unit to the claim's: 100 where it is percent of a share.
    """

    def check(claim: Claim, rows: Rows) -> Finding:
        found = selection(rows)
        if not found:
            return selection.missing
        value = scale * sum(found.values) / len(found)
        return finding(
            found.rows, measured=value, target=float(claim.value), direction=value > 0,
            reason=said.format(n=len(found)), model=model,
        )  # fmt: skip

    return check


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


# PiPAD


def instrumented(rows: Rows, **where: Any) -> Table:
    """Observations of instrumented processes, which `Table.of` leaves out."""
    return Table(
        Entry(row, one)
        for row in rows
        if row.status == "ok" and row.instrumented
        for one in row.observations
    ).where(**where)


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


# operators


def at_least(selection: Selection, said: str = "") -> Check:
    """The lowest of all ratios that processes formed over their turns against the claim's bar.

    Holds where every interval lies above the bar by more than the noise floor, fails where one lies
    as far below, and is undecided else. Such a claim is of the machine that runs, so that its CPU
    measures it.

    Args:
        said: remark; {where} in it is what tells the lowest ratio from others: params and baseline.
    """

    def check(claim: Claim, rows: Rows) -> Finding:
        found = selection(rows)
        groups: dict[Any, list[Any]] = {}
        for one in found:
            groups.setdefault(one.place, []).append(one)
        ratios = {key: ratio_of(Table(entries)) for key, entries in groups.items()}
        known = {key: one for key, one in ratios.items() if one is not None}
        if not known:
            return selection.missing
        bar = float(claim.value)
        sides = {key: one.beyond(bar) for key, one in known.items()}
        lost = [key for key, which in sides.items() if which < 0]
        holds = min(sides.values()) > 0
        place = min(lost or known, key=lambda key: known[key].value)
        worst = known[place]
        others = [set(key) for key in known]
        apart = [pair for pair in place if not all(pair in pairs for pairs in others)]
        where = ", ".join(f"{name} {value}" for name, value in apart or place)
        return Finding(
            measured=worst.value,
            low=worst.low,
            high=worst.high,
            target=bar,
            holds=holds,
            undecided=not holds and not lost,
            rows=ids(found.rows),
            processes=min(one.processes for one in known.values()),
            reason=said.format(where=where) or f"lowest of {len(known)}: {where}",
            deviation=max((g for r in found.rows for g in r.deviation.values()), default=None),
        )

    return check
