"""What GNNFlow's rows say of its claims: claim id -> check."""

from __future__ import annotations

import importlib
import importlib.util

from dgbench.systems.base import Check

_MODULES = (
    "storage", "sampling", "placements", "traffic", "cache", "accuracy", "rounds", "distributed",
    "sizes", "build",
)  # fmt: skip


def _found() -> dict[str, Check]:
    joined: dict[str, Check] = {}
    for name in _MODULES:
        full = f"{__name__}.{name}"
        if importlib.util.find_spec(full) is not None:
            joined |= importlib.import_module(full).CHECKS
    return joined


CHECKS: dict[str, Check] = _found()
