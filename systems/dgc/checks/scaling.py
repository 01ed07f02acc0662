"""Claims on which system is how fast, and which module adds what (sections 7.2 and 7.3, Figure 12).

Claims about all graphs, or about what one module gains, take races on real graphs: on a CPU, with
fewer and other graphs than the paper's, they are an analogue. Claims about one graph take that
graph, which is a twin unless its file is held; which partition wins on a twin decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any, Final

from dgbench.lab.compare import Ratio
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.dgc.checks import scaling_baselines, scaling_convergence
from dgbench.systems.dgc.checks.common import any_graph, finding, from_ratio, missing, strength
from dgbench.systems.dgc.checks.race_words import in_order, rows_of, where
from dgbench.systems.dgc.experiments import fig12_rows
from dgbench.systems.dgc.experiments.fig12 import link_title
from dgbench.systems.dgc.experiments.projection import LINKS
from dgbench.systems.dgc.experiments.race_runs import (
    BASELINE_NAMES,
    DGC,
    EXACT,
    PLAIN,
    PSS,
    PSS_TS,
    PTS,
    TITLES,
    TWINS,
    Race,
    dataset_title,
    races,
)
from dgbench.systems.dgc.experiments.settings import MODEL_OF, MODEL_TITLES

Rows = Sequence[Any]

NONE12 = "no race: the experiment 'fig12' did not run"

CELLS: Final = {
    "dgc-s72-tgcn-movie": ("tgcn_2layer", "movie", PTS),
    "dgc-s72-dysat-epinion": ("dysat", "epinions", PSS),
    "dgc-s72-mpnn-movie": ("mpnn_lstm_bare", "movie", PTS),
    "dgc-s72-mpnn-epinion": ("mpnn_lstm_bare", "epinions", PSS),
}
"""Claim -> model, graph and baseline of its factor."""

AVERAGES: Final = {f"dgc-fig12-avg-{name.lower()}": model for name, model in MODEL_OF.items()}

CLOSE: Final = 1.1
"""Two epoch times less than a tenth apart are about the same."""


# Figure 12.


def _raced(rows: Rows) -> list[Race]:
    """Races over Gloo; of several groups of ranks those on 4, as the bar asks for."""
    found = [one for one in races(rows, fig12_rows.NAME) if one.link == "gloo"]
    size = max((one.ranks for one in found if one.ranks <= 4), default=0)
    return [one for one in found if one.ranks == size]


def _whole(rows: Rows) -> list[Race]:
    """What claims on all graphs rest on: real graphs; no twin of them decides."""
    return fig12_rows.decisive(races(rows, fig12_rows.NAME))


def _range(found: Sequence[Race], name: str) -> tuple[dict[str, float], list[Ratio], str]:
    """Lowest and highest gain of a contender over any baseline, all gains, and the ends' places."""
    gains = {(one, b): one.gain(b, name) for one in found for b in BASELINE_NAMES}
    low, high = (pick(gains, key=lambda key: gains[key].value) for pick in (min, max))
    said = {"low": gains[low].value, "high": gains[high].value}
    words = ", ".join(
        f"{end} over {TITLES[b]}, {one.title}" for end, (one, b) in (("low", low), ("high", high))
    )
    return said, list(gains.values()), words


def _speedups(name: str) -> Check:
    """A check of the range of a contender's gains over all baselines."""

    @any_graph
    def check(claim: Claim, rows: Rows) -> Finding:
        found = _whole(rows)
        if not found:
            return missing(NONE12)
        said, gains, words = _range(found, name)
        sides = [ratio.side for ratio in gains]
        return finding(
            rows_of(found),
            evidence=strength(rows_of(found)),
            measured=said,
            direction=min(sides) > 0,
            undecided=min(sides) == 0,
            reason=f"{words}; {where(found)}{_projected(rows, name)}",
        )

    return check


def _projected(rows: Rows, name: str, model: str | None = None) -> str:
    """What projections to eight V100 say beside: gains over the best baseline, by links."""
    gains: dict[str, list[float]] = {}
    for (_, which, links), epochs in fig12_rows.projected(rows).items():
        gain = fig12_rows.projected_gain(epochs, name)
        if gain is not None and model in (None, which):
            gains.setdefault(links, []).append(gain)
    if set(gains) != set(LINKS):
        return ""
    said = [f"{link_title(links)} {min(v):.2g}x to {max(v):.2g}x" for links, v in gains.items()]
    return f"; projected to 8 V100 from twins, over the best baseline: {', '.join(said)}"


@any_graph
def average(claim: Claim, rows: Rows) -> Finding:
    """Mean over graphs and baselines of DGC's gain for one model; printed is an arithmetic mean or
    another one, so both are said."""
    model = AVERAGES[claim.id]
    found = [one for one in _whole(rows) if one.model == model]
    if not found:
        return missing(NONE12)
    gains = [one.gain(b, DGC) for one in found for b in BASELINE_NAMES]
    mean = fig12_rows.pooled([(one, b, DGC) for one in found for b in BASELINE_NAMES])
    value = fmean(ratio.value for ratio in gains)
    result = finding(
        rows_of(found),
        evidence=strength(rows_of(found)),
        measured=value,
        direction=value > 1,
        target=float(claim.value["mean"]),
        reason=f"arithmetic mean of {len(gains)} pairs, geometric {mean.value:.2f}x; "
        f"{where(found)}{_projected(rows, DGC, model)}",
    )
    # The interval of the geometric mean, moved to the arithmetic one.
    if mean.low is not None and mean.high is not None:
        result.low, result.high = (end * value / mean.value for end in (mean.low, mean.high))
    return result


@any_graph
def best(claim: Claim, rows: Rows) -> Finding:
    """DGC faster than every baseline in every race."""
    found = _whole(rows)
    if not found:
        return missing(NONE12)
    sides = {one: min(one.gain(b, DGC).side for b in BASELINE_NAMES) for one in found}
    ahead = [one for one, side in sides.items() if side > 0]
    behind = [one.title for one, side in sides.items() if side < 0]
    return finding(
        rows_of(found),
        evidence=strength(rows_of(found)),
        measured=f"fastest in {len(ahead)} of {len(found)} races",
        holds=len(ahead) == len(found),
        undecided=len(ahead) < len(found) and not behind,
        reason=(f"slower than a baseline: {', '.join(behind)}; " if behind else "") + where(found),
    )


def _on(rows: Rows, dataset: str, *names: str) -> list[Race]:
    """Races on one of the paper's graphs in which these contenders ran."""
    return [one for one in _raced(rows) if one.dataset == dataset and set(names) <= set(one.names)]


@any_graph  # what stale rows save is told by races on real graphs
def named_cell(claim: Claim, rows: Rows) -> Finding:
    """A factor that the paper prints for one model, graph and baseline; projected where no race
    tells it."""
    model, dataset, baseline = CELLS[claim.id]
    gains = {}
    for links in LINKS:
        epochs = fig12_rows.projected(rows).get((dataset, model, links), {})
        if baseline in epochs and DGC in epochs:
            gains[links] = epochs[baseline].seconds / epochs[DGC].seconds
    said = ", ".join(f"{link_title(links)} {gain:.2f}x" for links, gain in gains.items())
    found = [one for one in _on(rows, dataset, baseline, DGC) if one.model == model]
    if found:
        return from_ratio(
            found[0].gain(baseline, DGC),
            rows,
            target=float(claim.value),
            reason=where(found) + (f"; projected to 8 V100: {said}" if said else ""),
        )
    if not gains:
        return missing(_not_raced(dataset, model))
    ids = set(fig12_rows.projected_ids(rows).values())
    sides = {gain > 1 for gain in gains.values()}
    return finding(
        [row for row in rows if row.id in ids],
        evidence="projected",
        measured=said,
        direction=True in sides,
        undecided=len(sides) > 1,
        reason="to 8 V100 by either link, from a twin's traffic and what stale rows save on real "
        "graphs",
    )


def _not_raced(dataset: str, model: str | None = None) -> str:
    what = f"{MODEL_TITLES[model]} on {dataset_title(dataset)}" if model else dataset_title(dataset)
    return f"{what} was not raced; nox -s reproduce -- dgc --preset full does"


def _order(
    rows: Rows, dataset: str, first: str | None, last: str | None, found: Sequence[Race]
) -> Finding:
    """Whether a baseline is the fastest, or another the slowest, in all races of a graph."""
    sides, said = [], {}
    for one in found:
        said[one.title] = in_order(one)
        if first:
            sides += [one.gain(b, first).side for b in BASELINE_NAMES if b != first]
        if last:
            sides += [one.gain(last, b).side for b in BASELINE_NAMES if b != last]
    return finding(
        rows_of(found),
        evidence=strength(rows_of(found)),
        measured=said,
        holds=min(sides) > 0,
        undecided=min(sides) == 0,
        reason=f"epoch times in order; {where(found)}",
    )


def amazon_order(claim: Claim, rows: Rows) -> Finding:
    """PTS the fastest baseline on Amazon, PSS-TS the slowest."""
    found = _on(rows, "amazon", *BASELINE_NAMES)
    if not found:
        return missing(_not_raced("amazon"))
    return _order(rows, "amazon", PTS, PSS_TS, found)


def epinion_order(claim: Claim, rows: Rows) -> Finding:
    """PSS the slowest baseline on Epinion."""
    found = _on(rows, "epinions", *BASELINE_NAMES)
    if not found:
        return missing(_not_raced("epinions"))
    return _order(rows, "epinions", None, PSS, found)


def amazon_close(claim: Claim, rows: Rows) -> Finding:
    """PTS and DGC by its partition alone less than a tenth apart on Amazon."""
    found = _on(rows, "amazon", PTS, PLAIN)
    if not found:
        return missing(_not_raced("amazon"))
    ratios = {one.title: one.gain(PTS, PLAIN) for one in found}
    inside = [1 / CLOSE <= ratio.value <= CLOSE for ratio in ratios.values()]
    ends = [e for r in ratios.values() for e in (r.low, r.high) if e is not None]
    crossing = any(
        r.low is not None and r.high is not None and (r.low < edge < r.high)
        for r in ratios.values()
        for edge in (1 / CLOSE, CLOSE)
    )
    return finding(
        rows_of(found),
        evidence=strength(rows_of(found)),
        measured={name: f"{ratio.value:.2f}x" for name, ratio in ratios.items()},
        holds=all(inside),
        undecided=crossing or not ends,
        reason=f"PTS over DGC by chunks alone; {where(found)}",
    )


def _module(fast: str, slow: str) -> Check:
    """A check of what one module adds, the mean over races on real graphs."""

    @any_graph
    def check(claim: Claim, rows: Rows) -> Finding:
        found = _whole(rows)
        if not found:
            return missing(NONE12)
        ratio = fig12_rows.pooled([(one, slow, fast) for one in found])
        values = [one.gain(slow, fast).value for one in found]
        return from_ratio(
            ratio,
            rows,
            target=float(claim.value),
            reason=f"geometric mean; {min(values):.2f}x to {max(values):.2f}x {where(found)}",
        )

    return check


def stack_gains_most(claim: Claim, rows: Rows) -> Finding:
    """What chunk fusion gains on Stack against the other three graphs, by model."""
    found = [one for one in _raced(rows) if set(one.names) >= {PLAIN, EXACT}]
    by_model: dict[str, dict[str, Race]] = {}
    for one in found:
        if one.dataset in TWINS:
            by_model.setdefault(one.model, {})[one.dataset] = one
    whole = {m: many for m, many in by_model.items() if set(many) == set(TWINS)}
    if not whole:
        return missing("chunk fusion was not raced on all four graphs")
    sides, said, used = [], {}, []
    for model, many in whole.items():
        gains = {name: one.gain(PLAIN, EXACT) for name, one in many.items()}
        sides += [gains["stack"].against(g) for n, g in gains.items() if n != "stack"]
        said[MODEL_TITLES[model]] = ", ".join(
            f"{dataset_title(n)} {g.value:.2f}x" for n, g in gains.items()
        )
        used += many.values()
    return finding(
        rows_of(used),
        evidence=strength(rows_of(used)),
        measured=said,
        holds=min(sides) > 0,
        undecided=min(sides) == 0,
        reason=f"gain of chunk fusion; {used[0].row.params['ranks']} ranks",
    )


CHECKS: Final[dict[str, Check]] = {
    "dgc-abs-speedup-range": _speedups(DGC),
    **dict.fromkeys(AVERAGES, average),
    "dgc-fig12-dgc-best": best,
    "dgc-fig12-amazon-order": amazon_order,
    "dgc-fig12-epinion-order": epinion_order,
    **dict.fromkeys(CELLS, named_cell),
    "dgc-s731-pgc-only": _speedups(PLAIN),
    "dgc-s731-amazon-pts-close": amazon_close,
    "dgc-s732-cf-speedup": _module(EXACT, PLAIN),
    "dgc-s732-cf-stack-best": stack_gains_most,
    "dgc-s733-sg-speedup": _module(DGC, EXACT),
    **scaling_baselines.CHECKS,
    **scaling_convergence.CHECKS,
}
