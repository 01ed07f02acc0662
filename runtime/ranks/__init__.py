"""Ranks: several processes that compute together, started here (`launch`) or by torchrun (`join`).

A rank that raises, leaves, is killed, hangs or takes too much memory ends the whole group within
its limit with an error that names it. No process is left behind.
"""

from dgbench.runtime.ranks.board import RankStatus
from dgbench.runtime.ranks.errors import RankError, RankMemoryError, RankTimeoutError
from dgbench.runtime.ranks.group import choose_backend, join
from dgbench.runtime.ranks.launcher import TRAINING, Results, launch

__all__ = [
    "TRAINING",
    "RankError",
    "RankMemoryError",
    "RankStatus",
    "RankTimeoutError",
    "Results",
    "choose_backend",
    "join",
    "launch",
]
