"""Helpers of T-GCN's experiments: words for rows, rows that failed, ratios, data and threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dgbench.lab.table import rows_of
from dgbench.lab.verbs import last_of_each
from dgbench.systems.base import Preset
from dgbench.systems.tgcn.settings import BY_NAME

if TYPE_CHECKING:
    from dgbench.datasets import EventStream


def last_rows(rows: Sequence[Any], experiment: str, **params: Any) -> list[Any]:
    """Usable rows of an experiment with these params: the last one of each cell."""
    return last_of_each(rows_of(rows, experiment=experiment, **params))


def open_graph(name: str, preset: Preset, scale: float | None = None) -> EventStream:
    """The events of one of `ALL`, the twin at the preset's scale or at this one."""
    from dgbench import datasets

    graph = BY_NAME[name]
    return datasets.open_events(name, "auto", graph.scale(preset) if scale is None else scale)


def synthetic_data(words: str) -> dict[str, Any]:
    """The `data` field of a measurement on numbers that no graph is behind.

    Claims about these name no dataset, so that this is not a twin of one.
    """
    return {"dataset": "none", "twin": False, "scale": 1.0, "note": words}
