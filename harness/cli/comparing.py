"""`dgbench compare A B`: what is faster, slower, the same, or cannot be told."""

from __future__ import annotations

from pathlib import Path

import typer


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("compare", short_help="What changed between two runs.")(compare)


def compare(
    a: str = typer.Argument(
        ..., help="The earlier run: id, stamp, path, or 'last'; or a baseline of counters (.json)."
    ),
    b: str = typer.Argument(
        ..., help="The later run; for a baseline a result file of asv, or its folder of results."
    ),
    every: bool = typer.Option(False, "--all", help="Also list what is the same."),
    keep: bool = typer.Option(
        False, "--keep", help="Make the counters of B the new baseline A; nothing is compared."
    ),
    as_json: bool = typer.Option(False, "--json", help="The same as JSON."),
) -> None:
    """Compare two runs cell by cell, or counters with a baseline.

    Clocks are compared with intervals, counters exactly. Exit code 1 if a cell of B is slower or a
    counter grew, else 0.

    Example: dgbench compare 7f3a91c2 last

    Example: dgbench compare benchmarks/asv/baseline.json .asv/results
    """
    if a.endswith(".json"):
        _histories(Path(a), Path(b), every=every, keep=keep, as_json=as_json)
    if keep:
        from dgbench.runtime.errors import InvalidInputError

        raise InvalidInputError(f"--keep needs a baseline of counters (.json) as A, found '{a}'")
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


def _histories(a: Path, b: Path, *, every: bool, keep: bool, as_json: bool) -> None:
    from dgbench.harness.history import compare_histories, keep_baseline, newest_results
    from dgbench.harness.terminal.history import history_text
    from dgbench.harness.terminal.text import say, say_json

    if b.is_dir():
        b = newest_results(b)
    if keep:
        say(f"{keep_baseline(b, a)} benchmarks of {b} kept in {a}")
        raise typer.Exit(0)
    found = compare_histories(a, b)
    if as_json:
        say_json(found.as_plain())
    else:
        say(history_text(found, every=every))
    raise typer.Exit(found.exit_code)
