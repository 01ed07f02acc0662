"""From a file of events to a card: how it is read, found by looking, and what is in it, counted."""

from __future__ import annotations

import contextlib
import errno
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from dgbench.datasets.card_places import own_folder
from dgbench.datasets.catalogue import (
    NAME,
    NAME_RULE,
    Counts,
    DatasetCard,
    DatasetVariant,
    FileRef,
    card,
    cards,
    load_cards,
    plain_name,
)
from dgbench.datasets.checks import ALL_COUNTS, count_events
from dgbench.datasets.events import EventStream
from dgbench.datasets.guessing import FileOptions, TableGuess, guess_arrays, guess_table
from dgbench.datasets.opening import Choice, events_of
from dgbench.datasets.readers import read
from dgbench.datasets.readers.containers import stored_kind
from dgbench.datasets.sources.hashing import file_sha256
from dgbench.datasets.sources.locate import LocalVariant
from dgbench.runtime.documents import write_whole
from dgbench.runtime.errors import DataError, InvalidInputError, MissingDataError

SNAPSHOTS: Final = 100
"""Windows that events are cut into where nobody says how many."""
TABLE_ENDS: Final = frozenset((".csv", ".tsv", ".txt", ".parquet", ".pq", ".npz"))
PACKED_ENDS: Final = frozenset((".gz", ".bz2", ".xz", ".zip"))
"""Ends of names that are no part of the name of a dataset."""


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
        path: text, also packed (gzip, bzip2, xz, a zip of one file); Parquet; or npz. Its first
            bytes say which, not its name.
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
    _check_name_of_file(path)
    paths = [path]
    if options.vertices is not None:
        paths.append(options.vertices.expanduser().absolute())
        if not paths[1].is_file():
            raise MissingDataError(f"there is no file {paths[1]}")
        _check_name_of_file(paths[1])
    name = name or _name_of(path, free=free)
    form = stored_kind(path)
    whole = _read(name, paths, form, options)
    first, last = whole.stream.span
    if first == last:
        raise DataError(
            f"{path}: its events ({len(whole.stream):,}) all have the time {first:.15g}; events at "
            "two times or more are needed",
            hint="name the column of times where it is another one: --columns t=NAME",
        )
    counts = msgspec.convert(count_events(whole.stream, ALL_COUNTS), Counts)
    eid = whole.stream.eid
    ordered = bool((eid[1:] > eid[:-1]).all()) if eid is not None else True
    reader = msgspec.structs.replace(whole.form.reader, sorted=ordered)
    card = DatasetCard(
        name=name,
        title=name,
        about=f"Events of {path.name}.",
        bipartite=whole.stream.num_src is not None,
        snapshots=options.snapshots or SNAPSHOTS,
        time_unit=whole.time_unit or options.time_unit or "unit of the file",
        forms=(msgspec.structs.replace(whole.form, reader=reader, counts=counts),),
        licence="that of its owner",
    )
    return FileDescription(card, [*whole.sentences, *_counted(whole.stream, counts, ordered)])


class _WholeFile(msgspec.Struct):
    """A file that was read once from end to end.

    Attributes:
        form: its files and how they are read. stream: its events.
        time_unit: unit of the times where the file says it, else "".
        sentences: how it was read, for people.
    """

    form: DatasetVariant
    stream: EventStream
    time_unit: str
    sentences: list[str]


def _read(name: str, paths: list[Path], form: str, options: FileOptions) -> _WholeFile:
    """Read a file as it seems to be, without columns that were guessed and cannot be read."""
    guess = guess_table if form == "table" else partial(guess_arrays, form=form)
    found = guess(paths[0], options=options)
    try:
        return _read_as(found, name, paths, options)
    except DataError:
        if not found.guessed:
            raise
    left_out = list(found.guessed)
    best = _read_as(guess(paths[0], options=options, without=left_out), name, paths, options)
    said = []
    for role in found.guessed:
        others = [one for one in left_out if one != role]
        try:
            best = _read_as(guess(paths[0], options=options, without=others), name, paths, options)
            left_out = others
        except DataError as error:
            said.append(f"no {role} is read: {error}")
    best.sentences += said
    return best


def _read_as(guess: TableGuess, name: str, paths: list[Path], options: FileOptions) -> _WholeFile:
    reader = msgspec.structs.replace(guess.reader, sorted=False)
    if options.vertices is not None:
        reader = msgspec.structs.replace(reader, vertices=options.vertices_spec())
    files = tuple(
        FileRef(path=str(one), bytes=one.stat().st_size, sha256=file_sha256(one)) for one in paths
    )
    form = DatasetVariant(name="file", files=files, reader=reader)
    raw = read(form, paths)
    card = DatasetCard(name=name, title=name, about="")
    stream = events_of(Choice(card, LocalVariant(form, tuple(paths)), []), raw)
    if not len(stream):
        raise DataError(f"{paths[0]} has no events")
    sentences = list(guess.sentences)
    if stream.num_src is None and guess.two_kinds():
        shared = np.intersect1d(stream.src.numpy(), stream.dst.numpy()).size
        if shared:
            src, dst = guess.columns["src"], guess.columns["dst"]
            sentences.append(
                f"'{src}' and '{dst}' share {shared:,} {'id' if shared == 1 else 'ids'}, each of "
                "them one vertex; where they are two kinds of vertices, say --bipartite"
            )
    return _WholeFile(form, stream, getattr(raw, "time_unit", ""), sentences)


def _check_name_of_file(path: Path) -> None:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise InvalidInputError(
            f"the name of {path} is not UTF-8, which a card needs", hint="rename the file"
        ) from None


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
        write_whole(path, text.encode())
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise InvalidInputError(
            f"the card cannot be written to {path}: {error.strerror or error}",
            hint="make room on that disk" if full else "set DGBENCH_CARDS to a folder of yours",
        ) from None
    return path


class ForgottenCard(msgspec.Struct):
    """A card that was removed.

    Attributes:
        path: where it was. left: files of events that it named and that are still there.
    """

    path: Path
    left: list[Path]


def forget_card(name: str) -> ForgottenCard:
    """Remove a card that `keep_card` wrote; the files that it names stay.

    Raises:
        UnknownKeyError: there is no card of that name.
        InvalidInputError: it is not in the user's folder, or not alone in its file.
    """
    known = {alias: one.name for one in cards().values() for alias in (one.name, *one.aliases)}
    path = own_folder() / f"{plain_name(known.get(name, name))}.yaml"
    if not path.is_file():
        card(name)  # raises where there is none at all
        raise InvalidInputError(
            f"'{name}' is not a card of `dgbench data add`: there is no {path}",
            hint="a card of your own in another file is removed there by hand",
        )
    entries: list[DatasetCard] = []
    with contextlib.suppress(DataError):  # a card that cannot be read is removed, too
        entries = load_cards(path, own=False)
    if len(entries) > 1:
        raise InvalidInputError(
            f"{path} holds {len(entries)} cards", hint=f"remove '{name}' there by hand"
        )
    try:
        path.unlink()
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be removed: {error.strerror or error}") from None
    files = [Path(ref.path) for one in entries for form in one.forms for ref in form.files]
    return ForgottenCard(path, [file for file in files if file.is_file()])


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


def _name_of(path: Path, *, free: bool) -> str:
    stem = path
    for ends in (PACKED_ENDS, TABLE_ENDS):
        if stem.suffix.lower() in ends:
            stem = stem.with_suffix("")
    name = plain_name(stem.name) or "data"
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
