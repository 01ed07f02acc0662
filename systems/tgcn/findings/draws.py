"""Findings on single draws: sections 2.3, 2.4 and 3, Figure 8."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from dgbench.lab.compare import Ratio
from dgbench.lab.paper import Claim
from dgbench.lab.table import Table, number
from dgbench.lab.verbs import Judge, last, rows_with
from dgbench.systems.tgcn.experiments import fig8
from dgbench.systems.tgcn.experiments.fig8 import HALF, READY, REPLACED, counted, growth_of
from dgbench.systems.tgcn.findings.common import Fields, Rows, geometric_mean, multiple
from dgbench.systems.tgcn.methods import TITLES as METHODS

NEEDS_FIG8: Final = "needs the experiment fig8"
DRAWN = rows_with(fig8.NAME, NEEDS_FIG8, last, weights="equal")
"""The row of equal weights, which has the frontiers too."""
ALL_DRAWN = rows_with(fig8.NAME, NEEDS_FIG8)
LITTLE: Final = 2.0
"""Factor of a draw's time for ten times the set, up to which it rises only a little."""
STRONG: Final = 3.0
"""Factor from which it grows strongly; linear is 10, its root 3.2."""
NEAR: Final = 2.0
"""Factor up to which counts are proportional to the set."""
FORMS: Final = {
    "ITS scan": ("its_linear", READY),
    "ITS list": ("its_list", HALF),
    "ITS rebuild": ("its_rebuild", READY),
    "ITS bitmap": ("its_bitmap", READY),
    "BRS, frontier": ("brs", REPLACED),
    "BRS, set": ("brs", READY),
}
"""Interpretations of ITS and BRS. A list of the taken is short until much of the set is drawn."""


def per_decade(growth: Mapping[int, Ratio]) -> float | None:
    """Factor of a draw's time for ten times the set, on average; None where nothing was raced."""
    return geometric_mean(one.value for one in growth.values()) if growth else None


def growth_by_form(row: Any) -> dict[str, float]:
    """`per_decade` of each form of ITS and BRS."""
    known = {name: per_decade(growth_of(row, *form)) for name, form in FORMS.items()}
    return {name: factor for name, factor in known.items() if factor is not None}


def sis_flat(claim: Claim, rows: Rows) -> Fields:
    """A draw of SIS from each size to ten times that, with and without building."""
    measured: dict[str, str] = {}
    ratios: list[Ratio] = []
    for setting, words in ((READY, "tree ready"), (HALF, "built for half")):
        growth = growth_of(rows[0], "sis", setting)
        ratios += growth.values()
        measured[words] = ", ".join(f"{r.value:.2f}x to {n:,}" for n, r in growth.items())
    return {
        "measured": measured,
        "holds": all((r.value if r.low is None else r.low) <= LITTLE for r in ratios),
        "direction": max(r.value for r in ratios) <= STRONG,
        "reason": f"for ten times the elements; little is up to {LITTLE:g}x, noise allowed for",
    }


def others_grow(claim: Claim, rows: Rows) -> Fields:
    """The same for every form of ITS and for BRS on a set and on a frontier."""
    factors = growth_by_form(rows[0])
    flat = [name for name, factor in factors.items() if factor < STRONG]
    return {
        "measured": {name: multiple(factor, ".1f") for name, factor in factors.items()},
        "holds": not flat,
        "direction": len(flat) < len(factors),
        "reason": f"for ten times the elements; not {', '.join(flat)}" if flat else "",
    }


def scales_best(claim: Claim, rows: Rows) -> Fields:
    """Growth of SIS against that of every form."""
    own = per_decade(growth_of(rows[0], "sis", READY))
    assert own is not None
    factors = growth_by_form(rows[0])
    better = [name for name, factor in factors.items() if factor <= own]
    return {
        "measured": {name: multiple(factor) for name, factor in {"SIS": own, **factors}.items()},
        "holds": not better,
        "direction": len(better) < len(factors) / 2,
        "reason": "for ten times the elements"
        + (f"; {', '.join(better)} no worse" if better else ""),
    }


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


def brs_linear(claim: Claim, rows: Rows) -> Fields | None:
    """Elements that a step of BRS on a frontier reads."""
    read, steps = counted(rows[0], "brs", "read", REPLACED), counted(rows[0], "brs", "steps")
    if not read:
        return None
    return {
        "measured": f"elements read a step: {by_size(read)}",
        "holds": proportional(read),
        "reason": "the prefix sums of a frontier are formed anew after each step; on a set that "
        f"nothing enters a draw reads none and takes {by_size(steps)} steps",
    }


def its_linear(claim: Claim, rows: Rows) -> Fields:
    """Elements that a draw reads, by form of ITS."""

    def half(method: str, what: str) -> float:
        each = counted(rows[0], method, what, HALF)
        return each[max(each)]

    read = counted(rows[0], "its_linear", "read")
    return {
        "measured": f"elements read a draw by a scan: {by_size(read)}",
        "holds": proportional(read),
        "reason": "so it is with a scan, with a list of what is taken "
        f"({half('its_list', 'read'):.3g} read a draw) and with sums formed anew; with a bitmap "
        f"half a set of equal weights needs {1 + half('its_bitmap', 'redraws'):.2f} numbers a draw "
        f"and no reading, with alias tables {1 + half('alias', 'redraws'):.2f}",
    }


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


def total_complexity(claim: Claim, rows: Rows) -> Fields:
    """Steps of a draw of SIS, and what draws of ITS and steps of BRS read."""
    row = rows[0]
    own = counted(row, "sis", "steps")
    forms = {
        METHODS[name]: proportional(counted(row, name, "read"))
        for name in ("its_linear", "its_rebuild", "its_bitmap")
    }
    forms["BRS, frontier"] = proportional(counted(row, "brs", "read", REPLACED))
    forms["BRS, set"] = proportional(counted(row, "brs", "read"))
    flat = [name for name, linear in forms.items() if not linear]
    return {
        "measured": {
            "SIS": f"{by_size(own)} levels",
            "linear": ", ".join(name for name, linear in forms.items() if linear),
            "not linear": ", ".join(flat) or "none",
        },
        "holds": logarithmic(own, 2) and not flat,
        "direction": logarithmic(own, 2) and len(flat) < len(forms),
        "reason": "search and change of SIS; building its tree is linear and comes on top. Which "
        "form of ITS is meant is not said",
    }


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
