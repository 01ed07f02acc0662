"""Graphs over time: containers, cards, readers, the prepared form and synthetic twins."""

from dgbench.datasets.catalogue import DatasetCard, card, cards
from dgbench.datasets.events import EventStream
from dgbench.datasets.opening import open_events, open_snapshots
from dgbench.datasets.origin import Origin
from dgbench.datasets.sequence import SnapshotSequence, SnapshotSpec

__all__ = [
    "DatasetCard",
    "EventStream",
    "Origin",
    "SnapshotSequence",
    "SnapshotSpec",
    "card",
    "cards",
    "open_events",
    "open_snapshots",
]
