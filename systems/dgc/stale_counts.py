"""Counts of what stale rows sent and held back, and the bits that tell which came."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass(slots=True)
class StaleEpoch:
    """What one epoch sent and held back, of one rank; a row to two receivers counts twice.

    Attributes:
        sent, held: rows of the forward pass.
        sent_floats, held_floats: of them.
        index_bytes: spent on telling receivers which rows come.
        share: theta / D, or None where everything was sent.
        largest: D by exchange.
        rows: by exchange, (sent, held).
    """

    sent: int = 0
    held: int = 0
    sent_floats: int = 0
    held_floats: int = 0
    index_bytes: int = 0
    share: float | None = None
    largest: dict[str, float] = field(default_factory=dict)
    rows: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def saved(self) -> float:
        """Share of rows that were held back; 0 where there were none."""
        total = self.sent + self.held
        return self.held / total if total else 0.0

    def add(self, name: str, sent: int, held: int, width: int) -> None:
        """Count an exchange of rows of `width` floats."""
        self.sent += sent
        self.held += held
        self.sent_floats += sent * width
        self.held_floats += held * width
        before = self.rows.get(name, (0, 0))
        self.rows[name] = before[0] + sent, before[1] + held


def pack_bits(mask: Tensor) -> Tensor:
    """bool[n] as uint8[ceil(n / 8)], the first in the lowest bit; the last byte ends in zeros."""
    padded = torch.zeros(-(-mask.numel() // 8) * 8, dtype=torch.uint8, device=mask.device)
    padded[: mask.numel()] = mask
    shifts = torch.arange(8, dtype=torch.uint8, device=mask.device)
    return (padded.view(-1, 8) << shifts).sum(1).to(torch.uint8)


def unpack_bits(packed: Tensor, count: int) -> Tensor:
    """The first `count` bits of `pack_bits`, bool[count]."""
    shifts = torch.arange(8, dtype=torch.uint8, device=packed.device)
    return ((packed[:, None] >> shifts) & 1).flatten()[:count].bool()


def summed(histories: Iterable[list[StaleEpoch]]) -> list[StaleEpoch]:
    """The counts of all ranks, epoch by epoch; D is the largest of any rank."""
    total: list[StaleEpoch] = []
    for rank in zip(*histories, strict=True):
        one = StaleEpoch(share=rank[0].share)
        for found in rank:
            one.sent += found.sent
            one.held += found.held
            one.sent_floats += found.sent_floats
            one.held_floats += found.held_floats
            one.index_bytes += found.index_bytes
            _merge(one.largest, found.largest, max)
            _merge(one.rows, found.rows, lambda a, b: (a[0] + b[0], a[1] + b[1]))
        total.append(one)
    return total


def _merge(into: dict[str, Any], found: dict[str, Any], join: Callable[[Any, Any], Any]) -> None:
    for name, value in found.items():
        into[name] = join(into[name], value) if name in into else value
