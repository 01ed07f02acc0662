"""Graph difference: a snapshot sent as what changed since the one before it (ESDG, section 3.2)."""

from dgbench.kernels_cuda.difference.op import (
    INDEX_TYPES,
    Difference,
    Index,
    count_changes,
    difference_bytes,
    encode,
    encode_sequence,
    plain_bytes,
    rebuild,
    with_self_loops,
)

__all__ = [
    "INDEX_TYPES",
    "Difference",
    "Index",
    "count_changes",
    "difference_bytes",
    "encode",
    "encode_sequence",
    "plain_bytes",
    "rebuild",
    "with_self_loops",
]
