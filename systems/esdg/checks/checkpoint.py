"""Claims on the gradient checkpoint and the first layer (3.1, 3.2, 5.5, 6.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dgbench.lab.compare import Ratio
from dgbench.lab.evidence import finding, missing
from dgbench.lab.table import Table, number, rows_of
from dgbench.lab.verbs import turns_gain
from dgbench.systems.base import Claim, Finding
from dgbench.systems.esdg.experiments.memory import (
    COST_TITLES,
    SHARES,
    block_counts,
    least_ranks,
    peak,
)
from dgbench.systems.esdg.experiments.memory_points import weighed
from dgbench.systems.esdg.experiments.settings import BY_NAME, MODEL_TITLES

NONE: Final = "the experiment 'memory' did not run"
WAYS: Final = ("ours", "paper")
FORMULA: Final = "memory formula"
UNTOLD: Final = "what the authors' program took beside it on its GPUs is not printed"
WITHIN: Final = 0.1
"""Relative tolerance of a measured peak against its plan."""


def _sizes(rows: Sequence[Any]) -> list[Any]:
    return rows_of(rows, experiment="memory", part="sizes")


def _swept(rows: Sequence[Any]) -> list[Any]:
    return rows_of(rows, experiment="memory", part="sweep")


def least_devices(rows: Sequence[Any], method: str, of: str) -> dict[str, int | None]:
    """The fewest GPUs of each configuration, `whole` or in blocks (`best`); None: not on 128."""
    return {
        f"{MODEL_TITLES[row.params['model']]} {title}": ranks
        for row in rows
        for title, ranks in least_ranks(row, method, of).items()
    }


def _shown(least: dict[str, int | None]) -> str:
    found = [p for p in least.values() if p is not None]
    some = f"{min(found)} to {max(found)} GPUs" if found else "no number of GPUs"
    return some + (", some on none" if len(found) < len(least) else "")


def oom_below(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Most configurations need the printed number of GPUs without checkpoint, by each formula."""
    found = _sizes(rows)
    if not found:
        return missing(NONE)
    limit = int(claim.value)
    readings = {}
    for cost, title in COST_TITLES.items():
        least = least_devices(found, cost, "whole")
        need = sum(p is None or p >= limit for p in least.values())
        readings[title] = finding(
            found,
            model=FORMULA,
            measured=f"{need} of {len(least)} configurations need {limit} GPUs or more",
            holds=need > len(least) / 2,
            reason=f"they fit on {_shown(least)}",
        )
    return Finding(readings=readings, reason=UNTOLD)


def oom_node(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Nothing runs on a node without checkpoint, everything on less than one with it, by each
    formula."""
    found = _sizes(rows)
    if not found:
        return missing(NONE)
    at, below = (int(claim.value[key]) for key in ("baseline_fails_at", "checkpoint_runs_below"))
    readings = {}
    for cost, title in COST_TITLES.items():
        whole, best = (least_devices(found, cost, what) for what in ("whole", "best"))
        fails = sum(p is None or p > at for p in whole.values())
        runs = sum(p is not None and p < below for p in best.values())
        readings[title] = finding(
            found,
            model=FORMULA,
            measured=(
                f"without checkpoint {fails} of {len(whole)} fail on {at} GPUs, with it {runs} run "
                f"on fewer than {below}"
            ),
            holds=fails == len(whole) and runs == len(best),
            reason=f"with checkpoint they run from {_shown(best)}, without from {_shown(whole)}",
        )
    return Finding(readings=readings, reason=UNTOLD)


def block_memory(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Measured peaks against bsize * m_step + nb * m_ckpt."""
    found = weighed(rows)
    if not found:
        return missing(NONE)
    gaps, ratios = [], []
    for row in found:
        for where in [{"setting": s, "blocks": n} for n in block_counts(row) for s in WAYS]:
            planned = number(row, "estimate", of="memory", method="planned", **where)
            gaps.append(abs(peak(row, **where) / planned - 1))
        layout = {"of": "memory", "setting": "layout", "method": "formula"}
        top = number(row, "memory", of="peak", setting="layout")
        ratios.append(top / number(row, "estimate", **layout))
    return finding(
        found,
        model=FORMULA,
        measured=f"peaks within {100 * max(gaps):.1f} % of one block plus the borders",
        holds=max(gaps) <= WITHIN,
        reason=(
            f"{len(gaps)} settings; matrices held as the paper's, one block takes "
            f"{min(ratios):.3g} to {max(ratios):.3g} times 20 nnz + 4 N (widths)"
        ),
    )


def fewer_blocks(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Epoch with the most blocks over that with one, the paper's way, for each model."""
    found = _swept(rows)
    if not found:
        return missing(NONE)
    ratios = [
        (f"{name} {n} blocks", turns_gain(mine, baseline="paper", blocks=n), mine)
        for name, mine in _by_name(found).items()
        for n in block_counts(mine[0])[1:]
    ]
    return _all_above(
        ratios,
        lacking="no row has several numbers of blocks",
        reason="epoch over that with one block, every block run twice",
    )


def transfer_twice(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Check the number of transfers of a snapshot per epoch, counted where it arrives."""
    found = _swept(rows)
    if not found:
        return missing(NONE)
    times, lean = (
        [
            number(row, "snapshots", of="brought", setting=way, blocks=n) / number(row, "snapshots")
            for row in found
            for n in block_counts(row)
        ]
        for way in ("paper", "ours")
    )
    each = set(times)
    return finding(
        found,
        measured=max(each) if len(each) == 1 else sorted(each),
        holds=each == {float(claim.value)},
        target=float(claim.value),
        reason=(
            "matrices sent per snapshot and epoch; a first pass that brings only what borders "
            f"need sends {min(lean):.3g} to {max(lean):.3g}"
        ),
    )


def blocks_tuned(claim: Claim, rows: Sequence[Any]) -> Finding:
    """The fewest blocks that a budget allows are taken, and the budget is kept."""
    found = rows_of(rows, experiment="memory", part="budget")
    if not found:
        return missing(NONE)
    shown, right = [], True
    for row in found:
        for share in SHARES:
            sizes = Table.of([row]).where("memory", budget_share=share).numbers("of")
            budget = sizes["budget"]
            fits = sizes["planned"] <= budget and sizes["peak"] <= (1 + WITHIN) * budget
            right = right and fits and sizes.get("fewer", budget + 1) > budget
            shown.append(number(row, "timeline_blocks", budget_share=share))
    return finding(
        found,
        model=FORMULA,
        measured=f"{min(shown)} to {max(shown)} blocks, by budget",
        holds=right,
        reason="the fewest blocks whose plan fits; measured peaks keep the budget within a tenth",
    )


def precompute(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Epoch with the first aggregation in it over that without, of every model."""
    found = rows_of(rows, experiment="ablation", kind="precompute")
    ratios = [
        (f"{name}{words}", turns_gain(mine, setting=setting), mine)
        for name, mine in _by_name(found).items()
        for setting, words in (("precompute", ""), ("plain, precompute", ", all else off"))
    ]
    return _all_above(
        ratios,
        lacking="the experiment 'ablation' did not run",
        reason="epoch with the first layer's product in it over that without",
    )


def _by_name(rows: Sequence[Any]) -> dict[str, list[Any]]:
    """Rows of all processes by model and graph, in words."""
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(_name(row), []).append(row)
    return found


def _all_above(
    ratios: Sequence[tuple[str, Ratio | None, Sequence[Any]]], *, lacking: str, reason: str
) -> Finding:
    """Holds where every ratio's interval lies above 1x, fails where one lies below.

    A ratio without values takes no part.
    """
    known = [(name, ratio, mine) for name, ratio, mine in ratios if ratio is not None]
    if not known:
        return missing(lacking)
    rows = list({row.id: row for _, _, mine in known for row in mine}.values())
    below = [name for name, ratio, _ in known if ratio.side < 0]
    open_ = [name for name, ratio, _ in known if ratio.side == 0]
    values = [ratio.value for _, ratio, _ in known]
    words = reason
    if below:
        words += f"; below 1x: {', '.join(below)}"
    if open_:
        words += f"; undecided: {', '.join(open_)}"
    return finding(
        rows,
        measured=f"{min(values):.3g}x to {max(values):.3g}x",
        holds=not below and not open_,
        undecided=bool(open_) and not below,
        reason=words,
        processes=min(ratio.processes for _, ratio, _ in known),
    )


def _name(row: Any) -> str:
    return f"{MODEL_TITLES[row.params['model']]} on {BY_NAME[row.params['dataset']].title}"
