"""Races that claims ask about: timed contenders, workload by workload, and ratios between two."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dgbench.lab import metrics
from dgbench.lab.compare import CONTROL, Ratio, ratio
from dgbench.lab.paper import Finding
from dgbench.lab.result_checks import NUMERIC
from dgbench.lab.table import Table, rows_of

Rows = Sequence[Any]
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Race:
    """Timed contenders of an experiment, compared workload by workload.

    Attributes:
        experiment: its name. by: dimensions that name a workload. metric: the time compared.
        none: why nothing was found, where nothing ran.
        judged: system whose deviations a finding shows.
        facts: of a workload, further facts to select by: `facts(dataset=..., model=...)`.
        label: of a workload, in words.
        contender: dimension that tells contenders apart.
    """

    experiment: str
    by: tuple[str, ...]
    metric: str
    none: str
    judged: str = ""
    facts: Callable[..., Mapping[str, Any]] = lambda **_: {}
    label: Callable[..., str] = lambda **where: ", ".join(map(str, where.values()))
    contender: str = "system"

    def __post_init__(self) -> None:
        metrics.metric(self.metric)
        for name in (*self.by, self.contender):
            metrics.dimension(name)

    def __call__(self, slow: str, fast: str, **only: Any) -> Contest:
        """Time of `slow` over time of `fast`, on workloads with these dimensions and facts."""
        return Contest(self, slow, fast, only)

    def timed(self, rows: Rows) -> list[Any]:
        """Rows of timed processes, failed ones among them."""
        return [
            row
            for row in rows
            if row.experiment == self.experiment
            and not row.params.get("check")
            and CONTROL not in row.params
        ]

    def workloads(self, rows: Rows) -> list[dict[str, Any]]:
        """Workloads in the order of rows, failed ones among them."""
        return self._workloads(self.timed(rows))

    def _workloads(self, timed: Rows) -> list[dict[str, Any]]:
        keys = dict.fromkeys(tuple(row.params[name] for name in self.by) for row in timed)
        return [dict(zip(self.by, key, strict=True)) for key in keys]

    def apart(self, rows: Rows, *contenders: str) -> Iterator[tuple[dict[str, Any], list[Table]]]:
        """Workloads in the order of rows, each with the times of these contenders."""
        timed = self.timed(rows)
        entries = Table.of(timed).where(self.metric, **{self.contender: contenders})
        times = entries.by(self.contender, *self.by)
        for where in self._workloads(timed):
            yield where, [times.get((who, *where.values()), Table()) for who in contenders]

    def times(self, rows: Rows, **where: Any) -> Table:
        """The times of a contender or a workload."""
        return Table.of(self.timed(rows)).where(self.metric, **where)

    def deviation(self, rows: Rows, **params: Any) -> float | None:
        """Largest deviation of the judged system from the reference.

        In runs that compared in cells of their own it is the one of those cells.
        """
        if not self.judged:
            return None
        found = [
            row
            for row in rows_of(rows, system=self.judged, **params)
            if row.experiment == self.experiment
        ]
        apart = [row for row in found if row.params.get("check")]
        gaps = [
            *(gap for row in apart for gap in row.deviation.values()),
            *(
                check.gap
                for row in found
                if not apart
                for check in row.checks
                if check.of in NUMERIC and not check.own
            ),
        ]
        return max(gaps, default=None)

    def finding(self, rows: Rows, used: Iterable[Ratio], **fields: Any) -> Finding:
        """A finding that rests on ratios of this race."""
        found = list(used)
        names = list(dict.fromkeys(name for one in found for name in one.rows))
        if self.judged:
            fields.setdefault("deviation", self.deviation(rows))
        else:
            gaps = [one.deviation for one in found if one.deviation is not None]
            fields.setdefault("deviation", max(gaps, default=None))
        fields.setdefault("processes", min((one.processes for one in found), default=None))
        return Finding(rows=names, **fields)


@dataclass(frozen=True)
class Contest:
    """Two contenders of a race on some of its workloads."""

    race: Race
    slow: str
    fast: str
    only: Mapping[str, Any] = field(default_factory=dict)

    def each(self, rows: Rows) -> dict[Key, Ratio]:
        """The ratio of every workload where both ran."""
        found = {}
        for where, sides in self.race.apart(rows, self.slow, self.fast):
            facts = {**where, **self.race.facts(**where)}
            if all(facts[name] == wanted for name, wanted in self.only.items()):
                one = ratio(*sides)
                if one is not None:
                    found[tuple(where.values())] = one
        return found

    def pooled(self, rows: Rows) -> Ratio | None:
        """Geometric mean over the workloads, with the interval of the noise inside them."""
        keys = set(self.each(rows))
        if not keys:
            return None
        by = self.race.by
        mine = [r for r in self.race.timed(rows) if tuple(r.params[name] for name in by) in keys]
        sides = (
            self.race.times(mine, **{self.race.contender: who}) for who in (self.slow, self.fast)
        )
        return ratio(*sides)

    def label(self, key: Key) -> str:
        """A workload in words."""
        return self.race.label(**dict(zip(self.race.by, key, strict=True)))

    @property
    def params(self) -> dict[str, Any]:
        """Entries of `only` that are params of cells."""
        return {name: value for name, value in self.only.items() if name in self.race.by}
