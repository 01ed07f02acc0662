"""A rank's snapshots where they lie: A-hat over a run of steps as one product."""

from __future__ import annotations

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

_MOST_ROWS: Final = 2**31 - 1


class LocalSnapshots:
    """A-hat over the snapshots of this process by the compiled product.

    Only snapshots that are asked for are touched. The matrices of a run of steps stand one below
    the other in one matrix, made at its first use and kept, so that a run costs one product however
    many steps it has. With `precompute` A-hat X is kept, too (ESDG, section 3.3).

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
        self._device, self._precompute = torch.device(device), precompute
        self._first: dict[range, Tensor] = {}
        self._runs: dict[range, tuple[Csr, Tensor, Tensor]] = {}

    def raw(self, t: int) -> Tensor:
        return torch.as_tensor(self._data.features[t]).to(self._device, self._dtype)

    def first(self, t: int) -> Tensor:
        return self.first_run(range(t, t + 1))[0]

    def apply(self, t: int, h: Tensor) -> Tensor:
        return self.apply_run(range(t, t + 1), h.unsqueeze(0))[0]

    def first_run(self, steps: range) -> Tensor:
        """A-hat X of these steps, [steps, N, F]; at least one step."""
        found = self._first.get(steps)
        if found is None:
            with torch.no_grad():
                found = self.apply_run(steps, torch.stack([self.raw(t) for t in steps]))
            if self._precompute:
                self._first[steps] = found
        return found

    def apply_run(self, steps: range, h: Tensor) -> Tensor:
        """A-hat_t h_t of these steps, [steps, N, D]; at least one step."""
        if steps not in self._runs:
            self._runs[steps] = self._stacked(steps)
        matrix, rows, cols = self._runs[steps]
        return spmm(matrix, h.flatten(0, 1), rows, cols, self_loop=True).view_as(h)

    def _stacked(self, steps: range) -> tuple[Csr, Tensor, Tensor]:
        """The matrices of a run along one diagonal, and their scales."""
        matrices = [self._data.topology[t] for t in steps]
        scales = [factors(csr, self._norm) for csr in matrices]
        rows, cols = (torch.cat(s).to(self._device, self._dtype) for s in zip(*scales, strict=True))
        if len(matrices) == 1:
            whole = matrices[0]
        else:
            whole = along_diagonal(matrices)
        if self._device.type != "cpu":
            values = None if whole.values is None else whole.values.to(self._device)
            whole = Csr(
                whole.indptr.to(self._device),
                whole.indices.to(self._device),
                whole.num_cols,
                values,
            )
        return whole, rows, cols


def along_diagonal(matrices: list[Csr]) -> Csr:
    """Square matrices of one size as the blocks of one; weighted if any of them is.

    Raises:
        UnsupportedError: more rows than can be numbered.
    """
    nodes = matrices[0].num_rows
    if nodes * len(matrices) > _MOST_ROWS:
        raise UnsupportedError(
            f"a run of {len(matrices)} snapshots of {nodes} vertices has more rows than the "
            f"{_MOST_ROWS} that can be numbered",
            hint="train in more blocks, or let exchanges travel in more pieces",
        )
    weighted = any(csr.values is not None for csr in matrices)
    indptr, entries = [matrices[0].indptr[:1]], 0
    indices, values = [], []
    for i, csr in enumerate(matrices):
        indptr.append(csr.indptr[1:] + entries)
        indices.append(csr.indices + i * nodes)
        entries += csr.nnz
        if weighted:
            values.append(torch.ones(csr.nnz) if csr.values is None else csr.values)
    return Csr(
        torch.cat(indptr),
        torch.cat(indices),
        nodes * len(matrices),
        torch.cat(values) if weighted else None,
    )


def first_run(aggregator: Aggregator, steps: range) -> Tensor:
    """`LocalSnapshots.first_run` of any aggregator."""
    if isinstance(aggregator, LocalSnapshots):
        return aggregator.first_run(steps)
    return torch.stack([aggregator.first(t) for t in steps])


def apply_run(aggregator: Aggregator, steps: range, h: Tensor) -> Tensor:
    """`LocalSnapshots.apply_run` of any aggregator."""
    if isinstance(aggregator, LocalSnapshots):
        return aggregator.apply_run(steps, h)
    # Unbound, as picking them one by one would sum gradients of the size of all.
    return torch.stack([aggregator.apply(t, x) for t, x in zip(steps, h.unbind(0), strict=True)])
