"""The M-transform of TM-GCN: a banded, lower-triangular average over time (ESDG 2, Eq. for M)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from dgbench.datasets.transforms.edge_life import edge_life
from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import InvalidInputError


def m_transform(snapshots: Sequence[Csr], window: int) -> list[Csr]:
    """Average every adjacency matrix with those before it: A_t <- mean of the last min(w, t).

    M[t, k] = 1 / min(w, t) for max(1, t - w + 1) <= k <= t (t from 1) and 0 elsewhere. That is the
    edge-life of the same length, divided by the number of snapshots it adds up: both smoothings
    keep the same entries.

    Args:
        snapshots: T matrices of one size; an entry without a value counts as 1.
        window: w >= 1; 1 leaves the values as they are.

    Returns:
        T matrices with float32 values, rows sorted, one entry where any of the w had one. Sums are
        formed in float64 and rounded, then divided.
    """
    _check(window)
    filled = [replace(csr, values=_weights(csr)) for csr in snapshots]
    means = []
    for step, total in enumerate(edge_life(filled, window)):
        terms = min(window, step + 1)
        means.append(total if terms == 1 else replace(total, values=_weights(total) / terms))
    return means


def m_transform_features(x: Tensor, window: int) -> Tensor:
    """The same average over the first dimension of x float32[T, ...]; the shape stays."""
    _check(window)
    if x.shape[0] == 0:
        return x.clone()
    total = torch.cumsum(x.to(torch.float64), 0)
    total[window:] -= total[:-window].clone()
    terms = torch.arange(1, x.shape[0] + 1, dtype=torch.float64).clamp(max=window)
    return (total / terms.reshape(-1, *[1] * (x.dim() - 1))).to(x.dtype)


def _weights(csr: Csr) -> Tensor:
    return torch.ones(csr.nnz) if csr.values is None else csr.values.to(torch.float32)


def _check(window: int) -> None:
    if not isinstance(window, int) or window < 1:
        raise InvalidInputError(f"window is {window!r}; an integer >= 1 is allowed")
