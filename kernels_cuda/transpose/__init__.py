"""Transposition of a sparse matrix."""

from dgbench.kernels_cuda.transpose.op import transpose, transpose_unchecked

__all__ = ["transpose", "transpose_unchecked"]
