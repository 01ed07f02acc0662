"""The claims of PiPAD's ledger: what is looked at, and the verb that it is checked with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import exp, log
from statistics import fmean, median, quantiles
from typing import Any

from dgbench.lab.compare import Ratio
from dgbench.lab.evidence import ids, missing, strength, uses_twin
from dgbench.lab.paper import Evidence
from dgbench.lab.probes import probe
from dgbench.lab.table import Table, rows_of
from dgbench.lab.verbs import (
    ahead_on_most,
    average,
    best_everywhere,
    equals,
    extreme,
    factor,
    larger,
    mean,
    observed,
    spread,
)
from dgbench.runtime.statistics import paired_ratio
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.base.race import TOLERANCE
from dgbench.systems.pipad.experiments.fig3 import SM, shares
from dgbench.systems.pipad.experiments.fig4 import LAYERS, ComputeTimeSplit, splits
from dgbench.systems.pipad.experiments.fig9 import AT_DIM, AT_RATE, SIZES, Key, ratios
from dgbench.systems.pipad.experiments.fig9 import RACE as GAINS
from dgbench.systems.pipad.experiments.fig10 import METHODS, RACE
from dgbench.systems.pipad.experiments.fig11 import RACE as LAYER
from dgbench.systems.pipad.experiments.fig12 import CAP, balances, gains, gap
from dgbench.systems.pipad.experiments.memory import KNEES, LOADS
from dgbench.systems.pipad.experiments.preparation import PREPARED
from dgbench.systems.pipad.experiments.settings import (
    BY_NAME,
    EPOCHS,
    EXTRAS,
    FRAME,
    MODEL_TITLES,
    MODELS,
)
from dgbench.systems.pipad.experiments.space import is_between, partition_shares, words
from dgbench.systems.pipad.experiments.table1 import agrees, size
from dgbench.systems.pipad.experiments.table2 import BUSY
from dgbench.systems.pipad.experiments.tuning import TUNING
from dgbench.systems.pipad.tuner import OPTIONS

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


def of_splits(found: Sequence[ComputeTimeSplit], **fields: Any) -> Finding:
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


# Sizes and settings (5.1, Table 1)


def printed_sizes(dataset: str) -> Check:
    """Every printed number of one graph, at the printed number of digits."""

    def check(claim: Claim, rows: Rows) -> Finding:
        found = rows_of(rows, experiment="table1", dataset=dataset)
        if not found:
            return missing("the graph was not opened in this run")
        row = found[-1]
        same = agrees(row)
        differ = [key for key, value in same.items() if not value]
        reason = f"differs in {', '.join(differ)}" if differ else "equal at the printed digits"
        links = Table.of([row]).where("edges", of="snapshot").get()
        if differ and links is not None:
            printed = claim.value["expanded"]["E"]
            reason += f"; {links} distinct links, of which {printed} is {printed / links:g} times"
        measured = {key: size(row, key) for key in same}
        return resting([row], holds=not differ, measured=measured, reason=reason)

    return check


def feature_dims(claim: Claim, rows: Rows) -> Finding:
    """Feature lengths of every opened graph."""
    found = rows_of(rows, experiment="table1")
    if not found:
        return missing("no graph was opened in this run")
    measured: dict[str, set[tuple[int, int]]] = {}
    for row in found:
        kind = "small" if BY_NAME[row.params["dataset"]].small else "large"
        lengths = Table.of([row]).where("length").numbers("of")
        measured.setdefault(kind, set()).add((lengths["input"], lengths["hidden"]))
    wanted = {
        kind: {(claim.value[kind]["input"], claim.value[kind]["hidden"])} for kind in measured
    }
    shown = {k: " and ".join(f"{d} -> {h}" for d, h in sorted(v)) for k, v in measured.items()}
    return resting(found, holds=measured == wanted, measured=shown)


# Formats, change between snapshots, overlap (3.1, 4.1, 5.4)

NO_SPACE = "the experiment 'space' did not run"


def formula(name: str) -> Check:
    """A printed formula against the lengths of the arrays that are really stored."""

    def check(claim: Claim, rows: Rows) -> Finding:
        table = Table.of(rows, experiment="space")
        if not table:
            return missing(NO_SPACE)
        wrong = sum(table.where("mismatches", format=name).values)
        snapshots = sum(table.where("snapshots").values)
        return resting(
            table.rows,
            holds=wrong == 0,
            measured=claim.value if wrong == 0 else f"{wrong} of {snapshots} snapshots differ",
            reason=f"arrays of {snapshots} snapshots on {len(table.rows)} graphs",
        )

    return check


def slice_cap(claim: Claim, rows: Rows) -> Finding:
    """The longest slice met; the cap is an upper bound."""
    found = Table.of(rows, experiment="space").where("length", of="slice")
    if not found:
        return missing(NO_SPACE)
    longest = max(found.values)
    reason = "longest slice met; the cap is an upper bound"
    return resting(found.rows, holds=longest <= claim.value, measured=longest, reason=reason)


def between(claim: Claim, rows: Rows) -> Finding:
    """ "Normally": on more than half of the graphs."""
    found = rows_of(rows, experiment="space")
    if not found:
        return missing(NO_SPACE)
    inside = [row.params["dataset"] for row in found if is_between(row)]
    outside = sorted({row.params["dataset"] for row in found} - set(inside))
    return resting(
        found,
        holds=2 * len(inside) > len(found),
        measured=f"{len(inside)} of {len(found)} graphs",
        reason=f"not on {', '.join(outside)}" if outside else "",
    )


def youtube_space(claim: Claim, rows: Rows) -> Finding:
    """Words of sliced CSR over those of CSR on Youtube."""
    found = rows_of(rows, experiment="space", dataset="youtube")
    if not found:
        return missing(NO_SPACE)
    count = words(found[-1])
    share = count["sliced", None] / max(1, count["csr", None])
    measured = f"sliced CSR takes {100 * share:.3g} % of CSR's words"
    return resting(found, holds=share < 1, measured=measured)


def overlap_transfer(claim: Claim, rows: Rows) -> Finding:
    """Fewer words on every graph, for each partition size that the paper names."""
    found = rows_of(rows, experiment="space")
    if not found:
        return missing(NO_SPACE)
    shares = {
        f"{row.params['dataset']} at {size}": share
        for row in found
        for size, share in partition_shares(row).items()
    }
    bad = [place for place, share in shares.items() if share >= 1]
    low, high = min(shares.values()), max(shares.values())
    return resting(
        found,
        holds=not bad,
        measured=f"{100 * low:.3g} to {100 * high:.3g} % of whole snapshots",
        reason=f"more words on {', '.join(bad)}" if bad else f"{len(shares)} graphs and sizes",
    )


def slow_change(claim: Claim, rows: Rows) -> Finding:
    """Mean change of smoothed neighbours over the graphs, percent."""
    change = Table.of(rows, experiment="space").where("topology_change").by("of")
    if not change:
        return missing(NO_SPACE)
    smoothed, raw = (100 * fmean(change[of].values) for of in ("smoothed", "raw"))
    return resting(
        change["raw"].rows,
        measured=smoothed,
        target=float(claim.value),
        reason=f"raw snapshots change by {raw:.0f} %",
    )


# Memory access and lanes (3.2, 4.2, 5.3)

MODEL = "by the counting model"
SAVED = observed("memory", "saving")


def knee(found: Table, metric: str) -> int:
    """The longest row that one transaction (request) covers, floats."""
    loads = found.where(metric, method=None).numbers("dim")
    return max(dim for dim, count in loads.items() if count == 1)


def lengths(found: Table) -> list[int]:
    """Floats of a request by vector width."""
    return found.where("length", of="request").values


def example(found: Table, dim: int, method: str) -> dict[str, int]:
    """Loads of a worked example: bytes, requests and transactions."""
    mine = found.where(("requests", "transactions"), dim=dim, method=method)
    together = mine[0]["snapshots_together"]
    loads = {one.of.metric: one.value for one in mine}
    return {"bytes": 4 * dim * together, **loads}


def example_dim2(found: Table) -> dict[str, int]:
    """Two snapshots of two floats."""
    loads = found.where("transactions", dim=2).numbers("method")
    return {
        "bytes": found.where("memory", dim=2).one().value,
        "transactions": loads["pipad"],
        "gespmm_transactions": loads["gespmm"],
    }


def youtube_saves_most(claim: Claim, rows: Rows) -> Finding:
    """Youtube's share of transactions saved above all other graphs'."""
    saved = SAVED(rows, of="transactions")
    by_graph = saved.numbers("dataset")
    if "youtube" not in by_graph or len(saved) < 2:
        return missing("Youtube and another graph are needed; " + SAVED.missing.reason)
    best = max(by_graph, key=lambda name: by_graph[name])
    empty = Table.of(saved.rows).where("empty_share", dataset="youtube")[0].value
    return resting(
        saved.rows,
        holds=best == "youtube",
        measured=f"largest on {best}",
        reason=f"{100 * empty:.0f} % of Youtube's rows are empty",
    )


def lanes(claim: Claim, rows: Rows) -> Finding:
    """Active lanes at lengths 2 and 6 by the occupancy model, which stands for the profiler."""
    found = KNEES(rows).where("utilisation").by("method")
    if not found:
        return missing(KNEES.missing.reason)
    measured = {
        name: 100 * fmean(found[method].values)
        for name, method in (("pygt_g", "gespmm"), ("pipad", "pipad"))
    }
    return resting(
        found["pipad"].rows,
        "analogue",
        measured=measured,
        direction=measured["pipad"] > measured["pygt_g"],
        reason="lanes of the dense loads only; the profiler counts every instruction",
    )


# Preparation, reuse, partition memory (2.2, 3.3, 4.3, 4.4)


def reuse_is_exact(claim: Claim, rows: Rows) -> Finding:
    """Kept against fresh aggregation, largest relative gap."""
    found = PREPARED(rows).rows
    if not found:
        return PREPARED.missing
    worst = max(row.deviation["output"] for row in found)
    return resting(
        found,
        holds=worst <= TOLERANCE,
        measured=f"largest relative gap {worst:.1e}",
        reason=f"on {len(found)} graphs",
    )


def stride(claim: Claim, rows: Rows) -> Finding:
    """Snapshots that a frame slides."""
    found = PREPARED(rows).where("snapshots", of="stride")
    if not found:
        return PREPARED.missing
    return resting(found.rows, holds=set(found.values) == {claim.value}, measured=max(found.values))


def partition_memory(claim: Claim, rows: Rows) -> Finding:
    """Bytes of S snapshots at once over S times the bytes of one, largest over graphs."""
    found = PREPARED(rows).where("memory", of="aggregation")
    if not found:
        return PREPARED.missing
    shares = []
    for table in found.by("dataset", "round").values():
        counts = table.numbers("snapshots_together")
        shares += [nbytes / (s * counts[1]) for s, nbytes in counts.items() if s > 1]
    return resting(
        found.rows,
        "analogue",
        measured=f"{100 * max(shares):.3g} % of N times one snapshot",
        holds=max(shares) <= 1,
        reason="tensors of one aggregation are counted, not the peak of a device",
    )


def reordering(claim: Claim, rows: Rows) -> Finding:
    """Seconds of one reordering pass; only a graph of full size can answer."""
    found = Table.of(rows, experiment="preparation").where("operation_time", phase="reordering")
    if not found:
        return PREPARED.missing
    whole = [one for one in found if one.row.data.get("scale", 1.0) >= 1]
    slowest = max(whole or found, key=lambda one: one.value)
    random = slowest["part"] is not None
    if not random and len(whole) < len(found):
        seconds = f"{slowest.value:.2g} s a snapshot here"
        return missing(f"needs the graphs at full size: {seconds}")
    title = BY_NAME[slowest["dataset"]].title
    kind = f"a random graph of {title}'s size" if random else title
    return resting(
        [slowest.row],
        "measured",
        measured=f"{slowest.value:.2g} s",
        holds=1 <= slowest.value < 100,
        reason=f"one reverse Cuthill-McKee pass on {kind}",
    )


# The tuner and what a partition gains (4.3, 4.4, 5.2, Figure 9)

CAPACITY = 16 << 30
"""Bytes of the paper's device."""


def below(one: Ratio, other: Ratio) -> bool:
    """Whether a gain lies below another, outside both intervals where there are any."""
    if one.high is None or other.low is None:
        return one.value < other.value
    return one.high < other.low


def geometric_mean(found: Iterable[Ratio]) -> float:
    """Of the values of ratios."""
    return exp(fmean(log(ratio.value) for ratio in found))


def size_order(where: Mapping[str, Any], place: Callable[[Key], str]) -> Check:
    """8 > 4 > 2 on every graph; only differences outside both intervals break it at a point."""

    def check(claim: Claim, rows: Rows) -> Finding:
        names = (*GAINS.by, GAINS.contender)
        found = {
            key: ratio
            for key, ratio in ratios(rows).items()
            if where.items() <= dict(zip(names, key, strict=True)).items()
        }
        if not found:
            return missing(GAINS.none)
        places = list(dict.fromkeys(key[:3] for key in found))
        broken = []
        for one in places:
            gains_ = [found[(*one, size)] for size in SIZES]
            if any(below(more, fewer) for fewer, more in pairwise(gains_)):
                broken.append(f"{BY_NAME[one[0]].title}, {place((*one, 0))}")
        means = {s: geometric_mean(r for key, r in found.items() if key[3] == s) for s in SIZES}
        ordered = means[2] < means[4] < means[8]
        reason = f"{len(places) - len(broken)} of {len(places)} points keep the order"
        return GAINS.finding(
            rows,
            found.values(),
            measured={f"S_per {size}": f"{mean_:.2g}x" for size, mean_ in means.items()},
            holds=ordered and not broken,
            direction=ordered,
            reason=reason + (f"; not {'; '.join(broken)}" if broken else ""),
        )

    return check


def rises_with_rate(claim: Claim, rows: Rows) -> Finding:
    """Speed-up at the highest overlap rate over that at the lowest, by graph and S_per."""
    found = {key: ratio for key, ratio in ratios(rows).items() if key[2] == AT_DIM}
    rates = sorted({key[1] for key in found})
    if len(rates) < 2:
        return missing(GAINS.none)
    low, high = rates[0], rates[-1]
    pairs = {
        key: (found[(key[0], low, *key[2:])], found[key])
        for key in found
        if key[1] == high and (key[0], low, *key[2:]) in found
    }
    fallen = [
        f"{BY_NAME[key[0]].title}, S_per {key[3]}"
        for key, (least, most) in pairs.items()
        if below(most, least)
    ]
    change = exp(fmean(log(most.value / least.value) for least, most in pairs.values()))
    reason = f"from overlap rate {low:g} to {high:g}, mean of {len(pairs)} lines"
    return GAINS.finding(
        rows,
        [ratio for pair in pairs.values() for ratio in pair],
        measured=f"{change:.2g}x",
        holds=change > 1 and not fallen,
        direction=change > 1,
        reason=reason + (f"; falls on {'; '.join(fallen)}" if fallen else ""),
    )


def s_per_options(claim: Claim, rows: Rows) -> Finding:
    """The sizes that the tuner weighed; 1, where nothing is merged, is our fall-back.

    Where no tuner decided, the options whose partitions were really extracted.
    """
    frames = TUNING(rows).where("frames")
    decided = [one.row for one in frames.where(of="decided") if one.value]
    if decided:
        options = Table.of(decided).where("frames", of="option").by("snapshots_together")
        weighed = sorted(set(options) - {1})
        reason = "options that the tuner weighed, besides 1"
        holds = weighed == list(claim.value)
        return resting(decided, holds=holds, measured=weighed, reason=reason)
    found = PREPARED(rows).where("memory", of="aggregation")
    if not found:
        return PREPARED.missing
    built = sorted(set(found.by("snapshots_together")) - {1})
    return resting(found.rows, holds=built == list(claim.value), measured=built)


def sper_large(claim: Claim, rows: Rows) -> Finding:
    """The largest option that 16 GB hold for certain, at the printed number of vertices.

    What a frame keeps one snapshot at a time grows with the vertices; a partition of S takes at
    most S times that (4.4), which is the tuner's own bound. The T-GCN model has no partitions left
    to choose, so it says nothing.
    """
    found = [
        one.row
        for one in TUNING(rows).where("frames", of="decided")
        if one.value and not BY_NAME[one["dataset"]].small
    ]
    if not found:
        return missing("no large graph was trained with the tuner in this run")
    largest: dict[str, int] = {}
    for row in found:
        graph, table = BY_NAME[row.params["dataset"]], Table.of([row])
        kept, vertices = (table.where(*one).one().value for one in (("memory",), ("vertices",)))
        fits = [s for s in OPTIONS if s * kept * graph.printed["N"] / vertices <= CAPACITY]
        largest[f"{graph.title}, {MODEL_TITLES[row.params['model']]}"] = max(fits, default=0)
    return resting(
        found,
        "projected",
        measured=largest,
        holds=max(largest.values()) == claim.value,
        direction=max(largest.values()) < max(OPTIONS),
        reason="what autograd keeps of a frame, scaled to the printed vertices; 0 does not fit",
    )


# One graph layer (5.3, Figure 11)

FORWARD = AVERAGE + "; forward pass"
TWO_KINDS = replace(LAYER, none="a denser and another graph are needed; " + LAYER.none)


def dim_sensitivity(claim: Claim, rows: Rows) -> Finding:
    """Lowest speed-up over all lengths on the small graphs."""
    contest = LAYER("pygt", "pipad", small=True)
    found = dict(sorted(contest.each(rows).items()))
    key = min(found, key=lambda one: found[one].value, default=None)
    reason = f"lowest of {len(found)}: {BY_NAME[key[0]].title} at length {key[1]}" if key else ""
    target = claim.value["low"]
    return factor(found.get(key), contest, rows, {}, target=target, reason=reason)


def small_dim_better(claim: Claim, rows: Rows) -> Finding:
    """On every small graph the shortest length gains more than the longest."""
    found = dict(sorted(LAYER("pygt", "pipad", small=True).each(rows).items()))
    graphs: dict[str, list[int]] = {}
    for name, dim in found:
        graphs.setdefault(name, []).append(dim)
    pairs = {
        name: {dim: found[name, dim] for dim in (min(dims), max(dims))}
        for name, dims in graphs.items()
        if len(dims) > 1
    }
    if not pairs:
        return missing(LAYER.none)
    side = min(short.against(long) for short, long in (pair.values() for pair in pairs.values()))
    return LAYER.finding(
        rows,
        found.values(),
        measured={
            BY_NAME[name].title: ", ".join(f"{r.value:.2g}x at {dim}" for dim, r in pair.items())
            for name, pair in pairs.items()
        },
        holds=side > 0,
        undecided=side == 0,
    )


# Sliced CSR against CSR (5.4, Figure 12)

TOP = ("youtube", "evolvegcn")


def counted_balance(claim: Claim, rows: Rows) -> Finding:
    """Largest over mean work: slices against rows, on every graph."""
    found = Table.of(rows, experiment="memory").where("imbalance")
    if not found:
        return KNEES.missing
    each = {name: table.numbers("of") for name, table in found.by("dataset").items()}
    falls = [one["rows"] / max(1.0, one["slices"]) for one in each.values()]
    worse = [name for name, one in each.items() if one["slices"] > one["rows"]]
    return resting(
        found.rows,
        "analogue",
        measured=f"imbalance falls by {min(falls):.2g}x to {max(falls):.3g}x",
        holds=not worse,
        reason=f"not on {', '.join(worse)}" if worse else "largest over mean work of a warp",
    )


def load_balance(claim: Claim, rows: Rows) -> Finding:
    """Busiest worker over balanced time: nearer to 1 with slices on every graph, least on small.

    Where nothing was timed, the counted stand-in (largest over mean work) answers.
    """
    found = balances(rows)
    if not found:
        return counted_balance(claim, rows)
    better = {r.params["dataset"]: gap(r, None) / gap(r, CAP) for r in found}
    worse = sorted(BY_NAME[name].title for name, shrinks in better.items() if shrinks <= 1)
    by_size = {
        size_: [v for name, v in better.items() if BY_NAME[name].small == (size_ == "small")]
        for size_ in ("small", "large")
    }
    holds = not worse
    remark = f"not on {', '.join(worse)}" if worse else "actual over balanced time, CSR over slices"
    if all(by_size.values()):
        small, large = fmean(by_size["small"]), fmean(by_size["large"])
        holds = holds and small < large
        remark += f"; mean {small:.2g}x on small and {large:.2g}x on large graphs"
    return resting(
        found,
        strength(found),
        measured=f"the gap shrinks {min(better.values()):.2g}x to {max(better.values()):.2g}x",
        holds=holds,
        reason=remark,
    )


def speedup_trend(claim: Claim, rows: Rows) -> Finding:
    """EvolveGCN on Youtube gains most in training; its interval must lie above all others."""
    found = gains(rows)
    if TOP not in found or len(found) < 2:
        return missing("EvolveGCN on Youtube and another workload are needed")
    mine = found.pop(TOP)
    sides = [mine.against(ratio) for ratio in found.values()]
    remark = f"{mine.value:.2f}x; others " + ", ".join(
        f"{ratio.value:.2f}x ({BY_NAME[dataset].title}, {MODEL_TITLES[model]})"
        for (dataset, model), ratio in found.items()
    )
    used = {name for ratio in (mine, *found.values()) for name in ratio.rows}
    return resting(
        [row for row in rows if row.id in used],
        strength([row for row in rows if row.id in used]),
        measured=f"above {sum(side > 0 for side in sides)} of {len(sides)} other workloads",
        holds=min(sides) > 0,
        undecided=min(sides) == 0,
        reason=remark,
    )


_TABLE: dict[str, Check] = {
    "pipad-s1-topology-slow-change": slow_change,
    "pipad-s2-reordering-cost": reordering,
    "pipad-s32-access-granularity": equals(
        KNEES,
        lambda found: {
            "min_transaction_bytes": 4 * knee(found, "transactions"),
            "warp_request_bytes": 4 * knee(found, "requests"),
            "threads_per_warp": lengths(found)[0],
        },
        MODEL,
    ),
    "pipad-fig5-request-transaction-knees": equals(
        KNEES, lambda found: {f"{one}_knee": knee(found, one) for one in LOADS}, MODEL
    ),
    "pipad-s33-first-agg-param-free": reuse_is_exact,
    "pipad-s33-stride": stride,
    "pipad-s41-space-sliced-csr": formula("sliced"),
    "pipad-s41-space-csr": formula("csr"),
    "pipad-s41-space-coo": formula("coo"),
    "pipad-s41-slice-cap": slice_cap,
    "pipad-s41-space-between": between,
    "pipad-s42-coalesce-num": equals(
        KNEES, lambda found: found.where("slices", dim=None).one().value
    ),
    "pipad-s42-vector-widths": equals(KNEES, lengths),
    "pipad-s43-sper-options": s_per_options,
    "pipad-s44-memory-bound": partition_memory,
    "pipad-fig9a-sper-order-vs-or": size_order(
        {"dim": AT_DIM}, lambda key: f"overlap rate {key[1]:g}"
    ),
    "pipad-fig9b-sper-order-vs-dim": size_order(
        {"overlap_rate": AT_RATE}, lambda key: f"length {key[2]}"
    ),
    "pipad-s44-low-or-penalty": rises_with_rate,
    "pipad-s52-sper-large": sper_large,
    "pipad-s41-overlap-transfer-less": overlap_transfer,
    "pipad-tab1-flickr": printed_sizes("flickr"),
    "pipad-tab1-youtube": printed_sizes("youtube"),
    "pipad-tab1-automotive": printed_sizes("amz-automotive"),
    "pipad-tab1-epinions": printed_sizes("epinions"),
    "pipad-tab1-hepth": printed_sizes("hepth"),
    "pipad-tab1-pems08": printed_sizes("pems08"),
    "pipad-tab1-covid": printed_sizes("covid19-england"),
    "pipad-fig11a-gnn-speedup-pygt": mean(LAYER("pygt", "pipad", printed=True), FORWARD),
    "pipad-fig11a-gnn-speedup-pygtg": mean(LAYER("pygt-g", "pipad", printed=True), FORWARD),
    "pipad-fig11a-requests": average(
        observed("memory", "saving", of="requests"), "mean of {n} graphs " + MODEL, scale=100
    ),
    "pipad-fig11a-transactions": average(
        observed("memory", "saving", of="transactions"), "mean of {n} graphs " + MODEL, scale=100
    ),
    "pipad-fig11a-denser-better": larger(
        "denser",
        {
            "denser": TWO_KINDS("pygt", "pipad", printed=True, denser=True),
            "others": TWO_KINDS("pygt", "pipad", printed=True, denser=False),
        },
    ),
    "pipad-fig11a-youtube-memory": youtube_saves_most,
    "pipad-s53-example-dim2": equals(KNEES, example_dim2),
    "pipad-s53-example-dim16": equals(
        KNEES, lambda found: {who: example(found, 16, who) for who in ("gespmm", "pipad")}
    ),
    "pipad-s53-thread-util": lanes,
    "pipad-fig11b-dim-sensitivity": dim_sensitivity,
    "pipad-fig11b-small-dim-better": small_dim_better,
    "pipad-fig12-load-balance": load_balance,
    "pipad-fig12-speedup-trend": speedup_trend,
    "pipad-s54-youtube-space": youtube_space,
    "pipad-s51-feature-dims": feature_dims,
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


def _on_the_papers_graphs(check: Check) -> Check:
    """Keep rows of graphs that the paper does not use out of its claims."""
    others = {graph.name for graph in EXTRAS}
    return lambda claim, rows: check(
        claim, [row for row in rows if row.params.get("dataset") not in others]
    )


CHECKS = {name: _on_the_papers_graphs(check) for name, check in _TABLE.items()}
"""Claim -> its check. Every id of the ledger stands here exactly once."""
