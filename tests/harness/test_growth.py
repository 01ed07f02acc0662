"""Growth over hours: what grows is found, and what only wavers is not."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.harness.growth import MIN_READINGS, growth_of
from dgbench.runtime.errors import InvalidInputError


def noise(count, seed, size=0.3):
    draw = random.Random(seed)
    return [100 + size * draw.gauss(0, 1) for _ in range(count)]


def judged(values, allowed=2.0):
    return growth_of("x", [60.0 * i for i in range(len(values))], values, allowed=allowed)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(20, 60))
def test_noise_does_not_grow_and_a_steady_leak_beside_it_does(seed, count):
    values = noise(count, seed)
    # Over 20 minutes noise may look like some growth an hour, which is what `allowed` is for.
    assert judged(values, allowed=6.0).word == "steady"
    leak = judged([v + 0.5 * i for i, v in enumerate(values)], allowed=6.0)
    assert leak.word == "grows"
    assert leak.slope == pytest.approx(30, abs=6)
    assert leak.low <= leak.slope <= leak.high


@pytest.mark.parametrize(
    "values",
    [
        [5.0] * 40,
        [1.0] * 4 + [9.0] * 36,  # a cache that fills while it warms up
        [5.0] * 20 + [900.0] + [5.0] * 19,
        [5.0 + i % 2 for i in range(40)],
        [9.0 - i / 10 for i in range(40)],
        [5.0] * 25 + [6.0] * 15,  # one step is one thing, and no leak
    ],
    ids=["constant", "warm", "outlier", "wave", "shrinks", "step"],
)
def test_what_settles_does_not_grow(values):
    assert judged(values).word == "steady"


def test_every_leak_is_as_large_as_it_is_allowed_to_be():
    values = [float(i // 5) for i in range(60)]  # 12 an hour, in whole numbers
    assert judged(values, allowed=4.0).word == "grows"
    assert judged(values, allowed=30.0).word == "steady"
    assert judged(values[:MIN_READINGS]).word == "too short"
    with pytest.raises(InvalidInputError):
        growth_of("x", [0.0], [1.0, 2.0], allowed=1.0)


# -- the runner


# -- old and new
