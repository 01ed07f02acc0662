"""`dgbench compare A B`: what is faster, slower, the same, or cannot be told."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("compare", short_help="What changed between two runs.")(compare)


def compare(
    a: str = typer.Argument(..., help="The earlier run: id, stamp, path, or 'last'."),
    b: str = typer.Argument(..., help="The later run."),
    every: bool = typer.Option(False, "--all", help="Also list what is the same."),
    as_json: bool = typer.Option(False, "--json", help="The same as JSON."),
) -> None:
    """Compare two runs cell by cell: clocks with intervals, counters exactly.

    Exit code 1 if a cell of B is slower or a counter grew, else 0.

    Example: dgbench compare 7f3a91c2 last
    """
    from dgbench.harness.compare import compare_runs
    from dgbench.harness.store import Store, find_run
    from dgbench.harness.terminal.comparison import comparison_text
    from dgbench.harness.terminal.text import say, say_json

    found = compare_runs(Store.open(find_run(a)), Store.open(find_run(b)))
    if as_json:
        say_json(found.as_plain())
    else:
        say(comparison_text(found, every=every))
    raise typer.Exit(found.exit_code)
