"""Readers of the stored formats. Each takes the paths of a form and its `ReaderSpec`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from dgbench.datasets.catalogue import DatasetVariant, ReaderSpec
from dgbench.datasets.readers.raw import RawEvents, Signals
from dgbench.runtime.errors import DataError, SignalExit, unknown_key

Reader = Callable[[Sequence[Path], ReaderSpec], "RawEvents | Signals"]
READERS_GROUP: Final = "dgbench.readers"
"""Entry points of readers of others: the name is the format on a card, the object a `Reader`."""


def read(form: DatasetVariant, paths: Sequence[Path]) -> RawEvents | Signals:
    """Read the files of a form. Raises DataError for anything that breaks the format."""
    from dgbench.datasets.readers import arrays, signals, tables

    known: dict[str, Reader] = {
        "table": tables.read_table,
        "parquet": arrays.read_parquet,
        "npz": arrays.read_npz,
        "amlsim": tables.read_amlsim,
        "covid-json": signals.read_covid,
        "tennis-json": signals.read_tennis,
        "chickenpox-json": signals.read_chickenpox,
        "montevideo-json": signals.read_montevideo,
        "pems-npz": signals.read_pems,
    }
    name = form.reader.format
    reader = known.get(name) or _plugin_reader(name, known)
    try:
        return reader(paths, form.reader)
    except DataError as error:
        raise named(error, paths) from None


def named(error: DataError, paths: Sequence[Path]) -> DataError:
    """The error with the file it is about in front, if it does not name one."""
    if any(str(path) in str(error) for path in paths):
        return error
    return DataError(f"{', '.join(map(str, paths))}: {error}", hint=error.hint)


def _plugin_reader(name: str, known: Iterable[str]) -> Reader:
    points = {point.name: point for point in entry_points(group=READERS_GROUP)}
    if name not in points:
        raise unknown_key("reader", name, [*known, *points])
    try:
        reader = points[name].load()
    except SignalExit:
        raise
    except (Exception, SystemExit) as error:  # a plugin may fail in any way
        raise DataError(
            f"the reader '{name}' of {points[name].value} cannot be loaded: "
            f"{type(error).__name__}: {error}"
        ) from None

    def checked(paths: Sequence[Path], spec: ReaderSpec) -> RawEvents | Signals:
        found = reader(paths, spec)
        if not isinstance(found, (RawEvents, Signals)):
            raise DataError(
                f"the reader '{name}' gave {type(found).__name__}; RawEvents or Signals are allowed"
            )
        return found

    return checked


__all__ = ["RawEvents", "Signals", "named", "read"]
