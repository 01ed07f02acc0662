"""Claims on accuracy (sections 1 and 6.1, Figures 10 and 11).

Accuracy hangs on no device, but GDELT is not held: what real graphs of other kinds show is an
analogue. A trend is decided by 95 % intervals over paired rounds, never by values alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from dgbench.lab.evidence import finding, missing, some
from dgbench.lab.table import number
from dgbench.runtime.statistics import pooled_ratio
from dgbench.systems.base import Claim, Finding
from dgbench.systems.gnnflow.experiments import fig10, fig11
from dgbench.systems.gnnflow.experiments.accuracy_runs import PairedDifference
from dgbench.systems.gnnflow.experiments.settings import MODEL_TITLES, graph_title

Rows = Sequence[Any]

NONE10: Final = "no finetuning by epochs: the experiment 'fig10' did not run"
NONE11: Final = "no schedules of retraining: the experiment 'fig11' did not run"
GROWTH: Final = 2.0
"""Times the time of one epoch that four take at least, to be a clear rise."""
ALIKE: Final = 1.25
"""Factor between two times that are still about the same."""


def _models(rows: Rows, of: Any) -> dict[str, list[Any]]:
    """Rows by model, those that ran."""
    found = {model: of.runs(rows, model) for model in of.MODELS}
    return {model: mine for model, mine in found.items() if mine}


def _used(by_model: dict[str, list[Any]]) -> list[Any]:
    return [row for mine in by_model.values() for row in mine]


def _on(rows: Rows) -> str:
    """Where it was found: graphs, rounds, runs."""
    graphs = ", ".join(dict.fromkeys(graph_title(row.params["dataset"]) for row in rows))
    return f"{graphs}: {some(len(rows), 'run')} of {number(rows[0], 'rounds', of=None)} rounds"


def diminishing(claim: Claim, rows: Rows) -> Finding:
    """The gain from three epochs to four is below that from one to two, and time has doubled."""
    found = _models(rows, fig10)
    if not found:
        return missing(NONE10)
    said: dict[str, Any] = {}
    smaller, rising, open_ = [], [], []
    for model, mine in found.items():
        first, last = fig10.gain(mine, 1, 2), fig10.gain(mine, 3, 4)
        growth = fig10.times(mine, 4) / fig10.times(mine, 1)
        said[MODEL_TITLES[model]] = f"1 to 2 {first}, 3 to 4 {last} points; {growth:.1f}x the time"
        shrunk = PairedDifference(
            first.value - last.value,
            (first.error**2 + last.error**2) ** 0.5,
            min(first.n, last.n),
        )
        smaller.append(shrunk.side >= 0)
        rising.append(growth >= GROWTH)
        open_ += [MODEL_TITLES[model]] if shrunk.side == 0 else []
    holds = all(smaller) and all(rising)
    return finding(
        _used(found),
        measured=said,
        holds=holds,
        undecided=bool(open_) and holds,
        reason=f"{_on(_used(found))}" + (f"; open: {', '.join(open_)}" if open_ else ""),
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
        holds=all(gain.side < 0 for gain in steps.values()),
        undecided=any(gain.side == 0 for gain in steps.values())
        and not any(gain.side > 0 for gain in steps.values()),
        reason=_on(_used(found)),
    )


def sweet_spot(claim: Claim, rows: Rows) -> Finding:
    """A second or third epoch gains, a fourth does not."""
    found = _models(rows, fig10)
    if not found:
        return missing(NONE10)
    said: dict[str, Any] = {}
    early, late = [], []
    for model, mine in found.items():
        gains = [fig10.gain(mine, 1, 2), fig10.gain(mine, 1, 3)]
        last = fig10.gain(mine, 3, 4)
        said[MODEL_TITLES[model]] = f"1 to 3 {gains[1]}, 3 to 4 {last} points"
        early.append(max(gain.side for gain in gains))
        late.append(last.side)
    holds = all(side > 0 for side in early) and all(side <= 0 for side in late)
    wrong = any(side < 0 for side in early) or any(side > 0 for side in late)
    return finding(
        _used(found),
        measured=said,
        holds=holds,
        undecided=not holds and not wrong,
        reason=_on(_used(found)),
    )


def epochs_per_round(claim: Claim, rows: Rows) -> Finding:
    """The most accurate number of epochs is two or three, by intervals against one and four."""
    found = _models(rows, fig10)
    if not found:
        return missing(NONE10)
    said: dict[str, Any] = {}
    inside, open_ = [], []
    for model, mine in found.items():
        best = max(fig10.EPOCHS, key=lambda epochs, mine=mine: fig10.accuracy(mine, epochs))
        inner = max((2, 3), key=lambda epochs, mine=mine: fig10.accuracy(mine, epochs))
        said[MODEL_TITLES[model]] = best
        inside.append(best == inner)
        rivals = (1, 4) if best == inner else (best,)
        if any(fig10.gain(mine, rival, inner).side == 0 for rival in rivals):
            open_.append(MODEL_TITLES[model])
    return finding(
        _used(found),
        measured=said,
        holds=all(inside),
        undecided=bool(open_),
        reason=f"most accurate epochs of a round; {_on(_used(found))}",
    )


def accuracy_gap(claim: Claim, rows: Rows) -> Finding:
    """The largest lead of retraining every round over TGL's schedule, in points."""
    found = _models(rows, fig11)
    if not found:
        return missing(NONE11)
    leads = {m: fig11.lead(mine, fig11.OFTEN, fig11.SELDOM) for m, mine in found.items()}
    largest = {m: max(max(fig11.gaps(row)) for row in mine) for m, mine in found.items()}
    sides = [lead.side for lead in leads.values()]
    return finding(
        _used(found),
        measured={
            MODEL_TITLES[m]: f"up to {largest[m]:.1f}, mean {lead}" for m, lead in leads.items()
        },
        direction=all(side > 0 for side in sides),
        undecided=any(side == 0 for side in sides) and all(side >= 0 for side in sides),
        reason=f"points of average precision; {_on(_used(found))}",
    )


def always_ahead(claim: Claim, rows: Rows) -> Finding:
    """No round on which TGL's schedule is ahead by more than a round's own noise."""
    found = _models(rows, fig11)
    if not found:
        return missing(NONE11)
    said: dict[str, Any] = {}
    ahead, clearly_behind = [], False
    for model, mine in found.items():
        gaps = [gap for row in mine for gap in fig11.gaps(row)]
        # Twice the standard error of a mean of scores that spread by a half, in points.
        noise = 100 / min(number(row, "events", of="round") for row in mine) ** 0.5
        clearly_behind |= min(gaps) < -noise
        ahead.append(min(gaps) >= 0)
        share = sum(gap >= 0 for gap in gaps) / len(gaps)
        said[MODEL_TITLES[model]] = f"on {share:.0%} of rounds, at worst {min(gaps):+.1f} points"
    return finding(
        _used(found),
        measured=said,
        holds=all(ahead),
        undecided=not all(ahead) and not clearly_behind,
        reason=_on(_used(found)),
    )


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
    return finding(
        mine,
        measured=said,
        holds=whole.side > 0 and all(step.side >= 0 for step in steps),
        undecided=whole.side == 0,
        reason=f"TGAT, old events per new one; {_on(mine)}",
    )


def tgl_jump(claim: Claim, rows: Rows) -> Finding:
    """TGL's curve makes up some of its lag at every retraining."""
    found = _models(rows, fig11)
    if not found:
        return missing(NONE11)
    jumps = {m: [j for row in mine for j in fig11.jumps(row)] for m, mine in found.items()}
    every = [jump for mine in jumps.values() for jump in mine]
    if not every:
        return missing("no round follows a retraining of TGL in this run")
    return finding(
        _used(found),
        measured={
            MODEL_TITLES[m]: ", ".join(f"{j:+.1f}" for j in mine) for m, mine in jumps.items()
        },
        holds=all(jump > 0 for jump in every),
        undecided=min(every) <= 0 < max(every),
        reason=f"points of its lag made up at each retraining; {_on(_used(found))}",
    )


def no_retrain(claim: Claim, rows: Rows) -> Finding:
    """The curve of a model that is never trained again is there to compare with."""
    found = _models(rows, fig11)
    if not found:
        return missing(NONE11)
    leads = {m: fig11.lead(mine, fig11.OFTEN, fig11.NEVER) for m, mine in found.items()}
    there = all(
        len(fig11.series(row, setting=fig11.NEVER)) == number(row, "rounds", of=None)
        for row in _used(found)
    )
    return finding(
        _used(found),
        measured={
            MODEL_TITLES[m]: f"retraining every round leads by {lead} points"
            for m, lead in leads.items()
        },
        holds=there,
        reason=f"trained on the first 30 % only; {_on(_used(found))}",
    )


def equal_budget(claim: Claim, rows: Rows) -> Finding:
    """A retraining of TGL takes about as long as GNNFlow's on the rounds that it covers."""
    found = _models(rows, fig11)
    if not found:
        return missing(NONE11)
    said: dict[str, Any] = {}
    alike, apart = [], []
    for model, mine in found.items():
        ratio = pooled_ratio([fig11.budgets(row) for row in mine])
        low, high = (end if end is not None else ratio.value for end in (ratio.low, ratio.high))
        spacing, rounds = (number(mine[0], "rounds", of=of) for of in ("between retrainings", None))
        said[MODEL_TITLES[model]] = (
            f"TGL {ratio.value:.2f}x GNNFlow"
            + (f" [{low:.2f}, {high:.2f}]" if ratio.low is not None else "")
            + f", {spacing} of {rounds} rounds at once"
        )
        alike.append(ratio.low is not None and low >= 1 / ALIKE and high <= ALIKE)
        apart.append(ratio.low is not None and (high < 1 / ALIKE or low > ALIKE))
    return finding(
        _used(found),
        measured=said,
        holds=all(alike),
        undecided=not all(alike) and not any(apart),
        reason="TGL trains one epoch on all events since its last time, after one rebuild; "
        "rebuilds that scoring needs in between are left out",
    )
