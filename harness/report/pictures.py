"""Where the images of a figure are, and how large they are shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from dgbench.harness.figures.draw import DrawnFigure
from dgbench.harness.report.run import RunData

_SIZE = re.compile(r'<svg[^>]*? width="([\d.]+)pt"[^>]*? height="([\d.]+)pt"|'
                   r'<svg[^>]*? height="([\d.]+)pt"[^>]*? width="([\d.]+)pt"', re.S)  # fmt: skip
_PX_PER_PT = 96 / 72
WIDE: Final = 840
"""Width in CSS pixels at which a page shows the full layout; its text is then 12 pixels high."""
NARROW: Final = 560
"""Width at which a page shows the half layout."""
TALL: Final = 900
"""Height above which a figure is not made larger than `TEXT` times its own size."""
TEXT: Final = 1.3
"""At this scale 7 points of a figure are as high as the small print of a page."""


ACROSS: Final = "figures/machines"
"""Folder of the figures that show several machines."""


def figure_folder(merged: bool, run: RunData, paper: str) -> str:
    """The folder of a paper's figures of a run, relative to the front page."""
    return f"figures/{run.slug}/{paper}" if merged else f"figures/{paper}"


def picture(
    merged: bool, root: Path, run: RunData, paper: str, drawn: DrawnFigure
) -> dict[str, Any]:
    """Images of a figure below `root`, relative to the front page.

    Returns:
        `narrow`: the half layout, "" where a figure is too large for a site. `wide`: the full
        layout or None. `size`: width and height of the widest one as it is shown, in
        CSS pixels, or None.
        `links`: words and addresses of files worth having.
    """
    return images(figure_folder(merged, run, paper), root, drawn)


def images(folder: str, root: Path, drawn: DrawnFigure) -> dict[str, Any]:
    """Images of a figure in a folder below `root`; see `picture`."""
    names = set(drawn.files)
    narrow, wide = f"{drawn.name}-half.svg", f"{drawn.name}-full.svg"
    # A paper's own flavour is always there in two widths; the wide one says more only with panels.
    two = wide in names and (drawn.panels > 1 or narrow not in names)
    shown = wide if two else narrow if narrow in names else ""
    half = "narrow" if wide in names else "SVG"
    links = [(word, f"{folder}/{drawn.name}{ending}") for word, ending in (
        ("values (CSV)", ".csv"), ("SVG", "-full.svg"), ("PNG", "-full.png"),
        (half, "-half.svg")) if f"{drawn.name}{ending}" in names]  # fmt: skip
    return {
        "narrow": f"{folder}/{narrow if narrow in names else wide}" if shown else "",
        "wide": f"{folder}/{wide}" if two else None,
        "size": _size(root / folder / shown, WIDE if two else NARROW) if shown else None,
        "links": links,
    }


def _size(path: Path, most: int) -> tuple[int, int] | None:
    """Width and height of an image that is shown at most `most` pixels wide."""
    with path.open(encoding="utf-8") as file:
        found = _SIZE.search(file.read(2000))
    if not found:
        return None
    width, height = (found[1], found[2]) if found[1] else (found[4], found[3])
    own = float(width) * _PX_PER_PT, float(height) * _PX_PER_PT
    scale = min(most / own[0], max(TEXT, TALL / own[1]))
    return round(own[0] * scale), round(own[1] * scale)
