"""Checks that the operators' tests share: refusals, equality and nearness."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

import pytest
import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import DgbenchError


def same_bits(results: Sequence[Sequence[Tensor]]) -> None:
    """Assert that all results hold the same tensors."""
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def same_csr(one: Csr, other: Csr) -> None:
    """Assert that two matrices are the same in every array."""
    assert (one.num_rows, one.num_cols) == (other.num_rows, other.num_cols)
    assert torch.equal(one.indptr, other.indptr)
    assert torch.equal(one.indices, other.indices)
    assert (one.values is None) == (other.values is None)
    assert one.values is None or torch.equal(one.values, other.values)


def order_probabilities(weights: list[float], k: int) -> dict[tuple[int, ...], float]:
    """Probability of every ordered draw of k without replacement, by definition."""
    found = {}
    for order in permutations([i for i, w in enumerate(weights) if w > 0], k):
        left, p = sum(weights), 1.0
        for i in order:
            p *= weights[i] / left
            left -= weights[i]
        found[order] = p
    return found


def refuses(call: Callable[..., Any], right: dict[str, Any], *wrong: tuple[str, Any]) -> None:
    """Assert that a call takes `right`, and names each argument that is given a wrong value.

    A name may hold what the message says instead: `name|word`.
    """
    call(**right)
    for name, value in wrong:
        given = {**right, name.split("|")[0]: value}
        with pytest.raises(DgbenchError, match=name.split("|")[-1]):
            call(**given)


def close(ours: Sequence[Tensor], exact: Sequence[Tensor], tolerance: float) -> None:
    """Assert that tensors are near to exact ones, relative to the largest number of each."""
    for one, right in zip(ours, exact, strict=True):
        assert one.shape == right.shape
        scale = max(1.0, float(right.detach().abs().max()) if right.numel() else 0.0)
        torch.testing.assert_close(
            one.double(), right.double(), rtol=0, atol=tolerance * scale, equal_nan=True
        )
