"""Compiled attention: over neighbours in a graph, sampled neighbours, and packed sequences."""

from dgbench.kernels_cuda.attention.op import Spans, attend_rows, packed_attention, serves, spans_of
from dgbench.kernels_cuda.attention.temporal import temporal_attention

__all__ = [
    "Spans",
    "attend_rows",
    "packed_attention",
    "serves",
    "spans_of",
    "temporal_attention",
]
