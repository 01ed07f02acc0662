"""Checks that the operators' tests share: threads, refusals, distance to an exact result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from dgbench.runtime.errors import DgbenchError


def on_threads(call: Callable[[], Any], counts: Iterable[int] = (1, 2, 3)) -> list[Any]:
    """Return what a call gives on each number of threads."""
    before, results = torch.get_num_threads(), []
    try:
        for threads in counts:
            torch.set_num_threads(threads)
            results.append(call())
    finally:
        torch.set_num_threads(before)
    return results


def same_bits(results: Sequence[Sequence[Tensor]]) -> None:
    """Assert that all results hold the same tensors."""
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


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
