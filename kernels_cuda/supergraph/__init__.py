"""The supergraph of a sequence of snapshots, and chunks of it (DGC, sections 3.1 and 3.2)."""

from dgbench.kernels_cuda.supergraph.op import (
    INCOMING,
    OUTGOING,
    PRESENCE,
    Presence,
    Supergraph,
    assign_greedy,
    build_supergraph,
    chunk_edges,
    chunk_sequences,
    chunk_traffic,
    contract,
    order_by_chunk,
    weight_apart,
)

__all__ = [
    "INCOMING",
    "OUTGOING",
    "PRESENCE",
    "Presence",
    "Supergraph",
    "assign_greedy",
    "build_supergraph",
    "chunk_edges",
    "chunk_sequences",
    "chunk_traffic",
    "contract",
    "order_by_chunk",
    "weight_apart",
]
