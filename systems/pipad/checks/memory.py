"""Claims on memory access, lanes and balance: counted from the topology (3.2, 4.2, 5.3, 5.4)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from dgbench.lab.compare import select
from dgbench.systems.base import Claim, Finding
from dgbench.systems.pipad.checks.common import (
    counted,
    ids,
    missing_finding,
    uses_twin,
)
from dgbench.systems.pipad.experiments.memory import KNEE_LENGTHS

NONE = "the experiment 'memory' did not run"


def _knees(rows: Sequence[Any]) -> list[Any]:
    return select(rows, experiment="memory", part="knees")


def _graphs(rows: Sequence[Any]) -> list[Any]:
    return [r for r in select(rows, experiment="memory") if "dataset" in r.params]


def granularity(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Bytes of a transaction and of a request, from the longest rows that one of each covers."""
    found = _knees(rows)
    if not found:
        return missing_finding(NONE)
    c = found[-1].counters
    one_transaction = max(d for d in KNEE_LENGTHS if c[f"transactions_{d}"] == 1)
    one_request = max(d for d in KNEE_LENGTHS if c[f"requests_{d}"] == 1)
    measured = {
        "min_transaction_bytes": 4 * one_transaction,
        "warp_request_bytes": 4 * one_request,
        "threads_per_warp": c["floats_per_request_v1"],
    }
    return counted(
        found, holds=measured == claim.value, measured=measured, reason="by the counting model"
    )


def knees(claim: Claim, rows: Sequence[Any]) -> Finding:
    """The last length before each curve leaves its floor."""
    found = _knees(rows)
    if not found:
        return missing_finding(NONE)
    c = found[-1].counters
    measured = {
        f"{key}_knee": max(d for d in KNEE_LENGTHS if c[f"{key}_{d}"] == 1)
        for key in ("transactions", "requests")
    }
    return counted(
        found, holds=measured == claim.value, measured=measured, reason="by the counting model"
    )


def example_dim2(claim: Claim, rows: Sequence[Any]) -> Finding:
    found = _knees(rows)
    if not found:
        return missing_finding(NONE)
    c = found[-1].counters
    measured = {
        "bytes": c["dim2_bytes"],
        "transactions": c["dim2_pipad_transactions"],
        "gespmm_transactions": c["dim2_gespmm_transactions"],
    }
    return counted(found, holds=measured == claim.value, measured=measured)


def example_dim16(claim: Claim, rows: Sequence[Any]) -> Finding:
    found = _knees(rows)
    if not found:
        return missing_finding(NONE)
    c = found[-1].counters
    measured = {
        "gespmm": {
            "bytes": 16 * 4,
            "requests": c["dim16_gespmm_requests"],
            "transactions": c["dim16_gespmm_transactions"],
        },
        "pipad": {
            "bytes": 4 * 16 * 4,
            "requests": c["dim16_pipad_requests"],
            "transactions": c["dim16_pipad_transactions"],
        },
    }
    return counted(found, holds=measured == claim.value, measured=measured)


def coalesce_num(claim: Claim, rows: Sequence[Any]) -> Finding:
    found = _knees(rows)
    if not found:
        return missing_finding(NONE)
    most = found[-1].counters["most_coalesced_slices"]
    return counted(found, holds=most == claim.value, measured=most)


def vector_widths(claim: Claim, rows: Sequence[Any]) -> Finding:
    found = _knees(rows)
    if not found:
        return missing_finding(NONE)
    c = found[-1].counters
    measured = [c[f"floats_per_request_v{v}"] for v in (1, 2, 4)]
    return counted(found, holds=measured == list(claim.value), measured=measured)


def saved(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Mean saving over the graphs, percent."""
    key = f"saved_{claim.id.rpartition('-')[2]}_percent"
    found = _graphs(rows)
    if not found:
        return missing_finding(NONE)
    mean = fmean(row.values[key] for row in found)
    return counted(
        found,
        holds=None,
        measured=mean,
        target=float(claim.value),
        direction=mean > 0,
        reason=f"mean of {len(found)} graphs by the counting model",
    )


def youtube_saves_most(claim: Claim, rows: Sequence[Any]) -> Finding:
    found = _graphs(rows)
    if "youtube" not in {row.params["dataset"] for row in found} or len(found) < 2:
        return missing_finding("Youtube and another graph are needed; " + NONE)
    best = max(found, key=lambda row: row.values["saved_transactions_percent"])
    mine = next(row for row in found if row.params["dataset"] == "youtube")
    return counted(
        found,
        holds=best is mine,
        measured=f"largest on {best.params['dataset']}",
        reason=f"{100 * mine.values['empty_row_share']:.0f} % of Youtube's rows are empty",
    )


def lanes(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Active lanes at lengths 2 and 6 by the occupancy model, which stands for the profiler."""
    found = _knees(rows)
    if not found:
        return missing_finding(NONE)
    v = found[-1].values
    measured = {
        "pygt_g": 100 * fmean(v[f"lanes_gespmm_{d}"] for d in (2, 6)),
        "pipad": 100 * fmean(v[f"lanes_pipad_{d}"] for d in (2, 6)),
    }
    return Finding(
        measured=measured,
        direction=measured["pipad"] > measured["pygt_g"],
        evidence="analogue",
        rows=ids(found),
        reason="lanes of the dense loads only; the profiler counts every instruction",
    )


def balance(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Largest over mean work: slices against rows, on every graph."""
    found = _graphs(rows)
    if not found:
        return missing_finding(NONE)
    gains = [r.values["imbalance_rows"] / max(1.0, r.values["imbalance_slices"]) for r in found]
    worse = [
        r.params["dataset"]
        for r in found
        if r.values["imbalance_slices"] > r.values["imbalance_rows"]
    ]
    return Finding(
        measured=f"imbalance falls by {min(gains):.2g}x to {max(gains):.3g}x",
        holds=not worse,
        evidence="analogue",
        twin=uses_twin(found),
        rows=ids(found),
        reason=f"not on {', '.join(worse)}" if worse else "largest over mean work of a warp",
    )
