"""Pairs of vertices that link prediction is trained and scored on."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import InvalidInputError


def sample_pairs(csr: Csr, theta: float = 0.1, *, seed: int, step: int) -> tuple[Tensor, Tensor]:
    """A share of a snapshot's edges and as many random pairs (ESDG, section 6.1).

    The draw depends on `seed`, `step` and the snapshot only: every rank and every re-run of a
    block sees the same pairs. Random pairs are uniform over ordered pairs and may hit an edge,
    rarely; the paper does not say more.

    Args:
        csr: the snapshot, on any device; row = destination, column = source.
        theta: share of the edges taken as positives, in (0, 1]; rounded up.
        seed: of the run, at least 0.
        step: number of the snapshot.

    Returns:
        pairs int64[2, 2 P] (source, destination), positives first, and labels int64[2 P] (1 for an
        edge), on the CPU. Both are empty for a snapshot without edges.

    Raises:
        InvalidInputError: theta outside (0, 1].
    """
    if not 0 < theta <= 1:
        raise InvalidInputError(f"theta is {theta!r}, allowed is a share in (0, 1]")
    draw = torch.Generator().manual_seed(seed * 1_000_003 + step)
    count = math.ceil(theta * csr.nnz)
    chosen = torch.randperm(csr.nnz, generator=draw)[:count]
    indptr, indices = csr.indptr.cpu(), csr.indices.cpu()
    rows = torch.searchsorted(indptr, chosen, right=True) - 1
    positive = torch.stack([indices[chosen].long(), rows])
    source = torch.randint(0, max(1, csr.num_cols), (1, count), generator=draw)
    target = torch.randint(0, max(1, csr.num_rows), (1, count), generator=draw)
    pairs = torch.cat([positive, torch.cat([source, target])], dim=1)
    label = torch.zeros(2 * count, dtype=torch.int64)
    label[:count] = 1
    return pairs, label
