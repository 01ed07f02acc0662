"""A rank's rows of some snapshots, laid out so that a run of steps is convolved by one product.

The rows of all steps of a run make one matrix, block by block, over the rank's own rows and, behind
them, the rows that other ranks send, in the order in which they arrive. So a message is taken as it
comes, and a run costs one selection, one exchange and one product, however many steps it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dgbench.datasets import SnapshotSequence
from dgbench.datasets.transforms import factors
from dgbench.kernels_cuda.aggregate import spmm
from dgbench.kernels_cuda.csr import Csr
from dgbench.models import TimelineModel
from dgbench.models.timeline import Carry
from dgbench.runtime.collectives import Communicator, Exchange
from dgbench.runtime.errors import UnsupportedError
from dgbench.systems.base.timeline import TimelineTask
from dgbench.systems.esdg.forward import fused_temporal
from dgbench.systems.esdg.vertex_parts import VertexParts
from dgbench.systems.esdg.vertex_plan import Gather, StepPlan, coordinates, packing, place_of

_MAX_COLUMNS = 2**31 - 1


@dataclass(frozen=True)
class _StepRun:
    """A run of steps: matrix [S n, S n + arriving] with its scales, and the first layer's input."""

    gather: Gather
    matrix: Csr
    row_scale: Tensor
    col_scale: Tensor
    inputs: Tensor


class HeldRows:
    """The rows of one rank among those that share snapshots, and what it is told of the others'.

    A run's lists and matrix are made in memory at its first use, and kept on the rank's device.

    Attributes:
        parts: of the vertices, over the ranks that share.
        rows: vertices of this rank, int64, ascending, in memory.
        device: where matrices and inputs are.
        entries: step -> entries of its rows of A, loops not counted, for the steps made so far.
    """

    def __init__(
        self,
        comm: Communicator,
        data: SnapshotSequence,
        parts: VertexParts,
        *,
        member: int,
        base: int = 0,
        norm: str = "sym",
        dtype: torch.dtype = torch.float32,
        task: TimelineTask | None = None,
        precompute: bool = True,
    ) -> None:
        """Nothing is read of the data yet.

        Args:
            comm: of all ranks.
            data: the whole sequence; its graphs are read, their rows of this rank kept.
            parts: see above.
            member: this rank's part.
            base: rank of part 0; the parts are of consecutive ranks.
            norm, dtype: of A-hat.
            task: needed for `loss_sum` only.
            precompute: whether inputs are A-hat X, made here from the data, or X.
        """
        self.comm, self.parts, self.task, self.precompute = comm, parts, task, precompute
        self.rows, self.entries = parts.vertices(member), {}
        self.device = place_of(comm)
        self._scored = self.rows.to(self.device)
        self._data, self._norm, self._dtype = data, norm, dtype
        self._member, self._base = member, base
        self._runs: dict[range, _StepRun] = {}
        self._pair_runs: dict[range, tuple[Gather, list[tuple[Tensor, Tensor]]]] = {}

    def prepare(self, steps: range) -> None:
        """Make what a run needs."""
        self._run(steps)

    def inputs(self, steps: range) -> Tensor:
        """[S, n, F]: A-hat X where that is kept, else X."""
        return self._run(steps).inputs

    def start(self, steps: range, h: Tensor, *, grad: bool = True) -> Exchange | None:
        """Ask for the rows of h [S, n, D] that the others hold; None where nobody else does."""
        if self.parts.size == 1:
            return None
        return self._run(steps).gather.start(h, grad=grad)

    def convolve(self, steps: range, h: Tensor, begun: Exchange | None) -> Tensor:
        """A-hat's rows of this rank times h [S, n, D] and what was begun: [S, n, D].

        Without a step or a vertex the result has no rows; it depends on the exchange all the same.
        """
        run = self._run(steps)
        x = h.reshape(-1, h.shape[-1])
        if begun is not None:
            x = self._below(x, begun)
        return self._product(run.matrix, run.row_scale, run.col_scale, x).reshape(h.shape)

    def loss_sum(self, head: torch.nn.Module, steps: range, out: Tensor) -> Tensor:
        """Summed loss of what this rank scores: its vertices, or the pairs with its targets.

        All ranks call it alike, also those without a step, whose loss is 0: it depends on `out` and
        on the exchange that pairs make, for every rank takes part in the backward passes of both.

        Args:
            head: of the model.
            steps: those of `out`.
            out: [S, n, D].
        """
        if self.task.workload.task != "link":
            mine = self._scored
            losses = [self.task.loss_sum(head, t, h, mine) for t, h in zip(steps, out, strict=True)]
            return torch.stack(losses).sum() if losses else out.sum()
        gather, pairs = self._pairs(steps)
        flat = out.reshape(-1, out.shape[-1])
        if self.parts.size > 1:
            flat = self._below(flat, gather.start(out))
        if not pairs:
            return flat.sum()
        ends, labels = zip(*pairs, strict=True)
        return head.loss_sum(flat, torch.cat(ends, dim=1), torch.cat(labels))

    def _below(self, own: Tensor, begun: Exchange) -> Tensor:
        received = begun.wait()
        with packing(self.comm.meter, own.device):
            return torch.cat([own, received])

    def _product(self, matrix: Csr, rows: Tensor, cols: Tensor, x: Tensor) -> Tensor:
        if not matrix.num_rows:
            # Rows for others may have been sent all the same, and nothing comes back but gradients.
            return x[:0]
        return spmm(matrix, x, rows, cols)

    def _run(self, steps: range) -> _StepRun:
        if steps not in self._runs:
            self._runs[steps] = self._make_run(steps)
        return self._runs[steps]

    def _make_run(self, steps: range) -> _StepRun:
        data, parts, member = self._data, self.parts, self._member
        own, count = len(self.rows), len(steps)
        plans, blocks = [], []
        for t in steps:
            rows, cols = coordinates(data.topology[t])
            plans.append(StepPlan.build(rows, cols, parts, member))
            blocks.append(_entries(data.topology[t], rows, cols, plans[-1], parts, member))
            self.entries[t] = blocks[-1][0].numel() - own
        gather = Gather(self.comm, plans, own, base=self._base)
        width = count * own + gather.arriving
        if width > _MAX_COLUMNS:
            raise UnsupportedError(
                f"a run of {count} steps reads {width} rows on one rank, at most {_MAX_COLUMNS} "
                "can be numbered",
                hint="train in more blocks",
            )
        like = torch.as_tensor(data.features[0])
        row_scale = torch.empty(count * own, dtype=self._dtype)
        col_scale = torch.empty(width, dtype=self._dtype)
        x = torch.empty(width, like.shape[-1], dtype=self._dtype)
        for i, t in enumerate(steps):
            mine, theirs = slice(i * own, (i + 1) * own), count * own + gather.places[i]
            row, col = factors(data.topology[t], self._norm, self._dtype)
            row_scale[mine] = row[self.rows]
            ghosts = plans[i].columns[own:]
            features = torch.as_tensor(data.features[t])
            for made, found in ((col_scale, col), (x, features.to(self._dtype))):
                made[mine], made[theirs] = found[self.rows], found[ghosts]
        matrix = _moved(_stacked(blocks, gather.places, own, width), self.device)
        row_scale, col_scale, x = (a.to(self.device) for a in (row_scale, col_scale, x))
        shape = (count, own, like.shape[-1])
        if self.precompute:
            with torch.no_grad():
                inputs = self._product(matrix, row_scale, col_scale, x).reshape(shape)
        else:
            inputs = x[: count * own].clone().reshape(shape)
        return _StepRun(gather, matrix, row_scale, col_scale, inputs)

    def _pairs(self, steps: range) -> tuple[Gather, list[tuple[Tensor, Tensor]]]:
        if steps not in self._pair_runs:
            plans, found, own = [], [], len(self.rows)
            for t in steps:
                pairs, label = (x.cpu() for x in self.task.pairs(t))
                source, target = pairs
                plan = StepPlan.build(target, source, self.parts, self._member)
                mine = self.parts.owner[target] == self._member
                ends = [plan.local(e[mine], self.parts, self._member) for e in (source, target)]
                plans.append(plan)
                found.append((torch.stack(ends), label[mine]))
            gather = Gather(self.comm, plans, own, base=self._base)
            for i, (ends, label) in enumerate(found):
                ends = _place(ends, i, own, len(steps) * own, gather.places[i])
                found[i] = ends.to(self.device), label.to(self.device)
            self._pair_runs[steps] = gather, found
        return self._pair_runs[steps]


def last_temporal(model: TimelineModel) -> int:
    """The last layer with a temporal half, after which no state depends on anything; -1: none."""
    return max((k for k in range(model.num_layers) if model.has_temporal(k)), default=-1)


def temporal(
    model: TimelineModel, layer: int, x: Tensor, carry: Carry, *, fused: bool
) -> tuple[Tensor, Carry]:
    """`model.temporal`, or the compiled scan in its place where tensors have memory."""
    if fused and x.device.type != "meta":
        return fused_temporal(model, layer, x, carry)
    return model.temporal(layer, x, carry)


def can_scan(model: TimelineModel, device: torch.device) -> bool:
    """Return True if there are compiled scans for a model on a device; none for doubles on CUDA."""
    return device.type != "cuda" or next(model.parameters()).dtype == torch.float32


def _moved(csr: Csr, device: torch.device) -> Csr:
    if device.type == "cpu":
        return csr
    values = None if csr.values is None else csr.values.to(device)
    return Csr(csr.indptr.to(device), csr.indices.to(device), csr.num_cols, values)


def _place(columns: Tensor, step: int, own: int, behind: int, places: Tensor) -> Tensor:
    """Columns of a step's own matrix as those of a run's."""
    ghost = columns >= own
    found = columns + step * own
    found[ghost] = behind + places[columns[ghost] - own]
    return found


def _entries(
    csr: Csr, rows: Tensor, cols: Tensor, plan: StepPlan, parts: VertexParts, rank: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """(row, column, value) of a rank's rows and their loops, in order, over its local columns."""
    mine = (parts.owner[rows] == rank).nonzero().squeeze(1)
    loops = torch.arange(parts.sizes[rank])
    row = torch.cat([parts.position[rows[mine]] - parts.starts[rank], loops])
    col = torch.cat([plan.local(cols[mine], parts, rank), loops])
    by = torch.argsort(row * max(1, plan.columns.numel()) + col)
    values = csr.values
    if values is not None:
        values = torch.cat([values[mine], values.new_ones(loops.numel())])[by]
    return row[by], col[by], values


def _stacked(
    blocks: Sequence[tuple[Tensor, Tensor, Tensor | None]],
    places: Sequence[Tensor],
    own: int,
    width: int,
) -> Csr:
    """The matrix of a run from those of its steps."""
    behind = len(blocks) * own
    indptr = torch.zeros(behind + 1, dtype=torch.int64)
    indices, values = [], []
    weighted = any(block[2] is not None for block in blocks)
    for i, (row, col, value) in enumerate(blocks):
        indptr[1 + i * own : 1 + (i + 1) * own] = torch.bincount(row, minlength=own)
        indices.append(_place(col, i, own, behind, places[i]).to(torch.int32))
        if weighted:
            values.append(torch.ones(col.numel()) if value is None else value)
    return Csr(
        indptr.cumsum(0),
        torch.cat(indices) if indices else torch.zeros(0, dtype=torch.int32),
        width,
        torch.cat(values).contiguous() if weighted else None,
    )
