"""The rank-copy generator: an edge stream that grows, repeats, replies and remembers."""

from dgbench.kernels_cuda.twins.op import (
    SLOT_CLIQUE,
    SLOT_SHUFFLE,
    SLOT_TIME,
    SLOT_WINDOW,
    RankCopy,
    RankCopySpec,
    exact_exp2,
    exact_log2,
    lag_draws,
    rank_copy,
    rank_draws,
    uniforms,
)

__all__ = [
    "SLOT_CLIQUE",
    "SLOT_SHUFFLE",
    "SLOT_TIME",
    "SLOT_WINDOW",
    "RankCopy",
    "RankCopySpec",
    "exact_exp2",
    "exact_log2",
    "lag_draws",
    "rank_copy",
    "rank_draws",
    "uniforms",
]
