"""Training on a stream of events: the workload and its data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import numpy as np
import torch
from torch import Tensor

from dgbench.models.ctdg import STREAM_MODELS
from dgbench.runtime.errors import InvalidInputError, UnsupportedError
from dgbench.runtime.fields import check_choices, check_count, check_counts
from dgbench.systems.base.data import describe

if TYPE_CHECKING:
    from dgbench.datasets import EventStream

SAMPLINGS: Final = ("recent", "uniform")
TRAIN: Final = 0.8
VALIDATE: Final = 0.1
"""Shares of a stream's events, first in time, that are trained on and that choose settings (T-GCN,
section 6.1.3)."""
_NODE_SEED, _EDGE_SEED = 104_729, 1_299_709
"""Apart from each other and from the seeds of parameters."""


class StreamWorkload(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Temporal link prediction on a stream of events.

    Attributes:
        dataset: name of a `DatasetCard`.
        model: `tgn`, `tgat`, `dysat`, `graphsage` or `gat`.
        source: `real`, `twin`, or `auto` (real where it can be had, else the twin).
        scale: size factor of a twin.
        seed: seeds parameters, features that are drawn, negatives, samples and twins.
        events: how many are kept, the first ones; None keeps all.
        undirected: an edge is found from both of its ends, or from its source alone.
        node_dim, edge_dim: floats of a vertex and of an edge; those of the data where it has that
            many, else drawn. 0: none.
        fanouts: neighbours that a hop takes at most, the roots' hop first; one layer each.
        sampling: `recent` or `uniform`.
        window: length of time in which a hop looks back; None looks back to the beginning.
        snapshots: windows one behind the other (DySAT); 1 without a window.
        prop_time: neighbours are asked for their own neighbours at the time of their root, so that
            every hop stays in the root's snapshot, or at the time of their edge (False). None: as
            TGL and GNNFlow are released, True for DySAT and False for all others.
        closed: a hop may also find edges at its target's own time, which leaks what is predicted.
        hidden_dim, time_dim, memory_dim: floats of an embedding, of an encoded time, of a memory.
        heads: of attention; divides `hidden_dim`.
        dropout: share of weights dropped in training.
        batch: events of an optimiser step.
        lr: learning rate of Adam.
        chunks: a batch is so many chunks long; each epoch begins at a random one of them (random
            chunk scheduling of TGL). 1: batches are always the same.
        strict_time: memories (TGN) never hold events of the time that is predicted: batches end
            with the time value that fills them, and where a long one is cut into several batches,
            memories are written when it is over. False: batches of equally many events, as TGL and
            GNNFlow cut them, which see events of their first time that stand in the batch before.
    """

    dataset: str
    model: Literal["tgn", "tgat", "dysat", "graphsage", "gat"]
    source: Literal["auto", "real", "twin"] = "auto"
    scale: float = 1.0
    seed: int = 1
    events: int | None = None
    undirected: bool = True
    node_dim: int = 100
    edge_dim: int = 100
    fanouts: tuple[int, ...] = (10,)
    sampling: Literal["recent", "uniform"] = "recent"
    window: float | None = None
    snapshots: int = 1
    prop_time: bool | None = None
    closed: bool = False
    hidden_dim: int = 100
    time_dim: int = 100
    memory_dim: int = 100
    heads: int = 2
    dropout: float = 0.0
    batch: int = 600
    lr: float = 1e-4
    chunks: int = 1
    strict_time: bool = True

    @property
    def root_times(self) -> bool:
        """`prop_time`, with what is released where it is None."""
        return self.model == "dysat" if self.prop_time is None else self.prop_time

    @property
    def ends_with_time(self) -> bool:
        """True if batches end where time values end: for models with memory, with `strict_time`."""
        return self.strict_time and self.model == "tgn"

    def check(self) -> StreamWorkload:
        """Return self; raise InvalidInputError or UnknownKeyError naming a field out of range."""
        check_choices(self, {"model": STREAM_MODELS, "sampling": SAMPLINGS})
        least = {"node_dim": 0, "edge_dim": 0}
        if self.model in ("graphsage", "gat") or (self.model == "dysat" and self.edge_dim == 0):
            least["node_dim"] = 1  # they see nothing else
        counts = ("hidden_dim", "time_dim", "memory_dim", "heads", "batch", "chunks", "snapshots")
        for name, low in least.items():
            check_count(name, getattr(self, name), low)
        check_counts(self, counts, optional=("events",))
        if not self.fanouts or any(not isinstance(k, int) or k < 1 for k in self.fanouts):
            raise InvalidInputError(f"fanouts is {self.fanouts!r}; integers >= 1 are allowed")
        if self.hidden_dim % self.heads:
            raise InvalidInputError(
                f"heads is {self.heads}, allowed are divisors of hidden_dim {self.hidden_dim}"
            )
        if self.batch % self.chunks:
            raise InvalidInputError(
                f"chunks is {self.chunks}, allowed are divisors of batch {self.batch}"
            )
        if self.window is not None and not self.window > 0:
            raise InvalidInputError(f"window is {self.window!r}; a length > 0 or None is allowed")
        if self.snapshots > 1 and (self.window is None or self.model != "dysat"):
            raise InvalidInputError(
                f"snapshots is {self.snapshots}; more than 1 needs a window and the model 'dysat'"
            )
        if not 0 <= self.dropout < 1:
            raise InvalidInputError(f"dropout is {self.dropout!r}, allowed is a share in [0, 1)")
        if not self.lr > 0:
            raise InvalidInputError(f"lr is {self.lr!r}; a number > 0 is allowed")
        return self


@dataclass(frozen=True, slots=True, eq=False)
class StreamData:
    """The data of a workload.

    Attributes:
        events: in time order; an event's `eid` is its ordinal, 0 .. E - 1.
        node_feat: float32[N, node_dim], or None.
        edge_feat: float32[E, edge_dim] by `eid`, or None.
        notes: sentences on what was drawn, for rows.
        destinations: int64[D] that negatives are drawn from, of a prefix those that occur in it;
            None of a whole stream: the destinations' side of a bipartite graph, else all vertices.
    """

    events: EventStream
    node_feat: Tensor | None
    edge_feat: Tensor | None
    notes: tuple[str, ...] = ()
    destinations: Tensor | None = None

    @property
    def num_nodes(self) -> int:
        """Vertices of the stream."""
        return self.events.num_nodes

    def describe(self) -> dict[str, Any]:
        """The `data` field of a measurement."""
        found = describe(self.events)  # type: ignore[arg-type]
        return found | {"note": "; ".join(filter(None, (found["note"], *self.notes)))}


def load_stream(workload: StreamWorkload) -> StreamData:
    """The events of a workload with their features.

    Raises:
        UnknownKeyError, InvalidInputError: a field out of range.
        MissingDataError, DataError: from the datasets floor.
    """
    from dgbench import datasets

    workload.check()
    events = datasets.open_events(workload.dataset, workload.source, workload.scale, workload.seed)
    return stream_data(events, workload)


def stream_data(events: EventStream, workload: StreamWorkload) -> StreamData:
    """The first events of a stream that a workload keeps, with features of its widths.

    Features are drawn from a normal distribution where the data has none of that width.
    """
    events, destinations = first_events(events, workload.events)
    if len(events) == 0:
        raise InvalidInputError(f"'{workload.dataset}' has no events, at least 1 is needed")
    notes: list[str] = []
    node_feat = _features(
        "vertices", events.node_feat, events.num_nodes, workload.node_dim,
        workload.seed + _NODE_SEED, notes,
    )  # fmt: skip
    edge_feat = _features(
        "edges", events.edge_feat, len(events), workload.edge_dim,
        workload.seed + _EDGE_SEED, notes,
    )  # fmt: skip
    events = replace(
        events, eid=torch.arange(len(events)), node_feat=None, edge_feat=None, label=None
    )
    return StreamData(events, node_feat, edge_feat, tuple(notes), destinations)


def first_events(events: EventStream, count: int | None) -> tuple[EventStream, Tensor | None]:
    """The first `count` events, and the destinations that occur in them.

    Of a whole stream the second is None. A prefix keeps the vertices of the whole stream, most of
    which have no event in it, so that a negative drawn from all of them is told at a glance.
    """
    if count is None or count >= len(events):
        return events, None
    events = events.select(0, count)
    return events, torch.unique(events.dst)


def _features(
    what: str, held: Tensor | None, count: int, dim: int, seed: int, notes: list[str]
) -> Tensor | None:
    if dim == 0:
        return None
    if held is not None and held.shape[1] == dim:
        return held
    has = "has none" if held is None else f"has {held.shape[1]}"
    notes.append(f"{dim} random features of {what} (seed {seed}); the data {has}")
    draw = torch.Generator().manual_seed(seed)
    return torch.empty(count, dim).normal_(generator=draw)


def part_ends(events: EventStream) -> tuple[int, int]:
    """Ends of the parts of a stream that are trained on and that choose settings; the rest tests.

    Events of one time are never parted, so a part may be empty.
    """
    train, validate, _ = events.split(TRAIN, VALIDATE)
    return len(train), len(train) + len(validate)


def check_parts(train_end: int, validate_end: int, events: int) -> None:
    """Raise UnsupportedError where a part of a stream is empty."""
    sizes = {
        "training": train_end,
        "validation": validate_end - train_end,
        "test": events - validate_end,
    }
    for name, size in sizes.items():
        if size == 0:
            raise UnsupportedError(
                f"the {name} part of the stream's {events:,} events is empty",
                hint="events of one time are never parted: give the stream more events, or times "
                "that tell them apart",
            )


def negatives(workload: StreamWorkload, data: StreamData, first: int, last: int) -> Tensor:
    """int64[last - first]: of events first .. last - 1, vertices that stand in for destinations.

    Uniform over `StreamData.destinations`; as usual, one may hit the true destination. A function
    of the seed and an event's ordinal alone, so the same for any order, batch size and number of
    workers.
    """
    return negatives_of(workload, data, torch.arange(first, last))


def negatives_of(workload: StreamWorkload, data: StreamData, events: Tensor) -> Tensor:
    """`negatives` of events by their ordinals, int64[n]."""
    return drawn_ends(mixed(workload.seed, 0, events.numpy()), data.events, data.destinations)


def drawn_ends(draws: np.ndarray, events: EventStream, destinations: Tensor | None) -> Tensor:
    """int64[n]: a destination for each draw (uint64), see `StreamData.destinations`."""
    low = events.num_src or 0
    side = events.num_nodes - low if destinations is None else destinations.numel()
    place = torch.from_numpy((draws % np.uint64(max(1, side))).astype(np.int64))
    return place + low if destinations is None else destinations[place]


def mixed(seed: int, stream: int, number: Any) -> np.ndarray:
    """uint64 in [0, 2**63), like `number`: bits that look random (SplitMix64, Steele et al. 2014).

    Args:
        seed: of the run.
        stream: tells draws for different ends apart.
        number: integers >= 0.
    """
    with np.errstate(over="ignore"):
        x = np.asarray(number).astype(np.uint64)
        for word in (seed, stream):
            x = x + np.uint64(0x9E3779B97F4A7C15) * np.uint64((word % 2**62) + 1)
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            x = x ^ (x >> np.uint64(31))
    return x >> np.uint64(1)
