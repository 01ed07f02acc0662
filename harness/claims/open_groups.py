"""Groups of cells that need more rounds: something that is undecided rests on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dgbench.harness.claims.evaluate import evaluate
from dgbench.harness.claims.verdict import Verdict
from dgbench.harness.plan import GroupKey
from dgbench.harness.terminal.answer import answers
from dgbench.lab.compare import Ratio
from dgbench.lab.judging import judging
from dgbench.lab.noise import NoisePairs


def open_groups(papers: Sequence[Any], rows: Sequence[Any]) -> set[GroupKey]:
    """Groups that an undecided claim or answer in words rests on.

    Of a claim these are the groups with a deciding ratio (`Judging.deciding`) whose interval holds
    an end of the noise band; where none of them does and none lies inside the band, all that it
    rests on: the intervals of several ratios meet. Ratios inside the band are decided: more rounds
    would not part them. Of answers they are the groups of the ratios that they say the side of and
    that hold an end of the band. Without a noise floor no round decides anything, and no group is
    open.

    Args:
        papers: whose claims and answers. rows: all rows of the run.
    """
    noise = NoisePairs.of(rows)
    if noise.of_run() is None:
        return set()
    where: dict[str, GroupKey] = {row.id: (row.paper, row.experiment, row.group) for row in rows}
    found: set[str] = set()
    for paper in papers:
        judged = evaluate(paper, rows)
        for verdict in judged.verdicts:
            if is_open(verdict):
                found |= _rows_to_repeat(verdict, judged.deciding.get(verdict.id, ()))
        with judging(noise.floor(paper)) as context:
            answers([paper], rows)
        found.update(row for ratio in context.asked if ratio.open for row in ratio.rows)
    return {where[row] for row in found if row in where}


def is_open(verdict: Verdict) -> bool:
    """Return True if more rounds may change a verdict on a timed quantity: it is undecided, or its
    interval holds an end of the tolerance around the paper's value."""
    if verdict.source != "timed":
        return False
    if verdict.agreement == "undecided" or "undecided" in verdict.readings.values():
        return True
    low, high, target, tolerance = verdict.low, verdict.high, verdict.target, verdict.tolerance
    if low is None or high is None or target is None or tolerance is None or not verdict.agreement:
        return False
    edges = (target - abs(target) * tolerance, target + abs(target) * tolerance)
    return any(low < edge < high for edge in edges)


def _rows_to_repeat(verdict: Verdict, ratios: Iterable[Ratio]) -> set[str]:
    rows = set(verdict.rows)
    mine = [ratio for ratio in ratios if rows.issuperset(ratio.rows)]
    unsettled = {row for ratio in mine if ratio.open for row in ratio.rows}
    settled = bool(mine) and verdict.agreement == "undecided" and not all(r.side for r in mine)
    return unsettled or (set() if settled else rows)
