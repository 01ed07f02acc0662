"""The claims of PiPAD's ledger: what is looked at, and the verb that it is checked with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from statistics import fmean, median, quantiles
from typing import Any

from dgbench.lab.evidence import ids, missing, strength, uses_twin
from dgbench.lab.paper import Evidence
from dgbench.lab.probes import probe
from dgbench.lab.table import Table, rows_of
from dgbench.lab.verbs import ahead_on_most, best_everywhere, extreme, larger, mean, spread
from dgbench.runtime.statistics import paired_ratio
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.pipad.experiments.fig3 import SM, shares
from dgbench.systems.pipad.experiments.fig4 import LAYERS, Split, splits
from dgbench.systems.pipad.experiments.fig10 import METHODS, RACE
from dgbench.systems.pipad.experiments.settings import (
    BY_NAME,
    EPOCHS,
    FRAME,
    MODEL_TITLES,
    MODELS,
)
from dgbench.systems.pipad.experiments.table2 import BUSY

Rows = Sequence[Any]
NEEDS_CUDA = "needs one CUDA device: nox -s reproduce -- pipad --device cuda"


def resting(rows: Rows, evidence: Evidence = "counted", **fields: Any) -> Finding:
    """A finding that rests on these rows; nothing of it was compared with a reference."""
    return Finding(evidence=evidence, twin=uses_twin(rows), rows=ids(rows), **fields)


def percent(shares: Mapping[str, float]) -> str:
    """Named shares in words."""
    return ", ".join(f"{name} {100 * value:.0f} %" for name, value in shares.items())


# Training (5.2, Figure 10)

ALIKE = 0.1
"""Spread of a step, relative to its median, up to which epochs count as similar."""
AVERAGE = "geometric mean of {n} graphs"


def on(key: tuple[Any, ...]) -> str:
    """A workload's graph in words."""
    return f"on {BY_NAME[key[0]].title}"


def small_gain_more(claim: Claim, rows: Rows) -> Finding:
    """PiPAD's half everywhere, PyGT-A's half only where there is a link to hide."""
    small, large, a_small, a_large = (
        RACE("pygt", who, small=s).pooled(rows)
        for who in ("pipad", "pygt-a")
        for s in (True, False)
    )
    if small is None or large is None:
        return missing("a small and a large graph are needed; " + RACE.none)
    order, used = small.against(large), [small, large]
    reason = "PyGT-A hides copies over a link, which a CPU does not have"
    linked = strength([r for r in rows if r.id in set(small.rows)]) == "measured"
    if linked and a_small is not None and a_large is not None:
        order, used = min(order, a_large.against(a_small)), [*used, a_small, a_large]
        reason = f"PyGT-A: {a_small.value:.2g}x small, {a_large.value:.2g}x large"
    return RACE.finding(
        rows,
        used,
        measured={"small": f"{small.value:.2g}x", "large": f"{large.value:.2g}x"},
        holds=order > 0,
        undecided=order == 0,
        reason=reason,
    )


def aggregation_removed(claim: Claim, rows: Rows) -> Finding:
    """No aggregation in steady steps of the T-GCN model, and the order that follows."""
    mine = rows_of(RACE.timed(rows), model="tgcn_model", system="pipad")
    over_r, r_to_g = (
        RACE("pygt-r", who, model="tgcn_model").pooled(rows) for who in ("pipad", "pygt-g")
    )
    if not mine or over_r is None or r_to_g is None:
        return missing(RACE.none)
    left = max(Table.of(mine).where("aggregations").values, default=0)
    alike = left == 0 and 0.8 < r_to_g.value < 1.25
    # The middle alone decides what is alike; which of the two is faster needs its interval.
    return RACE.finding(
        rows,
        [over_r, r_to_g],
        measured=f"{left} aggregations; PyGT-R over PyGT-G {r_to_g.value:.2g}x, "
        f"over PiPAD {over_r.value:.2g}x",
        holds=alike and over_r.side > 0,
        undecided=alike and over_r.side == 0,
        reason="alike is read as within 25 %",
    )


def topology_not_sent_again(claim: Claim, rows: Rows) -> Finding:
    """Adjacency bytes of steady steps of the T-GCN model in PiPAD."""
    found = Table.of(rows_of(RACE.timed(rows), system="pipad", model="tgcn_model"))
    if not found:
        return missing("no T-GCN model was trained in this run")
    sent = max(found.where("topology_sent").values, default=0)
    steps = sum(found.where("counted_steps").values)
    return resting(found.rows, holds=sent == claim.value, measured=sent, reason=f"in {steps} steps")


def preparation_cost(claim: Claim, rows: Rows) -> Finding:
    """Preparation of PiPAD in epochs of PyGT, the largest over workloads."""
    table = Table.of(RACE.timed(rows))
    where = ("dataset", "model", "round")
    epochs = table.where("epoch_time", system="pygt").by(*where)
    pairs = [
        (one, epochs[key][0])
        for one in table.where("preparation_time", system="pipad")
        if (key := one.key(where)) in epochs
    ]
    if not pairs:
        return missing(RACE.none)
    worst = max(one.value / epoch.value for one, epoch in pairs)
    used = [one.row for pair in pairs for one in pair]
    return resting(
        used,
        strength(used),
        measured=worst,
        holds=worst <= claim.value,
        reason="largest preparation over the workloads, in epochs of PyGT",
    )


def epochs_alike(claim: Claim, rows: Rows) -> Finding:
    """Spread of steady steps inside a process: interquartile range over median."""
    steps = Table.of(RACE.timed(rows)).where("step_time", system="pipad")
    used = Table(one for one in steps if len(one.of.samples) >= 4)
    if not used:
        return missing("no process of this run has enough steps")
    spreads = []
    for one in used:
        q1, _, q3 = quantiles(one.of.samples, n=4)
        spreads.append((q3 - q1) / median(one.of.samples))
    # The median process with its distribution-free interval: a borderline spread decides nothing.
    typical = paired_ratio([max(s, 1e-9) for s in spreads], [1.0] * len(spreads), method="sign")
    low, high = typical.low, typical.high
    shown = "" if low is None else f" [{100 * low:.1f}, {100 * high:.1f}]"
    return resting(
        used.rows,
        strength(used.rows),
        measured=f"{100 * typical.value:.1f} %{shown} interquartile range (median process)",
        holds=typical.value < ALIKE,
        undecided=low is None or low < ALIKE <= high,
        reason=f"alike is read as below {ALIKE:.0%}",
    )


def csc_transfer(claim: Claim, rows: Rows) -> Finding:
    """Topology bytes that a two-layer model moves in PyGT-G against PyGT-R, counted per step."""
    table = Table.of(RACE.timed(rows))
    found, ratios = [], []
    for dataset, model in product(("youtube", "flickr"), ("evolvegcn", "mpnn_lstm")):
        each = {}
        for system in ("pygt-r", "pygt-g"):
            where = {"dataset": dataset, "model": model, "system": system}
            sent = [one for one in table.where("topology_sent", **where) if one.value]
            if sent:
                row = sent[0].row
                each[system] = sent[0].value / Table.of([row]).where("counted_steps").one().value
                found.append(row)
        if len(each) == 2:
            ratios.append(each["pygt-g"] / each["pygt-r"])
    if not ratios:
        return missing("no two-layer model ran on a large graph in this run")
    return resting(
        found,
        holds=min(ratios) > 1,
        measured=f"{min(ratios):.2g}x to {max(ratios):.2g}x the bytes of PyGT-R",
        reason="CSR and CSC with int32 ids and values against an int64 coordinate list",
    )


def protocol(claim: Claim, rows: Rows) -> Finding:
    """Frames and epochs; the 200 epochs are computed from steady steps, so this is a projection."""
    found = Table.of(rows, experiment="fig10").where("end_to_end_time")
    if not found:
        return missing("no end-to-end time was measured in this run")
    measured = {"frame_size": FRAME, "epochs": EPOCHS}
    return Finding(
        measured=measured,
        holds=claim.value == measured,
        evidence="projected",
        rows=[found[0].row.id],
        reason="end-to-end time is preparation plus 200 times the median step times frames",
    )


# Where PyGT's time goes (3.1, 5.2, Figures 3 and 4)

NO_SPLIT = "no instrumented PyGT step of this run tells its layers"
MUCH_LARGER = 1.5
"""How many times another share one must be to count as far larger."""
CLOSE = 0.02
"""Shares nearer to each other than this decide nothing: phases are read once."""


def transfer_share(claim: Claim, rows: Rows) -> Finding:
    """Mean share of copies over models and graphs, percent."""
    found = shares(rows)
    if not found:
        return missing("no PyGT step of this run tells its copies")
    each = [fmean(one.values) for one in found.by("dataset", "model").values()]
    evidence = strength(found.rows)
    how = f"mean of {len(each)} models and graphs"
    if evidence == "analogue":
        how += "; copies in memory stand for PCIe, so only the bytes carry over"
    target = float(claim.value)
    return resting(found.rows, evidence, measured=100 * fmean(each), target=target, reason=how)


def sm_bound(claim: Claim, rows: Rows) -> Finding:
    """Mean share of active multiprocessors below the printed bound; only a GPU can say."""
    on_gpu = rows_of(rows, experiment="fig3", device="cuda")
    found = [row for row in on_gpu if SM.read(row) is not None]
    if not found:
        return missing(
            "this device's driver has no meter of active multiprocessors" if on_gpu else NEEDS_CUDA
        )
    each: dict[tuple[str, str], list[float]] = {}
    for row in found:
        each.setdefault((row.params["dataset"], row.params["model"]), []).append(SM.read(row))
    mean_ = fmean(map(fmean, each.values()))
    return resting(
        found,
        "measured",
        measured=mean_,
        holds=mean_ < claim.value,
        reason=f"mean of {len(each)} models and graphs over whole processes, start included",
    )


def of_splits(found: Sequence[Split], **fields: Any) -> Finding:
    """A finding that rests on splits of compute time."""
    on_gpu = all(split.device == "cuda" for split in found)
    return Finding(
        evidence="measured" if on_gpu else "analogue",
        twin=any(split.twin for split in found),
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
        holds=means["large"] >= MUCH_LARGER * means["small"],
        direction=means["large"] > means["small"] + CLOSE,
        reason=f"far larger is read as at least {MUCH_LARGER} times",
    )


def evolvegcn_rest_small(claim: Claim, rows: Rows) -> Finding:
    """Everything but the graph layers in EvolveGCN, below one half."""
    mine = [s for s in splits(rows).values() if s.model == "evolvegcn"]
    if not mine:
        return missing(NO_SPLIT)
    other = {BY_NAME[s.dataset].title: 1 - s.share("gnn") for s in mine}
    mean_ = fmean(other.values())
    return of_splits(
        mine,
        measured=f"{100 * mean_:.0f} % is not graph layers",
        holds=mean_ < 0.5,
        undecided=abs(mean_ - 0.5) < CLOSE,
        reason=f"small is read as below half; {percent(other)}",
    )


# Utilisation of a device (Table 2)

RESIDENT = probe("gpu_kernel_resident_percent")
"""What NVML calls utilisation."""
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
            "measured",
            measured=fmean(mine.values()),
            target=fmean(claim.value[title] for title in mine),
            reason="mean over " + ", ".join(f"{t} {v:.0f} %" for t, v in mine.items()),
        )

    return check


def busier(high: tuple[str, ...], low: tuple[str, ...]) -> Check:
    """The best of `high` above the best of `low` in most cells of (model, dataset)."""

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
            "measured",
            measured=f"{ahead} of {total} cells",
            holds=2 * ahead > total,
            reason="read as more than half of the cells",
        )

    return check


def small_low(claim: Claim, rows: Rows) -> Finding:
    """Mean utilisation on small graphs below that on large ones."""
    found = busy(rows)
    means = {
        size: [v for name, (v, _) in found.items() if BY_NAME[name].small == (size == "small")]
        for size in ("small", "large")
    }
    if not all(means.values()):
        return missing(NEEDS_CUDA)
    return resting(
        [row for _, some in found.values() for row in some],
        "measured",
        measured={size: f"{fmean(each):.0f} %" for size, each in means.items()},
        holds=fmean(means["small"]) < fmean(means["large"]),
    )


MOVED: dict[str, Check] = {
    "pipad-abs-speedup-range": spread(RACE("pygt-g", "pipad"), RACE("pygt", "pipad")),
    "pipad-s1-transfer-share-approx": transfer_share,
    "pipad-s1-gpu-util-bound": sm_bound,
    "pipad-fig3-transfer-share": transfer_share,
    "pipad-fig3-sm-util": sm_bound,
    "pipad-fig4-gnn-dominates-compute": gnn_dominates,
    "pipad-s43-preprocessing-epochs": preparation_cost,
    "pipad-s44-reuse-removes-topology-transfer": topology_not_sent_again,
    "pipad-s43-epochs-similar": epochs_alike,
    "pipad-fig10-speedup-range-pygt": spread(RACE("pygt", "pipad")),
    "pipad-fig10-avg-evolvegcn": mean(RACE("pygt", "pipad", model="evolvegcn"), AVERAGE),
    "pipad-fig10-avg-mpnn-lstm": mean(RACE("pygt", "pipad", model="mpnn_lstm"), AVERAGE),
    "pipad-fig10-avg-t-gcn": mean(RACE("pygt", "pipad", model="tgcn_model"), AVERAGE),
    "pipad-fig10-pipad-best": best_everywhere(RACE, "pipad", METHODS[:-1]),
    "pipad-fig10-pygtg-second": ahead_on_most(RACE, "pygt-g", METHODS[:3]),
    "pipad-fig10-small-gain-more": small_gain_more,
    "pipad-s52-csc-extra-transfer": csc_transfer,
    "pipad-s52-evolvegcn-vs-pygtg": mean(RACE("pygt-g", "pipad", model="evolvegcn")),
    "pipad-s52-model-order-vs-pygtg": larger(
        "evolvegcn", {m: RACE("pygt-g", "pipad", model=m) for m in MODELS}
    ),
    "pipad-s52-mpnn-lowest": extreme(
        RACE("pygt-g", "pipad", model="mpnn_lstm", small=False), min, "low", on
    ),
    "pipad-s52-mpnn-highest": extreme(
        RACE("pygt", "pipad", model="mpnn_lstm", small=True), max, "high", on
    ),
    "pipad-s52-mpnn-rnn-heavy": mpnn_rnn_heavy,
    "pipad-s52-evolvegcn-other-small": evolvegcn_rest_small,
    "pipad-s52-tgcn-all-agg-removed": aggregation_removed,
    **{
        f"pipad-tab2-util-{word}-{method}": utilisation(model, method)
        for word, model in MODEL_WORDS.items()
        for method in METHODS
    },
    "pipad-tab2-order-pipad-over-pygtg": busier(("pipad",), ("pygt-g",)),
    "pipad-tab2-order-ra-highest": busier(("pygt-a", "pygt-r"), ("pipad", "pygt-g")),
    "pipad-tab2-small-low": small_low,
    "pipad-s51-protocol": protocol,
}
