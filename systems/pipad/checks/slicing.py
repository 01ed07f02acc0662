"""Claims on sliced CSR against CSR: balance, and training time (5.4, Figure 12)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from dgbench.systems.base import Claim, Finding
from dgbench.systems.pipad.checks import memory
from dgbench.systems.pipad.checks.common import ids, missing_finding, strength, uses_twin
from dgbench.systems.pipad.experiments.fig12 import balances, gains, gap
from dgbench.systems.pipad.experiments.settings import BY_NAME, MODEL_TITLES

TOP = ("youtube", "evolvegcn")


def load_balance(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Busiest worker over balanced time: nearer to 1 with slices on every graph, least on small.

    Where nothing was timed, the counted stand-in (largest over mean work) answers.
    """
    found = balances(rows)
    if not found:
        return memory.balance(claim, rows)
    better = {r.params["dataset"]: gap(r, "csr") / gap(r, "sliced") for r in found}
    worse = sorted(BY_NAME[name].title for name, factor in better.items() if factor <= 1)
    by_size = {
        size: [
            factor for name, factor in better.items() if BY_NAME[name].small == (size == "small")
        ]
        for size in ("small", "large")
    }
    holds = not worse
    remark = f"not on {', '.join(worse)}" if worse else "actual over balanced time, CSR over slices"
    if all(by_size.values()):
        small, large = fmean(by_size["small"]), fmean(by_size["large"])
        holds = holds and small < large
        remark += f"; mean {small:.2g}x on small and {large:.2g}x on large graphs"
    return Finding(
        measured=f"the gap shrinks {min(better.values()):.2g}x to {max(better.values()):.2g}x",
        holds=holds,
        evidence=strength(found),
        twin=uses_twin(found),
        rows=ids(found),
        reason=remark,
    )


def speedup_trend(claim: Claim, rows: Sequence[Any]) -> Finding:
    """EvolveGCN on Youtube gains most in training; its interval must lie above all others."""
    found = gains(rows)
    if TOP not in found or len(found) < 2:
        return missing_finding("EvolveGCN on Youtube and another workload are needed")
    mine = found[TOP]
    sides = {key: mine.against(ratio) for key, ratio in found.items() if key != TOP}
    behind = [key for key, side in sides.items() if side < 0]
    level = [key for key, side in sides.items() if side == 0]
    remark = f"{mine.value:.2f}x; others " + ", ".join(
        f"{ratio.value:.2f}x ({BY_NAME[key[0]].title}, {MODEL_TITLES[key[1]]})"
        for key, ratio in found.items()
        if key != TOP
    )
    used = list(dict.fromkeys(row for ratio in found.values() for row in ratio.rows))
    return Finding(
        measured=f"above {len(sides) - len(behind) - len(level)} of {len(sides)} other workloads",
        holds=not behind and not level,
        undecided=not behind and bool(level),
        evidence=strength([r for r in rows if r.id in set(used)]),
        twin=any(ratio.twin for ratio in found.values()),
        rows=used,
        reason=remark,
    )
