"""What T-GCN's rows say of its claims: claim id -> check."""

from __future__ import annotations

from dgbench.systems.base import Check
from dgbench.systems.tgcn.checks import (
    ablation,
    accuracy,
    cited,
    draws,
    end_to_end,
    graphs,
    memory,
    partition,
    sampling,
    scaling,
    schedule,
    sizes,
    times,
)

PARTS = (
    sampling,
    draws,
    graphs,
    cited,
    partition,
    schedule,
    end_to_end,
    times,
    memory,
    ablation,
    accuracy,
    scaling,
    sizes,
)

CHECKS: dict[str, Check] = {key: check for part in PARTS for key, check in part.CHECKS.items()}
