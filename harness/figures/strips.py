"""The strips of an `over_time` figure: their scales, what was read, and words where nothing was."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dgbench.harness.figures import style
from dgbench.harness.figures.palette import INK, SECONDARY
from dgbench.lab.charts import failure_of

HEADROOM: Final = 1.32
"""A strip reaches this far above its limit, so that a label needs not stand on data."""

FAR: Final = 8.0
"""A limit so many times the peak would press the data flat: the strip then ends near the peak."""

BUCKET_PT: Final = 1.8
"""Points of width of a piece of time, at least."""

NAMES: Final[dict[str, tuple[str, bool]]] = {
    # key: name on two lines at most; whether the peak is marked and numbered
    "gpu_memory": ("memory of\nthe GPU", True),
    "memory": ("memory", True),
    "gpu_resident": ("kernel\nresident", False),
    "gpm_sm_active": ("SM active", False),
    "gpm_tensor": ("tensor\nactive", False),
    "gpm_dram": ("DRAM\nactive", False),
    "gpm_pcie_rx": ("PCIe in", False),
    "gpm_pcie_tx": ("PCIe out", False),
    "gpm_nvlink_rx": ("NVLink in", False),
    "gpm_nvlink_tx": ("NVLink out", False),
    "gpu_power": ("power", False),
    "gpu_sm_clock": ("SM clock", False),
    "cpu": ("processors\nof the tree", False),
    "phases": ("phases", False),
}
"""Strips in their order from top to bottom."""


@dataclass(slots=True)
class Scale:
    """The vertical axis of a strip, the same in all panels.

    Attributes:
        top: where it ends. tick: the upper one of its two ticks. unit: of the tick's label.
        divide: what readings are divided by. said: words under the strip's name. far: whether the
            limit lies beyond the axis.
    """

    top: float = 1.0
    tick: float = 1.0
    unit: str = ""
    divide: float = 1.0
    said: list[str] = field(default_factory=list)
    far: bool = False

    @classmethod
    def of(cls, strip: str, points: Sequence[dict]) -> Scale:
        """The scale of a strip for its points of all panels."""
        good = [p for p in points if not p.get("failed")]
        if strip == "phases" or not good:
            return cls()
        peak = max((v for p in good for v in p["high"] if v is not None), default=0.0)
        limit = max((p["limit"] for p in good if p.get("limit")), default=0.0)
        unit, divide = good[0]["unit"], 1.0
        if unit == "MiB" and max(peak, limit if limit < FAR * peak else 0.0) >= 1024:
            unit, divide = "GiB", 1024.0
        scale = cls(unit=unit, divide=divide)
        scale.far = limit > FAR * peak and strip in ("memory", "gpu_memory", "gpu_power")
        # Without a limit in sight the upper tick is a round number above all data.
        scale.tick = limit if limit and not scale.far else _round_up(peak / divide) * divide or 1.0
        scale.top = max(scale.tick, peak) * HEADROOM
        scale.said = [unit]
        if scale.far:
            scale.said.append(f"limit {value_text(limit, good[0]['unit'])} ↑")
        return scale

    def ticks(self, axes: Any, *, label: bool) -> None:
        """Two ticks: 0 and the limit."""
        axes.set_ylim(0, self.top)
        if not self.said:
            axes.set_yticks([])
            return
        text = f"{self.tick / self.divide:.3g}"
        if self.tick / self.divide >= 1000:
            text = f"{self.tick / self.divide:.0f}"
        axes.set_yticks([0, self.tick], labels=["0", text] if label else ["", ""])


def draw_strip(axes: Any, point: dict, strip: str, scale: Scale, colour: str, end: float) -> None:
    """Readings of one process: a band from the smallest to the largest of each piece of time."""
    limit = point.get("limit")
    if limit and not scale.far:
        axes.axhline(limit, color=SECONDARY, lw=0.9, ls=(0, (4, 2)), zorder=1)
    half = point["step"] / 2
    seen = [
        (min(at + half, point["length"]), low, high)
        for at, low, high in zip(point["seconds"], point["low"], point["high"], strict=True)
        if high is not None
    ]
    if not seen:
        return
    xs = [x for x, _, _ in seen]
    lows, highs = [low for _, low, _ in seen], [high for _, _, high in seen]
    if len(seen) == 1:
        xs, lows, highs = [xs[0] - half, xs[0] + half], lows * 2, highs * 2
    axes.fill(xs + xs[::-1], highs + lows[::-1], facecolor=style.tint(colour, 0.45),
              edgecolor=colour, lw=0.8, joinstyle="round", zorder=3)  # fmt: skip
    if point.get("ended") and point["length"] - xs[-1] > 2 * half:
        style.hatched(axes, xs[-1] + half, 0, point["length"] - xs[-1] - half, scale.top)
    if NAMES.get(strip, ("", False))[1]:
        _peak(axes, point, xs, highs, scale, end)


def _peak(axes, point, xs, highs, scale, end) -> None:
    """The largest reading: a dot on it, its number in the room above the limit."""
    peak = max(highs)
    x = xs[highs.index(peak)]
    text = f"peak {value_text(peak, point['unit'])}"
    width = axes.get_position().width * axes.figure.get_size_inches()[0]
    share = style.text_width(text, style.CELL) / width
    middle = min(max(x / end, share / 2 + 0.03), 1 - share / 2 - 0.02)
    foot = scale.top / HEADROOM * 1.04
    if peak < foot:
        axes.plot([x, x], [peak, foot], color=INK, lw=0.5, zorder=4)
    axes.plot([x], [peak], marker="o", ms=2.6, color=INK, zorder=5, clip_on=False)
    axes.text(middle * end, scale.top * 0.995, text, ha="center", va="top", fontsize=style.CELL,
              zorder=6, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4})  # fmt: skip


def reason_words(axes: Any, point: dict | None, width: float, height: float) -> None:
    """Grey hatch and why there is nothing to draw."""
    left, right = axes.get_xlim()
    bottom, top = axes.get_ylim()
    style.hatched(axes, left, bottom, right - left, top - bottom)
    text = "not read"
    if point is not None:
        failure = failure_of(point)
        text = failure.reason or failure.status
    letters = max(int(width / 0.052), 8)
    most = max(int(height / 0.115), 1)
    lines = textwrap.wrap(text, letters)
    if len(lines) > most:
        lines = [*lines[: most - 1], textwrap.shorten(" ".join(lines[most - 1 :]), letters,
                                                      placeholder=" ...")]  # fmt: skip
    axes.text((left + right) / 2, (bottom + top) / 2, "\n".join(lines), ha="center", va="center",
              fontsize=style.NOTE, linespacing=1.05, zorder=7,
              bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0})  # fmt: skip


def coarser(point: dict, room: float, end: float) -> dict:
    """A point whose pieces of time are at least `BUCKET_PT` wide; its extremes stay.

    Args:
        room: inches of the axis. end: its seconds.
    """
    # As many pieces on the axis, however little of it the process fills.
    many = max(math.ceil(end / point["step"] * BUCKET_PT / (room * 72)), 1)
    return {
        **point,
        "seconds": point["seconds"][::many],
        "low": _merged(point["low"], many, min),
        "high": _merged(point["high"], many, max),
        "step": many * point["step"],
    }


def ended_words(points: Iterable[dict]) -> list[str]:
    """Of each counter that was not offered to the end: which and why."""
    found = {}
    for point in points:
        if point.get("ended") and not point.get("failed"):
            name = NAMES.get(point["row"], (point["row"],))[0].replace("\n", " ")
            found[name] = f"{name} ended early: {point['ended']}"
    return list(found.values())


def value_text(value: float, unit: str) -> str:
    """`412 MiB`, `12.6 GiB`, `187 %`."""
    if unit == "MiB" and value >= 1024:
        value, unit = value / 1024, "GiB"
    digits = 0 if value >= 100 or value == int(value) else 1
    return f"{value:.{digits}f} {unit}"


def _round_up(value: float) -> float:
    """The next of 1, 1.5, 2, 3, 4, 5, 6, 8, 10 times a power of ten."""
    if value <= 0:
        return 0.0
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value:
        power /= 10
    steps = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
    return next(power * step for step in steps if power * step >= value * (1 - 1e-9))


def _merged(values: Sequence[float | None], many: int, pick: Any) -> list[float | None]:
    found: list[float | None] = []
    for place in range(0, len(values), many):
        some = [v for v in values[place : place + many] if v is not None]
        found.append(pick(some) if some else None)
    return found
