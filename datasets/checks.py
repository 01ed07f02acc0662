"""Comparing what was read with what the card says."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dgbench.datasets.catalogue import Counts, DatasetCard, DatasetVariant
from dgbench.datasets.events import EventStream
from dgbench.datasets.readers.raw import Signals
from dgbench.datasets.sources.hashing import again
from dgbench.runtime.errors import DataError

ALL_COUNTS = Counts(self_edges=0, pairs=0)
"""Names the counts that cost something, for `count_events`."""


def count_events(stream: EventStream, wanted: Counts) -> dict[str, int | float]:
    """The counts of a stream; the costly ones only where `wanted` names them."""
    out = _count(stream.src.numpy(), stream.dst.numpy(), stream.num_nodes, wanted)
    if stream.num_src is not None:
        out["src_nodes"] = stream.num_src
        out["dst_nodes"] = stream.num_nodes - stream.num_src
    if len(stream):
        out["t_first"], out["t_last"] = stream.span
    if stream.label is not None:
        out["label_sum"] = int(stream.label.sum())
    return out


def count_signals(signals: Signals, wanted: Counts) -> dict[str, int | float]:
    """The counts of a graph with native signals."""
    out = _count(signals.src, signals.dst, signals.num_nodes, wanted)
    out["snapshots"] = signals.steps
    if not signals.static and signals.step.size:
        out["t_first"], out["t_last"] = float(signals.step.min()), float(signals.step.max())
    return out


def compare(
    card: DatasetCard, form: DatasetVariant, found: dict[str, int | float]
) -> tuple[str, ...]:
    """Notes on how the data differs from what its publisher states.

    Raises:
        DataError: if it differs from the exact counts of the form.
    """
    wrong = [
        f"{name}: card {wanted:,}, read {found.get(name, 'nothing')}"
        for name, wanted in form.counts.known().items()
        if found.get(name) != wanted
    ]
    if wrong:
        raise DataError(
            f"what was read of '{card.name}' ({form.name}) is not what its card says: "
            + "; ".join(wrong),
            hint=again(Path(form.files[0].path))
            or "the file is another release or damaged; fetch it again",
        )
    notes = list(form.notes)
    for name, published in card.published.known().items():
        if name in found and found[name] != published:
            notes.append(f"{name}: {found[name]:,} held, {published:,} published")
    return tuple(notes)


def _count(
    src: np.ndarray, dst: np.ndarray, num_nodes: int, wanted: Counts
) -> dict[str, int | float]:
    out: dict[str, int | float] = {"nodes": num_nodes, "edges": int(src.size)}
    if wanted.self_edges is not None:
        out["self_edges"] = int((src == dst).sum())
    if wanted.pairs is not None:
        out["pairs"] = int(np.unique(src * np.int64(max(1, num_nodes)) + dst).size)
    return out
