"""Ranks of true columns in rows of scores, filtered, with all three answers to ties."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import FLOATS, check_ids, check_vector
from dgbench.kernels_cuda._dispatch import call
from dgbench.runtime.errors import InvalidInputError

__all__ = ["Ranks", "rank_columns"]


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """Ranks of R true columns, 1 for the best.

    Attributes:
        above: int64[R], other columns of the row with a higher score.
        equal: int64[R], other columns of the row with the same score.
    """

    above: Tensor
    equal: Tensor

    @property
    def optimistic(self) -> Tensor:
        """float64[R]: the true column comes first among equal scores."""
        return self.above.double() + 1

    @property
    def pessimistic(self) -> Tensor:
        """float64[R]: the true column comes last among equal scores."""
        return (self.above + self.equal).double() + 1

    @property
    def mean(self) -> Tensor:
        """float64[R]: the mean rank over all orders of equal scores."""
        return self.above.double() + self.equal.double() / 2 + 1


def rank_columns(
    scores: Tensor,
    column: Tensor,
    skip_offsets: Tensor | None = None,
    skip: Tensor | None = None,
) -> Ranks:
    """Rank one column of each row by its score among the others, highest first.

    Args:
        scores: float32[R, C] or float64[R, C], finite.
        column: int64[R], the true column of each row.
        skip_offsets, skip: int64[R + 1] and int64[K], columns that are left out of each row,
            strictly ascending in a row, the true one not among them (filtered ranks). None: none.

    Raises:
        InvalidInputError: wrong dtypes or lengths, ids out of range, a score that is not finite,
            a true column that is left out, or columns that are left out twice.
    """
    if not isinstance(scores, Tensor) or scores.dtype not in FLOATS or scores.dim() != 2:
        found = f"{scores.dtype} {list(scores.shape)}" if isinstance(scores, Tensor) else scores
        raise InvalidInputError(f"scores is {found}, expected float32[R, C] or float64[R, C]")
    if not bool(scores.isfinite().all()):
        raise InvalidInputError(
            "scores holds a number that is not finite", hint="training has diverged: lower `lr`"
        )
    (rows, width), device = scores.shape, scores.device
    check_vector(column, "column", torch.int64, rows, device=device)
    check_ids(column, "column", width)
    if (skip is None) != (skip_offsets is None):
        raise InvalidInputError("skip and skip_offsets must be given together")
    if skip is not None and skip_offsets is not None:
        _check_skipped(skip_offsets, skip, column, width)
        skip_offsets, skip = skip_offsets.contiguous(), skip.contiguous()
    ranks = Ranks(*(torch.empty(rows, dtype=torch.int64, device=device) for _ in range(2)))
    call(
        "rank_columns", device, scores.detach().contiguous(), column.contiguous(), skip_offsets,
        skip, ranks.above, ranks.equal,
    )  # fmt: skip
    return ranks


def _check_skipped(offsets: Tensor, skip: Tensor, column: Tensor, width: int) -> None:
    check_vector(skip, "skip", torch.int64, device=column.device)
    check_vector(offsets, "skip_offsets", torch.int64, column.numel() + 1, device=column.device)
    check_ids(skip, "skip", width)
    lengths = offsets.diff()
    if int(offsets[0]) != 0 or int(offsets[-1]) != skip.numel() or bool((lengths < 0).any()):
        raise InvalidInputError(f"skip_offsets must rise from 0 to {skip.numel()}")
    row = torch.repeat_interleave(lengths)
    if bool(((row[1:] == row[:-1]) & (skip[1:] <= skip[:-1])).any()):
        raise InvalidInputError("skip must be strictly ascending in every row")
    if bool((skip == column[row]).any()):
        raise InvalidInputError("skip holds the true column of a row")
