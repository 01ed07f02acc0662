"""Aggregation kernels of the papers under their own names, to race and to compare with."""

from dgbench.kernels_cuda.variants.op import (
    SlicedParts,
    aggregate_parts_sliced,
    check_kernel,
    known_slices,
    scatter_parts_sliced,
    scatter_sliced,
    slice_parts,
    spmm_gespmm,
    spmm_sliced,
    warp_clocks,
)

__all__ = [
    "SlicedParts",
    "aggregate_parts_sliced",
    "check_kernel",
    "known_slices",
    "scatter_parts_sliced",
    "scatter_sliced",
    "slice_parts",
    "spmm_gespmm",
    "spmm_sliced",
    "warp_clocks",
]
