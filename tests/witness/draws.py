"""Seeded draws, Adam and average precision from their definitions, in plain numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu, softmax

WORD = 2**64 - 1


def split_mix(seed: int, stream: int, number: int) -> int:
    """SplitMix64 (Steele et al., 2014) over a seed, a stream and a number: 63 bits."""
    x = number
    for word in (seed, stream):
        x = (x + 0x9E3779B97F4A7C15 * (word % 2**62 + 1)) & WORD
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & WORD
        x = (x ^ x >> 27) * 0x94D049BB133111EB & WORD
        x ^= x >> 31
    return x >> 1


def negative_candidates(
    pairs: Sequence[tuple[int, int]], kept: int, num_nodes: int, num_src: int | None
) -> list[int]:
    """Vertices that may stand in for a destination of the first `kept` of all pairs of a stream.

    Of a prefix the destinations that occur in it, of a whole stream all of the destinations' side.
    """
    if kept < len(pairs):
        return sorted({dst for _, dst in pairs[:kept]})
    return list(range(num_src or 0, num_nodes))


class Adam:
    """Adam (Kingma and Ba, 2015, algorithm 1); a parameter without a gradient has a zero one."""

    def __init__(self, parameters: Mapping[str, Tensor], lr: float) -> None:
        self.parameters, self.lr, self.steps = parameters, lr, 0
        self.first = {name: torch.zeros_like(p) for name, p in parameters.items()}
        self.second = {name: torch.zeros_like(p) for name, p in parameters.items()}

    def step(self) -> None:
        """Move all parameters by their gradients, and take these away."""
        self.steps += 1
        for name, p in self.parameters.items():
            g = torch.zeros_like(p) if p.grad is None else p.grad
            self.first[name] = 0.9 * self.first[name] + 0.1 * g
            self.second[name] = 0.999 * self.second[name] + 0.001 * g * g
            first = self.first[name] / (1 - 0.9**self.steps)
            second = self.second[name] / (1 - 0.999**self.steps)
            p.data -= self.lr * first / (second.sqrt() + 1e-8)
            p.grad = None


TIE = 1e-9
"""Difference of two scores in float64 that rounding alone may make."""


def average_precision(positive: Sequence[float], negative: Sequence[float]) -> float:
    """Area under precision over recall, threshold by threshold; NaN without positives."""
    if not positive:
        return math.nan
    area, before = 0.0, 0
    for threshold in sorted({*positive, *negative}, reverse=True):
        hits = sum(score >= threshold for score in positive)
        taken = hits + sum(score >= threshold for score in negative)
        area += (hits - before) / len(positive) * hits / taken
        before = hits
    return area


def precision_range(scores: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Least and largest average precision of (positive, negative) scores.

    Scores that are the same number but for rounding may come in either order.
    """
    negative = [b for _, b in scores]
    least, largest = (
        average_precision([a + moved for a, _ in scores], negative) for moved in (-TIE, TIE)
    )
    return least, largest


class Layers:
    """Parameters of a network by name."""

    p: dict[str, Tensor]

    def linear(self, name: str, x: Tensor) -> Tensor:
        out = self.p[f"{name}.weight"] @ x
        return out + self.p[f"{name}.bias"] if f"{name}.bias" in self.p else out


def attention(queries: Sequence[Tensor], keys: Sequence[Any], values: Sequence[Any]) -> Tensor:
    """Scaled dot-product attention, heads side by side; keys and values by neighbour and head."""
    heads = []
    for head, q in enumerate(queries):
        share = softmax(torch.stack([q @ key[head] / math.sqrt(q.numel()) for key in keys]), 0)
        heads.append(sum(s * value[head] for s, value in zip(share, values, strict=True)))
    return torch.cat(heads)


def graph_attention(shown: Sequence[Tensor], source: Tensor, target: Tensor) -> Any:
    """A head of GAT over a vertex, which comes first, and its neighbours."""
    raw = torch.stack([source @ y + target @ shown[0] for y in shown])
    share = softmax(leaky_relu(raw, 0.2), 0)
    return sum(s * y for s, y in zip(share, shown, strict=True))


def doubles(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Float64 copies that gradients are taken of."""
    return {name: p.detach().double().clone().requires_grad_() for name, p in state.items()}
