"""Words of figures: how wide they are, where they break, and how numbers are written."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from dgbench.harness.claims.shown import digits
from dgbench.harness.figures.canvas import CELL, FULL, NOTE, SMALL
from dgbench.harness.figures.palette import STATUS_WORDS
from dgbench.lab.charts import failure_of

WIDE: Final = 20.0
"""An interval whose ends are further apart than this factor says nothing and sets no axis."""
_OUTLINES: Final[dict[bool, tuple[dict, dict]]] = {False: ({}, {}), True: ({}, {})}
"""Glyphs of the regular and the bold font that were met, and from where to where they reach."""


@cache
def text_width(text: str, size: float = SMALL, *, bold: bool = False) -> float:
    """Width of a text in inches, from the font's own metrics."""
    from matplotlib.textpath import text_to_path

    if not text.strip():
        return 0.0
    scale = size / text_to_path.FONT_SCALE
    left, right = _extent(text, bold)
    return (right * scale - left * scale) / 72


@cache
def _extent(text: str, bold: bool) -> tuple[float, float]:
    """From where to where a text reaches at matplotlib's own scale; glyphs are measured once."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.path import Path as Outline
    from matplotlib.textpath import text_to_path

    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    glyphs, spans = _OUTLINES[bold]
    placed, glyphs, _ = text_to_path.get_glyphs_with_font(
        text_to_path._get_font(font), text, glyph_map=glyphs
    )
    left, right = math.inf, -math.inf
    for name, x, *_ in placed:
        if name not in spans:
            points, codes = glyphs[name]
            box = Outline(points, codes).get_extents() if len(points) else None
            spans[name] = (box.x0, box.x1) if box is not None else None
        if spans[name] is not None:
            left, right = min(left, x + spans[name][0]), max(right, x + spans[name][1])
    return left, right


def stamp_width(stamp: str) -> float:
    """Inches that a stamp beside a factor takes, with the gap behind it."""
    return text_width(stamp, NOTE, bold=True) + 0.16


def label_room(labels: Iterable[str], *, most: float, size: float = SMALL) -> float:
    """Inches that the longest label needs, at most `most`."""
    return min(most, max((text_width(label, size) for label in labels), default=0.0) + 0.12)


def fit_labels(
    labels: Iterable[str], *, most: float, size: float = SMALL, limit: float = FULL
) -> tuple[dict[str, str], float]:
    """Row labels on at most two lines, and the inches that they need.

    Labels wrap where they are wider than `most`; where two lines of that width cannot hold one,
    all get the room that it takes, up to `limit`; beyond it they take more lines. None is ever cut.
    """
    labels = list(dict.fromkeys(labels))
    room = most - 0.12
    if max((text_width(text, size) for text in labels), default=0.0) <= room + 0.15:
        room += 0.15  # a little more room reads better than a word on a line of its own
    while True:
        fitted = {text: wrap_label(text, room, size) for text in labels}
        widest = max(
            (text_width(line, size) for text in fitted.values() for line in text.split("\n")),
            default=0.0,
        )
        if room > limit or all(text.count("\n") < 2 for text in fitted.values()):
            return fitted, widest + 0.12
        room += 0.1


def wrap_label(text: str, room: float, size: float = SMALL) -> str:
    """A label broken at spaces so that each line fits in `room` inches."""
    lines, line = [], ""
    for word in text.split(" "):
        longer = f"{line} {word}".strip()
        if line and text_width(longer, size) > room:
            lines.append(line)
            line = word
        else:
            line = longer
    return "\n".join([*lines, line])


def failure_words(point: dict[str, Any], titles: dict[str, str], room: float) -> str:
    """Why a point has no value, as long as fits: `PiPAD: OOM (21.9 of 24.0 GiB)` down to `OOM`."""
    failure = failure_of(point)
    word, detail = STATUS_WORDS.get(failure.status, failure.status), failure.reason
    who = point.get("failed_system") or ""
    who = f"{titles.get(who, who)}: " if who else ""
    for text in (f"{who}{word} ({detail})" if detail else "", f"{who}{word}"):
        if text and text_width(text, CELL) <= room:
            return text
    return word


def span_text(low: str, high: str) -> str:
    """`A to B` of two ends as they are written, and `A` where they read the same."""
    return low if low == high else f"{low} to {high}"


def factor(value: float) -> str:
    """A ratio as people write it: `2.1x`, `0.82x`."""
    return f"{digits(value)}x"


def with_interval(value: float, low: float | None, high: float | None) -> str:
    """`2.1x [1.9, 2.3]`; the interval has as many decimals as the value, which gets more where
    both ends would read the same."""
    text = digits(value)
    if low is None or high is None:
        return f"{text}x"
    if not 0 < high / WIDE <= low:
        return f"{text}x, uncertain"
    places = len(text.partition(".")[2])
    more = next((p for p in range(places, 4) if f"{low:.{p}f}" != f"{high:.{p}f}"), places)
    text = text if more == places else f"{value:.{more}f}"
    return f"{text}x [{low:.{more}f}, {high:.{more}f}]"


def seconds_text(value: float) -> str:
    """A time with its unit: `12.3 ms`, `4.1 s`, `2:05 min`."""
    for limit, scale, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (120.0, 1.0, "s")):
        if value < limit:
            return f"{_three(value * scale)} {unit}"
    return f"{int(value // 60)}:{round(value % 60):02d} min"


def _three(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
