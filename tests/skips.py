"""Skipped tests: one a module where none can run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def keep_one_a_module(items: Iterable[Any], reason: str) -> tuple[list[Any], list[Any]]:
    """Return items to keep and to leave out: of a module's `cuda` tests one, marked as skipped.

    Its reason ends with the number of tests that it stands for. Other items are kept.
    """
    kept: list[Any] = []
    without: dict[str, list[Any]] = {}
    for item in items:
        if item.get_closest_marker("cuda") is None:
            kept.append(item)
            continue
        module = without.setdefault(item.nodeid.split("::")[0], [])
        if not module:
            kept.append(item)
        module.append(item)
    for module in without.values():
        mark = pytest.mark.skip(reason=f"{reason} [{len(module)} tests]")
        module[0].add_marker(mark, append=False)
    return kept, [item for module in without.values() for item in module[1:]]
