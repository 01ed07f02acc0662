"""Findings on single draws: sections 2.3, 2.4 and 3, Figure 8.

Which form of inverse transform sampling (ITS) the paper means, and whether bipartite region search
(BRS) works on a set or on a frontier, is not said: every form is a reading.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from dgbench.lab.compare import Ratio
from dgbench.lab.paper import Check, Claim
from dgbench.lab.table import Table, number
from dgbench.lab.verbs import Judge, last, readings, rows_with, says
from dgbench.systems.tgcn.experiments import fig8
from dgbench.systems.tgcn.experiments.fig8 import (
    HALF,
    READY,
    REPLACED,
    counted,
    growth_of,
    per_decade,
)
from dgbench.systems.tgcn.findings.common import Fields, Rows, beyond, decided, shown

NEEDS_FIG8: Final = "needs the experiment fig8"
DRAWN = rows_with(fig8.NAME, NEEDS_FIG8, last, weights="equal")
"""The last row of equal weights, which has the frontiers too: all processes count the same."""
TIMED = rows_with(fig8.NAME, NEEDS_FIG8, weights="equal")
ALL_DRAWN = rows_with(fig8.NAME, NEEDS_FIG8)
LITTLE: Final = 2.0
"""Factor of a draw's time for ten times the set, up to which it rises only a little."""
STRONG: Final = 3.0
"""Factor from which it grows strongly; linear is 10, its root 3.2."""
NEAR: Final = 2.0
"""Factor up to which counts are proportional to the set."""
ITS_FORMS: Final = {
    "ITS scan": ("its_linear", READY),
    "ITS list": ("its_list", HALF),
    "ITS rebuild": ("its_rebuild", READY),
    "ITS bitmap": ("its_bitmap", READY),
}
"""Forms of ITS. A list of the taken is short until much of the set is drawn."""
BRS_FORMS: Final = {"BRS on a frontier": ("brs", REPLACED), "BRS on a set": ("brs", READY)}
FORMS: Final = {**ITS_FORMS, **BRS_FORMS}

DrawForm = tuple[str, str]


def sis_flat(claim: Claim, rows: Rows) -> Fields:
    """A draw of SIS from each size to ten times that, with and without building."""
    measured: dict[str, str] = {}
    ratios: list[Ratio] = []
    for setting, words in ((READY, "tree ready"), (HALF, "built for half")):
        growth = growth_of(rows, "sis", setting)
        ratios += growth.values()
        measured[words] = ", ".join(f"{r.value:.2f}x to {n:,}" for n, r in growth.items())
    return {
        "measured": measured,
        "reason": f"for ten times the elements; little is up to {LITTLE:g}x",
        **decided(-beyond(one, LITTLE) for one in ratios),
    }


def grows(form: DrawForm) -> Judge:
    """Growth of a draw of a form of ITS or BRS for ten times the set."""

    def judge(claim: Claim, rows: Rows) -> Fields | None:
        ratio = per_decade(rows, *form)
        if ratio is None:
            return None
        reason = f"for ten times the elements; a lot is {STRONG:g}x and more"
        return {**shown(ratio), "reason": reason, **decided([beyond(ratio, STRONG)])}

    return judge


def scales_better(form: DrawForm) -> Judge:
    """Growth of a draw of a form of ITS or BRS against that of SIS."""

    def judge(claim: Claim, rows: Rows) -> Fields | None:
        own, other = per_decade(rows, "sis", READY), per_decade(rows, *form)
        if own is None or other is None:
            return None
        return {
            "measured": f"{other.value:.2f}x, SIS {own.value:.2f}x",
            "reason": "for ten times the elements",
            "processes": min(own.processes, other.processes),
            **decided([other.against(own)]),
        }

    return judge


others_grow: Final[Check] = readings(
    **{name: says(TIMED, grows(form)) for name, form in FORMS.items()}
)
scales_best: Final[Check] = readings(
    **{name: says(TIMED, scales_better(form)) for name, form in FORMS.items()}
)


def proportional(touched: Mapping[int, float]) -> bool:
    """Return True if counts per element are alike at all sizes."""
    shares = [count / size for size, count in touched.items()]
    return min(shares) > 0 and max(shares) <= NEAR * min(shares)


def logarithmic(touched: Mapping[int, float], per_level: float) -> bool:
    """Return True if counts are at most `per_level` per level of a binary tree and one more."""
    return all(count <= per_level * (math.ceil(math.log2(n)) + 1) for n, count in touched.items())


def by_size(touched: Mapping[int, float]) -> str:
    """Counts in words, by size."""
    return ", ".join(f"{count:.3g} of {size:,}" for size, count in touched.items())


def work_of(rows: Rows, form: DrawForm) -> dict[int, float]:
    """Nodes and elements that a draw of a form passes, by size."""
    steps, read = (counted(rows[0], form[0], what, form[1]) for what in ("steps", "read"))
    return {size: steps[size] + read[size] for size in steps}


def brs_linear(claim: Claim, rows: Rows) -> Fields | None:
    """Elements that a step of BRS on a frontier reads."""
    read = counted(rows[0], "brs", "read", REPLACED)
    if not read:
        return None
    return {
        "measured": f"elements read a step: {by_size(read)}",
        "holds": proportional(read),
        "reason": "the prefix sums of a frontier are formed anew after each step; on a set that "
        f"nothing enters a draw takes {by_size(work_of(rows, BRS_FORMS['BRS on a set']))}",
    }


def linear(form: DrawForm) -> Judge:
    """Count what a draw of a form of ITS passes, against the size of the set."""

    def judge(claim: Claim, rows: Rows) -> Fields | None:
        work = work_of(rows, form)
        if not work:
            return None
        redraws = counted(rows[0], form[0], "redraws", HALF)
        return {
            "measured": f"nodes and elements a draw: {by_size(work)}",
            "holds": proportional(work),
            "reason": f"half a set needs {1 + redraws[max(redraws)]:.2f} numbers a draw",
        }

    return judge


its_linear: Final[Check] = readings(
    **{
        name: says(DRAWN, linear(form))
        for name, form in {**ITS_FORMS, "alias tables": ("alias", READY)}.items()
    }
)


def levels(of: str) -> Judge:
    """Steps of a search or of a change against the levels of a binary tree."""

    def judge(claim: Claim, rows: Rows) -> Fields:
        found = Table.of(rows).where("draw_work", of=of).numbers("size")
        steps = {size: float(found[size]) for size in sorted(found)}
        return {
            "measured": f"levels passed: {by_size(steps)}",
            "holds": logarithmic(steps, 1),
            "reason": "one for each halving of the set, in a binary tree",
        }

    return judge


def total_of(its: DrawForm, brs: DrawForm) -> Judge:
    """Steps of a draw of SIS, and what a draw of forms of ITS and BRS passes."""

    def judge(claim: Claim, rows: Rows) -> Fields | None:
        own = counted(rows[0], "sis", "steps")
        others = [work_of(rows, form) for form in (its, brs)]
        if not all(others):
            return None
        return {
            "measured": {
                name: by_size(each)
                for name, each in zip(("SIS", "ITS", "BRS"), (own, *others), strict=True)
            },
            "holds": logarithmic(own, 2) and all(map(proportional, others)),
            "reason": "search and change of SIS; building its tree is linear and comes on top",
        }

    return judge


_FRONTIER, _SET = BRS_FORMS
total_complexity: Final[Check] = readings(
    **{
        f"{name}, {brs}": says(DRAWN, total_of(ITS_FORMS[name], BRS_FORMS[brs]))
        for name, brs in [*((name, _FRONTIER) for name in ITS_FORMS), ("ITS scan", _SET)]
    }
)


def no_repeats(claim: Claim, rows: Rows) -> Fields:
    """Draws of SIS that hit what was taken, of all draws of the run."""
    found = Table.of(rows).where("draw_work")
    repeats = {
        method: sum(found.where(of="redraws", method=method).values)
        for method in ("sis", "its_bitmap", "alias")
    }
    draws = sum(found.where(of="draws", method="sis").values)
    return {
        "measured": f"{repeats['sis']} of {draws:,} draws",
        "holds": repeats["sis"] == 0,
        "reason": f"with a bitmap ITS repeats {repeats['its_bitmap']:,}, alias tables "
        f"{repeats['alias']:,} in as many",
    }


def tree_example(claim: Claim, rows: Rows) -> Fields:
    """Sums that change when element 4 of eight gets another weight."""
    changed, path = (number(rows[0], "draw_work", of=of) for of in ("changed", "path"))
    return {
        "measured": f"{changed} of 15 sums",
        "holds": changed == path == 4,
        "reason": "those over e4, e4 to e5, e4 to e7 and e0 to e7: a path from leaf to root",
    }
