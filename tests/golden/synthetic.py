"""Rows of cells that no kept run reaches: presets full and paper, and a CUDA device.

Each such cell gets the numbers of the kept row of its experiment that is most like it, moved by
factors that follow from the cell, the metric and the round: branches that only such cells reach
decide something, the same everywhere. Nothing here was measured, and no report sees it.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Mapping, Sequence
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
        mine = [row for row in kept if row.experiment == experiment.name]
        patterns: dict[str, Any] = {}  # of each params the last row by id
        for row in sorted(mine, key=lambda row: row.id, reverse=True):
            if row.ok and row.observed:
                patterns.setdefault(repr(sorted(row.params.items())), row)
        for cell in experiment.cells(preset, device):  # type: ignore[arg-type]
            if not patterns or cell.unavailable:
                continue
            pattern = max(
                patterns.values(), key=lambda row: (_likeness(row.params, cell.params), row.id)
            )
            found += _made(pattern, cell, preset, device)
    return found


def disturbed(seed: int) -> Callable[[Sequence[Any]], list[Any]]:
    """A change of rows that a seed draws, so that claims decide what kept rows never do.

    Rows are lost or failed; in some copies most of them are of a GPU, of real data, or of a full
    scale. Numbers are moved by a factor of their metric and dimensions, and a little in each row;
    counts are left alone in every second copy.
    """

    def change(rows: Sequence[Any]) -> list[Any]:
        draw = random.Random(seed)
        cuda, real, full = (draw.random() < share for share in (0.4, 0.4, 0.3))
        width, losing = draw.choice((0.05, 0.4, 1.2)), draw.choice((0.0, 0.1, 0.3))
        shift: dict[Any, float] = {}
        changed = []
        for row in rows:
            if draw.random() < losing:
                continue
            if draw.random() < losing / 2:
                row = msgspec.structs.replace(row, status="oom", reason="out of memory")
                row.observed = []
                changed.append(row)
                continue
            moved = []
            for one in row.observed:
                key = (one.metric, *sorted((n, str(v)) for n, v in one.dims.items() if n != "turn"))
                factor = shift.setdefault(key, draw.lognormvariate(0, width))
                factor *= draw.lognormvariate(0, 0.03)
                if metric(one.metric).kind == "share":
                    factor = min(1.0, factor)
                value = one.value * factor
                if metric(one.metric).exact:
                    value = round(value) if seed % 2 else one.value
                low, high = (None if end is None else end * factor for end in (one.low, one.high))
                moved.append(msgspec.structs.replace(one, value=value, low=low, high=high))
            data = dict(row.data) | ({"scale": 1.0} if full else {})
            data |= {"twin": False} if real and draw.random() < 0.8 else {}
            device = {"device": "cuda"} if cuda and draw.random() < 0.9 else {}
            changed.append(msgspec.structs.replace(row, observed=moved, data=data, **device))
        return changed

    return change


def _likeness(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[int, int]:
    """Equal params, and then equal names of them."""
    return sum(one.get(name) == value for name, value in other.items()), len({*one} & {*other})


def _made(pattern: Any, cell: Any, preset: str, device: str) -> list[Any]:
    """Rows of all rounds of a cell."""
    of = cell_hash(cell, preset, device)
    moved = []
    for one in pattern.observed:
        if metric(one.metric).exact:
            moved.append([one] * ROUNDS)
            continue
        dims = sorted((name, str(value)) for name, value in one.dims.items())
        most = 1.0 if metric(one.metric).kind == "share" else math.inf
        wide = SPREAD * _draw(of, one.metric, dims)
        factors = (
            min(most, math.exp(wide + NOISE * _draw(of, turn, dims)))
            for turn in range(1, ROUNDS + 1)
        )
        moved.append([_scaled(one, factor) for factor in factors])
    rows = []
    for turn, observed in enumerate(zip(*moved, strict=True), 1):
        row = msgspec.structs.replace(
            pattern, id=f"{of[:8]}-r{turn}", cell_hash=of, params=dict(cell.params),
            group=cell.group, round=turn, preset=preset, device=cell.device or device,
            observed=list(observed), touched={}, disturbed="", replaced=False,
        )  # fmt: skip
        rows.append(row)
    return rows


def _scaled(one: Any, factor: float) -> Any:
    low, high = (None if end is None else end * factor for end in (one.low, one.high))
    samples = [factor * sample for sample in one.samples]
    return msgspec.structs.replace(
        one, value=one.value * factor, low=low, high=high, samples=samples
    )


def _draw(*of: Any) -> float:
    """Number from -1 to 1 that follows from its arguments."""
    digest = hashlib.sha256(repr(of).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**47 - 1
