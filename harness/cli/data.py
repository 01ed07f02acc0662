"""`dgbench data`: which datasets there are, fetching, checking, timing and making twins."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import typer

from dgbench.harness.cli.own_dataset import BIPARTITE, COMMENT, IDS, TIME_UNIT

app = typer.Typer(
    help="Datasets: list, describe, fetch and verify them, and make synthetic twins.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_JSON = typer.Option(False, "--json", help="The same as JSON.")


@app.command("list", short_help="All datasets and whether they are here.")
def list_data(
    held: bool = typer.Option(False, "--held", help="Only those whose real data is here."),
    paper: str = typer.Option("", "--paper", help="Only those that a paper names."),
    as_json: bool = _JSON,
) -> None:
    """List every dataset that has a card.

    Example: dgbench data list --paper pipad
    """
    from dgbench import datasets
    from dgbench.datasets.catalogue import card_problems
    from dgbench.harness.terminal.text import columns, say, say_json, wrapped
    from dgbench.runtime.errors import unknown_key

    cards = datasets.cards()
    papers = sorted({name for card in cards.values() for name in card.papers})
    if paper and paper not in papers:
        raise unknown_key("paper", paper, papers)
    rows = [_row(card) for card in cards.values() if not paper or paper in card.papers]
    rows = [row for row in rows if not held or row["here"] in ("real", "file", "part", "bundled")]
    if as_json:
        say_json(rows)
        return
    width = columns()
    say(_table(rows, width))
    words = (
        "nodes and edges are those of the card. here: real, file (a card of yours names it), part "
        "(a true part of it), bundled (real, comes with dgbench), fetch "
        "(dgbench data fetch; a run does so itself where a checksum is known), twin "
        "(synthetic only). One dataset with its licence: dgbench data info NAME"
    )
    say("\n" + wrapped(words, "", width))
    for problem in card_problems():
        say(f"warning: {problem}", sys.stderr)


@app.command("info", short_help="One dataset: counts, papers, files, licence.")
def info(
    name: str = typer.Argument(..., help="Name or alias."),
    timed: bool = typer.Option(False, "--time", help="Time reading it against loading it again."),
    as_json: bool = _JSON,
) -> None:
    """Show the card of a dataset.

    Example: dgbench data info england-covid --time
    """
    from dgbench import datasets
    from dgbench.datasets.measuring import as_words, measure
    from dgbench.harness.terminal.text import columns, fitted, say, say_json

    card = datasets.card(name)
    found = _describe(card)
    measured = measure(card)
    found["measured"] = measured
    if timed:
        from dgbench.datasets.timing import time_loads

        found["load"] = time_loads(card)
    if as_json:
        say_json(found)
        return
    text = [_card_text(found), *(f"  {line}" for line in as_words(card, measured))]
    say(fitted("\n".join(text), columns()))


@app.command("add", short_help="Make a card from a file of events.")
def add(
    file: Path = typer.Argument(..., help="A table of text (also packed), Parquet or npz."),
    name: str = typer.Option("", "--name", help="Name of the dataset; by default the file's."),
    columns: str = typer.Option(
        "", "--columns", help="src=from,dst=to,t=when[,weight=...,label=...,feature=...]."
    ),
    delimiter: str = typer.Option("", "--delimiter", help="comma, semicolon, tab, whitespace."),
    header: bool = typer.Option(None, "--header/--no-header", help="Seen by itself."),
    comment: str = COMMENT,
    ids: str = IDS,
    bipartite: bool = BIPARTITE,
    time_unit: str = TIME_UNIT,
    snapshots: int = typer.Option(None, "--snapshots", help="Windows by default; else 100."),
    vertices: Path = typer.Option(None, "--vertices", help="A file with a row for each vertex."),
    vertex_columns: str = typer.Option("", "--vertex-columns", help="id=...,label=..."),
    replace: bool = typer.Option(False, "--replace", help="Write over the card of that name."),
) -> None:
    """Look at a file of events and keep a card of it, so that it can be used by name.

    The card goes to the first folder in DGBENCH_CARDS, or to the user's data folder; the file stays
    where it is.

    Example: dgbench data add trips.csv --columns src=from,dst=to,t=when
    """
    from dgbench.datasets.guessing import FileOptions
    from dgbench.datasets.own_data import describe_file, keep_card
    from dgbench.harness.terminal.text import columns as width
    from dgbench.harness.terminal.text import say, wrapped

    options = FileOptions(
        columns=columns,
        delimiter=delimiter,
        header=header,
        comment=comment,
        ids=ids,
        bipartite=bipartite,
        time_unit=time_unit,
        snapshots=snapshots,
        vertices=vertices,
        vertex_columns=vertex_columns,
    )
    found = describe_file(file, options, name=name, free=not name)
    path = keep_card(found.card, replace=replace)
    for sentence in found.sentences:
        say(wrapped(sentence, "", width(), hanging="  "))
    say(f"{found.card.name}: {path}")


@app.command("forget", short_help="Remove the card of a file.")
def forget(name: str = typer.Argument(..., help="Name of a card of `data add`.")) -> None:
    """Remove a card that `data add` made, and the prepared form of its events.

    The file of events stays, and so do the runs that used it.

    Example: dgbench data forget trips
    """
    from dgbench.datasets.own_data import forget_card
    from dgbench.datasets.store import clean
    from dgbench.harness.terminal.text import say

    found = forget_card(name)
    count, freed = clean({found.path.stem})
    say(f"removed {found.path} and {count} prepared forms, {freed / 1e6:,.1f} MB")
    for file in found.left:
        say(f"left: {file}")


@app.command("fetch", short_help="Download a dataset from its publisher.")
def fetch(
    name: str = typer.Argument(..., help="Name or alias."),
    trust: bool = typer.Option(False, "--trust", help="Accept files without a known hash."),
    form: str = typer.Option("", "--form", help="Which form, where a card has several."),
) -> None:
    """Download the files of a dataset, verify and keep them.

    Example: dgbench data fetch college-msg
    """
    from dgbench import datasets
    from dgbench.datasets.sources.download import fetch as download
    from dgbench.harness.terminal.downloads import DownloadBar
    from dgbench.harness.terminal.text import say

    bar = DownloadBar()
    try:
        paths = download(datasets.card(name), form=form or None, trust=trust, progress=bar.update)
    finally:
        bar.close()
    for path in paths:
        say(f"{path}  {path.stat().st_size:,} bytes")


@app.command("verify", short_help="Check files, counts and the prepared form.")
def verify(
    names: list[str] = typer.Argument(None, help="Names; by default all that are here."),
    as_json: bool = _JSON,
) -> None:
    """Hash the files, read them against their cards, and check every prepared byte.

    Exits with 1 if something is wrong.
    """
    from dgbench import datasets
    from dgbench.datasets.verifying import verify_beside, verify_dataset, verify_prepared
    from dgbench.harness.terminal.text import columns, fitted, say, say_json

    chosen = [datasets.card(n) for n in names or ()] or list(datasets.cards().values())
    rows = [row for card in chosen if (row := verify_dataset(card, asked=bool(names)))]
    rows += [row for card in chosen for row in verify_beside(card)]
    rows += verify_prepared({card.name for card in chosen})
    if as_json:
        say_json(rows)
    else:
        for row in rows:
            line = f"{'ok  ' if row['ok'] else 'BAD '} {row['what']}: {row['words']}"
            say(fitted(line, columns()))
        if not rows:
            say("nothing is here to verify; see: dgbench data list")
    if not all(row["ok"] for row in rows):
        raise typer.Exit(1)


@app.command("clean", short_help="Remove prepared forms to free disk space.")
def clean(
    names: list[str] = typer.Argument(None, help="Names; by default every dataset."),
) -> None:
    """Remove the prepared form of datasets. Downloads stay; what is needed is made again.

    Example: dgbench data clean amazon-magazine
    """
    from dgbench import datasets
    from dgbench.datasets.store import clean as remove
    from dgbench.harness.terminal.text import say

    chosen = {datasets.card(name).name for name in names or ()} or None
    count, freed = remove(chosen)
    say(f"removed {count} prepared {'form' if count == 1 else 'forms'}, {freed / 1e6:,.1f} MB")


@app.command("twin", short_help="Make a synthetic twin and describe it.")
def twin(
    name: str = typer.Argument(..., help="Name or alias."),
    scale: float = typer.Option(1.0, "--scale", help="Size factor; 1 is the published size."),
    seed: int = typer.Option(1, "--seed", help="Seed; the same seed gives the same bytes."),
    as_json: bool = _JSON,
) -> None:
    """Make the twin of a dataset, keep it in prepared form, and say what came out.

    Example: dgbench data twin reddit --scale 0.1
    """
    from dgbench import datasets
    from dgbench.harness.terminal.text import say, say_json

    start = time.perf_counter()
    stream = datasets.open_events(name, "twin", scale, seed)
    seconds = time.perf_counter() - start
    first, last = stream.span
    found = {
        "name": stream.origin.dataset,
        "scale": scale,
        "seed": seed,
        "nodes": stream.num_nodes,
        "src_nodes": stream.num_src,
        "edges": len(stream),
        "t_first": first,
        "t_last": last,
        "seconds": round(seconds, 4),
        "notes": list(stream.origin.notes),
    }
    if as_json:
        say_json(found)
        return
    sides = "" if stream.num_src is None else f" ({stream.num_src:,} sources)"
    say(f"twin of {found['name']}, scale {scale:g}, seed {seed}")
    say(f"  {len(stream):,} events, {stream.num_nodes:,} vertices{sides}, t {first:g} to {last:g}")
    say(f"  made or loaded in {seconds:.3f} s")
    for note in stream.origin.notes:
        say(f"  note: {note}")


def _row(card: Any) -> dict[str, Any]:
    """One line of the listing."""
    from dgbench.datasets import twins
    from dgbench.datasets.sources.download import downloadable
    from dgbench.datasets.sources.locate import find_form

    held = find_form(card)
    twin = twins.supports(card.name)
    here = "no"
    if held is not None:
        here = "bundled" if held.bundled else "part" if held.form.subset else "real"
        if any(Path(ref.path).is_absolute() for ref in held.form.files):
            here = "file"
    elif downloadable(card):
        here = "fetch"
    elif twin:
        here = "twin"
    printed = [use for use in card.papers.values() if use.nodes or use.edges]
    nodes, edges = card.published.nodes, card.published.edges
    if held is not None:
        nodes, edges = held.form.counts.nodes, held.form.counts.edges
    return {
        "name": card.name,
        "title": card.title,
        "kind": card.kind,
        "nodes": nodes or next((use.nodes for use in printed), None),
        "edges": edges or next((use.edges for use in printed), None),
        "here": here,
        "twin": twin,
        "papers": sorted(card.papers),
        "licence": card.licence,
        "aliases": list(card.aliases),
    }


def _table(rows: list[dict[str, Any]], width: int) -> str:
    from dgbench.harness.terminal.text import listing

    cells = [
        [
            row["name"],
            *(f"{row[k]:,}" if row[k] else "-" for k in ("nodes", "edges")),
            row["here"],
            "yes" if row["twin"] else "-",
            " ".join(row["papers"]) or "-",
        ]
        for row in rows
    ]
    header = ["name", "nodes", "edges", "here", "twin", "papers"]
    return listing(header, cells, width, {1, 2}, min_last=8)


def _describe(card: Any) -> dict[str, Any]:
    """A card as plain values, with what is here of it."""
    import msgspec

    from dgbench.datasets.sources.locate import find_form

    held = find_form(card)
    found = msgspec.to_builtins(card)
    row = _row(card)
    found["here"], found["twin"] = row["here"], row["twin"]
    found["held_form"] = held.form.name if held else None
    found["held_files"] = [str(path) for path in held.paths] if held else []
    return found


def _card_text(found: dict[str, Any]) -> str:
    """The card for people."""
    words = {
        "real": "its files, in DGBENCH_DATA or downloaded",
        "file": "its files, where the card says",
        "part": "a part of the real data",
        "bundled": "bundled, the real data comes with dgbench",
        "no": "nothing",
    }
    here = words.get(found["here"], f"not held; {found['here']}")
    lines = [f"{found['name']}: {found['title']}", f"  {found['about']}"]
    if found["aliases"]:
        lines.append(f"  also called {', '.join(found['aliases'])}")
    lines.append(f"  here: {here}{'; a twin exists' if found['twin'] else ''}")
    if found["span"]:
        lines.append(f"  span: {found['span']}")
    lines.append(f"  unit of t: {found['time_unit']}")
    published = _known(found["published"])
    if published:
        lines.append(f"  published: {published}")
    for name, use in found["papers"].items():
        lines.append(f"  {name}: {_known(use)}")
    for form in found["forms"]:
        mark = " (held)" if form["name"] == found["held_form"] else ""
        lines.append(f"  form {form['name']}{mark}: {_known(form['counts']) or 'counts not known'}")
        for ref in form["files"]:
            size = f"{ref['bytes']:,} bytes, " if ref["bytes"] else ""
            lines.append(f"    {ref['path']}  {size}sha256 {ref['sha256'] or 'not known'}")
        lines += [f"    note: {note}" for note in form["notes"]]
    if found["beside"]:
        lines.append(f"  beside: {', '.join(ref['path'] for ref in found['beside'])}")
    marks = {"seen": "", "memory": " (address from memory)"}
    for a in found["addresses"]:
        note = f"  {a['note']}" if a["note"] else ""
        lines.append(f"  {a['url']}{marks[a['mark']]}{note}")
    lines.append(f"  licence: {found['licence']}")
    if found["cite"]:
        lines.append(f"  cite: {found['cite']}")
    lines += [f"  note: {note}" for note in found["notes"]]
    for row in found.get("load", ()):
        lines.append(
            f"  {row['what']}: read in {1e3 * row['parse_s']:.1f} ms, loaded again in "
            f"{1e3 * row['load_s']:.3f} ms, {row['ratio']:.0f} times faster"
        )
    return "\n".join(lines)


def _known(values: dict[str, Any]) -> str:
    parts = []
    for key, value in values.items():
        if value not in (None, "", [], {}):
            shown = f"{value:,}" if isinstance(value, (int, float)) else str(value)
            parts.append(f"{key} {shown}")
    return ", ".join(parts)
