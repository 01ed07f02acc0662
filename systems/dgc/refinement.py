"""What workers send each other as a hypergraph, and moves that lower it (our addition to DGC).

Label propagation and Algorithm 1 count the weight of cut edges. What is sent is less: a vertex-step
goes once to a worker, however many there read it. So a net holds a vertex-step and all that hear it
and costs its weight for each worker beyond the first that holds one of its pins; an entity under
attention is a net of its steps, and a pair of steps of a recurrence is an edge. The sum is to the
float what `volumes.count_traffic` counts, which tests hold against each other.

Refinement follows the way of multilevel partitioners (Karypis and Kumar, "Multilevel k-way
hypergraph partitioning", 1999), with label propagation as its coarsening: clusters of vertex-steps
of one worker are joined, the coarse clusters are moved first, then finer ones, at last single
vertex-steps. A move needs a gain and room below a cap on work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import check_ids, check_vector
from dgbench.kernels_cuda.build_info import extension
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.label_propagation import propagate_labels
from dgbench.kernels_cuda.supergraph import Supergraph, contract
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.dgc.supergraph import ExchangeCounts

LEVELS: Final = (512, 64, 8)
"""Clusters of a worker at least, level by level: a cluster is that part of its load at most."""

SWEEPS: Final = 10
_CLUSTER_SWEEPS: Final = 5
_LARGEST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Hypergraph:
    """V vertices with loads, nets of three pins and more, and edges for those of two.

    Attributes:
        first: int64[V + 1], offsets into `net`.
        net: int32[pins], the nets of each vertex.
        net_weight: int32[nets].
        edge_first: int64[V + 1], offsets into `other`.
        other: int32[entries], the other end of each edge; both directions are there.
        edge_weight: int32[entries].
        load: int64[V], work of each vertex in units of `unit`.
        unit: what weights were divided by.
    """

    first: Tensor
    net: Tensor
    net_weight: Tensor
    edge_first: Tensor
    other: Tensor
    edge_weight: Tensor
    load: Tensor
    unit: int = 1

    @property
    def num_vertices(self) -> int:
        """V."""
        return self.load.numel()

    def _arrays(self) -> tuple[Tensor, ...]:
        edges = self.edge_first, self.other, self.edge_weight
        return self.first, self.net, self.net_weight, *edges, self.load

    def cost(self, worker: Tensor) -> int:
        """Floats sent with `worker` int32[V] in [0, 64)."""
        check_vector(worker, "worker", torch.int32, self.num_vertices)
        check_ids(worker, "worker", 64)
        return self.unit * extension(worker.device).connectivity(*self._arrays(), worker)

    def refine(self, worker: Tensor, workers: int, cap: int, *, sweeps: int = SWEEPS) -> Tensor:
        """Move vertices while that lowers the cost; int32[V], the new workers.

        First vertices leave workers above the cap, those first whose move costs least for their
        load. Then sweeps over vertices whose surroundings changed, each to the worker of the
        largest gain that has room, and without a gain only to even out loads.

        Args:
            worker: int32[V] in [0, workers).
            workers: P, 1 to 64.
            cap: load of a worker at most. Where it cannot be kept, it is overshot and not refused.
            sweeps: at most; fewer where less than a thousandth of the vertices move.

        Raises:
            InvalidInputError: workers of another dtype or length, or numbers out of their range.
        """
        if not 1 <= workers <= 64:
            raise InvalidInputError(f"workers is {workers}, allowed are 1 to 64")
        check_vector(worker, "worker", torch.int32, self.num_vertices)
        check_ids(worker, "worker", workers)
        moved = worker.clone(memory_format=torch.contiguous_format)
        extension(worker.device).refine_workers(*self._arrays(), moved, workers, cap, sweeps)
        return moved

    def contract(self, cluster: Tensor, clusters: int) -> Hypergraph:
        """The hypergraph of clusters, int32[V] in [0, C): costs of partitions that keep them.

        Nets inside a cluster go, nets between two clusters become edges and add up.
        """
        check_vector(cluster, "cluster", torch.int32, self.num_vertices)
        check_ids(cluster, "cluster", clusters)
        first, edge_first = (torch.empty(clusters + 1, dtype=torch.int64) for _ in range(2))
        net, net_weight = torch.empty_like(self.net), torch.empty_like(self.net_weight)
        most = self.net.numel() + self.other.numel()
        other = torch.empty(most, dtype=torch.int32)
        edge_weight = torch.empty(most, dtype=torch.int64)
        load = torch.empty(clusters, dtype=torch.int64)
        nets, pins, entries = extension(cluster.device).contract_hypergraph(
            *self._arrays(),
            cluster,
            first,
            net,
            net_weight,
            edge_first,
            other,
            edge_weight,
            load,
        )
        weight = edge_weight[:entries]
        if entries and int(weight.max()) > _LARGEST:
            weight = weight.clamp(max=_LARGEST)  # nobody cuts such an edge
        return Hypergraph(
            first,
            net[:pins].clone(),
            net_weight[:nets].clone(),
            edge_first,
            other[:entries].clone(),
            weight.to(torch.int32),
            load,
            self.unit,
        )


def hypergraph_of(graph: Supergraph, counts: ExchangeCounts, load: Tensor) -> Hypergraph:
    """The floats of an epoch as a hypergraph over vertex-steps.

    Args:
        graph: the vertex-steps.
        counts: floats along an edge of a snapshot, and along one in time (of one embedding where
            all steps are heard).
        load: int64[V] >= 0, work of each vertex-step.

    Raises:
        InvalidInputError: loads of another dtype or length, or weights that do not fit 32 bits.
    """
    count = graph.num_vertices
    check_vector(load, "load", torch.int64, count)
    spatial, temporal = counts.weights()
    if counts.all_steps and count and int(graph.start.diff().max()) * temporal > _LARGEST:
        raise InvalidInputError("an entity's steps weigh more than 2^31 - 1 together")
    more = 2 if counts.all_steps else 1
    first, edge_first = (torch.empty(count + 1, dtype=torch.int64) for _ in range(2))
    net = torch.empty(graph.csr.nnz + more * count, dtype=torch.int32)
    net_weight = torch.empty(count + graph.start.numel(), dtype=torch.int32)
    other, edge_weight = (torch.empty(graph.csr.nnz, dtype=torch.int32) for _ in range(2))
    nets, pins, entries = extension(load.device).hearing_hypergraph(
        graph.csr.indptr,
        graph.csr.indices,
        graph.directions(),
        graph.start,
        graph.entity,
        spatial,
        temporal,
        counts.all_steps,
        first,
        net,
        net_weight,
        edge_first,
        other,
        edge_weight,
    )
    return Hypergraph(
        first,
        net[:pins].clone(),
        net_weight[:nets].clone(),
        edge_first,
        other[:entries].clone(),
        edge_weight[:entries].clone(),
        load,
        _unit(counts),
    )


def improve(
    fine: Hypergraph,
    graph: Supergraph,
    worker: Tensor,
    workers: int,
    cap: int,
    *,
    seed: int = 0,
    levels: Sequence[int] = LEVELS,
    sweeps: int = SWEEPS,
    threads: int | None = None,
) -> Tensor:
    """One round of coarsening inside workers and refining on the way back; int32[V].

    Args:
        fine: from `hypergraph_of`.
        graph: whose edges say what to join; both have the same vertices.
        worker: int32[V] to start from.
        workers, cap, sweeps: as in `Hypergraph.refine`.
        seed, threads: of label propagation.
        levels: a cluster of a level has at most the mean load divided by this.
    """
    stages: list[tuple[Hypergraph, Tensor]] = []
    at, csr, weight, part = fine, graph.csr, graph.edge_weight, worker
    mean = int(fine.load.sum()) // max(1, workers)
    for level in levels:
        run = propagate_labels(
            csr,
            within(csr, weight, part),
            at.load.clamp(max=_LARGEST).to(torch.int32),
            cap=max(1, mean // level),
            sweeps=_CLUSTER_SWEEPS,
            seed=seed,
            active_only=True,
            threads=threads,
        )
        cluster, count = run.chunks()
        if count > 0.95 * at.num_vertices:
            continue
        at = at.contract(cluster, count)
        csr, sums = contract(csr, weight, cluster, count)
        weight = (sums >> max(0, int(sums.max()).bit_length() - 31) if sums.numel() else sums).int()
        coarse = torch.empty(count, dtype=torch.int32)
        coarse[cluster.long()] = part
        part = coarse
        stages.append((at, cluster))
    for at, cluster in reversed(stages):
        part = at.refine(part, workers, cap, sweeps=sweeps)[cluster.long()].contiguous()
    return fine.refine(part, workers, cap, sweeps=sweeps)


def within(csr: Csr, weight: Tensor, part: Tensor) -> Tensor:
    """int32[nnz]: weights, and zero for edges whose ends `part` puts apart."""
    rows = torch.repeat_interleave(part, csr.indptr.diff(), output_size=csr.nnz)
    return torch.where(rows == part[csr.indices.long()], weight, 0)


def _unit(counts: ExchangeCounts) -> int:
    spatial, _ = counts.weights()
    if spatial:
        return counts.spatial * counts.spatial_floats // spatial
    return max(1, counts.temporal * counts.temporal_floats)
