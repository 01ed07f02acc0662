"""Events in Parquet files and npz archives, with columns or arrays by their names."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from dgbench.datasets.catalogue import ReaderSpec
from dgbench.datasets.readers.columns import RawColumns, to_events
from dgbench.datasets.readers.ids import names
from dgbench.datasets.readers.raw import RawEvents, check_memory
from dgbench.datasets.readers.tables import read_vertices
from dgbench.datasets.readers.times import MAX_EXACT, Fault, ticks_of
from dgbench.runtime.errors import DataError, unknown_key

ROLES: Final = ("src", "dst", "t", "weight", "label", "feature")
Kind = Literal["number", "text", "clock", "other"]
"""Kind of the values of a column: `clock` are dates and times, `other` cannot be read."""


def read_parquet(paths: Sequence[Path], spec: ReaderSpec) -> RawEvents:
    """Read a Parquet file of events; `fields` of the card name its columns.

    Raises:
        DataError: it is no Parquet file, lacks a column, or holds what is not allowed there.
    """
    import pyarrow as pa
    from pyarrow import parquet

    path = paths[0]
    fields = _fields(path, spec)
    try:
        with parquet.ParquetFile(path) as file:
            there = file.schema_arrow.names
            _check_there(path, "column", fields, there)
            check_memory(path, 8 * file.metadata.num_rows * len(fields))
            table = file.read(columns=[name for _, name in fields])
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a readable Parquet file: {error}") from None
    return _events(paths, spec, [(role, table.column(name)) for role, name in fields])


def read_npz(paths: Sequence[Path], spec: ReaderSpec) -> RawEvents:
    """Read an npz archive of events; `fields` of the card name its arrays. Nothing is unpickled.

    Raises:
        DataError: it is no npz file, lacks an array, or holds what is not allowed there.
    """
    path = paths[0]
    fields = _fields(path, spec)
    try:
        with zipfile.ZipFile(path) as store:
            sizes = {info.filename.removesuffix(".npy"): info.file_size for info in store.filelist}
        _check_there(path, "array", fields, sizes)
        check_memory(path, sum(sizes[name] for _, name in fields))
        with np.load(path, allow_pickle=False) as store:
            arrays = [(role, store[name]) for role, name in fields]
    except DataError:
        raise
    except Exception as error:  # numpy, zipfile, tokenize and four unpackers raise a dozen kinds
        raise DataError(f"{path} is not a readable npz file: {error}") from None
    return _events(paths, spec, arrays)


def stored_columns(path: Path, form: str) -> dict[str, Kind]:
    """Names of the columns of a Parquet file or of the arrays of an npz archive, with their kinds.

    Raises:
        DataError: it cannot be read.
    """
    from pyarrow import parquet

    try:
        if form == "parquet":
            schema = parquet.read_schema(path)
            return {name: kind_of(schema.field(name).type) for name in schema.names}
        with zipfile.ZipFile(path) as store:
            arrays = [name for name in store.namelist() if name.endswith(".npy")]
            return {name.removesuffix(".npy"): _npy_kind(store, name) for name in arrays}
    except Exception as error:  # numpy, zipfile, tokenize and four unpackers raise a dozen kinds
        raise DataError(f"{path} is not a readable {form} file: {error}") from None


def _npy_kind(store: zipfile.ZipFile, name: str) -> Kind:
    """The kind of an array in an npz archive, by its head alone."""
    with store.open(name) as file:
        old = np.lib.format.read_magic(file) == (1, 0)
        head = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
        return kind_of(head(file)[2])


def kind_of(stored: Any) -> Kind:
    """The kind of a type of numpy or arrow."""
    import pyarrow as pa

    if isinstance(stored, np.dtype):
        kinds: dict[str, Kind] = {"M": "clock", "U": "text", "S": "text"}
        return "number" if stored.kind in "iuf" else kinds.get(stored.kind, "other")
    types = pa.types
    if types.is_dictionary(stored):
        return kind_of(stored.value_type)
    if types.is_integer(stored) or types.is_floating(stored) or types.is_decimal(stored):
        return "number"
    if types.is_timestamp(stored) or types.is_date(stored):
        return "clock"
    texts = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")
    return "text" if str(stored) in texts else "other"


def _fields(path: Path, spec: ReaderSpec) -> list[tuple[str, str]]:
    """(role, name) of each column that is read."""
    unknown = [role for role in spec.fields if role not in ROLES]
    if unknown:
        error = unknown_key("column role", unknown[0], ROLES)
        raise DataError(f"{path}: {error}", hint=error.hint)
    lacking = [role for role in ("src", "dst") if role not in spec.fields]
    if lacking:
        raise DataError(f"{path}: its card names no column for `{lacking[0]}`")
    found = []
    for role, named in spec.fields.items():
        found += [(role, name) for name in ((named,) if isinstance(named, str) else named)]
    return found


def _check_there(path: Path, what: str, fields: list[tuple[str, str]], there: Any) -> None:
    for role, name in fields:
        if name not in there:
            error = unknown_key(what, name, there)
            raise DataError(f"{path} has no {what} '{name}' ({role})", hint=error.hint)


def _events(paths: Sequence[Path], spec: ReaderSpec, columns: list[tuple[str, Any]]) -> RawEvents:
    path = paths[0]

    def fault(row: int, words: str) -> DataError:
        return DataError(f"{path}, row {row}: {words}")

    length = next(iter(_shape(columns[0][1])), 0)
    found: dict[str, Any] = {}
    features = []
    for role, column in columns:
        shape = _shape(column)
        wide = role == "feature" and len(shape) == 2
        if len(shape) != (2 if wide else 1) or shape[0] != length:
            raise DataError(f"{path}: the shape of `{role}` is {shape}; ({length},) is needed")
        if role == "feature":
            flat = column.reshape(-1) if wide else column
            features.append(_typed(path, role, flat, spec, fault).reshape(length, -1))
        else:
            found[role] = _typed(path, role, column, spec, fault)
    return to_events(
        RawColumns(
            src=found["src"],
            dst=found["dst"],
            t=found.get("t"),
            weight=found.get("weight"),
            label=found.get("label"),
            edge_feat=np.concatenate(features, 1) if features else None,
        ),
        spec,
        fault,
        read_vertices(paths[1], spec.vertices, named=spec.ids.startswith("names"))
        if spec.vertices is not None and len(paths) > 1
        else None,
    )


def _shape(column: Any) -> tuple[int, ...]:
    return column.shape if isinstance(column, np.ndarray) else (len(column),)


def _typed(path: Path, role: str, column: Any, spec: ReaderSpec, fault: Fault) -> Any:
    """A column as its role needs it: numpy, or pyarrow strings and timestamps."""
    import pyarrow as pa

    named = role in ("src", "dst") and spec.ids.startswith("names")
    stored = column.dtype if isinstance(column, np.ndarray) else column.type
    kind = kind_of(stored)
    allowed: tuple[Kind, ...] = ("number", "text") if named else ("number",)
    if role == "t" and spec.time in ("date", "timestamp"):
        allowed = ("text", "clock")
    if role == "label" and str(stored) == "bool":
        kind = "number"
    if kind not in allowed:
        words = {"number": "numbers", "text": "texts", "clock": "dates and times"}
        raise DataError(
            f"{path}: `{role}` holds {stored} values; {' or '.join(words[k] for k in allowed)} are "
            "allowed"
        )
    if isinstance(column, np.ndarray):
        column = column.astype(column.dtype.newbyteorder("="))  # arrow takes no other order
        if kind == "clock":
            return ticks_of(column, fault)
        if kind == "text":
            column = pa.chunked_array([pa.array(column)])
    else:
        if pa.types.is_dictionary(stored):
            column = column.cast(stored.value_type)
        if column.null_count:
            row = int(column.is_null().to_numpy().argmax())
            raise fault(row, f"the column `{role}` is empty")
    if kind == "clock":
        return column
    if kind == "text":
        try:
            column = column.cast(pa.string())
        except pa.ArrowException as error:
            raise DataError(f"{path}: `{role}` holds bytes that are no text: {error}") from None
        return names(column, fault, role)
    whole = role in ("src", "dst", "label")
    numbers = column if isinstance(column, np.ndarray) else _numbers(column, fault, role, whole)
    if whole:
        numbers = _whole(numbers, fault, role)
        return pa.chunked_array([pa.array(numbers).cast(pa.string())]) if named else numbers
    return numbers if role == "t" else numbers.astype(np.float32)


def _numbers(column: Any, fault: Fault, role: str, whole: bool) -> np.ndarray:
    """An arrow column of numbers as numpy; decimals as float64 where that tells them apart."""
    import pyarrow as pa

    if not pa.types.is_decimal(column.type):
        return column.to_numpy()
    if whole:
        try:
            return column.cast(pa.int64()).to_numpy()
        except pa.ArrowInvalid as error:
            raise fault(0, f"`{role}` holds decimals that are no whole numbers: {error}") from None
    exact = column.to_numpy()
    rounded = exact.astype(np.float64)
    return rounded if np.unique(rounded).size == len(set(exact.tolist())) else exact


def _whole(column: np.ndarray, fault: Fault, role: str) -> np.ndarray:
    """Whole numbers as int64; a float that is whole is that number."""
    if column.dtype.kind == "f":
        column = column.astype(np.result_type(column, np.float64))
        bad = ~np.isfinite(column)
        if bad.any():
            raise fault(int(bad.argmax()), f"the column `{role}` is empty")
        bad = (column != np.floor(column)) | (np.abs(column) > MAX_EXACT)
        what = "floats that are whole, up to 2**53"
    else:
        bad = column > np.iinfo(np.int64).max
        what = "whole numbers that fit int64"
    if bad.any():
        row = int(np.asarray(bad).argmax())
        raise fault(row, f"{role} = {column[row]}; {what}, are allowed")
    return column.astype(np.int64)
