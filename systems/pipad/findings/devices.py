"""Findings on a device's utilisation (Table 2)."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from dgbench.lab.evidence import missing
from dgbench.lab.probes import probe
from dgbench.lab.table import rows_of
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.pipad.experiments.fig10 import RACE
from dgbench.systems.pipad.experiments.settings import BY_NAME, MODELS
from dgbench.systems.pipad.experiments.table2 import BUSY
from dgbench.systems.pipad.findings.common import MUCH, NEEDS_CUDA, Rows, resting

RESIDENT = probe("gpu_kernel_resident_percent")
"""Probe of NVML's utilisation."""
MODEL_WORDS = {"evolvegcn": "evolvegcn", "mpnn-lstm": "mpnn_lstm", "t-gcn": "tgcn_model"}


def busy(rows: Rows, **params: Any) -> dict[str, tuple[float, list[Any]]]:
    """Mean utilisation by dataset in percent, with its rows.

    From the experiment `table2`, whose steps run long enough for NVML; where that did not run,
    from the probes of Figure 10's processes, which hold start-up too.
    """
    found: dict[str, list[tuple[float, Any]]] = {}
    for one in BUSY(rows, device="cuda", **params):
        found.setdefault(one["dataset"], []).append((100 * one.value, one.row))
    if not found:
        for row in rows_of(RACE.timed(rows), device="cuda", **params):
            if (value := RESIDENT.read(row)) is not None:
                found.setdefault(row.params["dataset"], []).append((value, row))
    return {k: (fmean(v for v, _ in mine), [r for _, r in mine]) for k, mine in found.items()}


def utilisation(model: str, system: str) -> Check:
    """One line of Table 2, compared as the mean over shared datasets."""

    def check(claim: Claim, rows: Rows) -> Finding:
        found = busy(rows, model=model, system=system)
        if not found:
            on_gpu = [r for r in rows if r.experiment == "table2" and r.device == "cuda"]
            return missing(next((r.reason for r in on_gpu if r.reason), NEEDS_CUDA))
        mine = {BY_NAME[name].title: value for name, (value, _) in found.items()}
        return resting(
            [row for _, some in found.values() for row in some],
            measured=fmean(mine.values()),
            target=fmean(claim.value[title] for title in mine),
            reason="mean over " + ", ".join(f"{t} {v:.0f} %" for t, v in mine.items()),
        )

    return check


def busier(high: tuple[str, ...], low: tuple[str, ...], *, most: bool = False) -> Check:
    """The best of `high` above the best of `low` in all cells of (model, dataset), or in most."""

    def check(claim: Claim, rows: Rows) -> Finding:
        ahead = total = 0
        used: list[Any] = []
        for model in MODELS:
            tops, bottoms = ([busy(rows, model=model, system=s) for s in side]
                             for side in (high, low))  # fmt: skip
            for name in set.intersection(*(set(x) for x in (*tops, *bottoms))):
                total += 1
                ahead += max(x[name][0] for x in tops) > max(x[name][0] for x in bottoms)
                used += [row for x in (*tops, *bottoms) for row in x[name][1]]
        if not total:
            return missing(NEEDS_CUDA)
        return resting(
            used,
            measured=f"{ahead} of {total} cells",
            holds=2 * ahead > total if most else ahead == total,
            direction=2 * ahead > total,
            reason="most is read as more than half of the cells" if most else "",
        )

    return check


def small_low(claim: Claim, rows: Rows) -> Finding:
    """Mean utilisation on small graphs far below that on large ones."""
    found = busy(rows)
    means = {
        size: [v for name, (v, _) in found.items() if BY_NAME[name].small == (size == "small")]
        for size in ("small", "large")
    }
    if not all(means.values()):
        return missing(NEEDS_CUDA)
    small, large = fmean(means["small"]), fmean(means["large"])
    return resting(
        [row for _, some in found.values() for row in some],
        measured={"small": f"{small:.0f} %", "large": f"{large:.0f} %"},
        holds=MUCH * small <= large,
        direction=small < large,
        reason=f"far lower is read as at least {MUCH:g} times",
    )
