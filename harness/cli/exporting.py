"""`dgbench export`: rows and verdicts for other programs."""

from __future__ import annotations

from pathlib import Path

import typer

from dgbench.harness.cli.values import path_argument


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("export", short_help="Observations, rows or claims as CSV, Parquet or LaTeX.")(
        export
    )


def export(
    out: Path = path_argument("OUT", "The file; .csv, .parquet or .tex says the form."),
    run: str = typer.Option("last", "--run", help="A run: id, stamp, path, or 'last'."),
    what: str = typer.Option(
        "observations",
        "--what",
        help="observations: every number; rows: every process; claims: verdicts.",
    ),
    papers: list[str] = typer.Option(
        None, "--paper", help="Only this paper; may be given several times."
    ),
) -> None:
    """Write a run's observations, its rows, or its claims with verdicts, as one flat table.

    Example: dgbench export claims.tex --what claims --paper pipad
    """
    from dgbench.harness.export import (
        TABLES,
        claims_table,
        observations_table,
        rows_table,
        write_table,
    )
    from dgbench.harness.plugins import get_paper
    from dgbench.harness.store import Store, find_run
    from dgbench.harness.terminal.text import say
    from dgbench.runtime.errors import unknown_key

    if what not in TABLES:
        raise unknown_key("table", what, TABLES, of="--what")
    plugins = [get_paper(name) for name in papers or ()]
    rows = Store.open(find_run(run)).rows()
    if what == "claims" and not plugins:
        named = dict.fromkeys(row.paper for row in rows if row.paper != "-")  # the machine itself
        plugins = [get_paper(name) for name in named]
    chosen = [row for row in rows if not papers or row.paper in papers]
    tables = {
        "observations": lambda: observations_table(chosen),
        "rows": lambda: rows_table(chosen),
        "claims": lambda: claims_table(plugins, rows),
    }
    table = tables[what]()
    write_table(table, out)
    say(f"{len(table)} {what} written to {out}")
