"""Findings on where PyGT's time goes (sections 3.1, 5.2, Figures 3 and 4)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from dgbench.lab.evidence import missing, on_gpu
from dgbench.lab.table import rows_of
from dgbench.lab.verbs import readings
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.pipad.experiments.fig3 import SM, shares
from dgbench.systems.pipad.experiments.fig4 import LAYERS, ComputeTimeSplit, splits
from dgbench.systems.pipad.experiments.settings import BY_NAME, MODEL_TITLES, MODELS
from dgbench.systems.pipad.findings.common import MUCH, NEEDS_CUDA, Rows, percent, resting

NO_SPLIT = "no instrumented PyGT step of this run tells its layers"
CLOSE = 0.02
"""Shares nearer to each other than this decide nothing: phases are read once."""


def transfer_share(claim: Claim, rows: Rows) -> Finding:
    """Mean share of copies over models and graphs, percent."""
    found = shares(rows)
    if not found:
        return missing("no PyGT step of this run tells its copies")
    each = [fmean(one.values) for one in found.by("dataset", "model").values()]
    copied = "" if on_gpu(found.rows) else "copies in memory in place of PCIe"
    return resting(
        found.rows,
        measured=100 * fmean(each),
        target=float(claim.value),
        reason=f"mean of {len(each)} models and graphs",
        proxy=copied,
    )


def sm_bound(claim: Claim, rows: Rows) -> Finding:
    """Mean share of active multiprocessors below the printed bound; only a GPU can say."""
    on_device = rows_of(rows, experiment="fig3", device="cuda")
    found = [row for row in on_device if SM.read(row) is not None]
    if not found:
        return missing(
            "this device's driver has no meter of active multiprocessors"
            if on_device
            else NEEDS_CUDA
        )
    each: dict[tuple[str, str], list[float]] = {}
    for row in found:
        each.setdefault((row.params["dataset"], row.params["model"]), []).append(SM.read(row))
    mean_ = fmean(map(fmean, each.values()))
    return resting(
        found,
        measured=mean_,
        reason=f"mean of {len(each)} models and graphs over whole processes, start included",
    )


def of_splits(found: Sequence[ComputeTimeSplit], **fields: Any) -> Finding:
    """A finding that rests on splits of compute time."""
    return Finding(
        rows=list(dict.fromkeys(row for split in found for row in split.rows)),
        **fields,
    )


def gnn_dominates(claim: Claim, rows: Rows) -> Finding:
    """Graph layers the largest part in every model, shares averaged over its graphs."""
    found = splits(rows)
    if not found:
        return missing(NO_SPLIT)
    shown, leads = {}, {}
    for model in MODELS:
        mine = [s for s in found.values() if s.model == model]
        if not mine:
            return missing(f"no split of {MODEL_TITLES[model]}; all models are needed")
        parts = {part: fmean(s.share(part) for s in mine) for part in (*LAYERS, "rest")}
        shown[MODEL_TITLES[model]] = percent(parts)
        leads[MODEL_TITLES[model]] = parts["gnn"] - max(parts["rnn"], parts["rest"])
    behind = [model for model, lead in leads.items() if lead < 0]
    return of_splits(
        list(found.values()),
        measured=shown,
        holds=not behind,
        undecided=-CLOSE < min(leads.values()) < CLOSE,
        reason=f"not in {', '.join(behind)}" if behind else "shares averaged over graphs",
    )


def mpnn_rnn_heavy(claim: Claim, rows: Rows) -> Finding:
    """The LSTMs' share of MPNN-LSTM on large graphs against small ones."""
    mine = [s for s in splits(rows).values() if s.model == "mpnn_lstm"]
    by_size = {
        size: [s.share("rnn") for s in mine if BY_NAME[s.dataset].small == (size == "small")]
        for size in ("large", "small")
    }
    if not all(by_size.values()):
        return missing("a large and a small graph are needed; " + NO_SPLIT)
    means = {size: fmean(each) for size, each in by_size.items()}
    return of_splits(
        mine,
        measured=percent(means),
        holds=means["large"] >= MUCH * means["small"],
        direction=means["large"] > means["small"],
        undecided=abs(means["large"] - means["small"]) < CLOSE,
        reason=f"far larger is read as at least {MUCH:g} times",
    )


def rest_below(most: float) -> Check:
    """Everything but the graph layers in EvolveGCN below a share, on every graph."""

    def check(claim: Claim, rows: Rows) -> Finding:
        mine = [s for s in splits(rows).values() if s.model == "evolvegcn"]
        if not mine:
            return missing(NO_SPLIT)
        other = {BY_NAME[s.dataset].title: 1 - s.share("gnn") for s in mine}
        largest = max(other.values())
        return of_splits(
            mine,
            measured=f"up to {100 * largest:.0f} % is not graph layers",
            holds=largest < most,
            undecided=abs(largest - most) < CLOSE,
            reason=percent(other),
        )

    return check


evolvegcn_rest_small = readings(
    "'small' is not told",
    **{"below one half": rest_below(0.5), "below a quarter": rest_below(0.25)},
)
"""Everything but the graph layers in EvolveGCN takes a small part."""
