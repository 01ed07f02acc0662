"""Draws without replacement in proportion to weights (T-GCN 2.4 and 3.1), by every known way."""

from dgbench.kernels_cuda.weighted.op import (
    ARITIES,
    METHODS,
    DrawStats,
    DrawTime,
    check_range,
    draw_many,
    draw_without_replacement,
    time_draws,
)
from dgbench.kernels_cuda.weighted.segment_tree import SegmentTree

__all__ = [
    "ARITIES",
    "METHODS",
    "DrawStats",
    "DrawTime",
    "SegmentTree",
    "check_range",
    "draw_many",
    "draw_without_replacement",
    "time_draws",
]
