"""From a file of events to a card: how it is read, found by looking, and what is in it, counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from dgbench.datasets.card_places import own_folder
from dgbench.datasets.catalogue import (
    NAME,
    NAME_RULE,
    Counts,
    DatasetCard,
    DatasetVariant,
    FileRef,
    ReaderSpec,
    cards,
    plain_name,
)
from dgbench.datasets.checks import ALL_COUNTS, count_events
from dgbench.datasets.events import EventStream
from dgbench.datasets.guessing import FileOptions, guess_arrays, guess_table
from dgbench.datasets.opening import Choice, build_events
from dgbench.datasets.sources.hashing import file_sha256
from dgbench.datasets.sources.locate import LocalVariant
from dgbench.runtime.errors import DataError, InvalidInputError, MissingDataError

SNAPSHOTS: Final = 100
"""Windows that events are cut into where nobody says how many."""
ARRAYS: Final = {".parquet": "parquet", ".pq": "parquet", ".npz": "npz"}
"""Formats by the end of a file's name; anything else is text."""


class FileDescription(msgspec.Struct):
    """A file as a dataset.

    Attributes:
        card: how it is read and what is in it.
        sentences: what was found, for people.
    """

    card: DatasetCard
    sentences: list[str]


def describe_file(
    path: Path, options: FileOptions | None = None, *, name: str = "", free: bool = True
) -> FileDescription:
    """Look at a file of events, read it once, and make its card.

    Args:
        path: text (`.csv`, `.tsv`, `.txt` and so on, plain, `.gz` or `.bz2`), Parquet or npz.
        options: what the user said of it; the rest is found by looking.
        name: name of the dataset; by default that of the file.
        free: whether to choose another name where that of the file is taken.

    Raises:
        MissingDataError: there is no such file.
        InvalidInputError: an option that is not known or cannot be met.
        DataError: the file cannot be read as events; with the file and the line.
    """
    options = options or FileOptions()
    path = path.expanduser().absolute()
    if not path.is_file():
        raise MissingDataError(f"there is no file {path}")
    if name and not NAME.fullmatch(name):
        raise InvalidInputError(f"the name is '{name}'; it must be {NAME_RULE}")
    if options.snapshots is not None and options.snapshots < 1:
        raise InvalidInputError(f"snapshots is {options.snapshots}; an integer >= 1 is allowed")
    kind = ARRAYS.get(path.suffix.lower())
    guess = guess_arrays(path, kind, options) if kind else guess_table(path, options)
    name = name or _name_of(path, free=free)
    paths = [path]
    reader = guess.reader
    if options.vertices is not None:
        reader = msgspec.structs.replace(reader, vertices=options.vertices_spec())
        paths.append(options.vertices.expanduser().absolute())
        if not paths[1].is_file():
            raise MissingDataError(f"there is no file {paths[1]}")
    files = tuple(
        FileRef(path=str(one), bytes=one.stat().st_size, sha256=file_sha256(one)) for one in paths
    )
    form = DatasetVariant(name="file", files=files, reader=_unsorted(reader))
    card = DatasetCard(
        name=name,
        title=name,
        about=f"Events of {path.name}.",
        bipartite=reader.ids in ("bipartite", "names-bipartite"),
        snapshots=options.snapshots or SNAPSHOTS,
        time_unit=guess.time_unit,
        forms=(form,),
        licence="that of its owner",
    )
    stream = build_events(Choice(card, LocalVariant(form, tuple(paths)), []))
    if not len(stream):
        raise DataError(f"{path} has no events")
    first, last = stream.span
    if first == last:
        raise DataError(
            f"{path}: its events ({len(stream):,}) all have the time {first:.15g}; events at two "
            "times or more are needed",
            hint="name the column of times where it is another one: --columns t=NAME",
        )
    counts = msgspec.convert(count_events(stream, ALL_COUNTS), Counts)
    ordered = bool((stream.eid[1:] > stream.eid[:-1]).all()) if stream.eid is not None else True
    form = msgspec.structs.replace(
        form, reader=msgspec.structs.replace(reader, sorted=ordered), counts=counts
    )
    card = msgspec.structs.replace(card, forms=(form,))
    return FileDescription(card, [*guess.sentences, *_counted(stream, counts, ordered)])


def keep_card(card: DatasetCard, *, replace: bool = False) -> Path:
    """Write a card into the user's folder of cards; returns its path.

    Raises:
        InvalidInputError: another dataset has that name, or this one and `replace` is not set.
    """
    import yaml

    folder = own_folder()
    path = folder / f"{card.name}.yaml"
    found = cards()
    holder = next((one for one in found.values() if card.name in (one.name, *one.aliases)), None)
    if (holder is not None or path.is_file()) and not (replace and path.is_file()):
        other = "" if holder is None else holder.name
        where = f"in {path}" if path.is_file() else f"as '{other}'"
        raise InvalidInputError(
            f"there is a dataset '{card.name}' already, {where}",
            hint="--name gives this one another name"
            + ("; --replace writes over the card" if path.is_file() else ""),
        )
    text = yaml.safe_dump([_without_defaults(card)], sort_keys=False, allow_unicode=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(
            f"the card cannot be written to {path}: {error.strerror or error}",
            hint="set DGBENCH_CARDS to a folder of yours",
        ) from None
    return path


def _without_defaults(value: Any) -> Any:
    """A struct as plain values, without fields that have their default."""
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        kept = {one.name: getattr(value, one.name) for one in fields}
        empty = {one.name: one.default for one in fields}
        return {
            name: _without_defaults(one)
            for name, one in kept.items()
            if one != empty[name] and one not in ((), {})
        }
    if isinstance(value, (tuple, list)):
        return [_without_defaults(one) for one in value]
    if isinstance(value, dict):
        return {key: _without_defaults(one) for key, one in value.items()}
    return value


def content_of(card: DatasetCard) -> str:
    """Short hash of what a dataset holds: its files and how they are read, 16 hex digits.

    Raises:
        MissingDataError: its files are not here. DataError: they are not what the card says.
    """
    import hashlib

    from dgbench.datasets.sources.locate import find_form, missing

    held = find_form(card)
    if held is None:
        raise missing(card, twin=False)
    text = msgspec.json.encode([held.hashes(), held.form.reader], order="deterministic")
    return hashlib.sha256(text).hexdigest()[:16]


def _unsorted(reader: ReaderSpec) -> ReaderSpec:
    return msgspec.structs.replace(reader, sorted=False)


def _name_of(path: Path, *, free: bool) -> str:
    stem = path.name
    for suffix in (".gz", ".bz2", *{path.suffix, Path(path.stem).suffix}):
        if suffix:
            stem = stem.removesuffix(suffix)
    name = plain_name(stem) or "data"
    holder = next((c for c in cards().values() if name in (c.name, *c.aliases)), None)
    files = [ref.path for form in holder.forms for ref in form.files] if holder else []
    if free and holder is not None and str(path) not in files:
        name = f"own-{name}"
    return name


def _counted(stream: EventStream, counts: Counts, ordered: bool) -> list[str]:
    """Describe the events in words: numbers of events and vertices, time span, order and notes."""
    sides = ""
    if stream.num_src is not None:
        sides = f" ({counts.src_nodes:,} sources, {counts.dst_nodes:,} destinations)"
    if stream.node_label is not None:
        sides += f", {int((stream.node_label >= 0).sum()):,} of them with a label"
    order = "in time order" if ordered else "not in time order: sorted when read"
    first, last = stream.span
    return [
        f"{len(stream):,} events of {stream.num_nodes:,} vertices{sides}, "
        f"t from {first:.15g} to {last:.15g}, {order}",
        *stream.origin.notes,
    ]
