"""Checks of fields name the field, its value and what is allowed."""

from types import SimpleNamespace

import pytest

from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.runtime.fields import check_choices, check_count, check_counts


def test_a_count_is_an_integer_from_its_least_on():
    for value in (0, -1, 1.0, True, None, "3"):
        with pytest.raises(InvalidInputError, match=r"size is .*>= 1"):
            check_count("size", value)
    check_count("size", 1)
    check_count("size", 0, 0)


def test_optional_counts_may_be_none():
    check_counts(SimpleNamespace(size=2, bins=None), ("size",), optional=("bins",))
    for lacking in (SimpleNamespace(size=None, bins=3), SimpleNamespace(size=2, bins=0)):
        with pytest.raises(InvalidInputError):
            check_counts(lacking, ("size",), optional=("bins",))


def test_a_word_is_one_of_those_allowed_and_the_nearest_is_named():
    check_choices(SimpleNamespace(norm="sym"), {"norm": ("sym", "mean")})
    with pytest.raises(UnknownKeyError) as error:
        check_choices(SimpleNamespace(norm="men"), {"norm": ("sym", "mean")}, of="Settings")
    assert "mean" in error.value.hint
