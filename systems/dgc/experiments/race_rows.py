"""Races as their rows keep them: seconds of every turn, gains of one contender over another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, geometric_mean, median
from types import MappingProxyType
from typing import Any

from dgbench.lab.compare import Ratio, ratio_of_values
from dgbench.lab.estimates import Estimate, EvaluationContext
from dgbench.lab.quantities import MeasuredQuantity, computed, observed
from dgbench.lab.table import Entry, Table, rows_of
from dgbench.runtime import statistics
from dgbench.systems.dgc.experiments import race_runs as runs
from dgbench.systems.dgc.experiments.settings import BY_NAME, MODEL_TITLES, standing_in


@dataclass(frozen=True, eq=False)
class RaceRecord:
    """A race as the rows of its processes keep it.

    Attributes:
        rows: of its processes. dataset, part, model: what was trained, as of a `RaceJob`.
        names: contenders.
    """

    rows: tuple[Any, ...]
    dataset: str
    part: Mapping[str, Any]
    model: str
    names: tuple[str, ...]

    def _tables(
        self, metric: str, name: str | None = None, phase: str | None = None
    ) -> list[Table]:
        """Entries of each process of a contender, or of the race."""
        return self._entries.get((metric, name, phase), [])

    @property
    def row(self) -> Any:
        """The row of its first process, which compared its results."""
        return self.rows[0]

    @cached_property
    def _entries(self) -> dict[tuple[str, str | None, str | None], list[Table]]:
        """Entries of each process by metric, setting and phase; those of turns in their order."""
        mine = {"dataset": self.dataset, **self.part, "model": self.model}.items()
        found: dict[tuple[str, str | None, str | None], list[Table]] = {}
        for row in self.rows:
            of_row: dict[tuple[str, str | None, str | None], list[Entry]] = {}
            for one in row.observed:
                if one.dims.get("dataset") == self.dataset and mine <= one.dims.items():
                    key = one.metric, one.dims.get("setting"), one.dims.get("phase")
                    of_row.setdefault(key, []).append(Entry(row, one))
            for key, entries in of_row.items():
                found.setdefault(key, []).append(Table(entries))
        return found

    @property
    def twin(self) -> bool:
        """True if the data are synthetic."""
        return bool(self.row.data.get("twin"))

    @property
    def ranks(self) -> int:
        return int(self.row.params["ranks"])

    @property
    def link(self) -> str:
        """Link that rows travelled over: `gloo`, or the emulated `wire`."""
        return str(self.row.params.get("link", "gloo"))

    @property
    def title(self) -> str:
        """Model and dataset in words."""
        return f"{MODEL_TITLES[self.model]} on {dataset_title(self.dataset, self.twin)}"

    @property
    def deviation(self) -> float | None:
        """Largest deviation from the oracle among its processes that compared."""
        key = f"{runs.labelled(self.dataset, self.part)}/{self.model}"
        return max((row.deviation[key] for row in self.rows if key in row.deviation), default=None)

    def turns(self, name: str) -> list[float]:
        """Seconds of each turn's epoch, of the slowest rank, process by process."""
        return [s for mine in self._tables("epoch_time", name) for s in mine.values]

    def seconds(self, name: str) -> list[float]:
        """Median seconds of an epoch in each process."""
        return [median(mine.values) for mine in self._tables("epoch_time", name)]

    def epoch(self, name: str) -> float:
        """Median seconds of an epoch."""
        return median(self.turns(name))

    def number(self, metric: str, name: str | None = None, phase: str | None = None) -> Any:
        """A number of a contender, or of the race: the median of its processes, and of counts the
        first, as they agree; 0 if it is not there."""
        mine = self.each(metric, name, phase)
        if not mine:
            return 0
        return mine[0] if all(value == mine[0] for value in mine) else median(mine)

    def each(self, metric: str, name: str | None = None, phase: str | None = None) -> list[Any]:
        """A number of a contender in each process."""
        return [table[-1].value for table in self._tables(metric, name, phase)]

    def has(self, metric: str, name: str) -> bool:
        """Return True if a contender has such a number."""
        return bool(self._tables(metric, name))

    def spent(self, phase: str, name: str) -> float:
        """Seconds of an epoch in a phase, mean over ranks."""
        return self.number("phase_time", name, phase)

    def computing(self, name: str) -> float:
        """Seconds of an epoch in which ranks do not stand still for others, mean over ranks."""
        return sum(self.spent(phase, name) for phase in runs.PHASES if phase != "communicate")

    def pairs(self, slow: str, fast: str) -> list[float]:
        """Ratios of the times of two contenders: of each process, from its turns averaged, or of
        each turn where one process ran."""
        if len(self.rows) > 1:
            return [a / b for a, b in zip(self.seconds(slow), self.seconds(fast), strict=True)]
        return [a / b for a, b in zip(self.turns(slow), self.turns(fast), strict=True)]

    def gain(self, slow: str, fast: str) -> Ratio:
        """Speedup of one contender over another, process by process; of one process by turns."""
        return ratio_over([(self, slow, fast)])

    def best(self, names: Sequence[str] = runs.PLACED) -> str:
        """The contender with the shortest epoch; of the baselines unless others are named."""
        return min((n for n in names if n in self.names), key=self.epoch)

    @property
    def baselines(self) -> tuple[str, ...]:
        """The paper's three baselines; PSS by the order of snapshots with the shorter epoch."""
        return self.named(runs.PSS), runs.PTS, runs.PSS_TS

    def named(self, baseline: str) -> str:
        """The contender that stands for a baseline of the paper, see `baselines`."""
        return self.best(runs.PSS_ORDERS) if baseline == runs.PSS else baseline


Pair = tuple[RaceRecord, str, str]
"""(race, slow, fast): two contenders of a race."""


def ratio_over(pairs: Sequence[Pair], *, arithmetic: bool = False) -> Ratio:
    """Mean over pairs of how much faster the one is than the other, the geometric by default.

    The mean is formed in each process first, so that ratios which share a time are resampled
    together; the interval is that over processes. Where a race has a single process, it is that of
    its turns, and says nothing of another process.
    """
    each = [one.pairs(slow, fast) for one, slow, fast in pairs]
    shared = min(map(len, each), default=0)
    join = fmean if arithmetic else geometric_mean
    joined = [join([ratios[n] for ratios in each]) for n in range(shared)]
    single = min((len(one.rows) for one, *_ in pairs), default=1)
    rows = {row.id: row for one, *_ in pairs for row in one.rows}
    alone = single <= 1 and len(pairs) == 1
    nodes = None
    if single > 1:
        nodes = [" ".join(one.rows[n].node for one, *_ in pairs) for n in range(shared)]
    mean = ratio_of_values(joined, list(rows.values()), single, median=alone, nodes=nodes)
    gaps = [one.deviation for one, *_ in pairs if one.deviation is not None]
    return replace(mean, deviation=max(gaps, default=None))


def dataset_title(dataset: str, twin: bool = False) -> str:
    """A dataset's title, marked where it was a twin."""
    return BY_NAME[dataset].title + (" (twin)" if twin else "")


def races(rows: Sequence[Any], experiment: str, **params: Any) -> list[RaceRecord]:
    """All races of an experiment's rows, in the order of datasets and models; the rounds of a cell
    are processes of one race."""
    found: dict[tuple[Any, ...], list[tuple[Any, tuple[str, ...]]]] = {}
    for row in rows_of(rows, experiment=experiment, **params):
        first = Table.of([row]).where("epoch_time", turn=0)
        for (dataset, model, *where), mine in first.by("dataset", "model", *runs.PARTS).items():
            key = dataset, model, *where, row.params.get("ranks"), row.params.get("link")
            found.setdefault(key, []).append((row, tuple(one["setting"] for one in mine)))
    records = []
    for (dataset, model, *where, _, _), each in found.items():
        part = {name: v for name, v in zip(runs.PARTS, where, strict=True) if v is not None}
        names = tuple(name for name in each[0][1] if all(name in mine for _, mine in each))
        mine = tuple({row.round: row for row, _ in each}.values())
        records.append(RaceRecord(mine, dataset, part, model, names))
    order = {name: i for i, name in enumerate((*BY_NAME,))}
    models = {name: i for i, name in enumerate(MODEL_TITLES)}
    return sorted(
        records,
        key=lambda r: (
            order.get(r.dataset, len(order)), runs.labelled(r.dataset, r.part), models[r.model]
        ),
    )  # fmt: skip


def running(found: Sequence[RaceRecord], *names: str) -> list[RaceRecord]:
    """Races in which all of these contenders ran."""
    return [one for one in found if set(names) <= set(one.names)]


def real(found: Sequence[RaceRecord]) -> list[RaceRecord]:
    """Races on real data, which may decide between partitions."""
    return [one for one in found if not one.twin]


# Quantities by dataset, part and contender, for figures and claims


Numbers = Iterable[tuple[Mapping[str, Any], Estimate]]
"""Numbers with their dimensions, as `computed` takes them."""


def of_placements(
    metric: str, parts: Mapping[str, tuple[Any, ...]] = MappingProxyType({}), **where: Any
) -> MeasuredQuantity:
    """Numbers of the placements without chunks by dataset, and by these parts of it."""
    per = ("dataset", *parts, "setting")
    every = observed(metric, per=per, model=lambda name: True, setting=runs.PLACED)
    return every.where(**parts, **where).pooled("median")


def phase_times(**parts: tuple[Any, ...]) -> dict[str, MeasuredQuantity]:
    """Seconds of an epoch in which ranks do not stand still for others, and in which they do."""
    spent = of_placements("phase_time", parts)
    own = tuple(phase for phase in runs.PHASES if phase != "communicate")
    return {
        "compute": spent.where(phase=own).joined_over(sum, "phase"),
        "communicate": spent.where(phase="communicate"),
    }


def epoch_total(
    context: EvaluationContext, dims: Mapping[str, Any], one: Estimate
) -> Mapping[str, float]:
    """Median epoch of a contender, as the total of its bar."""
    every = of_placements("epoch_time", turn=lambda n: n is not None)
    epochs = every.per(*(name for name in runs.PARTS if name in dims)).estimates(context)
    (total,) = (value for at, value in epochs.items() if {*at} <= dims.items())
    return {"total": total.value}


def races_on(context: EvaluationContext, experiment: str, *datasets: str) -> list[RaceRecord]:
    """Races of an experiment on these graphs of the paper, or on what stands in for each
    (`standing_in`), else on all; none of twins beside real ones."""
    every = races(context.rows, experiment)
    mine = [
        one for dataset in datasets
        for one in standing_in(dataset, every, lambda o: o.dataset, lambda o: o.twin)
    ] if datasets else every  # fmt: skip
    return real(mine) or mine


def of_races(
    experiment: str, numbers: Callable[[RaceRecord], Numbers], *per: str, on: Sequence[str] = ()
) -> MeasuredQuantity:
    """Numbers of each race, beside its dataset and part; see `races_on`."""
    return computed(
        lambda context: (
            ({"dataset": one.dataset, **one.part, **dims}, number)
            for one in races_on(context, experiment, *on)
            for dims, number in numbers(one)
        ),
        per=("dataset", *per),
    )


def gain(one: RaceRecord, slow: str, fast: str) -> Estimate:
    """Speedup of one contender over another, see `RaceRecord.gain`."""
    found = one.gain(slow, fast)
    return Estimate(found.value, found.low, found.high, one.rows, "ratio", None, found)


def over(first: Sequence[float], second: Sequence[float], rows: Sequence[Any]) -> Estimate:
    """Median over processes of a number over another; its ends are the least and the largest, so
    that it is beyond 1 where all processes agree."""
    ratios = [a / b if b else float("inf") for a, b in zip(first, second, strict=False)]
    return Estimate(median(ratios), min(ratios), max(ratios), tuple(rows), "timed")


def mean_of_processes(one: RaceRecord, metric: str, name: str) -> Estimate:
    """Geometric mean over processes of a contender's number, with its interval."""
    found = statistics.geometric_mean(one.each(metric, name))
    return Estimate(found.value, found.low, found.high, one.rows, "seeds")


def apart(first: Estimate, second: Estimate) -> Estimate:
    """A number over another; it is beyond 1 where their intervals do not meet."""
    rows, low, high = (*first.rows, *second.rows), None, None
    if first.low and first.high and second.low and second.high:
        low, high = first.low / second.high, first.high / second.low
    return Estimate(first.value / second.value, low, high, rows, "seeds")
