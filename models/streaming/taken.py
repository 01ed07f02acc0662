"""Rows of a refresh for which something waits: gathered, or all of them behind a mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class TakenRows:
    """Rows of n that are computed anew.

    Attributes:
        rows: int64[k], ascending; None where all n are computed and `mask` says which are kept.
        mask: bool[n].
    """

    rows: Tensor | None
    mask: Tensor

    @property
    def any(self) -> bool:
        """Return False if there is certainly none; asks no device."""
        return self.rows is None or bool(self.rows.numel())

    def of(self, column: Tensor) -> Tensor:
        """These rows of a column [n, ...]."""
        return column if self.rows is None else column[self.rows]

    def divisor(self, counts: Tensor) -> Tensor:
        """[k, 1]: how many wait for each of these rows, of int[n] counts; at least 1."""
        if self.rows is not None:
            return counts[self.rows].unsqueeze(1)
        return counts.clamp(min=1).unsqueeze(1)

    def put(self, column: Tensor, values: Tensor) -> Tensor:
        """The column with these rows replaced, differentiable in both."""
        if self.rows is not None:
            return column.index_copy(0, self.rows, values)
        mask = self.mask if column.dim() == 1 else self.mask.unsqueeze(1)
        return torch.where(mask, values, column)


def taken_rows(masks: Sequence[Tensor], *, dense: bool = False) -> list[TakenRows]:
    """Rows where each mask holds; a device is waited for once, not by mask.

    Args:
        masks: at least one, bool[n], or int[n] where all but 0 holds.
        dense: gather none of them, so that no device is waited for.
    """
    if dense:
        return [TakenRows(None, mask.bool()) for mask in masks]
    if masks[0].device.type == "cpu":
        return [TakenRows(mask.nonzero().squeeze(1), mask) for mask in masks]
    table = torch.stack(list(masks)).bool()
    order = table.to(torch.uint8).sort(dim=1, descending=True, stable=True).indices
    return [TakenRows(order[k, :size], masks[k]) for k, size in enumerate(table.sum(1).tolist())]
