"""Claims of Figures 13 and 14: the synthetic graphs, and partitions over them (7.3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.lab.evidence import finding, missing
from dgbench.lab.table import Table
from dgbench.lab.verbs import asking
from dgbench.systems.base import Claim, Finding
from dgbench.systems.dgc.experiments.fig14 import (
    CHUNKS,
    DESCRIBED,
    Timed,
    against_best,
    family_of,
    levels_of,
    span,
    timed_races,
    traffic,
    traffic_rows,
)
from dgbench.systems.dgc.experiments.race_runs import PLAIN
from dgbench.systems.dgc.synthetic import EDGES, ENDS, STEPS, VERTICES

TOTALS = {"vertices": ("vertex_steps", VERTICES), "edges": ("edges", EDGES)}
CLOSE = 0.05
"""Share by which sums over snapshots may miss their totals: a few draws repeat, and a few vertices
have no edge where they enter or leave."""


@asking(traffic_rows, "no synthetic graph was made in this run")
def sizes(claim: Claim, found: Sequence[Any]) -> dict[str, Any]:
    """Vertices, edges and snapshots of every graph that was made, at the scale of the run."""
    made = Table.of(found)
    numbers = {kind: made.where(metric) for kind, (metric, _) in TOTALS.items()}
    off = [
        abs(one.value / (float(one.row.data["scale"]) * total) - 1)
        for kind, (_, total) in TOTALS.items()
        for one in numbers[kind]
    ]
    largest = {kind: max(of.values) for kind, of in numbers.items()}
    steps = set(made.where("snapshots").values)
    scale = float(found[0].data["scale"])
    return {
        "measured": {
            **largest,
            "snapshots": max(steps),
            "mean_edges": round(largest["edges"] / max(steps)),
        },
        "holds": max(off) <= CLOSE and steps == {STEPS},
        "reason": f"made at {scale:g} of the paper's totals; the furthest is {max(off):.1%} off",
    }


def trend(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Chunks are best at every level, and better the less even the graph is.

    Epochs decide where they were timed, turn by turn; traffic stands beside them.
    """
    counted, timed = traffic_rows(rows), timed_races(rows)
    if not counted and not timed:
        return missing("no synthetic graph was partitioned in this run")
    measured: dict[str, Any] = {}
    wrong: list[str] = []
    open_: list[str] = []
    for row in counted:
        family, levels = family_of(row), levels_of(row)
        for ends in ENDS:
            ratios = [against_best(row, ends, level) for level in levels]
            described = [against_best(row, ends, level, DESCRIBED) for level in levels]
            first, last = (traffic(row, ends, level, CHUNKS) for level in (levels[0], levels[-1]))
            name = f"traffic, {family}, {ends}"
            measured[f"{name}, over the best other"] = [round(ratio, 3) for ratio in ratios]
            in_a_row = [span(row, ends, level, CHUNKS) for level in levels]
            measured[f"{name}, even shares in a row"] = [round(share, 2) for share in in_a_row]
            measured[f"{name}, labels once"] = [round(ratio, 3) for ratio in described]
            wrong += [f"{name}: not least"] if max(ratios) > 1 else []
            wrong += [f"{name}: not falling"] if last >= first else []
    for name, series in _series(timed).items():
        gains = [one.race.gain(one.race.best(), PLAIN) for one in series]
        measured[f"{name}, best other over chunks"] = [round(gain.value, 2) for gain in gains]
        wrong += [f"{name}: not fastest"] if any(gain.side < 0 for gain in gains) else []
        open_ += [f"{name}: whether fastest"] if any(gain.side == 0 for gain in gains) else []
        seconds = [one.race.epoch(PLAIN) for one in series]
        wrong += [f"{name}: not falling"] if len(series) > 1 and seconds[-1] >= seconds[0] else []
    said = [*wrong, *(f"open: {words}" for words in open_)]
    used = [*counted, *{one.race.row.id: one.race.row for one in timed}.values()]
    return finding(
        used,
        measured=measured,
        holds=not wrong,
        undecided=bool(open_) and not wrong,
        reason="; ".join(said) or "best at every level, and falling",
    )


def _series(timed: Sequence[Timed]) -> dict[str, list[Timed]]:
    """Timed epochs by family and kind of ends, levels ascending."""
    found: dict[str, list[Timed]] = {}
    for one in timed:
        found.setdefault(f"epochs, {one.family}, {one.ends}", []).append(one)
    return found
