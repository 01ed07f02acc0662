"""Checks of fields and arguments that many classes have in common.

Each raises an error that names the field, what it was and what is allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dgbench.runtime.errors import InvalidInputError, unknown_key


def check_choices(owner: Any, allowed: Mapping[str, Iterable[str]], *, of: str = "") -> None:
    """Raise UnknownKeyError for the first field of `owner` that is none of its words."""
    for name, words in allowed.items():
        if getattr(owner, name) not in (words := tuple(words)):
            raise unknown_key(name, getattr(owner, name), words, of=of)


def check_count(name: str, value: object, least: int = 1) -> None:
    """Raise InvalidInputError unless `value` is an integer from `least` on; True is none."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInputError(f"{name} is {value!r}; an integer >= {least} is allowed")


def check_counts(owner: Any, names: Iterable[str], *, optional: Iterable[str] = ()) -> None:
    """Check each field as `check_count` does; those that are `optional` may be None."""
    for name in names:
        check_count(name, getattr(owner, name))
    for name in optional:
        if getattr(owner, name) is not None:
            check_count(name, getattr(owner, name))
