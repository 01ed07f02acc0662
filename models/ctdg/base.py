"""Base of networks over sampled temporal neighbourhoods: one layer per hop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from dgbench.kernels_cuda.workspace import scratch
from dgbench.models.ctdg.link import LinkPredictor
from dgbench.models.ctdg.time_encoding import elapsed

Features = Callable[[Tensor], Tensor]
"""int64[n] ids -> floating [n, D]."""


class SampledHop(Protocol):
    """One hop of one snapshot: what a network reads of `kernels_cuda.temporal_sample.Sample`.

    Targets of the next hop are the targets of this one, then all its neighbours, in order.

    Attributes:
        nodes: int64[R] targets.
        times: float64[R], when each of them is asked for.
        offsets: int64[R + 1]: where the neighbours of each target begin.
        neighbours, eids: int64[K].
        edge_times: float64[K].
        fanout: neighbours of a target at most.
        uncounted: whether arrays have room for the most neighbours, of which the first
            `offsets[-1]` hold.
    """

    nodes: Tensor
    times: Tensor
    offsets: Tensor
    neighbours: Tensor
    eids: Tensor
    edge_times: Tensor
    fanout: int
    uncounted: bool


class Neighbourhood:
    """A hop as dense rows of `fanout` places, the neighbours of a target first.

    Nothing here reads a number from the device, so that a CUDA graph can hold it.

    Attributes:
        shape: (R, fanout).
        counts: int64[R] neighbours of each target.
        mask: bool[R, fanout], where there is a neighbour; None where every place is taken.
    """

    def __init__(self, hop: SampledHop, device: torch.device) -> None:
        self.hop = hop
        self.counts = hop.offsets.diff().to(device)
        self.shape = (self.counts.numel(), hop.fanout)
        self._device = device

    @cached_property
    def mask(self) -> Tensor | None:
        if not self.hop.uncounted and self.hop.eids.numel() == self.shape[0] * self.shape[1]:
            return None
        return torch.arange(self.hop.fanout, device=self._device) < self.counts.unsqueeze(1)

    @cached_property
    def _entries(self) -> Tensor:
        """int64[R * fanout]: the neighbour of each place; behind the last where there is none."""
        first = self.hop.offsets[:-1].to(self._device).unsqueeze(1)
        entries = first + torch.arange(self.hop.fanout, device=self._device)
        return entries.masked_fill_(~self.mask, self.hop.eids.numel()).flatten()

    def spread(self, rows: Tensor) -> Tensor:
        """[K, D] -> [R, fanout, D], zeros where there is no neighbour; not differentiable."""
        if self.mask is not None:
            room = scratch.empty((self.mask.numel(), rows.shape[1]), rows)
            if rows.shape[0] == 0:
                return room.zero_().view(*self.shape, rows.shape[1])
            entries = self._entries.clamp(max=rows.shape[0] - 1)
            rows = torch.index_select(rows, 0, entries, out=room)
            rows.masked_fill_(~self.mask.view(-1, 1), 0)
        return rows.view(*self.shape, rows.shape[1])

    def gather(self, rows: Tensor) -> Tensor:
        """[R, fanout, D] -> [K, D]: the reverse of `spread`; zeros for what is no neighbour."""
        rows = rows.flatten(0, 1)
        if self.mask is None:
            return rows
        room = rows.new_zeros(self.hop.eids.numel() + 1, rows.shape[1])
        return room.index_copy_(0, self._entries, rows)[:-1]

    def ages(self) -> Tensor:
        """float64[R, fanout]: time from each edge to its target's, 0 where there is none."""
        times, edge_times = (x.to(self._device) for x in (self.hop.times, self.hop.edge_times))
        age = elapsed(times.unsqueeze(1), self.spread(edge_times.unsqueeze(1)).squeeze(2))
        return age if self.mask is None else age.masked_fill_(~self.mask, 0)


class Spread(torch.autograd.Function):
    """`Neighbourhood.spread`, differentiable once."""

    @staticmethod
    def forward(ctx: Any, around: Neighbourhood, rows: Tensor) -> Tensor:
        ctx.around = around
        return around.spread(rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, ctx.around.gather(grad)


class StreamModel(nn.Module, ABC):
    """A network that embeds vertices at times from what was sampled around them.

    Attributes:
        layers: one per hop, the innermost (farthest from the roots) first; of `StreamDysat` there
            are such `windows` instead. A layer maps
            (neighbourhood, targets [R, D], neighbours [K, D], edges [K, E] or None) to [R, H].
        output_dim: floats of an embedding.
        head: scores pairs of embeddings.
        remembers: whether it keeps a memory of every vertex (`Tgn`).
    """

    remembers = False
    layers: nn.ModuleList
    output_dim: int
    head: LinkPredictor

    @abstractmethod
    def forward(
        self,
        samples: Sequence[Sequence[SampledHop]],
        node_features: Features,
        edge_features: Features | None,
    ) -> Tensor:
        """Embeddings of the roots.

        Args:
            samples: [snapshot][hop], the newest snapshot first.
            node_features: of the farthest hop's targets and neighbours.
            edge_features: of all sampled edges; None where edges have none.

        Returns:
            [roots, output_dim], in the order of the roots.
        """

    def embed(
        self,
        hops: Sequence[SampledHop],
        node_features: Features,
        edge_features: Features | None,
        layers: nn.ModuleList | None = None,
    ) -> Tensor:
        """Embeddings [R, H] from the hops of one snapshot, farthest first, by its own layers or
        those of the model."""
        last = hops[-1]
        h = node_features(torch.cat([last.nodes, last.neighbours]))
        for layer, hop in zip(layers or self.layers, reversed(hops), strict=True):
            rows = hop.nodes.numel()
            edges = None if edge_features is None else edge_features(hop.eids)
            around = Neighbourhood(hop, h.device)
            h = layer(around, h[:rows], h[rows:], edges)
        return h
