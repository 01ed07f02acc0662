"""Neighbour aggregation: sparse-dense products over one snapshot or over a whole partition."""

from dgbench.kernels_cuda.aggregate.choice import ORDERED_WIDTH
from dgbench.kernels_cuda.aggregate.op import (
    aggregate_parts,
    aggregate_parts_scatter,
    aggregate_union,
    degrees,
    multiply,
    segments,
    spmm,
    variant_of,
)

__all__ = [
    "ORDERED_WIDTH",
    "aggregate_parts",
    "aggregate_parts_scatter",
    "aggregate_union",
    "degrees",
    "multiply",
    "segments",
    "spmm",
    "variant_of",
]
