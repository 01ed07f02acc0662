"""Claims of Figures 13 and 14: the synthetic graphs, and partitions over them (7.3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.dgc.checks.common import finding, missing, strength
from dgbench.systems.dgc.experiments.fig14 import (
    BASELINES,
    LEVELS,
    OURS,
    PARTITIONS,
    against_best,
    family_of,
    time_rows,
    traffic,
    traffic_rows,
)
from dgbench.systems.dgc.experiments.synthetic import EDGES, ENDS, STEPS, VERTICES

CLOSE = 0.05
"""Share by which sums over snapshots may miss their totals: a few draws repeat, and a few vertices
have no edge where they enter or leave."""


def sizes(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Vertices, edges and snapshots of every graph that was made, at the scale of the run."""
    found = traffic_rows(rows)
    if not found:
        return missing("no synthetic graph was made in this run")
    off: list[float] = []
    steps = set()
    largest = {"vertices": 0, "edges": 0}
    for row in found:
        scale = float(row.data["scale"])
        for ends in ENDS:
            for level in LEVELS[family_of(row)]:
                for kind, total in (("vertices", VERTICES), ("edges", EDGES)):
                    number = row.counters[f"{kind} {ends} {level:g}"]
                    off.append(abs(number / (scale * total) - 1))
                    largest[kind] = max(largest[kind], number)
                steps.add(row.counters[f"snapshots {ends} {level:g}"])
    scale = float(found[0].data["scale"])
    return finding(
        found,
        evidence="counted",
        measured={
            **largest,
            "snapshots": max(steps),
            "mean_edges": round(largest["edges"] / max(steps)),
        },
        holds=max(off) <= CLOSE and steps == {STEPS},
        reason=f"made at {scale:g} of the paper's totals; the furthest is {max(off):.1%} off",
    )


def trend(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Chunks are best at every level, and better the less even the graph is."""
    counted, timed = traffic_rows(rows), time_rows(rows)
    if not counted and not timed:
        return missing("no synthetic graph was partitioned in this run")
    measured: dict[str, Any] = {}
    beaten: list[str] = []
    rising: list[str] = []
    for row in counted:
        family, ours = family_of(row), PARTITIONS[-1]
        levels = LEVELS[family]
        for ends in ENDS:
            ratios = [against_best(row, ends, level) for level in levels]
            ends_at = [traffic(row, ends, level, ours) for level in (levels[0], levels[-1])]
            name = f"traffic, {family}, {ends}"
            measured[f"{name}, over the best other"] = [round(ratio, 3) for ratio in ratios]
            beaten += [name] if max(ratios) > 1 else []
            rising += [name] if ends_at[1] >= ends_at[0] else []
    for name, seconds in _by_level(timed).items():
        ratios = [ours / best for ours, best in seconds.values()]
        measured[f"time, {name}, over the best other"] = [round(ratio, 3) for ratio in ratios]
        beaten += [f"time, {name}"] if max(ratios) > 1 else []
        first, last = seconds[min(seconds)][0], seconds[max(seconds)][0]
        rising += [f"time, {name}"] if len(seconds) > 1 and last >= first else []
    said = [f"beaten in {', '.join(beaten)}"] if beaten else []
    said += [f"not falling in {', '.join(rising)}"] if rising else []
    return finding(
        [*counted, *timed],
        evidence=strength(timed) if timed else "analogue",
        measured=measured,
        holds=not beaten and not rising,
        reason="; ".join(said) or "best at every level, and falling",
    )


def _by_level(rows: Sequence[Any]) -> dict[str, dict[float, tuple[float, float]]]:
    """Family and ends -> level -> seconds of chunks and of the best baseline."""
    found: dict[str, dict[float, tuple[float, float]]] = {}
    for row in rows:
        best = min(row.values[f"seconds {name}"] for name in BASELINES)
        name = f"{family_of(row)}, {row.params['ends']}"
        found.setdefault(name, {})[row.params["level"]] = row.values[f"seconds {OURS}"], best
    return found


CHECKS: dict[str, Check] = {
    "dgc-s731-synthetic": sizes,
    "dgc-fig14-nonuniform-trend": trend,
}
