"""What a model asks of the system that runs it, and the factored GCN normalisation.

A-hat = R (A + I) C, with per-vertex scales R and C. `sym` has R = C = D^-1/2 (Kipf and Welling;
the same numbers as torch-geometric's `gcn_norm` with added self loops), `mean` has R = D^-1 and
C = I (PiPAD section 2, eq. 1). D counts the added loop: D = row sums of A + I.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import InvalidInputError, unknown_key

NORMS = ("sym", "mean")


class Aggregator(Protocol):
    """How A-hat is applied to one snapshot. `t` is the snapshot's number in the sequence."""

    def raw(self, t: int) -> Tensor:
        """X_t, float32[N, F], no gradient."""
        ...

    def first(self, t: int) -> Tensor:
        """A-hat_t X_t, float32[N, F], no gradient."""
        ...

    def apply(self, t: int, h: Tensor) -> Tensor:
        """A-hat_t h for h float32[N, H]; differentiable in h."""
        ...


@dataclass(frozen=True, slots=True)
class Scales:
    """The factors of A-hat = diag(row) (A + I) diag(col).

    Attributes:
        row: float32[N], R.
        col: float32[N], C, or None where C is the identity.
    """

    row: Tensor
    col: Tensor | None


def row_sums(csr: Csr) -> Tensor:
    """Sum of each row's values (of ones where there are none), float32[N]."""
    lengths = csr.indptr.diff()
    if csr.values is None:
        return lengths.to(torch.float32)
    rows = torch.repeat_interleave(torch.arange(csr.num_rows, device=lengths.device), lengths)
    sums = torch.zeros(csr.num_rows, dtype=torch.float64, device=lengths.device)
    return sums.index_add_(0, rows, csr.values.to(torch.float64)).to(torch.float32)


def normalisation_scales(csr: Csr, norm: str) -> Scales:
    """Scales of A-hat for a snapshot without self loops; the loop I is counted here.

    Args:
        csr: adjacency, rows are destinations. Its own device is used.
        norm: `sym` or `mean`.

    Raises:
        UnknownKeyError: for another norm.
        InvalidInputError: if the weighted degree of a vertex, its loop included, is not positive,
            as negative edge weights can make it; its root does not exist then.
    """
    if norm not in NORMS:
        raise unknown_key("norm", norm, NORMS)
    degree = row_sums(csr) + 1.0
    bad = torch.nonzero(~(degree > 0)).flatten()
    if bad.numel():
        v = int(bad[0])
        raise InvalidInputError(
            f"weights of vertex {v} sum to {float(degree[v]) - 1.0:g}; with its self loop the "
            f"degree must be positive ({bad.numel()} such vertices)",
            hint="use the graph without weights, or weights that are not negative",
        )
    if norm == "mean":
        return Scales(degree.reciprocal(), None)
    root = degree.rsqrt()
    return Scales(root, root)
