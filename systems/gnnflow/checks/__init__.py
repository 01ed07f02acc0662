"""What GNNFlow's rows say of its claims: claim id -> check."""

from __future__ import annotations

from dgbench.systems.base import Check
from dgbench.systems.gnnflow.checks import (
    accuracy,
    build,
    cache,
    distributed,
    placements,
    rounds,
    sampling,
    sizes,
    storage,
    traffic,
)

PARTS = (
    storage,
    sampling,
    placements,
    traffic,
    cache,
    accuracy,
    rounds,
    distributed,
    sizes,
    build,
)

CHECKS: dict[str, Check] = {key: check for part in PARTS for key, check in part.CHECKS.items()}
