"""Moments of Adam that a trainer keeps of what it trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor


class AdamMoments(NamedTuple):
    """Moments that Adam keeps of one trained tensor, as they lie there: each update shows in them.

    Attributes:
        first, second: moments, in the tensor's shape.
        updates: scalar that counts updates; None where it is counted elsewhere, every step.
    """

    first: Tensor
    second: Tensor
    updates: Tensor | None = None


def moments_of(owner: Any, leaves: Mapping[str, Tensor]) -> dict[str, AdamMoments]:
    """Moments of leaves by name, by the `torch.optim.Adam` among an object's attributes.

    Leaves that no update has reached have none.
    """
    wanted = {id(leaf) for leaf in leaves.values()}
    for value in vars(owner).values():
        if not isinstance(value, torch.optim.Adam):
            continue
        trained = {id(leaf) for group in value.param_groups for leaf in group["params"]}
        if wanted <= trained:
            states = {name: value.state[leaf] for name, leaf in leaves.items()
                      if value.state.get(leaf)}  # fmt: skip
            return {
                name: AdamMoments(of["exp_avg"], of["exp_avg_sq"], of["step"])
                for name, of in states.items()
            }
    return {}
