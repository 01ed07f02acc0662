"""Experiments on a dataset of the user's own, in the place of one of their graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dgbench.datasets.catalogue import DatasetCard, card, offer_card
from dgbench.datasets.guessing import FileOptions
from dgbench.datasets.own_data import PACKED_ENDS, TABLE_ENDS, content_of, describe_file
from dgbench.datasets.sources.hashing import file_sha256
from dgbench.lab.arena import DIVISION
from dgbench.lab.compare import OWN_DATA
from dgbench.lab.experiment import Cell, Experiment
from dgbench.runtime.errors import (
    DataError,
    InvalidInputError,
    MissingDataError,
    UnknownKeyError,
    UnsupportedError,
)

KEYS = ("dataset", "graphs")
"""Parameters of cells that name datasets; `graphs` may name several, with spaces between."""


class OwnData(msgspec.Struct, frozen=True):
    """The dataset that a run was given.

    Attributes:
        card: with the paths of its files, how they are read, and their hashes.
        content: hash of what it holds, see `content_of`.
    """

    card: DatasetCard
    content: str


def own_data(text: str, options: FileOptions | None = None) -> tuple[OwnData, list[str]]:
    """The dataset that `--dataset` names, made known to this process and those it starts.

    Args:
        text: name of a card, or path of a file. options: how a file is read.

    Returns:
        The dataset, and sentences on how a file was read.

    Raises:
        UnknownKeyError, MissingDataError, DataError, InvalidInputError: see `card` and
            `describe_file`; options beside the name of a card.
    """
    path = Path(text)
    if path.suffix.lower() in PACKED_ENDS | TABLE_ENDS or len(path.parts) > 1 or path.is_file():
        found = describe_file(path, options)
        offer_card(found.card)
        return OwnData(found.card, content_of(found.card)), found.sentences
    try:
        chosen = card(text)
    except UnknownKeyError as error:
        error.hint = f"{error.hint}\nor a file: --dataset FILE.csv, .parquet or .npz"
        raise
    if options is not None and options != FileOptions():
        raise InvalidInputError(
            f"'{chosen.name}' is a card, which says how its files are read; --columns and the like "
            "are for files"
        )
    return OwnData(chosen, content_of(chosen)), []


def restore(data: OwnData, run: str) -> None:
    """Make the dataset of a run known again.

    Raises:
        MissingDataError: a file is not where it was. DataError: it has changed.
    """
    for form in data.card.forms[:1]:
        for ref in form.files:
            path = Path(ref.path)
            if not path.is_absolute():
                continue
            if not path.is_file():
                raise MissingDataError(f"run {run} was given {path}, which is not there any more")
            if ref.sha256 and file_sha256(path) != ref.sha256:
                raise DataError(
                    f"{path} has changed since run {run} began with it",
                    hint="start a new run, or put the file back as it was",
                )
    offer_card(data.card)
    if content_of(data.card) != data.content:
        raise DataError(
            f"'{data.card.name}' is not what run {run} began with", hint="start a new run"
        )


def takes_own_data(experiment: Experiment) -> bool:
    """Return True if an experiment can run on a dataset of the user's."""
    if experiment.own_data:
        return False
    if experiment.arena_task is not None:
        return True
    try:
        cells = [cell for one in experiment.presets for cell in experiment.cells(one, "cpu")]
    except Exception:  # a plugin may fail in any way
        return False
    return any(is_card(cell.params.get("dataset")) or cell.params.get("graphs") for cell in cells)


def on_dataset(experiment: Experiment, cells: Sequence[Cell], data: OwnData) -> list[Cell]:
    """The cells of one graph of an experiment, on another dataset.

    Taken is the graph with most cells, the first of these. A task of the arena that cannot run on
    it has one cell with the reason.

    Raises:
        UnsupportedError: the experiment says why it cannot, or no cell of it names a dataset.
    """
    name = data.card.name
    if experiment.arena_task is not None and cells and (reason := _refusal(experiment, data.card)):
        kept = ("task", "definition", "case", DIVISION)
        params = {key: cells[0].params[key] for key in kept if key in cells[0].params}
        params |= {"dataset": name, OWN_DATA: data.content}
        return [msgspec.structs.replace(cells[0], params=params, unavailable=reason)]
    where = f"{experiment.paper}/{experiment.name} cannot run on '{name}'"
    if experiment.own_data:
        raise UnsupportedError(f"{where}: {experiment.own_data}")
    named = [(cell, "dataset") for cell in cells if is_card(cell.params.get("dataset"))]
    named = named or [(cell, "graphs") for cell in cells if cell.params.get("graphs")]
    if not named:
        raise UnsupportedError(f"{where}: no cell of it names a dataset that could be replaced")
    counts = Counter((key, cell.params[key]) for cell, key in named)
    (key, graph), _ = max(counts.items(), key=lambda item: item[1])
    mine = [cell for cell in cells if cell.params.get(key) == graph]
    moved = [on_card(experiment, cell, key, name) for cell in mine]
    return [
        msgspec.structs.replace(cell, params={**cell.params, OWN_DATA: data.content})
        for cell in moved
    ]


def _refusal(experiment: Experiment, held: DatasetCard) -> str:
    """Why a task of the arena does not run on a dataset, or ""."""
    if experiment.own_data:
        return experiment.own_data
    if experiment.arena_task.reads == "events" and held.static:  # type: ignore[union-attr]
        return f"it takes events, and '{held.name}' has one topology that never changes"
    return ""


def is_card(name: object) -> bool:
    """Return True if `name` is the name of a card, not of a file or a generated graph."""
    try:
        return name is not None and bool(card(str(name)))
    except UnknownKeyError:
        return False


def on_card(experiment: Experiment, cell: Cell, key: str, name: str) -> Cell:
    """A cell on another dataset: `key` of its params names it, in words that its group has too."""
    graph = str(cell.params[key])
    params = {**cell.params, key: name}
    if experiment.arena_task is not None:
        params = experiment.arena_task.on_dataset(cell.params, name)
    if "scale" in params:
        params["scale"] = 1.0
    group = cell.group
    for old in (graph, graph.replace(" ", "-")):
        group = group.replace(old, name)
    return msgspec.structs.replace(cell, params=params, group=group)
