"""The footer of a figure: what is special, then machine, date and run, and a stamp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dgbench.harness.figures.canvas import FOOT, Context, write_at
from dgbench.harness.figures.palette import RED, SECONDARY
from dgbench.harness.figures.words import text_width, wrap_label

_LINE: Final = 0.135
"""Inches from one line to the next."""


def footer_lines(
    special: Sequence[str], context: Context, *, width: float, more: Sequence[str] = ()
) -> list[str]:
    """The footer: first what is special, then machine, date and run.

    Lines break between items, and inside an item only where it is wider than the figure.
    """
    measured = [context.machine, context.device, context.date]
    measured += [f"run {context.run}" if context.run else "", f"preset {context.preset}", *more]
    if context.noise is not None:
        measured.append(f"noise floor ±{100 * context.noise:.1f} %")
    lines: list[str] = []
    for items in (special, measured):
        line = ""
        for item in (i for i in items if i):
            longer = f"{line}  ·  {item}" if line else item
            if text_width(longer, FOOT) <= width - 0.16:
                line = longer
                continue
            lines += [line] if line else []
            *whole, line = wrap_label(item, width - 0.16, FOOT).split("\n")
            lines += whole
        if line:
            lines.append(line)
    if context.stamp and (not lines or _stamp_collides(lines[-1], context.stamp, width)):
        lines.append("")
    return lines


def footer_height(lines: Sequence[str]) -> float:
    """Inches that the footer needs."""
    return _LINE * len(lines) + 0.08


def draw_footer(figure: Any, lines: Sequence[str], context: Context) -> None:
    """Write the footer lines at the lower edge, and the stamp at their right end."""
    width, height = figure.get_size_inches()
    top = height - footer_height(lines)
    for number, line in enumerate(lines):
        write_at(figure, 0.06, top + _LINE * number, line, fontsize=FOOT, color=SECONDARY)
    if context.stamp:
        write_at(
            figure,
            width - 0.06,
            top + _LINE * (len(lines) - 1),
            context.stamp,
            fontsize=FOOT,
            color=RED,
            fontweight="bold",
            ha="right",
        )


def _stamp_collides(line: str, stamp: str, width: float) -> bool:
    return text_width(line, FOOT) + text_width(stamp, FOOT, bold=True) + 0.3 > width
