"""Aggregation interface that a model needs from the system that runs it."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Aggregator(Protocol):
    """Application of A-hat = R (A + I) C to one snapshot (scales: `datasets.transforms.factors`).

    `t` is the snapshot's number in the sequence.
    """

    def raw(self, t: int) -> Tensor:
        """X_t, float32[N, F], no gradient."""
        ...

    def first(self, t: int) -> Tensor:
        """A-hat_t X_t, float32[N, F], no gradient."""
        ...

    def apply(self, t: int, h: Tensor) -> Tensor:
        """A-hat_t h for h float32[N, H]; differentiable in h."""
        ...
