"""From columns of any source to `RawEvents`: ids, times, checks of every value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dgbench.datasets.catalogue import ReaderSpec
from dgbench.datasets.readers.ids import encoded, twice_written
from dgbench.datasets.readers.raw import RawEvents
from dgbench.datasets.readers.times import Fault, as_float, days, timestamps
from dgbench.runtime.errors import DataError


@dataclass(slots=True)
class RawColumns:
    """Columns of events as they stand in a file.

    Attributes:
        src, dst: int64[E], or pyarrow strings where ids are names.
        t: numbers, decimals, pyarrow strings or timestamps [E]; None where there are no times.
        weight, label, edge_feat: as those of `RawEvents`.
    """

    src: Any
    dst: Any
    t: Any = None
    weight: Any = None
    label: Any = None
    edge_feat: Any = None


@dataclass(slots=True)
class NumberedIds:
    """Dense ids of both columns.

    Attributes:
        src, dst: int64[E]. nodes: N. sources: size of the source side, None for one id space.
        keys: what stood in the file for each vertex, in the order of the ids; None where ids were
            kept or each side has its own.
        notes: what is odd about the ids.
    """

    src: np.ndarray
    dst: np.ndarray
    nodes: int
    sources: int | None = None
    keys: Any = None
    notes: tuple[str, ...] = ()


def to_events(
    columns: RawColumns, spec: ReaderSpec, fault: Fault, vertices: tuple | None = None
) -> RawEvents:
    """Number the ids, convert the times and look at every value once.

    Args:
        columns: as read. spec: how the file is read.
        fault: builds the error for a row, with the file and the line.
        vertices: ids, labels, features and table of `tables.read_vertices`.

    Raises:
        DataError: a negative id, a number that is not finite, or times that go down in a file
            that is said to be sorted.
    """
    ids = number(columns.src, columns.dst, spec, fault)
    t, unit, notes = _times(columns.t, spec, fault, ids.src.size)
    if spec.sorted and t.size:
        fallen = t[1:] < t[:-1]
        if fallen.any():
            row = int(fallen.argmax()) + 1
            raise fault(
                row,
                f"t must not decrease, and {float(t[row])!r} follows {float(t[row - 1])!r}; the "
                "card of a file that is not in time order says `sorted: false`",
            )
    for name, values in (("weight", columns.weight), ("feature", columns.edge_feat)):
        if values is not None and not np.isfinite(values).all():
            row = int(np.argwhere(~np.isfinite(values))[0][0])
            raise fault(row, f"a {name} is not a finite number that fits float32")
    found = RawEvents(
        src=ids.src,
        dst=ids.dst,
        t=t,
        num_nodes=ids.nodes,
        num_src=ids.sources,
        weight=columns.weight,
        label=columns.label,
        edge_feat=columns.edge_feat,
        time_unit=unit,
        notes=(*ids.notes, *notes),
    )
    if vertices is not None:
        _add_vertices(found, ids, *vertices)
    return found


def _times(
    column: Any, spec: ReaderSpec, fault: Fault, events: int
) -> tuple[np.ndarray, str, tuple[str, ...]]:
    """Times, their unit where the file makes it plain, and notes."""
    if spec.time == "none" or column is None or not events:
        return np.zeros(events), "", ()
    if spec.time == "date":
        return days(column, fault), "s", ()
    if not isinstance(column, np.ndarray):
        return timestamps(column, fault)
    t, notes = as_float(column, fault)
    return t, "", notes


def number(src: Any, dst: Any, spec: ReaderSpec, fault: Fault) -> NumberedIds:
    """Dense ids by the rule of a card."""
    if spec.ids.startswith("names"):
        if spec.ids == "names":
            both, keys = encoded(_chunks(src) + _chunks(dst))
            notes = twice_written(keys)
            return NumberedIds(both[: len(src)], both[len(src) :], len(keys), None, keys, notes)
        first, sources = encoded(_chunks(src))
        second, destinations = encoded(_chunks(dst))
        notes = twice_written(sources) + twice_written(destinations)
        nodes = len(sources) + len(destinations)
        return NumberedIds(first, second + len(sources), nodes, len(sources), None, notes)
    for name, column in (("src", src), ("dst", dst)):
        if column.size and column.min() < 0:
            row = int((column < 0).argmax())
            raise fault(row, f"{name} = {column[row]}; ids must be >= 0")
    if spec.ids == "keep":
        largest = int(max(src.max(initial=-1), dst.max(initial=-1)))
        return NumberedIds(src, dst, largest + 1 if spec.nodes is None else spec.nodes)
    if spec.ids == "bipartite":
        first, sources = compact(src)
        second, destinations = compact(dst)
        return NumberedIds(first, second + sources, sources + destinations, sources)
    both, nodes = compact(np.concatenate([src, dst]))
    keys = np.zeros(nodes, np.int64)
    keys[both] = np.concatenate([src, dst])
    return NumberedIds(both[: src.size], both[src.size :], nodes, None, keys)


def _chunks(column: Any) -> list[Any]:
    """The chunks of a column of texts; an empty table has an array of numpy in its place."""
    return [] if isinstance(column, np.ndarray) else list(column.chunks)


def _add_vertices(
    events: RawEvents, ids: NumberedIds, keys: Any, label: Any, features: Any, table: Any
) -> None:
    """Put labels and features of vertices in the order of their ids.

    A vertex without an event is left out; one that the table lacks has the label -1.
    """
    if ids.sources is not None:
        raise DataError(f"{table.path}: a table of vertices needs one id space for both sides")
    known = ids.keys if ids.keys is not None else np.arange(ids.nodes)
    place = {key: row for row, key in enumerate(_plain(known))}
    rows = np.array([place.get(key, -1) for key in _plain(keys)], np.int64)
    here = rows >= 0
    if np.unique(rows[here]).size != here.sum():
        held = np.flatnonzero(here)
        first = np.unique(rows[held], return_index=True)[1]
        row = int(np.setdiff1d(held, held[first])[0])
        raise table.fault(row, f"the vertex {_plain(keys)[row]} is listed twice")
    lacking = ids.nodes - int(here.sum())
    if label is not None:
        events.node_label = np.full(ids.nodes, -1, np.int64)
        events.node_label[rows[here]] = label[here]
    if features is not None:
        if lacking:
            raise DataError(f"{table.path} lacks {lacking:,} of {ids.nodes:,} vertices' features")
        if not np.isfinite(features).all():
            row = int(np.argwhere(~np.isfinite(features))[0][0])
            raise table.fault(row, "a feature is not a finite number that fits float32")
        events.node_feat = np.zeros((ids.nodes, features.shape[1]), np.float32)
        events.node_feat[rows[here]] = features[here]
    left = int((~here).sum())
    if left:
        events.notes += (f"{left:,} vertices of {table.path.name} have no event and are left out",)
    if lacking:
        events.notes += (f"{lacking:,} vertices are not in {table.path.name}; their label is -1",)


def _plain(keys: Any) -> list[Any]:
    return keys.tolist() if isinstance(keys, np.ndarray) else keys.to_pylist()


def compact(ids: np.ndarray) -> tuple[np.ndarray, int]:
    """Renumber ids to 0 .. k - 1, keeping their order; int64 in, int64 out, with k."""
    if ids.size == 0:
        return ids.astype(np.int64), 0
    top = int(ids.max())
    if top >= 8 * ids.size + 1_000_000:  # too sparse for a table of flags
        distinct, place = np.unique(ids, return_inverse=True)
        return place.astype(np.int64), distinct.size
    present = np.zeros(top + 1, dtype=bool)
    present[ids] = True
    rank = np.cumsum(present, dtype=np.int64) - 1
    return rank[ids], int(rank[-1]) + 1
