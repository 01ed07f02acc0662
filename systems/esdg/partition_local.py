"""A rank's snapshots where they lie: A-hat over a run of steps as one product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from dgbench.datasets.transforms import factors
from dgbench.kernels_cuda.aggregate import spmm
from dgbench.kernels_cuda.csr import Csr
from dgbench.models import Aggregator
from dgbench.runtime.errors import UnsupportedError

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence

_MAX_ROWS: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _RowOrderRun:
    """Some steps in one order of their rows."""

    matrix: Csr
    row_scale: Tensor
    col_scale: Tensor


class LocalSnapshots:
    """A-hat over the snapshots of this process by the compiled product.

    Only snapshots that are asked for are touched. The matrices of a run of steps make one matrix,
    block by block, made at its first use and kept, so that a run costs one product however many
    steps it has. Its rows may stand in the order in which they are exchanged (see `positions`), so
    that they need not be sorted before and after. With `precompute` A-hat X is kept, too (ESDG,
    section 3.3); without it X is, on a device that it would have to be copied to again.

    Args:
        data: snapshots without self loops.
        norm: `sym` or `mean`.
        dtype: of features and results.
        device: where products are made.
        precompute: see above.
    """

    def __init__(
        self,
        data: SnapshotSequence,
        norm: str,
        dtype: torch.dtype,
        *,
        device: torch.device | str = "cpu",
        precompute: bool = True,
    ) -> None:
        self._data, self._norm, self._dtype = data, norm, dtype
        self._device, self.precompute = torch.device(device), precompute
        self._first: dict[tuple[range, tuple[int, ...]], Tensor] = {}
        self._inputs: dict[tuple[range, tuple[int, ...]], Tensor] = {}
        self._runs: dict[tuple[range, tuple[int, ...]], _RowOrderRun] = {}

    def raw(self, t: int) -> Tensor:
        return torch.as_tensor(self._data.features[t]).to(self._device, self._dtype)

    def first(self, t: int) -> Tensor:
        return self.first_run(range(t, t + 1))

    def apply(self, t: int, h: Tensor) -> Tensor:
        return self.apply_run(range(t, t + 1), h)

    def first_run(self, steps: range, chunks: tuple[int, ...] = ()) -> Tensor:
        """A-hat X of these steps, [steps N, F]; at least one step.

        Args:
            steps: consecutive snapshots.
            chunks: numbers of consecutive vertices whose rows stand together, see `positions`; ():
                all of them.
        """
        chunks = chunks or (self._data.num_nodes,)
        found = self._first.get((steps, chunks))
        if found is None:
            x = self._inputs.get((steps, chunks))
            if x is None:
                raw = [self.raw(t).split(chunks) for t in steps]
                x = torch.cat([own[q] for q in range(len(chunks)) for own in raw])
            if self._device.type != "cpu" and not self.precompute:
                self._inputs[steps, chunks] = x
            with torch.no_grad():
                found = self.apply_run(steps, x, chunks)
            if self.precompute:
                self._first[steps, chunks] = found
        return found

    def apply_run(self, steps: range, h: Tensor, chunks: tuple[int, ...] = ()) -> Tensor:
        """A-hat_t h_t of these steps, [steps N, D] as h, in the same order of rows."""
        chunks = chunks or (self._data.num_nodes,)
        run = self._runs.get((steps, chunks))
        if run is None:
            run = self._runs[steps, chunks] = self._make(steps, chunks)
        return spmm(run.matrix, h, run.row_scale, run.col_scale, self_loop=True)

    def _make(self, steps: range, chunks: tuple[int, ...]) -> _RowOrderRun:
        matrices = [self._data.topology[t] for t in steps]
        scales = [factors(csr, self._norm, self._dtype) for csr in matrices]
        rows, cols = (
            torch.cat([own[q] for q in range(len(chunks)) for own in parts]).to(self._device)
            for parts in (
                [scale.split(chunks) for scale in side] for side in zip(*scales, strict=True)
            )
        )
        whole = matrices[0] if len(matrices) == 1 else together(matrices, chunks)
        if self._device.type != "cpu":
            values = None if whole.values is None else whole.values.to(self._device)
            whole = Csr(
                whole.indptr.to(self._device),
                whole.indices.to(self._device),
                whole.num_cols,
                values,
            )
        return _RowOrderRun(whole, rows, cols)


def positions(steps: int, chunks: Sequence[int]) -> Tensor:
    """Where the row of each step and vertex stands, int64[steps, N].

    Rows stand in the order in which they are sent to the owners of the vertices: all steps of the
    first chunk of vertices, step by step, then all steps of the second.
    """
    size = torch.tensor(chunks, dtype=torch.int64)
    before = size.cumsum(0) - size
    own, first = size.repeat_interleave(size), before.repeat_interleave(size)
    vertex = torch.arange(int(size.sum()))
    return first * (steps - 1) + vertex + torch.arange(steps).unsqueeze(1) * own


def together(matrices: Sequence[Csr], chunks: Sequence[int]) -> Csr:
    """Square matrices of one size as one, rows and columns at `positions`; weighted if any is.

    Raises:
        UnsupportedError: more rows than can be numbered.
    """
    nodes, count = matrices[0].num_rows, len(matrices)
    if nodes * count > _MAX_ROWS:
        raise UnsupportedError(
            f"a run of {count} snapshots of {nodes} vertices has more rows than the {_MAX_ROWS} "
            "that can be numbered",
            hint="train in more blocks, or let exchanges travel in more pieces",
        )
    place = positions(count, chunks).to(torch.int32)
    weighted = any(csr.values is not None for csr in matrices)
    lengths, indices, values = [], [], []
    first = 0
    for chunk in chunks:
        for i, csr in enumerate(matrices):
            ends = csr.indptr[first : first + chunk + 1]
            own = slice(int(ends[0]), int(ends[-1]))
            lengths.append(ends.diff())
            # Positions of one step ascend with its vertices, so columns stay in order.
            indices.append(place[i][csr.indices[own]])
            if weighted:
                ones = csr.values is None
                values.append(torch.ones(own.stop - own.start) if ones else csr.values[own])
        first += chunk
    indptr = torch.zeros(nodes * count + 1, dtype=torch.int64)
    torch.cumsum(torch.cat(lengths), 0, out=indptr[1:])
    return Csr(indptr, torch.cat(indices), nodes * count, torch.cat(values) if weighted else None)


def first_run(aggregator: Aggregator, steps: range) -> Tensor:
    """A-hat X of consecutive steps by any aggregator, [steps N, F]."""
    if isinstance(aggregator, LocalSnapshots):
        return aggregator.first_run(steps)
    return torch.cat([aggregator.first(t) for t in steps])


def apply_run(aggregator: Aggregator, steps: range, h: Tensor) -> Tensor:
    """A-hat_t h_t of consecutive steps by any aggregator, [steps N, D] as h."""
    if isinstance(aggregator, LocalSnapshots):
        return aggregator.apply_run(steps, h)
    # Cut, as picking steps one by one would sum gradients of the size of all.
    parts = h.split(h.shape[0] // len(steps))
    return torch.cat([aggregator.apply(t, x) for t, x in zip(steps, parts, strict=True)])
