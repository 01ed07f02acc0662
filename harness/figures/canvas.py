"""Sizes, type and settings of every figure, and empty figures laid out in inches by hand.

Automatic layout moves with the length of a label, and then two figures of one page no longer line
up.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from dgbench.harness.figures.palette import GRID, INK, SECONDARY

FULL: Final = 7.0
HALF: Final = 3.4
ROW: Final = 0.24
BODY, SMALL, CELL, FOOT, NOTE = 7.5, 7.0, 6.5, 7.0, 6.2
"""Points of type. `NOTE`, the smallest, is 10 pixels high where a page shows the full layout."""
HATCH_EDGE: Final = "#8A929B"
PROJECTED: Final = "dashed and hollow: projected by a model, not measured"
PROJECTED_DASHES: Final = (0, (3, 2))
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
    """Facts about a run that every figure shows.

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
def styled(flavour: str = "paper"):
    """matplotlib with dgbench's settings, whatever the user's own are."""
    import matplotlib
    import seaborn as sns

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        sns.set_theme(style="white")
        matplotlib.rcParams.update(_RC)
        if flavour == "site":
            matplotlib.rcParams["svg.fonttype"] = "none"
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
