"""Edges of an interval: sums over partners of its vertices, products of rows, groups."""

from dgbench.kernels_cuda.interact.op import (
    Groups,
    LocalRows,
    PartnerSums,
    edge_dots,
    group_edges,
    local_rows,
    partner_sums,
)

__all__ = [
    "Groups",
    "LocalRows",
    "PartnerSums",
    "edge_dots",
    "group_edges",
    "local_rows",
    "partner_sums",
]
