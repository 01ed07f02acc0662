"""Type 8: how much of the papers holds here? One glyph a claim, sorted by glyph inside a paper.

Keys of a point: `paper`, `claim`, `glyph` (one of `harness.claims.GLYPHS`), `twin`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dgbench.harness.figures import style
from dgbench.harness.figures.palette import SECONDARY, VERDICTS
from dgbench.harness.figures.panels import order

REQUIRED = ("paper", "claim", "glyph")
NUMBERS = ()
_STEP = 0.126
_SIZE = 0.098


def draw(points: Sequence[dict], options: Mapping[str, Any], context: Any, wide: bool) -> Any:
    """The figure: 52 columns at full, 26 at half width."""
    columns = 52 if wide else 26
    width = style.FULL if wide else style.HALF
    papers = {name: [p for p in points if p["paper"] == name] for name in order(points, "paper")}
    legend_rows = 2 if wide else 5
    footer = style.footer_lines(
        [f"{len(points)} claims of {len(papers)} papers" if len(papers) > 1
         else f"{len(points)} claims", "notch: twin data"],
        context,
        width=width,
    )  # fmt: skip
    head = 0.16 if wide else 0.3
    heights = [head + _STEP * math.ceil(len(c) / columns) + 0.12 for c in papers.values()]
    height = 0.08 + 0.17 * legend_rows + 0.08 + sum(heights) + style.footer_height(footer)
    figure = style.new_figure(width, height)
    _legend(figure, wide)
    top = 0.08 + 0.17 * legend_rows + 0.08
    for (name, claims), tall in zip(papers.items(), heights, strict=True):
        title = str(claims[0].get("title") or name)
        style.write_at(figure, 0.1, top, title, fontsize=8, fontweight="bold")
        said = f"{len(claims)} claims"
        if wide:
            x = 0.1 + style.text_width(title, 8, bold=True) + 0.12
            for words in _counts(claims):
                longer = f"{said}{':' if said.endswith('claims') else ' ·'} {words}"
                if x + style.text_width(longer) < width - 0.1:
                    said = longer
            style.write_at(figure, x, top + 0.005, said, fontsize=style.SMALL, color=SECONDARY)
        else:
            style.write_at(figure, 0.1, top + 0.14, said, fontsize=style.SMALL, color=SECONDARY)
        _block(figure, claims, top + head, columns)
        top += tall
    style.draw_footer(figure, footer, context)
    return figure


def ranked(points: Sequence[dict]) -> list[dict]:
    """Claims by glyph, else in the ledger's order."""
    glyphs = list(VERDICTS)
    return sorted(points, key=lambda p: glyphs.index(p["glyph"]))


def _block(figure, claims, top, columns) -> None:
    for index, claim in enumerate(ranked(claims)):
        row, column = divmod(index, columns)
        glyph(figure, 0.1 + _STEP * column, top + _STEP * row, _SIZE, claim)


def glyph(figure: Any, x: float, top: float, size: float, claim: Mapping[str, Any]) -> None:
    """One glyph at a place in inches."""
    from matplotlib.patches import Polygon, Rectangle

    width, height = figure.get_size_inches()
    look = VERDICTS[claim["glyph"]]

    def at(u: float, v: float) -> tuple[float, float]:
        """Unit square (v upwards) to figure fractions."""
        return (x + u * size) / width, 1 - (top + (1 - v) * size) / height

    def add(patch: Any) -> None:
        patch.set_transform(figure.transFigure)
        figure.add_artist(patch)

    def line(u: tuple[float, float], v: tuple[float, float], weight: float) -> None:
        from matplotlib.lines import Line2D

        ends = [at(a, b) for a, b in zip(u, v, strict=True)]
        figure.add_artist(
            Line2D([e[0] for e in ends], [e[1] for e in ends], color=look.edge, lw=weight,
                   transform=figure.transFigure, solid_capstyle="butt")
        )  # fmt: skip

    kind = claim["glyph"]
    half = kind in ("d", "s")
    corner = at(0, 0)
    box = Rectangle(corner, size / width, size / height, edgecolor=look.edge, lw=0.7,
                    facecolor="white" if half else look.fill)  # fmt: skip
    add(box)
    if half:
        add(Polygon([at(0, 0), at(1, 0), at(0, 1)], closed=True, lw=0.7, edgecolor=look.edge,
                    facecolor=look.fill))  # fmt: skip
    for u, v, weight in _STROKES.get(kind, ()):
        line(u, v, weight)
    if claim.get("twin") and kind != "-":
        add(Polygon([at(0.58, 1), at(1, 1), at(1, 0.58)], closed=True, lw=0, facecolor="#1F2328"))


_STROKES = {
    "X": (((0.22, 0.78), (0.22, 0.78), 1.7), ((0.22, 0.78), (0.78, 0.22), 1.7)),
    "O": (((0.22, 0.78), (0.22, 0.78), 1.7),),
    "u": (((0.42, 0.58), (0.5, 0.5), 1.5),),
    "v": (((0.2, 0.36), (0.5, 0.5), 1.5), ((0.64, 0.8), (0.5, 0.5), 1.5)),
    "=": (((0.25, 0.75), (0.36, 0.36), 0.9), ((0.25, 0.75), (0.64, 0.64), 0.9)),
    "-": (((0.25, 0.75), (0.5, 0.5), 0.9),),
}
"""Glyph -> lines in the unit square: (u, u), (v, v), width in points."""


def _legend(figure, wide) -> None:
    columns = 5 if wide else 2
    step = 1.32 if wide else 1.6
    for index, (key, look) in enumerate(VERDICTS.items()):
        row, column = divmod(index, columns)
        x, top = 0.1 + step * column, 0.08 + 0.17 * row
        glyph(figure, x, top + 0.01, _SIZE, {"glyph": key})
        style.write_at(figure, x + _SIZE + 0.06, top, look.word, fontsize=style.SMALL)


def _counts(points: Sequence[dict]) -> list[str]:
    """Numbers of claims by verdict, in words, those of which there are any."""
    numbers = {g: sum(p["glyph"] == g for p in points) for g in VERDICTS}
    return [f"{numbers[g]} {look.word}" for g, look in VERDICTS.items() if numbers[g]]


def describe(points: Sequence[dict], options: Mapping[str, Any], context: Any) -> str:
    """One sentence: the counts."""
    return f"{len(points)} claims: {', '.join(_counts(points))}."
