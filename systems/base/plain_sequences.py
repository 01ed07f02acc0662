"""The oracle of training on sequences: one process, plain torch, every step in the open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgbench.kernels_cuda.supergraph import Supergraph
from dgbench.models.attention import plain_attend_rows
from dgbench.models.sequence import CONTINUES, FROM_ZERO
from dgbench.runtime.meter import Meter
from dgbench.systems.base.sequences import SequenceTrainer, SequenceWorkload, by_step
from dgbench.systems.base.system import FrameResult
from dgbench.systems.base.training import coordinates

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence


class PlainSequences(SequenceTrainer):
    """The reference: one process, snapshot by snapshot, one padded row for each entity.

    Nothing but torch's own operators. Takes `dtype` float32 or float64.
    """

    def __init__(
        self,
        workload: SequenceWorkload,
        data: SnapshotSequence,
        *,
        device: str = "cpu",
        meter: Meter | None = None,
        dtype: torch.dtype = torch.float32,
        graph: Supergraph | None = None,
    ) -> None:
        super().__init__(workload, data, device=device, meter=meter, dtype=dtype, graph=graph)
        self._ids = by_step(self.graph)
        self._snapshots = [
            _PlainSnapshot(
                data, t, self.graph.entity[ids].long(), workload.norm, self.device, dtype
            )
            for t, ids in enumerate(self._ids)
        ]
        self._order = torch.cat(self._ids).argsort().to(self.device)
        self._rows = _Padded(self.graph, self.device)
        self._scored = self.task.scored.to(self.device)

    def accumulate(self) -> float:
        with self.meter.phase("compute"):
            hidden = self._forward()
            loss = self.task.loss_sum(self.model.head, hidden, self._scored) / self.task.count
            loss.backward()
            return float(loss.detach())

    def result(self, frame: int = 0) -> FrameResult:
        """Outputs of all vertex-steps, gradients and loss, without an update."""
        self._check(frame)
        hidden = self._forward()
        loss = self.task.loss_sum(self.model.head, hidden, self._scored) / self.task.count
        leaves = dict(self.model.named_parameters())
        found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        gradients = {
            name: (torch.zeros_like(leaf) if grad is None else grad).detach().cpu()
            for (name, leaf), grad in zip(leaves.items(), found, strict=True)
        }
        return FrameResult(hidden.detach().cpu(), gradients, float(loss.detach()))

    @torch.no_grad()
    def outputs(self) -> Tensor:
        return self._forward()

    @torch.no_grad()
    def accuracy(self) -> float:
        right, total = self.task.hits(self.model.head, self._forward(), self._scored)
        return right / total if total else 0.0

    def _forward(self) -> Tensor:
        spatial = [self.model.spatial(snapshot, snapshot.raw) for snapshot in self._snapshots]
        x = torch.cat(spatial).index_select(0, self._order)
        rows = self._rows
        steps, entities = rows.sequence.shape
        if not x.shape[0]:
            return x[:, : self.model.output_dim]  # nothing to run, but a part of the graph
        packed = x.new_zeros(steps * entities, x.shape[1]).index_copy(0, rows.place, x)
        out = self.model.temporal(packed.view(steps, entities, -1), rows)[0]
        return out.reshape(-1, out.shape[2]).index_select(0, rows.place)


class _PlainSnapshot:
    """The vertices that exist in one snapshot as `Neighbours`; A-hat is a list of entries."""

    def __init__(
        self,
        data: SnapshotSequence,
        t: int,
        entity: Tensor,
        norm: str,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        csr = data.topology[t]
        self.rows = entity.numel()
        self.raw = torch.as_tensor(data.features[t])[entity].to(device, dtype)
        place = torch.full((csr.num_rows,), -1)
        place[entity] = torch.arange(self.rows)
        source, target = coordinates(csr)
        weight = torch.ones(csr.nnz) if csr.values is None else csr.values
        weight = weight.double()
        row_scale, col_scale = _scales(target, weight, csr.num_rows, norm)
        value = (weight * row_scale[target] * col_scale[source]).to(dtype)
        self._loop = (row_scale * col_scale)[entity].to(device, dtype)
        self._source, self._target = place[source].to(device), place[target].to(device)
        self._value = value.to(device)
        # An entry's both ends exist and rows are in order, so these are rows of vertex-steps.
        counts = torch.bincount(place[target], minlength=self.rows)
        self._indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(device)

    def propagate(self, shown: Tensor) -> Tensor:
        """A-hat shown: the entries' sum and the loops."""
        arriving = shown.index_select(0, self._source) * self._value[:, None]
        return (shown * self._loop[:, None]).index_add(0, self._target, arriving)

    def attend(self, values: Tensor, source: Tensor, target: Tensor, slope: float) -> Tensor:
        """As `models.attend_rows` does."""
        return plain_attend_rows(self._indptr, self._source, values, source, target, slope)


def _scales(target: Tensor, weight: Tensor, rows: int, norm: str) -> tuple[Tensor, Tensor]:
    """Row and column scales of A-hat in float64, loops added: `sym` deg^-1/2, `mean` 1 / deg."""
    degree = torch.ones(rows, dtype=torch.float64).index_add(0, target, weight)
    scale = torch.where(degree > 0, degree.clamp(min=1e-300), torch.inf)
    if norm == "sym":
        return scale**-0.5, scale**-0.5
    return 1 / scale, torch.ones_like(scale)


class _Padded:
    """A row for each entity, as long as the longest sequence (`models.sequence.SequenceRows`)."""

    def __init__(self, graph: Supergraph, device: torch.device) -> None:
        lengths = graph.start.diff()
        alive = lengths > 0
        row = torch.cumsum(alive, 0) - 1
        count, longest = int(alive.sum()), int(lengths.max()) if lengths.numel() else 0
        entity = graph.entity.long()
        position = torch.arange(graph.num_vertices) - graph.start[entity]
        place = position * count + row[entity]
        sequence = torch.full((longest * count,), -1)
        sequence[place] = row[entity]
        begins = torch.full((longest * count,), FROM_ZERO, dtype=torch.int32)
        begins[place] = torch.where(position > 0, CONTINUES, FROM_ZERO).to(torch.int32)
        at = torch.zeros(longest * count, dtype=torch.int64)
        at[place] = position
        self.place = place.to(device)
        self.sequence, self.begins, self.position = (
            x.view(longest, count).to(device) for x in (sequence, begins, at)
        )
