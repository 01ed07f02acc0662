"""Liveness of a trained network: a comparison of a network that does nothing says nothing.

Where all units of a layer are cut off, outputs and gradients are zeros that any computation equals.
So three measures of what was compared, of the reference and of the system, stand beside deviations,
and below a bar the row is discarded (`ResultCheck` of `liveness`):

- `outputs`: share of the hidden outputs that depend on their input: those that differ from what
  most vertices have. Vertices that no input reaches do not count.
- `gradients`: norm of the gradient of the layer that has the smallest, over the norm of all.
- `moved`: distance that parameters came from their first values in the timed steps, over the norm
  of these, of the layer that moved least.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import torch
from torch import Tensor

from dgbench.lab.result_checks import LIVENESS, ResultCheck, at_most
from dgbench.runtime.touched import comparing
from dgbench.systems.base.moments import AdamMoments

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence

MIN_OUTPUTS: Final = 0.05
"""Share of hidden outputs. Live networks have 0.1 and more, ReLU that died at most 0.01."""
MIN_GRADIENT: Final = 5e-4
"""Share of the gradient's norm. The smallest layers of live networks have 1e-3 and more, layers
below ReLU that died at most 2e-4."""
MIN_MOVED: Final = 1e-6
"""Relative distance. One step of Adam at the smallest rate in use, 1e-4, moves a layer by 1e-4 and
more; only a layer that is not trained stays where it is."""
BARS: Final = {"outputs": MIN_OUTPUTS, "gradients": MIN_GRADIENT, "moved": MIN_MOVED}
BARS_OF_EVENTS: Final = BARS | {"gradients": 1e-5}
"""Of interactions: what vertices pass on to neighbours has 6e-5 of the gradient of a few events."""
ALL_LAYERS: Final = 16
"""Optimiser steps from which each layer of a network on events must have moved: the first ones,
whose vertices have no history yet, need not reach what reads it."""
WORDS: Final = {
    "outputs": "share of the outputs that depend on input",
    "gradients": "share of the gradient's norm",
    "moved": "relative distance that parameters moved",
}
TINY: Final = 1e-6
"""Difference of outputs, relative to the largest of them, that is no difference: rounding."""
ATTENTION: Final = ("query", "key", "value")
"""Modules that are parts of one layer."""
AGES: Final = ("time.weight", "drift.weight")
"""Ends of the names of weights of ages. How large gradients of their layers are depends on the unit
of time: these are left out of shares of the gradient."""
GATES: Final = ("_r", "_z")
"""Ends of the names of modules of the reset and the update gate of a cell, which are one layer."""

Measures = Mapping[str, tuple[float, str]]
"""By name: a measure, and the layer that it is of; "" where it is of the whole."""


def layer_of(name: str) -> str:
    """Layer of a parameter: its first module, with a number where that is a list of modules.

    Parameters that the model itself has are a layer, and so are query, key and value, and the gates
    of a cell (`conv_z` and `conv_r`): one that scales what another lets in has a small gradient.
    """
    first, *rest = name.split(".")
    if not rest:
        return ""
    if first in ATTENTION:
        return "attention"
    numbers = []
    for word in rest:
        if not word.isdigit():
            break
        numbers.append(word)
    for end in GATES:
        first = first.removesuffix(end)
    return ".".join([first, *numbers])


def reached(data: SnapshotSequence, t: int) -> Tensor:
    """bool[N]: vertices of a snapshot that have features other than zero, or a neighbour."""
    found = torch.as_tensor(data.features[t]).ne(0).any(1).cpu()
    return found | (data.topology[t].indptr.diff() > 0).cpu()


def live_share(outputs: Tensor, rows: Tensor | None = None) -> float:
    """Share of outputs [N, D] that differ from their unit's median over all rows.

    Args:
        outputs: of vertices, vertex-steps or roots.
        rows: bool[N], those that an input reaches; None: all.
    """
    flat = outputs.detach().double().cpu().reshape(-1, outputs.shape[-1])
    if not flat.numel() or not bool(flat.isfinite().all()):
        return 0.0
    live = (flat - flat.median(0).values).abs() > TINY * flat.abs().max()
    count = flat.shape[0] if rows is None else int(rows.sum())
    return min(1.0, float(live.sum()) / max(1, count * flat.shape[1]))


def changed_share(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> float:
    """Share of the numbers of vertices' states that events changed.

    Args:
        before, after: by name, of the same shapes; other names of `after` do not count.
    """
    largest = max((float(after[name].abs().max()) for name in before), default=0.0)
    changed = total = 0
    for name, old in before.items():
        gap = (after[name].detach().double() - old.double()).abs()
        changed += int((gap > TINY * largest).sum())
        total += old.numel()
    return changed / max(1, total) if math.isfinite(largest) else 0.0


def smallest_gradient(gradients: Sequence[Mapping[str, Tensor]]) -> tuple[float, str]:
    """Share of the gradients' norm that the layer with the smallest has, and its name.

    Args:
        gradients: by name, of several frames, whose squares are added.
    """
    return _smallest(_shares(gradients))


def distances(first: Mapping[str, Tensor], now: Mapping[str, Tensor]) -> dict[str, float]:
    """Relative distance that each layer moved.

    Args:
        first, now: parameters by name, before and after the timed steps.
    """
    aged = {layer_of(name) for name in first if name.endswith(AGES)}
    moved: dict[str, float] = defaultdict(float)
    size: dict[str, float] = defaultdict(float)
    for name, before in first.items():
        before = before.detach().double().cpu()
        gap = now[name].detach().double().cpu() - before
        moved[layer_of(name)] += float(gap.square().sum())
        size[layer_of(name)] += float(before.square().sum())
    # A layer that begins with zeros has no size, and has moved where it is anything else. Ages that
    # are all 0 move no layer of ages.
    return {name: _root(moved[name], size[name] or 1.0) for name in moved if name not in aged}


def distance(first: Mapping[str, Tensor], now: Mapping[str, Tensor]) -> float:
    """Relative distance that all parameters together moved; see `distances`."""
    gap = size = 0.0
    for name, before in first.items():
        before = before.detach().double().cpu()
        gap += float((now[name].detach().double().cpu() - before).square().sum())
        size += float(before.square().sum())
    return _root(gap, size or 1.0)


def few_updates(moments: Mapping[str, AdamMoments]) -> bool:
    """Return True if there were too few optimiser steps to move all layers by events.

    Args:
        moments: of a trainer, by name.
    """
    return max((int(one.updates or 0) for one in moments.values()), default=0) < ALL_LAYERS


def together(first: Mapping[str, Tensor], now: Mapping[str, Tensor]) -> Measures:
    """The measure of all layers together, for a few steps; see `distances`."""
    return {"moved": (distance(first, now), "")}


def taking_part(
    gradients: Sequence[Mapping[str, Tensor]],
    moved: Mapping[str, float],
    *,
    few: bool = False,
    least: float = 0.0,
) -> list[dict[str, Tensor]]:
    """The gradients without layers that have none here and moved all the same.

    A few events need not reach all layers; one that the timed steps moved is alive.

    Args:
        gradients: by name, of a few events each.
        moved: distance of each layer.
        few: whether there were too few steps to move all layers.
        least: share of the gradients' norm below which a layer counts as not reached: the age of
            what a vertex passes on may scale it by any factor.
    """
    shares = _shares(gradients)
    gone = {
        name
        for name, gap in moved.items()
        if shares.get(name, 0.0) <= least and (few or gap >= MIN_MOVED)
    }
    return [{n: x for n, x in one.items() if layer_of(n) not in gone} for one in gradients]


def measures(
    *,
    outputs: Iterable[tuple[Tensor, Tensor | None]] = (),
    gradients: Sequence[Mapping[str, Tensor]] = (),
    first: Mapping[str, Tensor] | None = None,
    now: Mapping[str, Tensor] | None = None,
    exact: Sequence[Mapping[str, Tensor]] | None = None,
) -> dict[str, tuple[float, str]]:
    """Measures of what is there.

    Args:
        outputs: with the rows that an input reaches, of several frames; the liveliest one counts,
            as a frame may have no history.
        gradients: of several frames.
        first, now: parameters before and after the timed steps.
        exact: gradients of the reference; layers that none of them reaches need not have moved,
            such as a head that the task does not ask. None: all have to.
    """
    found: dict[str, tuple[float, str]] = {}
    shares = [live_share(one, rows) for one, rows in outputs]
    if shares:
        found["outputs"] = max(shares), ""
    if gradients:
        found["gradients"] = smallest_gradient(gradients)
    if first is not None and now is not None:
        moved = distances(first, now)
        if exact is not None:
            moved = {name: gap for name, gap in moved.items() if name in _reached(exact)} or moved
        found["moved"] = _smallest(moved)
    return found


@comparing()
def check(
    *all_measures: Measures,
    against: str,
    system: str = "",
    part: str = "",
    bars: Mapping[str, float] = BARS,
    **workload: Any,
) -> list[ResultCheck]:
    """A check of liveness, which fails where a measure is below its bar; none without measures.

    Args:
        all_measures: of the reference and of the system; the smaller one of a name counts.
        against, system, part: as in `ResultCheck`; `part` is put before what is closest to its bar.
        bars: least values by name.
        workload: see `ResultCheck`.
    """
    least: dict[str, tuple[float, str]] = {}
    for each in all_measures:
        for name, (value, layer) in each.items():
            if name not in least or value < least[name][0]:
                least[name] = value, layer
    if not least:
        return []
    short = {name: _short(bars[name], value) for name, (value, _) in least.items()}
    worst = max(short, key=lambda name: short[name])
    value, layer = least[worst]
    words = f"{WORDS[worst]} {value:.2g}, at least {bars[worst]:g}"
    where = ", ".join(word for word in (part, layer and f"layer {layer}") if word)
    found = at_most(
        LIVENESS, short[worst], 1.0, against=against, compared=len(least), system=system,
        part=f"{where}: {words}" if where else words,
        alive={name: value for name, (value, _) in least.items()},
    )  # fmt: skip
    return [msgspec.structs.replace(found, workload=workload)]


def _shares(gradients: Sequence[Mapping[str, Tensor]]) -> dict[str, float]:
    """Share of the gradients' norm by layer, without layers of ages."""
    squares: dict[str, float] = defaultdict(float)
    for each in gradients:
        aged = {layer_of(name) for name in each if name.endswith(AGES)}
        for name, gradient in each.items():
            if layer_of(name) not in aged:
                squares[layer_of(name)] += float(gradient.detach().double().square().sum())
    total = sum(squares.values())
    return {name: _root(square, total) for name, square in squares.items()}


def _reached(gradients: Sequence[Mapping[str, Tensor]]) -> set[str]:
    """Layers that have a gradient other than 0."""
    return {layer_of(name) for one in gradients for name, x in one.items() if bool(x.any())}


def _smallest(found: Mapping[str, float]) -> tuple[float, str]:
    """Smallest value and its name."""
    name = min(found, key=lambda one: found[one], default="")
    return found.get(name, 0.0), name


def _root(part: float, whole: float) -> float:
    """Root of a quotient of two squares; 0 where it is not finite."""
    return math.sqrt(part / whole) if whole > 0 and math.isfinite(part / whole) else 0.0


def _short(bar: float, value: float) -> float:
    """Times that a measure lies below its bar; the largest float for zero."""
    return min(bar / value, sys.float_info.max) if value > 0 else sys.float_info.max
