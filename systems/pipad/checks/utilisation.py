"""Claims on GPU utilisation (Table 2): they need a CUDA device."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from dgbench.lab.compare import select
from dgbench.lab.probes import probe
from dgbench.systems.base import Claim, Finding
from dgbench.systems.pipad.checks.common import NEEDS_CUDA, ids, missing_finding, uses_twin
from dgbench.systems.pipad.experiments.settings import BY_NAME
from dgbench.systems.pipad.experiments.table2 import BUSY

RESIDENT = probe("gpu_kernel_resident_percent")
"""What NVML calls utilisation."""
MODEL_WORDS = {"evolvegcn": "evolvegcn", "mpnn-lstm": "mpnn_lstm", "t-gcn": "tgcn_model"}


def _busy(rows: Sequence[Any], **params: Any) -> dict[str, tuple[float, list[Any]]]:
    """Mean utilisation by dataset, with its rows.

    From the experiment `table2`, whose steps run long enough for NVML; where that did not run,
    from the probes of Figure 10's processes, which hold start-up too.
    """
    found: dict[str, list[Any]] = {}
    for row in select(rows, experiment="table2", device="cuda", **params):
        if BUSY in row.values:
            found.setdefault(row.params["dataset"], []).append((row.values[BUSY], row))
    if not found:
        for row in select(rows, experiment="fig10", device="cuda", **params):
            value = RESIDENT.read(row)
            if value is not None and not row.params.get("check"):
                found.setdefault(row.params["dataset"], []).append((value, row))
    return {k: (fmean(v for v, _ in mine), [r for _, r in mine]) for k, mine in found.items()}


def table2(claim: Claim, rows: Sequence[Any]) -> Finding:
    """One line of Table 2: utilisation by dataset; compared as the mean over shared datasets."""
    rest = claim.id.removeprefix("pipad-tab2-util-")
    model = next(m for m in MODEL_WORDS if rest.startswith(m))
    system = rest.removeprefix(model + "-")
    found = _busy(rows, model=MODEL_WORDS[model], system=system)
    if not found:
        on_gpu = [r for r in rows if r.experiment == "table2" and r.device == "cuda"]
        return missing_finding(next((r.reason for r in on_gpu if r.reason), NEEDS_CUDA))
    mine = {BY_NAME[name].title: value for name, (value, _) in found.items()}
    used = [row for _, some in found.values() for row in some]
    return Finding(
        measured=fmean(mine.values()),
        target=fmean(claim.value[title] for title in mine),
        evidence="measured",
        twin=uses_twin(used),
        rows=ids(used),
        reason="mean over " + ", ".join(f"{t} {v:.0f} %" for t, v in mine.items()),
    )


def pipad_over_g(claim: Claim, rows: Sequence[Any]) -> Finding:
    return _order(rows, ("pipad",), ("pygt-g",))


def ra_highest(claim: Claim, rows: Sequence[Any]) -> Finding:
    return _order(rows, ("pygt-a", "pygt-r"), ("pipad", "pygt-g"))


def _order(rows: Sequence[Any], high: tuple[str, ...], low: tuple[str, ...]) -> Finding:
    """Share of (model, dataset) cells in which the best of `high` is above the best of `low`."""
    ahead = total = 0
    used: list[Any] = []
    for model in MODEL_WORDS.values():
        tops = [_busy(rows, model=model, system=s) for s in high]
        bottoms = [_busy(rows, model=model, system=s) for s in low]
        shared = set.intersection(*(set(x) for x in (*tops, *bottoms)))
        for name in shared:
            total += 1
            ahead += max(x[name][0] for x in tops) > max(x[name][0] for x in bottoms)
            used += [row for x in (*tops, *bottoms) for row in x[name][1]]
    if not total:
        return missing_finding(NEEDS_CUDA)
    return Finding(
        measured=f"{ahead} of {total} cells",
        holds=2 * ahead > total,
        evidence="measured",
        twin=uses_twin(used),
        rows=ids(used),
        reason="read as more than half of the cells",
    )


def small_low(claim: Claim, rows: Sequence[Any]) -> Finding:
    found = _busy(rows)
    small = [v for name, (v, _) in found.items() if BY_NAME[name].small]
    large = [v for name, (v, _) in found.items() if not BY_NAME[name].small]
    if not small or not large:
        return missing_finding(NEEDS_CUDA)
    used = [row for _, some in found.values() for row in some]
    return Finding(
        measured={"small": f"{fmean(small):.0f} %", "large": f"{fmean(large):.0f} %"},
        holds=fmean(small) < fmean(large),
        evidence="measured",
        twin=uses_twin(used),
        rows=ids(used),
    )
