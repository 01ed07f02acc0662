"""`dgbench report`: the pages and figures of a run, or one site of several runs."""

from __future__ import annotations

from pathlib import Path

import typer

from dgbench.harness.cli.values import path_option

SITE = Path("results") / "site"


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("report", short_help="Write the report of a run, or a site of several.")(report)


def report(
    runs: list[str] = typer.Argument(
        None,
        metavar="[RUN]...",
        help="Runs: id, stamp, path, or 'last' (the default); or a folder of runs.",
    ),
    papers: list[str] = typer.Option(
        None, "--paper", help="Only this paper; may be given several times."
    ),
    out: Path = path_option(
        "--out", f"Write a site into this folder. Several runs: {SITE} by default."
    ),
) -> None:
    """Draw the figures and write the pages again, from rows alone.

    One run: its report, in its folder. Several runs, a folder that holds runs, or --out: one site
    that merges them, with the strongest evidence for every claim.

    Example: dgbench report last

    Example: dgbench report results/reference --out results/site
    """
    from dgbench.harness.plugins import get_paper
    from dgbench.harness.report.build import build_report, build_site
    from dgbench.harness.store import find_runs
    from dgbench.harness.terminal.text import say

    chosen = [get_paper(name) for name in papers] if papers else None
    names = runs or ["last"]
    folders = [folder for name in names for folder in find_runs(name)]
    if len(names) == 1 and out is None and not _holds_runs(Path(names[0])):
        say(f"Report: {build_report(folders[0], chosen)}")
    else:
        say(f"Site: {build_site(folders, out or SITE, chosen)}")


def _holds_runs(folder: Path) -> bool:
    """Return True if a path is a folder of runs, not a run itself."""
    return folder.is_dir() and not (folder / "run.json").is_file()
