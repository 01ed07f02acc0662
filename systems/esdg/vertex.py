"""Vertex partition, the baseline that ESDG compares with (section 4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from dgbench.datasets import SnapshotSequence
from dgbench.models import TimelineModel, TimelineState
from dgbench.models.timeline import Carry
from dgbench.runtime.collectives import Communicator
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.fields import check_count
from dgbench.systems.base.timeline import TimelineTask
from dgbench.systems.esdg.partition import PartitionedPass, consecutive
from dgbench.systems.esdg.vertex_parts import VertexParts
from dgbench.systems.esdg.vertex_plan import needs
from dgbench.systems.esdg.vertex_rows import HeldRows, can_scan, last_temporal, temporal
from dgbench.systems.esdg.weights import chain_run, spatial_run


class VertexSplit(PartitionedPass):
    """Each rank holds its vertices at all steps and asks for the rows that its convolutions read.

    A rank keeps its rows of every A-hat_t, cut to the columns it reads, with lists of what each
    other rank needs of it; lists are made once from the topology. Temporal halves are local.
    With A-hat X precomputed the first layer sends nothing; its rows are made here from the data,
    as every rank can read it. For pairs of vertices the owner of the target asks for the source.

    Attributes:
        parts: of the vertices.
        held_rows: this rank's rows of the snapshots.
        pieces: 1: one exchange per layer and block. More: a block's steps travel in so many
            pieces, and one is convolved while the next are under way.
        precompute: whether A-hat X is kept; else the first layer sends its input, forward only.
        fused: whether a compiled scan runs the recurrences.
    """

    def __init__(
        self,
        comm: Communicator,
        model: TimelineModel,
        data: SnapshotSequence,
        steps: range,
        parts: VertexParts,
        *,
        norm: str = "sym",
        dtype: torch.dtype = torch.float32,
        task: TimelineTask | None = None,
        pieces: int = 1,
        precompute: bool = True,
        fused: bool = True,
    ) -> None:
        """Lists and matrices of a block are made by `prepare`, else at its first pass.

        Args:
            comm: of P ranks; lists and matrices lie on its device.
            model: replicated.
            data, steps: the sequence, and what of it is trained on.
            parts: P of them.
            norm, dtype: of A-hat.
            task: needed for `loss_sum` only.
            pieces, precompute, fused: see above.

        Raises:
            InvalidInputError: parts that do not fit, or no piece.
        """
        if parts.size != comm.size or parts.owner.numel() != data.num_nodes:
            raise InvalidInputError(
                f"'parts' has {parts.size} parts of {parts.owner.numel()} vertices, needed: "
                f"{comm.size} ranks, {data.num_nodes} vertices"
            )
        check_count("'pieces'", pieces)
        self.comm, self.model, self.parts, self.task = comm, model, parts, task
        self.pieces, self.precompute = pieces, precompute
        self.fused = fused and can_scan(model, comm.device)
        self.held_rows = HeldRows(
            comm,
            data,
            parts,
            member=comm.rank,
            norm=norm,
            dtype=dtype,
            task=task,
            precompute=precompute,
        )
        self.rows = self.held_rows.rows
        self._steps = steps

    @cached_property
    def remote_pairs(self) -> int:
        """Sources of pairs that all ranks ask each other for, over all steps; 0 without pairs."""
        if self.task is None or self.task.workload.task != "link":
            return 0
        pairs = (self.task.pairs(t)[0].cpu() for t in self._steps)
        return sum(needs(target, source, self.parts).shape[1] for source, target in pairs)

    def prepare(self, blocks: Sequence[range]) -> None:
        """Make the lists and matrices of these blocks, so that no pass has to."""
        for times in blocks:
            for run in self._runs(times):
                self.held_rows.prepare(run)

    def run(self, times: range, state: TimelineState | None) -> tuple[Tensor, TimelineState]:
        return self._pass(times, state, self.model.num_layers)

    def border(self, times: range, state: TimelineState | None, *, lean: bool) -> TimelineState:
        last = last_temporal(self.model) + 1 if lean else self.model.num_layers
        return self._pass(times, state, last)[1]

    def _pass(
        self, times: range, state: TimelineState | None, layers: int
    ) -> tuple[Tensor, TimelineState]:
        """As `run`, through the first layers only."""
        state, model = state or TimelineState(), self.model
        links, chain = chain_run(model, len(times), state.chain, fused=self.fused)
        runs = self._runs(times)
        carries: list[Carry] = [()] * model.num_layers
        hidden = [self.held_rows.inputs(run) for run in runs]
        z = hidden[0]
        for layer in range(layers):
            if layer > 0 or not self.precompute:
                hidden = self._convolve(runs, hidden, grad=layer > 0)
            series = torch.cat(hidden) if len(hidden) > 1 else hidden[0]
            z = spatial_run(model, layer, series, links)
            if model.has_temporal(layer):
                given = state.layers[layer] if state.layers else ()
                z, carries[layer] = temporal(model, layer, z, given, fused=self.fused)
            hidden = list(z.split([len(run) for run in runs]))
        return z, TimelineState(chain, tuple(carries))

    def loss_sum(self, times: range, out: Tensor) -> Tensor:
        """Summed loss of what this rank scores: its vertices, or the pairs with its targets.

        Args:
            times: a block.
            out: [steps, own vertices, D] of all its steps.
        """
        return self.held_rows.loss_sum(self.model.head, times, out)

    def _runs(self, times: range) -> list[range]:
        return consecutive(times, min(self.pieces, len(times)))

    def _convolve(self, runs: list[range], hidden: list[Tensor], *, grad: bool) -> list[Tensor]:
        rows = self.held_rows
        begun = [rows.start(run, h, grad=grad) for run, h in zip(runs, hidden, strict=True)]
        return [
            rows.convolve(run, h, exchange)
            for run, h, exchange in zip(runs, hidden, begun, strict=True)
        ]
