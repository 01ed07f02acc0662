"""Time to the quality of a reference: band, order of epochs, trainings that never get there."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgbench.harness.store import Row
from dgbench.lab.quality import MIN_SEEDS
from dgbench.lab.table import Table, observation
from dgbench.lab.time_to_quality import PROCESSOR, Curve, curves_by_seed, target_of, time_to_quality

SEEDS = range(1, MIN_SEEDS + 1)
numbers = st.lists(st.tuples(st.floats(0.1, 10), st.floats(-1, 1)), min_size=1, max_size=8)


@given(numbers, st.floats(-1, 1))
def test_the_time_is_that_of_the_first_epoch_which_is_good_enough(epochs, target):
    curve = Curve(*(tuple(column) for column in zip(*epochs, strict=True)))
    found = curve.seconds_to(target)
    total = 0.0
    for seconds, score in epochs:
        total += seconds
        if score >= target:
            assert found == pytest.approx(total)
            return
    assert found is None
    mirrored = Curve(curve.seconds, tuple(-s for s in curve.scores), -1)
    assert mirrored.seconds_to(-target) is None
    assert mirrored.best == -curve.best


def test_the_target_is_the_worse_end_of_the_band():
    spread = {seed: Curve((1.0,), (0.5 + 0.01 * seed,)) for seed in SEEDS}
    assert target_of(spread) == 0.51
    errors = {seed: Curve((1.0,), curve.scores, -1) for seed, curve in spread.items()}
    assert target_of(errors) == 0.55
    own = time_to_quality(spread, spread)
    assert own.reached == 5
    few = dict(list(spread.items())[1:])
    assert target_of(few) is None
    assert time_to_quality(spread, few) is None
    assert time_to_quality(few, spread) is None
    broken = few | {1: Curve((1.0,), (math.nan,))}
    assert target_of(broken) is None


def test_curves_are_read_by_seed_and_epoch():
    seen = [
        observation("epoch_time", 2.0, epoch=1, clock=PROCESSOR),
        observation("epoch_time", 1.0, epoch=0, clock=PROCESSOR),
        observation("mrr", 0.2, epoch=1, of="validation"), observation("mrr", 0.9),
        observation("mrr", 0.1, epoch=0, of="validation"),
    ]  # fmt: skip
    row = Row(id="a", params={"seed": 3}, experiment="quality", paper="toy", observed=seen)
    assert curves_by_seed(Table.of([row]), "mrr") == {3: Curve((1.0, 2.0), (0.1, 0.2))}
    row = Row(
        id="a", params={"seed": 3}, experiment="quality", observed=seen[:3]
    )  # an epoch without a score
    assert curves_by_seed(Table.of([row]), "mrr") == {}
