"""Errors of a group of ranks. Every error names the rank and the reason."""

from __future__ import annotations

from typing import Literal

from dgbench.runtime.errors import DgbenchError

Kind = Literal["raised", "exited", "killed", "hung", "memory"]


class RankError(DgbenchError):
    """A rank failed and the group was ended.

    An error of dgbench itself that a rank raised (`CheckFailed`, `UnsupportedError`, ...) is
    raised again as what it is, with the rank before its message, and not as a `RankError`.

    Attributes:
        rank: the one that failed first.
        kind: it `raised` an exception, `exited` without a result, was `killed` by a signal, `hung`
            past its limit, or took too much `memory`.
        reason: the message without the rank.
        trace: the traceback of its exception, or where it stood when it hung; "" if not known.
    """

    def __init__(
        self, rank: int, size: int, kind: Kind, reason: str, *, trace: str = "", hint: str = ""
    ) -> None:
        super().__init__(f"rank {rank} of {size} {reason}", hint=hint)
        self.rank, self.kind, self.reason, self.trace = rank, kind, reason, trace


class RankMemoryError(RankError, MemoryError):
    """A rank took more memory than it may, or than there is."""


class RankTimeoutError(RankError, TimeoutError):
    """A rank did not end, or kept the others waiting, past its limit."""


def rank_error(
    rank: int, size: int, kind: Kind, reason: str, *, trace: str = "", hint: str = ""
) -> RankError:
    """The error class that fits `kind`."""
    classes: dict[str, type[RankError]] = {"memory": RankMemoryError, "hung": RankTimeoutError}
    return classes.get(kind, RankError)(rank, size, kind, reason, trace=trace, hint=hint)


class HostError(DgbenchError):
    """Hosts of one training that do not come, do not fit together, or are gone."""
