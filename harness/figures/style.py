"""How every figure is drawn: sizes, type, ticks, footers, and files with the same bytes each time.

Figures are laid out in inches by hand: automatic layout moves with the length of a label, and then
two figures of one page no longer line up.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from dgbench.harness.claims.verdict import digits
from dgbench.harness.figures.palette import GRID, INK, NOISE, RED, SECONDARY, STATUS_WORDS

FULL: Final = 7.0
HALF: Final = 3.4
ROW: Final = 0.24
BODY, SMALL, CELL, FOOT = 7.5, 7.0, 6.5, 5.6
HATCH_EDGE: Final = "#8A929B"
PROJECTED: Final = "dashed and hollow: projected by a model, not measured"
PROJECTED_DASHES: Final = (0, (3, 2))
WIDE: Final = 20.0
"""An interval whose ends are further apart than this factor says nothing and sets no axis."""
_FINE = (1, 1.1, 1.2, 1.3, 1.5, 1.7, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)

_RC: Final = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": BODY,
    "axes.labelsize": SMALL,
    "axes.titlesize": 8,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 4,
    "axes.edgecolor": SECONDARY,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "hatch.linewidth": 0.6,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    "svg.hashsalt": "dgbench",
    "svg.fonttype": "path",
    "path.simplify": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


@dataclass(frozen=True, slots=True)
class Context:
    """What the harness knows about a run and every figure says.

    Attributes:
        machine, device, date, run, preset: for the footer.
        noise: half width of the noise floor as a fraction, or None where it was not measured.
        stamp: "SMOKE, not a measurement", "PARTIAL", or "".
    """

    machine: str = ""
    device: str = "cpu"
    date: str = ""
    run: str = ""
    preset: str = "quick"
    noise: float | None = None
    stamp: str = ""


@contextmanager
def styled():
    """matplotlib with dgbench's settings, whatever the user's own are."""
    import matplotlib
    import seaborn as sns

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        sns.set_theme(style="white")
        matplotlib.rcParams.update(_RC)
        yield


def new_figure(width: float, height: float) -> Any:
    """An empty figure of a size in inches, without pyplot and its global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def place(figure: Any, left: float, top: float, width: float, height: float) -> Any:
    """Axes at a place in inches; `top` is measured from the upper edge."""
    w, h = figure.get_size_inches()
    return figure.add_axes((left / w, 1 - (top + height) / h, width / w, height / h))


def write_at(figure: Any, x: float, top: float, text: str, **style: Any) -> Any:
    """Text at a place in inches from the left and the upper edge."""
    w, h = figure.get_size_inches()
    style.setdefault("va", "top")
    return figure.text(x / w, 1 - top / h, text, **style)


@cache
def text_width(text: str, size: float = SMALL, *, bold: bool = False) -> float:
    """Width of a text in inches, from the font's own metrics."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    if not text.strip():
        return 0.0
    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    return TextPath((0, 0), text, size=size, prop=font).get_extents().width / 72


def label_room(labels: Iterable[str], *, most: float, size: float = SMALL) -> float:
    """Inches that the longest label needs, at most `most`."""
    return min(most, max((text_width(label, size) for label in labels), default=0.0) + 0.12)


def fit_labels(
    labels: Iterable[str], *, most: float, size: float = SMALL
) -> tuple[dict[str, str], float]:
    """Row labels on at most two lines, and the inches that they need.

    Labels wrap where they are wider than `most`; where two lines of that width cannot hold one,
    all get the room that it takes. None is ever cut.
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
        if room > FULL or all(text.count("\n") < 2 for text in fitted.values()):
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


def footer_lines(
    special: Sequence[str], context: Context, *, width: float, more: Sequence[str] = ()
) -> list[str]:
    """The footer: first what is special, then machine, date and run; items are never cut."""
    measured = [context.machine, context.device, context.date]
    measured += [f"run {context.run}" if context.run else "", f"preset {context.preset}", *more]
    if context.noise is not None:
        measured.append(f"noise floor ±{100 * context.noise:.1f} %")
    lines: list[str] = []
    for items in (special, measured):
        line = ""
        for item in (i for i in items if i):
            longer = f"{line}  ·  {item}" if line else item
            if line and text_width(longer, FOOT) > width - 0.16:
                lines.append(line)
                line = item
            else:
                line = longer
        if line:
            lines.append(line)
    if context.stamp and (not lines or _stamp_collides(lines[-1], context.stamp, width)):
        lines.append("")
    return lines


def footer_height(lines: Sequence[str]) -> float:
    """Inches that the footer needs."""
    return 0.11 * len(lines) + 0.06


def draw_footer(figure: Any, lines: Sequence[str], context: Context) -> None:
    """Write the footer lines at the lower edge, and the stamp at their right end."""
    width, height = figure.get_size_inches()
    top = height - footer_height(lines)
    for number, line in enumerate(lines):
        write_at(figure, 0.06, top + 0.11 * number, line, fontsize=FOOT, color=SECONDARY)
    if context.stamp:
        write_at(
            figure,
            width - 0.06,
            top + 0.11 * (len(lines) - 1),
            context.stamp,
            fontsize=FOOT,
            color=RED,
            fontweight="bold",
            ha="right",
        )


def _stamp_collides(line: str, stamp: str, width: float) -> bool:
    return text_width(line, FOOT) + text_width(stamp, FOOT, bold=True) + 0.3 > width


def same(value: float, noise: float | None) -> bool:
    """Whether a ratio lies inside the noise floor."""
    return noise is not None and 1 / (1 + noise) <= value <= 1 + noise


def side(point: Any, noise: float | None) -> str:
    """What a ratio says: `faster`, `slower`, `same`, or `undecided` if its interval holds 1x."""
    if same(point["value"], noise):
        return "same"
    low, high = point.get("low"), point.get("high")
    if low is not None and high is not None and low <= 1 <= high:
        return "undecided"
    return "faster" if point["value"] > 1 else "slower"


def noise_band(axes: Any, noise: float | None, *, horizontal: bool = False) -> None:
    """Line at 1x and the band of the noise floor around it."""
    line = axes.axhline if horizontal else axes.axvline
    span = axes.axhspan if horizontal else axes.axvspan
    if noise is not None:
        span(1 / (1 + noise), 1 + noise, color=NOISE, alpha=0.8, lw=0, zorder=0.5)
    line(1, color=SECONDARY, lw=0.8, zorder=1)


def paper_tick(axes: Any, x: float, y: float, half: float, *, horizontal: bool = False) -> None:
    """The paper's own value: a black tick with a white halo, across the value axis."""
    from matplotlib.patheffects import Normal, Stroke

    xs, ys = ([x - half, x + half], [y, y]) if horizontal else ([x, x], [y - half, y + half])
    axes.plot(
        xs,
        ys,
        color="black",
        lw=1.5,
        solid_capstyle="butt",
        zorder=5,
        path_effects=[Stroke(linewidth=3.4, foreground="white"), Normal()],
    )


def stem(axes: Any, x0: float, x1: float, y: float, colour: str) -> None:
    """A thin dashed line that says: projected by a model, not measured."""
    axes.plot([x0, x1], [y, y], color=colour, lw=0.8, ls=PROJECTED_DASHES, zorder=3)


def tint(colour: str, share: float = 0.3) -> str:
    """A colour mixed with white."""
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(255 - share * (255 - part)):02X}" for part in parts)


def dot(axes: Any, x: float, y: float, look: Any, *, hollow: bool = False, size: float = 4.2):
    """A system's mark at a point."""
    filled = look.mark.filled and not hollow
    axes.plot(
        [x],
        [y],
        marker=look.mark.marker,
        ms=size,
        mfc=look.mark.colour if filled else "white",
        mec=look.mark.colour,
        mew=1.0,
        ls="none",
        zorder=6,
        clip_on=False,
    )


def interval(axes: Any, low: Any, high: Any, y: float, colour: str, *, vertical: bool = False):
    """A wide translucent bar from low to high behind the mark; nothing where there is none."""
    if low is None or high is None:
        return
    xs, ys = ([y, y], [low, high]) if vertical else ([low, high], [y, y])
    axes.plot(xs, ys, color=colour, lw=3.2, alpha=0.45, solid_capstyle="butt", zorder=3)


def hatched(axes: Any, x: float, y: float, width: float, height: float, **style: Any) -> None:
    """Grey hatch: there is no value here, and the words beside it say why."""
    from matplotlib.patches import Rectangle

    box = Rectangle(
        (x, y),
        width,
        height,
        facecolor="#F2F3F5",
        edgecolor=style.pop("edge", HATCH_EDGE),
        hatch="//////",
        lw=0.0,
        zorder=1.5,
        **style,
    )
    axes.add_patch(box)


def failure_words(point: dict[str, Any], titles: dict[str, str], room: float) -> str:
    """Why a point has no value, as long as fits: `PiPAD: OOM (21.9 of 24.0 GiB)` down to `OOM`."""
    status, _, detail = str(point["failed"]).partition(":")
    word = STATUS_WORDS.get(status.strip(), status.strip())
    who = point.get("failed_system") or ""
    who = f"{titles.get(who, who)}: " if who else ""
    detail = detail.strip()
    for text in (f"{who}{word} ({detail})" if detail else "", f"{who}{word}"):
        if text and text_width(text, CELL) <= room:
            return text
    return word


def factor(value: float) -> str:
    """A ratio as people write it: `2.1x`, `0.82x`."""
    return f"{digits(value)}x"


def with_interval(value: float, low: float | None, high: float | None) -> str:
    """`2.1x [1.9, 2.3]`; the interval has as many decimals as the value."""
    text = digits(value)
    if low is None or high is None:
        return f"{text}x"
    if not 0 < high / WIDE <= low:
        return f"{text}x, interval too wide"
    places = len(text.partition(".")[2])
    return f"{text}x [{low:.{places}f}, {high:.{places}f}]"


def seconds_text(value: float) -> str:
    """A time with its unit: `12.3 ms`, `4.1 s`, `2:05 min`."""
    for limit, scale, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (120.0, 1.0, "s")):
        if value < limit:
            return f"{_three(value * scale)} {unit}"
    return f"{int(value // 60)}:{round(value % 60):02d} min"


def _three(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ratio_ticks(low: float, high: float) -> list[float]:
    """Plain places for ticks on a log axis: 1 2 5 10, with more or fewer as the range asks."""
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    found: list[float] = []
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), _FINE):
        denser = [s * 10.0**d for d in decades for s in steps if low <= s * 10.0**d <= high]
        if len(denser) > 6 and len(found) >= 2:
            break
        if len(denser) > len(found):
            found = denser
        if len(found) >= 4:
            break
    return found if len(found) <= 6 else found[::2]


def log_axis(axis: Any, low: float, high: float, *, unit: str = "", room: float = 9.0) -> None:
    """A log axis with plain tick labels; `room` (inches) thins ticks that would collide."""
    ticks = ratio_ticks(low, high)
    labels = [f"{tick_text(t)}{unit}" for t in ticks]
    while len(ticks) > 2 and sum(text_width(t) + 0.10 for t in labels) > room:
        ticks, labels = ticks[::2], labels[::2]
    axis.set_ticks(ticks, labels=labels)
    axis.set_ticks([], minor=True)


def tick_text(value: float) -> str:
    """A tick's number: 0.5, 20, 2 000, 1M, 30G."""
    if value >= 1e12:
        return f"{value / 1e12:g}T"
    if value >= 1e9:
        return f"{value / 1e9:g}G"
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    if value >= 1e4:
        return f"{value / 1e3:g}k"
    return f"{value:g}"


def log_limits(values: Iterable[float], *, pad: float = 1.18, include: float | None = None):
    """Limits of a log axis around positive values."""
    found = [v for v in values if v is not None and v > 0 and math.isfinite(v)]
    if include is not None:
        found.append(include)
    if not found:
        return 0.5, 2.0
    low, high = min(found), max(found)
    if high / low < 1.5:
        low, high = low / 1.25, high * 1.25
    return low / pad, high * pad


def ends(point: Any, low: str = "low", high: str = "high") -> list[float]:
    """The ends of a point's interval for an axis; none where the interval is too wide."""
    first, last = point.get(low), point.get(high)
    if not first or not last or first <= 0 or last / first > WIDE:
        return []
    return [first, last]


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


def paper_mark(axes: Any, x: float, y: float) -> None:
    """The paper's own value at a point of two axes: a short black tick with a white halo."""
    from matplotlib.patheffects import Normal, Stroke

    axes.plot([x], [y], marker="_", ms=11, mew=1.5, color="black", ls="none", zorder=5,
              path_effects=[Stroke(linewidth=3.4, foreground="white"), Normal()])  # fmt: skip


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

    return Patch(color=NOISE, label=f"noise floor ±{100 * noise:.1f} %")


def failed_handle() -> Any:
    """Legend entry of a cell without a value."""
    from matplotlib.patches import Patch

    return Patch(facecolor="#F2F3F5", edgecolor=HATCH_EDGE, hatch="//////", lw=0, label="no value")


def save(figure: Any, folder: Path, stem: str) -> list[str]:
    """Write `<stem>.svg` and `<stem>.png`; the same figure gives the same bytes."""
    names = []
    for kind, options in (
        ("svg", {"metadata": {"Date": None, "Creator": None}}),
        ("png", {"dpi": 220, "metadata": {"Software": None}}),
    ):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, **options)
        name = f"{stem}.{kind}"
        (folder / name).write_bytes(buffer.getvalue())
        names.append(name)
    return names
