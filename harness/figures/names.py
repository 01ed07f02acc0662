"""Names of lines beside and above them, so that none covers another."""

from __future__ import annotations

from collections.abc import Sequence

from dgbench.harness.figures.canvas import CELL
from dgbench.harness.figures.palette import INK
from dgbench.harness.figures.words import text_width

_LINE_GAP_PT = 8.5


def early_labels(axes, ends) -> None:
    """Names above the ends of lines that stop early, stacked where they would cover each other."""
    placed: list[tuple[float, float]] = []
    for x, y, look in sorted(ends, key=lambda end: end[1]):
        across, up = axes.transData.transform((x, y)) / axes.figure.dpi * 72
        at = up + 4
        while any(abs(across - a) < 60 and abs(at - b) < _LINE_GAP_PT for a, b in placed):
            at += 1
        placed.append((across, at))
        side = _side(axes, x, look.title)
        axes.annotate(look.title, (x, y), xytext=(0, at - up), va="bottom", ha=side,
                      textcoords="offset points", fontsize=CELL, color=INK, zorder=7,
                      fontweight="bold" if look.strong else "normal")  # fmt: skip


def _side(axes, x: float, words: str) -> str:
    """Where words stand over a point, so that they stay inside the axes."""
    at = axes.transAxes.inverted().transform(axes.transData.transform((x, 1.0)))[0]
    inches = axes.get_position().width * axes.figure.get_size_inches()[0]
    half = text_width(words, CELL) / 2 / inches
    return "left" if at < half else "right" if at + half > 1 else "center"


def end_labels(axes, ends) -> None:
    """Names right of the panel at their heights, pushed apart so that none covers another.

    Args:
        ends: y of each, its words, whether they are bold, and their colour.
    """
    if not ends:
        return
    figure = axes.figure
    height = 72 * figure.get_size_inches()[1]
    box = axes.get_position()
    groups: list[tuple[list[float], list[tuple]]] = []
    for end in sorted(ends, key=lambda end: end[0]):
        at = axes.transData.transform((axes.get_xlim()[1], end[0]))[1] / figure.dpi * 72
        groups.append(([at], [end]))
        while len(groups) > 1 and _bottom(groups[-1][0]) < _top(groups[-2][0]) + _LINE_GAP_PT:
            places, members = groups.pop()
            groups[-1] = (groups[-1][0] + places, groups[-1][1] + members)
    spots, floor = [], box.y0 * height
    for places, members in groups:  # names near one another stand around their middle
        first = max(_bottom(places), floor)
        spots += [(first + _LINE_GAP_PT * i, end) for i, end in enumerate(members)]
        floor = spots[-1][0] + _LINE_GAP_PT
    ceiling = box.y1 * height - 1
    for number in reversed(range(len(spots))):
        spots[number] = (min(spots[number][0], ceiling), spots[number][1])
        ceiling = spots[number][0] - _LINE_GAP_PT
    right = box.x1 + 0.06 / figure.get_size_inches()[0]
    for at, (_, words, strong, colour) in spots:
        figure.text(right, at / height, words, va="center", fontsize=CELL, color=colour,
                    fontweight="bold" if strong else "normal")  # fmt: skip


def _bottom(places: Sequence[float]) -> float:
    """Height of the lowest of names that stand around the mean of their places."""
    return sum(places) / len(places) - _LINE_GAP_PT * (len(places) - 1) / 2


def _top(places: Sequence[float]) -> float:
    return _bottom(places) + _LINE_GAP_PT * (len(places) - 1)
