"""Experiments on a dataset of the user's own, in the place of one of their graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dgbench.datasets.catalogue import DatasetCard, card, offer_card
from dgbench.datasets.guessing import FileOptions
from dgbench.datasets.own_data import content_of, describe_file
from dgbench.datasets.sources.hashing import file_sha256
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
_FILE_ENDS = frozenset((".csv", ".tsv", ".txt", ".gz", ".bz2", ".parquet", ".pq", ".npz"))


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
    if path.suffix.lower() in _FILE_ENDS or len(path.parts) > 1 or path.is_file():
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


def on_dataset(experiment: Experiment, cells: Sequence[Cell], data: OwnData) -> list[Cell]:
    """The cells of one graph of an experiment, on another dataset.

    Taken is the graph with most cells, the first of these.

    Raises:
        UnsupportedError: the experiment says why it cannot, or no cell of it names a dataset.
    """
    name = data.card.name
    where = f"{experiment.paper}/{experiment.name} cannot run on '{name}'"
    if experiment.own_data:
        raise UnsupportedError(f"{where}: {experiment.own_data}")
    named = [(cell, "dataset") for cell in cells if is_card(cell.params.get("dataset"))]
    named = named or [(cell, "graphs") for cell in cells if cell.params.get("graphs")]
    if not named:
        raise UnsupportedError(f"{where}: no cell of it names a dataset that could be replaced")
    counts = Counter((key, cell.params[key]) for cell, key in named)
    (key, graph), _ = max(counts.items(), key=lambda item: item[1])
    return [_moved(cell, key, str(graph), data) for cell in cells if cell.params.get(key) == graph]


def is_card(name: object) -> bool:
    """Return True if `name` is the name of a card, not of a file or a generated graph."""
    try:
        return name is not None and bool(card(str(name)))
    except UnknownKeyError:
        return False


def _moved(cell: Cell, key: str, graph: str, data: OwnData) -> Cell:
    params = {**cell.params, key: data.card.name, OWN_DATA: data.content}
    if "scale" in params:
        params["scale"] = 1.0
    group = cell.group
    for old in (graph, graph.replace(" ", "-")):
        group = group.replace(old, data.card.name)
    return msgspec.structs.replace(cell, params=params, group=group)
