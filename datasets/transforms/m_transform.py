"""The M-transform of TM-GCN: a banded, lower-triangular average over time (ESDG 2, Eq. for M)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dgbench.datasets.transforms.stacks import from_sorted, rows_of
from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import InvalidInputError


def m_transform(snapshots: Sequence[Csr], window: int) -> list[Csr]:
    """Average every adjacency matrix with those before it: A_t <- mean of the last min(w, t).

    M[t, k] = 1 / min(w, t) for max(1, t - w + 1) <= k <= t (t from 1) and 0 elsewhere.

    Args:
        snapshots: T matrices of one size; an entry without a value counts as 1.
        window: w >= 1; 1 leaves the values as they are.

    Returns:
        T matrices with float32 values, rows sorted, one entry where any of the w had one.
    """
    _check(window)
    if not snapshots:
        return []
    num = snapshots[0].num_rows
    keys, values = [], []
    for step, csr in enumerate(snapshots):
        if csr.num_rows != num or csr.num_cols != num:
            raise InvalidInputError(f"snapshot {step} differs from snapshot 0 in its size")
        keys.append(rows_of(csr) * num + csr.indices.to(torch.int64))
        filled = torch.ones(csr.nnz) if csr.values is None else csr.values
        values.append(filled.to(torch.float64))
    smooth = []
    for step in range(len(snapshots)):
        first = max(0, step - window + 1)
        union, place = torch.unique(torch.cat(keys[first : step + 1]), return_inverse=True)
        total = torch.zeros(union.numel(), dtype=torch.float64)
        total.index_add_(0, place, torch.cat(values[first : step + 1]))
        mean = (total / (step + 1 - first)).to(torch.float32)
        smooth.append(from_sorted(union // max(1, num), union % max(1, num), num, mean))
    return smooth


def m_transform_features(x: Tensor, window: int) -> Tensor:
    """The same average over the first dimension of x float32[T, ...]; the shape stays."""
    _check(window)
    if x.shape[0] == 0:
        return x.clone()
    total = torch.cumsum(x.to(torch.float64), 0)
    total[window:] -= total[:-window].clone()
    terms = torch.arange(1, x.shape[0] + 1, dtype=torch.float64).clamp(max=window)
    return (total / terms.reshape(-1, *[1] * (x.dim() - 1))).to(x.dtype)


def _check(window: int) -> None:
    if not isinstance(window, int) or window < 1:
        raise InvalidInputError(f"window is {window!r}; an integer >= 1 is allowed")
