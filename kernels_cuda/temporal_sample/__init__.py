"""Temporal neighbours from a store of blocks: one hop, k hops, snapshots, walks (GNNFlow 4.2)."""

from dgbench.kernels_cuda.temporal_sample.counts import count_walk
from dgbench.kernels_cuda.temporal_sample.op import (
    POLICIES,
    SEARCHES,
    TemporalSampler,
    next_targets,
    random_walks,
    sample_between,
    sample_hops,
    sample_neighbours,
)
from dgbench.kernels_cuda.temporal_sample.samples import Sample, Walks

__all__ = [
    "POLICIES",
    "SEARCHES",
    "Sample",
    "TemporalSampler",
    "Walks",
    "count_walk",
    "next_targets",
    "random_walks",
    "sample_between",
    "sample_hops",
    "sample_neighbours",
]
