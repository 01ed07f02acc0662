"""Metrics of kept rows under today's names: no number is lost."""

from __future__ import annotations

import pytest

from dgbench.harness.store.old_names import RENAMED, known
from dgbench.lab import metrics
from dgbench.lab.table import Observation, check, observation


def test_a_metric_of_today_stays_as_it_is() -> None:
    one = observation("step_time", 1.0, setting="a")
    assert known(one) is one


@pytest.mark.parametrize("name", RENAMED)
def test_a_former_metric_has_a_name_and_dimensions_of_today(name: str) -> None:
    assert name not in metrics.METRICS
    whole = metrics.METRICS[RENAMED[name][0]].exact
    old = Observation(metric=name, value=3 if whole else 2.5, dims={"dataset": "x"}, low=1.0)
    found = known(old)
    check(found)
    assert (found.metric, found.value, found.low) == (RENAMED[name][0], old.value, 1.0)
    assert found.dims == {"dataset": "x", **RENAMED[name][1]}
    own = known(Observation(metric=name, value=old.value, dims={"of": "its own"}))
    assert own.dims["of"] == "its own"


def test_a_metric_that_nobody_registered_is_kept_under_its_name() -> None:
    found = known(Observation(metric="of_some_plugin", value=7.0, dims={"seed": 2}))
    assert (found.metric, found.value) == ("unnamed_number", 7.0)
    assert found.dims == {"seed": 2, "old_name": "of_some_plugin"}
    check(found)
