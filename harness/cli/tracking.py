"""`dgbench ab` and `dgbench bisect`: races between commits."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer

from dgbench.harness.cli.running import DEVICE, OUT, PRESET

ROUNDS = typer.Option(5, "--rounds", help="Processes of each cell and side.", min=2, max=1000)


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command("ab", short_help="Race two commits, interleaved in one run.")(ab)
    app.command("bisect", short_help="Find the commit that made a cell worse.")(bisect)


def ab(
    first: str = typer.Argument(..., metavar="REV_A", help="Earlier: a commit, branch or tag."),
    second: str = typer.Argument(..., metavar="REV_B", help="Later."),
    cells: list[str] = typer.Option(
        None, "--cells", help="Cells by name with * and ?, or by hash (default: the main races)."
    ),
    rounds: int = ROUNDS,
    preset: str = PRESET,
    device: str = DEVICE,
    out: Path = OUT,
    as_json: bool = typer.Option(False, "--json", help="The same as JSON."),
) -> None:
    """Build two commits and race the same cells of both, process by process in turns.

    Counters are compared exactly, times by ratios of rounds against the noise floor of a control:
    A against itself in the same run. Exit code 3 if a cell of B is slower or a counter grew.

    Example: dgbench ab HEAD~1 HEAD --cells 'pipad/fig10 *' --preset smoke
    """
    from dgbench.harness.terminal.text import columns, say, say_json
    from dgbench.harness.terminal.tracking import race_text
    from dgbench.harness.track.builds import Builder
    from dgbench.harness.track.race import RaceRequest, new_folder_name, run_race

    repository, a, b = _two(first, second)
    build = Builder(repository, note=_say)
    choice = RaceRequest(tuple(cells or ()), rounds, preset, _device(preset, device))
    folder = _root(out) / new_folder_name(a, b)
    with _told_when_stopped(
        lambda: (
            f"The rows so far are in {folder}."
            if folder.is_dir()
            else "It was stopped before anything was raced."
        )
    ):
        race = run_race(build(a), build(b), choice, folder, _say)
    if as_json:
        say_json(race.comparison.as_plain() | {"folder": str(folder), "lone": race.lone})
    else:
        say(race_text(race, a, b, columns()))
    raise typer.Exit(race.comparison.exit_code)


def bisect(
    good: str = typer.Argument(..., metavar="GOOD", help="A commit where the cell was well."),
    bad: str = typer.Argument(..., metavar="BAD", help="A later one where it is not."),
    cell: str = typer.Option(..., "--cell", help="One cell, by name with * and ?, or by hash."),
    metric: str = typer.Option("", "--metric", help="A counter or clock of it (default: any)."),
    smallest: float = typer.Option(
        5.0, "--smallest", help="Change of a time to look for, in percent.", min=0.1, max=1000.0
    ),
    rounds: int = ROUNDS,
    preset: str = PRESET,
    device: str = DEVICE,
    out: Path = OUT,
) -> None:
    """Find the commit between GOOD and BAD that made a cell worse.

    Counters decide first, exactly; then clocks, raced interleaved against GOOD. The commit that is
    found races the one before it again. A search that was stopped goes on with the same command.
    Exit code 1 where no single commit was found and confirmed.

    Example: dgbench bisect v0.1 HEAD --cell 'pipad/fig10 * pipad' --preset smoke
    """
    from dgbench.harness.terminal.text import columns, say
    from dgbench.harness.terminal.tracking import search_text
    from dgbench.harness.track.bisect import Journal, find_commit
    from dgbench.harness.track.builds import Builder
    from dgbench.harness.track.race import RaceRequest, new_folder_name, run_race, search_name

    repository, a, b = _two(good, bad)
    commits = repository.between(a, b)
    build = Builder(repository, note=_say)
    device = _device(preset, device)
    search = search_name(a, b, cell, metric, rounds, preset, device, smallest)
    folder = _root(out) / search
    journal = Journal(folder / "journal.json")
    if journal.judged:
        _say(f"going on after {len(journal.judged)} outcomes in {journal.path}")

    def race(one: Any, two: Any, times: int) -> Any:
        choice = RaceRequest((cell,), rounds * times, preset, device, one=True)
        place = folder / f"{new_folder_name(one, two)}-{times}"
        return run_race(build(one), build(two), choice, place, _say).comparison

    with _told_when_stopped(lambda: "The same command goes on where it was."):
        found = find_commit(a, commits, race, journal, metric, _say, smallest / 100)
    say(search_text(found, a, b, cell, columns()))
    raise typer.Exit(found.exit_code)


def _two(first: str, second: str) -> tuple[Any, Any, Any]:
    """The repository and two of its commits; a warning where the tree has more than they hold."""
    from dgbench.harness.track.revisions import Repository

    repository = Repository()
    a, b = repository.two(first, second)
    if repository.dirty:
        _say("warning: changes of the working tree are in no commit and are not raced")
    return repository, a, b


def _device(preset: str, device: str) -> str:
    from dgbench.harness.cli.running import Options
    from dgbench.harness.machine import gpu_count

    Options(preset, device, None, "", None, None, 0).check()
    return ("cuda" if gpu_count() else "cpu") if device == "auto" else device


def _root(out: Path | None) -> Path:
    from dgbench.harness.store.store import runs_root

    return out or runs_root()


def _say(text: str) -> None:
    from dgbench.harness.terminal.text import say

    say(text, sys.stderr)


@contextlib.contextmanager
def _told_when_stopped(text: Callable[[], str]) -> Iterator[None]:
    from dgbench.runtime.errors import SignalExit

    try:
        yield
    except (KeyboardInterrupt, SignalExit):
        _say(text())
        raise
