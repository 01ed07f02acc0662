"""`dgbench submit`, `verify` and `artifact`: results for others, and of others."""

from __future__ import annotations

from pathlib import Path

import typer

from dgbench.harness.cli.values import path_argument, path_option


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command("submit", short_help="Make a checked bundle of a run, to send to others.")(submit)
    app.command("verify", short_help="Check a bundle that others made.")(verify)
    app.command("artifact", short_help="Write the artifact appendix of a paper.")(artifact)


def submit(
    run: str = typer.Argument("last", metavar="[RUN]", help="A run: id, stamp, path, or 'last'."),
    out: Path = path_option("--out", "The bundle; by default dgbench-RUN.zip."),
    hide: list[str] = typer.Option(
        None, "--hide", help="A further private word, such as a project's; may be given again."
    ),
) -> None:
    """Make a bundle of a run: rows, provenance and a description of the system.

    Paths, names of the user and of the host, and addresses are taken out. The same run gives the
    same bytes.

    Example: dgbench submit last --out mine.zip
    """
    from dgbench.datasets import cards
    from dgbench.harness.bundle import check_bundle, make_bundle
    from dgbench.harness.bundle.scrub import MIN_NAME, Scrubber
    from dgbench.harness.plugins import paper_names, system_names
    from dgbench.harness.store import find_run
    from dgbench.harness.store.files import cannot_write, write_whole
    from dgbench.harness.terminal.text import say
    from dgbench.runtime.errors import InvalidInputError

    for word in hide or ():
        if len(word.strip()) < MIN_NAME:
            raise InvalidInputError(f"--hide is '{word}', allowed: {MIN_NAME} letters or more")
    folder = find_run(run)
    spare = [*paper_names(), *system_names(), *cards()]
    data, manifest = make_bundle(folder, Scrubber.of_machine(folder, hide or (), spare))
    out = out or Path(f"dgbench-{folder.name}.zip")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(out, error) from error
    write_whole(out, data)
    digest = check_bundle(out).digest
    say(
        f"{manifest.processes} rows of {', '.join(manifest.papers)} written to {out}, "
        f"{len(data):,} bytes, digest {digest}"
    )


def verify(
    bundle: Path = path_argument("BUNDLE", "What 'dgbench submit' wrote."),
    no_run: bool = typer.Option(False, "--no-run", help="Run no cell of it."),
    seconds: float = typer.Option(
        120.0, "--seconds", min=1, help="The sampled cell took at most this long."
    ),
    against: list[str] = typer.Option(
        None, "--against",
        help="Runs whose counters are compared; by default those here and results/reference.",
    ),
    out: Path = path_option("--out", "Keep it as a run below this folder, with its label."),
) -> None:  # fmt: skip
    """Check a bundle's files, compare its exact counters, and run one of its cells again.

    The label says how far that went: self-reported, counters verified, re-run. Ends with 3 where
    something is not the same, and keeps nothing then.

    Example: dgbench verify mine.zip --out results/others
    """
    from dgbench.harness.bundle import check_bundle, keep_verified
    from dgbench.harness.bundle import verify as verify_bundle
    from dgbench.harness.bundle.verifying import known_rows
    from dgbench.harness.compare import NOT_SAME
    from dgbench.harness.store import find_runs, list_runs
    from dgbench.harness.terminal.text import say

    checked = check_bundle(bundle)
    if against:
        runs = [folder for name in against for folder in find_runs(name)]
    else:
        kept = (Path("results") / "reference").glob("*/*/run.json")
        runs = [*list_runs(), *sorted(path.parent for path in kept)]
    found = verify_bundle(checked, known_rows(runs), run=not no_run, seconds=seconds)
    say(f"{found.processes} rows of {', '.join(checked.manifest.papers)}, digest {found.digest}")
    say(f"counters compared: {found.counters} of {found.cells} cells")
    if found.sampled:
        say(f"ran again: {found.sampled}")
    if found.note:
        say(f"not run again: {found.note}")
    for sentence in found.unclear:
        say(f"unclear, other code: {sentence}")
    if found.differ:
        for sentence in found.differ:
            say(f"differs: {sentence}")
        raise typer.Exit(NOT_SAME)
    say(f"label: {found.label}")
    if out:
        say(f"kept in {keep_verified(checked, found, out)}")


def artifact(
    paper: str = typer.Argument(..., metavar="PAPER", help="A paper, such as pipad."),
    run: str = typer.Option(
        "last", "--run", help="A run: id, stamp, path, MACHINE/PAPER of a reference, or 'last'."
    ),
    out: Path = path_option("--out", "The folder; by default artifact/PAPER."),
) -> None:
    """Write what an evaluation committee asks for, as Markdown, from a run's rows.

    Claims by kind with the verdict to expect and its evidence, commands, minutes, memory, disk and
    hardware.

    Example: dgbench artifact pipad --run last --out appendix
    """
    from dgbench.harness.artifact import write_appendix
    from dgbench.harness.plugins import get_paper
    from dgbench.harness.store import Store, find_run
    from dgbench.harness.terminal.text import say

    store = Store.open(find_run(run))
    say(f"written to {write_appendix(get_paper(paper), store, out or Path('artifact') / paper)}")
