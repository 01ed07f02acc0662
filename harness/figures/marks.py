"""Marks inside panels: dots, intervals, ticks of the paper, and hatch where there is no value."""

from __future__ import annotations

from typing import Any

from dgbench.harness.figures.canvas import HATCH_EDGE, PROJECTED_DASHES


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


def paper_mark(axes: Any, x: float, y: float) -> None:
    """The paper's own value at a point of two axes: a short black tick with a white halo."""
    from matplotlib.patheffects import Normal, Stroke

    axes.plot([x], [y], marker="_", ms=11, mew=1.5, color="black", ls="none", zorder=5,
              path_effects=[Stroke(linewidth=3.4, foreground="white"), Normal()])  # fmt: skip


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
