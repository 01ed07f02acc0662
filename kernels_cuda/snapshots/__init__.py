"""From timed edges to one adjacency matrix per snapshot."""

from dgbench.kernels_cuda.snapshots.op import edge_snapshots

__all__ = ["edge_snapshots"]
