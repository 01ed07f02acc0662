"""Rows of cells that no kept run reaches: presets full and paper, and a CUDA device.

Each such cell gets the numbers of the kept row of its experiment that is most like it, moved by
factors that follow from the cell, the metric and the round: branches that only such cells reach
decide something, the same everywhere. Nothing here was measured, and no report sees it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dgbench.harness.plan.plan import cell_hash
from dgbench.lab.metrics import metric
from dgbench.lab.paper import Paper

ROUNDS = 2
SPREAD, NOISE = 0.6, 0.02
"""Width of the factor of a cell's metric, and of each round beside it, as logarithms."""


def synthetic_rows(paper: Paper, kept: Sequence[Any], preset: str, device: str) -> list[Any]:
    """Rows of all cells of a preset on a device, made from the kept rows of the paper."""
    found = []
    for experiment in paper.experiments:
        patterns = [
            row for row in kept
            if row.experiment == experiment.name and row.ok and row.observations
        ]  # fmt: skip
        for cell in experiment.cells(preset, device):  # type: ignore[arg-type]
            if not patterns or cell.unavailable:
                continue
            pattern = max(patterns, key=lambda row: (_likeness(row.params, cell.params), row.id))
            found += [_made(pattern, cell, preset, device, turn) for turn in range(1, ROUNDS + 1)]
    return found


def _likeness(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[int, int]:
    """Equal params, and then equal names of them."""
    return sum(one.get(name) == value for name, value in other.items()), len({*one} & {*other})


def _made(pattern: Any, cell: Any, preset: str, device: str, turn: int) -> Any:
    of = cell_hash(cell, preset, device)
    observed = []
    for one in pattern.observations:
        if not metric(one.metric).exact:
            dims = sorted((name, str(value)) for name, value in one.dims.items())
            factor = math.exp(SPREAD * _draw(of, one.metric, dims) + NOISE * _draw(of, turn, dims))
            if metric(one.metric).kind == "share":
                factor = min(factor, 1.0)
            ends = [None if end is None else end * factor for end in (one.low, one.high)]
            one = msgspec.structs.replace(
                one, value=one.value * factor, low=ends[0], high=ends[1],
                samples=[factor * sample for sample in one.samples],
            )  # fmt: skip
        observed.append(one)
    row = msgspec.structs.replace(
        pattern, id=f"{of[:8]}-r{turn}", cell_hash=of, params=dict(cell.params), group=cell.group,
        round=turn, preset=preset, device=cell.device or device, observed=observed, touched={},
        values={}, units={}, counters={}, phases={}, samples=[], disturbed="", replaced=False,
    )  # fmt: skip
    row.__dict__.pop("observations", None)
    return row


def _draw(*of: Any) -> float:
    """Number from -1 to 1 that follows from its arguments."""
    digest = hashlib.sha256(repr(of).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**47 - 1
