"""Conditioning of a result: how far float32 rounding alone may take it from float64.

The plain model is run in float64 with every intermediate result perturbed by at most half a unit
in the last place of float32 (Monte Carlo arithmetic; Parker, 1997). How far each tensor then moves
is its own measure of rounding: columns that a norm divides by nearly nothing move far, the rest
hardly at all. Nothing of the system that is checked takes part in it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._decomp import get_decompositions
from torch.utils._python_dispatch import TorchDispatchMode

from dgbench.lab.result_checks import LOOSEST, deviations

UNIT = 2.0**-24
"""Largest relative error of one float32 operation."""

MIN_TOLERANCE = 1e-5
"""Smallest tolerance: sums of some thousand terms in another order differ by less."""

SAFETY = 16.0
"""Times the deviation seen under perturbed arithmetic that is still rounding: an order of sums
may be worse than a random walk, and few draws are made."""


class PerturbedArithmetic(TorchDispatchMode):
    """Every floating result of torch gets an error as float32 arithmetic would give it, seeded.

    An elementwise result moves by up to `UNIT` of itself. A sum of n terms, added one after the
    other, moves by up to `UNIT` times the root of n of the sum of the sizes of its terms: terms
    that cancel leave their rounding behind. Norms are taken apart, so that the error of a mean
    moves all entries of a column together. What is written to a given tensor (`out`, in place) is
    left as it is: differences of times, which are float64 in every system.

    Args:
        seed: of the errors.
        alike: one error for all entries of a column: rows that are alike are rounded alike, and
            a sum over them does not average that out.
    """

    def __init__(self, seed: int, *, alike: bool = False) -> None:
        super().__init__()
        self._pool: dict[torch.device, Tensor] = {}
        self._seed, self._place, self._alike = seed, random.Random(seed), alike

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _PARTS:
            with self:
                return _PARTS[func](*args, **kwargs)
        found = func(*args, **kwargs)
        if not _rounds(func):
            return found
        if not isinstance(found, Tensor):
            return torch.utils._pytree.tree_map_only(Tensor, self._perturbed, found)
        if func in _SUMS:
            sizes = [_size(one) for one in args]
            size = func(*sizes, **{name: _size(one) for name, one in kwargs.items()})
            return self._perturbed(found, size * math.sqrt(_terms(func, sizes, found)))
        return self._perturbed(found)

    def _perturbed(self, tensor: Tensor, size: Tensor | None = None) -> Tensor:
        if tensor.dtype != torch.float64 or tensor.layout != torch.strided:
            return tensor
        own = tensor.shape[-1:] if self._alike and tensor.dim() > 1 else tensor.shape
        error = self._errors(math.prod(own), tensor.device).view(own)
        found = torch.addcmul(tensor, tensor if size is None else size, error)
        # What hides scores from a softmax is infinite, and stays it.
        return torch.where(found.isfinite(), found, tensor)

    def _errors(self, count: int, device: torch.device) -> Tensor:
        """Uniform errors in -UNIT..UNIT, float64[count]: a piece of one long draw, at any place."""
        pool = self._pool.get(device)
        if pool is None or pool.numel() < 2 * count:
            generator = torch.Generator(device).manual_seed(self._seed)
            size = max(1 << 16, 3 * count)
            pool = torch.rand(size, dtype=torch.float64, device=device, generator=generator)
            self._pool[device] = pool.mul_(2 * UNIT).sub_(UNIT)
        first = self._place.randrange(pool.numel() - count + 1)
        return pool[first : first + count]


@cache
def _rounds(func: Any) -> bool:
    """Return True for an operator whose results are new numbers.

    Others return views or tensors that they were given, or make and move numbers.
    """
    given = any(result.alias_info is not None for result in func._schema.returns)
    return not given and func.overloadpacket not in _MOVES


def _terms(func: Any, args: Sequence[Any], found: Tensor) -> int:
    """Number of terms in an entry of a sum; of a scattered sum, on average."""
    if func in _PRODUCTS:
        return args[_PRODUCTS[func]].shape[-1]
    if func in _SCATTERED:
        return max(1, args[3].numel() // max(1, found.numel()))
    return max(1, args[0].numel() // max(1, found.numel()))


def _size(argument: Any) -> Any:
    """Sizes of a tensor; those of `_SUMS` have no tensors inside of their other arguments."""
    if isinstance(argument, Tensor) and argument.is_floating_point():
        return argument.abs()
    return argument


_aten = torch.ops.aten
_PRODUCTS = {
    _aten.mm.default: 0,
    _aten.mv.default: 0,
    _aten.dot.default: 0,
    _aten.bmm.default: 0,
    _aten.addmm.default: 1,
    _aten.baddbmm.default: 1,
}
"""Operators that add up products, and the argument whose last dimension they add up over."""
_SCATTERED = frozenset({_aten.index_add.default, _aten.scatter_add.default})
_SUMS = frozenset(
    {
        *_PRODUCTS,
        *_SCATTERED,
        _aten.sum.default,
        _aten.sum.dim_IntList,
        _aten.mean.default,
        _aten.mean.dim,
    }
)

_MOVES = frozenset(
    getattr(_aten, name)
    for name in [
        "_to_copy",
        "arange",
        "cat",
        "clone",
        "constant_pad_nd",
        "copy",
        "embedding",
        "empty",
        "empty_like",
        "flip",
        "full",
        "full_like",
        "gather",
        "index",
        "index_select",
        "masked_fill",
        "masked_select",
        "new_empty",
        "new_full",
        "new_ones",
        "new_zeros",
        "ones",
        "ones_like",
        "rand",
        "rand_like",
        "randn",
        "repeat",
        "scalar_tensor",
        "scatter",
        "select_backward",
        "select_scatter",
        "slice_backward",
        "slice_scatter",
        "stack",
        "threshold_backward",
        "where",
        "zeros",
        "zeros_like",
    ]
)
"""Operators that make or move numbers and round none."""

_PARTS = get_decompositions(
    [
        # Of a class that is nearly sure, what is left of one is rounded as one is.
        _aten._log_softmax.default,
        _aten._log_softmax_backward_data.default,
        _aten._softmax.default,
        _aten._softmax_backward_data.default,
        _aten.native_batch_norm.default,
        _aten.native_batch_norm_backward.default,
        _aten.native_layer_norm.default,
        _aten.native_layer_norm_backward.default,
    ]
)


def rounding(
    answer: Callable[[], Mapping[str, Tensor]],
    exact: Mapping[str, Tensor],
    *,
    draws: int = 2,
    seed: int = 1,
) -> dict[str, float]:
    """Relative deviation of each tensor that rounding every operation to float32 causes.

    Args:
        answer: computes the tensors from the start, in float64 and by torch's operators.
        exact: what it computes undisturbed.
        draws: perturbed runs, in every second of which rows are rounded alike; the largest
            deviation of each tensor counts.
        seed: of the perturbations.
    """
    worst = dict.fromkeys(exact, 0.0)
    for draw in range(draws):
        with PerturbedArithmetic(seed + draw, alike=draw % 2 == 1):
            found = {name: tensor.detach().cpu() for name, tensor in answer().items()}
        for name, gap in deviations(found, exact).items():
            worst[name] = max(worst[name], gap)
    return worst


def tolerances(rounding_of: Mapping[str, float]) -> dict[str, float]:
    """Tolerance of each tensor's deviation by rounding, from `MIN_TOLERANCE` to `LOOSEST`."""
    return {
        name: min(LOOSEST, max(MIN_TOLERANCE, SAFETY * gap)) for name, gap in rounding_of.items()
    }
