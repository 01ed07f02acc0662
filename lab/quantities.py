"""Quantities: numbers of rows, one at each coordinate, said once for claims, figures and answers.

    COST = observed("slowdown", per=("dataset", "model"), setting=("first", "last"))
    COST.where(model="mpnn_lstm")                   # one number for each dataset and setting
    saved = 1 - LOADS.where(method="ours") / LOADS.where(method="theirs")   # row by row
    speedup(TIMES, slow="pygt", fast="pipad")       # paired inside rounds, pooled over workloads

A quantity has a *sample* for each row at its coordinates, and pools them to one `Estimate`.
Arithmetic happens inside a row; `over` divides pooled numbers. A dimension of an observation that
the quantity does not name must be absent from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from statistics import fmean, median
from typing import Any

from dgbench.lab import metrics
from dgbench.lab.compare import CONTROL, ratio, ratio_of, ratio_over_workloads
from dgbench.lab.estimates import (
    NOTHING,
    Coords,
    Estimate,
    EvaluationContext,
    Filter,
    RowNumber,
    join_estimates,
    mean_of_seeds,
    rows_of_all,
)
from dgbench.lab.table import Entry, Observation, Table, _allows, _named, usable
from dgbench.runtime.errors import InvalidInputError

Derive = Callable[[EvaluationContext, "MeasuredQuantity"], Any]


@dataclass(frozen=True)
class MeasuredQuantity:
    """Numbers by coordinates; made by `observed`, `of_rows`, `computed` or `speedup`.

    Attributes:
        sampled: (context, quantity) -> samples. estimated: the same -> estimates by coordinates,
            for what no pooling of samples gives; one of the two is there.
        metric, experiment: of observations. fixed: dimensions and their values.
        dims: those that are coordinates. filters: which rows count.
        pooling: how the samples of one coordinate become a number, see `pooled`.
        with_instruments: `only` rows of instrumented processes, or them `also`.
        is_printed: whether the numbers are the paper's, see `printed`.
        operands: quantities that it is made of; `where`, `per` and `keep` reach them, too.
        after: changes of the pooled numbers.
    """

    sampled: Derive | None = None
    estimated: Derive | None = None
    metric: str | tuple[str, ...] = ""
    experiment: str = ""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    dims: tuple[str, ...] = ()
    filters: tuple[Filter, ...] = ()
    pooling: str = ""
    with_instruments: str = ""
    is_printed: bool = False
    operands: tuple[MeasuredQuantity, ...] = ()
    after: tuple[Callable[..., Any], ...] = ()

    def where(self, **fixed: Any) -> MeasuredQuantity:
        """With these values of dimensions, which are coordinates no more.

        A tuple allows several, makes the dimension a coordinate and sets its order; a function
        decides which are allowed.
        """
        several = [dim for dim, value in fixed.items() if isinstance(value, tuple)]

        def change(one: MeasuredQuantity) -> MeasuredQuantity:
            gone = [dim for dim in fixed if dim not in several and not callable(fixed[dim])]
            dims = [dim for dim in one.dims if dim not in gone]
            every = tuple(dict.fromkeys((*dims, *several)))
            return replace(one, fixed={**one.fixed, **fixed}, dims=every)

        return self._everywhere(change)

    def per(self, *dims: str) -> MeasuredQuantity:
        """One number for each value of these dimensions as well."""
        return self._everywhere(
            lambda one: replace(one, dims=tuple(dict.fromkeys((*one.dims, *dims))))
        )

    def keep(self, *filters: Filter) -> MeasuredQuantity:
        """Of the rows that these filters leave."""
        return self._everywhere(lambda one: replace(one, filters=(*one.filters, *filters)))

    def pooled(self, how: str) -> MeasuredQuantity:
        """Pooled by `mean`, `median`, `min`, `max`, `sum`, `last`, `seeds`, `ratio` or `workloads`:
        see `lab.compare.ratio_over_workloads`."""
        return replace(self, pooling=how)

    def instrumented(self, also: bool = False) -> MeasuredQuantity:
        """Of processes that ran with instruments; `also`: of those without them, too."""
        how = "also" if also else "only"
        return self._everywhere(lambda one: replace(one, with_instruments=how))

    def _everywhere(
        self, change: Callable[[MeasuredQuantity], MeasuredQuantity]
    ) -> MeasuredQuantity:
        return replace(change(self), operands=tuple(o._everywhere(change) for o in self.operands))

    # Arithmetic inside a row

    def _joined(self, other: Any, join: Callable[[float, float], float]) -> MeasuredQuantity:
        if not isinstance(other, MeasuredQuantity):
            return self.map(lambda value: join(value, other))
        if any(one.estimated is not None or one.after for one in (self, other)):
            raise TypeError("pooled numbers are compared by `over` and `less`, not inside a row")

        def sampled(context: EvaluationContext, mine: MeasuredQuantity) -> list[RowNumber]:
            first, second = (operand.samples(context) for operand in mine.operands)
            of_row: dict[str, list[RowNumber]] = {}
            for one in second:
                of_row.setdefault(one.row.id, []).append(one)
            return [
                RowNumber(a.row, _merged(a.coords, b.coords), join(a.value, b.value))
                for a in first for b in of_row.get(a.row.id, ()) if _agree(a.coords, b.coords)
            ]  # fmt: skip

        return self._derived(sampled, self, other)

    def _derived(self, sampled: Derive, *operands: MeasuredQuantity) -> MeasuredQuantity:
        return replace(
            self, sampled=sampled, operands=operands, pooling="mean", metric="", after=()
        )

    def map(self, change: Callable[[float], float]) -> MeasuredQuantity:
        """With a function of each sample, or of pooled numbers that were computed or joined."""
        if self.estimated is not None or self.after:
            return self.map_pooled(change)

        def sampled(context: EvaluationContext, mine: MeasuredQuantity) -> list[RowNumber]:
            return [one._replace(value=change(one.value), entry=None)
                    for one in mine.operands[0].samples(context)]  # fmt: skip

        return self._derived(sampled, self)

    def map_pooled(self, change: Callable[[float], float]) -> MeasuredQuantity:
        """With a monotone function of every pooled number and of the ends of its interval."""

        def pooled(context: EvaluationContext, mine: dict[Coords, Estimate]) -> Any:
            return {coords: one.mapped(change) for coords, one in mine.items()}

        return replace(self, after=(*self.after, pooled))

    def __add__(self, other: Any) -> MeasuredQuantity:
        return self._joined(other, lambda a, b: a + b)

    def __sub__(self, other: Any) -> MeasuredQuantity:
        return self._joined(other, lambda a, b: a - b)

    def __rsub__(self, other: float) -> MeasuredQuantity:
        return self.map(lambda value: other - value)

    def __mul__(self, other: Any) -> MeasuredQuantity:
        return self._joined(other, lambda a, b: a * b)

    def __truediv__(self, other: Any) -> MeasuredQuantity:
        return self._joined(other, lambda a, b: a / b if b else math.nan)

    __rmul__ = __mul__

    # Between pooled numbers

    def over(self, other: MeasuredQuantity) -> MeasuredQuantity:
        """Pooled numbers over another's where coordinates agree; exact ones keep intervals."""
        return self._between(other, lambda a, b: a / b if b else math.nan)

    def less(self, other: MeasuredQuantity) -> MeasuredQuantity:
        """Pooled numbers minus those of another quantity where their coordinates agree."""
        return self._between(other, lambda a, b: a - b)

    def or_else(self, other: MeasuredQuantity) -> MeasuredQuantity:
        """These numbers, or those of another quantity where there are none at all."""
        change = lambda context, mine: mine or other.estimates(context)  # noqa: E731
        return replace(self, after=(*self.after, change))

    def printed(self, number: Callable[[Mapping[str, Any]], float | None]) -> MeasuredQuantity:
        """The paper's numbers at the coordinates of these, which `number` gives by dimensions; none
        where it prints none."""

        def change(context: EvaluationContext, mine: dict[Coords, Estimate]) -> Any:
            return {coords: Estimate(value, rows=one.rows, kind="printed")
                    for coords, one in mine.items()
                    if (value := number(dict(coords))) is not None}  # fmt: skip

        return replace(self, after=(*self.after, change), is_printed=True)

    def _between(
        self, other: MeasuredQuantity, join: Callable[[float, float], float]
    ) -> MeasuredQuantity:
        def joined(one: Estimate, two: Estimate) -> Estimate:
            made = replace(one.mapped(lambda v: join(v, two.value)), rows=rows_of_all(one, two))
            exact = two.kind == "exact"
            return made if exact else replace(made, low=None, high=None, processes=None, ratio=None)

        def change(context: EvaluationContext, mine: dict[Coords, Estimate]) -> Any:
            pairs = [
                (_merged(a, b), joined(one, two))
                for a, one in mine.items()
                for b, two in other.estimates(context).items()
                if _agree(a, b)
            ]
            return {coords: one for coords, one in pairs if not math.isnan(one.value)}

        return replace(self, after=(*self.after, change))

    def joined_over(self, join: Callable[[list[float]], float], *dims: str) -> MeasuredQuantity:
        """Pooled numbers joined over dimensions, none where they join to NaN; the result rests on
        the rows of all."""

        def change(context: EvaluationContext, mine: dict[Coords, Estimate]) -> Any:
            groups: dict[Coords, list[Estimate]] = {}
            for coords, one in mine.items():
                rest = tuple(pair for pair in coords if pair[0] not in dims)
                groups.setdefault(rest, []).append(one)
            joined = {coords: join_estimates(many, join) for coords, many in groups.items()}
            return {coords: one for coords, one in joined.items() if not math.isnan(one.value)}

        return replace(self, after=(*self.after, change))

    def mean_over(self, *dims: str) -> MeasuredQuantity:
        """Mean of the pooled numbers over dimensions."""
        return self.joined_over(fmean, *dims)

    # Evaluation

    def samples(self, context: EvaluationContext) -> list[RowNumber]:
        """A number for each row at its coordinates; none where it is NaN.

        Raises InvalidInputError where several rows form the quantity, as of a paired ratio.
        """
        if self.sampled is None:
            raise InvalidInputError("a quantity that several rows form has no number for each row")
        return [one for one in self.sampled(context, self) if not math.isnan(one.value)]

    def estimates(self, context: EvaluationContext) -> dict[Coords, Estimate]:
        """A pooled number at each of its coordinates, in the order of tuples, else of rows."""
        if self.estimated is not None:
            found = self.estimated(context, self)
        else:
            groups: dict[Coords, list[RowNumber]] = {}
            for one in self.samples(context):
                groups.setdefault(one.coords, []).append(one)
            found = {coords: self._pooled(many) for coords, many in groups.items()}
        order = {dim: list(values) for dim, values in context.forms.order.items()}
        order |= {dim: list(value) for dim, value in self.fixed.items() if isinstance(value, tuple)}

        def rank(coords: Coords) -> list[int]:
            listed = ((order.get(dim, []), value) for dim, value in coords)
            return [values.index(one) if one in values else len(values) for values, one in listed]

        keys = sorted((coords for coords, one in found.items() if one is not None), key=rank)
        found = {coords: found[coords] for coords in keys}
        for change in self.after:
            found = change(context, found)
        return found

    def _pooled(self, samples: Sequence[RowNumber]) -> Estimate | None:
        values = [one.value for one in samples]
        rows = tuple({one.row.id: one.row for one in samples}.values())
        how = self.pooling or ("ratio" if self._is_ratio else "mean")
        if how == "ratio":
            found = ratio_of(Table(one.entry for one in samples if one.entry is not None))
            assert found is not None
            return Estimate.of_ratio(found, rows)
        if how == "workloads":
            found = ratio_over_workloads([(one.row, one.value) for one in samples], self.leaf)
            return None if found is None else Estimate.of_ratio(found, rows)
        if how == "seeds":
            return mean_of_seeds(values, rows)
        if how == "last":
            rows = rows[-1:]
        joins: dict[str, Callable[..., float]] = {
            "mean": lambda v: sum(v) / len(v), "median": median, "min": min, "max": max,
            "sum": sum, "last": lambda v: v[-1],
        }  # fmt: skip
        return Estimate(joins[how](values), rows=rows, kind="timed" if self.timed else "exact")

    @property
    def _is_ratio(self) -> bool:
        return bool(self.leaf) and not self.operands and metrics.metric(self.leaf).kind == "ratio"

    @property
    def timed(self) -> bool:
        """True if a clock is in it."""
        own = bool(self.metric) and metrics.source(self.leaf) == "timed"
        return own or any(one.timed for one in self.operands)

    @property
    def counted(self) -> bool:
        """True if it is made of counts alone."""
        if self.metric:
            return metrics.source(self.leaf) == "counted"
        return bool(self.operands) and all(one.counted for one in self.operands)

    @property
    def leaf(self) -> str:
        """The first metric that it is made of, or ""."""
        if self.operands:
            return self.operands[0].leaf
        return self.metric if isinstance(self.metric, str) else self.metric[0]

    def planned(self, context: EvaluationContext) -> dict[Coords, list[Any]]:
        """Coordinates that rows of any status stand for, with these rows.

        Of a paired quantity: of all rows, where its second contender has any. A dimension of
        observations, or of computed numbers, has the values that the quantity allows, else those
        of the row's numbers, else those that some row has; it is left out where no row has one.
        """
        rows = [
            row for row in context.rows
            if CONTROL not in row.params
            and (self.with_instruments or not row.instrumented or row.status != "ok")
            and row.experiment == (self.experiment or context.experiment)
            and all(_allows(self.fixed[n], v) for n, v in row.params.items() if n in self.fixed)
        ]  # fmt: skip
        entries = [Entry(row, NOTHING) for row in rows]
        for kept in self.filters:
            entries = kept(entries, context)
        rows = [one.row for one in entries]
        of_cells = {name for row in rows for name in row.params}
        seen: list[dict[str, Any]] = []
        of_row: dict[str, list[dict[str, Any]]] = {}
        for coords, one in self.estimates(context).items():
            seen.append(dict(coords))
            for row in one.rows:
                of_row.setdefault(row.id, []).append(seen[-1])
        found: dict[Coords, list[Any]] = {}
        for row in rows:
            options: list[list[tuple[str, Any]]] = []
            for dim in dict.fromkeys((*self.dims, *self.fixed)):
                value, wanted = context.value(Entry(row, NOTHING), dim), self.fixed.get(dim)
                if value is not None or (dim in of_cells and (self.sampled or self.operands)):
                    fits = dim not in self.fixed or _allows(wanted, value)
                    values = [value] if fits and (value is not None or dim in self.fixed) else []
                else:
                    own = of_row.get(row.id, seen)
                    known = wanted if isinstance(wanted, tuple) else [o.get(dim) for o in own]
                    values = list(dict.fromkeys(known)) or [None]
                options.append([(dim, one) for one in values])
            for each in product(*options):
                coords = tuple(p for p in each if p[0] in self.dims and p[1] is not None)
                found.setdefault(coords, []).append(row)
        if self.estimated and self.operands:
            sides = [operand.planned(context) for operand in self.operands]
            return {
                at: [row for side in sides for row in side.get(at, ())]
                for at in found if sides[-1]
            }  # fmt: skip
        return found


def observed(
    metric: str | tuple[str, ...],
    *,
    per: str | Sequence[str] = (),
    experiment: str = "",
    **where: Any,
) -> MeasuredQuantity:
    """Numbers of one metric of an experiment, by default of the one that a claim stands in.

    Args:
        metric: registered name, or several of which a row has one.
        per: dimensions that are coordinates.
        where: values of dimensions; a tuple allows several and makes the dimension a coordinate.

    Raises:
        UnknownKeyError: an unknown metric or dimension; the nearest ones are named.
    """
    for name in (metric,) if isinstance(metric, str) else metric:
        metrics.metric(name)
    dims = (per,) if isinstance(per, str) else tuple(per)
    return MeasuredQuantity(_observed, metric=metric, experiment=experiment, dims=dims).where(
        **where
    )


def of_rows(
    value: Callable[[Any], float], *, per: str | Sequence[str] = (), experiment: str = "",
    **where: Any,
) -> MeasuredQuantity:  # fmt: skip
    """A number that a function takes from each row; NaN where it has none."""

    def sampled(context: EvaluationContext, mine: MeasuredQuantity) -> list[RowNumber]:
        entries = [Entry(row, NOTHING) for row in _rows_of(context, mine)]
        return [RowNumber(one.row, coords, value(one.row))
                for one, coords in _selected(context, mine, entries)]  # fmt: skip

    dims = (per,) if isinstance(per, str) else tuple(per)
    return MeasuredQuantity(sampled, experiment=experiment, dims=dims).where(**where)


def computed(
    numbers: Callable[[EvaluationContext], Iterable[tuple[Mapping[str, Any], Estimate]]],
    *, per: Sequence[str],
) -> MeasuredQuantity:  # fmt: skip
    """Numbers that a function of all rows gives with their dimensions: splits, curves, projections.
    Each of them names all dimensions of `per`."""

    def estimated(context: EvaluationContext, mine: MeasuredQuantity) -> dict[Coords, Estimate]:
        return {
            tuple((dim, dims[dim]) for dim in mine.dims): one
            for dims, one in numbers(context)
            if all(_allows(wanted, dims.get(dim)) for dim, wanted in mine.fixed.items())
        }

    return MeasuredQuantity(estimated=estimated, dims=tuple(per))


def speedup(times: MeasuredQuantity, slow: Any, fast: Any, dim: str = "system") -> MeasuredQuantity:
    """Time of one contender over that of another, which `dim` tells apart; see `paired`."""
    return paired(times.where(**{dim: slow}), times.where(**{dim: fast}))


def paired(first: MeasuredQuantity, second: MeasuredQuantity) -> MeasuredQuantity:
    """Numbers over those of another quantity, paired inside rounds of the same run and pooled over
    everything that is no coordinate (`lab.compare.ratio`)."""

    def estimated(context: EvaluationContext, mine: MeasuredQuantity) -> dict[Coords, Estimate]:
        sides: list[dict[Coords, list[Entry]]] = [{}, {}]
        for side, operand, name in zip(sides, mine.operands, ("first", "second"), strict=True):
            for one in operand.samples(context) if operand.operands else ():
                made = Observation(metric=operand.leaf, value=one.value, dims={"setting": name})
                side.setdefault(one.coords, []).append(Entry(one.row, made))
            for entry, coords in () if operand.operands else _entries(context, operand):
                side.setdefault(coords, []).append(entry)
        found = {}
        for coords, entries in sides[0].items():
            pairs = Table(entries), Table(sides[1].get(coords, ()))
            if (pooled := ratio(*pairs)) is not None:
                found[coords] = Estimate.of_ratio(pooled, rows_of_all(*pairs))
        return found

    return MeasuredQuantity(estimated=estimated, experiment=first.experiment, dims=first.dims,
                    fixed={k: v for k, v in first.fixed.items() if second.fixed.get(k) == v},
                    operands=(first, second))  # fmt: skip


def _rows_of(context: EvaluationContext, mine: MeasuredQuantity) -> list[Any]:
    """Usable rows of its experiment, then those with instruments where it has them."""
    plain = [] if mine.with_instruments == "only" else filter(usable, context.rows)
    told = (row for row in context.rows if row.status == "ok" and row.instrumented)
    rows = [*plain, *(told if mine.with_instruments else ())]
    return [row for row in rows if row.experiment == (mine.experiment or context.experiment)]


def _entries(context: EvaluationContext, mine: MeasuredQuantity) -> list[tuple[Entry, Coords]]:
    named = {*mine.fixed, *mine.dims}
    names = (mine.metric,) if isinstance(mine.metric, str) else mine.metric
    entries = [
        Entry(row, one)
        for row in _rows_of(context, mine)
        for one in _named(row, names)
        if one.dims.keys() <= named
    ]
    return _selected(context, mine, entries)


def _selected(
    context: EvaluationContext, mine: MeasuredQuantity, entries: list[Entry]
) -> list[tuple[Entry, Coords]]:
    """Entries that a quantity names, after its filters, with their coordinates."""
    entries = [one for one in entries if context.matches(one, mine.fixed)]
    for kept in mine.filters:
        entries = kept(entries, context)
    return [(one, tuple((dim, context.value(one, dim)) for dim in mine.dims)) for one in entries]


def _observed(context: EvaluationContext, mine: MeasuredQuantity) -> list[RowNumber]:
    return [RowNumber(one.row, coords, one.value, one) for one, coords in _entries(context, mine)]


def _merged(first: Coords, second: Coords) -> Coords:
    return tuple({**dict(second), **dict(first)}.items())


def _agree(first: Coords, second: Coords) -> bool:
    others = dict(second)
    return all(others.get(dim, value) == value for dim, value in first)
