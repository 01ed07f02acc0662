"""Snapshots with native signals: PyG-Temporal's JSON files and PEMS08."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dgbench.datasets.catalogue import ReaderSpec
from dgbench.datasets.readers.raw import MAX_UNPACKED, Signals, read_bytes
from dgbench.datasets.readers.tables import read_table
from dgbench.runtime.documents import decode_json
from dgbench.runtime.errors import DataError

Edges = list[tuple[int, int]]


class _Mapping(msgspec.Struct):
    edge_index: dict[str, Edges]
    edge_weight: dict[str, list[float]]


class _Covid(msgspec.Struct):
    edge_mapping: _Mapping
    time_periods: int
    y: list[list[float]]


class _Tennis(msgspec.Struct):
    edges: Edges
    weights: list[float]
    y: list[float]
    X: list[list[float]]


class _Chickenpox(msgspec.Struct):
    edges: Edges
    node_ids: dict[str, int]
    FX: list[list[float]]


class _Stop(msgspec.Struct):
    bus_stop: int
    y: list[float]


class _Line(msgspec.Struct):
    source: int
    target: int
    weight: float


class _Montevideo(msgspec.Struct):
    nodes: list[_Stop]
    links: list[_Line]


def read_covid(paths: Sequence[Path], spec: ReaderSpec) -> Signals:
    """England-Covid: mobility per day (days are unordered string keys) and new cases."""
    (path,) = paths
    found = _decode(path, _Covid)
    days = range(_some(path, "time_periods", found.time_periods))
    edges, weights = [], []
    for day in days:
        try:
            edges.append(found.edge_mapping.edge_index[str(day)])
            weights.append(found.edge_mapping.edge_weight[str(day)])
        except KeyError:
            raise DataError(f"{path}: day {day} of {found.time_periods} is missing") from None
    cases = _matrix(path, "y", found.y, found.time_periods)
    src, dst, step, weight = _entries(path, edges, weights)
    return Signals(
        *(src, dst, step, weight),
        num_nodes=spec.nodes or cases.shape[1],
        steps=found.time_periods,
        static=False,
        targets=_standard(cases, 0),
        notes=("targets: new cases, standardised per region over all days",),
    )


def read_tennis(paths: Sequence[Path], spec: ReaderSpec) -> Signals:
    """Twitter tennis: mentions per hour; y is the number of mentions received."""
    (path,) = paths
    tree = _decode(path, dict[str, msgspec.Raw])
    steps = _some(path, "time_periods", _decode_raw(path, tree.get("time_periods"), int))
    hours = [_decode_raw(path, tree.get(str(hour)), _Tennis) for hour in range(steps)]
    src, dst, step, weight = _entries(
        path, [hour.edges for hour in hours], [hour.weights for hour in hours]
    )
    mentions = _matrix(path, "y", [hour.y for hour in hours], steps)
    if (mentions < 0).any():
        raise DataError(f"{path}: a vertex was mentioned less than 0 times")
    shape = (steps, mentions.shape[1], -1)
    rows = [row for hour in hours for row in hour.X]
    native = _matrix(path, "X", rows, steps * mentions.shape[1]).reshape(shape)
    return Signals(
        *(src, dst, step, weight),
        num_nodes=spec.nodes or mentions.shape[1],
        steps=steps,
        static=False,
        targets=np.log1p(mentions).astype(np.float32),
        native=np.log1p(np.maximum(native, 0)).astype(np.float32),
        notes=("targets: log(1 + mentions received); features: log(1 + X)",),
    )


def read_chickenpox(paths: Sequence[Path], spec: ReaderSpec) -> Signals:
    """Chickenpox: one topology, weekly cases that the publisher has standardised."""
    (path,) = paths
    found = _decode(path, _Chickenpox)
    cases = _matrix(path, "FX", found.FX, len(found.FX))
    src, dst, step, _ = _entries(path, [found.edges], None)
    return Signals(
        *(src, dst, step, None),
        num_nodes=spec.nodes or len(found.node_ids),
        steps=cases.shape[0],
        static=True,
        targets=cases.astype(np.float32),
        notes=("targets: cases as standardised by the publisher",),
    )


def read_montevideo(paths: Sequence[Path], spec: ReaderSpec) -> Signals:
    """Montevideo bus: one topology of bus lines, passengers per hour and stop."""
    (path,) = paths
    found = _decode(path, _Montevideo)
    place = {stop.bus_stop: number for number, stop in enumerate(found.nodes)}
    if len(place) != len(found.nodes):
        raise DataError(f"{path}: {len(found.nodes)} stops have {len(place)} numbers")
    try:
        edges = [(place[line.source], place[line.target]) for line in found.links]
    except KeyError as error:
        raise DataError(f"{path}: a line ends at the unknown stop {error}") from None
    series = [stop.y for stop in found.nodes]
    passengers = _matrix(path, "y", series, len(series)).T
    src, dst, step, weight = _entries(path, [edges], [[line.weight for line in found.links]])
    return Signals(
        *(src, dst, step, weight),
        num_nodes=spec.nodes or len(place),
        steps=passengers.shape[0],
        static=True,
        targets=_standard(passengers, 0),
        notes=("targets: passengers, standardised per stop over all hours",),
    )


def read_pems(paths: Sequence[Path], spec: ReaderSpec) -> Signals:
    """PEMS08: `flow` (the held part) or `data` [frames, sensors, channels], and its links."""
    series, links = paths
    flow = _flow(series)
    _check_matrix(series, "flow", flow)
    table = ReaderSpec(
        format="table", columns=("src", "dst", "weight"), skip=1, ids="keep", nodes=flow.shape[1]
    )
    roads = read_table([links], table)
    return Signals(
        src=roads.src,
        dst=roads.dst,
        step=np.zeros(roads.src.size, np.int64),
        weight=roads.weight,
        num_nodes=flow.shape[1],
        steps=flow.shape[0],
        static=True,
        targets=_standard(flow, None),
        notes=("targets: flow, standardised over all frames and sensors; weights: road distance",),
    )


def _flow(path: Path) -> np.ndarray:
    """float64[T, N] of the first array of a npz file that is called `flow` or `data`."""
    try:
        with zipfile.ZipFile(io.BytesIO(read_bytes(path))) as store:
            names = store.namelist()
            name = next((k for k in ("flow.npy", "data.npy") if k in names), None)
            if name is None:
                raise DataError(f"{path} holds {names[:8]}; `flow` or `data` is needed")
            if (size := store.getinfo(name).file_size) > MAX_UNPACKED:
                raise DataError(f"{path}: '{name}' says it has {size:,} bytes; that is too much")
            with store.open(name) as stream:
                flow = np.lib.format.read_array(stream, allow_pickle=False)
    except DataError:
        raise
    except Exception as error:  # numpy, zipfile, tokenize and four unpackers raise a dozen kinds
        raise DataError(f"{path} is not a readable npz file: {error}") from None
    if flow.dtype.kind not in "iuf":
        raise DataError(f"{path}: `{name}` holds {flow.dtype} values; numbers are allowed")
    return (flow[..., 0] if flow.ndim == 3 and flow.shape[2] else flow).astype(np.float64)


def _some(path: Path, name: str, count: int) -> int:
    if count < 1:
        raise DataError(f"{path}: `{name}` is {count}; at least 1 is needed")
    return count


def _decode(path: Path, kind: Any) -> Any:
    try:
        return decode_json(read_bytes(path), kind)
    except msgspec.MsgspecError as error:
        raise DataError(f"{path} is not the JSON its card describes: {error}") from None


def _decode_raw(path: Path, raw: Any, kind: Any) -> Any:
    if raw is None:
        raise DataError(f"{path} lacks a step or its number of steps (`time_periods`)")
    try:
        return decode_json(bytes(raw), kind)
    except msgspec.MsgspecError as error:
        raise DataError(f"{path} is not the JSON its card describes: {error}") from None


def _entries(
    path: Path, edges: Sequence[Edges], weights: Sequence[Sequence[float]] | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Flat src, dst int64[E], step int64[E] and weight of a list of edge lists."""
    counts = [len(part) for part in edges]
    if weights is not None and counts != [len(part) for part in weights]:
        raise DataError(f"{path}: the numbers of edges and of weights differ")
    try:
        flat = np.concatenate([np.asarray(part, np.int64).reshape(-1, 2) for part in edges])
    except OverflowError:
        raise DataError(f"{path}: an edge names a vertex that does not fit int64") from None
    step = np.repeat(np.arange(len(edges), dtype=np.int64), counts)
    weight = None
    if weights is not None:
        flat_weights = np.concatenate([np.asarray(part, np.float64) for part in weights])
        if (np.abs(flat_weights) > np.finfo(np.float32).max).any():
            raise DataError(f"{path}: a weight does not fit float32")
        weight = flat_weights.astype(np.float32)
    return flat[:, 0].copy(), flat[:, 1].copy(), step, weight


def _matrix(path: Path, name: str, rows: Sequence[Sequence[float]], count: int) -> np.ndarray:
    if not rows or len(rows) != count or len({len(row) for row in rows}) > 1:
        raise DataError(f"{path}: `{name}` is not a table of {count} equal rows")
    out = np.asarray(rows, dtype=np.float64)
    _check_matrix(path, name, out)
    return out


def _check_matrix(path: Path, name: str, values: np.ndarray) -> None:
    if values.ndim != 2 or not values.size:
        raise DataError(f"{path}: `{name}` must be a table, it has shape {values.shape}")
    if not (np.abs(values) <= np.finfo(np.float32).max).all():  # nor is NaN
        raise DataError(f"{path}: `{name}` must hold finite numbers that fit float32")


def _standard(values: np.ndarray, axis: int | None) -> np.ndarray:
    """Standardise over all steps, per vertex (axis 0) or over everything (None)."""
    spread = values.std(axis=axis, keepdims=True)
    level = np.where(spread > 1e-12, spread, np.inf)
    return ((values - values.mean(axis=axis, keepdims=True)) / level).astype(np.float32)
