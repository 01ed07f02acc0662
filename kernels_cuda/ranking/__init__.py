"""Ranks of true columns in rows of scores."""

from dgbench.kernels_cuda.ranking.op import Ranks, rank_columns

__all__ = ["Ranks", "rank_columns"]
