"""Segment Its Search on a device: a large tree of sums that many draws search at once (T-GCN 3.1).

Sets of items that lie one behind the other are ranges of one tree: a draw of a range searches for
a number between the sums before its begin and before its end.

`weighted.SegmentTree` has the rules. A thread searches for one number, and changes add up every
touched node anew, a launch a level. Draws that remove are made many at a time: an item that comes
up again is passed over, which is the same as drawing from what is left, and what came up is removed
before the next round. That pays for few draws out of many items; what the rounds leave is drawn by
keys, whose order is that of sequential draws too.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import check_ids
from dgbench.kernels_cuda.build_info import stream_of
from dgbench.kernels_cuda.weighted.device import (
    KEY_RANGE,
    check_weights,
    draw_range,
    make_keys,
    operators,
)
from dgbench.runtime.errors import InvalidInputError

__all__ = ["DeviceSegmentTree"]

ROUNDS: Final = 4
"""Rounds of draws from the tree before keys draw the rest."""

WORTH: Final = 4
"""Items with weight for each draw of a round below which keys draw instead: many would repeat."""


class DeviceSegmentTree:
    """Weights of a fixed number of items on a device, with sums of every four, sixteen, ..

    Args:
        weights: float64, float32 or int64[n], n at least 1, finite and at least 0, on a CUDA
            device. Integers are kept as int64 and added up exactly, others as float64.
        native: the compiled functions; those of the tensor's device if None.

    Raises:
        InvalidInputError: another dtype or shape, weights that are negative or not finite, or a
            sum that does not fit.
        UnsupportedError: the operators are not compiled for that device.
    """

    def __init__(self, weights: Tensor, *, native: Any = None) -> None:
        check_weights(weights, native=native)
        if weights.numel() == 0:
            raise InvalidInputError("weights is empty, expected at least one")
        self.device = weights.device
        self._native = operators(self.device) if native is None else native
        self.dtype = torch.int64 if weights.dtype == torch.int64 else torch.float64
        self._size = weights.numel()
        sums = torch.zeros(
            self._native.tree_nodes(self._size), dtype=self.dtype, device=self.device
        )
        sums[: self._size] = weights
        self._sums, self._top = sums, self._native.tree_top(self._size)
        limit = 2.0**62 if self.dtype == torch.int64 else float("inf")
        if not float(weights.double().sum()) < limit:
            raise InvalidInputError(f"the sum of the weights is not below {limit}")
        self._native.tree_build(sums, self._size, *self._stream())
        self._positive: int | None = None

    def __len__(self) -> int:
        return self._size

    @property
    def total(self) -> float | int:
        """Sum of all weights."""
        one, two, three, four = self._sums[self._top : self._top + 4].tolist()
        return (one + two) + (three + four)

    @property
    def weights(self) -> Tensor:
        """int64[n] or float64[n]: a copy of the weights as they are now."""
        return self._sums[: self._size].clone()

    def search(self, g: Tensor) -> Tensor:
        """The items whose ranges of the running sum hold `g`: int64 of the same shape.

        Args:
            g: numbers in [0, total), of the tree's dtype.

        Raises:
            InvalidInputError: another dtype or device, or a number out of that range.
        """
        self._check(g, "g", self.dtype)
        flat = g.reshape(-1).contiguous()
        items = torch.empty(flat.numel(), dtype=torch.int64, device=self.device)
        if flat.numel():
            low, high = torch.stack(torch.aminmax(flat)).tolist()
            if not (low >= 0 and high < self.total):
                raise InvalidInputError(
                    f"g must satisfy 0 <= x < {self.total}, got values in [{low}, {high}]"
                )
            self._native.tree_search(self._sums, self._size, flat, items, *self._stream())
        return items.view(g.shape)

    def modify(self, i: Tensor, w: Tensor) -> None:
        """Give items other weights; of an item that is given twice the last counts.

        Args:
            i: int64[m] in [0, n).
            w: [m] of the tree's dtype, finite and at least 0.

        Raises:
            InvalidInputError: an index out of range, a weight that is negative or not finite, or
                tensors of another kind.
        """
        self._check(i, "i", torch.int64)
        self._check(w, "w", self.dtype)
        if i.dim() != 1 or w.shape != i.shape:
            raise InvalidInputError(f"i is {list(i.shape)}, w {list(w.shape)}: they must agree")
        check_ids(i, "i", self._size)
        if w.numel() and not bool(((w >= 0) & torch.isfinite(w)).all()):
            raise InvalidInputError("w holds numbers that are negative or not finite")
        if i.numel() == 0:
            return
        ordered = torch.sort(i, stable=True)
        last = torch.ones_like(i, dtype=torch.bool)
        last[:-1] = ordered.values[1:] != ordered.values[:-1]
        self._put(ordered.values[last], w[ordered.indices[last]])
        self._positive = None

    def draw(self, count: int, *, seed: int, stream: int = 0, remove: bool = True) -> Tensor:
        """Draw `count` items in proportion to their weights: int64[count], in order.

        Without `remove` number i of a stream gives the item that it gives on the CPU; for integers
        exactly, else up to rounding.

        Raises:
            InvalidInputError: no weight is above zero, or fewer than `count` are.
        """
        if count < 0:
            raise InvalidInputError(f"count is {count}, allowed are 0 and more")
        if not remove:
            if count and not self.total > 0:
                raise InvalidInputError(f"count is {count}, and 0 items have weight")
            return self._numbers(seed, stream, 0, count)
        if self._positive is None:
            self._positive = int((self._sums[: self._size] > 0).sum())
        positive = self._positive
        if count > positive:
            raise InvalidInputError(f"count is {count}, and {positive} items have weight")
        self._positive = None  # until all that follows is done
        parts: list[Tensor] = []
        taken = first = 0
        for _ in range(ROUNDS):
            left = count - taken
            if left == 0 or WORTH * left > positive - taken:
                break
            drawn = self._numbers(seed, stream, first, left)
            first += left
            ordered = torch.sort(drawn, stable=True)
            new = torch.ones_like(drawn, dtype=torch.bool)
            new[1:] = ordered.values[1:] != ordered.values[:-1]
            fresh = drawn[torch.sort(ordered.indices[new]).values]
            self._put(fresh, torch.zeros(fresh.numel(), dtype=self.dtype, device=self.device))
            parts.append(fresh)
            taken += fresh.numel()
        if taken < count:
            parts.append(self._by_keys(count - taken, seed, stream))
        self._positive = positive - count
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64, device=self.device)

    def draw_ranges(
        self, begin: Tensor, end: Tensor, counts: Tensor, *, seed: int, stream: int = 0
    ) -> Tensor:
        """Draw from S ranges of items at once, without replacement: int64[sum], ascending.

        Every round draws what ranges still lack; what came up again is passed over, and what came
        up is removed. The host waits for the device once a round. What a range gives depends on its
        weights and its place among the ranges, and not on the others.

        Args:
            begin, end: int64[S], ranges [begin, end) of which no two overlap.
            counts: int64[S], draws of each; at most as many as it has items with weight.
            seed, stream: range s draws the numbers of stream + s.

        Raises:
            InvalidInputError: weights that are no integers, tensors of another kind, or a range
                with fewer items.
        """
        if self.dtype != torch.int64:
            raise InvalidInputError(f"weights is {self.dtype}, ranges are drawn from torch.int64")
        for x, name in ((begin, "begin"), (end, "end"), (counts, "counts")):
            self._check(x, name, torch.int64)
            if x.shape != begin.shape or x.dim() != 1:
                raise InvalidInputError(f"{name} is {list(x.shape)}, expected {list(begin.shape)}")
        self._positive = None
        missing, made = counts.clone(), torch.zeros_like(counts)
        count = begin.numel()
        ranges = torch.arange(count, device=self.device)
        edges = torch.cat([begin, end])
        parts = [begin.new_empty(0)]
        while True:
            before = torch.empty_like(edges)
            if edges.numel():
                self._native.tree_before(self._sums, self._size, edges, before, *self._stream())
            base = before[:count]
            mass = before[count:] - base
            lacking = (mass <= 0) & (missing > 0)
            total, lacks = torch.stack([missing.sum(), lacking.sum()]).tolist()
            if lacks:
                raise InvalidInputError(f"counts asks {lacks} ranges for more than have weight")
            if total == 0:
                return torch.sort(torch.cat(parts)).values
            offsets = torch.zeros(count + 1, dtype=torch.int64, device=self.device)
            torch.cumsum(missing, 0, out=offsets[1:])
            owner = torch.repeat_interleave(ranges, missing, output_size=total)
            items = torch.empty(total, dtype=torch.int64, device=self.device)
            self._native.tree_draw_ranges(
                self._sums, self._size, seed, stream, owner, offsets, made, base, mass, items,
                *self._stream(),
            )  # fmt: skip
            ordered = torch.sort(items).values
            new = torch.ones_like(ordered, dtype=torch.bool)
            new[1:] = ordered[1:] != ordered[:-1]
            fresh = ordered[new]
            self._put(fresh, torch.zeros_like(fresh))
            at = torch.searchsorted(fresh, edges)
            made, missing = made + missing, missing - (at[count:] - at[:count])
            parts.append(fresh)

    def _numbers(self, seed: int, stream: int, first: int, count: int) -> Tensor:
        items = torch.empty(count, dtype=torch.int64, device=self.device)
        if count:
            self._native.tree_draw(
                self._sums, self._size, seed, stream, first, items, *self._stream()
            )
        return items

    def _by_keys(self, count: int, seed: int, stream: int) -> Tensor:
        """`count` items of what is left, in the order of their keys, and remove them."""
        weights = self._sums[: self._size].double()
        # Keys know weights between bounds; only what they are to each other counts.
        least, most = torch.where(weights > 0, weights, torch.inf).min(), weights.max()
        scaled = (weights / (least * most).clamp_min(1e-300).sqrt()).float()
        if float(most / least) > KEY_RANGE**2:
            raise InvalidInputError("weights differ by more than 2^120, too much for keys")
        keys = make_keys(
            self._size, scaled, seed=seed, stream=stream, device=self.device, native=self._native
        )
        items = draw_range(self._size, count, self.device, keys=keys, native=self._native).items
        items = items[torch.sort(keys[items], stable=True).indices]
        self._put(items, torch.zeros(count, dtype=self.dtype, device=self.device))
        return items

    def _put(self, items: Tensor, weights: Tensor) -> None:
        self._native.tree_modify(
            self._sums, self._size, items.contiguous(), weights.contiguous(), *self._stream()
        )

    def _check(self, x: Tensor, name: str, dtype: torch.dtype) -> None:
        if not isinstance(x, Tensor) or x.dtype != dtype or x.device.type != self.device.type:
            raise InvalidInputError(f"{name} must be a {dtype} tensor on {self.device}")

    def _stream(self) -> tuple[int, ...]:
        return stream_of(self.device) or (0,)
