"""Seconds of an epoch on eight V100: projections, and labelled as such (sections 7.1 and 7.2).

There is no such machine here, and the paper does not name what links its GPUs, so every epoch is
projected to two: `nvlink` (a DGX-1) and `pcie` (two switches of four). An epoch is made of

- communication: counted bytes of every exchange on the named topology, exchange after exchange,
  with a message per pair of workers, and one per stage for states of recurrences. Absolute;
- loading: counted rows that units of work copy into place, over a PCIe port. Absolute;
- computation: of the worker with most of it, from what a vertex-step, an edge and a unit of work
  cost one thread here. What depends on size is divided by `speed`, the 900 GB/s of a V100 over the
  copy bandwidth of one thread here; a unit's fixed cost (Python, launches) is left as it is.

Counts come from twins of the paper's graphs at a smaller size. What follows vertex-steps is
multiplied by their printed number over the counted one, what follows edges by that of edges. A twin
has no real communities: what a partitioner finds in it says nothing of the real graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import Tensor

from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.topology.model import Topology
from dgbench.runtime.topology.named import PCIE3, dgx1_v100, pcie_switch_pair
from dgbench.systems.dgc.volumes import FLOAT_BYTES, SPATIAL, EpochTraffic, Shape, traffic_of

if TYPE_CHECKING:
    from dgbench.kernels_cuda.csr import Csr
    from dgbench.kernels_cuda.supergraph import Supergraph
    from dgbench.systems.dgc.placement import Placement

V100_BYTES_PER_S: Final = 900e9
"""Published bandwidth of its memory."""

LINKS: Final = ("nvlink", "pcie")
WORKERS: Final = 8


def machine(links: str, workers: int = WORKERS) -> Topology:
    """The first `workers` V100 of a machine with `nvlink` or `pcie` links.

    Raises:
        InvalidInputError: other links, or more than eight workers.
    """
    if links not in LINKS:
        raise InvalidInputError(f"'links' is {links!r}, allowed: {', '.join(LINKS)}")
    whole = dgx1_v100() if links == "nvlink" else pcie_switch_pair()
    return whole.first(workers)


@dataclass(frozen=True, slots=True)
class Rates:
    """Cost of work on one thread of this machine, forward and backward.

    Attributes:
        vertex_s, edge_s: structure encoder, per vertex-step and per edge.
        time_s: time encoder, per row that it runs over, padding included.
        unit_s: fixed, per unit of work of the structure encoder.
        copy_bytes_per_s: one thread's copy bandwidth, read and written.
    """

    vertex_s: float
    edge_s: float
    time_s: float
    unit_s: float
    copy_bytes_per_s: float

    @property
    def speed(self) -> float:
        """Speed of a V100 in threads of this machine, by bandwidth of memory."""
        return V100_BYTES_PER_S / self.copy_bytes_per_s


@dataclass(frozen=True, slots=True)
class MeasuredEpoch:
    """A measured epoch on one thread.

    Attributes:
        vertices, edges, units, rows: of the structure encoder, and rows of the time encoder.
        structure_s, time_s: seconds of both encoders.
    """

    vertices: int
    edges: int
    units: int
    rows: int
    structure_s: float
    time_s: float


def fit_rates(runs: Sequence[MeasuredEpoch], copy_bytes_per_s: float) -> Rates:
    """Rates, none negative, with the least squares of relative errors.

    Raises:
        InvalidInputError: fewer than three runs, or runs that do not tell vertices, edges and units
            apart.
    """
    from scipy.optimize import nnls

    if len(runs) < 3 or not copy_bytes_per_s > 0:
        raise InvalidInputError(
            f"'runs' has {len(runs)} runs and the bandwidth is {copy_bytes_per_s}; needed: at "
            "least 3, and a positive bandwidth"
        )
    table = np.array([(r.vertices, r.edges, r.units) for r in runs], dtype=np.float64)
    seconds = np.array([r.structure_s for r in runs])
    scaled = table / seconds[:, None]
    most = np.maximum(scaled.max(axis=0), 1e-300)
    if np.linalg.matrix_rank(scaled / most) < 3:
        raise InvalidInputError(
            "'runs' do not tell vertices, edges and units apart",
            hint="two graphs with different edges per vertex-step, one of them in more units",
        )
    found = nnls(scaled / most, np.ones(len(runs)))[0] / most
    vertex_s, edge_s, unit_s = map(float, found)
    time_s = float(np.median([r.time_s / max(1, r.rows) for r in runs]))
    return Rates(vertex_s, edge_s, time_s, unit_s, copy_bytes_per_s)


@dataclass(frozen=True, slots=True)
class PlacementLoad:
    """Load of the workers under a placement, at the size that was counted.

    Attributes:
        vertices, edges, units, rows: int64[P]: vertex-steps and in-edges of the structure encoder,
            units of it, and vertex-steps of the time encoder.
        loaded: int64[P]: rows that units copy into place in one round; with `fused`, a worker's own
            and those of others.
        fused: int64[P].
        stages: times that workers wait for states of others, 1 where no sequence is cut.
        traffic: of an epoch.
    """

    vertices: Tensor
    edges: Tensor
    units: Tensor
    rows: Tensor
    loaded: Tensor
    fused: Tensor
    stages: int
    traffic: EpochTraffic


def load_of(graph: Supergraph, hears: Csr, placement: Placement, shape: Shape) -> PlacementLoad:
    """Count what a placement gives to whom; `hears` is `volumes.hearing(data, graph)`."""
    size = placement.workers
    structure, time = placement.structure.long(), placement.time.long()
    unit = placement.unit.long()
    lengths = hears.indptr.diff()
    reader = torch.repeat_interleave(
        torch.arange(graph.num_vertices), lengths, output_size=hears.nnz
    )
    heard = hears.indices.long()

    def halo(of: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Distinct pairs of a vertex-step and another part that reads it: (parts, readers)."""
        apart = of[reader] != of[heard]
        pairs = torch.unique(heard[apart] * count + of[reader[apart]])
        return pairs // count, pairs % count

    own = torch.bincount(structure, minlength=size)
    # A unit of a snapshot may lie on several workers, which then each load their part of it.
    place = unit * size + structure
    _, readers = halo(place, placement.units * size)
    _, fused = halo(structure, size)
    return PlacementLoad(
        vertices=own,
        edges=torch.bincount(structure[reader], minlength=size),
        units=torch.bincount(torch.unique(place) % size, minlength=size),
        rows=torch.bincount(time, minlength=size),
        loaded=own + torch.bincount(readers % size, minlength=size),
        fused=own + torch.bincount(fused, minlength=size),
        stages=1 if shape.attention else stages_of(graph, time),
        traffic=traffic_of(graph, hears, placement, shape),
    )


def stages_of(graph: Supergraph, worker: Tensor) -> int:
    """Most pieces that any entity's steps are cut into by their workers; each waits for the one
    before it. 0 without vertex-steps."""
    if not graph.num_vertices:
        return 0
    cut = torch.zeros(graph.num_vertices, dtype=torch.int64)
    cut[1:] = (graph.entity[1:] == graph.entity[:-1]) & (worker[1:] != worker[:-1])
    before = cut.cumsum(0)
    first = graph.start[:-1][graph.start.diff() > 0]
    base = torch.repeat_interleave(before[first], graph.start.diff()[graph.start.diff() > 0])
    return int((before - base).max()) + 1


@dataclass(frozen=True, slots=True)
class Factor:
    """Ratio of a projected graph's size to the counted one's.

    Attributes:
        vertices, edges: printed vertex-steps and edges over counted ones; both positive.
    """

    vertices: float
    edges: float

    def __post_init__(self) -> None:
        if not (self.vertices > 0 and self.edges > 0):
            raise InvalidInputError(
                f"factors are {self.vertices} and {self.edges}, allowed are numbers above 0"
            )


PROJECTED: Final = ("compute", "load", "communicate")
"""Parts of a projected epoch, in the order of `ProjectedChunkEpoch`."""


@dataclass(frozen=True, slots=True)
class ProjectedChunkEpoch:
    """A projected epoch in seconds, nothing overlapped. Never a measurement.

    Attributes:
        compute_s: of the worker with most of it. load_s: rows copied to the device.
        communicate_s: exchanges one after the other, and the gradients' all-reduce left out.
    """

    compute_s: float
    load_s: float
    communicate_s: float

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.compute_s + self.load_s + self.communicate_s


def project(
    load: PlacementLoad,
    shape: Shape,
    rates: Rates,
    topology: Topology,
    *,
    factor: Factor | None = None,
    fused: bool = False,
) -> ProjectedChunkEpoch:
    """An epoch of a placement on a machine.

    Args:
        load: counted. shape: of the model. rates: measured here.
        topology: with as many devices as the placement has workers.
        factor: how many times larger the projected graph is; None: it is the counted one.
        fused: chunks of a worker as one unit (the most that fusion can do), else unit by unit.

    Raises:
        InvalidInputError: another number of devices than workers.
    """
    size = len(load.vertices)
    if topology.size != size:
        raise InvalidInputError(f"the topology has {topology.size} devices for {size} workers")
    factor = factor or Factor(1.0, 1.0)
    vertices, edges = load.vertices.double(), load.edges.double() * factor.edges
    work = vertices * factor.vertices * rates.vertex_s + edges * rates.edge_s
    work = work + load.rows.double() * factor.vertices * rates.time_s
    # Larger graphs have larger chunks, not more of them; a stage launches its own work.
    units = torch.ones_like(vertices) if fused else load.units.double()
    compute = work / rates.speed + (units + load.stages - 1) * rates.unit_s
    more = (load.fused if fused else load.loaded).double() - vertices
    loaded = vertices * factor.vertices + more * factor.edges
    spent = 0.0
    for flow in load.traffic.flows:
        grown = factor.edges if flow.name.startswith(SPATIAL) else factor.vertices
        sent = flow.bytes.double().numpy() * grown
        messages = (sent > 0) * (load.stages - 1 if flow.name == "state" else 1)
        spent += topology.time(sent, messages)
    return ProjectedChunkEpoch(
        compute_s=float(compute.max()),
        load_s=float(loaded.max()) * sum(shape.round_dims) * FLOAT_BYTES / PCIE3,
        communicate_s=spent,
    )


def with_share(epoch: ProjectedChunkEpoch, sent: float) -> ProjectedChunkEpoch:
    """The same epoch where only a share of the rows travels (stale aggregation)."""
    if not 0 <= sent <= 1:
        raise InvalidInputError(f"'sent' is {sent}, allowed is a share from 0 to 1")
    return ProjectedChunkEpoch(epoch.compute_s, epoch.load_s, epoch.communicate_s * sent)
