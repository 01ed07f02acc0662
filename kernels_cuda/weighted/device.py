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

__all__ = ["Drawn", "draw_keys", "draw_sets", "make_keys", "operators"]

KEY_RANGE: Final = 2.0**60
"""Keys are made for weights between this and its inverse; others are to be scaled."""

LARGEST: Final = 2**31 - 1
"""Most items of one set: counts have 31 bits inside."""


class Drawn(NamedTuple):
    """Items drawn from S sets.

    Attributes:
        items: int64[K], for each set ascending, one set behind the other.
        offsets: int64[S + 1], where the items of each set begin.
    """

    items: Tensor
    offsets: Tensor


def operators(device: torch.device) -> Any:
    """The module with the selections for tensors of `device`.

    Raises:
        UnsupportedError: the operators are not compiled for that device.
    """
    native = extension(device)
    if not hasattr(native, "select_large"):
        raise UnsupportedError(
            f"draws by selection are not compiled for tensors on '{device}'",
            hint="rebuild with `pip install .` where nvcc is, or draw on the CPU",
        )
    return native


def draw_keys(
    weights: Tensor,
    k: int,
    *,
    seed: int = 0,
    stream: int = 0,
    stored: bool = True,
    native: Any = None,
) -> Tensor:
    """Draw k of n items without replacement, in proportion to their weights.

    Args:
        weights: floating or int64 [n], at least 0, finite, on a CUDA device; n below 2^31.
        k: at most the number of items with weight.
        seed, stream: 64 bits each; one stream gives an item the same number in every call.
        stored: keep the keys between the four passes, 4 bytes an item. Else each pass makes them
            anew, at four times the arithmetic.
        native: the compiled functions; those of the tensor's device if None.

    Returns:
        int64[k], ascending.

    Raises:
        InvalidInputError: weights that are negative, not finite or not in the range of keys, or
            fewer than k with weight.
    """
    check_weights(weights)
    check_key_range(weights)
    count = weights.numel()
    if not 0 <= k <= count:
        raise InvalidInputError(f"k is {k}, allowed are 0 to {count}, the number of weights")
    bounds = torch.tensor([0, count, 0, k], device=weights.device)
    found = draw_sets(
        bounds[:1], bounds[1:2], bounds[2:], weights=weights, seed=seed, stream=stream, total=k,
        largest=count, stored=stored, native=native,
    )  # fmt: skip
    return found.items


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
    stored: bool = True,
    native: Any = None,
) -> Drawn:
    """Draw from many sets at once, each a range of items, without replacement.

    A set of up to 32 items is served by a warp, one of up to 8192 by a block of threads with its
    keys in shared memory, a larger one by many blocks.

    Args:
        begin, end: int64[S], the items [begin, end) of each set. An item that is in two sets has
            the same key in both.
        offsets: int64[S + 1] ascending from 0: set s draws offsets[s + 1] - offsets[s].
        weights: by item, see `draw_keys`; None for one each. Taken as they are, without a look.
        keys: int32 by item to choose by instead, as the bits of a uint32; 2^32 - 1 for an item that
            must not be taken.
        seed, stream: see `draw_keys`.
        total: offsets[S], where it is known; else the device is asked.
        largest: size of the largest set, where it is known.
        stored: see `draw_keys`; for sets of more than 8192 items.
        native: the compiled functions; those of the arrays' device if None.

    Returns:
        The items drawn.

    Raises:
        InvalidInputError: a set that has fewer items with weight than it is asked for, or more
            than 2^31 - 1 items.
    """
    device = begin.device
    native = operators(device) if native is None else native
    sizes = end - begin
    count = sizes.numel()
    if total is None or largest is None:
        biggest = sizes.max() if count else sizes.new_zeros(())
        total, largest = torch.stack([offsets[-1], biggest]).tolist()
    if largest > LARGEST:
        raise InvalidInputError(f"a set has {largest} items, allowed are {LARGEST} at most")
    if weights is not None and weights.dtype != torch.float32:
        weights = weights.to(torch.float32)
    items = torch.empty(total, dtype=torch.int64, device=device)
    missing = torch.zeros(1, dtype=torch.int64, device=device)
    source = (keys, weights, seed, stream)
    call_on = stream_of(device) or (0,)
    if count and total:
        sets = (begin.contiguous(), end.contiguous(), offsets.contiguous())
        if largest <= native.select_medium_set or count > 1:
            scratch = _zeros(count + 1, device)
            native.select_small(*sets, *source, scratch[1:], scratch[:1], items, missing, *call_on)
        if largest > native.select_medium_set:
            _select_large(native, sets, sizes, source, items, missing, stored, largest, call_on)
        lacking = int(missing)
        if lacking:
            raise InvalidInputError(
                f"{lacking} more items were asked for than have a weight above 0",
                hint="ask for fewer, or give more items weight",
            )
    return Drawn(items, offsets)


def _select_large(
    native: Any,
    sets: tuple[Tensor, Tensor, Tensor],
    sizes: Tensor,
    source: tuple[Any, ...],
    items: Tensor,
    missing: Tensor,
    stored: bool,
    largest: int,
    call_on: tuple[int, ...],
) -> None:
    """Sets that are too large for one block of threads, all in four launches."""
    begin, end, offsets = sets
    device = begin.device
    tile = native.select_tile_items
    if sizes.numel() == 1:
        ids = sizes.new_zeros(1)
    else:
        ids = torch.nonzero((sizes > native.select_medium_set) & (offsets.diff() > 0)).squeeze(1)
    if ids.numel() == 0:
        return
    # Tiles begin at multiples of four items.
    first, last = begin[ids] // 4, (end[ids] + 3) // 4
    tile_of = torch.zeros(ids.numel() + 1, dtype=torch.int64, device=device)
    torch.cumsum((last - first + tile // 4 - 1) // (tile // 4), 0, out=tile_of[1:])
    tiles = int(tile_of[-1])
    words = native.select_state_words * ids.numel()
    bins = native.select_histogram_words * ids.numel()
    # One block of zeros: where every set stands, its histograms, and what tiles hand on.
    zeros = _zeros(words + words % 2 + bins + 2 * tiles + 1, device)
    state, rest = zeros[:words], zeros[words + words % 2 :]
    histograms, progress, ticket = rest[:bins], rest[bins : bins + 2 * tiles], rest[-1:]
    keys = _words(tiles * tile, device) if stored and source[0] is None else None
    native.select_large(
        *sets, ids, tile_of, tiles, *source, state, histograms, progress.view(torch.int64), ticket,
        keys, items, missing, *call_on,
    )  # fmt: skip


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


def check_weights(weights: Tensor) -> None:
    """Check weights on a device, with one look at it.

    Raises:
        InvalidInputError: with what was found.
    """
    if not isinstance(weights, Tensor) or weights.dim() != 1:
        raise InvalidInputError("weights must be a tensor with one dimension")
    if weights.dtype not in (torch.float32, torch.float64, torch.int64):
        raise InvalidInputError(
            f"weights is {weights.dtype}, expected torch.float32, torch.float64 or torch.int64"
        )
    if weights.numel() > LARGEST:
        raise InvalidInputError(f"weights has {weights.numel()} elements, at most {LARGEST} fit")
    if weights.numel() and not bool(((weights >= 0) & torch.isfinite(weights)).all()):
        raise InvalidInputError("weights holds numbers that are negative or not finite")


def check_key_range(weights: Tensor) -> None:
    """Check that no key of these weights is rounded to zero or infinity.

    Raises:
        InvalidInputError: a weight out of the range.
    """
    if weights.numel() == 0:
        return
    outside = (weights > 0) & ((weights < 1 / KEY_RANGE) | (weights > KEY_RANGE))
    if weights.dtype != torch.int64 and bool(outside.any()):
        raise InvalidInputError(
            "weights holds numbers that are not between 2^-60 and 2^60",
            hint="scale them, or draw on the CPU, which knows keys for any weights",
        )


def _zeros(count: int, device: torch.device) -> Tensor:
    return torch.zeros(count, dtype=torch.int32, device=device)


def _words(count: int, device: torch.device) -> Tensor:
    return torch.empty(count, dtype=torch.int32, device=device)
