"""Claims on the feature cache (2.2, 4.3, 6.2, Figure 14)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dgbench.lab.compare import by_group
from dgbench.lab.evidence import finding, missing, some
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
TELLING: Final = 0.1
"""Points between two mean hit rates below which neither is told to be better."""
ORDER: Final = ("dynamic", "static", "static with reuse")
"""Caches from the printed best to the printed worst."""
NETFLIX: Final = {"dataset": "netflix", "model": "tgn"}


def _title(row: Any) -> str:
    return f"{MODEL_TITLES[row.params['model']]} on {BY_NAME[row.params['dataset']].title}"


def _hits(rows: Rows, **params: Any) -> list[Any]:
    return rows_of(rows, experiment="fig14", part="hits", **params)


def fetch_gain(claim: Claim, rows: Rows) -> Finding:
    """Time of a round's fetching with GNNLab's cache over that with GNNFlow's, on all workloads."""
    timed = rows_of(rows, experiment="fig14", part="times")
    if not timed:
        return missing("the experiment 'fig14' timed no workload")
    gains = {_title(mine[0]): fig14.speedup(mine) for mine in by_group(timed).values()}
    sides = [gain.side for gain in gains.values()]
    return finding(
        timed,
        measured={name: f"{gain.value:.2f}x" for name, gain in gains.items()},
        direction=all(side > 0 for side in sides),
        undecided=0 in sides and -1 not in sides,
        processes=min(gain.processes for gain in gains.values()),
        reason="the workloads of the printed 8.1x and 1.6x are not named, so all have to gain; on "
        "a CPU a hit costs as much as a miss",
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
    return finding(
        mine,
        measured={name: round(ours[name], 1) for name in printed},
        holds=all(abs(ours[name] - float(value)) <= POINTS for name, value in printed.items()),
        reason="sampling ahead and fetching on a CPU",
    )


def _on_all(rows: Rows, judge: Callable[[Any], tuple[str, int]], **fields: Any) -> Finding:
    """A finding that has to hold on every workload.

    Args:
        rows: one of each workload. judge: row -> words, and 1 where it holds, -1 where not, else 0.
        fields: further ones of the finding.
    """
    told = {_title(row): judge(row) for row in rows}
    sides = [side for _, side in told.values()]
    return finding(
        rows,
        measured={name: words for name, (words, _) in told.items()},
        holds=all(side > 0 for side in sides),
        undecided=0 in sides and -1 not in sides,
        **fields,
    )


def rr_gain(claim: Claim, rows: Rows) -> Finding:
    """Hit rates with reuse and restoration above those without, nodes and edges, every capacity."""
    mine = _hits(rows)
    if not mine:
        return missing("the experiment 'fig14' did not count hits")

    def judge(row: Any) -> tuple[str, int]:
        change = {
            kind: [
                hit_rate(row, kind, "dynamic", times)
                - hit_rate(row, kind, "dynamic without RR", times)
                for times in SIZES
            ]
            for kind in KINDS
        }
        words = ", ".join(f"{k}s {min(v):+.1f} to {max(v):+.1f}" for k, v in change.items())
        return words, 1 if all(min(v) > 0 for v in change.values()) else -1

    return _on_all(
        mine,
        judge,
        reason=f"points over {len(SIZES)} capacities, one of {GPUS} GPUs; {_parts(rows)}",
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
    """Edge hits of a static cache in rounds that began without a new choice, on all workloads."""
    mine = _hits(rows)
    if not mine:
        return missing("the experiment 'fig14' did not count hits")

    def judge(row: Any) -> tuple[str, int]:
        rate, fresh = (hit_rate(row, "edge", name) for name in ("static stale", "static"))
        return f"{rate:.1f} %, {fresh:.0f} % after a choice", 1 if rate < NEAR_ZERO else -1

    return _on_all(mine, judge, reason=f"nearly zero is read as below {NEAR_ZERO:.0f} %")


def static_below(claim: Claim, rows: Rows) -> Finding:
    """Edge hits: dynamic above static chosen every round above static with reuse, everywhere."""
    mine = _hits(rows)
    if not mine:
        return missing("the experiment 'fig14' did not count hits")

    def judge(row: Any) -> tuple[str, int]:
        rates = [hit_rate(row, "edge", name) for name in ORDER]
        words = ", ".join(f"{rate:.1f}" for rate in rates)
        return words, 1 if rates[0] > rates[1] > rates[2] else -1

    return _on_all(
        mine,
        judge,
        reason=f"percent of requests: {', '.join(ORDER)}; two epochs sampled ahead know all but "
        "the negatives of those that follow where the newest edges are sampled",
    )


def _real_hits(rows: Rows) -> list[Any]:
    """Rows of the ablation on real streams: hit rates of a twin follow its own memory."""
    found = rows_of(rows, experiment="cache_ablation", part="hits")
    return [row for row in found if not row.data.get("twin")]


def _mean_lead(found: Sequence[Any], better: str, others: Sequence[str]) -> tuple[float, list]:
    """Least lead of a setting's mean hit rate over others', and its least lead by workload."""
    every = [min(average([r], better) - average([r], other) for other in others) for r in found]
    whole = min(average(found, better) - average(found, other) for other in others)
    return whole, every


def lru_best(claim: Claim, rows: Rows) -> Finding:
    """LRU's mean hit rate above LFU's and FIFO's, over real workloads."""
    found = _real_hits(rows)
    if not found:
        return missing("the experiment 'cache_ablation' did not run on a real stream")
    means = {name: average(found, name) for name in (START, "lfu", "fifo")}
    alone = {name: average(found, name, 1) for name in means}
    best = max(alone, key=alone.get)  # type: ignore[arg-type]
    lead, every = _mean_lead(found, START, ("lfu", "fifo"))
    return finding(
        found,
        measured={TITLES[name]: round(value, 1) for name, value in means.items()},
        holds=lead >= TELLING,
        undecided=len(found) < FEWEST or abs(lead) < TELLING,
        reason=f"requests that hit, mean over {some(len(found), 'real workload')}, nodes and "
        f"edges; LRU leads on {sum(one > 0 for one in every)} of them; with rounds {GPUS} times "
        f"as long the best is {TITLES[best]}",
    )


def lambda_helps(claim: Claim, rows: Rows) -> Finding:
    """Hit rate of lambda 0.2 above that of no limit, mean over real workloads."""
    found = _real_hits(rows)
    if not found:
        return missing("the experiment 'cache_ablation' did not run on a real stream")
    means = {name: average(found, name) for name in (START, "lambda 1", "lambda 0.05")}
    alone = average(found, START, 1) - average(found, "lambda 1", 1)
    gap, every = _mean_lead(found, START, ("lambda 1",))
    return finding(
        found,
        measured=f"{gap:+.2f} points",
        holds=gap >= TELLING,
        undecided=len(found) < FEWEST or abs(gap) < TELLING,
        reason=f"{means[START]:.1f} % with 0.2, {means['lambda 1']:.1f} % without a limit, "
        f"{means['lambda 0.05']:.1f} % with 0.05, mean over "
        f"{some(len(found), 'real workload')}, by workload "
        f"{', '.join(f'{one:+.2f}' for one in every)}; with rounds {GPUS} times as long "
        f"{alone:+.2f} points; less than {TELLING} points tell nothing",
    )


def batched_faster(claim: Claim, rows: Rows) -> Finding:
    """Time of a list behind a lock over that of whole batches."""
    mine = rows_of(rows, experiment="cache_ablation", part="speed")
    if not mine:
        return missing("the experiment 'cache_ablation' did not run against the clock")
    gain = speedup(mine, "list")
    torch_gain = speedup(mine, "torch")
    return finding(
        mine,
        measured=gain.value,
        low=gain.low,
        high=gain.high,
        holds=gain.side > 0,
        undecided=gain.side == 0,
        processes=gain.processes,
        reason=f"list over batches, both compiled; batches in torch's operators take "
        f"{torch_gain.value:.1f}x of ours",
    )
