"""Compiled attention: over the neighbours of a graph, and over the steps of packed sequences."""

from dgbench.kernels_cuda.attention.op import Spans, attend_rows, packed_attention, serves, spans_of

__all__ = ["Spans", "attend_rows", "packed_attention", "serves", "spans_of"]
