"""Type 8: how much of the papers holds here? One glyph a claim, sorted by glyph inside a paper.

Keys of a point: see `docs/figures.md`, kind `claim_board`.
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
    legend_rows = 1 if wide else 3
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
        counts = {g: sum(p["glyph"] == g for p in claims) for g in VERDICTS}
        words = " · ".join(f"{counts[g]} {look.word}" for g, look in VERDICTS.items())
        style.write_at(figure, 0.1, top, str(claims[0].get("title") or name), fontsize=8,
                       fontweight="bold")  # fmt: skip
        if wide:
            x = 0.1 + style.text_width(str(claims[0].get("title") or name), 8, bold=True) + 0.12
            style.write_at(figure, x, top + 0.005, f"{len(claims)} claims: {words}",
                           fontsize=style.SMALL, color=SECONDARY)  # fmt: skip
        else:
            short = " · ".join(str(counts[g]) for g in VERDICTS)
            style.write_at(figure, 0.1, top + 0.14, f"{len(claims)} claims: {short}",
                           fontsize=style.SMALL, color=SECONDARY)  # fmt: skip
        _block(figure, claims, top + head, columns)
        top += tall
    style.draw_footer(figure, footer, context)
    return figure


def ranked(points: Sequence[dict]) -> list[dict]:
    """Claims by glyph; an analogue after the rest of its glyph; else the ledger's order."""
    glyphs = list(VERDICTS)
    return sorted(
        points,
        key=lambda p: (glyphs.index(p["glyph"]), bool(p.get("analogue")), bool(p.get("other_way"))),
    )


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
    base = "white" if kind in ("d", "p", "-") else look.fill
    corner = at(0, 0)
    box = Rectangle(corner, size / width, size / height, facecolor=base, edgecolor=look.edge,
                    lw=0.7, hatch="/////" if kind == "p" else "")  # fmt: skip
    add(box)
    if kind == "d":
        half = Polygon([at(0, 0), at(1, 0), at(0, 1)], closed=True, lw=0.7, edgecolor=look.edge,
                       facecolor="white" if claim.get("analogue") else look.fill,
                       hatch="//////" if claim.get("analogue") else "")  # fmt: skip
        add(half)
    elif kind == "X":
        line((0.22, 0.78), (0.22, 0.78), 1.7)
        line((0.22, 0.78), (0.78, 0.22), 1.7)
    elif kind == "-":
        if claim.get("other_way"):
            line((0.5, 0.5), (0.4, 0.82), 1.2)
            line((0.5, 0.5), (0.17, 0.29), 1.2)
        else:
            line((0.25, 0.75), (0.5, 0.5), 0.9)
    if claim.get("twin") and kind != "-":
        add(Polygon([at(0.58, 1), at(1, 1), at(1, 0.58)], closed=True, lw=0, facecolor="#1F2328"))


def _legend(figure, wide) -> None:
    x, top = 0.1, 0.08
    for index, (key, look) in enumerate(VERDICTS.items()):
        if not wide and index and index % 2 == 0:
            x, top = 0.1, top + 0.17
        glyph(figure, x, top + 0.01, _SIZE, {"glyph": key})
        style.write_at(figure, x + _SIZE + 0.06, top, look.word, fontsize=style.SMALL)
        x += (_SIZE + 0.06 + style.text_width(look.word) + 0.22) if wide else 1.6


def describe(points: Sequence[dict], options: Mapping[str, Any], context: Any) -> str:
    """One sentence: the five counts."""
    counts = [f"{sum(p['glyph'] == g for p in points)} {look.word}" for g, look in VERDICTS.items()]
    return f"{len(points)} claims: {', '.join(counts)}."
