"""Claims of Figures 13 and 14: the synthetic graphs, and partitions over them (7.3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.lab.evidence import finding, missing
from dgbench.lab.table import Table
from dgbench.lab.verbs import asking
from dgbench.systems.base import Claim, Finding
from dgbench.systems.dgc.checks.race_words import agreed, rows_of, side_fields
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
from dgbench.systems.dgc.experiments.race_runs import FORMER_WORDS, PLAIN
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
    """Chunks have the shortest epochs at every level, and shorter ones the less even the graph is.

    Timed epochs decide; without any, the traffic of the paper's chunks as a proxy.
    """
    counted, timed = traffic_rows(rows), timed_races(rows)
    if timed:
        return _timed_trend(timed, counted)
    if not counted:
        return missing("no synthetic graph was partitioned in this run")
    return _traffic_trend(counted, DESCRIBED)


def _timed_trend(timed: Sequence[Timed], counted: Sequence[Any]) -> Finding:
    measured: dict[str, Any] = {}
    sides: list[int] = []
    said: list[str] = []
    for name, series in _series(timed).items():
        others = [[n for n in one.race.names if n != PLAIN] for one in series]
        gains = [
            one.race.gain(one.race.best(names), PLAIN)
            for one, names in zip(series, others, strict=True)
        ]
        measured[f"{name}, best other over chunks"] = [round(gain.value, 2) for gain in gains]
        side = min(gain.side for gain in gains)
        sides.append(side)
        said += [f"{name}: {'not' if side < 0 else 'open whether'} fastest"] if side <= 0 else []
        if len(series) > 1:
            first, last = (one.race.seconds(PLAIN) for one in (series[0], series[-1]))
            falls = agreed(a > b for a, b in zip(first, last, strict=False))
            sides.append(falls)
            said += [f"{name}: {'not' if falls < 0 else 'open whether'} falling"] * (falls <= 0)
    former = [FORMER_WORDS] if any(one.race.former for one in timed) else []
    return finding(
        rows_of([one.race for one in timed]),
        measured=measured,
        **side_fields(sides),
        reason="; ".join([*said, *former, *_traffic_words(counted)])
        or "best at every level, and falling",
    )


def _traffic_words(counted: Sequence[Any]) -> list[str]:
    """Traffic of chunks over that of the best other placement, contiguous snapshots among them."""
    words = []
    for row in counted:
        for ends in ENDS:
            both = [
                [against_best(row, ends, level, ours) for level in levels_of(row)]
                for ours in (DESCRIBED, CHUNKS)
            ]
            told = (f"{ratios[0]:.2f} to {ratios[-1]:.2f}" for ratios in both)
            words.append(
                f"traffic over the best other, {family_of(row)}, {ends}: "
                + ", with our refinement ".join(told)
            )
    return words


def _traffic_trend(counted: Sequence[Any], ours: str) -> Finding:
    measured: dict[str, Any] = {}
    wrong: list[str] = []
    for row in counted:
        family, levels = family_of(row), levels_of(row)
        for ends in ENDS:
            name = f"traffic, {family}, {ends}"
            ratios = [against_best(row, ends, level, ours) for level in levels]
            first, last = (traffic(row, ends, level, ours) for level in (levels[0], levels[-1]))
            measured[f"{name}, over the best other"] = [round(ratio, 3) for ratio in ratios]
            in_a_row = [span(row, ends, level, ours) for level in levels]
            measured[f"{name}, even shares in a row"] = [round(share, 2) for share in in_a_row]
            wrong += [f"{name}: not least"] if max(ratios) > 1 else []
            wrong += [f"{name}: not falling"] if last >= first else []
    return finding(
        counted,
        measured=measured,
        holds=not wrong,
        proxy="traffic for the time of an epoch",
        reason="; ".join(wrong) or "least at every level, and falling",
    )


def _series(timed: Sequence[Timed]) -> dict[str, list[Timed]]:
    """Timed epochs by family and kind of ends, levels ascending."""
    found: dict[str, list[Timed]] = {}
    for one in timed:
        found.setdefault(f"epochs, {one.family}, {one.ends}", []).append(one)
    return found
