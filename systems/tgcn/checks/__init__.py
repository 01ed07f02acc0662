"""What T-GCN's rows say of its claims: claim id -> check."""

from __future__ import annotations

from dgbench.systems.base import Check
from dgbench.systems.tgcn.checks import cited, draws, graphs, partition, sampling, schedule

PARTS = (sampling, draws, partition, schedule, graphs, cited)

CHECKS: dict[str, Check] = {key: check for part in PARTS for key, check in part.CHECKS.items()}
