"""Events in Parquet files and npz archives, with columns or arrays by their names."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from dgbench.datasets.catalogue import ReaderSpec
from dgbench.datasets.readers.columns import RawColumns, to_events
from dgbench.datasets.readers.raw import RawEvents, check_memory
from dgbench.datasets.readers.tables import read_vertices
from dgbench.runtime.errors import DataError, unknown_key

ROLES: Final = ("src", "dst", "t", "weight", "label", "feature")


def read_parquet(paths: Sequence[Path], spec: ReaderSpec) -> RawEvents:
    """Read a Parquet file of events; `fields` of the card name its columns.

    Raises:
        DataError: it is no Parquet file, lacks a column, or holds what is not allowed there.
    """
    import pyarrow as pa
    from pyarrow import parquet

    path = paths[0]
    names = _fields(path, spec)
    try:
        with parquet.ParquetFile(path) as file:
            there = file.schema_arrow.names
            _check_there(path, "column", names, there)
            check_memory(path, 8 * file.metadata.num_rows * len(names))
            table = file.read(columns=[name for _, name in names])
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a readable Parquet file: {error}") from None
    return _events(paths, spec, [(role, table.column(name)) for role, name in names])


def read_npz(paths: Sequence[Path], spec: ReaderSpec) -> RawEvents:
    """Read an npz archive of events; `fields` of the card name its arrays. Nothing is unpickled.

    Raises:
        DataError: it is no npz file, lacks an array, or holds what is not allowed there.
    """
    path = paths[0]
    names = _fields(path, spec)
    try:
        with zipfile.ZipFile(path) as store:
            sizes = {info.filename.removesuffix(".npy"): info.file_size for info in store.filelist}
        _check_there(path, "array", names, sizes)
        check_memory(path, sum(sizes[name] for _, name in names))
        with np.load(path, allow_pickle=False) as store:
            arrays = [(role, store[name]) for role, name in names]
    except DataError:
        raise
    except Exception as error:  # numpy, zipfile, tokenize and four unpackers raise a dozen kinds
        raise DataError(f"{path} is not a readable npz file: {error}") from None
    return _events(paths, spec, arrays)


def stored_columns(path: Path, kind: str) -> dict[str, str]:
    """Names of the columns of a Parquet file or of the arrays of an npz archive, with their types.

    Raises:
        DataError: it cannot be read.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        if kind == "parquet":
            schema = parquet.read_schema(path)
            return {name: str(schema.field(name).type) for name in schema.names}
        with np.load(path, allow_pickle=False) as store:
            return {name: str(store[name].dtype) for name in store.files}
    except (pa.ArrowException, OSError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is not a readable {kind} file: {error}") from None


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


def _check_there(path: Path, what: str, names: list[tuple[str, str]], there: Any) -> None:
    for role, name in names:
        if name not in there:
            error = unknown_key(what, name, there)
            raise DataError(f"{path} has no {what} '{name}' ({role})", hint=error.hint)


def _events(paths: Sequence[Path], spec: ReaderSpec, columns: list[tuple[str, Any]]) -> RawEvents:
    path = paths[0]
    length = len(columns[0][1])
    found: dict[str, Any] = {}
    features = []
    for role, column in columns:
        if len(column) != length or getattr(column, "ndim", 1) != (2 if _wide(role, column) else 1):
            raise DataError(
                f"{path}: the shape of `{role}` is {np.shape(column)}; ({length},) is needed"
            )
        value = _typed(path, role, column, spec)
        if role == "feature":
            features.append(value.reshape(length, -1))
        else:
            found[role] = value
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
        lambda row, words: DataError(f"{path}, row {row}: {words}"),
        read_vertices(paths[1], spec.vertices, named=spec.ids.startswith("names"))
        if spec.vertices is not None and len(paths) > 1
        else None,
    )


def _wide(role: str, column: Any) -> bool:
    """Return True if the column is a matrix of features."""
    return role == "feature" and getattr(column, "ndim", 1) == 2


def _typed(path: Path, role: str, column: Any, spec: ReaderSpec) -> Any:
    """A column as its role needs it: numpy, or pyarrow strings and timestamps."""
    import pyarrow as pa

    names = role in ("src", "dst") and spec.ids.startswith("names")
    clock = role == "t" and spec.time in ("date", "timestamp")
    if isinstance(column, np.ndarray) and (names or clock):
        column = pa.chunked_array([pa.array(column)])
    if not isinstance(column, np.ndarray):
        if column.null_count:
            row = int(column.is_null().to_numpy(zero_copy_only=False).argmax())
            raise DataError(f"{path}, row {row}: the column `{role}` is empty")
        if names:
            return column.cast(pa.string())
        if clock:
            return column
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        column = column.to_numpy()
    whole = role in ("src", "dst", "label")
    if column.dtype.kind not in ("iu" if whole else "iuf"):
        raise DataError(
            f"{path}: `{role}` holds {column.dtype} values; "
            f"{'whole numbers' if whole else 'numbers'} are allowed"
        )
    if whole:
        if column.dtype.kind == "u" and column.size and column.max() > np.iinfo(np.int64).max:
            row = int(column.argmax())
            raise DataError(f"{path}, row {row}: {role} = {column[row]} does not fit int64")
        return column.astype(np.int64)
    return column if role == "t" else column.astype(np.float32)
