"""Parts shared by `scaling`, `curves` and `correctness`: legends that fit, notes below them, and
the marks of series that are a system, or a form of one behind a comma."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from dgbench.harness.figures import style
from dgbench.harness.figures.palette import INK, SECONDARY, VARIANTS, Look, Mark, looks
from dgbench.harness.figures.palette import series_looks as word_looks
from dgbench.harness.figures.panels import PanelGrid, order
from dgbench.lab.charts import marked, subject_and_form

_NOTE_LINE: Final = 0.125


class Framed(PanelGrid):
    """A `PanelGrid` whose legend has as many columns as fit, with lines of notes below it.

    Args:
        handles: entries of the shared legend. notes: sentences under it, broken where they must be.
        others: as `PanelGrid`.
    """

    def __init__(
        self,
        panels: Sequence[Any],
        *,
        handles: Sequence[Any] = (),
        notes: Sequence[str] = (),
        **fields: Any,
    ) -> None:
        super().__init__(panels, **fields)
        columns = style.legend_columns(handles, self.width - 0.1)
        lines = [
            line for note in notes
            for line in style.wrap_label(note, self.width - 0.16, style.CELL).split("\n")
        ]  # fmt: skip
        legend = style.legend_height(len(handles), columns)
        extra = legend + _NOTE_LINE * len(lines)
        height = self.figure.get_size_inches()[1]
        self._tops = [top + extra for top in self._tops]
        self.figure = style.new_figure(self.width, height + extra)
        if handles:
            style.legend(self.figure, list(handles), top=0.06, columns=columns)
        for number, line in enumerate(lines):
            style.write_at(self.figure, 0.06, 0.02 + legend + _NOTE_LINE * number, line,
                           fontsize=style.CELL, color=SECONDARY)  # fmt: skip


def series_looks(names: Iterable[str]) -> dict[str, Look]:
    """The look of each series: a system's own, and for its forms its colour with other markers.

    What stands before the first comma is the subject, a system's name or words: "tgcn, dealt"
    wears the colour of T-GCN. Subjects that are no systems look as in a `sweep`.
    """
    names = list(dict.fromkeys(names))
    subjects = {name: subject_and_form(name)[0] for name in names}
    known = looks(dict.fromkeys(subjects.values()))
    systems = {name: look for name, look in known.items() if look.title != name or look.strong}
    found = word_looks([name for name in names if subjects[name] not in systems])
    for subject, look in systems.items():
        mine = [name for name in names if subjects[name] == subject]
        mine.sort(key=lambda name: name != subject)
        for number, name in enumerate(mine):
            form = subject_and_form(name)[1]
            title = f"{look.title}, {form}" if form else look.title
            marker = look.mark.marker if not number else VARIANTS[(number - 1) % len(VARIANTS)]
            if number and marker == look.mark.marker:
                marker = "s"
            mark = Mark(look.mark.colour, marker, look.mark.filled and not number)
            found[name] = replace(look, name=name, title=title, mark=mark)
    return {name: found[name] for name in names}


def line_handle(look: Look, *, filled: bool | None = None, width: float = 1.3) -> Any:
    """Legend entry of a series: its line and its marker."""
    from matplotlib.lines import Line2D

    full = look.mark.filled if filled is None else filled
    return Line2D([], [], color=look.mark.colour, lw=width, marker=look.mark.marker, ms=4.6,
                  mfc=look.mark.colour if full else "white", mec=look.mark.colour,
                  label=look.title)  # fmt: skip


def gaps(axes: Any, points: Sequence[dict], places: Sequence[float], titles: Any) -> None:
    """A hatched box for each point without a value, at its place on a linear axis, and why.

    Args:
        axes: of the panel. points: those that failed. places: x of each, in data.
        titles: series -> how it is called.
    """
    (x0, x1), box = axes.get_xlim(), axes.get_position()
    wide, tall = [n * m for n, m in zip((box.width, box.height), axes.figure.get_size_inches(),
                                        strict=True)]  # fmt: skip
    high = 0.13 / tall
    for number, (point, place) in enumerate(zip(points, places, strict=True)):
        at = min(max((place - x0) / (x1 - x0), 0.06 / wide), 1 - 0.06 / wide)
        top = 0.9 - number * (high + 0.02)
        style.hatched(axes, at - 0.06 / wide, top - high, 0.12 / wide, high,
                      transform=axes.transAxes, clip_on=False)  # fmt: skip
        left = at > 0.5
        name = titles.get(point["series"], point["series"])
        room = wide * (at if left else 1 - at) - 0.2
        words = style.failure_words({**point, "failed_system": name}, {}, room)
        axes.text(at + (-0.09 if left else 0.09) / wide, top - high / 2, words,
                  transform=axes.transAxes, ha="right" if left else "left", va="center",
                  fontsize=style.CELL, color=INK, zorder=7,
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8})  # fmt: skip


def twin_titles(points: Sequence[dict], key: str = "panel") -> dict[Any, Any]:
    """Panels by name with "(twin)" behind those whose data are synthetic."""
    found = {}
    for name in order(points, key):
        mine = [p for p in points if p.get(key) == name]
        found[name] = name if name is None else marked(name, any(p.get("twin") for p in mine))
    return found


def failed_words(points: Sequence[dict]) -> str:
    """`; 2 failed`, or nothing."""
    count = sum(bool(p.get("failed")) for p in points)
    return f"; {count} failed" if count else ""
