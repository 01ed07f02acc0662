"""What T-GCN's experiments share: words for rows, rows that failed, data and threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from dgbench.systems.base import Preset
from dgbench.systems.tgcn.experiments.settings import BY_NAME

if TYPE_CHECKING:
    from dgbench.datasets import EventStream


def graph_title(name: str) -> str:
    """The title of a dataset by its card's name."""
    return BY_NAME[name].title if name in BY_NAME else name


def panel(row: Any) -> str:
    """A graph's title as a figure shows it."""
    return graph_title(row.params["dataset"]) + (" (twin)" if row.data.get("twin") else "")


def failures(rows: Sequence[Any], experiment: str) -> list[Any]:
    """Rows of an experiment that did not run."""
    return [r for r in rows if r.experiment == experiment and r.status != "ok"]


def failed(row: Any) -> str:
    """The `failed` key of a figure's point: a row's status and reason."""
    return f"{row.status}: {row.reason}" if row.reason else str(row.status)


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
