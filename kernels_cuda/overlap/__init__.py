"""Shared and exclusive entries of S successive snapshots (PiPAD, PPoPP 2023, 4.2)."""

from dgbench.kernels_cuda.overlap.op import (
    MAX_SNAPSHOTS,
    Granularity,
    PartTopology,
    UnionTopology,
    check_alike,
    check_granularity,
    split_unchecked,
)
from dgbench.kernels_cuda.overlap.trace import EdgeTrace, GroupCounts, trace_edges, trace_unchecked

__all__ = [
    "MAX_SNAPSHOTS",
    "EdgeTrace",
    "Granularity",
    "GroupCounts",
    "PartTopology",
    "UnionTopology",
    "check_alike",
    "check_granularity",
    "split_unchecked",
    "trace_edges",
    "trace_unchecked",
]
