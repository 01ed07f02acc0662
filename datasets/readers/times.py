"""Times as float64, without two that differ becoming equal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from dgbench.runtime.errors import DataError

MAX_EXACT: Final = 2**53
"""Integers up to here are exact in float64."""
_DIGITS: Final = 15
"""Significant digits that float64 keeps for sure."""
_YEAR_1: Final = -719_162
"""1 January 1 in days since 1970."""
_DAY_S: Final = 86_400.0

Fault = Callable[[int, str], DataError]
"""(row, words) -> the error that names the file and the line."""


def fraction_digits(texts: Iterable[str]) -> int:
    """Most digits after the point where a number has more of them than float64 keeps, else 0."""
    found, long = 0, False
    for text in texts:
        whole, point, fraction = text.strip().lstrip("+-").partition(".")
        if point and re.fullmatch(r"\d+", whole + fraction):
            found = max(found, len(fraction))
            long |= len((whole + fraction).strip("0")) > _DIGITS
    return min(found, 18) if long else 0


def as_float(times: Any, fault: Fault, unit: str = "") -> tuple[np.ndarray, tuple[str, ...]]:
    """Times as float64[E], begun anew at the first one where float64 could not tell them apart.

    Args:
        times: float64[E], int64[E], or an object array of decimals.
        fault: builds the error for a row.
        unit: what one of them is, for the note.

    Returns:
        The times, and a note where they were shifted.

    Raises:
        DataError: they are not finite, or even shifted not exact.
    """
    if times.dtype.kind == "f":
        bad = ~np.isfinite(times)
        if bad.any():
            row = int(bad.argmax())
            raise fault(row, f"t is {times[row]}; only finite numbers are allowed")
        return times.astype(np.float64), ()
    if times.dtype.kind == "u":
        if times.size and times.max() > np.iinfo(np.int64).max:
            raise fault(int(times.argmax()), f"t = {times.max()} does not fit int64")
        times = times.astype(np.int64)
    if not times.size:
        return np.zeros(0), ()
    if times.dtype.kind == "i" and max(abs(int(times.min())), abs(int(times.max()))) <= MAX_EXACT:
        return times.astype(np.float64), ()
    first = times.min()
    if times.dtype.kind == "i" and int(times.max()) - int(first) > MAX_EXACT:
        row = int(times.argmax())
        raise fault(
            row,
            f"t = {times[row]} lies more than 2**53 after the first time, {first}: float64 cannot "
            "tell such times apart; give them in a coarser unit",
        )
    shifted = (times - first).astype(np.float64)
    if times.dtype == object and len(set(times.tolist())) != np.unique(shifted).size:
        raise fault(0, "t has more digits than float64 can tell apart; give fewer of them")
    why = "float64 cannot tell numbers of that size apart"
    return shifted, (f"times are counted from the first one, {first}{unit}: {why}",)


def days(column: Any, fault: Fault) -> np.ndarray:
    """ISO days as Unix seconds, float64[E]."""
    import pyarrow as pa
    from pyarrow import compute

    if not len(column):
        return np.zeros(0)
    try:
        found = compute.cast(column, pa.date32()).cast(pa.int32()).to_numpy()
    except pa.ArrowInvalid as error:
        row = _first_bad(column, pa.date32())
        raise fault(row, f"a date is not written as YYYY-MM-DD: {error}") from None
    if found.min() < _YEAR_1:
        row = int(found.argmin())
        raise fault(row, "a date is not written as YYYY-MM-DD: before year 1")
    return found.astype(np.float64) * _DAY_S


def timestamps(column: Any, fault: Fault) -> tuple[np.ndarray, str, tuple[str, ...]]:
    """Dates with time, or arrow timestamps, as Unix times in the coarsest exact unit.

    Returns:
        float64[E], counted from the first one where they are too fine to be counted from 1970;
        their unit (`s`, `ms`, `us` or `ns`); and notes.
    """
    import pyarrow as pa

    if not len(column):
        return np.zeros(0), "s", ()
    stamps = _stamps_of_texts(column, fault) if pa.types.is_string(column.type) else column
    if not pa.types.is_timestamp(stamps.type):  # days
        stamps = stamps.cast(pa.timestamp("ms" if pa.types.is_date64(stamps.type) else "s"))
    if stamps.null_count:
        row = int(stamps.is_null().to_numpy().argmax())
        raise fault(row, "the column `t` is empty")
    ticks = stamps.cast(pa.int64()).to_numpy()
    units = ("ns", "us", "ms", "s")
    unit = stamps.type.unit
    while unit != "s" and not (ticks % 1000).any():
        ticks, unit = ticks // 1000, units[units.index(unit) + 1]
    times, notes = as_float(ticks, fault, f" {unit} since 1970")
    return times, unit, notes if unit == "s" else (*notes, f"times are in {unit}")


def _stamps_of_texts(column: Any, fault: Fault) -> Any:
    """Texts in ISO 8601 as timestamps, in the first unit that has room for all their digits."""
    import pyarrow as pa

    for zone in (None, "UTC"):
        for unit in ("s", "ms", "us", "ns"):
            try:
                return column.cast(pa.timestamp(unit, zone))
            except pa.ArrowInvalid as error:
                said = error
    row = max(_first_bad(column, pa.timestamp("ns", zone)) for zone in (None, "UTC"))
    raise fault(row, f"a time is not written as in ISO 8601: {said}") from None


def ticks_of(column: np.ndarray, fault: Fault) -> Any:
    """Arrow timestamps of a numpy datetime64[E] column of any unit and any multiple of it."""
    import pyarrow as pa

    if np.isnat(column).any():
        raise fault(int(np.isnat(column).argmax()), "the column `t` is empty")
    for unit in ("s", "ms", "us", "ns"):
        try:
            found = column.astype(f"M8[{unit}]")
            same = found.astype(column.dtype) == column
        except (OverflowError, TypeError, ValueError):  # units without a common factor
            continue
        if same.all() and np.datetime_data(column.dtype)[0] != "generic":
            return pa.chunked_array([pa.array(found.view(np.int64)).cast(pa.timestamp(unit))])
    raise fault(0, f"the column `t` holds {column.dtype} that nanoseconds since 1970 cannot hold")


def _first_bad(column: Any, kind: Any) -> int:
    """The first row that cannot be cast."""
    import pyarrow as pa

    for row, value in enumerate(column):
        try:
            value.cast(kind)
        except pa.ArrowInvalid:
            return row
    return 0
