"""Claims on single draws: sections 2.3, 2.4 and 3, Figure 8."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dgbench.lab.compare import Ratio
from dgbench.lab.table import Table, rows_of
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.tgcn.checks.common import CPU_EVIDENCE, finding, missing
from dgbench.systems.tgcn.experiments.common import number
from dgbench.systems.tgcn.experiments.fig8 import (
    HALF,
    NAME,
    READY,
    REPLACED,
    counted,
    growth_of,
)
from dgbench.systems.tgcn.experiments.methods import TITLES

NEEDED: Final = "needs the experiment fig8"
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
"""What ITS and BRS may have been. A list of the taken is short until much of the set is drawn."""

Rows = Sequence[Any]


def _row(rows: Rows) -> Any | None:
    """The row of equal weights, which has the frontiers too."""
    found = rows_of(rows, experiment=NAME, weights="equal")
    return found[-1] if found else None


def per_decade(growth: Mapping[int, Ratio]) -> float | None:
    """Factor of a draw's time for ten times the set, on average; None where nothing was raced."""
    if not growth:
        return None
    return math.exp(sum(math.log(r.value) for r in growth.values()) / len(growth))


def _factors(row: Any) -> dict[str, float]:
    known = {name: per_decade(growth_of(row, *form)) for name, form in FORMS.items()}
    return {name: factor for name, factor in known.items() if factor is not None}


def sis_flat(claim: Claim, rows: Rows) -> Finding:
    """A draw of SIS from each size to ten times that, with and without building."""
    row = _row(rows)
    if row is None:
        return missing(NEEDED)
    measured: dict[str, str] = {}
    ratios: list[Ratio] = []
    for panel, words in ((READY, "tree ready"), (HALF, "built for half")):
        growth = growth_of(row, "sis", panel)
        ratios += growth.values()
        measured[words] = ", ".join(f"{r.value:.2f}x to {n:,}" for n, r in growth.items())
    return finding(
        [row],
        evidence=CPU_EVIDENCE,
        measured=measured,
        holds=all((r.value if r.low is None else r.low) <= LITTLE for r in ratios),
        direction=max(r.value for r in ratios) <= STRONG,
        reason=f"for ten times the elements; little is up to {LITTLE:g}x, noise allowed for",
    )


def others_grow(claim: Claim, rows: Rows) -> Finding:
    """The same for every form of ITS and for BRS on a set and on a frontier."""
    row = _row(rows)
    if row is None:
        return missing(NEEDED)
    factors = _factors(row)
    flat = [name for name, factor in factors.items() if factor < STRONG]
    strong = [name for name in factors if name not in flat]
    return finding(
        [row],
        evidence=CPU_EVIDENCE,
        measured={name: f"{factor:.1f}x" for name, factor in factors.items()},
        holds=not flat,
        direction=bool(strong),
        reason=f"for ten times the elements; not {', '.join(flat)}" if flat else "",
    )


def scales_best(claim: Claim, rows: Rows) -> Finding:
    """Growth of SIS against that of every form."""
    row = _row(rows)
    if row is None:
        return missing(NEEDED)
    own = per_decade(growth_of(row, "sis", READY))
    assert own is not None
    factors = _factors(row)
    better = [name for name, factor in factors.items() if factor <= own]
    return finding(
        [row],
        evidence=CPU_EVIDENCE,
        measured={"SIS": f"{own:.2f}x", **{n: f"{f:.2f}x" for n, f in factors.items()}},
        holds=not better,
        direction=len(better) < len(factors) / 2,
        reason=(
            "for ten times the elements" + (f"; {', '.join(better)} no worse" if better else "")
        ),
    )


def _proportional(touched: Mapping[int, float]) -> bool:
    """Whether counts per element are alike at all sizes."""
    shares = [count / size for size, count in touched.items()]
    return min(shares) > 0 and max(shares) <= NEAR * min(shares)


def _logarithmic(touched: Mapping[int, float], per_level: float) -> bool:
    """Whether counts are at most so many for each level of a binary tree, and one more level."""
    return all(count <= per_level * (math.ceil(math.log2(n)) + 1) for n, count in touched.items())


def _shown(touched: Mapping[int, float]) -> str:
    return ", ".join(f"{count:.3g} of {size:,}" for size, count in touched.items())


def brs_linear(claim: Claim, rows: Rows) -> Finding:
    """Elements that a step of BRS on a frontier reads."""
    row = _row(rows)
    if row is None:
        return missing(NEEDED)
    read = counted(row, "brs", "read", REPLACED)
    steps = counted(row, "brs", "steps")
    if not read:
        return missing(NEEDED)
    return finding(
        [row],
        evidence="counted",
        measured=f"elements read a step: {_shown(read)}",
        holds=_proportional(read),
        reason=(
            "the prefix sums of a frontier are formed anew after each step; on a set that nothing "
            f"enters a draw reads none and takes {_shown(steps)} steps"
        ),
    )


def its_linear(claim: Claim, rows: Rows) -> Finding:
    """Elements that a draw reads, by form of ITS."""
    row = _row(rows)
    if row is None:
        return missing(NEEDED)
    read = counted(row, "its_linear", "read")
    half = {name: _half(row, name) for name in ("its_bitmap", "its_list", "alias")}
    return finding(
        [row],
        evidence="counted",
        measured=f"elements read a draw by a scan: {_shown(read)}",
        holds=_proportional(read),
        reason=(
            "so it is with a scan, with a list of what is taken "
            f"({half['its_list'][0]:.3g} read a draw) and with sums formed anew; with a bitmap "
            f"half a set of equal weights needs {1 + half['its_bitmap'][1]:.2f} numbers a draw and "
            f"no reading, with alias tables {1 + half['alias'][1]:.2f}"
        ),
    )


def _half(row: Any, method: str) -> tuple[float, float]:
    """Elements read and draws repeated for each of one half of a set, at the largest size."""
    read, redraws = (counted(row, method, what, HALF) for what in ("read", "redraws"))
    return read[max(read)], redraws[max(redraws)]


def levels(part: str) -> Check:
    """A check of the steps of a search or of a change against the levels of a binary tree."""

    def check(claim: Claim, rows: Rows) -> Finding:
        row = _row(rows)
        if row is None:
            return missing(NEEDED)
        found = Table.of([row]).where("draw_work", of=part)
        steps = {n: float(count) for n, count in sorted(found.numbers("size").items())}
        return finding(
            [row],
            evidence="counted",
            measured=f"levels passed: {_shown(steps)}",
            holds=_logarithmic(steps, 1),
            reason="one for each halving of the set, in a binary tree",
        )

    return check


def total(claim: Claim, rows: Rows) -> Finding:
    """Steps of a draw of SIS, and what draws of ITS and steps of BRS read."""
    row = _row(rows)
    if row is None:
        return missing(NEEDED)
    own = counted(row, "sis", "steps")
    forms = {
        TITLES[name]: _proportional(counted(row, name, "read"))
        for name in ("its_linear", "its_rebuild", "its_bitmap")
    }
    forms["BRS, frontier"] = _proportional(counted(row, "brs", "read", REPLACED))
    forms["BRS, set"] = _proportional(counted(row, "brs", "read"))
    flat = [name for name, linear in forms.items() if not linear]
    return finding(
        [row],
        evidence="counted",
        measured={
            "SIS": f"{_shown(own)} levels",
            "linear": ", ".join(name for name, linear in forms.items() if linear),
            "not linear": ", ".join(flat) or "none",
        },
        holds=_logarithmic(own, 2) and not flat,
        direction=_logarithmic(own, 2) and len(flat) < len(forms),
        reason=(
            "search and change of SIS; building its tree is linear and comes on top. Which form "
            "of ITS is meant is not said"
        ),
    )


def no_repeats(claim: Claim, rows: Rows) -> Finding:
    """Draws of SIS that hit what was taken, of all draws of the run."""
    found = Table.of(rows, experiment=NAME).where("draw_work")
    if not found:
        return missing(NEEDED)
    repeats = {
        name: sum(found.where(of="redraws", method=name).values)
        for name in ("sis", "its_bitmap", "alias")
    }
    draws = sum(found.where(of="draws", method="sis").values)
    return finding(
        found.rows,
        evidence="counted",
        measured=f"{repeats['sis']} of {draws:,} draws",
        holds=repeats["sis"] == 0,
        reason=(
            f"with a bitmap ITS repeats {repeats['its_bitmap']:,}, alias tables "
            f"{repeats['alias']:,} in as many"
        ),
    )


def example(claim: Claim, rows: Rows) -> Finding:
    """Sums that change when element 4 of eight gets another weight."""
    row = _row(rows)
    if row is None:
        return missing(NEEDED)
    changed, path = (number(row, "draw_work", of=of) for of in ("changed", "path"))
    return finding(
        [row],
        evidence="counted",
        measured=f"{changed} of 15 sums",
        holds=changed == path == 4,
        reason="those over e4, e4 to e5, e4 to e7 and e0 to e7: a path from leaf to root",
    )


CHECKS: dict[str, Check] = {
    "tgcn-fig8-sis-flat": sis_flat,
    "tgcn-fig8-its-brs-grow": others_grow,
    "tgcn-fig8-order": scales_best,
    "tgcn-s2-brs-complexity": brs_linear,
    "tgcn-s2-its-complexity": its_linear,
    "tgcn-s3-sis-query-complexity": levels("search"),
    "tgcn-s3-sis-modify-complexity": levels("modify"),
    "tgcn-s3-sis-total-complexity": total,
    "tgcn-s3-sis-no-repeats": no_repeats,
    "tgcn-s3-tree-height-example": example,
}
