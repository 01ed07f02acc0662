"""Seconds of an epoch on machines that are not here: projections, and labelled as such.

An epoch on P ranks is made of three parts (ESDG, SC 2021, Figure 5):

- communication: counted bytes and messages of every link on a named topology. Absolute.
- transfer: counted bytes of a rank's snapshots over its PCIe port. Absolute.
- computation: measured here, on one thread, running one rank's share alone (`shares`). A fit takes
  it apart into what an epoch costs whatever the share is, what every snapshot costs whatever its
  size is (Python and kernel launches: as they are here), and what every vertex-step costs, which is
  divided by `speed`: how many times faster a device is.

Nobody knows the speed of a device that is not here, so there are two readings, and a claim stands
only where both agree: `bandwidth`, the ratio of the V100's 900 GB/s to the copy bandwidth of one
thread here; and `printed`, the speed with which the model takes, on 4 ranks, the seconds of Table 2
(so that its other times test the projection).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dgbench.models import TimelineModel
from dgbench.runtime.collectives import ring_share
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.topology import Topology, esdg_cluster, h200_node
from dgbench.systems.esdg.experiments.settings import table2
from dgbench.systems.esdg.partition import BlockShares, block_ranges
from dgbench.systems.esdg.plan import border_bytes, fewest_equal_blocks, paper_cost
from dgbench.systems.esdg.volumes import timeline, vertex_floats

if TYPE_CHECKING:
    from dgbench.systems.esdg.experiments.parts import MeasuredShare

V100_BYTES_PER_S = 900e9
H200_BYTES_PER_S = 4800e9
"""Published bandwidth of device memory."""

PCIE3_BYTES_PER_S = 12e9
PCIE5_BYTES_PER_S = 50e9
"""Bandwidth of a large pinned copy on sixteen lanes."""

V100_MEMORY = 32 * 10**9
GPUS_PER_NODE = 8
FEATURES = 2
"""Floats per vertex of the inputs."""
ITEM = 4

PRINTED_RANKS = 4
"""GPUs of Table 2 from which the reading `printed` takes its speed."""

TABLE2_STEPS, TABLE2_NODES = 192, 1_000_000
"""T of Table 2, to which its volumes fit [derived], and N of its graph."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Cost of computing for one rank here, on one thread.

    Attributes:
        epoch_s: per epoch, whatever the share. partner_s: per rank of the group.
        step_s: per snapshot. vertex_step_s: per vertex and snapshot, with the edges that the
            measured graph has per vertex.
        error: largest relative error with which a fit to the other shares predicts one.
        typical: median of these errors.
    """

    epoch_s: float
    partner_s: float
    step_s: float
    vertex_step_s: float
    error: float = 0.0
    typical: float = 0.0

    def time(self, size: int, steps: float, vertex_steps: float, speed: float = 1.0) -> float:
        """Seconds of one of `size` ranks on a device `speed` times as fast as one thread here."""
        fixed = self.epoch_s + self.partner_s * size + self.step_s * steps
        return fixed + self.vertex_step_s * vertex_steps / speed


def fit_costs(shares: Sequence[MeasuredShare]) -> Costs:
    """Costs, none negative, with the least squares of relative errors.

    Raises:
        InvalidInputError: fewer than five shares, or shares that do not tell the costs apart.
    """
    if len(shares) < 5:
        raise InvalidInputError(f"'shares' has {len(shares)} shares, needed: at least 5")
    rows = np.array([(1.0, s.size, s.steps, s.vertex_steps) for s in shares])
    seconds = np.array([s.seconds for s in shares])
    if np.linalg.matrix_rank(rows / rows.max(axis=0)) < 4:
        raise InvalidInputError(
            "'shares' do not tell the costs apart", hint="two numbers of vertices and of ranks"
        )
    errors = []
    for i in range(len(shares)):
        keep = np.arange(len(shares)) != i
        found = _solve(rows[keep], seconds[keep])
        errors.append(abs(float(rows[i] @ found) / seconds[i] - 1))
    ends = float(max(errors)), float(np.median(errors))
    return Costs(*map(float, _solve(rows, seconds)), *ends)


def _solve(rows: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    from scipy.optimize import nnls

    scaled = rows / seconds[:, None]
    most = scaled.max(axis=0)
    found, _ = nnls(scaled / most, np.ones(len(seconds)))
    return found / most


@dataclass(frozen=True, slots=True)
class ProjectedModel:
    """Trained model and its size in the projection.

    Attributes:
        model: `cd_gcn`, `tm_gcn` or `evolvegcn_o`.
        steps, nodes: T and N.
        costs: measured on a smaller graph of this kind.
        plain_bytes, difference_bytes: mean of a snapshot sent as coordinates, and as difference.
        window: of TM-GCN, for the memory of a block's border.
    """

    model: str
    steps: int
    nodes: int
    costs: Costs
    plain_bytes: float = 0.0
    difference_bytes: float = 0.0
    window: int = 1

    def built(self) -> TimelineModel:
        """The model with the paper's widths, without data."""
        return _built(self.model, self.window)


@lru_cache(maxsize=32)
def _built(model: str, window: int = 1) -> TimelineModel:
    return timeline(model, window=window)


@dataclass(frozen=True, slots=True)
class TargetMachine:
    """Topology, speed of a device in threads of this machine, and bytes per second of its host's
    link."""

    topology: Topology
    speed: float
    host_link: float = PCIE3_BYTES_PER_S


@lru_cache(maxsize=64)
def cluster(size: int) -> Topology:
    """The first `size` devices of the paper's cluster."""
    return esdg_cluster(max(1, -(-size // GPUS_PER_NODE))).first(size)


def v100_cluster(size: int, speed: float) -> TargetMachine:
    """`size` V100 of the paper's cluster."""
    return TargetMachine(cluster(size), speed)


def h200(size: int, speed: float) -> TargetMachine:
    """`size` H200 of one node with NVSwitch; `speed` is that of a V100.

    Raises:
        InvalidInputError: more than eight.
    """
    faster = speed * H200_BYTES_PER_S / V100_BYTES_PER_S
    return TargetMachine(h200_node().first(size), faster, PCIE5_BYTES_PER_S)


@dataclass(frozen=True, slots=True)
class ProjectedSnapshotEpoch:
    """A projected epoch: seconds of the slowest rank, nothing overlapped. Never a measurement.

    Attributes:
        compute_s, transfer_s, communicate_s: as in Figure 5.
    """

    compute_s: float
    transfer_s: float
    communicate_s: float

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.compute_s + self.transfer_s + self.communicate_s

    @property
    def share(self) -> float:
        """Of communication."""
        return self.communicate_s / self.seconds


def plan_blocks(job: ProjectedModel, size: int, memory: float = V100_MEMORY) -> int:
    """As few blocks as fit on `size` devices in the paper's layout, shares being equal.

    Raises:
        InvalidInputError: no number of blocks fits.
    """
    model = job.built()
    step = paper_cost(model).of(round(job.plain_bytes / 20), job.nodes)
    border = border_bytes(model, job.nodes)
    return fewest_equal_blocks(job.steps, step, border, int(0.8 * memory * size))


@lru_cache(maxsize=1024)
def redistribution(
    model: TimelineModel, steps: int, nodes: int, size: int, blocks: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Bytes and messages [P, P] of an epoch's redistributions, as `count_snapshot` counts them.

    In closed form, so that 128 ranks cost nothing: forward and re-run alike, backward the reverse.
    """
    count, messages = np.zeros((size, size)), np.zeros((size, size))
    for times in block_ranges(steps, blocks):
        shares = BlockShares(times, nodes, size)
        held = np.array([len(s[0]) for s in shares.steps])
        owned = np.array([len(v) for v in shares.vertices])
        there = np.outer(held, owned).astype(float)
        for to_vertices, back in model.redistributed_dims:
            for pairs, width in ((there, to_vertices), (there.T, back)):
                count += width * ITEM * (2 * pairs + pairs.T)
                messages += 2.0 * (pairs > 0) + (pairs.T > 0)
    for matrix in (count, messages):
        np.fill_diagonal(matrix, 0)
    return count, messages


@lru_cache(maxsize=1)
def exchange_excess() -> float:
    """Slowdown of Table 2's exchanges against counted traffic at peak rates.

    The median over two models and two numbers of ranks. What exchanges took is derived: an epoch
    less that of EvolveGCN, which sends no activations but computes less, too.
    """
    silent = table2("time", "evolvegcn_o")
    found = []
    for model in ("tm_gcn", "cd_gcn"):
        for size, spent in table2("time", model).items():
            if size == PRINTED_RANKS:
                continue
            sent = redistribution(_built(model), TABLE2_STEPS, TABLE2_NODES, size)
            found.append((spent - silent[size]) / 1e3 / cluster(size).time(*sent))
    return float(np.median(found))


def with_excess(epochs: Mapping[int, ProjectedSnapshotEpoch]) -> dict[int, ProjectedSnapshotEpoch]:
    """The same epochs, exchanges as much slower as Table 2's were."""
    return {
        p: replace(e, communicate_s=exchange_excess() * e.communicate_s) for p, e in epochs.items()
    }


@lru_cache(maxsize=256)
def gradient_ring(model: TimelineModel, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Bytes and messages [P, P] of the all-reduce of the gradients, as a ring."""
    numel = sum(p.numel() for p in model.parameters())
    count, messages = np.zeros((size, size)), np.zeros((size, size))
    for rank in range(size if size > 1 else 0):
        floats, sent = ring_share(numel, rank, size)
        count[rank, (rank + 1) % size] = ITEM * floats
        messages[rank, (rank + 1) % size] = sent
    return count, messages


def _epoch(
    job: ProjectedModel, machine: TargetMachine, size: int, steps: int, vertex_steps: float,
    sent: float, exchanged: tuple[np.ndarray, np.ndarray],
) -> ProjectedSnapshotEpoch:  # fmt: skip
    """An epoch of a rank of `size` that convolves and brings so much, and exchanges these bytes and
    messages."""
    seconds = job.costs.time(size, steps, vertex_steps, machine.speed)
    found = machine.topology.project([seconds], *exchanged)
    reduced = machine.topology.time(*gradient_ring(job.built(), size))
    return ProjectedSnapshotEpoch(
        compute_s=found.compute_s,
        transfer_s=2 * sent / machine.host_link,
        communicate_s=found.communicate_s + reduced,
    )


def snapshot_epoch(
    job: ProjectedModel, size: int, machine: TargetMachine
) -> ProjectedSnapshotEpoch:
    """An epoch of the snapshot partition on `size` ranks, snapshots travelling as differences."""
    blocks, steps = plan_blocks(job, size), held_steps(job, size)
    runs = min(blocks, steps)
    sent = runs * job.plain_bytes + (steps - runs) * job.difference_bytes
    sent += steps * job.nodes * FEATURES * ITEM
    exchanged = redistribution(job.built(), job.steps, job.nodes, size, blocks)
    return _epoch(job, machine, size, steps, steps * job.nodes, sent, exchanged)


def vertex_epoch(
    job: ProjectedModel, size: int, machine: TargetMachine, remote: float
) -> ProjectedSnapshotEpoch:
    """An epoch of the vertex partition, the baseline of Table 2.

    Its convolutions ask for rows step by step, so there is a message per pair of ranks, step and
    pass [our reading]; snapshots travel plain, for it has no graph difference. A vertex's features
    are asked for by `remote` other ranks, on average over vertices and steps, of all ranks alike.
    Gathering rows into buffers is not in it.
    """
    model = job.built()
    floats = vertex_floats(model, round(remote * job.steps * job.nodes))
    apart = 1.0 - np.eye(size)
    exchanged = (
        apart * ITEM * floats / max(1, size * (size - 1)),
        apart * 3 * job.steps * (model.num_layers - 1),
    )
    sent = job.steps * (job.plain_bytes + job.nodes * FEATURES * ITEM) / size
    return _epoch(job, machine, size, job.steps, job.steps * job.nodes / size, sent, exchanged)


def speedups(epochs: Mapping[int, ProjectedSnapshotEpoch]) -> dict[int, float]:
    """Speed-up by P in the paper's convention: P0 t(P0) / t(P), P0 the smallest P there is."""
    first = min(epochs)
    return {p: first * epochs[first].seconds / epoch.seconds for p, epoch in sorted(epochs.items())}


CLUSTER = "16 nodes of 8 V100, NVLink inside, 2 x 100 Gb/s InfiniBand between"
"""The paper's machine in words (section 6.1); links inside a node are taken to be NVLink."""


def printed_speed(job: ProjectedModel) -> float | None:
    """The speed with which the model takes the printed seconds on the paper's cluster, or None.

    None where transfer, communication and launches alone take as long as the paper's epoch.
    """
    size = PRINTED_RANKS
    endless = snapshot_epoch(job, size, v100_cluster(size, float("inf")))
    left = table2("time", job.model)[size] / 1e3 - endless.seconds
    work = job.costs.vertex_step_s * held_steps(job, size) * job.nodes
    return work / left if left > 0 and work > 0 else None


def held_steps(job: ProjectedModel, size: int) -> int:
    """Snapshots of the rank with the longest share, over all blocks."""
    return sum(-(-len(times) // size) for times in block_ranges(job.steps, plan_blocks(job, size)))
