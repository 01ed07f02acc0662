"""Weighted draws on a device: the k smallest exponential keys of one set or of many.

An item's key is -ln(u) / w with u of its own, so the k smallest keys are a draw of k without
replacement in proportion to w (Efraimidis and Spirakis 2006), and all items are alike: no draw
waits for another. Numbers and arithmetic are those of the CPU (weighted/functors.hpp),
so a device draws what the CPU's `keys` draws, to the item.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from dgbench.kernels_cuda.build_info import extension, stream_of
from dgbench.runtime.errors import InvalidInputError, UnsupportedError

__all__ = ["Drawn", "draw_keys", "draw_range", "draw_sets", "make_keys", "operators"]

KEY_RANGE: Final = 2.0**60
"""Keys are made for weights between this and its inverse; others are to be scaled."""

LARGEST: Final = 2**31 - 1
"""Most items of one set: counts have 31 bits inside."""


class Drawn(NamedTuple):
    """Items drawn from S sets.

    Attributes:
        items: int64[K], for each set ascending, one set behind the other; -1 for what a set did not
            have.
        offsets: int64[S + 1], where the items of each set begin.
        missing: int64[1], how many are -1.
    """

    items: Tensor
    offsets: Tensor
    missing: Tensor


def operators(device: torch.device) -> Any:
    """The module with the selections for tensors of `device`.

    Raises:
        UnsupportedError: the operators are not compiled for that device.
    """
    native = extension(device)
    if not hasattr(native, "select"):
        raise UnsupportedError(
            f"draws by selection are not compiled for tensors on '{device}'",
            hint="rebuild with `pip install .` where nvcc is, or draw on the CPU",
        )
    return native


def draw_keys(
    weights: Tensor, k: int, *, seed: int = 0, stream: int = 0, native: Any = None
) -> Tensor:
    """Draw k of n items without replacement, in proportion to their weights.

    Waits for the device once, to say what was wrong with the weights.

    Args:
        weights: floating or int64 [n], at least 0, finite, on a CUDA device; n below 2^31.
        k: at most the number of items with weight.
        seed, stream: 64 bits each; one stream gives an item the same number in every call.
        native: the compiled functions; those of the tensor's device if None.

    Returns:
        int64[k], ascending.

    Raises:
        InvalidInputError: weights that are negative, not finite or not in the range of keys, or
            fewer than k with weight.
    """
    _check_kind(weights)
    count = weights.numel()
    if not 0 <= k <= count:
        raise InvalidInputError(f"k is {k}, allowed are 0 to {count}, the number of weights")
    device = weights.device
    native = operators(device) if native is None else native
    known = native.select_counters
    state = torch.zeros(known + 4, dtype=torch.int64, device=device)
    counters, begin, end, offsets = (
        state[:known], state[known : known + 1], state[known + 1 : known + 2], state[known + 2 :],
    )  # fmt: skip
    plain = _examine(weights, counters, native, state[known:], k)
    drawn = draw_sets(
        begin, end, offsets, weights=plain, seed=seed, stream=stream, total=k, largest=count,
        counters=counters, native=native,
    )  # fmt: skip
    missing, improper, outside = counters[:3].tolist()
    _refuse(improper, outside)
    if missing:
        raise InvalidInputError(
            f"{missing} more items were asked for than have a weight above 0",
            hint="ask for fewer, or give more items weight",
        )
    return drawn.items


def draw_range(count: int, k: int, device: torch.device, **source: Any) -> Drawn:
    """Draw k of the items [0, count), from keys or weights as `draw_sets` takes them."""
    offsets = torch.zeros(2, dtype=torch.int64, device=device)
    offsets[1:].fill_(k)
    return draw_sets(
        offsets[:1], offsets.new_full((1,), count), offsets, total=k, largest=count, **source
    )


def draw_sets(
    begin: Tensor,
    end: Tensor,
    offsets: Tensor,
    *,
    weights: Tensor | None = None,
    keys: Tensor | None = None,
    seed: int = 0,
    stream: int = 0,
    total: int | None = None,
    largest: int | None = None,
    candidates: int | None = None,
    counters: Tensor | None = None,
    native: Any = None,
) -> Drawn:
    """Draw from many sets at once, each a range of items, without replacement.

    A set of up to 32 items is served by a warp, one of up to 8192 by a block of threads with its
    keys in shared memory, a larger one by many blocks. Where `total`, `largest` and `candidates`
    are given the host waits for nothing, and a CUDA graph can hold the call.

    Args:
        begin, end: int64[S], the items [begin, end) of each set. An item that is in two sets has
            the same key in both.
        offsets: int64[S + 1] ascending from 0: set s draws offsets[s + 1] - offsets[s].
        weights: by item, see `draw_keys`; None for one each. Taken as they are, without a look.
        keys: int32 by item to choose by instead, the lowest first; negative for an item that must
            not be taken.
        seed, stream: see `draw_keys`.
        total: offsets[S].
        largest: size of the largest set, or more.
        candidates: sizes of all sets together, or more; that of a single set if None. Sets that do
            not fit these bounds are missing from the result.
        counters: int64[select_counters] zeros to count in; new ones if None.
        native: the compiled functions; those of the arrays' device if None.

    Returns:
        The items drawn. A set that has fewer items with weight than it is asked for is filled up
        with -1, and these are counted in `missing`.

    Raises:
        InvalidInputError: a set with more than 2^31 - 1 items.
    """
    device = begin.device
    native = operators(device) if native is None else native
    count = begin.numel()
    if candidates is None and count == 1:
        candidates = largest
    if total is None or largest is None or candidates is None:
        sizes = (end - begin) if count else begin.new_zeros(1)
        total, largest, candidates = torch.stack(
            [offsets[-1], sizes.max(), sizes.sum()]
        ).tolist()  # fmt: skip
    if largest > LARGEST:
        raise InvalidInputError(f"a set has {largest} items, allowed are {LARGEST} at most")
    if weights is not None and weights.dtype != torch.float32:
        weights = weights.to(torch.float32)
    items = torch.empty(total, dtype=torch.int64, device=device)
    if counters is None:
        counters = torch.zeros(native.select_counters, dtype=torch.int64, device=device)
    if count and total:
        words = native.select_words(count, largest, candidates, keys is not None)
        native.select(
            begin.contiguous(), end.contiguous(), offsets.contiguous(), keys, weights, seed, stream,
            largest, candidates, torch.empty(words, dtype=torch.int64, device=device), counters,
            items, *(stream_of(device) or (0,)),
        )  # fmt: skip
    return Drawn(items, offsets, counters[:1])


def make_keys(
    count: int,
    weights: Tensor | None = None,
    *,
    seed: int = 0,
    stream: int = 0,
    device: torch.device | str = "cuda",
    native: Any = None,
) -> Tensor:
    """int32[count], keys of items 0 .. count - 1: bits of floats, -1 for those without weight."""
    device = torch.device(device)
    native = operators(device) if native is None else native
    keys = _words(count, device)
    if count:
        native.make_keys(
            None if weights is None else weights.to(torch.float32), seed, stream, keys,
            *(stream_of(device) or (0,)),
        )  # fmt: skip
    return keys


def check_weights(weights: Tensor, *, native: Any = None) -> None:
    """Check weights on a device, with one look at it.

    Raises:
        InvalidInputError: with what was found.
    """
    _check_kind(weights)
    _refuse(_look(weights, native)[0], False)


def check_key_range(weights: Tensor, *, native: Any = None) -> None:
    """Check that no key of these weights is rounded to zero or infinity.

    Raises:
        InvalidInputError: a weight out of the range.
    """
    _refuse(False, _look(weights, native)[1])


def _check_kind(weights: Tensor) -> None:
    if not isinstance(weights, Tensor) or weights.dim() != 1:
        raise InvalidInputError("weights must be a tensor with one dimension")
    if weights.dtype not in (torch.float32, torch.float64, torch.int64):
        raise InvalidInputError(
            f"weights is {weights.dtype}, expected torch.float32, torch.float64 or torch.int64"
        )
    if weights.numel() > LARGEST:
        raise InvalidInputError(f"weights has {weights.numel()} elements, at most {LARGEST} fit")


def _examine(
    weights: Tensor, counters: Tensor, native: Any, one: Tensor | None = None, wanted: int = 0
) -> Tensor:
    """float32[n]: the weights; in `counters` stands what is wrong with them.

    `one` becomes begin, end and offsets of the set of all, of which `wanted` are to be drawn.
    """
    weights = weights.contiguous()
    is_plain = weights.dtype == torch.float32
    plain = None if is_plain or one is None else torch.empty_like(weights, dtype=torch.float32)
    if weights.numel():
        native.examine_weights(
            weights, plain, one, wanted, counters, *(stream_of(weights.device) or (0,))
        )
    return weights if plain is None else plain


def _look(weights: Tensor, native: Any) -> tuple[int, int]:
    """Nonzero where weights are negative or not finite; where some are out of the range of keys."""
    native = operators(weights.device) if native is None else native
    counters = torch.zeros(native.select_counters, dtype=torch.int64, device=weights.device)
    _examine(weights, counters, native)
    _, improper, outside = counters[:3].tolist()
    return improper, outside


def _refuse(improper: int, outside: int) -> None:
    if improper:
        raise InvalidInputError("weights holds numbers that are negative or not finite")
    if outside:
        raise InvalidInputError(
            "weights holds numbers that are not between 2^-60 and 2^60",
            hint="scale them, or draw on the CPU, which knows keys for any weights",
        )


def _words(count: int, device: torch.device) -> Tensor:
    return torch.empty(count, dtype=torch.int32, device=device)
