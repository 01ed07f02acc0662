"""Hypergraph of the workers' traffic, and moves that lower it (our addition to DGC).

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
_APART_TURNS: Final = 6
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
    nets, pins, entries = extension(load.device).reader_hypergraph(
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


def apart_hypergraph(
    graph: Supergraph, counts: ExchangeCounts, structure_load: Tensor, time_load: Tensor
) -> Hypergraph:
    """The floats of an epoch where a vertex-step may have a worker in each encoder; attention only.

    Vertex v is vertex-step v in the structure encoder, V + v in the time encoder. An edge joins the
    two: its row moves between them.

    Args:
        graph, counts: as in `hypergraph_of`; `counts.all_steps`, so that what moves is as wide as
            what attention hears.
        structure_load, time_load: int64[V] each.

    Raises:
        InvalidInputError: counts of a recurrence, or loads of another dtype or length.
    """
    if not counts.all_steps:
        raise InvalidInputError("counts are those of a recurrence, expected attention")
    count = graph.num_vertices
    check_vector(time_load, "time_load", torch.int64, count)
    spatial, temporal = counts.weights()
    lengths = graph.start.diff()
    if count and int(lengths.max()) * temporal > _LARGEST:
        raise InvalidInputError("an entity's steps weigh more than 2^31 - 1 together")
    alone = ExchangeCounts(1, 1, 0, 0)
    base = hypergraph_of(graph, alone, structure_load)  # readers only, weights of 1
    number = torch.cumsum(lengths > 0, 0) - 1
    here = number[graph.entity.long()]
    net = torch.cat([base.net, (base.net_weight.numel() + here).to(torch.int32)])
    net_weight = torch.cat([base.net_weight * spatial, (lengths[lengths > 0] * temporal).int()])
    ids = torch.arange(count)
    first = torch.cat([base.first, base.first[-1] + 1 + ids])
    upto = base.edge_first + torch.arange(count + 1)  # one more edge each, its last
    edge_first = torch.cat([upto, upto[-1] + 1 + ids])
    other, weight = (torch.empty(int(edge_first[-1]), dtype=torch.int32) for _ in range(2))
    own = torch.zeros(int(upto[-1]), dtype=torch.bool)
    own[upto[1:] - 1] = True
    reading, moving = other[: own.numel()], weight[: own.numel()]
    reading[own], reading[~own] = (count + ids).to(torch.int32), base.other
    moving[own], moving[~own] = temporal, base.edge_weight * spatial
    other[own.numel() :] = ids.to(torch.int32)
    weight[own.numel() :] = temporal
    load = torch.cat([structure_load, time_load])
    return Hypergraph(first, net, net_weight, edge_first, other, weight, load, _unit(counts))


def refine_apart(
    fine: Hypergraph, graph: Supergraph, structure: Tensor, workers: int, cap: int
) -> Tensor:
    """Workers of both encoders, int32[2 V], from one of the structure encoder.

    An entity's time encoder begins where most of its steps are and moves as a whole, until nothing
    is won by it; then single steps may.

    Args:
        fine: from `apart_hypergraph`.
        graph: the vertex-steps.
        structure: int32[V] to start from.
        workers, cap: as in `Hypergraph.refine`.
    """
    count, entities = graph.num_vertices, graph.start.numel() - 1
    entity = graph.entity.long()
    owned = torch.zeros(entities, workers, dtype=torch.int64)
    owned.index_put_((entity, structure.long()), torch.ones_like(entity), accumulate=True)
    number = torch.cumsum(graph.start.diff() > 0, 0) - 1
    cluster = torch.cat([torch.arange(count), count + number[entity]]).to(torch.int32)
    whole = fine.contract(cluster, count + (int(number[-1]) + 1 if entities else 0))
    time = owned.argmax(1).to(torch.int32)
    worker = torch.cat([structure, time[graph.start.diff() > 0]])
    cost = whole.cost(worker)
    for _ in range(_APART_TURNS):
        worker = whole.refine(worker, workers, cap)
        before, cost = cost, whole.cost(worker)
        if cost == before:
            break
    return fine.refine(worker[cluster.long()].contiguous(), workers, cap)


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
        # Label propagation takes 32 bits: units of work are joined where they do not fit.
        bits = max(0, int(at.load.max()).bit_length() - 31) if at.num_vertices else 0
        run = propagate_labels(
            csr,
            within(csr, weight, part),
            (at.load >> bits).to(torch.int32),
            cap=max(1, mean // level >> bits),
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
