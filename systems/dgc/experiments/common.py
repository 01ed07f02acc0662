"""Helpers of DGC's experiments: titles of partitions, and gains over rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dgbench.lab.compare import Ratio, observe_speedup, ratio_of, rounds_of
from dgbench.lab.experiment import Measurement
from dgbench.lab.table import Entry, Table
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.statistics import geometric_mean

PARTITION_TITLES = {
    "snapshots": "PSS",
    "snapshots-contiguous": "PSS, contiguous",
    "sequences": "PTS",
    "both": "PSS-TS",
    "chunks": "PGC",
}
"""Words for the `partition` of a row."""


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
            dims = {key: name, "baseline": baseline}
            observe_speedup(found, seconds[baseline], seconds[name], **dims)


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
