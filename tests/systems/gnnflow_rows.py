"""Rows of GNNFlow's experiments with observations that were measured here or made up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import paper_rows
from msgspec import structs

from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.claims.verdict import Verdict
from dgbench.harness.store.row import Row
from dgbench.lab.table import Observation, Table, observation
from dgbench.systems.base import Finding, Measurement, get_paper


def row(
    experiment: str,
    params: Mapping[str, Any],
    found: Measurement | Iterable[Observation] = (),
    **fields: Any,
) -> Row:
    """A row with what a cell measured, or with these observations; `fields` go before all else."""
    common = {
        "id": f"{experiment}-{'-'.join(map(str, params.values()))}", "paper": "gnnflow",
        "experiment": experiment, "params": dict(params), "group": "g", "device": "cpu",
        "data": {"twin": False, "scale": 1.0},
    }  # fmt: skip
    if isinstance(found, Measurement):
        measured = structs.asdict(found)
        observed = measured.pop("observations")
        common |= measured | {"observed": observed}
    else:
        common["observed"] = list(found)
    return Row(**(common | fields))


def by(metric: str, dim: str, numbers: Mapping[Any, float], **dims: Any) -> list[Observation]:
    """Observations of a metric, one for each value of a dimension."""
    return [observation(metric, value, **{**dims, dim: key}) for key, value in numbers.items()]


def number(found: Row | Measurement, metric: str, **dims: Any) -> Any:
    """The only number with these dimensions; None where there is none."""
    one = row("made up", {}, found) if isinstance(found, Measurement) else found
    return Table.of([one]).where(metric, **dims).get()


def judged(name: str, rows: list[Row], floor: float = 0.0) -> tuple[Finding, Verdict]:
    """Finding of a claim's check in rows, and the verdict under the conditions of these.

    Args:
        name: of the claim, with the paper's name before it or without. floor: noise floor.
    """
    paper = get_paper("gnnflow")
    full = name if name.startswith("gnnflow-") else f"gnnflow-{name}"
    claim = next(one for one in load_ledger(paper.ledger) if one.id == full)
    return paper_rows.judged(paper, claim, rows, floor)
