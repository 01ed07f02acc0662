"""Counts of what stale rows sent and held back, and the bits that tell which came."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

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

    All stays on the device of the masks; what the host has to know is counted there, too.

    Args:
        counts: rows of each rank's list.
        device: of the masks.

    Attributes:
        nbytes: of each rank's bits.
        rows: of all lists.
    """

    def __init__(self, counts: Iterable[int], device: torch.device | str = "cpu") -> None:
        sizes = torch.tensor(list(counts), dtype=torch.int64)
        whole = (sizes + 7) // 8
        self.nbytes: list[int] = whole.tolist()
        self.rows = int(sizes.sum())
        rank = torch.repeat_interleave(torch.arange(sizes.numel()), sizes, output_size=self.rows)
        # Rows are as many bits further on as the lists before theirs end in unused ones.
        unused = torch.cumsum(8 * whole - sizes, 0) - (8 * whole - sizes)
        self._bit = (torch.arange(self.rows) + unused[rank]).to(device)
        ends = torch.cumsum(whole, 0)
        self._begin, self._end = (ends - whole).to(device), ends.to(device)
        self._place = torch.arange(8, dtype=torch.uint8).to(device)
        self._ones = torch.tensor([byte.bit_count() for byte in range(256)]).to(device)

    def pack(self, mask: Tensor) -> Tensor:
        """bool[rows] as uint8[sum of nbytes], the first in the lowest bit."""
        bits = mask.new_zeros(8 * sum(self.nbytes), dtype=torch.uint8)
        bits.index_copy_(0, self._bit, mask.to(torch.uint8))
        return (bits.view(-1, 8) << self._place).sum(1, dtype=torch.uint8)

    def unpack(self, packed: Tensor) -> Tensor:
        """bool[rows], whether the bit of each is set."""
        bits = (packed[:, None] >> self._place) & 1
        return bits.view(-1).index_select(0, self._bit).bool()

    def counts(self, packed: Tensor) -> Tensor:
        """int64[ranks], bits that are set in each rank's list."""
        ones = self._ones.index_select(0, packed.int())
        running = torch.cat([ones.new_zeros(1), torch.cumsum(ones, 0)])
        return running.index_select(0, self._end) - running.index_select(0, self._begin)


def places_of(mask: Tensor, count: int) -> Tensor:
    """int64[count], the places of a mask's trues, ascending; no device is waited for.

    Args:
        mask: bool[n].
        count: its trues, which the host knows.
    """
    if mask.device.type == "cpu":
        return mask.nonzero().squeeze(1)
    number = torch.arange(1, count + 1, device=mask.device)
    return torch.searchsorted(torch.cumsum(mask, 0), number)


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
