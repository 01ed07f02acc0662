"""Rows of PiPAD's experiments, made by hand or by a small run, and what its checks say of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from dgbench.harness.claims.evaluate import evaluate
from dgbench.harness.store.row import Row
from dgbench.lab.result_checks import ResultCheck
from dgbench.lab.table import Observation, observation
from dgbench.runtime.meter import Meter
from dgbench.systems.base import Cell, RunContext
from dgbench.systems.pipad import PAPER
from dgbench.systems.pipad.tuner import FrameFacts

EXPERIMENTS = {experiment.name: experiment for experiment in PAPER.experiments}
PASSED = ResultCheck(of="outputs", against="oracle", gap=0.0, tolerance=1e-5, compared=1)

__all__ = ["EXPERIMENTS", "made", "observation", "quiet", "race_rows", "ran", "verdict"]


def made(
    experiment: str, params: dict[str, Any], found: Iterable[Observation] = (), **fields: Any
) -> Row:
    """A row that observed this; `fields` go before all else."""
    plain = {
        "id": f"{experiment}-{'-'.join(map(str, params.values()))}-{fields.get('round', 1)}",
        "run": "test",
        "paper": "pipad",
        "experiment": experiment,
        "params": params,
        "group": f"{params.get('dataset')}/{params.get('model')}",
        "preset": "quick",
        "checks": [PASSED],
        "observed": list(found),
    }
    return Row(**(plain | fields))


def quiet(floor: float = 0.01) -> list[Row]:
    """An A/A pair of a machine with this noise floor; without one no time decides anything."""
    return [
        made(
            "noise",
            {"dataset": "none"} | control,
            [observation("step_time", seconds, samples=[seconds])],
            id=f"noise-{seconds}",
            paper="-",
        )
        for control, seconds in (({}, 1.0), ({"control": True}, 1.0 + floor))
    ]


def race_rows(
    seconds: Mapping[str, float], dataset: str, model: str, *, rounds: int = 5, **fields: Any
) -> list[Row]:
    """Rows of Figure 10: end-to-end time by system, with a permille of noise over the rounds."""
    return [
        made(
            "fig10",
            {"dataset": dataset, "model": model, "system": system},
            [observation("end_to_end_time", time * (1 + 0.001 * (number % 3)))],
            round=number + 1,
            **fields,
        )
        for number in range(rounds)
        for system, time in seconds.items()
    ]


def ran(cell: Cell, *, instrumented: bool = False, **fields: Any) -> Row:
    """The row of a smoke cell, run here on the CPU."""
    meter = Meter(timing=instrumented)
    context = RunContext("cpu", "smoke", 1, instrumented=instrumented, meter=meter, budget_s=0.02)
    found = EXPERIMENTS[cell.experiment].run(cell, context)
    measured = structs.asdict(found)
    observed = measured.pop("observations")
    plain = {"instrumented": instrumented, "group": cell.group, "preset": "smoke"}
    return made(cell.experiment, dict(cell.params), observed, **(measured | plain | fields))


def verdict(rows: Sequence[Row], claim: str) -> Any:
    """The verdict on a claim."""
    alone = replace(PAPER, checks={claim: PAPER.checks[claim]})  # the others take most of the time
    return evaluate(alone, rows).find(claim)[1]


def facts(**changed) -> FrameFacts:
    """Facts of a frame of 16 snapshots; `changed` stand for the usual ones."""
    found = {
        "times": range(16),
        "widths": (32,),
        "single_s": 8e-3,
        "rest_s": 2e-3,
        "overlap": {2: 0.9, 4: 0.8, 8: 0.7},
        "bytes": {1: [100] * 16, 2: [190] * 8, 4: [350] * 4, 8: [600] * 2},
        "peak_bytes": 1000,
    }
    return FrameFacts(**{**found, **changed})
