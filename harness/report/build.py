"""Writing pages: the report in a run's folder, or a site of several runs in a folder of its own."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import logging
import os
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec

from dgbench.harness.claims.plain import as_plain
from dgbench.harness.figures.draw import draw_points
from dgbench.harness.figures.style import Context
from dgbench.harness.plugins import Broken, find_paper, paper_names
from dgbench.harness.report import pages
from dgbench.harness.report.boards import machine_points, merged_points
from dgbench.harness.report.folders import (
    MANIFEST,
    beside,
    files_of,
    lay_over,
    put,
    read_manifest,
    refuse_foreign,
    swap,
)
from dgbench.harness.report.merge import assemble, newness
from dgbench.harness.report.parallel import side_by_side
from dgbench.harness.report.pictures import ACROSS, figure_folder
from dgbench.harness.report.race_screen import lead_points, race_screen
from dgbench.harness.report.reuse import FigureJob, Sketch, draw_all
from dgbench.harness.report.run import RunData, load_run
from dgbench.harness.report.sections import PaperSection, collect, put_figures, sketches_of
from dgbench.harness.report.site import OlderRun, SiteData
from dgbench.harness.trainings import kept_trainings, whole_trainings
from dgbench.runtime.errors import InvalidInputError, StoreError

log = logging.getLogger(__name__)

SUBJECTS: Final = {
    "systems": "systems",
    "datasets": "datasets",
    "compare": "comparisons",
}
"""Folder of pages -> module of this package that writes them."""


def build_report(run_dir: Path, papers: Sequence[Any] | None = None) -> Path:
    """Write figures, pages, `report.md` and `claims.json` of a run into its folder.

    Everything is made again from rows, and what an earlier report left over is removed. A build
    that fails changes nothing.

    Args:
        run_dir: the run's folder. papers: which papers to show; None takes those of the run.

    Returns:
        The path of `report.html`.

    Raises:
        StoreError: `run_dir` is no run or is a reference, or a file cannot be written.
    """
    run_dir = Path(run_dir)
    run = load_run(run_dir)
    if run.store.packed:
        raise StoreError(
            f"{run_dir} is kept as a reference and is only read",
            hint="write its pages into another folder with --out FOLDER",
        )
    before = read_manifest(run_dir) or {"files": []}
    with beside(run_dir / "report") as folder:
        _build([(run, paper) for paper in (papers if papers is not None else _papers_of(run))],
               [run], folder, merged=False)  # fmt: skip
        written = set(files_of(folder))
        lay_over(folder, run_dir, [name for name in before["files"] if name not in written])
    return _short(run_dir / "report.html")


def build_site(run_dirs: Iterable[Path], out: Path, papers: Sequence[Any] | None = None) -> Path:
    """Write one site of several runs into the folder `out`, in place of an earlier site.

    Runs that are older than what a paper's contenders compute today (`Paper.since`) are named on
    the page of runs and left out of all others.

    Args:
        run_dirs: folders of runs; one given twice counts once. papers: which papers to show; None
            takes those of the runs.

    Returns:
        The path of `index.html`.

    Raises:
        InvalidInputError: there is no run, a paper that no run has, or no run that is recent enough
            (`Paper.since`).
        StoreError: a folder is no run; `out` cannot be written, or holds files of others.
    """
    out = Path(out)
    runs = _distinct([load_run(path) for path in {Path(p).resolve(): p for p in run_dirs}.values()])
    if not runs:
        raise InvalidInputError("a site needs at least one run, found none")
    chosen, older = _current(_chosen(runs, papers))
    shown = [run for run in runs if any(run is other for other, _ in chosen)]
    refuse_foreign(out)
    with beside(out) as folder:
        _build(chosen, shown, folder, merged=True, older=older)
        swap(folder, out)
    return _short(out / "index.html")


def _chosen(runs: Sequence[RunData], papers: Sequence[Any] | None) -> list[tuple[RunData, Any]]:
    found = [(run, paper) for run in runs for paper in _papers_of(run, papers)]
    missing = [p.name for p in papers or () if not any(q.name == p.name for _, q in found)]
    if missing:
        have = sorted({name for run in runs for name in run.papers})
        raise InvalidInputError(
            f"no run here has rows of '{missing[0]}'; they have rows of {', '.join(have)}"
        )
    return found


def _current(
    chosen: Sequence[tuple[RunData, Any]],
) -> tuple[list[tuple[RunData, Any]], list[OlderRun]]:
    """Split runs of papers by whether they are of what the papers' contenders compute today."""
    current = [(run, p) for run, p in chosen if str(run.info.get("started", "")) >= p.since]
    older = [
        OlderRun(run, p.title, p.name, p.since)
        for run, p in chosen
        if str(run.info.get("started", "")) < p.since
    ]
    if not current:
        first = older[0]
        raise InvalidInputError(
            f"all {len(older)} runs are older than what judges them; {first.run.slug} is of "
            f"{first.run.measured}, and {first.title} is shown since {first.since}",
            hint=f"measure anew: {first.command}, or see one run: dgbench report RUN",
        )
    return current, older


def _papers_of(run: RunData, among: Sequence[Any] | None = None) -> list[Any]:
    """Plugins of a run's papers; of `among` those that the run has."""
    wanted = run.info.get("papers") or run.papers
    if among is not None:
        return [paper for paper in among if paper.name in wanted]
    found = []
    for name in wanted:
        paper = find_paper(name) if name in paper_names() else None
        if paper is None or isinstance(paper, Broken):
            log.warning("paper '%s' of run %s cannot be loaded and is left out", name, run.slug)
        else:
            found.append(paper)
    return found


def _distinct(runs: Sequence[RunData]) -> list[RunData]:
    """Runs without copies, each with a slug of its own, whatever the order they came in."""
    seen: dict[tuple[str, str, str], RunData] = {}
    for run in sorted(runs, key=lambda r: (newness(r), str(r.store.path))):
        seen.setdefault((run.slug, run.store.run, _sha(run)), run)
    named: dict[str, RunData] = {}
    for run in seen.values():
        name, number = run.slug, 1
        while name in named:
            number += 1
            name = f"{run.slug}-{number}"
        named[name] = dataclasses.replace(run, slug=name)
    return list(named.values())


def _build(
    chosen: Sequence[tuple[RunData, Any]],
    runs: Sequence[RunData],
    folder: Path,
    *,
    merged: bool,
    older: Sequence[OlderRun] = (),
) -> SiteData:
    """Figures first, then the pages that show them, then the list of what was written."""
    shown = _collected(chosen)
    jobs: list[FigureJob] = []
    for run, section in shown:
        if merged:
            section.sketches.pop("board")  # the board of a site is HTML
        where = figure_folder(merged, run, section.name)
        of = {id(sketch): one.name for one in section.sections for sketch in one.sketches}
        jobs += [
            FigureJob(sketch, where, run.context(section.paper, of.get(id(sketch), "")))
            for sketch in sketches_of(section)
        ]
    drawn = iter(draw_all(jobs, folder, "site" if merged else "paper"))
    for run, section in shown:
        put_figures(section, [next(drawn) for _ in sketches_of(section)], run)
    site = assemble(shown, runs, merged=merged, parts=_parts(len(runs)), older=older)
    if merged:
        if len(site.papers) > 1:
            _draw_board(site, folder / "figures")
        _draw_races(site, folder / "figures")
        _draw_across(site, folder)
    for name, text in _pages(site, folder).items():
        put(folder, name, text.encode("utf-8"))
    if not merged:
        _tables(runs[0], folder)
        put(folder, "claims.json", _claims_json(site))
    put(folder, MANIFEST, _pretty(_manifest(site, [*files_of(folder), MANIFEST])))
    return site


def _collected(chosen: Sequence[tuple[RunData, Any]]) -> list[tuple[RunData, PaperSection]]:
    """Collect every run's sections in parallel; plugins, which cannot be sent, stay here."""

    trained: dict[str, list[list[Any]]] = {}
    for run, paper in chosen:
        rows = [row for row in whole_trainings(run.everything) if row.paper == paper.name]
        trained.setdefault(paper.name, []).append(rows)

    def work(item: tuple[RunData, Any]) -> PaperSection:
        run, paper = item
        section = collect(
            paper, run, max(trained[paper.name], key=len) or kept_trainings(paper.name)
        )
        section.paper = None
        section.verdicts = dataclasses.replace(section.verdicts, paper=None)
        return section

    found = side_by_side(work, chosen)
    for (_, paper), section in zip(chosen, found, strict=True):
        section.paper = paper
        section.verdicts = dataclasses.replace(section.verdicts, paper=paper)
    return [(run, section) for (run, _), section in zip(chosen, found, strict=True)]


def _parts(runs: int) -> tuple[str, ...]:
    here = [name for name, module in SUBJECTS.items() if find_spec(f"{__package__}.{module}")]
    return tuple(name for name in here if name != "compare" or runs > 1)


def _pages(site: SiteData, folder: Path) -> dict[str, str]:
    """Address -> text of every page."""
    env = pages.environment(site, folder)
    made = {
        site.front: pages.overview(
            env, site, "index.html.j2" if site.merged else "overview.html.j2"
        ),
        "papers/index.html": pages.papers_page(env, site),
        "runs/index.html": pages.runs_page(env, site),
        "how-to-read.html": pages.reading(env, site),
    }
    for paper in site.papers:
        made[f"papers/{paper.name}.html"] = pages.paper_page(env, site, paper)
    for run in site.runs:
        made |= pages.run_pages(env, site, run)
    for part in site.parts:
        module = importlib.import_module(f"{__package__}.{SUBJECTS[part]}")
        made |= module.pages(site, env)
    if site.merged:
        made |= pages.assets(env)
        made["claims.html"] = pages.overview(env, site, "claims.html.j2", "claims")
    else:
        made["report.md"] = pages.overview(env, site, "report.md.j2")
    return made


def _draw_board(site: SiteData, folder: Path) -> None:
    """The claims of all papers as a figure for a page elsewhere, such as a README."""
    newest = site.runs[0].info
    context = Context(
        machine=site.where,
        device=", ".join(sorted({run.device for run in site.runs})),
        date=str(newest.get("started", ""))[:10],
        preset=", ".join(sorted({str(run.info.get("preset", "")) for run in site.runs})),
    )
    points = [point for paper in site.papers for point in merged_points(paper)]
    title = f"Claims of {len(site.papers)} papers"
    draw_points("claim_board", "claims", title, points, folder, context)
    # The PNG are for pages elsewhere; as SVG the small flavour will do.
    draw_points("claim_board", "claims", title, points, folder, context, flavour="site",
                widths=("full", "half"))  # fmt: skip


def _draw_races(site: SiteData, folder: Path) -> None:
    """The leads of the race table as a figure for a page elsewhere, where there are races."""
    screen = race_screen(site)
    if screen is None:
        return
    context = Context(
        machine=screen.run.machine_name,
        device=screen.run.device,
        date=str(screen.run.info.get("started", ""))[:10],
        preset=str(screen.run.info.get("preset", "")),
    )  # no common noise floor: each race has its own, and its interval holds it
    label = {"xlabel": "time of the next system / time of the fastest"}
    draw_points("speedup", "races", screen.sentence, lead_points(screen), folder, context, label)


def _draw_across(site: SiteData, folder: Path) -> None:
    """Claimed factors of each paper that several machines have, machines as marks in one panel."""
    jobs = {}
    for paper in site.papers:
        points = machine_points(paper)
        if points:
            title = f"Claimed factors of {paper.title} on each machine"
            sketch = Sketch(
                "across",
                paper.name,
                title,
                points,
                {"xlabel": "claimed factor, as measured", "rows": "claims"},
            )
            runs = [run for run, _ in paper.sections]
            context = Context(
                machine=f"{len({point['series'] for point in points})} machines",
                device="",
                date=max(str(run.info.get("started", ""))[:10] for run in runs),
                preset=", ".join(sorted({str(run.info.get("preset", "")) for run in runs})),
            )
            jobs[paper.name] = FigureJob(sketch, ACROSS, context)
    drawn = draw_all(list(jobs.values()), folder, "site")
    for name, one in zip(jobs, drawn, strict=True):
        if not isinstance(one, str) and not one.empty:
            site.across[name] = one


def _tables(run: RunData, folder: Path) -> None:
    """The rows as CSV and Parquet beside their page."""
    from dgbench.harness.export import FORMATS, rows_table

    table = rows_table(run.everything)
    for ending in (".csv", ".parquet"):
        put(folder, f"runs/{run.slug}{ending}", FORMATS[ending](table))


def _claims_json(site: SiteData) -> bytes:
    entries = [{"paper_name": c.paper, **as_plain(c.claim, c.verdict)} for c in site.claims]
    return _pretty(entries)


def _manifest(site: SiteData, files: Sequence[str]) -> dict[str, Any]:
    return {
        "runs": [
            {
                "id": run.store.run,
                "slug": run.slug,
                "papers": run.papers,
                "rows": len(run.everything),
                "rows_sha256": _sha(run),
            }
            for run in site.runs
        ],
        "claims": len(site.claims),
        "counts": site.counts,
        "void": {
            "claims": sum(paper.void for paper in site.papers),
            "cells": sum(run.tally()["void"] for run in site.runs),
        },
        "papers": {paper.name: paper.counts for paper in site.papers},
        "files": sorted(files),
    }


def _sha(run: RunData) -> str:
    return hashlib.sha256(run.store.row_bytes()).hexdigest()


def _pretty(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def _short(path: Path) -> Path:
    """The path as seen from the current folder, where it lies below it."""
    try:
        return Path(os.path.relpath(path)) if path.resolve().is_relative_to(Path.cwd()) else path
    except OSError:
        return path
