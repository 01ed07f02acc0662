"""Edges by time interval, source part and destination part (T-GCN, section 4.1)."""

from dgbench.kernels_cuda.grids.op import SortedGrids, count_grids, place_grids, sort_grids

__all__ = ["SortedGrids", "count_grids", "place_grids", "sort_grids"]
