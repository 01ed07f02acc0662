"""`dgbench report`: the pages and figures of a run."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("report", short_help="Write the report of a run again.")(report)


def report(
    run: str = typer.Argument("last", help="A run: id, stamp, path, or 'last'."),
    papers: list[str] = typer.Option(
        None, "--paper", help="Only this paper; may be given several times."
    ),
) -> None:
    """Draw the figures and write the report of a run again, from its rows alone.

    Example: dgbench report last
    """
    from dgbench.harness.report import build_report
    from dgbench.harness.store import find_run
    from dgbench.harness.terminal.text import say
    from dgbench.systems.base import get_paper

    chosen = [get_paper(name) for name in papers] if papers else None
    say(f"Report: {build_report(find_run(run), chosen)}")
