"""Draws without replacement in proportion to weights (T-GCN 2.4 and 3.1), by every known way."""

from dgbench.kernels_cuda.weighted.op import (
    ARITIES,
    METHODS,
    DrawStats,
    check_range,
    draw_many,
    draw_without_replacement,
)
from dgbench.kernels_cuda.weighted.segment_tree import SegmentTree

__all__ = [
    "ARITIES",
    "METHODS",
    "DrawStats",
    "SegmentTree",
    "check_range",
    "draw_many",
    "draw_without_replacement",
]
