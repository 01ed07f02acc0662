"""Segment Its Search: a tree of sums over weights that are drawn from and changed (T-GCN 3.1).

The paper's binary tree is an array here: the root first, then level by level, so that a node's
children are neighbours. Readings, with reasons:

- **The boundary is strict**: g is in [0, total), and a child is passed over if g >= its sum. With
  the printed test and that generator a weight of zero, hence a taken item, could be returned.
- **Changes add up anew**, leaf to root, instead of subtracting: what is exhausted is exactly zero,
  however long the tree is used. Integers are added up exactly; there a difference is as good.
- **Draws cost O(log n) each**, a set of k of them O(n + k log n), because of the build.
- **Eight children** are the default: a level is one line of memory, and there are a third as many.
  `arity=2` is the paper's tree; what is found is the same, up to rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import check_ids, check_vector
from dgbench.kernels_cuda.build_info import extension
from dgbench.kernels_cuda.weighted.op import ARITIES, check_range, summarise
from dgbench.runtime.errors import InvalidInputError

__all__ = ["SegmentTree"]


class SegmentTree:
    """Weights of a fixed number of items, with all range sums.

    Args:
        weights: float64, float32 or int64[n] on the CPU, finite and at least 0. Integers are kept
            as int64 and added up exactly, others as float64.
        arity: children of a node: 2, 4, 8 or 16.

    Raises:
        InvalidInputError: another dtype or shape, a weight that is negative or not finite, or a sum
            that does not fit.
    """

    def __init__(self, weights: Tensor, *, arity: int = 8) -> None:
        if isinstance(weights, Tensor) and weights.dtype == torch.float32:
            weights = weights.double()
        whole = isinstance(weights, Tensor) and weights.dtype == torch.int64
        check_vector(weights, "weights", torch.int64 if whole else torch.float64)
        if arity not in ARITIES:
            raise InvalidInputError(f"arity is {arity}, allowed are {', '.join(map(str, ARITIES))}")
        weights = weights.contiguous()
        summarise(weights)
        compiled = extension(weights.device)
        make = compiled.SegmentTreeInt if whole else compiled.SegmentTreeFloat
        self._tree = make(weights, arity)
        self._size, self.arity, self.dtype = weights.numel(), arity, weights.dtype

    def __len__(self) -> int:
        return self._size

    @property
    def total(self) -> float | int:
        """Sum of all weights: the root."""
        return self._tree.total

    @property
    def height(self) -> int:
        """Levels below the root: log(n) to the base of the arity, rounded up."""
        return self._tree.height

    @property
    def nodes_visited(self) -> int:
        """Nodes below the root that searches read and changes wrote, since the tree was built."""
        return self._tree.nodes_visited

    @property
    def weights(self) -> Tensor:
        """int64[n] or float64[n]: a copy of the weights as they are now."""
        out = torch.empty(self._size, dtype=self.dtype)
        self._tree.weights(out)
        return out

    def search(self, g: Tensor | float) -> Tensor:
        """The items whose ranges of the running sum hold `g`: int64 of the same shape.

        Args:
            g: numbers in [0, total), of the tree's dtype or one number. Many are looked up in
                step, several times as fast as one by one.

        Raises:
            InvalidInputError: another dtype, or a number out of that range.
        """
        g = torch.as_tensor(g, dtype=None if isinstance(g, Tensor) else self.dtype)
        flat = g.reshape(-1)
        check_vector(flat, "g", self.dtype)
        if flat.numel():
            low, high = (x.item() for x in torch.aminmax(flat))
            if not (low >= 0 and high < self.total):
                raise InvalidInputError(
                    f"g must satisfy 0 <= x < {self.total}, got values in [{low}, {high}]"
                )
        out = torch.empty(flat.numel(), dtype=torch.int64)
        self._tree.search(flat.contiguous(), out)
        return out.view(g.shape)

    def modify(self, i: Tensor | int, w: Tensor | float) -> None:
        """Give items other weights, one after the other where several are given.

        Args:
            i: int64[m] in [0, n), or one index.
            w: as many weights of the tree's dtype, or one number.

        Raises:
            InvalidInputError: an index out of range, a weight that is negative or not finite, or
                a sum that does not fit; changes before the one at fault are made.
        """
        indices = torch.as_tensor(i, dtype=None if isinstance(i, Tensor) else torch.int64)
        indices = indices.reshape(-1)
        check_vector(indices, "i", torch.int64)
        check_ids(indices, "i", self._size)
        weights = torch.as_tensor(w, dtype=None if isinstance(w, Tensor) else self.dtype)
        weights = weights.reshape(-1)
        check_vector(weights, "w", self.dtype, indices.numel())
        if self.dtype == torch.int64:
            bad = (weights < 0).nonzero()
        else:
            bad = (~(weights >= 0) | weights.isinf()).nonzero()
        if bad.numel():
            at = int(bad[0])
            raise InvalidInputError(
                f"w[{at}] is {weights[at].item()}, allowed are finite numbers from 0 on"
            )
        try:
            self._tree.modify(indices.contiguous(), weights.contiguous())
        except OverflowError as error:
            raise InvalidInputError(str(error)) from error
        if self.total == float("inf"):
            raise InvalidInputError("the sum of the weights is above the largest float64")

    def draw(self, count: int, *, seed: int, stream: int = 0, remove: bool = True) -> Tensor:
        """Draw `count` items in proportion to their weights: int64[count], in order.

        Args:
            count: at least 0; with `remove` at most the number of weights above zero.
            seed, stream: in [0, 2^64); the same numbers repeat the draw.
            remove: whether an item weighs nothing once it is drawn. The tree is changed. Without,
                draws are independent and looked up in step.

        Raises:
            InvalidInputError: no weight is above zero, or fewer than `count` are; or a number out
                of its range.
        """
        check_range("count", count, 0, 2**63 - 1)
        check_range("seed", seed, 0, 2**64 - 1)
        check_range("stream", stream, 0, 2**64 - 1)
        positive = int((self.weights > 0).sum()) if remove else int(self.total > 0) * count
        if count and not positive:
            raise InvalidInputError(f"count is {count}, but no weight is above zero")
        if count > positive:
            raise InvalidInputError(f"count is {count}, but only {positive} weights are above zero")
        out = torch.empty(count, dtype=torch.int64)
        found = self._tree.draw(seed, stream, remove, out)
        return out[:found]
