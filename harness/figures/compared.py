"""A comparison of two states as the points of a figure, and drawn."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dgbench.harness.compare import ASSUMED, WORDS, Comparison
from dgbench.harness.figures.draw import DrawnFigure, draw_points
from dgbench.harness.figures.palette import looks
from dgbench.harness.figures.style import Context
from dgbench.harness.states import State
from dgbench.harness.utilisation import mark_idle

log = logging.getLogger(__name__)


def change_points(found: Comparison) -> list[dict[str, Any]]:
    """Points of the kind `changes` (`harness.figures.changes`)."""
    papers = {c.paper for c in found.changes}
    points: list[dict[str, Any]] = []
    for c in found.changes:
        name = c.label if len(papers) == 1 else f"{c.paper}/{c.label}"
        ids = [f"{run}:{row}" for side in c.rows for run, row in side]
        point = {"row": name, "word": c.word, "gain": c.gain, "twin": c.twin, "row_ids": ids}
        if c.ratio is not None and not c.broke:
            point |= {"value": c.ratio.value, "low": c.ratio.low, "high": c.ratio.high,
                      "n": c.ratio.n, "fold": c.word == "AMBG" and not c.decided}  # fmt: skip
        elif c.status[0] != c.status[1] and "ok" in c.status:
            side = "A" if c.status[0] == "ok" else "B"
            bad = c.status[1] if side == "A" else c.status[0]
            point["failed"] = f"{bad}: only {side} has a value"
        else:
            continue
        points.append(point)
    for side, names in (("A", found.only_a), ("B", found.only_b)):
        if names:
            cells = "1 cell" if len(names) == 1 else f"{len(names)} cells"
            points.append({"row": cells, "word": "AMBG", "failed": f"only in {side}"})
    return points


def draw_changes(
    found: Comparison,
    name: str,
    title: str,
    folder: Path,
    context: Context,
    *,
    for_site: bool = False,
) -> DrawnFigure:
    """Draw a comparison into a folder: SVG and PNG at two widths, CSV and caption; for a site
    SVG with text as text."""
    counts = {word: found.count(word) for word in WORDS}
    options = {"a": found.a, "b": found.b, "counts": counts, "assumed": found.floor is None}
    points = change_points(found)
    if not for_site:
        return draw_points("changes", name, title, points, folder, context, options)
    return draw_points(
        "changes", name, title, points, folder, context, options,
        flavour="site", widths=("full", "half"),
    )  # fmt: skip


def compare_context(found: Comparison) -> Context:
    """Footer of the figure of a comparison."""
    floor = found.floor if found.floor is not None else ASSUMED
    return Context(noise=floor, device="", preset=found.preset)


def race_points(states: Sequence[State], paper: Any) -> Iterator[tuple[Any, list[dict[str, Any]]]]:
    """Every race of a paper (its figures of kind `speedup`) as points of the kind `across`.

    Args:
        states: machines, commits or runs, with the paper's rows among others.
        paper: the plugin, whose figures say how ratios are formed.

    Yields:
        the figure's spec, and the points of all states that have rows of its experiment; races
        that fewer than two of them have a value of are left out.
    """
    for experiment in paper.experiments:
        specs = [spec for spec in experiment.figures() if spec.kind == "speedup"]
        for spec in specs:
            points: list[dict[str, Any]] = []
            for state in states:
                points += _races(state, paper.name, experiment.name, spec)
            good = {p["series"] for p in points if not p.get("failed")}
            if len(good) > 1:
                yield spec, _named(points)


def draw_races(
    states: Sequence[State],
    paper: Any,
    folder: Path,
    context: Context,
    *,
    for_site: bool = False,
) -> list[DrawnFigure]:
    """Draw every race that several states have, side by side; for a site the main one only."""
    races = list(race_points(states, paper))
    if for_site:
        main = [race for race in races if race[0].options.get("main")]
        races = (main or races)[:1]
    how: dict[str, Any] = {"flavour": "site", "widths": ("full", "half")} if for_site else {}
    made = []
    for spec, points in races:
        name = f"{paper.name}-{spec.name}"
        if for_site:
            name += f"-{'-'.join(state.name for state in states)}"
        made.append(
            draw_points("across", name, spec.title, points, folder, context, spec.options, **how)
        )
    return made


def _races(state: State, paper: str, experiment: str, spec: Any) -> list[dict[str, Any]]:
    order = {run: index for index, run in enumerate(state.runs)}
    # Rounds of several runs are rounds of their own, or pairs would be ambiguous.
    rows = [
        msgspec.structs.replace(row, round=row.round + 1000 * order[run])
        for run, row in zip(state.where, state.rows, strict=True)
        if (row.paper, row.experiment) == (paper, experiment)
    ]
    if not rows:
        return []
    try:
        found = mark_idle(spec.points(rows), rows)
    except Exception as error:  # plugin code: the other races must still be drawn
        log.warning("races of %s/%s in %s: %s", paper, experiment, state.name, error)
        return []
    return [{**point, "series": state.name} for point in found]


def _named(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Points whose rows say who raced whom, in panels where that is not the same for all."""
    pairs: dict[Any, set[tuple[str, str]]] = {}
    for p in points:
        pairs.setdefault(p.get("panel"), set()).add((p["system"], p["baseline"]))
    names = {name for found in pairs.values() for pair in found for name in pair}
    titles = {name: look.title for name, look in looks(sorted(names)).items()}
    named = []
    for p in points:
        here = pairs[p.get("panel")]
        row = str(p["row"])
        if len({system for system, _ in here}) > 1:
            row += f", {titles[p['system']]}"
        if len({baseline for _, baseline in here}) > 1:
            row += f" / {titles[p['baseline']]}"
        named.append({**p, "row": row})
    return named
