"""Claims on which system is how fast, and which module adds what (sections 7.2 and 7.3, Figure 12).

Claims about all graphs, or about what one module gains, take races on real graphs: on a CPU, with
fewer and other graphs than the paper's, they are an analogue. Claims about one graph take that
graph, which is a twin unless its file is held; which partition wins on a twin decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, Final

from dgbench.lab.compare import Ratio
from dgbench.lab.evidence import any_graph, finding, from_ratio, missing
from dgbench.lab.verbs import asking
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.dgc.checks.race_words import in_order, rows_of, where
from dgbench.systems.dgc.experiments import fig12_rows
from dgbench.systems.dgc.experiments.fig12 import link_title
from dgbench.systems.dgc.experiments.race_runs import (
    BASELINE_NAMES,
    DGC,
    EXACT,
    PLAIN,
    PTS,
    TITLES,
    TWINS,
    RaceRecord,
    dataset_title,
    races,
)
from dgbench.systems.dgc.experiments.settings import MODEL_OF, MODEL_TITLES
from dgbench.systems.dgc.projection import LINKS

Rows = Sequence[Any]
Said = dict[str, Any]

NONE12 = "no race: the experiment 'fig12' did not run"
CLOSE: Final = 1.1
"""Two epoch times less than a tenth apart are about the same."""


def raced(rows: Rows) -> list[RaceRecord]:
    """Races over Gloo; of several groups of ranks those on 4, as the bar asks for."""
    found = [one for one in races(rows, fig12_rows.NAME) if one.link == "gloo"]
    size = max((one.ranks for one in found if one.ranks <= 4), default=0)
    return [one for one in found if one.ranks == size]


def whole(rows: Rows) -> list[RaceRecord]:
    """Races on real graphs, for claims on all graphs; no twin decides these."""
    return fig12_rows.decisive(races(rows, fig12_rows.NAME))


def on_graph(dataset: str, *names: str) -> Callable[[Rows], list[RaceRecord]]:
    """Races on one of the paper's graphs in which these contenders ran."""
    return lambda rows: [
        one for one in raced(rows) if one.dataset == dataset and set(names) <= set(one.names)
    ]


def not_raced(dataset: str, model: str | None = None) -> str:
    """Why nothing is said of a graph."""
    what = f"{MODEL_TITLES[model]} on {dataset_title(dataset)}" if model else dataset_title(dataset)
    return f"{what} was not raced; nox -s reproduce -- dgc --preset full does"


def speedups(name: str) -> Check:
    """Lowest and highest gain of a contender over any baseline."""

    @any_graph
    def check(claim: Claim, rows: Rows) -> Finding:
        found = whole(rows)
        if not found:
            return missing(NONE12)
        gains = {(one, b): one.gain(b, name) for one in found for b in BASELINE_NAMES}
        ends = {
            end: pick(gains, key=lambda key: gains[key].value)
            for end, pick in (("low", min), ("high", max))
        }
        words = (f"{end} over {TITLES[b]}, {one.title}" for end, (one, b) in ends.items())
        side = min(ratio.side for ratio in gains.values())
        return finding(
            rows_of(found),
            measured={end: gains[key].value for end, key in ends.items()},
            direction=side > 0,
            undecided=side == 0,
            reason=f"{', '.join(words)}; {where(found)}{_projected(rows, name)}",
        )

    return check


def _projected(rows: Rows, name: str, model: str | None = None) -> str:
    """Describe projections to eight V100: gains over the best baseline, by links."""
    gains: dict[str, list[float]] = {}
    for (_, which, links), epochs in fig12_rows.projected(rows).items():
        gain = fig12_rows.projected_gain(epochs, name)
        if gain is not None and model in (None, which):
            gains.setdefault(links, []).append(gain)
    if set(gains) != set(LINKS):
        return ""
    said = [f"{link_title(links)} {min(v):.2g}x to {max(v):.2g}x" for links, v in gains.items()]
    return f"; projected to 8 V100 from twins, over the best baseline: {', '.join(said)}"


def average(title: str) -> Check:
    """Mean over graphs and baselines of DGC's gain for one model; printed is an arithmetic mean or
    another one, so both are said."""
    model = MODEL_OF[title]

    @any_graph
    def check(claim: Claim, rows: Rows) -> Finding:
        found = [one for one in whole(rows) if one.model == model]
        if not found:
            return missing(NONE12)
        mean = fig12_rows.pooled([(one, b, DGC) for one in found for b in BASELINE_NAMES])
        gains = [one.gain(b, DGC).value for one in found for b in BASELINE_NAMES]
        value = fmean(gains)
        result = finding(
            rows_of(found),
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

    return check


@any_graph
@asking(whole, NONE12)
def best(claim: Claim, found: Sequence[RaceRecord]) -> Said:
    """DGC faster than every baseline in every race."""
    sides = {one: min(one.gain(b, DGC).side for b in BASELINE_NAMES) for one in found}
    ahead = [one for one, side in sides.items() if side > 0]
    behind = [one.title for one, side in sides.items() if side < 0]
    return {
        "measured": f"fastest in {len(ahead)} of {len(found)} races",
        "holds": len(ahead) == len(found),
        "undecided": len(ahead) < len(found) and not behind,
        "reason": (f"slower than a baseline: {', '.join(behind)}; " if behind else "")
        + where(found),
    }


def named_cell(title: str, dataset: str, baseline: str) -> Check:
    """A factor that the paper prints for one model, graph and baseline; projected where no race
    tells it."""
    model = MODEL_OF[title]

    @any_graph  # what stale rows save is told by races on real graphs
    def check(claim: Claim, rows: Rows) -> Finding:
        gains = {}
        for links in LINKS:
            epochs = fig12_rows.projected(rows).get((dataset, model, links), {})
            if baseline in epochs and DGC in epochs:
                gains[links] = epochs[baseline].seconds / epochs[DGC].seconds
        said = ", ".join(f"{link_title(links)} {gain:.2f}x" for links, gain in gains.items())
        found = [one for one in on_graph(dataset, baseline, DGC)(rows) if one.model == model]
        if found:
            return from_ratio(
                found[0].gain(baseline, DGC),
                target=float(claim.value),
                reason=where(found) + (f"; projected to 8 V100: {said}" if said else ""),
            )
        if not gains:
            return missing(not_raced(dataset, model))
        ids = set(fig12_rows.projected_ids(rows).values())
        sides = {gain > 1 for gain in gains.values()}
        return finding(
            [row for row in rows if row.id in ids],
            model="alpha-beta model",
            measured=said,
            direction=True in sides,
            undecided=len(sides) > 1,
            reason="to 8 V100 by either link, from a twin's traffic and what stale rows save on "
            "real graphs",
        )

    return check


def order(dataset: str, *, first: str | None = None, last: str | None = None) -> Check:
    """Check that a baseline is the fastest, or another the slowest, in all races of a graph."""

    @asking(on_graph(dataset, *BASELINE_NAMES), not_raced(dataset))
    def check(claim: Claim, found: Sequence[RaceRecord]) -> Said:
        sides = [one.gain(b, first).side for one in found for b in BASELINE_NAMES
                 if first and b != first]  # fmt: skip
        sides += [one.gain(last, b).side for one in found for b in BASELINE_NAMES
                  if last and b != last]  # fmt: skip
        return {
            "measured": {one.title: in_order(one) for one in found},
            "holds": min(sides) > 0,
            "undecided": min(sides) == 0,
            "reason": f"epoch times in order; {where(found)}",
        }

    return check


@asking(on_graph("amazon", PTS, PLAIN), not_raced("amazon"))
def amazon_close(claim: Claim, found: Sequence[RaceRecord]) -> Said:
    """PTS and DGC by its partition alone less than a tenth apart on Amazon."""
    ratios = {one.title: one.gain(PTS, PLAIN) for one in found}
    known = [(r.low, r.high) for r in ratios.values() if r.low is not None and r.high is not None]
    crossing = any(low < edge < high for low, high in known for edge in (1 / CLOSE, CLOSE))
    return {
        "measured": {name: f"{ratio.value:.2f}x" for name, ratio in ratios.items()},
        "holds": all(1 / CLOSE <= ratio.value <= CLOSE for ratio in ratios.values()),
        "undecided": crossing or not known,
        "reason": f"PTS over DGC by chunks alone; {where(found)}",
    }


def module(fast: str, slow: str) -> Check:
    """Check the gain of one module, as the mean over races on real graphs."""

    @any_graph
    def check(claim: Claim, rows: Rows) -> Finding:
        found = whole(rows)
        if not found:
            return missing(NONE12)
        values = [one.gain(slow, fast).value for one in found]
        return from_ratio(
            fig12_rows.pooled([(one, slow, fast) for one in found]),
            target=float(claim.value),
            reason=f"geometric mean; {min(values):.2f}x to {max(values):.2f}x {where(found)}",
        )

    return check


def _on_all_four(rows: Rows) -> list[RaceRecord]:
    """Races of models that were raced on all of the paper's graphs."""
    found = [
        one for one in raced(rows) if set(one.names) >= {PLAIN, EXACT} and one.dataset in TWINS
    ]
    return [
        one
        for one in found
        if {other.dataset for other in found if other.model == one.model} == set(TWINS)
    ]


@asking(_on_all_four, "chunk fusion was not raced on all four graphs")
def stack_gains_most(claim: Claim, found: Sequence[RaceRecord]) -> Said:
    """Check the gain of chunk fusion on Stack against the other three graphs, by model."""
    gains: dict[str, dict[str, Ratio]] = {}
    for one in found:
        gains.setdefault(one.model, {})[one.dataset] = one.gain(PLAIN, EXACT)
    sides = [
        of["stack"].against(gain) for of in gains.values() for n, gain in of.items() if n != "stack"
    ]
    return {
        "measured": {
            MODEL_TITLES[model]: ", ".join(
                f"{dataset_title(n)} {gain.value:.2f}x" for n, gain in of.items()
            )
            for model, of in gains.items()
        },
        "holds": min(sides) > 0,
        "undecided": min(sides) == 0,
        "reason": f"gain of chunk fusion; {found[0].row.params['ranks']} ranks",
    }
