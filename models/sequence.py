"""Models cut for chunks: rounds of exchanges over vertex-steps, then a part over sequences.

DGC cuts a dynamic graph into chunks of vertex-steps across snapshots and vertices, so neither a
snapshot nor a vertex is whole on a worker. The spatial half is therefore a number of rounds: in
each, vertex-steps show something to their neighbours and receive from them, whatever chunk or
snapshot they are in. The temporal half reads packed rows of sequences, which may begin from states
that another worker sent. A plain run over whole snapshots uses the same parts.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from dgbench.kernels_cuda.scan import CONTINUES, FROM_ZERO
from dgbench.models.aggregation import Aggregator
from dgbench.models.frame import FrameModel
from dgbench.runtime.errors import UnsupportedError


class Neighbours(Protocol):
    """Neighbourhood operator of one round for R vertex-steps, its rows.

    What is shown has these rows first, then those of other workers that they need.

    Attributes:
        rows: R.
    """

    rows: int

    def propagate(self, shown: Tensor) -> Tensor:
        """A-hat shown: [C, W] -> [R, W]; differentiable."""
        ...

    def attend(self, values: Tensor, source: Tensor, target: Tensor, slope: float) -> Tensor:
        """`attention.attend_rows` over these neighbours: [C, K, D] -> [R, K, D]."""
        ...


class SequenceRows(Protocol):
    """Sequences in rows, N rows of T steps (`systems.dgc.packing.PackedRows`).

    Attributes:
        begins: int32[T, N]: FROM_ZERO where a sequence begins, CONTINUES elsewhere (`packed_scan`).
        sequence: int64[T, N], -1 where a row holds nothing.
        position: int64[T, N], from 0 in every sequence.
    """

    begins: Tensor
    sequence: Tensor
    position: Tensor


@dataclass(frozen=True, slots=True)
class Starts:
    """Where sequences begin when some begin from states that were sent.

    Attributes:
        begins: int32[T, N]: FROM_ZERO, CONTINUES, or a row of `states`, each once at most.
        states: as many as the model's `state_dims`, float [S, H] each.
    """

    begins: Tensor
    states: tuple[Tensor, ...]


class SequenceModel(FrameModel):
    """Spatial rounds, then one temporal half.

    A driver calls for every round k `show`, exchanges rows of it, and calls `receive`; then
    `temporal` over rows of sequences.

    Attributes:
        round_dims: floats per vertex-step that each round shows.
        spatial_dim: floats per vertex-step that the last round gives.
        state_dims: floats of each state that a sequence cut in two hands on; () for attention,
            whose sequences need the other part's spatial outputs instead.
    """

    round_dims: tuple[int, ...]
    spatial_dim: int
    state_dims: tuple[int, ...] = ()

    def show(self, k: int, x: Tensor) -> Tensor:
        """Features that vertex-steps send in round k: [rows, any] -> [rows, round_dims[k]].

        `x` is the input features in round 0, else what round k - 1 gave. Here: x itself.
        """
        return x

    @abstractmethod
    def receive(self, k: int, neighbours: Neighbours, shown: Tensor) -> Tensor:
        """Output of round k from the features `shown`: [C, round_dims[k]] -> [R, any]."""

    @abstractmethod
    def temporal(
        self, x: Tensor, rows: SequenceRows | None = None, starts: Starts | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The temporal half, step by step in plain torch.

        Args:
            x: [T, N, spatial_dim].
            rows: what the rows hold; None: each is one sequence from its first step.
            starts: replaces `rows.begins`.

        Returns:
            ([T, N, output_dim], the states after every step, [T, N, d] for d in `state_dims`).
        """

    def temporal_fused(
        self, x: Tensor, rows: SequenceRows | None = None, starts: Starts | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The same by compiled scans where there are any."""
        return self.temporal(x, rows, starts)

    def spatial(self, neighbours: Neighbours, x: Tensor) -> Tensor:
        """All rounds where nothing has to be sent: [R, feature_dim] -> [R, spatial_dim]."""
        for k in range(len(self.round_dims)):
            x = self.receive(k, neighbours, self.show(k, x))
        return x

    def forward_frame(self, aggregator: Aggregator, times: range) -> list[Tensor]:
        whole = [_AttendedSnapshot(aggregator, t) for t in times]
        spatial = [self.spatial(snapshot, snapshot.raw) for snapshot in whole]
        return list(self.temporal(torch.stack(spatial))[0].unbind(0))


class _AttendedSnapshot:
    """One whole snapshot as neighbours; the raw features go through `first`, which may be kept."""

    def __init__(self, aggregator: Aggregator, t: int) -> None:
        self._aggregator, self._t = aggregator, t
        self.raw = aggregator.raw(t)
        self.rows = self.raw.shape[0]

    def propagate(self, shown: Tensor) -> Tensor:
        if shown is self.raw:
            return self._aggregator.first(self._t)
        return self._aggregator.apply(self._t, shown)

    def attend(self, values: Tensor, source: Tensor, target: Tensor, slope: float) -> Tensor:
        attend = getattr(self._aggregator, "attend", None)
        if attend is None:
            raise UnsupportedError(
                f"{type(self._aggregator).__name__} has no `attend`, which DySAT needs",
                hint="choose a model of graph convolutions, or a system that serves attention",
            )
        return attend(self._t, values, source, target, slope)


def begins_of(x: Tensor, rows: SequenceRows | None, starts: Starts | None) -> Tensor:
    """int32[T, N] for `x` [T, N, ...]; without rows each row begins at its first step."""
    if starts is not None:
        return starts.begins
    if rows is not None:
        return rows.begins
    begins = torch.full(x.shape[:2], CONTINUES, dtype=torch.int32, device=x.device)
    begins[:1] = FROM_ZERO
    return begins


def masked_state(begins: Tensor, state: Tensor, starts: Tensor | None) -> Tensor:
    """The state [N, H] that a step sees: what went before, zero, or a start (`begins` int32[N])."""
    seen = torch.where((begins == CONTINUES).unsqueeze(1), state, torch.zeros_like(state))
    given = (begins >= 0).nonzero().squeeze(1)
    if starts is None or given.numel() == 0:
        return seen
    return seen.index_copy(0, given, starts.index_select(0, begins[given].long()))
