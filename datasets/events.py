"""A continuous-time graph: one row per event, in time order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgbench.datasets.limits import MAX_NODES
from dgbench.datasets.origin import Origin
from dgbench.runtime.errors import DataError, InvalidInputError


@dataclass(frozen=True, slots=True, eq=False)
class EventStream:
    """Events (source, destination, time), sorted by time. Make one with `EventStream.build`.

    The plain constructor trusts its arguments; it exists for data that was validated before
    it was stored. Tensors may be private maps of a file: writing to one never changes the file.

    Attributes:
        src, dst: int64[E], vertex ids in 0 .. num_nodes - 1.
        t: float64[E], finite, non-decreasing; the unit is the source's (see the card).
        num_nodes: number of vertices N, including those without an event.
        origin: where the events came from.
        num_src: in a bipartite graph the number of source vertices; they have the ids
            0 .. num_src - 1 and the destinations num_src .. N - 1. None otherwise.
        eid: int64[E], identity of each event: its row in the source's own order.
        weight: float32[E] or None.
        edge_feat: float32[E, D] or None.
        node_feat: float32[N, D] or None.
        label: int64[E] or None, one label per event.
        node_label: int64[N] or None, one label per vertex, -1 where it is not known.
    """

    src: Tensor
    dst: Tensor
    t: Tensor
    num_nodes: int
    origin: Origin
    num_src: int | None = None
    eid: Tensor | None = None
    weight: Tensor | None = None
    edge_feat: Tensor | None = None
    node_feat: Tensor | None = None
    label: Tensor | None = None
    node_label: Tensor | None = None

    @classmethod
    def build(
        cls,
        src: Any,
        dst: Any,
        t: Any,
        *,
        num_nodes: int | None = None,
        origin: Origin | None = None,
        num_src: int | None = None,
        eid: Any = None,
        weight: Any = None,
        edge_feat: Any = None,
        node_feat: Any = None,
        label: Any = None,
        node_label: Any = None,
        sort: bool = False,
    ) -> EventStream:
        """Validate completely, once, and return a stream.

        Args:
            src, dst: integers[E], tensor, array or sequence; converted to int64.
            t: numbers[E]; converted to float64. Integers beyond 2**53 are refused.
            num_nodes: N; by default the largest id plus one.
            origin: provenance; by default an unnamed real dataset.
            num_src: number of source vertices of a bipartite graph.
            eid: int64[E]; by default 0 .. E - 1 in the order given.
            weight, edge_feat, node_feat, label, node_label: see the class.
            sort: sort by time (stable, so that ties keep their order) instead of refusing
                events that are out of order.

        Raises:
            DataError: with the argument, the first offending index and what was found there.
        """
        src, dst = _ids("src", src), _ids("dst", dst)
        t = _times(t)
        for name, column in (("dst", dst), ("t", t)):
            if column.numel() != src.numel():
                raise DataError(
                    f"{name} has {column.numel()} entries, src has {src.numel()}; "
                    "they must be equally long"
                )
        if num_nodes is None:
            num_nodes = 1 + max(_peak(src), _peak(dst))
        num_nodes = _count("num_nodes", num_nodes)
        if num_nodes > MAX_NODES:
            raise DataError(
                f"num_nodes is {num_nodes}; at most {MAX_NODES} fit the graph format",
                hint="renumber the vertices densely (cards: `ids: compact`)",
            )
        if num_src is None:
            _range("src", src, 0, num_nodes)
            _range("dst", dst, 0, num_nodes)
        else:
            num_src = _count("num_src", num_src)
            if num_src > num_nodes:
                raise DataError(f"num_src is {num_src}, more than num_nodes = {num_nodes}")
            _range("src", src, 0, num_src, side="source side of a bipartite graph")
            _range("dst", dst, num_src, num_nodes, side="destination side of a bipartite graph")
        events = src.numel()
        eid = torch.arange(events) if eid is None else _ids("eid", eid)
        columns = {
            "eid": eid,
            "weight": _floats("weight", weight, 1),
            "edge_feat": _floats("edge_feat", edge_feat, 2),
            "label": None if label is None else _integers("label", label),
        }
        for name, column in columns.items():
            if column is not None and column.shape[0] != events:
                raise DataError(f"{name} has {column.shape[0]} rows; there are {events} events")
        node_feat = _floats("node_feat", node_feat, 2)
        if node_feat is not None and node_feat.shape[0] != num_nodes:
            raise DataError(f"node_feat has {node_feat.shape[0]} rows; num_nodes is {num_nodes}")
        node_label = None if node_label is None else _integers("node_label", node_label)
        if node_label is not None and node_label.shape[0] != num_nodes:
            raise DataError(f"node_label has {node_label.shape[0]} rows; num_nodes is {num_nodes}")
        fallen = first_descent(t)
        if fallen is not None and not sort:
            raise DataError(
                f"t must not decrease: t[{fallen}] = {t[fallen].item()!r} comes after "
                f"t[{fallen - 1}] = {t[fallen - 1].item()!r}",
                hint="sort the events by time, or mark the file `sorted: false` on its card",
            )
        if fallen is not None:
            order = torch.sort(t, stable=True).indices
            src, dst, t = src[order], dst[order], t[order]
            columns = {k: v if v is None else v[order] for k, v in columns.items()}
        return cls(
            src=src,
            dst=dst,
            t=t,
            num_nodes=num_nodes,
            origin=origin or Origin("unnamed"),
            num_src=num_src,
            node_feat=node_feat,
            node_label=node_label,
            **columns,
        )

    def __len__(self) -> int:
        return self.src.numel()

    @property
    def num_events(self) -> int:
        return self.src.numel()

    @property
    def span(self) -> tuple[float, float]:
        """First and last time; (0.0, 0.0) when there are no events."""
        return (float(self.t[0]), float(self.t[-1])) if len(self) else (0.0, 0.0)

    def before(self, time: float) -> int:
        """Number of events strictly before `time`: events [0, before(time)) may be seen at it."""
        return int(torch.searchsorted(self.t, torch.tensor(float(time), dtype=torch.float64)))

    def select(self, first: int, last: int) -> EventStream:
        """Events first .. last - 1 as a view over the same vertices."""
        if not 0 <= first <= last <= len(self):
            raise InvalidInputError(
                f"events [{first}, {last}) asked for; 0 <= first <= last <= {len(self)} is allowed"
            )
        rows = slice(first, last)
        optional = {
            name: None if value is None else value[rows]
            for name, value in (
                ("eid", self.eid),
                ("weight", self.weight),
                ("edge_feat", self.edge_feat),
                ("label", self.label),
            )
        }
        return EventStream(
            src=self.src[rows],
            dst=self.dst[rows],
            t=self.t[rows],
            num_nodes=self.num_nodes,
            origin=self.origin,
            num_src=self.num_src,
            node_feat=self.node_feat,
            node_label=self.node_label,
            **optional,
        )

    def split(
        self, train: float = 0.7, val: float = 0.15
    ) -> tuple[EventStream, EventStream, EventStream]:
        """Chronological train, validation and test parts, as views.

        The cuts are at the time values of the rows at `train` and `train + val` of the events;
        a cut never runs through events of one time, which all go to the later part.

        Raises:
            InvalidInputError: unless 0 <= train, 0 <= val and train + val <= 1.
        """
        if not (train >= 0 and val >= 0 and train + val <= 1 + 1e-9):
            raise InvalidInputError(
                f"split({train}, {val}): both must be >= 0 and add up to at most 1"
            )
        events = len(self)
        cuts = [round(train * events), min(events, round((train + val) * events))]
        first, second = (self.before(float(self.t[c])) if c < events else events for c in cuts)
        return self.select(0, first), self.select(first, second), self.select(second, events)


def first_descent(t: Tensor) -> int | None:
    """Index of the first entry that is smaller than the one before it, or None."""
    fallen = t[1:] < t[:-1]
    return int(fallen.to(torch.uint8).argmax()) + 1 if bool(fallen.any()) else None


def _tensor(name: str, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach().cpu()
    array = np.asarray(value)
    if array.dtype == object or array.dtype.kind not in "iufb":
        raise DataError(f"{name} holds {array.dtype} values; numbers are allowed")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        if array.size and array.max() > np.iinfo(np.int64).max:
            where = int(array.argmax())
            raise DataError(f"{name}[{where}] = {array[where]} does not fit int64")
        array = array.astype(np.int64)
    array = np.ascontiguousarray(array)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _integers(name: str, value: Any) -> Tensor:
    column = _tensor(name, value)
    if column.dim() != 1:
        raise DataError(f"{name} has shape {tuple(column.shape)}; one dimension is allowed")
    if column.dtype.is_floating_point or column.dtype == torch.bool:
        if column.numel():
            raise DataError(f"{name} is {column.dtype}; integers are allowed")
        column = column.to(torch.int64)
    return column.to(torch.int64).contiguous()


_ids = _integers


def _times(value: Any) -> Tensor:
    column = _tensor("t", value)
    if column.dim() != 1:
        raise DataError(f"t has shape {tuple(column.shape)}; one dimension is allowed")
    exact = column.to(torch.float64).contiguous()
    if column.dtype == torch.int64 and bool((column.abs() > 2**53).any()):
        where = int((column.abs() > 2**53).to(torch.uint8).argmax())
        raise DataError(
            f"t[{where}] = {int(column[where])} is beyond 2**53 and would be rounded",
            hint="use seconds instead of nanoseconds, or times from the start of the data",
        )
    _finite("t", exact)
    return exact


def _floats(name: str, value: Any, dims: int) -> Tensor | None:
    if value is None:
        return None
    column = _tensor(name, value).to(torch.float32).contiguous()
    if column.dim() != dims:
        raise DataError(f"{name} has shape {tuple(column.shape)}; {dims} dimension(s) are allowed")
    _finite(name, column)
    return column


def _finite(name: str, column: Tensor) -> None:
    bad = ~torch.isfinite(column)
    if bool(bad.any()):
        flat = int(bad.reshape(-1).to(torch.uint8).argmax())
        where = ", ".join(str(int(i)) for i in np.unravel_index(flat, tuple(column.shape)))
        raise DataError(
            f"{name}[{where}] is {column.reshape(-1)[flat].item()}; only finite numbers are allowed"
        )


def _peak(ids: Tensor) -> int:
    return int(ids.max()) if ids.numel() else -1


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise DataError(f"{name} is {value!r}; an integer >= 0 is allowed")
    return int(value)


def _range(name: str, ids: Tensor, low: int, high: int, side: str = "") -> None:
    """Refuse ids outside low .. high - 1, naming the first."""
    bad = (ids < low) | (ids >= high)
    if bool(bad.any()):
        where = int(bad.to(torch.uint8).argmax())
        words = f" ({side})" if side else ""
        raise DataError(
            f"{name}[{where}] = {int(ids[where])}; ids{words} must satisfy {low} <= id < {high}"
        )
