"""Models that read a whole timeline, cut so that the two halves of a layer can live apart.

ESDG (SC 2021) gives every rank some snapshots for the graph half of a layer and some vertices for
its temporal half, with a redistribution between them (section 4.1), and runs over the timeline in
blocks, keeping between two blocks only what the temporal half needs (section 3.1). The same parts
serve a plain run on one process, a run in blocks, and a distributed one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dgbench.models.aggregation import Aggregator
from dgbench.models.frame import FrameModel

Carry = tuple[Tensor, ...]
"""Carry of a part from one block of snapshots to the next; () for a part without state."""


@dataclass(frozen=True, slots=True)
class TimelineState:
    """State at a block's border (pi_b in ESDG, section 3.1).

    Attributes:
        chain: of the part that every rank computes alike, such as evolving weights.
        layers: of each layer's temporal half, rows of vertices: a rank keeps those it owns.
    """

    chain: Carry = ()
    layers: tuple[Carry, ...] = ()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors, chain first; a checkpoint's gradients come back in this order."""
        return (*self.chain, *(t for layer in self.layers for t in layer))

    def with_tensors(self, tensors: Sequence[Tensor]) -> TimelineState:
        """The same state over other tensors in the order of `tensors`, such as detached ones."""
        queue = iter(tensors)
        return TimelineState(
            tuple(next(queue) for _ in self.chain),
            tuple(tuple(next(queue) for _ in layer) for layer in self.layers),
        )

    def detach(self) -> TimelineState:
        """The state without history, its tensors leaves that want a gradient."""
        return self.with_tensors([t.detach().requires_grad_() for t in self.tensors])


class TimelineModel(FrameModel):
    """Layers of a spatial half per snapshot and a temporal half per vertex.

    A driver runs, for a block of snapshots: `chain` once; then for each layer `spatial` for every
    snapshot, and where `has_temporal` says so `temporal` over any rows of all its snapshots.

    Attributes:
        num_layers: L.
        input_dims: floats per vertex that each layer aggregates.
        spatial_dims: floats per vertex that each layer's spatial half gives.
        layer_dims: floats per vertex that each layer gives.
    """

    num_layers: int
    input_dims: tuple[int, ...]
    spatial_dims: tuple[int, ...]
    layer_dims: tuple[int, ...]

    def chain(self, steps: int, carry: Carry) -> tuple[list[Any], Carry]:
        """Inputs of the spatial half besides features, for `steps` snapshots, and the next carry.

        The same on every rank; `carry` is () at the start of the timeline. Here: nothing.
        """
        return [None] * steps, ()

    @abstractmethod
    def spatial(self, layer: int, aggregated: Tensor, link: Any = None) -> Tensor:
        """The dense part of a layer for one snapshot.

        Args:
            layer: 0 .. L - 1.
            aggregated: A-hat_t times the layer's input, [rows, input_dims[layer]]; any rows.
            link: this snapshot's entry of `chain`.

        Returns:
            [rows, spatial_dims[layer]].
        """

    def has_temporal(self, layer: int) -> bool:
        """Return True if the layer has a temporal half: its output must be redistributed."""
        return False

    def temporal(self, layer: int, x: Tensor, carry: Carry) -> tuple[Tensor, Carry]:
        """The temporal half over all snapshots of a block for any rows of vertices.

        Args:
            layer: one with `has_temporal`.
            x: [steps, rows, spatial_dims[layer]], in order of time.
            carry: of the same rows from the block before; () at the start of the timeline.

        Returns:
            ([steps, rows, layer_dims[layer]], next carry).
        """
        return x, ()

    @property
    def redistributed_dims(self) -> tuple[tuple[int, int], ...]:
        """(to vertices, back to snapshots) floats per vertex and step, of each temporal half.

        Their sum times T N (P - 1) / P is what one forward pass sends over P ranks.
        """
        return tuple(
            (self.spatial_dims[layer], self.layer_dims[layer])
            for layer in range(self.num_layers)
            if self.has_temporal(layer)
        )

    @property
    def activation_dim(self) -> int:
        """Floats per vertex and step that the backward pass of one snapshot needs, both halves."""
        return (
            sum(self.input_dims)
            + sum(self.spatial_dims)
            + sum(
                self.layer_dims[layer]
                for layer in range(self.num_layers)
                if self.has_temporal(layer)
            )
        )

    def state_dim(self) -> int:
        """Floats per vertex that a block's border keeps, once enough snapshots have passed."""
        return 0

    def forward_block(
        self, aggregator: Aggregator, times: range, state: TimelineState | None = None
    ) -> tuple[list[Tensor], TimelineState]:
        """Outputs [N, output_dim] of the snapshots `times`, and the state after them.

        Args:
            aggregator: how A-hat is applied; layer 0 takes `first`, the others `apply`.
            times: consecutive snapshots, at least one.
            state: after the snapshot before `times`; None at the start of the timeline.
        """
        state = state or TimelineState()
        links, chain = self.chain(len(times), state.chain)
        carries: list[Carry] = []
        hidden: list[Tensor] = []
        for layer in range(self.num_layers):
            aggregated = [
                aggregator.first(t) if layer == 0 else aggregator.apply(t, hidden[i])
                for i, t in enumerate(times)
            ]
            hidden = [
                self.spatial(layer, a, link) for a, link in zip(aggregated, links, strict=True)
            ]
            carry: Carry = ()
            if self.has_temporal(layer):
                before = state.layers[layer] if state.layers else ()
                out, carry = self.temporal(layer, torch.stack(hidden), before)
                hidden = list(out.unbind(0))
            carries.append(carry)
        return hidden, TimelineState(chain, tuple(carries))

    def forward_frame(self, aggregator: Aggregator, times: range) -> list[Tensor]:
        return self.forward_block(aggregator, times)[0]
