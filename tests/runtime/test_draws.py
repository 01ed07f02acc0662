"""Draws of what is compared."""

from __future__ import annotations

import pytest

from dgbench.runtime.draws import draws_of, seed_draws


@pytest.fixture(autouse=True)
def _own_draws():
    yield
    seed_draws("")


def drawn(seed: str, *, disturbed: bool = False) -> list[int]:
    seed_draws(seed)
    if disturbed:
        draws_of("batches").sample(range(1000), 5)
    return [number for _ in range(3) for number in draws_of("frames").sample(range(1000), 5)]


def test_processes_of_one_round_draw_alike_and_others_anew() -> None:
    first = drawn("run/round 1")
    assert drawn("run/round 1", disturbed=True) == first
    assert len({*map(tuple, (first[:5], first[5:10], first[10:]))}) == 3
    assert drawn("run/round 2") != first
    assert drawn("") != drawn("")
