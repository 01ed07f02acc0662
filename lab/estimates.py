"""Estimates of quantities, the rows that they are evaluated on, and filters of these rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from dgbench.lab import metrics
from dgbench.lab.compare import Ratio
from dgbench.lab.evidence import uses_twin
from dgbench.lab.judging import current_floor, judging
from dgbench.lab.paper import PapersGraphs
from dgbench.lab.table import OF_ROW, Entry, Observation, _allows
from dgbench.runtime.statistics import t_quantile

Coords = tuple[tuple[str, Any], ...]
"""Dimensions and values of a number, in the order of its quantity."""


@dataclass(frozen=True)
class Estimate:
    """One pooled number.

    Attributes:
        value, low, high: with its 95 % interval, None where there is none.
        rows: that it rests on.
        kind: `ratio` or `seeds` (without an interval it decides nothing), `timed`, `exact` or
            `printed` by the paper.
        processes: pairs that ratios rest on, of the one with the fewest, else None.
        ratio: as it was pooled, None where it is none of `lab.compare`.
        change: monotone function that made the number of its ratio, None where it is the ratio.
    """

    value: float
    low: float | None = None
    high: float | None = None
    rows: tuple[Any, ...] = ()
    kind: str = "exact"
    processes: int | None = None
    ratio: Ratio | None = None
    change: Callable[[float], float] | None = None

    @classmethod
    def of_ratio(cls, found: Ratio, rows: Iterable[Any]) -> Estimate:
        """A ratio and its interval; of these rows those that it rests on."""
        names = set(found.rows)
        used = tuple(row for row in rows if row.id in names)
        return cls(found.value, found.low, found.high, used, "ratio", found.processes, found)

    def mapped(self, change: Callable[[float], float]) -> Estimate:
        """With a monotone function of the number and of both ends."""
        ends = [change(end) for end in (self.low, self.high) if end is not None]
        low, high = sorted(ends) if len(ends) == 2 else (None, None)
        first = self.change
        both = change if first is None else lambda value: change(first(value))
        return replace(self, value=change(self.value), low=low, high=high, change=both)

    def side(self, bar: float = 0.0) -> int:
        """1 where the whole interval lies above a bar, -1 below, 0 between.

        Around 1, and where a number made of it is what 1 is made into, a ratio has to leave the
        noise floor as well. An exact number at the bar is not above it.
        """
        change = self.change or float
        if self.ratio is not None and bar == change(1.0):
            return self.ratio.side * (1 if change(1.0) < change(2.0) else -1)
        if self.kind in ("ratio", "seeds") and (self.low is None or self.high is None):
            return 0
        low, high = (self.value if end is None else end for end in (self.low, self.high))
        return 1 if low > bar else -1 if high < bar or self.kind == "exact" else 0

    def compared(self, other: Estimate) -> int:
        """1 where this number is clearly the larger one, -1 where the smaller one, else 0."""
        if self.ratio and other.ratio and self.change is other.change is None:
            return self.ratio.against(other.ratio)
        return (self.value > other.value) - (self.value < other.value)

    def words(self, unit: str = "") -> str:
        """Value and interval in few characters: `1.20 [0.40, 2.00] points`, `2.1x`."""
        shown = _digits(self.value)
        if self.low is not None and self.high is not None:
            shown += f" [{_digits(self.low)}, {_digits(self.high)}]"
        return f"{shown}{unit if unit in ('x', '') else ' ' + unit}"


def _digits(value: float) -> str:
    """A number to three digits: `1.2`, `1,160`, `2.49e+07`."""
    shown = f"{value:.3g}"
    return f"{float(shown):,.0f}" if 1e3 <= abs(value) < 1e7 else shown


def mean_of_seeds(values: Sequence[float], rows: Sequence[Any]) -> Estimate:
    """Mean over seeds with its t interval; without one, where there is a single seed."""
    value = sum(values) / len(values)
    if len(values) < 2:
        return Estimate(value, rows=tuple(rows), kind="seeds")
    variance = sum((one - value) ** 2 for one in values) / (len(values) - 1)
    half = t_quantile(len(values) - 1, 0.95) * math.sqrt(variance / len(values))
    return Estimate(value, value - half, value + half, tuple(rows), "seeds")


def join_estimates(many: Sequence[Estimate], join: Callable[[list[float]], float]) -> Estimate:
    """One number for several; the least and the largest have an interval, where all have one."""
    lows = [one.low for one in many if one.low is not None and join in (min, max)]
    highs = [one.high for one in many if one.high is not None and join in (min, max)]
    whole = len(lows) == len(highs) == len(many)
    return Estimate(
        join([one.value for one in many]), join(lows) if whole else None,
        join(highs) if whole else None, rows_of_all(*many), many[0].kind,
        min((one.processes for one in many if one.processes), default=None),
    )  # fmt: skip


def rows_of_all(*found: Any) -> tuple[Any, ...]:
    """Rows of outcomes, estimates or tables, each once."""
    return tuple({row.id: row for one in found for row in one.rows}.values())


class RowNumber(NamedTuple):
    """A number of one row at its coordinates; the entry where it is an observation as written."""

    row: Any
    coords: Coords
    value: float
    entry: Entry | None = None


@dataclass(frozen=True)
class PaperForms:
    """Words, derived dimensions and limits that the experiments of a paper share.

    Attributes:
        paper: its name. texts: file of titles, questions and readings by experiment; None where
            experiments have them themselves.
        labels: words of values by dimension, a mapping or a function.
        facts: derived dimensions: name -> (dimension, function of its value).
        order: values of a dimension in the order of tables and figures; others follow.
        uncounted: datasets that figures show and no claim of the paper rests on.
        stand_ins: graphs that a claim which names datasets rests on; None for all.
        judged: system whose deviation from the reference a claim shows, not that of its rivals.
    """

    paper: str
    texts: Path | None = None
    labels: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, tuple[str, Callable[[Any], Any]]] = field(default_factory=dict)
    order: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    uncounted: frozenset[str] = frozenset()
    stand_ins: PapersGraphs | None = None
    judged: str = ""

    def label(self, dim: str, value: Any) -> str:
        """A value of a dimension in words."""
        known = self.labels.get(dim, {})
        return str(known(value) if callable(known) else known.get(value, value))


@dataclass(frozen=True)
class EvaluationContext:
    """Rows that a quantity is evaluated on.

    Attributes:
        rows: all of the paper, of any status. experiment: where a quantity names none.
        forms: of the paper. claim: that is judged, None in a figure.
    """

    rows: Sequence[Any]
    experiment: str
    forms: PaperForms
    claim: Any = None

    def value(self, entry: Entry, dim: str) -> Any:
        """A dimension of an entry, derived ones among them.

        Raises:
            UnknownKeyError: nobody registered the dimension.
        """
        if dim in self.forms.facts:
            of, fact = self.forms.facts[dim]
            value = entry[of]
            return None if value is None else fact(value)
        if dim not in OF_ROW and dim not in entry.row.params:
            metrics.dimension(dim)
        return entry[dim]

    def matches(self, entry: Entry, wanted: Mapping[str, Any]) -> bool:
        """Return True if the dimensions of an entry have these values."""
        return all(_allows(one, self.value(entry, dim)) for dim, one in wanted.items())


Filter = Callable[[list[Entry], EvaluationContext], list[Entry]]
"""Entries -> those that count, before anything is pooled."""


@contextmanager
def unnoted() -> Iterator[None]:
    """A context in which numbers are read to be shown: they are no evidence of the claim."""
    with judging(current_floor()):
        yield


def real_data(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
    """Entries on real data."""
    return [one for one in entries if not uses_twin([one.row])]


def on_gpu(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
    """Entries of cells all of whose rows worked on a GPU."""
    mixed = {str(one.row.params) for one in entries if one.row.device != "cuda"}
    return [one for one in entries if str(one.row.params) not in mixed]


def prefer(wanted: Filter) -> Filter:
    """The entries that a filter leaves, or all where it leaves none."""
    return lambda entries, context: wanted(entries, context) or entries


NOTHING: Final = Observation(metric="", value=0)
"""Observation of an entry that stands for a row as a whole."""


def gaps_of_failures(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
    """All entries; for gaps of a figure the rows that failed: others lack what was not planned."""
    return [one for one in entries if one.of is not NOTHING or one.row.status != "ok"]
