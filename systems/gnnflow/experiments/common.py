"""What GNNFlow's experiments share: words for rows, rows that failed, and threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from dgbench.lab.compare import Ratio
from dgbench.lab.table import Table
from dgbench.runtime.statistics import paired_ratio
from dgbench.systems.base import Measurement
from dgbench.systems.gnnflow.experiments.settings import BY_NAME, MODEL_TITLES


def value_of(row: Any, metric: str, **dims: Any) -> Any:
    """The only number of a row with these dimensions; None where it has none."""
    return Table.of([row]).where(metric, **dims).get()


def observe_speedup(
    found: Measurement, slow: Sequence[float], fast: Sequence[float], **dims: Any
) -> None:
    """Add the median ratio of the times of paired turns, `setting` over `baseline`.

    Order statistics bound it, since single turns have outliers; fewer than six turns have no
    interval.
    """
    ratio = paired_ratio(slow, fast, method="sign")
    found.observe("speedup", ratio.value, low=ratio.low, high=ratio.high, **dims)


def panel(row: Any) -> str:
    """A graph's title as a figure shows it."""
    return graph_title(row.params["dataset"]) + (" (twin)" if row.data.get("twin") else "")


def graph_title(name: str) -> str:
    """The title of a dataset by its card's name."""
    return BY_NAME[name].title if name in BY_NAME else name


def model_title(row: Any) -> str:
    """A model's title as a figure shows it."""
    return MODEL_TITLES[row.params["model"]]


def mark(row: Any, /, **fields: Any) -> dict[str, Any]:
    """A point of a figure that rests on a row."""
    return {**fields, "twin": bool(row.data.get("twin")), "row_ids": [row.id]}


def ratio_mark(ratio: Ratio, /, **fields: Any) -> dict[str, Any]:
    """A point of a figure that shows a ratio with its interval; `fields` go before its own."""
    return {
        "value": ratio.value, "low": ratio.low, "high": ratio.high, "n": ratio.n,
        "twin": ratio.twin, "row_ids": ratio.rows, **fields,
    }  # fmt: skip


def gap(row: Any, /, **fields: Any) -> dict[str, Any]:
    """A point of a figure for a row that did not run."""
    return {**fields, "failed": failed(row), "row_ids": [row.id]}


def failures(rows: Sequence[Any], experiment: str) -> list[Any]:
    """Rows of an experiment that did not run."""
    return [r for r in rows if r.experiment == experiment and r.status != "ok"]


def failed(row: Any) -> str:
    """The `failed` key of a figure's point: a row's status and reason."""
    return f"{row.status}: {row.reason}" if row.reason else str(row.status)


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


def origin_data(origin: Any) -> dict[str, Any]:
    """The `data` field of a measurement from the origin of a stream."""
    return {
        "dataset": origin.dataset,
        "twin": origin.kind == "twin",
        "scale": origin.scale,
        "note": "; ".join(origin.notes),
    }


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
