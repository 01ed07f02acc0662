"""Rows of DGC's experiments as the harness keeps them, from made-up observations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import paper_rows
from msgspec.structs import replace

from dgbench.harness.claims.verdict import Verdict
from dgbench.harness.store.row import Row
from dgbench.lab.table import Observation, observation
from dgbench.systems.base import Claim, Measurement
from dgbench.systems.dgc import PAPER

seen = observation
FLOOR = 0.01
"""Noise floor of made-up runs."""


def judged(claim: Claim, rows: Sequence[Row], *, floor: float | None = FLOOR) -> Verdict:
    """The verdict of a claim from these rows, as the harness reaches it."""
    return paper_rows.judged(PAPER, claim, rows, floor)[1]


def row_of(
    experiment: str, params: dict[str, Any], observed: Iterable[Observation] = (), **fields: Any
) -> Row:
    """A row on real data; `fields` replace what it would hold."""
    name = "/".join(map(str, params.values()))
    common = {
        "id": f"{experiment}/{name}", "paper": "dgc", "group": "g", "data": {"twin": False},
        "observed": list(observed),
    }  # fmt: skip
    return Row(experiment=experiment, params=params, **{**common, **fields})


def kept(found: Measurement, experiment: str, params: dict[str, Any], **fields: Any) -> Row:
    """The row of a measurement."""
    common = {"data": found.data, "deviation": found.deviation}
    return row_of(experiment, params, found.observations, **{**common, **fields})


def but(row: Row, metric: str, value: float, **dims: Any) -> Row:
    """A row that observed another number of these dimensions; a new one where it had none."""
    rest = [one for one in row.observed if (one.metric, one.dims) != (metric, dims)]
    return replace(row, observed=[*rest, seen(metric, value, **dims)])


def without(row: Row, metric: str, **dims: Any) -> Row:
    """A row that lacks what it observed of these dimensions."""
    rest = [one for one in row.observed if (one.metric, one.dims) != (metric, dims)]
    return replace(row, observed=rest)
