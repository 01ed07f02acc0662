"""Laying out small multiples by hand: columns at full width, rows at half width."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from dgbench.harness.figures import style
from dgbench.lab.charts import marked

MIN_PANEL_INCHES = 0.6
"""Inches that row labels leave to each panel."""
TITLE_LETTER = 0.07
"""Inches of a letter of a panel's title, on average; longer titles take a second line."""


def order(points: Sequence[dict], key: str) -> list[Any]:
    """Values of a key in the order in which they are first met."""
    return list(dict.fromkeys(point.get(key) for point in points))


def row_label(name: str, points: Sequence[dict]) -> str:
    """A row's name, with "(twin)" where synthetic data stood in."""
    return marked(name, any(p.get("twin") for p in points))


def rows_of(
    points: Sequence[dict], key: str, panel: str = "panel", *, shared: bool = False
) -> dict[Any, dict[Any, str]]:
    """Labels of the rows of each panel: panel -> name of a row -> label, in the order first met.

    A row is a "(twin)" in the panels in which its data are synthetic.

    Args:
        key: of a point, names its row. panel: key that names its panel.
        shared: whether every panel has the rows of all.
    """
    found: dict[Any, dict[Any, str]] = {}
    for title in order(points, panel):
        mine = [p for p in points if p.get(panel) == title]
        found[title] = {}
        for name in order(points if shared else mine, key):
            here = [p for p in mine if p[key] == name] or [p for p in points if p[key] == name]
            found[title][name] = row_label(name, here)
    return found


class PanelGrid:
    """A figure of panels with shared legend and footer.

    Args:
        panels: their titles (None draws no title), in order.
        wide: full width; otherwise one panel a row.
        columns: panels side by side at full width.
        heights: inches of each panel's axes.
        labels: row labels that the left margin must hold.
        rows: row labels of each panel, instead of `labels`. Where all panels have the same ones,
            those of the first column serve the whole line; otherwise each panel has its own.
        right: inches for text right of each panel.
        handles: entries of the shared legend.
        footer: lines of `style.footer_lines`.
        below: inches under each panel for ticks and its label.
        left: inches of the left margin instead of what `labels` need.
    """

    def __init__(
        self,
        panels: Sequence[Any],
        *,
        wide: bool,
        columns: int,
        heights: Sequence[float],
        labels: Sequence[str] = (),
        rows: Sequence[Sequence[str]] | None = None,
        right: float = 0.1,
        handles: Sequence[Any] = (),
        footer: Sequence[str] = (),
        below: float = 0.36,
        left: float | None = None,
        share_left: bool = True,
        above: float = 0.0,
    ) -> None:
        self.panels = list(panels)
        self.columns = columns if wide else 1
        self.width = style.FULL if wide else style.HALF
        self._heights = list(heights)
        self._right, self._below, self._above = right, below, above
        if rows is not None:
            labels = [label for mine in rows for label in mine]
            share_left = len({tuple(mine) for mine in rows}) == 1
        self._common = rows is not None and share_left
        self._share = share_left or self.columns == 1
        most = (2.2 if self._share else 1.5) if wide else 1.25
        self._gap = 0.12
        lefts = 1 if self._share else self.columns
        free = self.width - 0.08 - (right + (self._gap if self._share else 0)) * self.columns
        limit = max(most, (free - MIN_PANEL_INCHES * self.columns) / lefts - 0.3)
        self._labels, room = style.fit_labels(labels, most=most, limit=limit)
        self._left = left if left is not None else 0.06 + room
        self._footer = list(footer)
        entries = (6 if len(handles) < 7 else 4) if wide else 2
        columns_of_legend = style.legend_columns(handles, self.width - 0.1, entries)
        self._legend = style.legend_height(len(handles), columns_of_legend)
        self._each = (free - self._left * lefts) / self.columns
        letters = int((self._each + self._right) / TITLE_LETTER)
        self._titles = [p if p is None else textwrap.fill(str(p), letters) for p in self.panels]
        self._title = 0.17 if any(p is not None for p in self.panels) else 0.04
        self._title += 0.14 * max((t.count("\n") for t in self._titles if t), default=0)
        lines = math.ceil(len(self.panels) / self.columns)
        self._tops = []
        top = 0.06 + self._legend
        for line in range(lines):
            top += self._title + self._above
            self._tops.append(top)
            members = self._heights[line * self.columns : (line + 1) * self.columns]
            top += max(members) + below
        height = top + style.footer_height(self._footer) + 0.02
        self.figure = style.new_figure(self.width, height)
        if handles:
            style.legend(self.figure, list(handles), top=0.06, columns=columns_of_legend)

    def _wrap(self, axes: Any) -> None:
        """Break row labels where the left margin was made for two lines of them."""
        said = [label.get_text() for label in axes.get_yticklabels()]
        if any("\n" in self._labels.get(text, "") for text in said):
            broken = [self._labels.get(text, text) for text in said]
            axes.set_yticks(axes.get_yticks(), labels=broken, linespacing=1.0)

    def axes(self, context: Any) -> Iterator[tuple[Any, Any]]:
        """Each panel with its axes; the footer is written at the end."""
        each, gap = self._each, self._gap
        for index, panel in enumerate(self.panels):
            line, column = divmod(index, self.columns)
            x = self._left + column * (each + self._right + (gap if self._share else self._left))
            axes = style.place(self.figure, x, self._tops[line], each, self._heights[index])
            if panel is not None:
                # A place of its own spares measuring all ticks, in case some were above the panel.
                axes.set_title(self._titles[index], y=None if self._above else 1.0)
            yield panel, axes
            if self._common and column:
                axes.set_yticklabels([])
            self._wrap(axes)
        style.draw_footer(self.figure, self._footer, context)
