"""Pages of comparisons: every two runs of a paper that share cells, and one index.

The same page stands alone for `dgbench compare A B --out FOLDER`.
"""

from __future__ import annotations

import dataclasses
import itertools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dgbench.harness.compare import ASSUMED, Change, Comparison, compare_states
from dgbench.harness.figures.compared import compare_context, draw_changes, draw_races
from dgbench.harness.figures.draw import DrawnFigure
from dgbench.harness.quantities import percent, spread
from dgbench.harness.report.pages import common
from dgbench.harness.report.run import RunData
from dgbench.harness.report.site import SiteData
from dgbench.harness.states import State

MAX_LISTED: Final = 60
"""Undecided changes that a page lists; the CSV has all."""
FIGURES: Final = "figures/compare"


@dataclass(frozen=True, slots=True)
class ComparisonPair:
    """Two sides of a comparison as a page shows them, the older first.

    Attributes:
        title: what is compared. sides: run of A and of B, None where a side is several runs.
        found: what differs. slug: name of its page. drawn: its figure.
        files: path relative to the front page -> contents of the figures' files.
        races: figures of the main race of both sides, where they are two machines.
    """

    title: str
    sides: tuple[RunData | None, RunData | None]
    found: Comparison
    slug: str
    drawn: DrawnFigure
    files: dict[str, str] = field(default_factory=dict)
    races: list[DrawnFigure] = field(default_factory=list)

    @property
    def href(self) -> str:
        """Path of its page, seen from the front page."""
        return f"compare/{self.slug}.html"

    @property
    def headline(self) -> str:
        """Counts in words, or that nothing lies outside the noise floor."""
        found = self.found
        if found.count("SLOW") or found.count("FAST") or found.broken:
            broken = f"{len(found.broken)} that fail now, " if found.broken else ""
            return broken + found.headline
        return f"nothing outside the noise floor: {found.headline}"

    def path(self, drawn: DrawnFigure, ending: str) -> str:
        """Path of a file of one of its figures (`-full.svg`, `.csv`), "" where there is none."""
        path = f"{FIGURES}/{drawn.name}{ending}"
        return path if path in self.files else ""


def pages(site: SiteData, env: Any) -> dict[str, str]:
    """`compare/index.html`, a page for every pair, and their figures as text (SVG, CSV).

    Args:
        site: what is merged. env: of `pages.environment()`.

    Returns:
        path relative to the front page -> text.
    """
    found = pairs(site)
    index = env.get_template("compares.html.j2").render(
        **common(site, "../", "compare"), pairs=found, lonely=_lonely(site)
    )
    made = {"compare/index.html": index}
    for pair in found:
        made[pair.href] = compare_page(common(site, "../", "compare"), env, pair)
        made |= pair.files
    return made


def compare_page(
    context: dict[str, Any], env: Any, pair: ComparisonPair, *, alone: bool = False
) -> str:
    """The page of one comparison.

    Args:
        context: of `pages.common`. alone: without a site around it, so without links to rows.
    """
    listed, folded = listed_changes(pair.found)
    floor = pair.found.floor if pair.found.floor is not None else ASSUMED
    return env.get_template("compare.html.j2").render(
        **context, pair=pair, found=pair.found, listed=listed, folded=folded, floor=floor,
        measured=pair.found.floor is not None, alone=alone, percent=percent, spread=spread,
        href_of=_href_of([] if alone else pair.sides), papers=sorted(_papers(pair.found)),
    )  # fmt: skip


def pairs(site: SiteData) -> list[ComparisonPair]:
    """Every two runs of the same paper that share a cell, in the order of papers and runs."""
    made = []
    for paper in site.papers:
        runs = sorted((run for run, _ in paper.sections), key=_age)
        for a, b in itertools.combinations(runs, 2):
            found = compare_states(*(state_of(run, paper.name) for run in (a, b)))
            if found.changes:
                slug = f"{a.slug}-{b.slug}"
                if any(pair.slug == slug for pair in made):
                    slug = f"{slug}-{paper.name}"  # two runs that share several papers
                plugin = paper.paper if a.machine_slug != b.machine_slug else None
                made.append(make_pair(paper.title, (a, b), found, slug, plugin))
    return made


def make_pair(
    title: str,
    sides: tuple[RunData | None, RunData | None],
    found: Comparison,
    slug: str,
    paper: Any = None,
) -> ComparisonPair:
    """A comparison with its figure drawn for pages, and the main race of `paper` on both sides."""
    a, b = sides
    with tempfile.TemporaryDirectory() as temporary:
        folder, context = Path(temporary), compare_context(found)
        words = f"{title}: {found.b} against {found.a}"
        drawn = draw_changes(found, slug, words, folder, context, for_site=True)
        races = []
        if paper is not None and a is not None and b is not None:
            states = [state_of(run, paper.name) for run in (a, b)]
            measured = dataclasses.replace(context, noise=found.floor)
            races = draw_races(states, paper, folder, measured, for_site=True)
        files = {
            f"{FIGURES}/{path.name}": path.read_text(encoding="utf-8")
            for path in sorted(folder.iterdir())
            if path.suffix != ".txt"
        }
    return ComparisonPair(title, sides, found, slug, drawn, files, races)


def state_of(run: RunData, paper: str) -> State:
    """One paper's rows of a run; its noise floor is that of the whole run."""
    whole = State.of([run.store], name=run.slug)
    keep = [i for i, row in enumerate(whole.rows) if row.paper == paper]
    rows, where = [whole.rows[i] for i in keep], [whole.where[i] for i in keep]
    return State(whole.name, whole.runs, rows, where, whole.floor, whole.facts)


def listed_changes(found: Comparison) -> tuple[list[Change], dict[str, int]]:
    """Changes that get a row of their own by size, and how many others there are.

    The others: `SAME`, `single` (one process a side, so no interval), and `AMBG` beyond what a
    page holds.
    """
    strong, undecided = [], []
    folded = {"SAME": 0, "single": 0, "AMBG": 0}
    for change in found.changes:
        if change.word in ("SLOW", "FAST") or change.counters or change.broke:
            strong.append(change)
        elif change.word == "AMBG" and (change.decided or change.ratio is None):
            undecided.append(change)
        else:
            folded["SAME" if change.word == "SAME" else "single"] += 1
    strong.sort(key=lambda c: (not c.broke, -c.size, c.name))
    folded["AMBG"] = max(0, len(undecided) - MAX_LISTED)
    return strong + undecided[:MAX_LISTED], folded


def _papers(found: Comparison) -> set[str]:
    return {change.paper for change in found.changes}


def _href_of(runs: Sequence[RunData | None]) -> Any:
    by_id = {run.store.run: run for run in runs if run is not None}

    def href(run: str, row: str) -> str:
        return by_id[run].row_href(row) if run in by_id else ""

    return href


def _age(run: RunData) -> tuple[str, str]:
    return str(run.info.get("started", "")), run.slug


def _lonely(site: SiteData) -> list[str]:
    """Papers that only one run has."""
    return [paper.title for paper in site.papers if len(paper.sections) < 2]
