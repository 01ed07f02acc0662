"""Snapshot partition with redistribution (ESDG, sections 4.1 to 4.3 and 4.6 of its dossier)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dgbench.models import Aggregator, TimelineModel, TimelineState
from dgbench.runtime.collectives import Communicator
from dgbench.systems.esdg.exchange import Arriving, Redistribution
from dgbench.systems.esdg.partition import Shares, Split


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
    """

    def __init__(
        self,
        comm: Communicator,
        model: TimelineModel,
        aggregator: Aggregator,
        num_nodes: int,
        *,
        pieces: int = 1,
    ) -> None:
        self.comm, self.model, self.aggregator = comm, model, aggregator
        self.num_nodes, self.pieces = num_nodes, pieces

    def shares(self, times: range) -> Shares:
        """How the block `times` is dealt out."""
        return Shares(times, self.num_nodes, self.comm.size, self.pieces)

    def held(self, times: range) -> range:
        """The steps of the block whose outputs `run` gives on this rank."""
        pieces = self.shares(times).steps[self.comm.rank]
        return range(pieces[0].start, pieces[-1].stop)

    def run(self, times: range, state: TimelineState | None) -> tuple[Tensor, TimelineState]:
        state = state or TimelineState()
        links, chain = self.model.chain(len(times), state.chain)
        shares = self.shares(times)
        moves = Redistribution(self.comm, shares)
        mine = shares.steps[self.comm.rank]
        carries: list[tuple[Tensor, ...]] = []
        pieces: list[Tensor | Arriving | None] = [None] * self.pieces
        for layer in range(self.model.num_layers):
            begun, done = [], []
            for k, steps in enumerate(mine):
                before = pieces[k]
                if isinstance(before, Arriving):
                    before = before.wait()
                y = self._spatial(layer, steps, before, links, times.start)
                if self.model.has_temporal(layer):
                    begun.append(moves.start_to_vertices(k, y))
                else:
                    done.append(y)
            carry: tuple[Tensor, ...] = ()
            if begun:
                x = moves.finish_to_vertices(begun)
                given = state.layers[layer] if state.layers else ()
                z, carry = self.model.temporal(layer, x, given)
                done = [moves.start_to_snapshots(k, z) for k in range(self.pieces)]
            pieces = done
            carries.append(carry)
        last = [p.wait() if isinstance(p, Arriving) else p for p in pieces]
        return torch.cat(last), TimelineState(chain, tuple(carries))

    def _spatial(
        self, layer: int, steps: range, before: Tensor | None, links: list[Any], first: int
    ) -> Tensor:
        """[steps, N, spatial width]; `before` are the layer's inputs, None for the first."""
        found = []
        for i, t in enumerate(steps):
            a = self.aggregator.first(t) if before is None else self.aggregator.apply(t, before[i])
            found.append(self.model.spatial(layer, a, links[t - first]))
        if found:
            return torch.stack(found)
        # No snapshot of the block is this rank's. The dense part over no rows keeps the graph
        # unbroken, so that the exchanges of lower layers run backwards here, too.
        width = self.model.input_dims[layer]
        if before is None:
            like = next(self.model.parameters())
            before = torch.zeros(0, width, dtype=like.dtype, device=like.device)
        y = self.model.spatial(layer, before.reshape(0, width), links[0])
        return y.reshape(0, self.num_nodes, self.model.spatial_dims[layer])
