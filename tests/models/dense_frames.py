"""Frames whose A-hat is one dense matrix a snapshot, in float64."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class DenseFrame:
    """The aggregator that a model is given, by plain products."""

    def __init__(self, matrices: Sequence[Tensor] | Tensor, features: Tensor) -> None:
        self.matrices, self.features = matrices, features

    @classmethod
    def drawn(cls, steps: int, nodes: int, width: int, seed: int) -> DenseFrame:
        """A frame of random matrices and features."""
        draw = torch.Generator().manual_seed(seed)
        matrices = torch.randn(steps, nodes, nodes, generator=draw).double()
        return cls(matrices, torch.randn(steps, nodes, width, generator=draw).double())

    def raw(self, t: int) -> Tensor:
        return self.features[t]

    def first(self, t: int) -> Tensor:
        return self.matrices[t] @ self.features[t]

    def apply(self, t: int, h: Tensor) -> Tensor:
        return self.matrices[t] @ h
