"""Helpers of T-GCN's experiments: words for rows, rows that failed, ratios, data and threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from dgbench.lab.table import Table, rows_of
from dgbench.lab.verbs import last_of_each
from dgbench.runtime.statistics import paired_ratio
from dgbench.systems.base import Measurement, Preset
from dgbench.systems.tgcn.settings import BY_NAME

if TYPE_CHECKING:
    from dgbench.datasets import EventStream


def graph_title(name: str) -> str:
    """The title of a dataset by its card's name."""
    return BY_NAME[name].title if name in BY_NAME else name


def panel(row: Any) -> str:
    """A graph's title as a figure shows it."""
    return graph_title(row.params["dataset"]) + (" (twin)" if row.data.get("twin") else "")


def failures(rows: Sequence[Any], experiment: str, **params: Any) -> list[Any]:
    """Rows of an experiment, with these params, that did not run."""
    return [
        row
        for row in rows
        if row.experiment == experiment
        and row.status != "ok"
        and params.items() <= row.params.items()
    ]


def failed(row: Any) -> str:
    """The `failed` key of a figure's point: a row's status and reason."""
    return f"{row.status}: {row.reason}" if row.reason else str(row.status)


def last_rows(rows: Sequence[Any], experiment: str, **params: Any) -> list[Any]:
    """Usable rows of an experiment with these params: the last one of each cell."""
    return last_of_each(rows_of(rows, experiment=experiment, **params))


def number(row: Any, metric: str, **dims: Any) -> Any:
    """The number that a row observed with these dimensions; None where it has none."""
    return Table.of([row]).where(metric, **dims).get()


def observe_ratio(
    found: Measurement, metric: str, slow: Sequence[float], fast: Sequence[float], **dims: Any
) -> None:
    """Observe the median ratio of the times of paired turns, with its interval.

    Order statistics bound it, since single turns have outliers; fewer than six turns have none.
    """
    ratio = paired_ratio(slow, fast, method="sign")
    found.observe(metric, ratio.value, low=ratio.low, high=ratio.high, **dims)


def open_graph(name: str, preset: Preset, scale: float | None = None) -> EventStream:
    """The events of one of `ALL`, the twin at the preset's scale or at this one."""
    from dgbench import datasets

    graph = BY_NAME[name]
    return datasets.open_events(name, "auto", graph.scale(preset) if scale is None else scale)


def origin_data(origin: Any) -> dict[str, Any]:
    """The `data` field of a measurement from the origin of a stream."""
    return {
        "dataset": origin.dataset,
        "twin": origin.kind == "twin",
        "scale": origin.scale,
        "note": "; ".join(origin.notes),
    }


def synthetic_data(words: str) -> dict[str, Any]:
    """The `data` field of a measurement on numbers that no graph is behind.

    Claims about these name no dataset, so that this is not a twin of one.
    """
    return {"dataset": "none", "twin": False, "scale": 1.0, "note": words}


def gpu_count() -> int:
    """CUDA devices of this machine."""
    return torch.cuda.device_count()


def devices_lacking(ranks: int, device: str) -> str:
    """Why so many ranks cannot train on this kind of device, each on its own; "" if they can."""
    there = gpu_count() if device == "cuda" else ranks
    if there >= ranks:
        return ""
    needed = "a CUDA device" if ranks == 1 else f"{ranks} CUDA devices"
    return f"needs {needed}, {there or 'none'} {'is' if there < 2 else 'are'} here"


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads for torch and the compiled operators, as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def one_thread() -> Any:
    """`threads(1)`."""
    return threads(1)
