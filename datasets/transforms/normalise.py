"""GCN normalisation kept as two vectors, so that no normalised matrix is ever stored."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from dgbench.datasets.transforms.stacks import rows_of
from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import InvalidInputError


def factors(
    csr: Csr, norm: Literal["sym", "mean"] = "sym", dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Scales R, C with A-hat = R (A + I) C.

    The degree of a vertex is its row sum plus 1 for the loop that is added: `sym` gives
    deg^-1/2 on both sides (torch-geometric's `gcn_norm` with added self loops), `mean` 1 / deg
    on the rows and ones on the columns. A degree of 0 or less gets the factor 0.

    Args:
        csr: a square matrix without self loops; values weigh the degrees.
        norm: `sym` or `mean`.
        dtype: of the scales, which are rounded to it from float64.

    Returns:
        row_scale, col_scale: [N] of this type.
    """
    if norm not in ("sym", "mean"):
        raise InvalidInputError(f"norm is {norm!r}; allowed: sym, mean")
    if csr.values is None:
        degree = csr.indptr.diff().to(torch.float64) + 1
    else:
        degree = torch.ones(csr.num_rows, dtype=torch.float64)
        degree.index_add_(0, rows_of(csr), csr.values.to(torch.float64))
    positive = degree > 0
    power = -0.5 if norm == "sym" else -1.0
    scale = torch.where(positive, degree.clamp(min=1e-300) ** power, 0.0).to(dtype)
    return scale, (scale if norm == "sym" else torch.ones_like(scale))
