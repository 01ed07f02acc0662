"""The strip of phases under an `over_time` figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dgbench.harness.figures.palette import PHASES, SECONDARY

CELL_PT: Final = 3.0
"""Points of width of a cell in which phases that are too short to be drawn share the height."""

OTHERS: Final[dict[str, tuple[str, str]]] = {
    "fetch": ("#F0C890", "////"),
    "load": ("#F0C890", "////"),
    "io": ("#F3D9B1", "\\\\\\\\"),
    "swap": ("#D9A066", "||||"),
    "insert": ("#B9CBA3", "||||"),
    "partition": ("#DCE5C8", "----"),
    "refresh": ("#8FA3BF", "...."),
    "score": ("#4F5967", "----"),
    "backward": ("#7C8798", "xxxx"),
    "interact": ("#AEB6C2", "++++"),
}
"""Fill and hatch of phases that only one system has, bound to their names."""

SPARE: Final = (("#E8E2F0", "oo"), ("#CBD8D0", "**"), ("#E9DDD3", "OO"))


def phase_looks(names: Iterable[Any]) -> dict[str, tuple[str, str]]:
    """Fill and hatch of each phase, in the order of the legend."""
    met = list(dict.fromkeys(name for name in names if name))
    known = {**PHASES, **OTHERS}
    spare = {name: SPARE[i % len(SPARE)] for i, name in enumerate(n for n in met if n not in known)}
    every = {**known, **spare}
    return {name: every[name] for name in every if name in met}


def draw_phases(
    axes: Any,
    points: Sequence[dict],
    phases: Mapping[str, tuple[str, str]],
    end: float,
    room: float,
) -> None:
    """Spans one after another where they are long enough to be seen, else shares of each cell.

    Args:
        points: one per phase: `begin` and `end` of its spans. end: seconds of the axis.
        room: inches of the axis.
    """
    from matplotlib.patches import Rectangle

    length = max(p["length"] for p in points)
    axes.add_patch(Rectangle((0, 0), min(length, end), 1, facecolor="white", edgecolor=SECONDARY,
                             ls="--", lw=0.7, zorder=1.2))  # fmt: skip
    cells = max(int(room * 72 / CELL_PT), 4)
    cell = max(end / cells, *(p.get("resolution") or 0.0 for p in points), 1e-9)
    count = sum(len(p["begin"]) for p in points)
    merged = any(p.get("resolution") for p in points)
    if not merged and count <= 0.8 * length / cell:
        for point in points:
            face, hatch = phases[point["series"]]
            spans = [
                (b, max(e - b, cell / 20))
                for b, e in zip(point["begin"], point["end"], strict=True)
            ]
            axes.broken_barh(spans, (0, 1), facecolor=face, edgecolor="white", hatch=hatch, lw=0,
                             zorder=2)  # fmt: skip
            axes.broken_barh(spans, (0, 1), facecolor="none", edgecolor=SECONDARY, lw=0.3,
                             zorder=2.1)  # fmt: skip
        return
    number = int(length / cell) + 1
    shares = {p["series"]: _shares(p, cell, number) for p in points}
    # Spans of several meters may lie over each other; a cell is never more than full.
    sums = [max(sum(column), 1.0) for column in zip(*shares.values(), strict=True)]
    base = [0.0] * number
    for name in phases:
        if name not in shares:
            continue
        tops = [b + s / total for b, s, total in zip(base, shares[name], sums, strict=True)]
        xs, low, high = _steps(base, tops, cell, length)
        face, hatch = phases[name]
        axes.fill(xs + xs[::-1], high + low[::-1], facecolor=face, edgecolor="white", hatch=hatch,
                  lw=0, zorder=2)  # fmt: skip
        base = tops


def _shares(point: dict, cell: float, number: int) -> list[float]:
    """Share of each cell that a phase took."""
    found = [0.0] * number
    for begin, end in zip(point["begin"], point["end"], strict=True):
        first, last = int(begin / cell), min(int(end / cell), number - 1)
        for index in range(first, last + 1):
            inside = min(end, (index + 1) * cell) - max(begin, index * cell)
            found[index] += max(inside, 0.0) / cell
    return found


def _steps(
    low: Sequence[float], high: Sequence[float], cell: float, length: float
) -> tuple[list[float], list[float], list[float]]:
    """The outline of stacked cells, without corners where nothing changes."""
    xs: list[float] = []
    lows: list[float] = []
    highs: list[float] = []
    before: tuple[float, float] | None = None
    for index, (a, b) in enumerate(zip(low, high, strict=True)):
        now = (round(a, 3), round(b, 3))
        if now != before:
            if before is not None:
                xs.append(index * cell)
                lows.append(before[0])
                highs.append(before[1])
            xs.append(index * cell)
            lows.append(now[0])
            highs.append(now[1])
        before = now
    xs.append(length)
    lows.append(before[0] if before else 0.0)
    highs.append(before[1] if before else 0.0)
    return xs, lows, highs
