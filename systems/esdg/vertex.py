"""Vertex partition, the baseline that ESDG compares with (section 4.4 of its dossier)."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from dgbench.datasets import SnapshotSequence
from dgbench.datasets.transforms import factors
from dgbench.kernels_cuda.aggregate import spmm
from dgbench.models import TimelineModel, TimelineState
from dgbench.runtime.collectives import Communicator
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.timeline import TimelineTask
from dgbench.systems.esdg.partition import Split, consecutive
from dgbench.systems.esdg.vertex_parts import VertexParts
from dgbench.systems.esdg.vertex_plan import (
    Gather,
    StepPlan,
    coordinates,
    local_matrix,
    needs,
)


class VertexSplit(Split):
    """Each rank holds its vertices at all steps and asks for the rows that its convolutions read.

    A rank keeps its rows of every A-hat_t, cut to the columns it reads, with lists of what each
    other rank needs of it; lists are made once from the topology. Temporal halves are local.
    With A-hat X precomputed the first layer sends nothing; its rows are made here from the data,
    as every rank can read it. For pairs of vertices the owner of the target asks for the source.

    Attributes:
        parts: of the vertices.
        pieces: 1: one exchange per layer and block. More: a block's steps travel in so many
            pieces, and one is convolved while the next are under way.
        precompute: whether A-hat X is kept; else the first layer sends its input, forward only.
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
    ) -> None:
        """Make lists and local matrices of `steps`; `task` is needed for `loss_sum` only."""
        if parts.size != comm.size or parts.owner.numel() != data.num_nodes:
            raise InvalidInputError(
                f"'parts' has {parts.size} parts of {parts.owner.numel()} vertices, needed: "
                f"{comm.size} ranks, {data.num_nodes} vertices"
            )
        if pieces < 1:
            raise InvalidInputError(f"'pieces' is {pieces}; an integer >= 1 is allowed")
        self.comm, self.model, self.parts, self.task = comm, model, parts, task
        self.pieces, self.precompute = pieces, precompute
        self.rows = parts.vertices(comm.rank)
        rank = comm.rank
        self._plans: list[StepPlan] = []
        self._matrices, self._scales, self._loops, self._input = [], [], [], []
        for t in steps:
            csr = data.topology[t]
            plan = StepPlan.build(*coordinates(csr), parts, rank)
            row_scale, col_scale = (scale.to(dtype) for scale in factors(csr, norm))
            self._plans.append(plan)
            self._matrices.append(local_matrix(csr, plan, parts, rank))
            self._scales.append((row_scale[self.rows], col_scale[plan.columns]))
            self._loops.append((row_scale * col_scale)[self.rows].unsqueeze(1))
            x = torch.as_tensor(data.features[t]).to(dtype)
            if precompute:
                self._input.append(self._convolve(t, x[self.rows], x[parts.order[plan.numbers]]))
            else:
                self._input.append(x[self.rows])
        self._pair_plans: list[StepPlan] = []
        self._pairs: list[tuple[Tensor, Tensor]] = []
        self.remote_pairs = 0
        if task is not None and task.workload.task == "link":
            for t in steps:
                self._plan_pairs(*task.pairs(t))
        self._gather = cache(self._make_gather)

    def run(self, times: range, state: TimelineState | None) -> tuple[Tensor, TimelineState]:
        state = state or TimelineState()
        links, chain = self.model.chain(len(times), state.chain)
        runs = consecutive(times, min(self.pieces, len(times)))
        carries: list[tuple[Tensor, ...]] = []
        hidden: list[Tensor] = [torch.stack(self._input[r.start : r.stop]) for r in runs]
        for layer in range(self.model.num_layers):
            moved = layer > 0 or not self.precompute
            if moved:
                gathers = [self._gather(r.start, r.stop, False) for r in runs]
                begun = [g.start(h, grad=layer > 0) for g, h in zip(gathers, hidden, strict=True)]
            done = []
            for k, run in enumerate(runs):
                rows = hidden[k]
                ghosts = gathers[k].finish(begun[k]) if moved else [None] * len(run)
                found = []
                for i, t in enumerate(run):
                    a = rows[i] if ghosts[i] is None else self._convolve(t, rows[i], ghosts[i])
                    found.append(self.model.spatial(layer, a, links[t - times.start]))
                done.append(torch.stack(found))
            hidden = done
            carry: tuple[Tensor, ...] = ()
            if self.model.has_temporal(layer):
                given = state.layers[layer] if state.layers else ()
                z, carry = self.model.temporal(layer, torch.cat(hidden), given)
                hidden = list(z.split([len(r) for r in runs]))
            carries.append(carry)
        return torch.cat(hidden), TimelineState(chain, tuple(carries))

    def loss_sum(self, times: range, out: Tensor) -> Tensor:
        """Summed loss of what this rank scores: its vertices, or the pairs with its targets.

        Args:
            times: a block.
            out: [steps, own vertices, D] of all its steps.
        """
        head = self.model.head
        if not self._pairs:
            losses = [
                self.task.loss_sum(head, t, h, self.rows) for t, h in zip(times, out, strict=True)
            ]
            return torch.stack(losses).sum()
        gather = self._gather(times.start, times.stop, True)
        ghosts = gather.finish(gather.start(out))
        losses = [
            head.loss_sum(torch.cat([out[i], ghosts[i]]), *self._pairs[t])
            for i, t in enumerate(times)
        ]
        return torch.stack(losses).sum()

    def _convolve(self, t: int, own: Tensor, ghosts: Tensor) -> Tensor:
        # A rank's rows are not square, so the loops are added here.
        y = spmm(self._matrices[t], torch.cat([own, ghosts]), *self._scales[t])
        return y + self._loops[t] * own

    def _plan_pairs(self, pairs: Tensor, label: Tensor) -> None:
        source, target = pairs
        plan = StepPlan.build(target, source, self.parts, self.comm.rank)
        mine = self.parts.owner[target] == self.comm.rank
        ends = [plan.local(end[mine], self.parts, self.comm.rank) for end in (source, target)]
        self._pair_plans.append(plan)
        self._pairs.append((torch.stack(ends), label[mine]))
        self.remote_pairs += needs(target, source, self.parts).shape[1]

    def _make_gather(self, first: int, stop: int, pairs: bool) -> Gather:
        plans = self._pair_plans if pairs else self._plans
        return Gather(self.comm, plans[first:stop])
