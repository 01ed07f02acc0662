"""The catalogue of metrics and dimensions: what a name may be, and what an unknown one says."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest

from dgbench import datasets
from dgbench.lab import catalogue, metrics
from dgbench.lab.table import observation
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base import Workload, system_names

NAMES = ("step time", "Step", "step-time", "", "_x", "x_", "x__y", "step_s", "bytes_sent",
         "time_per_edge", "share_percent", "copy_gb", "dataset", "words_2", "é")  # fmt: skip


def test_a_name_with_a_space_a_unit_a_number_or_a_dimension_is_refused() -> None:
    for name in NAMES:
        with pytest.raises(InvalidInputError):
            metrics.add(name, "count", "x")
        assert name not in metrics.METRICS


def test_values_of_another_type_are_refused() -> None:
    for metric, value, dims in (
        ("edges", 1.0, {}), ("edges", True, {}), ("step_time", "fast", {}), ("step_time", None, {}),
        ("step_time", 1.0, {"ranks": "four"}), ("step_time", 1.0, {"ranks": True}),
        ("step_time", 1.0, {"dataset": 4}),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError):
            observation(metric, value, **dims)  # type: ignore[arg-type]


def test_the_catalogue_holds_to_its_own_rules_and_to_its_size() -> None:
    names = [name for known in catalogue.METRICS.values() for name in known]
    assert len(names) == len(set(names)) <= 150
    assert set(catalogue.METRICS) <= set(metrics.UNITS)
    assert all(metrics.METRICS[name].about for name in names)
    assert set(catalogue.METER_METRICS.values()) <= set(metrics.METRICS)
    assert not set(names) & set(catalogue.DIMENSIONS)
    values = {*datasets.cards(), *system_names(), *get_args(get_type_hints(Workload)["model"])}
    assert not [name for name in names if set(name.split("_")) & values]
