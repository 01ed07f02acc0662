"""Writing the report of a run: figures first, then pages that show them."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from dgbench.harness.claims import evaluate
from dgbench.harness.claims.evaluate import PaperVerdicts
from dgbench.harness.report.pages import environment, overview, paper_page, reading, rows_page
from dgbench.harness.report.run import RunData, load_run
from dgbench.harness.report.sections import draw_paper
from dgbench.harness.store.files import write_whole
from dgbench.systems.base import Broken, find_paper, paper_names

log = logging.getLogger(__name__)


def build_report(run_dir: Path, papers: Sequence[Any] | None = None) -> Path:
    """Write figures, pages, `report.md` and `claims.json` of a run into its folder.

    Everything is made again from rows; nothing of an earlier report is kept.

    Args:
        run_dir: the run's folder. papers: which papers to show; None takes those of the run.

    Returns:
        The path of `report.html`.

    Raises:
        StoreError: `run_dir` is no run, or a file cannot be written.
    """
    run_dir = Path(run_dir)
    run = load_run(run_dir)
    chosen = list(papers) if papers is not None else _papers_of(run)
    context = run.context()
    shown = []
    for paper in chosen:
        verdicts = evaluate(paper, run.everything)
        shown.append(draw_paper(paper, verdicts, run, run_dir / "figures" / paper.name, context))
    env = environment()
    pages = {
        "report.html": overview(env, run, shown),
        "runs.html": rows_page(env, run, shown),
        "how-to-read.html": reading(env, run, shown),
        "report.md": overview(env, run, shown, template="report.md.j2"),
    }
    for section in shown:
        pages[f"papers/{section.name}.html"] = paper_page(env, run, shown, section)
    (run_dir / "papers").mkdir(exist_ok=True)
    for name, text in pages.items():
        write_whole(run_dir / name, text.encode("utf-8"))
    write_whole(run_dir / "claims.json", _claims_json([s.verdicts for s in shown]))
    return _short(run_dir / "report.html")


def _papers_of(run: RunData) -> list[Any]:
    wanted = run.info.get("papers") or run.papers
    found = []
    for name in wanted:
        paper = find_paper(name) if name in paper_names() else None
        if paper is None or isinstance(paper, Broken):
            log.warning("paper '%s' of this run cannot be loaded and is left out", name)
        else:
            found.append(paper)
    return found


def _claims_json(papers: Sequence[PaperVerdicts]) -> bytes:
    from dgbench.harness.claims.plain import as_plain

    entries = [
        {"paper_name": p.paper.name, **as_plain(claim, verdict)}
        for p in papers
        for claim, verdict in zip(p.claims, p.verdicts, strict=True)
    ]
    return msgspec.json.format(msgspec.json.encode(entries), indent=1) + b"\n"


def _short(path: Path) -> Path:
    """The path as seen from the current folder, where it lies below it."""
    try:
        return Path(os.path.relpath(path)) if path.resolve().is_relative_to(Path.cwd()) else path
    except OSError:
        return path
