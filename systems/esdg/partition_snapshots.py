"""Snapshot partition with redistribution (ESDG, sections 4.2, 5.5 and 6.5)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from dgbench.models import Aggregator, TimelineModel, TimelineState
from dgbench.models.timeline import Carry
from dgbench.runtime.collectives import Communicator, Exchange
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.timeline import TimelineTask
from dgbench.systems.esdg.exchange import Arriving, Redistribution
from dgbench.systems.esdg.forward import fused_temporal, plain_temporal
from dgbench.systems.esdg.partition import BlockShares, PartitionedPass
from dgbench.systems.esdg.partition_local import LocalSnapshots, apply_run, first_run, positions
from dgbench.systems.esdg.reuse import BlockCache, Keeping
from dgbench.systems.esdg.scored import ScoredRows
from dgbench.systems.esdg.transfer import Delivery
from dgbench.systems.esdg.weights import Links, chain_run, spatial_run

Piece = Tensor | Arriving | Exchange | Keeping | None


class SnapshotSplit(PartitionedPass):
    """Each rank convolves its share of a block's snapshots; temporal halves run over vertices.

    A layer's spatial output goes to the owners of the vertices and its temporal output back to the
    owners of the snapshots. Layers without a temporal half stay where they are, so EvolveGCN moves
    nothing: every rank computes the whole chain of weights and uses the links of its own steps.

    Attributes:
        pieces: 1: an exchange is waited for at once. More: a rank's share of a block travels in so
            many pieces, and one piece is convolved while others are under way, before the temporal
            half and behind it (the overlap that the paper leaves to the future). Floats are the
            same, messages more.
        fused: run recurrences as compiled scans, of features and of weights.
        reuse: keep what the exchanges of the first pass bring for the re-run.
        late: make a layer's dense half behind its exchange, where the vertices are. Then what is
            aggregated travels, which is narrower, and of the first layer, where it is precomputed,
            once and not in every pass. The paper's volumes are those of the dense half before it.
        scored: of the last temporal half, bring home only those rows that pairs of the loss read,
            and none in the first pass, where nobody scores; needs checkpoints. The paper's volumes
            are those of all rows.
        temporals: layers with a temporal half.
    """

    def __init__(
        self,
        comm: Communicator,
        model: TimelineModel,
        aggregator: Aggregator | Delivery,
        num_nodes: int,
        *,
        task: TimelineTask | None = None,
        pieces: int = 1,
        fused: bool = True,
        reuse: bool = False,
        late: bool = False,
        scored: bool = False,
    ) -> None:
        """Take a rank's inputs.

        Args:
            comm, model: of this rank.
            aggregator: this rank's snapshots where they lie, or what brings them block by block.
            num_nodes: N.
            task: needed for `loss_sum` only.
            pieces, fused, reuse, late, scored: see above.
        """
        self.comm, self.model, self.task = comm, model, task
        self.num_nodes, self.pieces, self.reuse, self.late = num_nodes, pieces, reuse, late
        self.temporals = [k for k in range(model.num_layers) if model.has_temporal(k)]
        link = task is not None and task.workload.task == "link"
        # Elsewhere the loss reads every row, or the last layer's outputs are where it is.
        self.scored = scored and link and model.has_temporal(model.num_layers - 1)
        # There is no compiled scan of tensors without memory, nor of doubles on CUDA.
        doubles = next(model.parameters()).dtype == torch.float64
        self.fused = fused and comm.device.type in (("cpu",) if doubles else ("cpu", "cuda"))
        self._delivery = aggregator if isinstance(aggregator, Delivery) else None
        self._inputs: dict[range, Aggregator] = {}
        self._aggregator = None if isinstance(aggregator, Delivery) else aggregator
        # Rows can stand in any order where every operation is a row's own but the product, whose
        # matrix is made for that order.
        local = isinstance(aggregator, LocalSnapshots)
        self._dealt = local and bool(self.temporals) and comm.size > 1
        self._once = late and isinstance(aggregator, LocalSnapshots) and aggregator.precompute
        self._inputs_here: dict[range, Tensor] = {}
        self._kept: dict[range, BlockCache] = {}
        self._targets: dict[range, tuple[Tensor, ...]] = {}
        self._read: dict[range, ScoredRows] = {}

    def shares(self, times: range) -> BlockShares:
        """Partition of the block `times` over ranks."""
        return BlockShares(times, self.num_nodes, self.comm.size, self.pieces)

    def held(self, times: range) -> range:
        """The steps of the block whose outputs `run` gives on this rank."""
        pieces = self.shares(times).steps[self.comm.rank]
        return range(pieces[0].start, pieces[-1].stop)

    @contextmanager
    def load(self, times: range, *, recorded: bool) -> Iterator[None]:
        own = self.held(times)
        if self._delivery is None or not own:
            yield
            return
        with self._delivery.load(own, recorded) as inputs:
            self._inputs[times] = inputs
            if self.wanted is not None and self.held(self.wanted):
                self._delivery.expect(self.held(self.wanted))
            try:
                yield
            finally:
                del self._inputs[times]

    def run(self, times: range, state: TimelineState | None) -> tuple[Tensor, TimelineState]:
        """`PartitionedPass.run`; outputs [rows held, output_dim] go to `loss_sum` and `gather`."""
        return self._pass(times, state, self._moves(times))

    def border(self, times: range, state: TimelineState | None, *, lean: bool) -> TimelineState:
        if not self.temporals:
            return super().border(times, state, lean=lean)
        keep = None
        if self.reuse:
            keep = self._kept[times] = BlockCache()
        moves = self._moves(times, keep=keep)
        with self.load(times, recorded=False):
            _, after = self._pass(times, state, moves, lean=lean or self.scored)
        if keep is not None:
            self.comm.meter.count("reuse_bytes", keep.nbytes)
        return after

    def again(self, times: range, state: TimelineState | None) -> tuple[Tensor, TimelineState]:
        moves = self._moves(times, given=self._kept.pop(times, None))
        return self._pass(times, state, moves, scored=self.scored)

    def loss_sum(self, times: range, out: Tensor) -> Tensor:
        """Summed loss of this rank's steps of a block, all at once.

        `out` is what `run` gave; what `again` gave, where `scored`.
        """
        held, head, task = self.held(times), self.model.head, self.task
        if not held:
            return out.new_zeros(())
        if self.scored:
            read = self._reads(times)
            return head.loss_sum(out, read.ends.to(out.device), read.labels.to(out.device))
        if held not in self._targets:
            self._targets[held] = self._scores(times, held)
        targets = self._targets[held]
        if task.workload.task == "node":
            return functional.mse_loss(head(out), targets[0], reduction="sum")
        return head.loss_sum(out, *targets)

    def gather(self, times: range, out: Tensor) -> list[Tensor]:
        """Outputs [N, D] of all steps of a block, on every rank, from what `run` gave."""
        rows = [sum(map(len, pieces)) for pieces in self.shares(times).steps]
        own = out[self._positions(times)]
        return list(self.comm.all_gather(own, rows).unbind(0))

    def _scores(self, times: range, held: range) -> tuple[Tensor, ...]:
        """Inputs of a head besides the outputs of these steps, in their order."""
        place = self._positions(times)
        if self.task.workload.task == "link":
            pairs, labels = zip(*map(self.task.pairs, held), strict=True)
            found = [own[ends] for own, ends in zip(place, pairs, strict=True)]
            return torch.cat(found, dim=1), torch.cat(labels)
        targets = torch.stack([self.task.target(t) for t in held])
        ordered = torch.empty_like(targets.flatten())
        ordered[place.flatten()] = targets.flatten()
        return (ordered,)

    def _reads(self, times: range) -> ScoredRows:
        """Rows that the loss of a block reads; cached."""
        if times not in self._read:
            self._read[times] = ScoredRows.build(self.task, self.shares(times), self.comm.rank)
        return self._read[times]

    def _positions(self, times: range) -> Tensor:
        """int64[steps held, N]: where `run` puts the rows of this rank's steps."""
        shares = self.shares(times)
        found, before = [], 0
        for steps in shares.steps[self.comm.rank]:
            chunks = self._chunks(shares) or (self.num_nodes,)
            found.append(positions(len(steps), chunks) + before)
            before += len(steps) * self.num_nodes
        return torch.cat(found).to(self.comm.device)

    def _chunks(self, shares: BlockShares) -> tuple[int, ...]:
        """Vertices of each message where rows are kept in the order of messages, else ()."""
        return tuple(map(len, shares.vertices)) if self._dealt else ()

    def _moves(self, times: range, **kept: BlockCache | None) -> Redistribution:
        return Redistribution(self.comm, self.shares(times), dealt=self._dealt, **kept)

    def _pass(
        self,
        times: range,
        state: TimelineState | None,
        moves: Redistribution,
        *,
        lean: bool = False,
        scored: bool = False,
    ) -> tuple[Tensor, TimelineState]:
        """As `run`.

        `lean`: no further than the last temporal half, which there is; no outputs. `scored`: of
        outputs only the rows that the loss reads.
        """
        state = state or TimelineState()
        model, mine = self.model, moves.shares.steps[self.comm.rank]
        links, chain = chain_run(model, len(times), state.chain, fused=self.fused)
        carries: list[Carry] = [()] * model.num_layers
        pieces: list[Piece] = [None] * self.pieces
        for layer in range(model.num_layers):
            moved = model.has_temporal(layer)
            # No model has both a temporal half and weights that differ from step to step.
            late = moved and self.late
            here = self._inputs_here.get(times) if late and layer == 0 else None
            begun, done = [], []
            for k, steps in enumerate(mine if here is None else ()):
                a = self._aggregated(layer, moves.shares, steps, _arrived(pieces[k]))
                y = a if late else self._spatial(layer, times, steps, a, links)
                if moved:
                    grad = layer > 0 or not late
                    begun.append(moves.start_to_vertices(layer, k, y, grad=grad))
                else:
                    done.append(y)
            if moved:
                x = moves.finish_to_vertices(begun) if here is None else here
                if late:
                    if layer == 0 and self._once:
                        self._inputs_here[times] = x.detach()
                    x = model.spatial(layer, x)
                given = state.layers[layer] if state.layers else ()
                temporal = fused_temporal if self.fused else plain_temporal
                z, carries[layer] = temporal(model, layer, x, given)
                if lean and layer == self.temporals[-1]:
                    return _NOTHING, TimelineState(chain, tuple(carries))
                if scored and layer == model.num_layers - 1:
                    read = self._reads(times).fetch(self.comm, z)
                    return read, TimelineState(chain, tuple(carries))
                done = [
                    moves.start_to_snapshots(layer, k, rows) for k, rows in enumerate(moves.cut(z))
                ]
            pieces = done
        last = list(map(_arrived, pieces))
        out = last[0] if len(last) == 1 else torch.cat(last)
        return out, TimelineState(chain, tuple(carries))

    def _spatial(self, layer: int, times: range, steps: range, a: Tensor, links: Links) -> Tensor:
        """[steps N, spatial width] of aggregated rows."""
        if links is None:
            return self.model.spatial(layer, a)
        a = a.view(len(steps), self.num_nodes, a.shape[1])
        return spatial_run(self.model, layer, a, links, steps.start - times.start).flatten(0, 1)

    def _aggregated(
        self, layer: int, shares: BlockShares, steps: range, before: Tensor | None
    ) -> Tensor:
        """[steps N, input width]; `before` are the layer's inputs, None for the first."""
        if not steps:
            # No snapshot of the block is this rank's. Operations on no rows keep the graph
            # unbroken, so that the exchanges of lower layers run backwards here, too.
            like = next(self.model.parameters())
            return like.new_zeros(0, self.model.input_dims[layer]) if before is None else before
        local = self._aggregator
        if isinstance(local, LocalSnapshots):
            chunks = self._chunks(shares)
            if before is None:
                return local.first_run(steps, chunks)
            return local.apply_run(steps, before, chunks)
        inputs = local or self._inputs.get(shares.times)
        if inputs is None:
            raise InvalidInputError(f"the snapshots of {shares.times} are not loaded, see `load`")
        return first_run(inputs, steps) if before is None else apply_run(inputs, steps, before)


def _arrived(piece: Piece) -> Tensor | None:
    """Rows [steps N, D] of a piece, waited for if they are under way."""
    if piece is None or isinstance(piece, Tensor):
        return piece
    found = piece.wait()
    return found.flatten(0, 1) if found.dim() == 3 else found


_NOTHING: Final = torch.empty(0)
