"""Snapshot partition with redistribution (ESDG, sections 4.1 to 4.3 and 4.6 of its dossier)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch
from torch import Tensor

from dgbench.models import Aggregator, TimelineModel, TimelineState
from dgbench.models.timeline import Carry
from dgbench.runtime.collectives import Communicator
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.esdg.exchange import Arriving, Redistribution
from dgbench.systems.esdg.forward import fused_temporal
from dgbench.systems.esdg.partition import Shares, Split
from dgbench.systems.esdg.partition_local import apply_run, first_run
from dgbench.systems.esdg.reuse import Kept
from dgbench.systems.esdg.transfer import Delivery
from dgbench.systems.esdg.weights import Links, chain_run, spatial_run

Piece = Tensor | Arriving | None


class SnapshotSplit(Split):
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
        temporals: layers with a temporal half.
    """

    def __init__(
        self,
        comm: Communicator,
        model: TimelineModel,
        aggregator: Aggregator | Delivery,
        num_nodes: int,
        *,
        pieces: int = 1,
        fused: bool = True,
        reuse: bool = False,
    ) -> None:
        """Take a rank's inputs.

        Args:
            comm, model: of this rank.
            aggregator: this rank's snapshots where they lie, or what brings them block by block.
            num_nodes: N.
            pieces, fused, reuse: see above.
        """
        self.comm, self.model = comm, model
        self.num_nodes, self.pieces, self.reuse = num_nodes, pieces, reuse
        self.temporals = [k for k in range(model.num_layers) if model.has_temporal(k)]
        # Tensors without memory have no compiled scan.
        self.fused = fused and comm.device.type != "meta"
        self._delivery = aggregator if isinstance(aggregator, Delivery) else None
        self._inputs: dict[range, Aggregator] = {}
        self._aggregator = None if isinstance(aggregator, Delivery) else aggregator
        self._kept: dict[range, Kept] = {}

    def shares(self, times: range) -> Shares:
        """How the block `times` is dealt out."""
        return Shares(times, self.num_nodes, self.comm.size, self.pieces)

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
            try:
                yield
            finally:
                del self._inputs[times]

    def run(self, times: range, state: TimelineState | None) -> tuple[Tensor, TimelineState]:
        return self._pass(times, state, Redistribution(self.comm, self.shares(times)))

    def border(self, times: range, state: TimelineState | None, *, lean: bool) -> TimelineState:
        if not self.temporals:
            return super().border(times, state, lean=lean)
        keep = None
        if self.reuse:
            keep = self._kept[times] = Kept()
        moves = Redistribution(self.comm, self.shares(times), keep=keep)
        with self.load(times, recorded=False):
            _, after = self._pass(times, state, moves, lean=lean)
        if keep is not None:
            self.comm.meter.count("reuse_bytes", keep.nbytes)
        return after

    def again(self, times: range, state: TimelineState | None) -> tuple[Tensor, TimelineState]:
        given = self._kept.pop(times, None)
        return self._pass(times, state, Redistribution(self.comm, self.shares(times), given=given))

    def _pass(
        self,
        times: range,
        state: TimelineState | None,
        moves: Redistribution,
        *,
        lean: bool = False,
    ) -> tuple[Tensor, TimelineState]:
        """As `run`; `lean`: no further than the last temporal half, which there is; no outputs."""
        state = state or TimelineState()
        model, mine = self.model, moves.shares.steps[self.comm.rank]
        links, chain = chain_run(model, len(times), state.chain, fused=self.fused)
        carries: list[Carry] = [()] * model.num_layers
        pieces: list[Piece] = [None] * self.pieces
        for layer in range(model.num_layers):
            begun, done = [], []
            for k, steps in enumerate(mine):
                before = pieces[k]
                if isinstance(before, Arriving):
                    before = before.wait()
                y = self._spatial(layer, times, steps, before, links)
                if model.has_temporal(layer):
                    begun.append(moves.start_to_vertices(layer, k, y))
                else:
                    done.append(y)
            if begun:
                x = moves.finish_to_vertices(begun)
                given = state.layers[layer] if state.layers else ()
                if self.fused:
                    z, carries[layer] = fused_temporal(model, layer, x, given)
                else:
                    z, carries[layer] = model.temporal(layer, x, given)
                if lean and layer == self.temporals[-1]:
                    return _NOTHING, TimelineState(chain, tuple(carries))
                done = [
                    moves.start_to_snapshots(layer, k, rows) for k, rows in enumerate(moves.cut(z))
                ]
            pieces = done
        last = [p.wait() if isinstance(p, Arriving) else p for p in pieces]
        return (last[0] if len(last) == 1 else torch.cat(last)), TimelineState(
            chain, tuple(carries)
        )

    def _spatial(
        self, layer: int, times: range, steps: range, before: Tensor | None, links: Links
    ) -> Tensor:
        """[steps, N, spatial width]; `before` are the layer's inputs, None for the first."""
        model = self.model
        if steps:
            inputs = self._aggregator or self._inputs.get(times)
            if inputs is None:
                raise InvalidInputError(f"the snapshots of {times} are not loaded, see `load`")
            a = first_run(inputs, steps) if before is None else apply_run(inputs, steps, before)
        elif before is None:
            # No snapshot of the block is this rank's. The dense part over no rows keeps the graph
            # unbroken, so that the exchanges of lower layers run backwards here, too.
            like = next(model.parameters())
            a = like.new_zeros(0, self.num_nodes, model.input_dims[layer])
        else:
            a = before
        return spatial_run(model, layer, a, links, steps.start - times.start)


_NOTHING: Final = torch.empty(0)
