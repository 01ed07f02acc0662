"""What a run will do: cells, their order, what is skipped, and how long it should take."""

from dgbench.harness.plan.plan import (
    GroupKey,
    Plan,
    PlannedCell,
    PlannedProcess,
    cell_hash,
    read_plan,
)
from dgbench.harness.plan.presets import PRESETS, PresetInfo

__all__ = [
    "PRESETS",
    "GroupKey",
    "Plan",
    "PlannedCell",
    "PlannedProcess",
    "PresetInfo",
    "cell_hash",
    "read_plan",
]
