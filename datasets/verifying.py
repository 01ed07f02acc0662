"""`dgbench data verify`: everything that can be wrong with data on this machine."""

from __future__ import annotations

from typing import Any

from dgbench.datasets import store
from dgbench.datasets.catalogue import DatasetCard
from dgbench.datasets.checks import compare, count_signals
from dgbench.datasets.opening import Choice, build_events, choose
from dgbench.datasets.readers import Signals, read
from dgbench.datasets.shaping import check_signals
from dgbench.datasets.sources import check_file, data_dir, find_form
from dgbench.datasets.sources.hashing import forget
from dgbench.runtime.errors import DgbenchError


def verify_dataset(card: DatasetCard, *, asked: bool = False) -> dict[str, Any] | None:
    """Hash the files of a dataset and read them against the card.

    Returns:
        A dict with `what`, `ok` and `words`; None if the data is not here, unless `asked`.
    """
    try:
        held = find_form(card)
        if held is None and not asked:
            return None
        for path in held.paths if held else ():
            forget(path)  # read, not remembered
        choice = choose(card.name, "real")
        return {"what": card.name, "ok": True, "words": _read(card, choice)}
    except DgbenchError as error:
        return {"what": card.name, "ok": False, "words": str(error)}


def verify_beside(card: DatasetCard) -> list[dict[str, Any]]:
    """Check the hashes of the files that lie beside a dataset, one dict for each that is here."""
    folder = data_dir()
    rows = []
    for ref in card.beside if folder else ():
        path = folder / ref.path
        if not path.is_file():
            continue
        try:
            forget(path)
            check_file(path, ref)
            rows.append({"what": ref.path, "ok": True, "words": "the hash is right"})
        except DgbenchError as error:
            rows.append({"what": ref.path, "ok": False, "words": str(error)})
    return rows


def verify_prepared(names: set[str]) -> list[dict[str, Any]]:
    """Check every byte of the prepared form of some datasets, one dict a directory."""
    root = store.cache_root() / "prepared"
    rows = []
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        if folder.name.startswith(".") or folder.name.rpartition("-")[0] not in names:
            continue
        fault = store.verify(folder)
        words = f"{fault}; it will be made again" if fault else "every byte is as written"
        rows.append({"what": f"prepared {folder.name}", "ok": not fault, "words": words})
    return rows


def _read(card: DatasetCard, choice: Choice) -> str:
    form = choice.held.form
    if card.kind == "events":
        events = build_events(choice)
        notes = events.origin.notes
        counts = f"{len(events):,} events, {events.num_nodes:,} vertices"
    else:
        signals = read(form, choice.held.paths)
        if not isinstance(signals, Signals):
            raise DgbenchError(f"the form {form.name} of '{card.name}' gives no signals")
        check_signals(signals)
        notes = compare(card, form, count_signals(signals, form.counts))
        counts = f"{signals.steps:,} snapshots, {signals.num_nodes:,} vertices"
    return "; ".join([f"{form.name}: {counts}", *notes])
