"""Readers of the stored formats. Each takes the paths of a form and its `ReaderSpec`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from dgbench.datasets.catalogue import Form, ReaderSpec
from dgbench.datasets.readers.raw import RawEvents, Signals
from dgbench.runtime.errors import unknown_key

Reader = Callable[[Sequence[Path], ReaderSpec], "RawEvents | Signals"]


def read(form: Form, paths: Sequence[Path]) -> RawEvents | Signals:
    """Read the files of a form. Raises DataError for anything that breaks the format."""
    from dgbench.datasets.readers import signals, tables

    known: dict[str, Reader] = {
        "table": tables.read_table,
        "amlsim": tables.read_amlsim,
        "covid-json": signals.read_covid,
        "tennis-json": signals.read_tennis,
        "chickenpox-json": signals.read_chickenpox,
        "montevideo-json": signals.read_montevideo,
        "pems-npz": signals.read_pems,
    }
    reader = known.get(form.reader.format)
    if reader is None:
        raise unknown_key("reader", form.reader.format, known)
    return reader(paths, form.reader)


__all__ = ["RawEvents", "Signals", "read"]
