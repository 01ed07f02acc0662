"""What DGC's experiments share: words for rows, rows that failed, and threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from msgspec.structs import replace

from dgbench.lab.compare import Ratio, ratio_of, rounds_of
from dgbench.lab.experiment import Measurement
from dgbench.lab.result_checks import ResultCheck
from dgbench.lab.table import Entry, Table
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.statistics import geometric_mean, paired_ratio
from dgbench.systems.dgc.experiments.settings import BY_NAME, MODEL_TITLES

PARTITION_TITLES = {
    "snapshots": "PSS",
    "snapshots-contiguous": "PSS, contiguous",
    "sequences": "PTS",
    "both": "PSS-TS",
    "chunks": "PGC",
}
"""Words for the `partition` of a row."""


def panel(row: Any) -> str:
    """A graph's title as a figure shows it."""
    name = row.params["dataset"]
    title = BY_NAME[name].title if name in BY_NAME else name
    return title + (" (twin)" if row.data.get("twin") else "")


def model_title(row: Any) -> str:
    """A model's title as a figure shows it."""
    return MODEL_TITLES[row.params["model"]]


def number(row: Any, metric: str, default: Any = None, **dims: Any) -> Any:
    """The number that a row observed of a metric with exactly these dimensions, or `default`."""
    found = (o.value for o in row.observations if o.metric == metric and o.dims == dims)
    return next(found, default)


def by_row(found: Table) -> list[Table]:
    """The entries of each row, apart."""
    mine: dict[str, list[Entry]] = {}
    for one in found:
        mine.setdefault(one.row.id, []).append(one)
    return [Table(entries) for entries in mine.values()]


def observe_gains(
    found: Measurement, seconds: Mapping[str, Sequence[float]], baseline: str, key: str = "setting"
) -> None:
    """Observe by how much each contender is faster than the baseline, from paired turns.

    Order statistics bound the median ratio, since single turns have outliers; fewer than six turns
    have no interval. `key` is the dimension that tells contenders apart.
    """
    for name in seconds:
        if name != baseline:
            ratio = paired_ratio(seconds[baseline], seconds[name], method="sign")
            dims = {key: name, "baseline": baseline}
            found.observe("speedup", ratio.value, low=ratio.low, high=ratio.high, **dims)


def gain_over_rounds(row: Any, rows: Sequence[Any], setting: str) -> Ratio:
    """The gain of a setting over the rounds of a row's cell; of one round over its turns."""
    ratio = ratio_of(Table.of(rounds_of(row, rows)).where("speedup", setting=setting))
    if ratio is None:
        raise InvalidInputError(f"row '{row.id}' has no speedup of '{setting}'")
    return ratio


def over_rounds(values: Sequence[float]) -> dict[str, float]:
    """`y` of a point from one number a round; of several their mean on logs, `low` and `high`."""
    if len(values) == 1:
        return {"y": values[0]}
    found = geometric_mean(values)
    return {"y": found.value, "low": found.low, "high": found.high}  # type: ignore[dict-item]


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


def summarised(checks: Sequence[ResultCheck]) -> list[ResultCheck]:
    """All checks that failed, and of those that passed the closest of a kind, for all of them."""
    found = [check for check in checks if not check.passed]
    kinds: dict[tuple[str, str], list[ResultCheck]] = {}
    for check in checks:
        if check.passed:
            kinds.setdefault((check.of, check.against), []).append(check)
    for alike in kinds.values():
        closest = max(alike, key=lambda one: one.gap / (one.tolerance or 1.0))
        found.append(replace(closest, compared=sum(one.compared for one in alike)))
    return found


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for torch and the compiled operators, as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
