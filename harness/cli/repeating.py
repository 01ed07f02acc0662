"""`dgbench repeat`: run twice, and hold the second run against the first."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from dgbench.harness.cli.running import DEVICE, LIMIT, OUT, PRESET, SEED, Options, chosen_papers


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("repeat", short_help="Run papers twice: are the numbers the same?")(repeat)


def repeat(
    papers: list[str] = typer.Argument(None, metavar="PAPER", help="Default: all papers."),
    of: tuple[str, str] = typer.Option(
        None, "--of", help="Two runs that are there already; nothing is run."
    ),
    preset: str = PRESET,
    device: str = DEVICE,
    out: Path = OUT,
    seed: int = SEED,
    limit: int = LIMIT,
    every: bool = typer.Option(False, "--all", help="List everything that is not the same."),
    as_json: bool = typer.Option(False, "--json", help="The same as JSON."),
) -> None:
    """Run papers twice and prove that the numbers are the same.

    Every counter must be equal to the last unit, and ratios must agree within their intervals as
    often as those say. Exit code 3 where they do not.

    Example: dgbench repeat pipad --preset smoke

    Example: dgbench repeat --of 7f3a91c2 last
    """
    from dgbench.harness.store import find_run
    from dgbench.harness.terminal.agreement import agreement_text
    from dgbench.harness.terminal.text import columns, say, say_json
    from dgbench.runtime.errors import InvalidInputError

    if of and papers:
        raise InvalidInputError("--of names two runs, so no paper is run", hint="leave one out")
    options = Options(preset, device, None, "", out, seed, limit)
    folders = [find_run(name, out) for name in of] if of else _twice(papers or [], options)
    found = judged(*folders)
    if as_json:
        say_json(found.as_plain())
    else:
        say(agreement_text(found, every=every, width=columns()))
    raise typer.Exit(found.exit_code)


def judged(a: Path, b: Path) -> Any:
    """The agreement of two runs by their folders. Raises InvalidInputError for the same one."""
    from dgbench.harness.compare import identity
    from dgbench.harness.repeat import agreement
    from dgbench.harness.states import State
    from dgbench.harness.store import Store
    from dgbench.runtime.errors import InvalidInputError

    if a.resolve() == b.resolve():
        raise InvalidInputError(
            f"both are the run {a.name}, which agrees with itself", hint="name two runs"
        )
    one, two = Store.open(a), Store.open(b)
    notes, _ = identity(State.of([one]), State.of([two]))
    return agreement(one.rows(), two.rows(), (one.run, two.run), notes)


def _twice(papers: list[str], options: Options) -> list[Path]:
    """Two runs of the same plan, one after the other; ends the command where one is stopped."""
    from dgbench.harness.cli.outcome import exit_code
    from dgbench.harness.cli.running import run_once
    from dgbench.harness.terminal.text import say

    chosen = chosen_papers(papers)
    folders = []
    for number in (1, 2):
        say(f"run {number} of 2", sys.stderr)
        # The second run has what the first one had, and fetches nothing of its own.
        again = options if number == 1 else replace(options, offline=True)
        folder, summary = run_once(chosen, [], again)
        say(summary.sentence, sys.stderr)
        if summary.interrupted or summary.trouble:
            raise typer.Exit(exit_code(summary, ()))
        folders.append(folder)
    return folders
