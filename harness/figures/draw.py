"""From a `FigureSpec` and rows to files: SVG and PNG at two widths, CSV, and a caption."""

from __future__ import annotations

import csv
import importlib
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from dgbench.harness.figures.palette import looks
from dgbench.harness.figures.style import Context, save, styled
from dgbench.runtime.errors import InvalidInputError, unknown_key
from dgbench.runtime.statistics import control_disturbed, geometric_mean, t_quantile

KINDS = (
    "speedup",
    "time_split",
    "ablation",
    "sweep",
    "limit_share",
    "paper_vs_measured",
    "failed_cells",
    "claim_board",
    "over_time",
    "frontier",
    "scaling",
    "correctness",
    "curves",
    "changes",
    "across",
    "device_use",
)
WIDTHS = ("full", "half")
FLAVOURS = ("paper", "site")


@dataclass(frozen=True, slots=True)
class DrawnFigure:
    """A figure on disk.

    Attributes:
        name, kind, title: as in its spec.
        alt: one sentence with range, winner and failures. caption: ready for a paper.
        points: what was drawn. files: names written, relative to the folder.
        empty: True where there was nothing to draw; then no image was written.
        main: whether its spec calls it the main figure of its paper.
        panels: how many panels it has.
        titles: of contenders that are no systems.
    """

    name: str
    kind: str
    title: str
    alt: str
    caption: str
    points: list[dict[str, Any]]
    files: list[str] = field(default_factory=list)
    empty: bool = False
    main: bool = False
    panels: int = 1
    titles: Mapping[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> list[dict[str, Any]]:
        """Points with contenders and systems by their titles, as tables print them."""
        values = [point.get(key) for point in self.points for key in _NAMING]
        names = dict.fromkeys(value for value in values if isinstance(value, str))
        titles = {name: look.title for name, look in looks(names).items()}
        return [_titled(point, {**titles, **self.titles}) for point in self.points]

    def image(self, width: str = "half", kind: str = "svg") -> str | None:
        """File name of a width (`full` or `half`), the other width's where it was not drawn."""
        for which in (width, *WIDTHS):
            if f"{self.name}-{which}.{kind}" in self.files:
                return f"{self.name}-{which}.{kind}"
        return None


def draw_figure(
    spec: Any,
    rows: Sequence[Any],
    folder: Path,
    context: Context,
    *,
    flavour: str = "paper",
    widths: Sequence[str] | None = None,
    data: bool = True,
) -> DrawnFigure:
    """Draw what a spec says of rows into `folder`.

    Args:
        flavour: `paper` writes SVG with text as paths, and PNG; `site` writes one SVG with text
            as text, rounded and small.
        widths: of `full` and `half`; None takes both for papers, and for the site both where a
            figure has several panels, else `half` only.
        data: whether `<name>.csv` and `<name>.txt` are written, too.

    Raises:
        UnknownKeyError: the kind is not known.
        InvalidInputError: a point lacks a key; the message names figure, point and key.
    """
    points = list(spec.points(rows))
    return draw_points(
        spec.kind, spec.name, spec.title, points, folder, context, spec.options,
        flavour=flavour, widths=widths, data=data,
        titles={name: one.title for name, one in spec.contenders.items() if one.title},
    )  # fmt: skip


def draw_points(
    kind: str,
    name: str,
    title: str,
    points: list[dict[str, Any]],
    folder: Path,
    context: Context,
    options: Mapping[str, Any] | None = None,
    *,
    flavour: str = "paper",
    widths: Sequence[str] | None = None,
    data: bool = True,
    titles: Mapping[str, str] | None = None,
) -> DrawnFigure:
    """Draw points; see `draw_figure`. `titles` are those of contenders that are no systems."""
    if kind not in KINDS:
        raise unknown_key("kind of figure", kind, KINDS)
    if flavour not in FLAVOURS:
        raise unknown_key("flavour of figure", flavour, FLAVOURS)
    for width in widths or ():
        if width not in WIDTHS:
            raise unknown_key("width of figure", width, WIDTHS)
    module = importlib.import_module(f"dgbench.harness.figures.{kind}")
    options = dict(options or {})
    if any(p.get("projected") for p in points) and not getattr(module, "PROJECTS", False):
        raise InvalidInputError(
            f"figure '{name}' has projected points, which a {kind} would show as measured",
            hint="take a kind that draws projections apart: speedup, sweep, scaling, time_split",
        )
    points = _checked(name, module, points)
    if not points:
        return DrawnFigure(
            name, kind, title, "Nothing ran that this figure shows.", "", [], empty=True
        )
    folder.mkdir(parents=True, exist_ok=True)
    files: list[str] = []
    named, points = points, [_titled(point, titles or {}) for point in points]
    panels = _panels(kind, points)
    if widths is None:
        widths = WIDTHS if flavour == "paper" or panels > 1 else ("half",)
    with styled(flavour):
        for width in widths:
            figure = module.draw(points, options, context, width == "full")
            files += save(figure, folder, f"{name}-{width}", flavour)
    alt = module.describe(points, options, context)
    caption = _caption(title, alt, context)
    flat = getattr(module, "flat", None)  # points that hold whole series, unrolled
    if data:
        lines = flat(points) if flat else points
        (folder / f"{name}.csv").write_text(_table(lines), encoding="utf-8")
        (folder / f"{name}.txt").write_text(f"{alt}\n\n{caption}\n", encoding="utf-8")
        files += [f"{name}.csv", f"{name}.txt"]
    main = bool(options.get("main"))
    return DrawnFigure(name, kind, title, alt, caption, named, files, main=main, panels=panels,
                       titles=titles or {})  # fmt: skip


_NAMING = ("system", "baseline", "failed_system", "series", "x")
"""Keys of a point that may hold the name of a contender."""


def _titled(point: dict[str, Any], titles: Mapping[str, str]) -> dict[str, Any]:
    """A point whose contenders are called by their titles."""
    names = {key: name for key in _NAMING if isinstance(name := point.get(key), str)}
    found = {key: titles[name] for key, name in names.items() if name in titles}
    return {**point, **found} if found else point


def _panels(kind: str, points: Sequence[dict[str, Any]]) -> int:
    """Number of panels that the points need. A claim board is one panel however many papers it has;
    in `device_use` every counter is a column."""
    own = {"failed_cells": "model", "paper_vs_measured": "unit", "claim_board": "",
           "device_use": "counter"}  # fmt: skip
    key = own.get(kind, "panel")
    return len({point.get(key) for point in points})


def _checked(name: str, module: Any, points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Points with everything their kind needs; a number that is none makes the point a failure."""
    good = []
    for index, point in enumerate(points):
        needed = module.REQUIRED + (() if point.get("failed") else module.NUMBERS)
        for key in needed:
            if point.get(key) is None:
                raise InvalidInputError(
                    f"figure '{name}', point {index} lacks '{key}': {point}",
                    hint="a point without a value says why in 'failed' (docs/figures.md)",
                )
        bad = [k for k in module.NUMBERS if not point.get("failed") and _no_number(point[k])]
        if bad:
            point = {**point, "failed": f"check: '{bad[0]}' is {point[bad[0]]}"}
        good.append(point)
    return _one_a_place(module, good)


def _one_a_place(module: Any, points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Points with those that would be drawn onto each other joined to their mean; a category holds
    a dot a process."""
    once = getattr(module, "ONCE", ())
    if not once:
        return points
    places: dict[Any, list[dict[str, Any]]] = {}
    for index, point in enumerate(points):
        alone = point.get("failed") or isinstance(point.get("x"), str)
        place = index if alone else tuple(point.get(key) for key in once)
        places.setdefault(place, []).append(point)
    number = next(name for name in ("value", "y", "seconds") if name in module.NUMBERS)
    return [_mean_point(mine, number) for mine in places.values()]


def _mean_point(points: Sequence[dict[str, Any]], number: str) -> dict[str, Any]:
    """The mean of points with its interval over them, geometric where they are ratios."""
    if len(points) == 1:
        return points[0]
    values = [point[number] for point in points]
    if number == "value":
        value, low, high, _ = geometric_mean(values)
    else:
        value = fmean(values)
        half = t_quantile(len(values) - 1, 0.95) * stdev(values) / math.sqrt(len(values))
        low, high = value - half, value + half
    ids = dict.fromkeys(one for point in points for one in point.get("row_ids") or ())
    gaps = [point["deviation"] for point in points if point.get("deviation") is not None]
    deviation = {"deviation": max(gaps)} if gaps else {}
    return {**points[0], number: value, "low": low, "high": high, "row_ids": list(ids), **deviation}


def _no_number(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _table(points: Sequence[dict[str, Any]]) -> str:
    keys = list(dict.fromkeys(key for point in points for key in point if key != "row_ids"))
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*keys, "row_ids"])
    for point in points:
        cells = [_cell(point.get(key)) for key in keys]
        writer.writerow([*cells, " ".join(point.get("row_ids") or [])])
    return buffer.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _caption(title: str, alt: str, context: Context) -> str:
    parts = [f"{title}. {alt}"]
    where = ", ".join(p for p in (context.machine, context.device) if p)
    if where:
        parts.append(f"Measured on {where}, {context.date}, run {context.run}.")
    if context.noise is not None:
        floor = f"noise floor of ±{100 * context.noise:.1f} %"
        parts.append(
            f"Not judged: the A/A control was disturbed ({floor})."
            if control_disturbed(context.noise)
            else f"Differences inside the {floor} are called same."
        )
    if context.stamp:
        parts.append(f"{context.stamp}.")
    return " ".join(parts)
