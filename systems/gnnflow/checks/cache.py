"""Claims on the feature cache (2.2, 4.3, 6.2, Figure 14)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dgbench.lab.evidence import finding, from_ratio, missing, some
from dgbench.lab.table import rows_of
from dgbench.systems.base import Claim, Finding
from dgbench.systems.gnnflow.experiments import fig14
from dgbench.systems.gnnflow.experiments.cache_ablation import START, TITLES, average, speedup
from dgbench.systems.gnnflow.experiments.cache_play import GPUS, KINDS
from dgbench.systems.gnnflow.experiments.fig14 import SIZES, hit_rate, init_shares
from dgbench.systems.gnnflow.experiments.settings import BY_NAME, MODEL_TITLES

Rows = Sequence[Any]

NEAR_ZERO: Final = 10.0
"""A hit rate below this, in percent, is nearly zero."""
POINTS: Final = 10.0
"""Tolerance of a share of time against a printed one, in points."""
FEWEST: Final = 3
"""Workloads below which a mean over them says nothing of what is best on average."""
NETFLIX: Final = {"dataset": "netflix", "model": "tgn"}


def _title(row: Any) -> str:
    return f"{MODEL_TITLES[row.params['model']]} on {BY_NAME[row.params['dataset']].title}"


def _hits(rows: Rows, **params: Any) -> list[Any]:
    return rows_of(rows, experiment="fig14", part="hits", **params)


def fetch_gain(claim: Claim, rows: Rows) -> Finding:
    """Time of a round's fetching with GNNLab's cache over that with GNNFlow's, on Netflix."""
    mine = rows_of(rows, experiment="fig14", part="times", **NETFLIX)
    if not mine:
        return missing("the experiment 'fig14' did not time Netflix")
    gain = fig14.speedup(mine)
    others = [r for r in rows_of(rows, experiment="fig14", part="times") if r not in mine]
    beside = ", ".join(f"{_title(r)} {fig14.speedup([r]).value:.2f}x" for r in others)
    return from_ratio(
        gain,
        target=float(claim.value["first workload"]),
        reason="the workloads of the printed 8.1x and 1.6x are not named; this is TGN on Netflix"
        + (f"; {beside}" if beside else "")
        + "; on a CPU a hit costs as much as a miss",
    )


def init_share(claim: Claim, rows: Rows) -> Finding:
    """Choosing ahead in percent of all fetching with GNNLab's cache, with and without reuse."""
    mine = rows_of(rows, experiment="fig14", part="times", **NETFLIX)
    if not mine:
        return missing("the experiment 'fig14' did not time Netflix")
    ours = {
        name: sum(init_shares(row)[variant] for row in mine) / len(mine)
        for name, variant in (("GNNLab", "static"), ("GNNLab with reuse", "static with reuse"))
    }
    printed = claim.value if isinstance(claim.value, Mapping) else {"GNNLab": claim.value}
    most = max(init_shares(row)["static"]
               for row in rows_of(rows, experiment="fig14", part="times"))  # fmt: skip
    return finding(
        mine,
        measured={name: round(ours[name], 1) for name in printed},
        holds=all(abs(ours[name] - float(value)) <= POINTS for name, value in printed.items()),
        direction=ours["GNNLab"] > 50 if len(printed) == 1 else ours["GNNLab"]
        > ours["GNNLab with reuse"],
        reason=f"sampling ahead and fetching on a CPU; up to {most:.0f} % on other workloads",
    )  # fmt: skip


def rr_gain(claim: Claim, rows: Rows) -> Finding:
    """Hit rates with reuse and restoration above those without, nodes and edges, every capacity."""
    mine = _hits(rows, **NETFLIX)
    if not mine:
        return missing("the experiment 'fig14' did not run on Netflix")
    change = {
        kind: [
            hit_rate(row, kind, "dynamic", times) - hit_rate(row, kind, "dynamic without RR", times)
            for row in mine
            for times in SIZES
        ]
        for kind in KINDS
    }
    return finding(
        mine,
        measured={k: f"{min(v):+.1f} to {max(v):+.1f} points" for k, v in change.items()},
        holds=all(min(v) > 0 for v in change.values()),
        direction=sum(map(sum, change.values())) > 0,
        reason=f"over {len(SIZES)} capacities, one of {GPUS} GPUs; {_parts(rows)}",
    )


def _parts(rows: Rows) -> str:
    """Describe the separate effects of reuse and restoration over the ablation's workloads."""
    found = rows_of(rows, experiment="cache_ablation", part="hits")
    if not found:
        return "the experiment 'cache_ablation' tells them apart"
    base = average(found, "neither")
    words = [f"reuse alone {average(found, 'no restoration') - base:+.1f}",
             f"restoration alone {average(found, 'no reuse') - base:+.1f}",
             f"both {average(found, START) - base:+.1f}"]  # fmt: skip
    alone = average(found, START, 1) - average(found, "neither", 1)
    return (
        f"mean over {some(len(found), 'workload')}: {', '.join(words)} points; both with rounds "
        f"{GPUS} times as long {alone:+.1f}"
    )


def static_zero(claim: Claim, rows: Rows) -> Finding:
    """Edge hits of a static cache in rounds that began without a new choice."""
    mine = _hits(rows, **NETFLIX)
    if not mine:
        return missing("the experiment 'fig14' did not run on Netflix")
    rate = max(hit_rate(row, "edge", "static stale") for row in mine)
    fresh = max(hit_rate(row, "edge", "static") for row in mine)
    others = [f"{_title(r)} {hit_rate(r, 'edge', 'static stale'):.0f} %"
              for r in _hits(rows) if r not in mine]  # fmt: skip
    return finding(
        mine,
        measured=round(rate, 1),
        holds=rate < NEAR_ZERO,
        direction=rate < fresh / 2,
        reason=f"in rounds between choices; {fresh:.0f} % right after one"
        + (f"; {', '.join(others)}" if others else ""),
    )


def static_below(claim: Claim, rows: Rows) -> Finding:
    """Edge hits: dynamic above static chosen every round above static with reuse."""
    mine = _hits(rows, **NETFLIX)
    if not mine:
        return missing("the experiment 'fig14' did not run on Netflix")
    order = ("dynamic", "static", "static with reuse")
    means = {name: sum(hit_rate(r, "edge", name) for r in mine) / len(mine) for name in order}
    without = sum(hit_rate(r, "edge", "dynamic without RR") for r in mine) / len(mine)
    return finding(
        mine,
        measured={name: round(value, 1) for name, value in means.items()},
        holds=means["dynamic"] > means["static"] > means["static with reuse"],
        direction=means["dynamic"] > means["static"],
        reason="TGN samples the newest edges, so two epochs sampled ahead know all but the "
        f"negatives of those that follow; dynamic without RR hits {without:.0f} %",
    )


def lru_best(claim: Claim, rows: Rows) -> Finding:
    """LRU's mean hit rate above LFU's and FIFO's, over all workloads."""
    found = rows_of(rows, experiment="cache_ablation", part="hits")
    if not found:
        return missing("the experiment 'cache_ablation' did not run")
    means = {name: average(found, name) for name in (START, "lfu", "fifo")}
    alone = {name: average(found, name, 1) for name in means}
    best = max(alone, key=alone.get)  # type: ignore[arg-type]
    return finding(
        found,
        measured={TITLES[name]: round(value, 1) for name, value in means.items()},
        holds=means[START] > max(means["lfu"], means["fifo"]),
        undecided=len(found) < FEWEST,
        reason=f"requests that hit, mean over {some(len(found), 'workload')}, nodes and edges; "
        f"with rounds {GPUS} times as long the best is {TITLES[best]}",
    )


def lambda_helps(claim: Claim, rows: Rows) -> Finding:
    """Mean hit rate of lambda 0.2 above that of no limit, over all workloads."""
    found = rows_of(rows, experiment="cache_ablation", part="hits")
    if not found:
        return missing("the experiment 'cache_ablation' did not run")
    means = {name: average(found, name) for name in (START, "lambda 1", "lambda 0.05")}
    alone = average(found, START, 1) - average(found, "lambda 1", 1)
    gap = means[START] - means["lambda 1"]
    return finding(
        found,
        measured=f"{gap:+.2f} points",
        holds=gap > 0,
        undecided=len(found) < FEWEST,
        reason=f"{means[START]:.1f} % with 0.2, {means['lambda 1']:.1f} % without a limit, "
        f"{means['lambda 0.05']:.1f} % with 0.05, mean over {some(len(found), 'workload')}; with "
        f"rounds {GPUS} times as long {alone:+.2f} points",
    )


def batched_faster(claim: Claim, rows: Rows) -> Finding:
    """Time of a list behind a lock over that of whole batches."""
    mine = rows_of(rows, experiment="cache_ablation", part="speed")
    if not mine:
        return missing("the experiment 'cache_ablation' did not run against the clock")
    gain = speedup(mine, "list")
    torch_gain = speedup(mine, "torch")
    found = from_ratio(
        gain,
        reason=f"list over batches, both compiled; batches in torch's operators take "
        f"{torch_gain.value:.1f}x of ours",
    )
    found.direction = gain.value > 1
    found.undecided = gain.side == 0
    return found
