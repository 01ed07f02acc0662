"""`dgbench compare A B`: what is faster, slower, the same, or cannot be told."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dgbench.harness.cli.values import path_option

if TYPE_CHECKING:
    from dgbench.harness.compare import Comparison
    from dgbench.harness.states import State


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("compare", short_help="What changed between two runs, commits or machines.")(
        compare
    )


def compare(
    sides: list[str] = typer.Argument(
        ...,
        metavar="A B",
        help="Earlier and later: runs (id, stamp, path, 'last'), folders of runs, a commit, "
        "machine:<slug>, or several of these joined with commas. Or a baseline of counters "
        "(.json) and a result of asv, or its folder of results.",
        show_default=False,
    ),
    every: bool = typer.Option(False, "--all", help="Also list what is the same."),
    keep: bool = typer.Option(
        False, "--keep", help="Make the counters of B the new baseline A; nothing is compared."
    ),
    speedups: bool = typer.Option(
        False, "--speedups", help="The same races side by side, of two sides or more; needs --out."
    ),
    out: Path = path_option("--out", "Write figures, values and a page into this folder."),
    as_json: bool = typer.Option(False, "--json", help="The same as JSON."),
) -> None:
    """Compare two runs, commits or machines cell by cell, or counters with a baseline.

    Clocks are compared with intervals, counters exactly. Exit code 3 if a cell of B is slower or a
    counter grew, else 0. A side of several runs has more observations a cell.

    Example: dgbench compare 7f3a91c2 last

    Example: dgbench compare 7f3a91c2,19ce02aa machine:amd-epyc-2-cores --out changes

    Example: dgbench compare benchmarks/asv/baseline.json .asv/results
    """
    from dgbench.runtime.errors import InvalidInputError

    if len(sides) < 2 or (len(sides) > 2 and not speedups):
        raise InvalidInputError(
            f"{len(sides)} {'side was' if len(sides) == 1 else 'sides were'} given, two are needed",
            hint="dgbench compare A B; three and more are allowed with --speedups",
        )
    a, b = sides[:2]
    if a.endswith(".json"):
        if speedups or out is not None:
            raise InvalidInputError("--speedups and --out are for runs, A is a baseline (.json)")
        _histories(Path(a), Path(b), every=every, keep=keep, as_json=as_json)
    if keep:
        raise InvalidInputError(f"--keep needs a baseline of counters (.json) as A, found '{a}'")
    if speedups and out is None:
        raise InvalidInputError("--speedups draws figures", hint="say where: --out FOLDER")
    from dgbench.harness.states import find_state

    states = [find_state(side) for side in sides]
    if speedups:
        _races(states, out)
    from dgbench.harness.compare import compare_states
    from dgbench.harness.terminal.comparison import comparison_text
    from dgbench.harness.terminal.text import columns, say, say_json

    found = compare_states(*states)
    if out is not None:
        _write(found, states, out)
    if as_json:
        say_json(found.as_plain())
    else:
        text = comparison_text(found, every=every, width=columns())
        if out is not None:
            *body, last = text.splitlines()
            text = "\n".join([*body, f"Page: {out / 'compare.html'}", last])
        say(text)
    raise typer.Exit(found.exit_code)


def _write(found: Comparison, states: list[State], out: Path) -> None:
    from dgbench.harness.report.compared import write_comparison

    write_comparison(found, states, out)


def _races(states: list[State], out: Path) -> None:
    """Figures of the same races on every side; says what was drawn."""
    from dgbench.harness.figures.compared import draw_races
    from dgbench.harness.figures.style import Context
    from dgbench.harness.plugins import Broken, find_paper, paper_names
    from dgbench.harness.terminal.text import columns, say, wrapped

    floor = max((state.floor for state in states if state.floor is not None), default=None)
    papers = dict.fromkeys(row.paper for state in states for row in state.rows)
    drawn = 0
    for name in papers:
        paper = find_paper(name) if name in paper_names() else None
        if paper is None or isinstance(paper, Broken):
            say(f"{name}: its plugin is not here, and it says how races are read")
            continue
        preset = {row.preset for state in states for row in state.rows if row.paper == name}
        context = Context(noise=floor, device="", preset=" and ".join(sorted(preset)))
        for figure in draw_races(states, paper, out, context):
            say(str(out / f"{figure.name}-full.svg"))
            say(wrapped(f"{figure.title}: {figure.alt}", "  ", columns()))
            drawn += 1
    if not drawn:
        say("No race that two of the sides have. Races are figures of kind 'speedup'.")
    raise typer.Exit(0)


def _histories(a: Path, b: Path, *, every: bool, keep: bool, as_json: bool) -> None:
    from dgbench.harness.history import compare_histories, keep_baseline, newest_results
    from dgbench.harness.terminal.history import history_text
    from dgbench.harness.terminal.text import columns, say, say_json

    if b.is_dir():
        b = newest_results(b)
    if keep:
        say(f"{keep_baseline(b, a)} benchmarks of {b} kept in {a}")
        raise typer.Exit(0)
    found = compare_histories(a, b)
    if as_json:
        say_json(found.as_plain())
    else:
        say(history_text(found, every=every, width=columns()))
    raise typer.Exit(found.exit_code)
