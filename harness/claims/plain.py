"""Claims with their verdicts as JSON values. The keys are a public format."""

from __future__ import annotations

import math
from typing import Any


def as_plain(claim: Any, verdict: Any) -> dict[str, Any]:
    """One claim and its verdict; `row` is the first row it rests on, or None."""
    return {
        "id": claim.id,
        "verdict": verdict.verdict,
        "measured": plain(verdict.measured),
        "low": plain(verdict.low),
        "high": plain(verdict.high),
        "paper": plain(claim.value),
        "unit": claim.unit,
        "reason": verdict.reason,
        "row": verdict.row,
        "rows": list(verdict.rows),
        "strength": verdict.strength,
        "agreement": verdict.agreement,
        "lacks": list(verdict.lacks),
        "source": verdict.source,
        "device": verdict.device,
        "data": verdict.data,
        "tolerance": verdict.tolerance,
        "deviation": plain(verdict.deviation),
        "readings": dict(verdict.readings),
        "gpu_idle": verdict.gpu_idle,
        "void": verdict.void,
        "glyph": verdict.glyph,
        "where": claim.where,
        "statement": claim.statement,
        "hardware": claim.hardware,
    }


def plain(value: Any) -> Any:
    """JSON values only: not-a-number and infinities become None, other objects words."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if hasattr(value, "item"):
        return plain(value.item())
    return str(value)
