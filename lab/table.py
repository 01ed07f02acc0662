"""The table of observations: one number each, with what it is of in dimensions.

A process writes observations (`Measurement.observe`); everything else reads them, as a `Table` that
is selected from by metric and dimensions and never by a name that means something else.

    steps = Table.of(rows, experiment="fig10").where("step_time", model="tgcn_model")
    steps.by("system")                     # {"pipad": Table, "pygt": Table, ...}
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from dgbench.lab import metrics
from dgbench.lab.judging import note_read
from dgbench.runtime.errors import InvalidInputError

T = TypeVar("T")

OF_ROW: Final = ("paper", "experiment", "group", "device", "preset", "round")
"""Columns that an observation has from its row, beside the row's params."""


class Observation(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One number that a process observed.

    Attributes:
        metric: registered name, see `metrics`.
        value: the number, in the metric's unit; of a time with samples their median.
        dims: what it is of, beyond the params of its cell.
        low, high: interval of a ratio that was formed over turns inside the process.
        samples: seconds of each turn or iteration, where they were kept.
    """

    metric: str
    value: float | int
    dims: dict[str, Any] = {}
    low: float | None = None
    high: float | None = None
    samples: list[float] = []


def observation(
    metric: str,
    value: float | int,
    *,
    low: float | None = None,
    high: float | None = None,
    samples: Sequence[float] = (),
    **dims: Any,
) -> Observation:
    """An observation, checked; scalars of numpy and torch become Python's.

    Raises:
        UnknownKeyError: an unknown metric or dimension; the nearest ones are named.
        InvalidInputError: a value of another type than the metric or the dimension has.
    """
    found = plain(
        Observation(
            metric=metric, value=value, dims=dims, low=low, high=high, samples=list(samples)
        )
    )
    check(found)
    return found


def plain(one: Observation) -> Observation:
    """The same observation with Python's numbers in place of numpy's and torch's scalars."""
    return replace(
        one,
        value=plain_number(one.value),
        low=plain_number(one.low),
        high=plain_number(one.high),
        dims={name: plain_number(value) for name, value in one.dims.items()},
        samples=[plain_number(seconds) for seconds in one.samples],
    )


def plain_number(value: Any) -> Any:
    """A scalar of numpy or torch as Python's number; anything else as it is."""
    if hasattr(value, "item"):
        with suppress(Exception):
            return value.item()
    return value


def check(one: Observation) -> None:
    """Raise what `observation` raises where an observation breaks the rules of the catalogue."""
    known = metrics.metric(one.metric)
    if isinstance(one.value, bool) or not isinstance(one.value, int | float):
        raise InvalidInputError(f"metric '{one.metric}': a number is wanted, found {one.value!r}")
    if known.exact and not isinstance(one.value, int):
        raise InvalidInputError(
            f"metric '{one.metric}' is a {known.kind} and takes int, found {one.value}"
        )
    for end, value in (("low", one.low), ("high", one.high)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InvalidInputError(
                f"{end} of metric '{one.metric}': a number is wanted, found {value!r}"
            )
    for name, value in one.dims.items():
        metrics.check_value(name, value)


class Entry(msgspec.Struct, frozen=True):
    """An observation with the row it stands in."""

    row: Any
    of: Observation

    @property
    def value(self) -> float | int:
        """Its number."""
        printed = metrics.STATED in (self.of.dims.get("method"), self.of.dims.get("setting"))
        note_read(self.row, self.of.metric, self["seed"], printed)
        return self.of.value

    @property
    def samples(self) -> list[float]:
        """Seconds of each turn or iteration, where they were kept."""
        note_read(self.row, self.of.metric, self["seed"])
        return self.of.samples

    def __getitem__(self, name: str) -> Any:
        """A dimension: of the observation, else a param of the cell, else a column of the row.

        None where it has none of that name.
        """
        dims = self.of.dims
        return dims[name] if name in dims else _of_row(self.row, name)

    def matches(self, wanted: Mapping[str, Any]) -> bool:
        """Return True if its dimensions have these values; a tuple allows several, a function
        decides."""
        for name, one in wanted.items():  # noqa: SIM110  (asked of every entry: all() takes twice as long)
            if not _allows(one, self[name]):
                return False
        return True

    def key(self, names: Iterable[str]) -> tuple[Any, ...]:
        """Its values of several dimensions."""
        return tuple(self[name] for name in names)

    @property
    def place(self) -> tuple[tuple[str, Any], ...]:
        """All its dimensions and params, sorted by name."""
        return tuple(sorted({**self.row.params, **self.of.dims}.items(), key=lambda one: one[0]))


class Table(Sequence[Entry]):
    """Observations in the order of their rows, to select from."""

    __slots__ = ("_made", "_rows")

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._made: list[Entry] | None = list(entries)
        self._rows: list[Any] = []

    @classmethod
    def of(cls, rows: Iterable[Any], **where: Any) -> Table:
        """All observations of usable rows (status ok, not instrumented, not replaced, no control)
        with these params or columns."""
        found = cls()
        found._rows = rows_of(rows, **where)
        found._made = None  # most are asked for a metric next, and need no others
        return found

    @property
    def _entries(self) -> list[Entry]:
        if self._made is None:
            self._made = list(self._of_metrics(None))
        return self._made

    def _of_metrics(self, names: Collection[str] | None) -> Iterator[Entry]:
        """Entries of these metrics, or all."""
        if self._made is not None:
            return (one for one in self._made if names is None or one.of.metric in names)
        return (Entry(row, one) for row in self._rows for one in _named(row, names))

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: Any) -> Any:
        found = self._entries[index]
        return Table(found) if isinstance(index, slice) else found

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def __add__(self, other: Table) -> Table:
        return Table([*self, *other])

    def where(self, metric: str | tuple[str, ...] | None = None, **dims: Any) -> Table:
        """Entries of a metric (or one of several) whose dimensions have these values.

        A tuple allows several values of a dimension, a function decides. Raises UnknownKeyError
        for a metric that nobody registered.
        """
        names = (metric,) if isinstance(metric, str) else metric
        for name in names or ():
            metrics.metric(name)
        if not dims:
            return Table(self._of_metrics(names))
        if self._made is None:
            return Table(self._matching(names, dims))
        return Table(one for one in self._of_metrics(names) if one.matches(dims))

    def _matching(
        self, names: Collection[str] | None, wanted: Mapping[str, Any]
    ) -> Iterator[Entry]:
        """Entries of these metrics with these values; none is made of an observation without."""
        for row in self._rows:
            for one in _named(row, names):
                dims = one.dims
                for name, value in wanted.items():
                    found = dims[name] if name in dims else _of_row(row, name)
                    if not _allows(value, found):
                        break
                else:
                    yield Entry(row, one)

    def by(self, *dims: str) -> dict[Any, Table]:
        """Tables by the values of one dimension, or by tuples of several; first seen, first."""
        found: dict[Any, list[Entry]] = {}
        for one in self:
            key = one[dims[0]] if len(dims) == 1 else one.key(dims)
            found.setdefault(key, []).append(one)
        return {key: Table(entries) for key, entries in found.items()}

    def numbers(self, *dims: str) -> dict[Any, float | int]:
        """One number by the values of dimensions: the last one where there are several."""
        return {key: table[-1].value for key, table in self.by(*dims).items()}

    @property
    def values(self) -> list[float | int]:
        """All numbers."""
        return [one.value for one in self]

    def one(self) -> Entry:
        """The only entry. Raises InvalidInputError where there is none, or more than one."""
        if len(self) != 1:
            raise InvalidInputError(f"one observation is wanted, found {len(self)}: {self.words()}")
        return self._entries[0]

    def get(self, default: T = None) -> float | int | T:  # type: ignore[assignment]
        """The number of the only entry, `default` where there is none; raises where several."""
        return self.one().value if self else default

    @property
    def rows(self) -> list[Any]:
        """The rows that its entries stand in, each once, in order."""
        return list({one.row.id: one.row for one in self}.values())

    def words(self, most: int = 3) -> str:
        """Summary for error messages: metrics and dimensions of the first `most` entries."""
        shown = [f"{one.of.metric}{one.of.dims or ''} in {one.row.id}" for one in self[:most]]
        return ", ".join(shown) + (", ..." if len(self) > most else "") or "nothing"


def usable(row: Any) -> bool:
    """Return True if a row's numbers may be used: it may stand in ratios and is no A/A control."""
    return in_ratios(row) and "control" not in row.params


def in_ratios(row: Any) -> bool:
    """Return True if a row may stand in ratios: status ok, not instrumented, and not of a
    disturbed round that a later one repeats."""
    return bool(row.status == "ok" and not row.instrumented and not getattr(row, "replaced", False))


def rows_of(rows: Iterable[Any], **where: Any) -> list[Any]:
    """Usable rows whose params or columns have these values, as `Table.where` takes them."""
    return [row for row in rows if usable(row) and _row_matches(row, where)]


def _row_matches(row: Any, where: Mapping[str, Any]) -> bool:
    params = row.params
    for name, one in where.items():
        if not _allows(one, params[name] if name in params else getattr(row, name, None)):
            return False
    return True


def _of_row(row: Any, name: str) -> Any:
    """A param of the row's cell, else a column of the row, else None."""
    params = getattr(row, "params", {})  # a measurement has none yet
    if name in params:
        return params[name]
    return getattr(row, name, None) if name in OF_ROW else None


_SEVERAL: Final = (tuple, set, frozenset)


def _allows(wanted: Any, found: Any) -> bool:
    if wanted is None or isinstance(wanted, str):
        return bool(found == wanted)
    if isinstance(wanted, _SEVERAL):
        return found in wanted
    return bool(wanted(found) if callable(wanted) else found == wanted)


FEW: Final = 16
"""Observations of a row up to which looking through them is as fast as asking an index."""


def _named(row: Any, names: Collection[str] | None) -> Sequence[Observation]:
    """Observations of a row with these metrics, or all; those of one come from a kept index."""
    seen: list[Observation] = row.observations
    if names is None:
        return seen
    if len(names) != 1 or len(seen) <= FEW:
        return [one for one in seen if one.metric in names]
    kept = getattr(row, "_by_metric", None)
    if kept is None or kept[0] is not seen or kept[1] != len(seen):
        index: dict[str, list[Observation]] = {}
        for one in seen:
            index.setdefault(one.metric, []).append(one)
        kept = (seen, len(seen), index)
        with suppress(AttributeError):
            row._by_metric = kept
    (name,) = names
    return kept[2].get(name, [])


_REQUIRED: Final = object()


def number(row: Any, metric: str, /, default: Any = _REQUIRED, **dims: Any) -> Any:
    """The number of a row with these dimensions: the one that has no others, else the only one.

    A dimension of None is one that the number has not got.

    Raises:
        UnknownKeyError: nobody registered the metric.
        InvalidInputError: the row has no such number and there is no default, or it has several.
    """
    metrics.metric(metric)
    mine = [Entry(row, one) for one in _named(row, (metric,))]
    wanted = {name: value for name, value in dims.items() if value is not None}
    for one in mine:
        if one.of.dims == wanted:
            return one.value
    found = Table(one for one in mine if one.matches(dims))
    if not found and default is _REQUIRED:
        where = f"row '{row.id}'" if hasattr(row, "id") else "the measurement"
        raise InvalidInputError(f"{where} has no {metric} {wanted or ''}".rstrip())
    return found.one().value if found else default
