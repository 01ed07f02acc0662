"""Rows and bytes that workers send each other in an epoch, from a placement alone.

An exchange sends each vertex-step once to each other worker that needs it, whatever number of rows
there read it (section 4.1: a worker keeps one copy of a remote embedding). So what counts are
distinct pairs of a vertex-step and a remote worker:

- `structure0`, `structure1`: the vertex-step shows its row to workers of those that hear it;
- `state`: a recurrence that goes on at another worker hands its states on, one step to the next;
- `time`: attention reads all steps of the entity, so each worker that owns one gets all others;
- `move`: where the time encoder runs at another worker than the structure encoder.

Backward the same rows go the other way as gradients, except those of a round that shows the
input itself: nothing is learned from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.dgc.supergraph import ExchangeCounts

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence
    from dgbench.kernels_cuda.supergraph import Supergraph
    from dgbench.models.sequence import SequenceModel
    from dgbench.systems.dgc.placement import Placement

Direction = Literal["forward", "backward"]
FLOAT_BYTES: Final = 4
SPATIAL: Final = "structure"
TEMPORAL: Final = ("state", "time", "move")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Dimensions of a model that determine its work and its traffic.

    Attributes:
        feature_dim, hidden_dim: floats of a vertex-step at the input and inside.
        round_dims: floats that each round of the structure encoder shows.
        round_grads: whether the gradient of what a round shows goes back.
        spatial_dim: floats that the structure encoder gives.
        state_dims: floats of each state of the recurrence; () for attention.
        attention: the time encoder reads all steps of an entity.
    """

    feature_dim: int
    hidden_dim: int
    round_dims: tuple[int, ...]
    round_grads: tuple[bool, ...]
    spatial_dim: int
    state_dims: tuple[int, ...]
    attention: bool

    @property
    def round_floats(self) -> int:
        """Floats, there and back, of one vertex-step shown to one other worker in all rounds."""
        parts = zip(self.round_dims, self.round_grads, strict=True)
        return sum(width * (1 + back) for width, back in parts)

    @property
    def state_floats(self) -> int:
        """Floats, there and back, of a sequence cut once; of one embedding for attention."""
        return 2 * (self.spatial_dim if self.attention else sum(self.state_dims))

    @property
    def move_floats(self) -> int:
        """Floats, there and back, of a row that changes workers between the two encoders."""
        return 2 * self.spatial_dim

    def counts(self) -> ExchangeCounts:
        """Weights of edges as profiled (section 3.2): all floats of an epoch along a cut edge."""
        return ExchangeCounts(
            spatial=1,
            spatial_floats=self.round_floats,
            temporal=1,
            temporal_floats=self.state_floats,
            all_steps=self.attention,
            move_floats=self.move_floats,
        )


def shape_of(model: SequenceModel) -> Shape:
    """The shape of a model, by showing it one row in each round (section 3.2's counter run)."""
    grads = [_learns(model, k) for k in range(len(model.round_dims))]
    return Shape(
        feature_dim=model.feature_dim,
        hidden_dim=model.hidden_dim,
        round_dims=tuple(model.round_dims),
        round_grads=tuple(grads),
        spatial_dim=model.spatial_dim,
        state_dims=tuple(model.state_dims),
        attention=not model.state_dims,
    )


def _learns(model: SequenceModel, k: int) -> bool:
    """Return True if round k's output depends on a parameter; from round 1 on it always does."""
    if k > 0:
        return True
    kind = next(model.parameters())
    with torch.enable_grad():
        row = torch.zeros(1, model.feature_dim, device=kind.device, dtype=kind.dtype)
        return model.show(0, row).requires_grad


@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """One exchange of an epoch.

    Attributes:
        name: `structure0`, `structure1`, `state`, `time` or `move`.
        direction: `backward` flows carry gradients.
        width: floats of a row.
        rows: int64[P, P], sender and receiver; the diagonal is zero.
    """

    name: str
    direction: Direction
    width: int
    rows: Tensor

    @property
    def bytes(self) -> Tensor:
        """int64[P, P]."""
        return self.rows * (self.width * FLOAT_BYTES)


@dataclass(frozen=True, slots=True)
class EpochTraffic:
    """All exchanges of one epoch, without the all-reduce of gradients and what the loss needs."""

    flows: tuple[Flow, ...]

    def select(self, name: str | None = None, direction: Direction | None = None) -> list[Flow]:
        """Flows whose name begins with `name`, in a direction; all for None."""
        return [
            flow
            for flow in self.flows
            if (name is None or flow.name.startswith(name))
            and (direction is None or flow.direction == direction)
        ]

    def rows(self, name: str | None = None, direction: Direction | None = None) -> int:
        """Rows of all pairs of workers."""
        return sum(int(flow.rows.sum()) for flow in self.select(name, direction))

    def bytes(self, name: str | None = None, direction: Direction | None = None) -> int:
        """Bytes of all pairs of workers."""
        return sum(int(flow.bytes.sum()) for flow in self.select(name, direction))

    @property
    def spatial(self) -> int:
        """Bytes of the structure encoder."""
        return self.bytes(SPATIAL)

    @property
    def temporal(self) -> int:
        """Bytes of the time encoder, with what moves to it."""
        return sum(self.bytes(name) for name in TEMPORAL)

    def matrix(self) -> Tensor:
        """int64[P, P] bytes."""
        return torch.stack([flow.bytes for flow in self.flows]).sum(0)


def count_traffic(
    data: SnapshotSequence, graph: Supergraph, placement: Placement, shape: Shape
) -> EpochTraffic:
    """Count the traffic of an epoch under a placement exactly, without running the model.

    Args:
        data: the snapshots that `graph` was made of; it may go on after them.
        graph: the vertex-steps.
        placement: a worker for each, in either encoder.
        shape: of the model, from `shape_of`.

    Raises:
        InvalidInputError: a placement of other vertex-steps, workers outside [0, P), or snapshots
            that are not those of the graph.
    """
    return traffic_of(graph, hearing(data, graph), placement, shape)


def traffic_of(graph: Supergraph, hears: Csr, placement: Placement, shape: Shape) -> EpochTraffic:
    """`count_traffic` with `hearing(data, graph)` at hand, for several placements."""
    size = placement.workers
    for name in ("structure", "time"):
        _check_workers(getattr(placement, name), name, graph.num_vertices, size)
    structure, time = placement.structure.long(), placement.time.long()
    flows: list[Flow] = []

    def add(name: str, width: int, rows: Tensor, back: bool = True) -> None:
        flows.append(Flow(name, "forward", width, rows))
        if back:
            flows.append(Flow(name, "backward", width, rows.t().contiguous()))

    shown = structure_rows(hears, structure, size)
    for k, (width, back) in enumerate(zip(shape.round_dims, shape.round_grads, strict=True)):
        add(f"{SPATIAL}{k}", width, shown, back)
    if placement.time is not placement.structure:
        add("move", shape.spatial_dim, _pairs(structure, time, size))
    if shape.attention:
        add("time", shape.spatial_dim, attention_rows(graph, time, size))
    else:
        add("state", sum(shape.state_dims), state_rows(graph, time, size))
    return EpochTraffic(tuple(flows))


def hearing(data: SnapshotSequence, graph: Supergraph) -> Csr:
    """V x V over vertex-steps: row v holds those that v hears, as loaded, without itself.

    Raises:
        InvalidInputError: an edge of a vertex that `graph` does not have in that snapshot.
    """
    if len(data) < graph.steps:
        raise InvalidInputError(
            f"the graph has {graph.steps} snapshots, the sequence only {len(data)}"
        )
    key = graph.entity.long() * graph.steps + graph.step
    reader, heard = [], []
    for t in range(graph.steps):
        csr = data.topology[t]
        row = torch.repeat_interleave(torch.arange(csr.num_rows), csr.indptr.diff())
        other = csr.indices.long()
        keep = row != other
        reader.append(row[keep] * graph.steps + t)
        heard.append(other[keep] * graph.steps + t)
    rows, columns = (_places(key, torch.cat(side)) for side in (reader, heard))
    order = torch.argsort(rows * max(1, graph.num_vertices) + columns)
    indptr = torch.zeros(graph.num_vertices + 1, dtype=torch.int64)
    torch.cumsum(torch.bincount(rows, minlength=graph.num_vertices), 0, out=indptr[1:])
    return Csr(indptr, columns[order].to(torch.int32), graph.num_vertices)


def structure_rows(hears: Csr, worker: Tensor, size: int) -> Tensor:
    """int64[P, P]: vertex-steps of a worker that a round shows to another, each once."""
    reader = torch.repeat_interleave(worker, hears.indptr.diff(), output_size=hears.nnz)
    return _distinct(hears.indices.long(), reader, worker, size)


def state_rows(graph: Supergraph, worker: Tensor, size: int) -> Tensor:
    """int64[P, P]: sequences that end at a worker and go on at another, for each of their cuts."""
    entity = graph.entity
    goes_on = entity[1:] == entity[:-1]
    return _pairs(worker[:-1][goes_on], worker[1:][goes_on], size)


def attention_rows(graph: Supergraph, worker: Tensor, size: int) -> Tensor:
    """int64[P, P]: embeddings of a worker's vertex-steps that others need for the same entity."""
    entities = graph.start.numel() - 1
    owned = torch.zeros(entities * size, dtype=torch.int64)
    owned.index_add_(0, graph.entity.long() * size + worker, torch.ones_like(worker))
    owned = owned.view(entities, size)
    # Steps at the sender, once for each entity of which the receiver has a step.
    rows = owned.double().t() @ (owned > 0).double()
    return rows.round().long().fill_diagonal_(0)


def _distinct(ids: Tensor, reader: Tensor, worker: Tensor, size: int) -> Tensor:
    """int64[P, P] of the distinct (vertex-step, remote worker) among `ids` and who reads them."""
    seen = torch.zeros(worker.numel() * size, dtype=torch.bool)
    seen[ids * size + reader] = True
    found = seen.nonzero().squeeze(1)
    return _pairs(worker[found // size], found % size, size)


def _pairs(sender: Tensor, receiver: Tensor, size: int) -> Tensor:
    counts = torch.bincount(sender * size + receiver, minlength=size * size)
    return counts.view(size, size).fill_diagonal_(0)


def _places(key: Tensor, wanted: Tensor) -> Tensor:
    places = torch.searchsorted(key, wanted)
    there = places < key.numel()
    there[there.clone()] = key[places[there]] == wanted[there]
    if not bool(there.all()):
        raise InvalidInputError(
            "an edge ends at a vertex-step that the graph does not have",
            hint="pass the snapshots that the graph was made of",
        )
    return places


def _check_workers(worker: Tensor, name: str, count: int, size: int) -> None:
    if worker.dim() != 1 or worker.numel() != count:
        raise InvalidInputError(
            f"{name} has shape {list(worker.shape)}, expected [{count}], one worker for each "
            "vertex-step"
        )
    if count and (int(worker.min()) < 0 or int(worker.max()) >= size):
        raise InvalidInputError(
            f"{name} holds workers {int(worker.min())} to {int(worker.max())}, allowed are 0 to "
            f"{size - 1}"
        )
