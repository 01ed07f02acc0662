"""Claims on accuracy (sections 1 and 6.1, Figures 10 and 11).

Accuracy hangs on no device, but GDELT is not held: real graphs of other kinds are weak evidence. A
trend is decided by 95 % intervals over seeds, each of which gives one mean over its rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

from dgbench.lab.evidence import finding, missing, some
from dgbench.lab.table import number
from dgbench.systems.base import Claim, Finding
from dgbench.systems.gnnflow.experiments import fig10, fig11
from dgbench.systems.gnnflow.experiments.settings import MODEL_TITLES, graph_title

Rows = Sequence[Any]

NONE10: Final = "no finetuning by epochs: the experiment 'fig10' did not run"
NONE11: Final = "no schedules of retraining: the experiment 'fig11' did not run"
GROWTH: Final = 2.0
"""Times the time of one epoch that four take at least, to be a clear rise."""
NEAR: Final = 0.25
"""Relative distance up to which a lead counts as the printed one."""
ALIKE: Final = 1.25
"""Factor between two times that are still about the same."""


def _models(rows: Rows, of: Any) -> dict[str, list[Any]]:
    """Rows by model, those that ran."""
    found = {model: of.runs(rows, model) for model in of.MODELS}
    return {model: mine for model, mine in found.items() if mine}


def _used(by_model: dict[str, list[Any]]) -> list[Any]:
    return [row for mine in by_model.values() for row in mine]


def _on(rows: Rows) -> str:
    """Where it was found: graphs, seeds, rounds."""
    graphs = ", ".join(dict.fromkeys(graph_title(row.params["dataset"]) for row in rows))
    seeds = len({row.params["seed"] for row in rows})
    return f"{graphs}: {some(seeds, 'seed')}, {number(rows[0], 'rounds', of=None)} rounds"


def _sided(sides: Iterable[int]) -> dict[str, bool]:
    """Fields of a statement that has to hold for all models, from the side of each."""
    every = list(sides)
    return {
        "holds": all(side > 0 for side in every),
        "undecided": 0 in every and -1 not in every,
    }


def diminishing(claim: Claim, rows: Rows) -> Finding:
    """The gain from three epochs to four is below that from one to two, and time has doubled."""
    found = _models(rows, fig10)
    if not found:
        return missing(NONE10)
    said: dict[str, Any] = {}
    sides = []
    for model, mine in found.items():
        first, last = fig10.gain(mine, 1, 2), fig10.gain(mine, 3, 4)
        growth = fig10.times(mine, 4) / fig10.times(mine, 1)
        said[MODEL_TITLES[model]] = f"1 to 2 {first}, 3 to 4 {last} points; {growth:.1f}x the time"
        sides.append(fig10.shrinking(mine).side if growth >= GROWTH else -1)
    used = _used(found)
    return finding(
        used,
        measured=said,
        processes=len({row.params["seed"] for row in used}),
        reason=_on(used),
        **_sided(sides),
    )


def drop(claim: Claim, rows: Rows) -> Finding:
    """Four epochs are less accurate than three, for both models."""
    found = _models(rows, fig10)
    if not found:
        return missing(NONE10)
    steps = {model: fig10.gain(mine, 3, 4) for model, mine in found.items()}
    return finding(
        _used(found),
        measured={MODEL_TITLES[m]: f"3 to 4 {gain} points" for m, gain in steps.items()},
        reason=_on(_used(found)),
        **_sided(-gain.side for gain in steps.values()),
    )


def sweet_spot(claim: Claim, rows: Rows) -> Finding:
    """A second or third epoch gains, a fourth does not."""
    found = _models(rows, fig10)
    if not found:
        return missing(NONE10)
    said: dict[str, Any] = {}
    sides = []
    for model, mine in found.items():
        more, last = fig10.gain(mine, 1, 3), fig10.gain(mine, 3, 4)
        said[MODEL_TITLES[model]] = f"1 to 3 {more}, 3 to 4 {last} points"
        sides += [more.side, -1 if last.side > 0 else 1]
    return finding(_used(found), measured=said, reason=_on(_used(found)), **_sided(sides))


def epochs_per_round(claim: Claim, rows: Rows) -> Finding:
    """The most accurate number of epochs is two or three, by intervals against one and four."""
    found = _models(rows, fig10)
    if not found:
        return missing(NONE10)
    said: dict[str, Any] = {}
    sides = []
    for model, mine in found.items():
        inner = max((2, 3), key=lambda epochs, mine=mine: fig10.accuracy(mine, epochs))
        leads = [fig10.gain(mine, rival, inner) for rival in (1, 4)]
        best = max(fig10.EPOCHS, key=lambda epochs, mine=mine: fig10.accuracy(mine, epochs))
        said[MODEL_TITLES[model]] = f"{best}; {inner} over 1 {leads[0]}, over 4 {leads[1]} points"
        sides.append(min(lead.side for lead in leads))
    return finding(
        _used(found),
        measured=said,
        reason=f"most accurate epochs of a round; {_on(_used(found))}",
        **_sided(sides),
    )


def accuracy_gap(claim: Claim, rows: Rows) -> Finding:
    """The largest lead of retraining every round over TGL's schedule, in points."""
    found = _models(rows, fig11)
    if not found:
        return missing(NONE11)
    leads = {m: fig11.lead(mine, fig11.OFTEN, fig11.SELDOM) for m, mine in found.items()}
    largest = {m: max(one.value for one in fig11.by_round(mine)) for m, mine in found.items()}
    sides = _sided(lead.side for lead in leads.values())
    return finding(
        _used(found),
        measured={
            MODEL_TITLES[m]: f"up to {largest[m]:.1f}, mean {lead}" for m, lead in leads.items()
        },
        holds=sides["holds"]
        and all(abs(largest[m] / float(claim.value[MODEL_TITLES[m]]) - 1) <= NEAR for m in largest),
        direction=sides["holds"],
        undecided=sides["undecided"],
        reason=f"points of average precision, largest mean of a round; {_on(_used(found))}",
    )


def always_ahead(claim: Claim, rows: Rows) -> Finding:
    """Retraining every round is ahead in each of them, and TGL's schedule in none.

    Against it speaks a round in which TGL's schedule is clearly ahead, or a mean that is.
    """
    found = _models(rows, fig11)
    if not found:
        return missing(NONE11)
    said: dict[str, Any] = {}
    sides = []
    for model, mine in found.items():
        each = fig11.by_round(mine)
        worst = min(each, key=lambda one: one.value)
        share = sum(one.value >= 0 for one in each) / len(each)
        said[MODEL_TITLES[model]] = f"on {share:.0%} of rounds, at worst {worst} points"
        mean = fig11.lead(mine, fig11.OFTEN, fig11.SELDOM).side
        behind = mean < 0 or any(one.side < 0 for one in each)
        sides.append(-1 if behind else int(worst.value >= 0 and mean > 0))
    return finding(_used(found), measured=said, reason=_on(_used(found)), **_sided(sides))


def replay(claim: Claim, rows: Rows) -> Finding:
    """The more old events are trained on again, the more accurate."""
    mine = fig11.runs(rows, "tgat")
    if not mine:
        return missing(NONE11)
    names = [fig11.OFTEN, *map(fig11.replayed, fig11.RATIOS)]
    steps = [fig11.lead(mine, more, less) for less, more in pairwise(names)]
    whole = fig11.lead(mine, names[-1], names[0])
    ratios = (0.0, *fig11.RATIOS)
    said = {
        f"{a:.0%} to {b:.0%}": f"{step} points"
        for (a, b), step in zip(pairwise(ratios), steps, strict=True)
    }
    said["in all"] = f"{whole} points"
    worse = whole.side < 0 or any(step.side < 0 for step in steps)
    return finding(
        mine,
        measured=said,
        holds=whole.side > 0 and not worse,
        undecided=whole.side == 0 and not worse,
        reason=f"TGAT, old events per new one; {_on(mine)}",
    )


def tgl_jump(claim: Claim, rows: Rows) -> Finding:
    """TGL's curve makes up some of its lag at a retraining."""
    found = _models(rows, fig11)
    if not found:
        return missing(NONE11)
    jumps = {m: fig11.jumps(mine) for m, mine in found.items()}
    if any(math.isnan(jump.value) for jump in jumps.values()):
        return missing("no round follows a retraining of TGL in this run")
    return finding(
        _used(found),
        measured={MODEL_TITLES[m]: f"{jump} points" for m, jump in jumps.items()},
        reason=f"of its lag made up at a retraining; {_on(_used(found))}",
        **_sided(jump.side for jump in jumps.values()),
    )


def no_retrain(claim: Claim, rows: Rows) -> Finding:
    """The lead over a model that is never trained again."""
    found = _models(rows, fig11)
    if not found:
        return missing(NONE11)
    leads = {m: fig11.lead(mine, fig11.OFTEN, fig11.NEVER) for m, mine in found.items()}
    return finding(
        _used(found),
        measured={
            MODEL_TITLES[m]: f"retraining every round leads by {lead} points"
            for m, lead in leads.items()
        },
        reason=f"trained on the first 30 % only; {_on(_used(found))}",
    )


def equal_budget(claim: Claim, rows: Rows) -> Finding:
    """A retraining of TGL takes about as long as GNNFlow's on the rounds that it covers."""
    found = _models(rows, fig11)
    if not found:
        return missing(NONE11)
    said: dict[str, Any] = {}
    sides = []
    for model, mine in found.items():
        ratio = fig11.budgets(mine)
        if ratio is None:
            return missing("no retraining of TGL was timed in this run")
        low, high = (end if end is not None else ratio.value for end in (ratio.low, ratio.high))
        spacing, rounds = (number(mine[0], "rounds", of=of) for of in ("between retrainings", None))
        said[MODEL_TITLES[model]] = (
            f"TGL {ratio.value:.2f}x GNNFlow"
            + (f" [{low:.2f}, {high:.2f}]" if ratio.low is not None else "")
            + f", {spacing} of {rounds} rounds at once"
        )
        alike = low >= 1 / ALIKE and high <= ALIKE
        apart = high < 1 / ALIKE or low > ALIKE
        sides.append(0 if ratio.low is None else 1 if alike else -1 if apart else 0)
    return finding(
        _used(found),
        measured=said,
        processes=min(map(len, found.values())),
        reason="TGL trains one epoch on all events since its last time, after one rebuild; "
        "rebuilds that scoring needs in between are left out",
        **_sided(sides),
    )
