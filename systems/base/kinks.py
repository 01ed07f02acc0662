"""Gradients at kinks: any choice of a rectifier's slope is right where rounding decides its sign.

A rectifier whose input is smaller than its rounding error takes one slope in float32 and may take
the other in float64. Its subgradient holds both, and the gradient of a parameter jumps between
them, by a percent where a sum cancels: no tolerance for rounding tells that from a fault. So the
exact gradients are taken with the slopes that come closest to a trainer's, where the input of a
rectifier moves past zero under perturbed arithmetic, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from dgbench.lab.result_checks import deviations
from dgbench.systems.base.conditioning import PerturbedArithmetic

MOST_KINKS: Final = 32
"""Kinks that are tried, the nearest ones. Each costs a pass over the graph in float64."""

ALIKE: Final = 1e-3
"""Share of its rounding error by which inputs of one column may differ and still be one kink: rows
that are alike, such as those of vertices without edges, pass zero together."""

SHARE: Final = 16.0
"""Times the root mean square error of a column that an input may be from zero: errors of thousands
of entries lie within."""

PERTURBED: Final = 2
"""Perturbed passes that measure those errors."""

Answer = TypeVar("Answer")
Kink = tuple[int, Tensor]
"""Number of a rectifier in the order of calls, and int64[k] entries of its input."""

_aten = torch.ops.aten
_SAVES_RESULT: Final = {_aten.relu.default, _aten.relu_.default, _aten.leaky_relu_.default}
_RECTIFIERS: Final = _SAVES_RESULT | {_aten.leaky_relu.default}
_BACKWARD: Final = {_aten.threshold_backward.default, _aten.leaky_relu_backward.default}


class _Rectifiers(TorchDispatchMode):
    """Records the inputs of rectifiers, and takes the other slope at some entries.

    Args:
        turned: where.

    Attributes:
        inputs: of all rectifiers in the order of calls.
    """

    def __init__(self, turned: Sequence[Kink] = ()) -> None:
        super().__init__()
        self.inputs: list[Tensor] = []
        self._turned, self._numbers = turned, dict[int, int]()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _RECTIFIERS:
            number = len(self.inputs)
            self.inputs.append(args[0].detach().clone())
            out = func(*args, **kwargs)
            # Backward is given what forward has saved.
            self._numbers[(out if func in _SAVES_RESULT else args[0]).data_ptr()] = number
            return out
        out = func(*args, **kwargs)
        if func in _BACKWARD:
            number = self._numbers.get(args[1].data_ptr(), -1)
            every = [entries for rectifier, entries in self._turned if rectifier == number]
            if every:
                entries = torch.cat(every)
                gradient, saved = args[0].reshape(-1)[entries], args[1].reshape(-1)[entries]
                slope = args[2] if func is _aten.leaky_relu_backward.default else 0.0
                turned = out.contiguous()
                turned.view(-1)[entries] = gradient * torch.where(saved > 0, slope, 1.0).to(
                    gradient.dtype
                )
                return turned
        return out


def with_nearest_slopes(
    answer: Callable[[], Answer], distance: Callable[[Answer], float]
) -> Answer | None:
    """Answer with those slopes at kinks that come closest to a trainer's; None without kinks.

    Args:
        answer: computes gradients, or what follows from them, from the start in float64.
        distance: of an answer from what a trainer has left.
    """
    with _Rectifiers() as exact:
        best = answer()
    kinks = _kinks(answer, exact.inputs)
    if not kinks:
        return None
    least, turned = distance(best), list[Kink]()
    for kink in kinks:
        with _Rectifiers([*turned, kink]):
            found = answer()
        if (off := distance(found)) < least:
            best, least, turned = found, off, [*turned, kink]
    return best if turned else None


def excess(
    found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], allowed: Mapping[str, float]
) -> float:
    """Sum of squares of deviations in units of their tolerances: a distance for `answer`s."""
    return sum((gap / allowed[name]) ** 2 for name, gap in deviations(found, wanted).items())


def _kinks(answer: Callable[[], object], inputs: list[Tensor]) -> list[Kink]:
    """Inputs that rounding may move past zero, the nearest first."""
    squares = [torch.zeros_like(value) for value in inputs]
    for seed in range(1, PERTURBED + 1):
        with PerturbedArithmetic(seed), _Rectifiers() as moved:
            answer()
        for total, value, other in zip(squares, inputs, moved.inputs, strict=True):
            total += (other - value).square()
    found: list[tuple[float, Kink]] = []
    for number, (total, value) in enumerate(zip(squares, inputs, strict=True)):
        width = total.shape[-1]
        rows = total.reshape(-1, width)
        error = (rows.mean(0) / PERTURBED).sqrt().expand_as(rows).reshape(-1)
        flat = value.reshape(-1)
        # What is exact, as a row of zeros, rounds to nothing.
        near = ((flat.abs() < SHARE * error) & (total.reshape(-1) > 0)).nonzero().view(-1)
        if not near.numel():
            continue
        place = (flat[near] / error[near] / ALIKE).round()
        kinks, of = torch.stack([(near % width).to(place), place]).unique(
            dim=1, return_inverse=True
        )
        order, counts = of.argsort(stable=True), of.bincount()
        groups = near[order].split(counts.tolist())
        found += zip(kinks[1].abs().tolist(), ((number, group) for group in groups), strict=True)
    found.sort(key=lambda one: one[0])
    return [kink for _, kink in found[:MOST_KINKS]]
