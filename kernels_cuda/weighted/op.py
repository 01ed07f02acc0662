"""Draws without replacement in proportion to weights (T-GCN 2.4 and 3.1), by every known way.

One meaning, many methods: the first item is drawn in proportion to the weights, each next one in
proportion to the weights of what is left. All methods have exactly this distribution, save
`brs_literal`, which shows what C-SAW's search does as it is printed.

    sis          a tree of sums; what is drawn weighs nothing from then on        O(n + k log n)
    its_linear   (a) prefix sums, walked from their start; again on a duplicate   O(n) a draw
    its_bitmap   (b) the same with a binary search; taken items in a bitmap       O(log n) a try
    its_list     (c) the same; taken items in a list that is walked               O(k) a try
    its_rebuild  (d) prefix sums made anew after each draw                        O(n) a draw
    alias        Vose's tables; again on a duplicate                              O(1) a try
    brs          region search around a duplicate, with a fresh number            O(log n) a try
    brs_recycled the same with what is left over of the first number
    brs_literal  the same with the first number itself, as printed: biased
    reservoir    partial Fisher-Yates, for equal weights only                     O(n + k)
    keys         the k smallest of -ln(u) / w                                     O(n)

Number i of a draw depends on the seed, the stream and i only (`common/philox.hpp`), so a draw
repeats; that by keys is also the same for any number of threads and on any machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from torch import Tensor

from dgbench.kernels_cuda._dispatch import capsule
from dgbench.kernels_cuda.build_info import extension
from dgbench.kernels_cuda.weighted.device import draw_keys
from dgbench.kernels_cuda.workspace import Workspace
from dgbench.runtime.errors import InvalidInputError, UnsupportedError, unknown_key

__all__ = [
    "ARITIES", "METHODS", "DrawStats", "draw_many", "draw_without_replacement",
]  # fmt: skip

METHODS: Final = (
    "sis", "its_linear", "its_bitmap", "its_list", "its_rebuild", "alias", "brs", "brs_recycled",
    "brs_literal", "reservoir", "keys",
)  # fmt: skip
ARITIES: Final = (2, 4, 8, 16)
"""Children of a node of the tree: 2 is the paper's, 8 reads one line of memory a level."""
DTYPES: Final = (torch.float64, torch.float32, torch.int64)
MAX_KEYS: Final = 1 << 32
_LAST: Final = 2**64 - 1
_TINY: Final = 2.0**-900
_memory: Final = Workspace()
_LIKE: Final = torch.empty(0, dtype=torch.int64)


@dataclass
class DrawStats:
    """Exact counts of a sampler's work; calls that are given the same object add to it.

    Attributes:
        draws: items drawn.
        redraws: random numbers that led to an item drawn before.
        nodes_visited: steps down and up a tree, of a binary search, or in a heap.
        elements_scanned: elements of arrays read one after the other: prefix sums that are walked
            or made anew, lists of what is taken, and keys that were made.
        rebuilt: tables made anew, the first not counted.
    """

    draws: int = 0
    redraws: int = 0
    nodes_visited: int = 0
    elements_scanned: int = 0
    rebuilt: int = 0

    def add(
        self, draws: int, redraws: int, nodes_visited: int, elements_scanned: int, rebuilt: int
    ) -> None:
        """Add counts in the order of the attributes."""
        self.draws += draws
        self.redraws += redraws
        self.nodes_visited += nodes_visited
        self.elements_scanned += elements_scanned
        self.rebuilt += rebuilt


def draw_without_replacement(
    weights: Tensor,
    k: int,
    *,
    method: str = "keys",
    seed: int = 0,
    stream: int = 0,
    stats: DrawStats | None = None,
    arity: int = 8,
    threads: int | None = None,
) -> Tensor:
    """Draw k of n items.

    Args:
        weights: float64, float32 or int64[n], finite and at least 0. Integers are added up exactly.
            An item of weight 0 is never drawn. On a CUDA device `keys` draws what it draws on the
            CPU, from weights between 2^-60 and 2^60; other methods do not run there.
        k: 0 to the number of weights above zero.
        method: one of `METHODS`; `keys` is the fastest from a few items on.
        seed, stream: in [0, 2^64). Draws of different streams are independent.
        stats: is added to.
        arity: children of a node of the tree, for `sis` only; the answers are the same up to
            rounding.
        threads: for `keys` only, torch's number if None; the answer is the same.

    Returns:
        int64[k]: in the order of drawing; for `keys` rising.

    Raises:
        InvalidInputError: another dtype or shape, a weight that is negative or not finite, too few
            weights above zero, integers whose sum is above 2^63 - 1 (not with `keys`), unequal
            weights with `reservoir`, or a number out of its range.
        UnknownKeyError: no such method.
        UnsupportedError: a method other than `keys` for weights on a device.
    """
    return _draw(weights, k, 1, method, seed, stream, stats, arity, threads)


def draw_many(
    weights: Tensor,
    k: int,
    repeats: int,
    *,
    method: str = "keys",
    seed: int = 0,
    stream: int = 0,
    stats: DrawStats | None = None,
    arity: int = 8,
    threads: int | None = None,
) -> Tensor:
    """Repeat a draw with the streams `stream`, `stream + 1`, ..; int64[repeats, k].

    Row r is `draw_without_replacement` with `stream=stream + r`. Raises what that raises.
    """
    out = _draw(weights, k, repeats, method, seed, stream, stats, arity, threads)
    return out.view(repeats, k)


class Summary(NamedTuple):
    """Summary of all weights: number above 0, equality, and total."""

    positive: int
    equal: bool
    total: float | int


def summarise(weights: Tensor) -> Summary:
    """Look at every weight once.

    Raises:
        InvalidInputError: one is negative or not finite, or the sum does not fit.
    """
    bad, positive, equal, total = extension(weights.device).weighted_check(capsule(weights))
    if bad >= 0:
        found = weights[bad].item()
        raise InvalidInputError(f"weights[{bad}] is {found}, allowed are finite numbers from 0 on")
    if total is None:
        raise InvalidInputError(
            "the sum of weights is above 2^63 - 1", hint="pass them as float64, or use `keys`"
        )
    if total == float("inf"):
        raise InvalidInputError(
            "the sum of weights is above the largest float64", hint="scale them, or use `keys`"
        )
    return Summary(positive, equal, total)


def summable(weights: Tensor, k: int, equal: bool = False) -> Tensor:
    """Weights whose sums are well behaved, float64 or int64, of which k can be drawn.

    Raises:
        InvalidInputError: see `summarise`, or too few are above zero, or `equal` and they differ.
    """
    if weights.dtype == torch.float32:
        weights = weights.double()
    seen = summarise(weights)
    _enough(seen.positive, k)
    if equal and not seen.equal:
        raise InvalidInputError(
            "weights differ, and `reservoir` draws among equal ones only",
            hint="use `keys`, which takes any weights",
        )
    if weights.dtype == torch.float64 and 0 < seen.total < _TINY:
        return weights / _TINY  # a power of two: exact, and clear of the least float64
    return weights


def check_range(name: str, value: int, low: int, high: int) -> None:
    """Check low <= value <= high.

    Raises:
        InvalidInputError: with the name, what was found and what is allowed.
    """
    if not low <= value <= high:
        raise InvalidInputError(f"{name} is {value}, allowed are {low} to {high}")


def _draw(
    weights: Tensor,
    k: int,
    repeats: int,
    method: str,
    seed: int,
    stream: int,
    stats: DrawStats | None,
    arity: int,
    threads: int | None,
) -> Tensor:
    """int64[repeats * k]; see `draw_many`."""
    if method not in METHODS:
        raise unknown_key("method", method, METHODS)
    _check_weights(weights)
    weights = weights.contiguous()
    threads = torch.get_num_threads() if threads is None else threads
    for name, value, low, high in (
        ("seed", seed, 0, _LAST),
        ("repeats", repeats, 0, 2**31 - 1),
        ("stream", stream, 0, _LAST - repeats),
        ("threads", threads, 1, 1 << 16),
    ):
        if not low <= value <= high:
            check_range(name, value, low, high)
    if arity not in ARITIES:
        raise InvalidInputError(f"arity is {arity}, allowed are {', '.join(map(str, ARITIES))}")
    n = weights.numel()
    if not 0 <= k <= n:
        raise InvalidInputError(f"k is {k}, allowed are 0 to {n}, the number of weights")
    if weights.is_cuda:
        if method != "keys":
            raise UnsupportedError(
                f"method '{method}' does not run on '{weights.device}'",
                hint="pass 'keys', which has the same distribution, or weights on the CPU",
            )
        drawn = [draw_keys(weights, k, seed=seed, stream=stream + r) for r in range(repeats)]
        none = torch.empty(0, dtype=torch.int64, device=weights.device)
        out = drawn[0] if repeats == 1 else torch.cat([none, *drawn])
        counts = (repeats * k, 0, 0, repeats * n, 0)
    elif method == "keys":
        out, made = _keys(weights, k, repeats, seed, stream, threads)
        counts = (repeats * k, 0, 0, made, 0)
    else:
        weights = summable(weights, k, method == "reservoir")
        out = _places(repeats * k)
        compiled = extension(weights.device).weighted_draw
        counts = compiled(weights, k, method, arity, seed, stream, repeats, out)
    if stats is not None:
        stats.add(*counts)
    return out


def _places(count: int) -> Tensor:
    return _memory.empty((count,), _LIKE) if count >= 1 << 17 else _LIKE.new_empty(count)


def _check_weights(weights: Tensor) -> None:
    if not isinstance(weights, Tensor):
        raise InvalidInputError(
            f"weights is a {type(weights).__name__}, expected a torch.Tensor",
            hint="pass `torch.as_tensor(weights)`",
        )
    if weights.dtype not in DTYPES or weights.dim() != 1:
        raise InvalidInputError(
            f"weights is {weights.dtype} with {weights.dim()} dimensions, expected float64, "
            "float32 or int64 with 1"
        )
    if not weights.is_cpu and not weights.is_cuda:
        raise InvalidInputError(f"weights lies on {weights.device}, expected the CPU or CUDA")


def _enough(positive: int, k: int) -> None:
    if k > positive:
        raise InvalidInputError(
            f"k is {k}, but only {positive} weights are above zero"
            if positive
            else f"k is {k}, but no weight is above zero"
        )


def _keys(
    weights: Tensor, k: int, repeats: int, seed: int, stream: int, threads: int
) -> tuple[Tensor, int]:
    """Draw with one key per item; return the drawn indices and the number of keys made."""
    if weights.numel() >= MAX_KEYS:
        raise InvalidInputError(f"weights has {weights.numel()} elements, keys take < 2^32")
    out = _places(repeats * k)
    compiled = extension(_LIKE.device)
    if k == 0:
        if compiled.weighted_check(weights)[0] >= 0:
            summarise(weights)
        return out, 0
    rest = (k, seed, stream, repeats)
    odd, positive, made = compiled.weighted_keys(
        capsule(weights), *rest, False, threads, capsule(out)
    )
    if odd:
        if compiled.weighted_check(weights)[0] >= 0:
            summarise(weights)
        odd, positive, made = compiled.weighted_keys(
            capsule(weights), *rest, True, threads, capsule(out)
        )
    if positive >= 0:
        _enough(positive, k)
    return out, made
