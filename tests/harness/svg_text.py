"""Text, panels and marks of a figure's SVG with their places, as a reader sees them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from dgbench.harness.figures.style import text_width

SVG = "{http://www.w3.org/2000/svg}"
_BOX = re.compile(r"M(-?[\d.]+) (-?[\d.]+)H(-?[\d.]+)V(-?[\d.]+)H\1(?:V\2)?z")
_SCALE = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_TICK = re.compile(r"([\N{MINUS SIGN}-]?\d*\.?\d+(?:e[-+]?\d+)?)([kMGT]?)(x?)")


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in points, y downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def holds(self, x: float, y: float, slack: float = 0.0) -> bool:
        inside = self.left - slack <= x <= self.right + slack
        return inside and self.top - slack <= y <= self.bottom + slack


@dataclass(frozen=True, slots=True)
class Words:
    """A line of text: `left` and `right` are its ends, `y` is its middle."""

    text: str
    left: float
    right: float
    y: float
    size: float
    bold: bool
    turned: bool


@dataclass(frozen=True, slots=True)
class Mark:
    """A marker, or the middle of a short straight line, with its colour."""

    x: float
    y: float
    colour: str


class Picture:
    """A figure of the `site` flavour, read back from its file.

    Attributes:
        page: the whole figure. panels: boxes of its axes from left to right, line after line.
        words: lines of text that are not turned. marks: markers.
    """

    def __init__(self, path: Path) -> None:
        root = ElementTree.parse(path).getroot()
        style = "".join(e.text or "" for e in root.iter(f"{SVG}style"))
        rules = dict(re.findall(r"\.([a-z]+)\{([^}]*)\}", style))
        self.page = Box(0, 0, *map(float, root.get("viewBox").split()[2:]))
        self.words: list[Words] = []
        self.marks: list[Mark] = []
        boxes: list[Box] = []
        for element in root.iter():
            look = rules.get(element.get("class", ""), "") + ";" + element.get("style", "")
            found = dict(part.split(":", 1) for part in look.split(";") if ":" in part)
            if element.tag == f"{SVG}text":
                self.words.append(_words(element, found))
            elif element.tag == f"{SVG}use":
                x, y = float(element.get("x", 0)), float(element.get("y", 0))
                self.marks.append(Mark(x, y, found.get("stroke", found.get("fill", ""))))
            elif element.tag == f"{SVG}path" and found.get("fill", "none") == "none":
                self.marks += _ticks(element.get("d", ""), found.get("stroke", ""))
            elif element.tag == f"{SVG}path" and found.get("fill") in ("#fff", "#ffffff"):
                match = _BOX.fullmatch(element.get("d", ""))
                if match and "stroke" not in found and not element.get("clip-path"):
                    left, y0, right, y1 = map(float, match.groups())
                    boxes.append(Box(left, min(y0, y1), right, max(y0, y1)))
        boxes = [b for b in boxes if b.bottom - b.top > 17 and b.left > 1]
        self.panels = [b for b in boxes if not any(_inside(b, other) for other in boxes)]
        self.panels.sort(key=lambda b: (round(b.top), b.left))

    def title(self, panel: Box) -> str:
        """The bold words that begin above the left edge of a panel."""
        lines = [
            w for w in self.words
            if w.size == 8 and abs(w.left - panel.left) < 1 and 0 < panel.top - w.y < 80
            and not any(w.y < other.bottom < panel.top for other in self.panels)
        ]  # fmt: skip
        return " ".join(w.text for w in sorted(lines, key=lambda w: w.y))

    def row_labels(self, panel: Box) -> list[tuple[str, float]]:
        """Labels left of a panel with the heights of their rows, top to bottom.

        A panel without labels of its own is read by those of its left neighbour.
        """
        mine = [
            w for w in self.words
            if 0 < panel.left - w.right < 8 and panel.top <= w.y <= panel.bottom and not w.turned
        ]  # fmt: skip
        if not mine:
            left = [p for p in self.panels if abs(p.top - panel.top) < 1 and p.right < panel.left]
            return self.row_labels(left[-1]) if left else []
        groups: list[list[Words]] = []
        for words in sorted(mine, key=lambda w: w.y):
            if groups and words.y - groups[-1][-1].y < 1.35 * words.size:
                groups[-1].append(words)
            else:
                groups.append([words])
        return [
            (" ".join(w.text for w in group), sum(w.y for w in group) / len(group))
            for group in groups
        ]

    def beside(self, panel: Box) -> dict[str, list[Words]]:
        """Text of each row of a panel and right of it, in the order in which it is read.

        Every line of text belongs to the row whose label is nearest in height.
        """
        rows = self.row_labels(panel)
        found: dict[str, list[Words]] = {label: [] for label, _ in rows}
        assert len(found) == len(rows), f"two rows share a label: {rows}"
        end = min(
            (p.left for p in self.panels if p.left > panel.left and _overlap(p, panel)),
            default=self.page.right,
        )
        if end < self.page.right:  # labels of the next panel end at its edge
            labels = [w.left for w in self.words if 0 < end - w.right < 8
                      and panel.top <= w.y <= panel.bottom]  # fmt: skip
            end = min([end, *labels])
        for words in self.words:
            middle = (words.left + words.right) / 2
            if panel.left - 3 < words.left and middle < end and panel.top < words.y < panel.bottom:
                label = min(rows, key=lambda row: abs(row[1] - words.y))[0]
                found[label].append(words)
        return {
            label: sorted(mine, key=lambda w: (round(w.y), w.left)) for label, mine in found.items()
        }

    def legend(self) -> dict[str, str]:
        """Words with a mark before them above all panels, and its colour."""
        found = {}
        for words in self.words:
            for mark in self.marks:
                near = 0 < words.left - mark.x < 16 and abs(mark.y - words.y) < 4
                if near and words.y < self.panels[0].top:
                    found[words.text] = mark.colour
        return found

    def marked(self, x: float, y: float, colour: str | None = None, height: float = 1.5) -> bool:
        """Return True if a mark (of a colour) is at most `height` above or below a position."""
        return any(
            abs(m.x - x) <= 1.5 and abs(m.y - y) <= height and colour in (None, m.colour)
            for m in self.marks
        )

    def scale(self, panel: Box, *, up: bool, log: bool) -> Scale:
        """The axis of a panel, from the places and numbers of its ticks."""
        ticks = {}
        for words in self.words:
            match = _TICK.fullmatch(words.text)
            middle = (words.left + words.right) / 2
            if not match or words.turned:
                continue
            under = 0 < words.y - panel.bottom < 14 and panel.left - 9 < middle < panel.right + 9
            left = 0 < panel.left - words.right < 8 and panel.holds(panel.left, words.y, 4)
            if left if up else under and not left:
                number = float(match[1].replace("\N{MINUS SIGN}", "-")) * _SCALE[match[2]]
                ticks[words.y if up else middle] = number
        places = sorted(ticks)
        assert len(places) > 1, f"fewer than two ticks: {ticks}"
        return Scale(places[0], ticks[places[0]], places[-1], ticks[places[-1]], log)


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear or a log axis through two ticks: places in points, values in data."""

    start: float
    low: float
    end: float
    high: float
    log: bool

    def place(self, value: float) -> float:
        """Where a value stands."""
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def number(text: str) -> tuple[float, float] | None:
    """The first number of a text in plain units and half a unit of its last digit, or None."""
    text = re.sub(r"(?<=\d)[ \N{THIN SPACE}\N{NO-BREAK SPACE}](?=\d{3})", "", text)
    match = re.search(r"(\d+):(\d\d) min", text)
    if match:
        return 60.0 * int(match[1]) + int(match[2]), 0.5
    match = re.search(r"([\N{MINUS SIGN}-]?\d+(?:\.(\d+))?)\s*(ms|µs|ns|s\b|)", text)
    if not match:
        return None
    unit = {"ms": 1e-3, "µs": 1e-6, "ns": 1e-9}.get(match[3], 1.0)
    last = 10.0 ** -len(match[2] or "")
    return float(match[1].replace("\N{MINUS SIGN}", "-")) * unit, last * unit / 2


def says(text: str, value: float) -> bool:
    """Return True if a text shows a value, as exactly as its digits can."""
    found = number(text)
    return found is not None and abs(found[0] - value) <= found[1] * 1.02 + 2e-6 * abs(value)


def _words(element: ElementTree.Element, look: dict[str, str]) -> Words:
    text = element.text or ""
    size = float(look.get("font-size", "10px").removesuffix("px"))
    bold = look.get("font-weight") == "700"
    x, y = float(element.get("x", 0)), float(element.get("y", 0))
    turn = element.get("transform", "")
    place = re.search(r"translate\(([-\d.]+)[ ,]+([-\d.]+)\)", turn)
    if place:
        x, y = x + float(place[1]), y + float(place[2])
    turned = "rotate" in turn and not re.search(r"rotate\(-?0[ )]", turn)
    width = 0.0 if turned else 72 * text_width(text, size, bold=bold)
    share = {"middle": 0.5, "end": 1.0}.get(look.get("text-anchor", ""), 0.0)
    left = x - share * width
    return Words(text.replace("\N{NO-BREAK SPACE}", "").strip(), left, left + width,
                 y - 0.36 * size, size, bold, turned)  # fmt: skip


def _ticks(d: str, colour: str) -> list[Mark]:
    """Short straight lines, such as ticks of a paper's own values."""
    found = []
    for x, y, way, end in re.findall(r"M(-?[\d.]+) (-?[\d.]+)([HV])(-?[\d.]+)(?=M|$)", d):
        start, other = (float(x), float(y)) if way == "H" else (float(y), float(x))
        if abs(float(end) - start) < 40:
            middle = (start + float(end)) / 2
            found.append(Mark(*((middle, other) if way == "H" else (other, middle)), colour))
    return found


def _inside(box: Box, other: Box) -> bool:
    return (
        box != other
        and other.holds(box.left, box.top, 0.5)
        and other.holds(box.right, box.bottom, 0.5)
    )


def _overlap(one: Box, other: Box) -> bool:
    return one.top < other.bottom and other.top < one.bottom
