"""Claims on where PyGT's time goes (3.1, 5.2, Figures 3 and 4)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from dgbench.lab.compare import select
from dgbench.systems.base import Claim, Finding
from dgbench.systems.pipad.checks.common import (
    NEEDS_CUDA,
    ids,
    missing_finding,
    strength,
    uses_twin,
)
from dgbench.systems.pipad.experiments.fig3 import SHARE, by_workload, sm_active, with_share
from dgbench.systems.pipad.experiments.fig4 import LAYERS, Split, splits
from dgbench.systems.pipad.experiments.settings import BY_NAME, MODEL_TITLES, MODELS

NO_SPLIT = "no instrumented PyGT step of this run tells its layers"
MUCH_LARGER = 1.5
"""How many times another share one must be to count as far larger."""
CLOSE = 0.02
"""Shares nearer to each other than this decide nothing: phases are read once."""


def transfer_share(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Mean share of copies over models and graphs, percent."""
    found = with_share(rows)
    if not found:
        return missing_finding("no PyGT step of this run tells its copies")
    shares = by_workload(found, lambda row: row.values[SHARE])
    evidence = strength(found)
    how = f"mean of {len(shares)} models and graphs"
    if evidence == "analogue":
        how += "; copies in memory stand for PCIe, so only the bytes carry over"
    return Finding(
        measured=fmean(shares.values()),
        target=float(claim.value),
        evidence=evidence,
        twin=uses_twin(found),
        rows=ids(found),
        reason=how,
    )


def sm_bound(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Mean share of active multiprocessors below the printed bound; only a GPU can say."""
    found = [r for r in select(rows, experiment="fig3", device="cuda") if sm_active(r) is not None]
    if not found:
        on_gpu = select(rows, experiment="fig3", device="cuda")
        return missing_finding(
            "this device's driver has no meter of active multiprocessors" if on_gpu else NEEDS_CUDA
        )
    shares = by_workload(found, sm_active)
    mean = fmean(shares.values())
    return Finding(
        measured=mean,
        holds=mean < claim.value,
        evidence="measured",
        twin=uses_twin(found),
        rows=ids(found),
        reason=f"mean of {len(shares)} models and graphs over whole processes, start included",
    )


def _finding(found: Sequence[Split], **fields: Any) -> Finding:
    on_gpu = all(split.device == "cuda" for split in found)
    return Finding(
        evidence="measured" if on_gpu else "analogue",
        twin=any(split.twin for split in found),
        rows=list(dict.fromkeys(row for split in found for row in split.rows)),
        **fields,
    )


def _percent(shares: dict[str, float]) -> str:
    return ", ".join(f"{name} {100 * value:.0f} %" for name, value in shares.items())


def gnn_dominates(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Graph layers the largest part in every model, shares averaged over its graphs."""
    found = splits(rows)
    if not found:
        return missing_finding(NO_SPLIT)
    shown, leads = {}, {}
    for model in MODELS:
        mine = [s for s in found.values() if s.model == model]
        if not mine:
            return missing_finding(f"no split of {MODEL_TITLES[model]}; all models are needed")
        shares = {part: fmean(s.share(part) for s in mine) for part in (*LAYERS, "rest")}
        shown[MODEL_TITLES[model]] = _percent(shares)
        leads[MODEL_TITLES[model]] = shares["gnn"] - max(shares["rnn"], shares["rest"])
    behind = [model for model, lead in leads.items() if lead < 0]
    return _finding(
        list(found.values()),
        measured=shown,
        holds=not behind,
        undecided=-CLOSE < min(leads.values()) < CLOSE,
        reason=f"not in {', '.join(behind)}" if behind else "shares averaged over graphs",
    )


def mpnn_rnn_heavy(claim: Claim, rows: Sequence[Any]) -> Finding:
    """The LSTMs' share of MPNN-LSTM on large graphs against small ones."""
    mine = [s for s in splits(rows).values() if s.model == "mpnn_lstm"]
    large = [s for s in mine if not BY_NAME[s.dataset].small]
    small = [s for s in mine if BY_NAME[s.dataset].small]
    if not large or not small:
        return missing_finding("a large and a small graph are needed; " + NO_SPLIT)
    shares = {k: fmean(s.share("rnn") for s in g) for k, g in (("large", large), ("small", small))}
    return _finding(
        mine,
        measured=_percent(shares),
        holds=shares["large"] >= MUCH_LARGER * shares["small"],
        direction=shares["large"] > shares["small"] + CLOSE,
        reason=f"far larger is read as at least {MUCH_LARGER} times",
    )


def evolvegcn_rest_small(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Everything but the graph layers in EvolveGCN, below one half."""
    mine = [s for s in splits(rows).values() if s.model == "evolvegcn"]
    if not mine:
        return missing_finding(NO_SPLIT)
    other = {BY_NAME[s.dataset].title: 1 - s.share("gnn") for s in mine}
    mean = fmean(other.values())
    return _finding(
        mine,
        measured=f"{100 * mean:.0f} % is not graph layers",
        holds=mean < 0.5,
        undecided=abs(mean - 0.5) < CLOSE,
        reason=f"small is read as below half; {_percent(other)}",
    )
