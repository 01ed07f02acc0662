"""Counts of what stale rows sent and held back, and the bits that tell which came."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(slots=True)
class StaleEpoch:
    """Rows sent and held back in one epoch by one rank; a row to two receivers counts twice.

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


class BitLists:
    """Bit masks of the rows sent from lists; the mask of every rank begins at a byte.

    Args:
        counts: rows of each rank's list.

    Attributes:
        nbytes: of each rank's bits.
        rows: of all lists.
    """

    def __init__(self, counts: Iterable[int]) -> None:
        sizes = np.fromiter(counts, dtype=np.int64)
        self.nbytes: list[int] = (-(-sizes // 8)).tolist()
        self.rows, self._ranks = int(sizes.sum()), len(sizes)
        self._rank = np.repeat(np.arange(len(sizes)), sizes)  # [rows]
        # Rows are as many bits further on as the lists before theirs end in unused ones.
        unused = np.cumsum(8 * np.asarray(self.nbytes) - sizes) - (
            8 * np.asarray(self.nbytes) - sizes
        )
        self._bit = np.arange(self.rows) + unused[self._rank]

    def pack(self, mask: Tensor) -> tuple[Tensor, list[int]]:
        """bool[rows] as uint8[sum of nbytes], the first in the lowest bit; trues of each rank."""
        kept = mask.cpu().numpy()
        bits = np.zeros(8 * sum(self.nbytes), dtype=np.bool_)
        bits[self._bit] = kept
        packed = torch.from_numpy(np.packbits(bits, bitorder="little")).to(mask.device)
        return packed, self._each(kept)

    def unpack(self, packed: Tensor) -> tuple[Tensor, list[int]]:
        """int64, the rows whose bits are set, ascending; and how many of each rank they are."""
        kept = np.unpackbits(packed.cpu().numpy(), bitorder="little")[self._bit].view(np.bool_)
        return torch.from_numpy(kept.nonzero()[0]).to(packed.device), self._each(kept)

    def _each(self, kept: np.ndarray) -> list[int]:
        return np.bincount(self._rank[kept], minlength=self._ranks).tolist()


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
