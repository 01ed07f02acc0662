"""Between a list of CSR matrices and flat edge lists."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import InvalidInputError


def flatten(snapshots: Sequence[Csr]) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """All entries of all snapshots as src, dst, step int64[sum of nnz] and weight or None.

    Raises InvalidInputError unless the snapshots agree in size and in having values.
    """
    first = snapshots[0]
    for step, csr in enumerate(snapshots):
        same = csr.num_rows == first.num_rows and csr.num_cols == first.num_cols
        if not same or (csr.values is None) != (first.values is None):
            raise InvalidInputError(
                f"snapshot {step} differs from snapshot 0 in its size or in having values"
            )
    counts = torch.tensor([csr.nnz for csr in snapshots])
    src = torch.cat([csr.indices for csr in snapshots]).to(torch.int64)
    dst = torch.cat([rows_of(csr) for csr in snapshots])
    step = torch.repeat_interleave(torch.arange(len(snapshots)), counts)
    if first.values is None:
        return src, dst, step, None
    return src, dst, step, torch.cat([csr.values for csr in snapshots])


def rows_of(csr: Csr) -> Tensor:
    """The row of every stored entry, int64[nnz]."""
    return torch.repeat_interleave(torch.arange(csr.num_rows), csr.indptr.diff())
