"""Legends above the panels and their entries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from dgbench.harness.figures.canvas import HATCH_EDGE, PROJECTED_DASHES
from dgbench.harness.figures.palette import NOISE, SECONDARY
from dgbench.harness.figures.words import text_width
from dgbench.runtime.statistics import control_disturbed

HANDLE: Final = 0.34
"""Inches of an entry's drawing and of the gap behind its words."""


def legend(figure: Any, handles: list[Any], *, top: float, columns: int) -> None:
    """One legend above the panels, left."""
    width, height = figure.get_size_inches()
    figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0.04 / width, 1 - top / height),
        ncols=columns,
        borderaxespad=0,
        borderpad=0,
        handletextpad=0.5,
        columnspacing=1.4,
        handlelength=1.4,
        labelspacing=0.35,
    )


def legend_columns(handles: Sequence[Any], room: float, most: int = 6) -> int:
    """Columns of a legend that fit in `room` inches, up to `most`; they are filled one by one."""
    labels = [handle.get_label() for handle in handles]
    for columns in range(min(most, len(labels)), 1, -1):
        tall, more = divmod(len(labels), columns)
        width, first = 0.0, 0
        for column in range(columns):
            last = first + tall + (column < more)
            width += max(text_width(label) for label in labels[first:last]) + HANDLE
            first = last
        if width <= room:
            return columns
    return 1


def legend_height(count: int, columns: int) -> float:
    """Inches that a legend of `count` entries takes."""
    return 0.0 if not count else 0.155 * math.ceil(count / columns) + 0.08


def mark_handle(look: Any, *, hollow: bool = False) -> Any:
    """Legend entry of a system."""
    from matplotlib.lines import Line2D

    filled = look.mark.filled and not hollow
    return Line2D(
        [],
        [],
        ls="none",
        marker=look.mark.marker,
        ms=4.6,
        mfc=look.mark.colour if filled else "white",
        mec=look.mark.colour,
        label=look.title,
    )


def paper_handle(marker: str = "|") -> Any:
    """Legend entry of the paper's own value."""
    from matplotlib.lines import Line2D

    return Line2D([], [], ls="none", marker=marker, ms=8, mew=1.5, color="black", label="paper")


def projected_handle(colour: str = SECONDARY) -> Any:
    """Legend entry of what a model projects where measurements stand beside it."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, lw=0.9, ls=PROJECTED_DASHES, marker="o", ms=4.6, mec=colour,
                  mfc="white", label="projected")  # fmt: skip


def noise_handle(noise: float) -> Any:
    """Legend entry of the noise floor."""
    from matplotlib.patches import Patch

    disturbed = ": disturbed, nothing is judged" if control_disturbed(noise) else ""
    return Patch(color=NOISE, label=f"noise floor ±{100 * noise:.1f} %{disturbed}")


def failed_handle() -> Any:
    """Legend entry of a cell without a value."""
    from matplotlib.patches import Patch

    return Patch(facecolor="#F2F3F5", edgecolor=HATCH_EDGE, hatch="//////", lw=0, label="no value")
