"""`dgbench claims`: every claim of a paper with its verdict."""

from __future__ import annotations

from typing import Any

import typer


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("claims", short_help="Claims of a paper, with verdicts.")(claims)


def claims(
    paper: str = typer.Argument(..., help="A paper's name, see `dgbench list papers`."),
    run: str = typer.Option("last", "--run", help="A run: id, stamp, path, or 'last'."),
    needs: bool = typer.Option(False, "--needs", help="Only what cannot be decided, and why."),
    as_json: bool = typer.Option(False, "--json", help="Every claim of the ledger as JSON."),
) -> None:
    """Show the claims of a paper and what a run says about them.

    Without any run every claim is listed as "not run here" with what it needs.

    Example: dgbench claims pipad --json
    """
    from dgbench.harness.claims import evaluate
    from dgbench.harness.claims.plain import as_plain
    from dgbench.harness.plugins import get_paper
    from dgbench.harness.terminal.text import columns, fitted, say, say_json
    from dgbench.harness.terminal.verdicts import needs_text, paper_text

    plugin = get_paper(paper)
    rows, where = _rows(run)
    found = evaluate(plugin, rows)
    if as_json:
        say_json([as_plain(c, v) for c, v in zip(found.claims, found.verdicts, strict=True)])
        return
    width = columns()
    say(needs_text(found, width) if needs else paper_text(found, width))
    say(fitted(where, width))


def _rows(run: str) -> tuple[list[Any], str]:
    from dgbench.harness.store import Store, find_run, list_runs

    if run == "last" and not list_runs():
        return [], "No run yet: dgbench reproduce"
    store = Store.open(find_run(run))
    return store.rows(), f"Run {store.run} ({store.path})"
