"""Floats that an epoch sends: by formula, and by walking the exchanges without data.

ESDG (SC 2021), Table 2: with V = T N (floats per vertex and step) P ranks send V (P - 1) / P, as
each keeps the P-th part of what it redistributes. Its figures are the sum of three passes: forward,
re-run and backward (our reading of its digits: 36 and 96 floats for TM-GCN and CD-GCN).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.models import TimelineModel, build_model
from dgbench.models.timeline import Carry
from dgbench.runtime.collectives import Communicator, Exchange, TrafficMatrix, count_ranks
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.fields import check_count
from dgbench.systems.esdg.hybrid_plan import Balance, GroupShares, parts_of, row_blocks
from dgbench.systems.esdg.partition import BlockShares, accumulate, block_ranges
from dgbench.systems.esdg.partition_snapshots import SnapshotSplit
from dgbench.systems.esdg.vertex import VertexSplit
from dgbench.systems.esdg.vertex_plan import remote_reads

PAPER_STEPS, PAPER_NODES = 192, 1_000_000
"""T and N of Table 2: the AMLSim graph, its 200 steps trimmed to a multiple of 64 [derived]."""


def floats_per_vertex_step(model: TimelineModel) -> int:
    """Floats per vertex and step that one pass redistributes: 12 for TM-GCN of width 6, 32 for
    CD-GCN of 2 features, 0 for EvolveGCN."""
    return sum(there + back for there, back in model.redistributed_dims)


def snapshot_floats(
    model: TimelineModel,
    num_nodes: int,
    blocks: Sequence[range],
    size: int,
    *,
    checkpoint: bool = True,
) -> int:
    """Floats that all ranks send to each other per epoch in redistributions.

    Exact for shares of any sizes: a rank sends, of each of its steps, the vertices of the others,
    and of each of its vertices the steps of the others. With equal shares of the steps or of the
    vertices this is V (P - 1) / P.

    Args:
        model: its widths count.
        num_nodes: N.
        blocks: of the timeline; all steps as one block without checkpoints.
        size: P.
        checkpoint: three passes; two without, as nothing is run again.
    """
    passes = 3 if checkpoint else 2
    pairs = 0
    for times in blocks:
        shares = BlockShares(times, num_nodes, size)
        kept = sum(len(s[0]) * len(v) for s, v in zip(shares.steps, shares.vertices, strict=True))
        pairs += len(times) * num_nodes - kept
    return passes * floats_per_vertex_step(model) * pairs


def vertex_floats(
    model: TimelineModel,
    remote: int,
    *,
    remote_pairs: int = 0,
    checkpoint: bool = True,
    precompute: bool = True,
) -> int:
    """Floats that all ranks send to each other per epoch under the vertex partition.

    Args:
        model: its layers' input widths count.
        remote: sum of lambda over steps and vertices (`vertex_plan.remote_reads`); of a graph that
            changes from pass to pass nothing is said.
        remote_pairs: the same for the pairs of link prediction (`VertexSplit.remote_pairs`), whose
            outputs are sent in passes that have a loss: not in the forward pass that a checkpoint
            repeats.
        checkpoint: three passes, else two.
        precompute: whether the first layer sends nothing; else it sends its input, which has no
            gradient.
    """
    passes = 3 if checkpoint else 2
    hidden = sum(model.input_dims[1:])
    first = 0 if precompute else model.input_dims[0] * (passes - 1)
    return remote * (passes * hidden + first) + remote_pairs * 2 * model.output_dim


def hybrid_floats(
    model: TimelineModel,
    topology: Sequence[Csr],
    num_nodes: int,
    blocks: Sequence[range],
    size: int,
    group: int,
    *,
    balance: Balance = "rows",
    remote_pairs: int = 0,
    checkpoint: bool = True,
    precompute: bool = True,
) -> int:
    """Floats that all ranks send to each other per epoch under the hybrid partition.

    Exact: redistributions, in which a rank keeps what its rows and its vertices share, and reads
    inside the groups, which count as in the vertex partition. One rank per group gives
    `snapshot_floats`.

    Args:
        model: its widths count.
        topology: of the steps that are trained on.
        num_nodes: N.
        blocks: of the timeline.
        size: P.
        group: ranks that share a snapshot, a divisor of P.
        balance: see `hybrid_plan.row_blocks`.
        remote_pairs: of link prediction (`HybridSplit.remote_pairs`).
        checkpoint, precompute: as of `vertex_floats`.
    """
    passes = 3 if checkpoint else 2
    rows = row_blocks(topology, num_nodes, group, balance)
    moved = sum(
        len(times) * num_nodes - GroupShares(times, tuple(rows), size).kept for times in blocks
    )
    inside = vertex_floats(
        model,
        remote_reads(topology, parts_of(rows)),
        remote_pairs=remote_pairs,
        checkpoint=checkpoint,
        precompute=precompute,
    )
    return passes * floats_per_vertex_step(model) * moved + inside


def gradient_floats(model: TimelineModel, size: int) -> int:
    """Floats of the epoch's one all-reduce of gradients, as a ring, over all ranks."""
    return 2 * (size - 1) * sum(p.numel() for p in model.parameters())


def count_snapshot(
    model: str,
    *,
    size: int,
    steps: int = PAPER_STEPS,
    num_nodes: int = PAPER_NODES,
    feature_dim: int = 2,
    hidden_dim: int = 6,
    window: int = 1,
    blocks: int = 1,
    checkpoint: bool = True,
    pieces: int = 1,
) -> TrafficMatrix:
    """Walk an epoch of the snapshot partition as each rank in turn, on tensors without memory.

    It is the code that trains, with convolutions and temporal halves that give shapes only: an LSTM
    over tensors without memory still costs seconds per rank. The gradients' all-reduce is left out,
    as Table 2 leaves it out (`gradient_floats`).

    Args:
        model: `cd_gcn`, `tm_gcn` or `evolvegcn_o`.
        size: P.
        steps, num_nodes: T and N; the default is Table 2's.
        feature_dim, hidden_dim, window: of the model.
        blocks, checkpoint, pieces: as of `SnapshotRankTrainer`.

    Returns:
        Counts of every link in the phases forward, rerun and backward.

    Raises:
        UnknownKeyError, InvalidInputError: an argument out of range.
    """
    if num_nodes < 1 or steps < 1:
        raise InvalidInputError(f"{steps} steps of {num_nodes} vertices; at least 1 of each needed")
    net = _shapes_only(timeline(model, feature_dim, hidden_dim, window))
    ranges = block_ranges(steps, blocks)
    aggregator = _Shapes(num_nodes, feature_dim)

    def walk(comm: Communicator) -> None:
        split = SnapshotSplit(comm, net, aggregator, num_nodes, pieces=pieces)
        accumulate(split, ranges, None, checkpoint=checkpoint)
        net.zero_grad(set_to_none=True)

    return count_ranks(walk, size)


def count_vertex(
    model: str,
    reads: Sequence[np.ndarray],
    *,
    feature_dim: int = 2,
    hidden_dim: int = 6,
    window: int = 1,
    blocks: int = 1,
    checkpoint: bool = True,
    precompute: bool = True,
    pieces: int = 1,
) -> TrafficMatrix:
    """Walk an epoch of the vertex partition as each rank in turn, on tensors without memory.

    It is the code that trains, its lists reduced to their lengths, so that P and the graph may be
    as large as can be counted.

    Args:
        model: `cd_gcn`, `tm_gcn` or `evolvegcn_o`.
        reads: for each step int64[P, P], vertices of the one (row) that the other (column) reads:
            `vertex_plan.read_counts`.
        feature_dim, hidden_dim, window: of the model.
        blocks, checkpoint, precompute, pieces: as of `SnapshotRankTrainer`.

    Returns:
        Counts of every link in the phases forward, rerun and backward; their sum is
        `vertex_floats`.

    Raises:
        UnknownKeyError, InvalidInputError: an argument out of range.
    """
    shape = reads[0].shape if len(reads) else (0, 0)
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] < 1:
        raise InvalidInputError(
            f"'reads' begins with {list(shape)}; one matrix [P, P] for each step is needed"
        )
    if any(r.shape != shape for r in reads):
        raise InvalidInputError(f"'reads' differ in their shapes; {list(shape)} is needed")
    net = _shapes_only(timeline(model, feature_dim, hidden_dim, window))
    ranges = block_ranges(len(reads), blocks)

    def walk(comm: Communicator) -> None:
        split = _CountedSplit(comm, net, reads, pieces=pieces, precompute=precompute)
        accumulate(split, ranges, None, checkpoint=checkpoint)
        net.zero_grad(set_to_none=True)

    return count_ranks(walk, shape[0])


def _shapes_only(net: TimelineModel) -> TimelineModel:
    """The model with temporal halves and a chain that give shapes without computing them."""

    def temporal(layer: int, x: Tensor, carry: Carry) -> tuple[Tensor, Carry]:
        return x[..., :1].expand(-1, -1, net.layer_dims[layer]), ()

    # Evolving weights alike: one step's shapes serve all, without the chain between them.
    link = net.chain(1, ())[0][0]
    if link is not None:
        link = tuple(w.detach().requires_grad_() for w in link)

    def chain(steps: int, carry: Carry) -> tuple[list[Any], Carry]:
        return [link] * steps, ()

    net.temporal, net.chain = temporal, chain
    return net


class _CountedRows:
    """Rows of a rank of which only the lengths of the messages are known."""

    def __init__(self, comm: Communicator, reads: Sequence[np.ndarray], width: int) -> None:
        self._comm, self._reads, self._width = comm, reads, width

    def inputs(self, steps: range) -> Tensor:
        return torch.empty(len(steps), 1, self._width, device="meta")

    def start(self, steps: range, h: Tensor, *, grad: bool = True) -> Exchange | None:
        if self._comm.size == 1:
            return None
        reads = sum(self._reads[t] for t in steps)
        send, receive = reads[self._comm.rank].tolist(), reads[:, self._comm.rank].tolist()
        rows = h.reshape(-1, h.shape[-1])[:1].expand(sum(send), -1)
        return self._comm.start_all_to_all(rows, send, receive, grad=grad)

    def convolve(self, steps: range, h: Tensor, begun: Exchange | None) -> Tensor:
        return h * 1 if begun is None else h + begun.wait().sum(0)


class _CountedSplit(VertexSplit):
    """The vertex partition over `_CountedRows`."""

    def __init__(
        self,
        comm: Communicator,
        model: TimelineModel,
        reads: Sequence[np.ndarray],
        *,
        pieces: int,
        precompute: bool,
    ) -> None:
        check_count("'pieces'", pieces)
        self.comm, self.model, self.task = comm, model, None
        self.pieces, self.precompute, self.fused = pieces, precompute, False
        self.held_rows = _CountedRows(comm, reads, model.input_dims[0])


def timeline(
    model: str, feature_dim: int = 2, hidden_dim: int = 6, window: int = 1
) -> TimelineModel:
    """A model without data, whose widths and exchanges can be asked for."""
    built = build_model(
        model, feature_dim=feature_dim, hidden_dim=hidden_dim, window=window, task="class"
    )
    if not isinstance(built, TimelineModel):
        raise InvalidInputError(f"model '{model}' does not read a whole timeline")
    return built.to("meta")


class _Shapes:
    """An aggregator of snapshots that are not there."""

    def __init__(self, num_nodes: int, feature_dim: int) -> None:
        self._x = torch.empty(num_nodes, feature_dim, device="meta")

    def raw(self, t: int) -> Tensor:
        return self._x

    def first(self, t: int) -> Tensor:
        return self._x

    def apply(self, t: int, h: Tensor) -> Tensor:
        return h * 1
