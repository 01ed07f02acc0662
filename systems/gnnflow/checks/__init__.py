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

CHECKS: dict[str, Check] = {
    **storage.CHECKS,
    **sampling.CHECKS,
    **placements.CHECKS,
    **traffic.CHECKS,
    **cache.CHECKS,
    **accuracy.CHECKS,
    **rounds.CHECKS,
    **distributed.CHECKS,
    **sizes.CHECKS,
    **build.CHECKS,
}
