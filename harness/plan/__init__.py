"""Plan of a run: cells, their order, skipped ones, and estimated time."""

from dgbench.harness.plan.plan import (
    GroupKey,
    Plan,
    PlannedCell,
    PlannedProcess,
    cell_hash,
    read_plan,
)
from dgbench.harness.plan.presets import PRESETS, PresetInfo, RoundsRule

__all__ = [
    "PRESETS",
    "GroupKey",
    "Plan",
    "PlannedCell",
    "PlannedProcess",
    "PresetInfo",
    "RoundsRule",
    "cell_hash",
    "read_plan",
]
