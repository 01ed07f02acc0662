"""Claims on which system is how fast, and which module adds what (sections 7.2 and 7.3, Figure 12).

Claims about all graphs, or about what one module gains, take races on real graphs. Claims about
one graph take that graph, or a held graph of the same site; a factor printed for a graph of which
none is held takes all real ones. A claim about DGC is judged for its published form; races in which
only DGC with our refinement ran are taken for it, and the reason says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from dgbench.lab.compare import Ratio
from dgbench.lab.evidence import finding, from_ratio, missing
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.dgc.checks.race_words import (
    asking_races,
    in_order,
    rows_of,
    side_fields,
    standing,
    where,
)
from dgbench.systems.dgc.experiments import fig4, fig12_rows
from dgbench.systems.dgc.experiments.fig12 import link_title
from dgbench.systems.dgc.experiments.race_rows import (
    RaceRecord,
    dataset_title,
    races,
    ratio_over,
    real,
    running,
)
from dgbench.systems.dgc.experiments.race_runs import (
    DGC,
    EXACT,
    FUSED,
    PLACED,
    PLAIN,
    PSS,
    PSS_ORDERS,
    PTS,
    TITLES,
)
from dgbench.systems.dgc.experiments.settings import KIN, MODEL_OF, MODEL_TITLES
from dgbench.systems.dgc.projection import LINKS

Rows = Sequence[Any]
Said = dict[str, Any]

NONE12 = "no race of all contenders on a real graph: the experiment 'fig12' did not run on one"
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


def on_graph(
    dataset: str, *names: str, any_graph: bool = False, fallback: bool = False
) -> Callable[[Rows], list[RaceRecord]]:
    """Races on one of the paper's graphs, or on what stands in for it, in which these ran.

    Args:
        dataset, names: the graph and the contenders.
        any_graph: let all real graphs stand in where none of its site was raced.
        fallback: take Figure 4's races where Figure 12 has none.
    """

    def select(rows: Rows) -> list[RaceRecord]:
        for found in (raced(rows), races(rows, fig4.NAME) if fallback else []):
            mine = running(found, *names)
            if chosen := standing(dataset, mine, any_graph=any_graph):
                return chosen
        return []

    return select


def not_raced(dataset: str, model: str | None = None) -> str:
    """Why nothing is said of a graph, and what would."""
    title = dataset_title(dataset)
    what = f"{MODEL_TITLES[model]} on {title}" if model else title
    kin = KIN.get(dataset)
    if kin is None:
        return f"needs the real {title}: no held graph is of its site"
    return (
        f"neither {what} nor {dataset_title(kin)} was raced; "
        "nox -s reproduce -- dgc --preset full races the latter"
    )


def speedups(name: str) -> Check:
    """Lowest and highest gain of a contender over any baseline."""

    def check(claim: Claim, rows: Rows) -> Finding:
        found = running(whole(rows), name, *PLACED)
        if not found:
            return missing(NONE12)
        gains = {(one, b): one.gain(b, name) for one in found for b in one.baselines}
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
            reason=f"{', '.join(words)}; {where(found)}{_denominators(found, name)}"
            f"{_projected(rows, name)}",
        )

    return check


def _denominators(found: Sequence[RaceRecord], form: str) -> str:
    """The gain over the best baseline that has chunk fusion as well, and the factors of DGC's."""
    fair = running(found, *FUSED.values(), form)
    if not fair:
        return ""
    ratio = ratio_over([(one, one.best(tuple(FUSED.values())), form) for one in fair])
    said = f"; over the best placement with chunk fusion {ratio.value:.2f}x"
    parts = fig12_rows.factors(fair)
    if parts:
        told = ", ".join(f"{parts[key].value:.2f}x {words}" for words, key in fig12_rows.STAGES)
        said += f"; DGC over the best baseline: {told}"
    return said


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
    """Mean over graphs and baselines of DGC's gain for one model; the paper does not say which
    mean."""
    model = MODEL_OF[title]

    def check(claim: Claim, rows: Rows) -> Finding:
        found = [one for one in running(whole(rows), DGC, *PLACED) if one.model == model]
        if not found:
            return missing(NONE12)
        pairs = [(one, b, DGC) for one in found for b in one.baselines]
        said = (
            f"{len(pairs)} pairs; {where(found)}{_denominators(found, DGC)}"
            f"{_projected(rows, DGC, model)}"
        )
        return Finding(
            readings={
                f"{word} mean": from_ratio(
                    ratio_over(pairs, arithmetic=word == "arithmetic"),
                    target=float(claim.value["mean"]),
                    reason=said,
                )
                for word in ("arithmetic", "geometric")
            }
        )

    return check


@asking_races(lambda rows: running(whole(rows), DGC, *PLACED), NONE12)
def best(claim: Claim, found: Sequence[RaceRecord]) -> Said:
    """DGC faster than every baseline in every race."""
    sides = {one: min(one.gain(b, DGC).side for b in one.baselines) for one in found}
    ahead = [one for one, side in sides.items() if side > 0]
    behind = [one.title for one, side in sides.items() if side < 0]
    return {
        "measured": f"fastest in {len(ahead)} of {len(found)} races",
        **side_fields(sides.values()),
        "reason": (f"slower than a baseline: {', '.join(behind)}; " if behind else "")
        + where(found)
        + _denominators(found, DGC),
    }


def named_cell(title: str, dataset: str, baseline: str) -> Check:
    """A factor that the paper prints for one model, graph and baseline; projected where no race
    tells it."""
    model = MODEL_OF[title]

    def check(claim: Claim, rows: Rows) -> Finding:
        gains = {}
        for links in LINKS:
            epochs = fig12_rows.projected(rows).get((dataset, model, links), {})
            gain = fig12_rows.projected_over([baseline], epochs, DGC)
            if gain is not None:
                gains[links] = gain
        said = ", ".join(f"{link_title(links)} {gain:.2f}x" for links, gain in gains.items())
        chosen = [one for one in raced(rows) if one.model == model]
        needed = PSS_ORDERS if baseline == PSS else (baseline,)
        found = standing(dataset, running(chosen, *needed, DGC), any_graph=True)
        if found and not (found[0].twin and gains):
            each = ", ".join(
                f"{one.gain(one.named(baseline), DGC).value:.2f}x on {dataset_title(one.dataset)}"
                for one in found
            )
            return from_ratio(
                ratio_over([(one, one.named(baseline), DGC) for one in found]),
                target=float(claim.value),
                reason=(f"geometric mean of {each}; " if len(found) > 1 else "")
                + where(found)
                + (f"; projected to 8 V100 from a twin: {said}" if said else ""),
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
            reason="to 8 V100 by either link, from a twin's traffic and what stale rows save "
            "on real graphs",
        )

    return check


def order(dataset: str, *, first: str | None = None, last: str | None = None) -> Check:
    """Check that a baseline is the fastest, or another the slowest, in all races of a graph."""

    @asking_races(
        on_graph(dataset, *PLACED, fallback=True), not_raced(dataset) + ", PSS in both orders"
    )
    def check(claim: Claim, found: Sequence[RaceRecord]) -> Said:
        sides: list[int] = []
        for one in found:
            if first:
                top = one.named(first)
                sides += [one.gain(b, top).side for b in one.baselines if b != top]
            if last:
                end = one.named(last)
                sides += [one.gain(end, b).side for b in one.baselines if b != end]
        return {
            "measured": {one.title: in_order(one) for one in found},
            **side_fields(sides),
            "reason": f"epoch times in order; {where(found)}",
        }

    return check


@asking_races(on_graph("amazon", PTS, PLAIN), not_raced("amazon"))
def amazon_close(claim: Claim, found: Sequence[RaceRecord]) -> Said:
    """PTS and DGC by its partition alone less than a tenth apart on Amazon."""
    ratios = {one.title: one.gain(PTS, PLAIN) for one in found}
    return {
        "measured": {name: f"{ratio.value:.2f}x" for name, ratio in ratios.items()},
        **side_fields(_close(ratio) for ratio in ratios.values()),
        "reason": f"PTS over DGC by chunks alone; {where(found)}",
    }


def _close(ratio: Ratio) -> int:
    """1 where an interval lies within a tenth of 1x, -1 where it lies outside, else 0."""
    if ratio.low is None or ratio.high is None:
        return 0
    if ratio.low > CLOSE or ratio.high < 1 / CLOSE:
        return -1
    return int(ratio.low >= 1 / CLOSE and ratio.high <= CLOSE)


def module(fast: str, slow: str) -> Check:
    """Check the gain of one module on real graphs; the paper does not say if its number is the
    mean or the best."""

    def check(claim: Claim, rows: Rows) -> Finding:
        found = running(whole(rows), fast, slow)
        if not found:
            return missing(NONE12)
        gains = {one: one.gain(slow, fast) for one in found}
        values = [gain.value for gain in gains.values()]
        top = max(gains, key=lambda one: gains[one].value)
        told = {"target": float(claim.value)}
        said = f"{min(values):.2f}x to {max(values):.2f}x {where(found)}{_given(found, fast)}"
        return Finding(
            readings={
                "mean": from_ratio(
                    ratio_over([(one, slow, fast) for one in found]), reason=said, **told
                ),
                "best": from_ratio(gains[top], reason=f"{top.title}; {said}", **told),
            }
        )

    return check


def _given(found: Sequence[RaceRecord], fast: str) -> str:
    """Gains of chunk fusion for each placement, beside that for chunks, in words."""
    fair = running(found, *FUSED, *FUSED.values())
    if fast != EXACT or not fair:
        return ""
    gains = {TITLES[b]: ratio_over([(one, b, FUSED[b]) for one in fair]).value for b in FUSED}
    told = ", ".join(f"{name} {gain:.2f}x" for name, gain in gains.items())
    return f"; fusion gains for the other placements: {told}"


def _with_fusion(rows: Rows) -> list[RaceRecord]:
    """Races of models that were raced on Stack, or a graph of its site, and on another graph."""
    found = running(raced(rows), PLAIN, EXACT)
    found = real(found) or found
    stack = {one.model for one in standing("stack", found)}
    several = {
        model for model in stack if len({one.dataset for one in found if one.model == model}) > 1
    }
    return [one for one in found if one.model in several]


@asking_races(
    _with_fusion,
    "chunk fusion was not raced on a graph of Stack's site and another; "
    "nox -s reproduce -- dgc --preset full does",
)
def stack_gains_most(claim: Claim, found: Sequence[RaceRecord]) -> Said:
    """Check the gain of chunk fusion on Stack against that on other graphs, by model."""
    (stack,) = {one.dataset for one in standing("stack", found)}
    gains: dict[str, dict[str, Ratio]] = {}
    for one in found:
        gains.setdefault(one.model, {})[one.dataset] = one.gain(PLAIN, EXACT)
    sides = [
        of[stack].against(gain) for of in gains.values() for n, gain in of.items() if n != stack
    ]
    return {
        "measured": {
            MODEL_TITLES[model]: ", ".join(
                f"{dataset_title(n)} {gain.value:.2f}x" for n, gain in of.items()
            )
            for model, of in gains.items()
        },
        **side_fields(sides),
        "reason": f"gain of chunk fusion; {where(found)}",
    }
