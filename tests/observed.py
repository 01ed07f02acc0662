"""Measurements and rows of tests, made from and read as plain numbers by metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dgbench.lab import metrics
from dgbench.lab.table import Observation
from dgbench.systems.base import Measurement

NUMBER = metrics.add("told_number", "score", "a number that a cell of a test tells").name


def observations(
    numbers: Mapping[str, Any] | None = None,
    *,
    samples: Any = (),
    phases: Mapping[str, Any] | None = None,
) -> list[Observation]:
    """Observations as a plugin may write them, right or wrong: nothing is checked.

    Args:
        numbers: value by metric. samples: seconds of each step. phases: seconds by phase.
    """
    found = [Observation(metric=name, value=value) for name, value in (numbers or {}).items()]
    if samples is None or len(samples):
        found.append(Observation(metric="step_time", value=1.0, samples=samples))
    return found + [
        Observation(metric="phase_time", value=seconds, dims={"phase": name})
        for name, seconds in (phases or {}).items()
    ]


def told(
    numbers: Mapping[str, Any] | None = None,
    *,
    samples: Any = (),
    phases: Mapping[str, Any] | None = None,
    **more: Any,
) -> Measurement:
    """A measurement that holds these observations; `more` are its other fields."""
    return Measurement(observations=observations(numbers, samples=samples, phases=phases), **more)


def numbers(row: Any) -> dict[str, Any]:
    """Value by metric of what a row observed without dimensions."""
    return {one.metric: one.value for one in row.observations if not one.dims}


def samples(row: Any) -> list[float]:
    """Seconds of each step that a row observed."""
    return next((one.samples for one in row.observations if one.samples), [])


def phases(row: Any) -> dict[str, float]:
    """Seconds by phase that a row observed."""
    return by(row.observations, "phase_time", "phase")


def by(observations: Iterable[Observation], metric: str, dimension: str) -> dict[Any, Any]:
    """Value of a metric by a dimension."""
    return {one.dims[dimension]: one.value for one in observations if one.metric == metric}
