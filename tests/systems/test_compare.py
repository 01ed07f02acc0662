"""Side of 1x of a ratio, and the larger of two ratios: intervals decide."""

import pytest

from dgbench.lab.compare import Ratio


@pytest.mark.parametrize(
    ("low", "high", "side"),
    [(1.1, 1.3, 1), (0.7, 0.9, -1), (0.9, 1.2, 0), (1.0, 1.2, 0), (None, None, 0)],
)
def test_a_side_needs_the_whole_interval(low, high, side):
    assert Ratio(1.0, low, high, 5).side == side


@pytest.mark.parametrize(
    ("one", "two", "order"),
    [((3, 4), (1, 2), 1), ((1, 2), (3, 4), -1), ((1, 3), (2, 4), 0), ((1, 2), (2, 3), 0)],
)
def test_two_ratios_differ_where_their_intervals_do_not_meet(one, two, order):
    first, second = (Ratio(sum(ends) / 2, *ends, 5) for ends in (one, two))
    assert first.against(second) == order
    assert second.against(first) == -order
    assert first.against(Ratio(10.0, None, None, 1)) == 0
