"""Figures from rows: `draw_figure` takes a `FigureSpec` and writes files; the same rows give the
same bytes. Point formats are described in `docs/figures.md`."""

from dgbench.harness.figures.draw import DrawnFigure, draw_figure, draw_points
from dgbench.harness.figures.style import Context

__all__ = ["Context", "DrawnFigure", "draw_figure", "draw_points"]
