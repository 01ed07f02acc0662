"""Made rows of ESDG's experiments."""

from __future__ import annotations

from typing import Any

from dgbench.harness.store.row import Row
from dgbench.lab.result_checks import equal
from dgbench.lab.table import (
    Observation,
    number,  # noqa: F401 - what tests read a row by
    observation,
)

seen = observation
"""An observation: `seen("epoch_time", 0.1, setting="GD")`."""


def row(experiment: str, params: dict[str, Any], *observed: Observation, **fields: Any) -> Row:
    """A made-up row; `fields` replace what it would hold."""
    plain = {
        "id": f"{experiment}-{'-'.join(map(str, params.values()))}",
        "paper": "esdg",
        "experiment": experiment,
        "group": "g",
        "checks": [equal("counters", 1, 1, against="made up")],
    }
    return Row(**{**plain, "params": params, "observed": list(observed), **fields})
