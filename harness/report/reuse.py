"""Drawing many figures side by side, and not again where nothing about them has changed.

A run's folder gets every figure in full (two widths, SVG and PNG, values, caption). A site gets one
light SVG, a second, wide one where a figure has several panels, and the values; these are kept
under `DGBENCH_CACHE/figures` by a hash of all they are made from.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from dgbench.datasets.store import cache_root
from dgbench.harness.figures.draw import DrawnFigure, draw_points
from dgbench.harness.figures.palette import looks
from dgbench.harness.figures.style import Context
from dgbench.harness.report.parallel import side_by_side
from dgbench.harness.store.files import write_whole
from dgbench.lab.experiment import Contender
from dgbench.runtime.errors import DgbenchError, StoreError
from dgbench.systems.base.registry import SYSTEMS, system_names, third_party

log = logging.getLogger(__name__)

Flavour = Literal["paper", "site"]

MAX_BYTES: Final = 64_000
"""A figure that weighs more is not put on a site; its values stand there as a table."""
IN_TABLE: Final = 20
"""Up to so many values all stand in the table under a figure, and a site needs no CSV of them."""
KEEP_DAYS: Final = 30


@dataclass(frozen=True, slots=True)
class Sketch:
    """A figure before it is drawn, with what `draw_points` takes."""

    kind: str
    name: str
    title: str
    points: list[dict[str, Any]]
    options: dict[str, Any] = field(default_factory=dict)
    contenders: dict[str, Contender] = field(default_factory=dict)

    @property
    def titles(self) -> dict[str, str]:
        """Titles of the contenders that have one."""
        return {name: one.title for name, one in self.contenders.items() if one.title}


@dataclass(frozen=True, slots=True)
class FigureJob:
    """A sketch to be drawn into `folder`, which is relative to the front page."""

    sketch: Sketch
    folder: str
    context: Context


class _CachedFigure(msgspec.Struct):
    """A figure in the cache: its words, what was drawn, and its SVG and CSV by file name."""

    alt: str
    caption: str
    main: bool
    empty: bool
    panels: int
    points: list[dict[str, Any]]
    images: dict[str, str]


_KEPT = msgspec.json.Decoder(_CachedFigure)


def draw_all(jobs: Sequence[FigureJob], root: Path, flavour: Flavour) -> list[DrawnFigure | str]:
    """Draw figures below `root`; a figure that cannot be drawn becomes the reason why.

    `DrawnFigure.files` are names in the job's folder. On a site an image above
    `MAX_BYTES` is left out.
    """
    import matplotlib.pyplot  # noqa: F401 - once, before the processes that draw are forked

    if flavour == "paper":
        return side_by_side(lambda job: _in_full(job, root / job.folder), jobs)
    found = [_find(job) for job in jobs]
    left = [job for job, kept in zip(jobs, found, strict=True) if kept is None]
    drawn = iter(side_by_side(_light, left))
    results: list[DrawnFigure | str] = []
    for job, kept in zip(jobs, found, strict=True):
        kept = next(drawn) if kept is None else kept
        results.append(kept if isinstance(kept, str) else _put(job, kept, root / job.folder))
    _forget_old()
    return results


def _in_full(job: FigureJob, folder: Path) -> DrawnFigure | str:
    sketch = job.sketch
    try:
        return draw_points(
            sketch.kind, sketch.name, sketch.title, sketch.points, folder, job.context,
            sketch.options, titles=sketch.titles,
        )  # fmt: skip
    except Exception as error:  # plugin data: the page must still be written
        return _said(sketch, error)


def _light(job: FigureJob) -> _CachedFigure | str:
    """Draw a figure for a site and keep it."""
    import tempfile

    sketch = job.sketch
    try:
        with tempfile.TemporaryDirectory(prefix="dgbench-figure-") as folder:
            drawn = draw_points(
                sketch.kind, sketch.name, sketch.title, sketch.points, Path(folder), job.context,
                sketch.options, flavour="site", titles=sketch.titles,
            )  # fmt: skip
            names = [name for name in drawn.files if not name.endswith(".txt")]
            images = {name: (Path(folder) / name).read_text("utf-8") for name in names}
        text = msgspec.json.encode(
            _CachedFigure(
                drawn.alt,
                drawn.caption,
                drawn.main,
                drawn.empty,
                drawn.panels,
                drawn.points,
                images,
            ),
            enc_hook=_plain,
        )
    except Exception as error:
        return _said(sketch, error)
    path = _place(job)
    # A cache that cannot be written costs time at the next build and nothing else.
    with contextlib.suppress(OSError, StoreError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    return _KEPT.decode(text)  # the same as what comes out of the cache next time


def _said(sketch: Sketch, error: Exception) -> str:
    log.warning("figure %s: %s", sketch.name, error)
    log.debug("figure failed", exc_info=True)
    return f"figure '{sketch.name}' cannot be drawn: {error}"


def _find(job: FigureJob) -> _CachedFigure | None:
    path = _place(job)
    try:
        kept = _KEPT.decode(path.read_bytes())
        path.touch()  # what is in use stays
    except (OSError, msgspec.DecodeError):
        return None
    return kept


def _put(job: FigureJob, kept: _CachedFigure, folder: Path) -> DrawnFigure:
    sketch, put = job.sketch, []
    for name, text in kept.images.items():
        if name.endswith(".csv") and len(kept.points) <= IN_TABLE:
            continue
        data = text.encode("utf-8")
        if name.endswith(".svg") and len(data) > MAX_BYTES:
            log.warning("%s/%s has %d bytes and is left out of the site", job.folder, name,
                        len(data))  # fmt: skip
            continue
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        put.append(name)
    return DrawnFigure(
        sketch.name, sketch.kind, sketch.title, kept.alt, kept.caption, kept.points, put,
        kept.empty, kept.main, kept.panels, sketch.titles,
    )  # fmt: skip


def _place(job: FigureJob) -> Path:
    sketch = job.sketch
    parts = [code_version(), sketch.kind, sketch.name, sketch.title, sketch.points, sketch.options,
             sketch.titles, astuple(job.context),
             repr(looks(_third_party(sketch.points)))]  # fmt: skip
    text = msgspec.json.encode(parts, enc_hook=_plain, order="deterministic")
    return cache_root() / "figures" / f"{hashlib.sha256(text).hexdigest()[:32]}.json"


def _third_party(points: Sequence[dict[str, Any]]) -> list[str]:
    """Systems of third parties among the points; how these look is no part of our code."""
    named = {str(point.get(key)) for point in points for key in ("system", "series", "baseline")}
    return sorted(named.intersection(third_party(SYSTEMS)))


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else repr(value)


@cache
def code_version() -> str:
    """A hash of everything but the points that decides how a figure looks."""
    digest = hashlib.sha256()
    for package in ("harness.figures", "harness.claims", "runtime"):
        for path in sorted(_sources(files(f"dgbench.{package}")), key=str):
            digest.update(path.read_bytes())
    for name in ("matplotlib", "seaborn", "numpy"):
        digest.update(version(name).encode())
    digest.update(repr(sys.version_info[:2]).encode())
    ours = [name for name in system_names() if name not in third_party(SYSTEMS)]
    digest.update(repr(looks(ours)).encode())
    return digest.hexdigest()


def _sources(root: Any) -> list[Any]:
    found = []
    for entry in root.iterdir():
        if entry.is_dir():
            found += _sources(entry)
        elif entry.name.endswith(".py"):
            found.append(entry)
    return found


def _forget_old() -> None:
    """Remove figures that no build has asked for in a month."""
    limit = time.time() - KEEP_DAYS * 86400
    with contextlib.suppress(OSError, DgbenchError):
        for path in (cache_root() / "figures").glob("*.json"):
            if path.stat().st_mtime < limit:
                path.unlink()
