"""Sliced CSR: adjacency rows cut into pieces of bounded length (PiPAD, PPoPP 2023, section 4.1)."""

from dgbench.kernels_cuda.slices.op import (
    DEFAULT_CAP,
    SlicedCsr,
    coo_words,
    csr_words,
    slice_count,
    slice_csr,
    slice_unchecked,
)

__all__ = [
    "DEFAULT_CAP",
    "SlicedCsr",
    "coo_words",
    "csr_words",
    "slice_count",
    "slice_csr",
    "slice_unchecked",
]
