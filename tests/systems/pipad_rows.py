"""Rows of PiPAD's experiments, made by hand, and what its checks say of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dgbench.harness.claims.evaluate import evaluate
from dgbench.harness.store.row import Row
from dgbench.lab.result_checks import ResultCheck
from dgbench.lab.table import Observation, observation
from dgbench.systems.pipad import PAPER
from dgbench.systems.pipad.tuner import FrameFacts

PASSED = ResultCheck(of="outputs", against="oracle", gap=0.0, tolerance=1e-5, compared=1)


def made(
    experiment: str, params: dict[str, Any], found: Iterable[Observation] = (), **fields: Any
) -> Row:
    """A row that observed this; `fields` go before all else."""
    plain = {
        "id": f"{experiment}-{'-'.join(map(str, params.values()))}-{fields.get('round', 1)}",
        "run": "test", "paper": "pipad", "experiment": experiment, "params": params,
        "group": f"{params.get('dataset')}/{params.get('model')}", "preset": "quick",
        "checks": [PASSED], "observed": list(found),
    }  # fmt: skip
    return Row(**(plain | fields))


def quiet(floor: float = 0.01) -> list[Row]:
    """An A/A pair of a machine with this noise floor; without one no time decides anything."""
    return [
        made("noise", {"dataset": "none"} | control, [observation("step_time", s, samples=[s])],
             id=f"noise-{s}", paper="-")
        for control, s in (({}, 1.0), ({"control": True}, 1.0 + floor))
    ]  # fmt: skip


def race_rows(
    seconds: Mapping[str, float], dataset: str, model: str, experiment: str = "fig10",
    metric: str = "end_to_end_time", **more: Any,
) -> list[Row]:  # fmt: skip
    """Rows of five rounds by system, with a permille of noise."""
    return [
        made(
            experiment, {"dataset": dataset, "model": model, "system": system, **more},
            [observation(metric, time * (1 + 0.001 * (number % 3)))], round=number + 1,
        )
        for number in range(5)
        for system, time in seconds.items()
    ]  # fmt: skip


def verdict(rows: Sequence[Row], claim: str) -> Any:
    """The verdict on a claim, on a machine with a noise floor."""
    alone = replace(PAPER, checks={claim: PAPER.checks[claim]})  # the others take most of the time
    return evaluate(alone, [*quiet(), *rows]).find(claim)[1]


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
