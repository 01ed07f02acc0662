"""Trainers of one network by Adam, whose training can be kept and gone on with elsewhere."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dgbench.systems.base.system import Trainer


class AdamTrainer(Trainer):
    """A trainer of all parameters of one network by Adam.

    Attributes:
        model: with its head, on the device.
        workload: what is trained; its `lr` is the learning rate.
    """

    model: nn.Module
    workload: Any
    _optimiser: torch.optim.Adam | None = None

    @property
    def optimiser(self) -> torch.optim.Adam:
        """Adam of the model's parameters, made when it is first asked for."""
        if self._optimiser is None:
            self._optimiser = torch.optim.Adam(
                self.model.parameters(), lr=self.workload.lr, fused=True
            )
        return self._optimiser

    def trained(self) -> dict[str, Tensor]:
        return dict(self.model.named_parameters())

    def state(self) -> dict[str, Tensor]:
        return {name: p.detach().cpu().clone() for name, p in self.model.named_parameters()}

    def training_state(self) -> dict[str, Any]:
        """Parameters and what Adam keeps, to go on from; tensors, numbers and names alone."""
        return {
            "model": {k: v.detach().cpu().clone() for k, v in self.model.state_dict().items()},
            "optimiser": self.optimiser.state_dict(),
        }

    def load_training_state(self, state: dict[str, Any]) -> None:
        """Go on from where a trainer of the same network was at its `training_state`."""
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])

    def close(self) -> None:
        self._optimiser = None


def make_state(optimiser: torch.optim.Optimizer) -> None:
    """Make an optimiser's state, which a capture must find; nothing is trained by it."""
    if optimiser.state:
        return
    for group in optimiser.param_groups:
        for leaf in group["params"]:
            leaf.grad = torch.zeros_like(leaf)
    optimiser.step()
    for state in optimiser.state.values():
        for value in state.values():
            if isinstance(value, Tensor):
                value.zero_()


def as_lies(gradient: Tensor | None, leaf: Tensor) -> Tensor | None:
    """A gradient as its leaf lies in memory, as accumulating would leave it."""
    if gradient is None or gradient.stride() == leaf.stride():
        return gradient
    return torch.empty_like(leaf).copy_(gradient)
