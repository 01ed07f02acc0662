"""Samples of a graph's edges: around roots, from shared pools, and as subgraphs (T-GCN 2.3, 3)."""

from dgbench.kernels_cuda.edge_sampling.op import (
    induced_edges,
    sample_layerwise,
    sample_nodewise,
    sample_subgraph,
)
from dgbench.kernels_cuda.edge_sampling.samples import EdgeSample, LayerSample, SubgraphSample
from dgbench.kernels_cuda.edge_sampling.table import EdgeTable, keep_share, share_of

__all__ = [
    "EdgeSample",
    "EdgeTable",
    "LayerSample",
    "SubgraphSample",
    "induced_edges",
    "keep_share",
    "sample_layerwise",
    "sample_nodewise",
    "sample_subgraph",
    "share_of",
]
