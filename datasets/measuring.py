"""Counting what a held dataset holds, beside what its card says of it."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from dgbench.datasets.catalogue import Counts, DatasetCard
from dgbench.datasets.checks import ALL_COUNTS, count_events, count_signals
from dgbench.datasets.events import EventStream
from dgbench.datasets.opening import Choice, build_events, open_events
from dgbench.datasets.readers import Signals, read
from dgbench.datasets.sources.locate import LocalVariant, find_form
from dgbench.runtime.errors import DataError, DgbenchError

Number = int | float


class Measured(msgspec.Struct):
    """Counts of a dataset.

    Attributes:
        form: the form that was read, "" where the real data is not here.
        counts: from the data: those of `Counts`, and `isolated` vertices, `duplicates` (events
            that repeat the source, destination and time of another one), `distinct_times`, and
            `labelled` vertices where some are.
        differences: count -> what the card says of it, under `card` or `published`, where that is
            something else.
        fault: why the data could not be read.
    """

    form: str = ""
    counts: dict[str, Number] = {}
    differences: dict[str, dict[str, Number]] = {}
    fault: str = ""


def measure(card: DatasetCard) -> Measured:
    """Count what the real data of a card holds, where it is here."""
    held = find_form(card)
    if held is None:
        return Measured()
    found = Measured(form=held.form.name)
    try:
        found.counts = _counts(card)
    except DgbenchError as error:
        found.fault = str(error)
        return found
    for word, claims in (("card", held.form.counts), ("published", card.published)):
        for name, claimed in claims.known().items():
            if name in found.counts and found.counts[name] != claimed:
                found.differences.setdefault(name, {})[word] = claimed
    return found


def claimed_counts(card: DatasetCard, form: str) -> dict[str, dict[str, Number]]:
    """Count -> what the card says of it, under `card` and `published`."""
    counts = next((one.counts for one in card.forms if one.name == form), Counts())
    found: dict[str, dict[str, Number]] = {}
    for word, claims in (("card", counts), ("published", card.published)):
        for name, value in claims.known().items():
            found.setdefault(name, {})[word] = value
    return found


def _counts(card: DatasetCard) -> dict[str, Number]:
    if card.kind == "signals":
        held = find_form(card)
        signals = read(held.form, held.paths) if held is not None else None
        if isinstance(signals, Signals):
            return count_signals(signals, ALL_COUNTS)
    try:
        stream = open_events(card.name, "real")
    except DataError:  # where the card is wrong, what is there shall be seen
        stream = _unchecked(card)
    src, dst, t = (column.numpy() for column in (stream.src, stream.dst, stream.t))
    found = count_events(stream, ALL_COUNTS)
    found["isolated"] = stream.num_nodes - int(np.unique(np.concatenate([src, dst])).size)
    order = np.lexsort((t, dst, src))
    same = [column[order][1:] == column[order][:-1] for column in (src, dst, t)]
    found["duplicates"] = int(np.logical_and.reduce(same).sum())
    found["distinct_times"] = int(np.unique(t).size)
    if stream.node_label is not None:
        found["labelled"] = int((stream.node_label >= 0).sum())
    return found


def _unchecked(card: DatasetCard) -> EventStream:
    """The events without asking whether they are as many as the card says."""
    held = find_form(card)
    if held is None:
        raise DataError(f"the real data of '{card.name}' is not here")
    replace = msgspec.structs.replace
    form = replace(held.form, counts=Counts())
    return build_events(Choice(card, LocalVariant(form, held.paths), []))


def as_words(card: DatasetCard, measured: Measured) -> list[str]:
    """Lines for people: each count, and what the card says of it where it says something."""
    if not measured.form:
        return ["measured: nothing, its real data is not here"]
    if measured.fault:
        return [f"measured: nothing, it cannot be read: {measured.fault}"]
    claims: dict[str, Any] = claimed_counts(card, measured.form)
    lines = [f"measured from the data (form {measured.form}):"]
    for name in dict.fromkeys([*measured.counts, *claims]):
        value = measured.counts.get(name)
        shown = "not counted" if value is None else _plain(value)
        said = [f"{word} says {_plain(one)}" for word, one in claims.get(name, {}).items()]
        mark = "  DIFFERENT" if name in measured.differences else ""
        lines.append(f"  {name:14} {shown:>16}" + (f"  {', '.join(said)}{mark}" if said else ""))
    return lines


def _plain(value: Number) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.15g}"
