"""Vertex features and targets for graphs that bring none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import InvalidInputError


def degree_features(snapshots: Sequence[Csr], dim: int) -> Tensor:
    """log(1 + in-degree), log(1 + out-degree) of every vertex, repeated to `dim` columns.

    The degrees count stored entries of the snapshot itself; ESDG takes in- and out-degree as
    features, the logarithm and the repetition are ours.

    Returns:
        float32[T, N, dim].
    """
    _positive(dim)
    nodes = snapshots[0].num_rows if snapshots else 0
    # numpy: hundreds of small steps, for which torch would wake its threads each time.
    out = np.empty((len(snapshots), nodes, dim), np.float32)
    previous: Csr | None = None
    for step, csr in enumerate(snapshots):
        if csr is previous:
            out[step] = out[step - 1]
            continue
        out[step, :, 0::2] = np.log1p(in_degree(csr))[:, None]
        out[step, :, 1::2] = np.log1p(out_degree(csr))[:, None]
        previous = csr
    return torch.from_numpy(out)


def degree_targets(snapshots: Sequence[Csr]) -> Tensor:
    """log(1 + in-degree) of every vertex, standardised over all snapshots; float32[T, N].

    The papers name no task for graphs without native targets; this one is ours.
    """
    nodes = snapshots[0].num_rows if snapshots else 0
    out = np.empty((len(snapshots), nodes), np.float32)
    for step, csr in enumerate(snapshots):
        out[step] = np.log1p(in_degree(csr))
    return standardise(torch.from_numpy(out))


def random_features(steps: int, nodes: int, dim: int, seed: int) -> Tensor:
    """Standard normal features, drawn once per vertex and the same in every snapshot.

    Returns:
        float32[steps, nodes, dim], equal for equal seeds.
    """
    _positive(dim)
    draw = torch.Generator().manual_seed(int(seed))
    return torch.randn(nodes, dim, generator=draw).repeat(steps, 1, 1)


def lagged_features(signal: Tensor, dim: int, history: Tensor | None = None) -> Tensor:
    """The last `dim` values of a signal, oldest first: row t holds signal[t - dim + 1 .. t].

    Args:
        signal: float32[T, N].
        dim: number of values.
        history: float32[H, N], values before the first row; what is still missing is 0.

    Returns:
        float32[T, N, dim].
    """
    _positive(dim)
    steps, nodes = signal.shape
    past = signal.new_zeros(dim - 1, nodes)
    if history is not None and dim > 1:
        known = history[-(dim - 1) :]
        past[dim - 1 - known.shape[0] :] = known
    whole = torch.cat([past, signal])
    return whole.unfold(0, dim, 1).contiguous() if steps else signal.new_zeros(0, nodes, dim)


def fit_width(x: Tensor, dim: int) -> Tensor:
    """Repeat or cut the last dimension of x to `dim` columns."""
    width = x.shape[-1]
    if width == 0:
        raise InvalidInputError("features without columns cannot be repeated to a width")
    copies = -(-dim // width)
    return x.repeat(*[1] * (x.dim() - 1), copies)[..., :dim]


def standardise(x: Tensor, dim: int | None = None) -> Tensor:
    """(x - mean) / standard deviation, over everything or over one dimension, as float32.

    Where the deviation is 0 the result is 0.
    """
    if x.numel() == 0:
        return x.to(torch.float32)
    wide = x.to(torch.float64)
    if dim is None:
        mean, spread = wide.mean(), wide.std(correction=0)
    else:
        mean = wide.mean(dim, keepdim=True)
        spread = wide.std(dim, correction=0, keepdim=True)
    level = torch.where(spread > 1e-12, spread, torch.inf)
    return ((wide - mean) / level).to(torch.float32)


def in_degree(csr: Csr) -> np.ndarray:
    """Stored entries of each row, float32[N]."""
    return np.diff(csr.indptr.numpy()).astype(np.float32)


def out_degree(csr: Csr) -> np.ndarray:
    """Stored entries of each column, float32[N]."""
    return np.bincount(csr.indices.numpy(), minlength=csr.num_cols).astype(np.float32)


def _positive(dim: int) -> None:
    if not isinstance(dim, int) or dim < 1:
        raise InvalidInputError(f"feature_dim is {dim!r}; an integer >= 1 is allowed")
