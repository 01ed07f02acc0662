"""Rows from before schema 3: what their names say, and that no number is lost."""

from __future__ import annotations

import pytest
import yaml

from dgbench.harness.store import old_names
from dgbench.harness.store.row import Row
from dgbench.runtime.errors import DgbenchError, InvalidInputError

PATTERNS = """
fig1:
  values:
    step <setting>: step_time
    gain <setting>: {metric: speedup, low: low <setting>, high: high <setting>}
    took_ms: {metric: preparation_time, scale: 0.001}
    loss <setting=a|b> <epoch>: loss
  counters:
    bytes <setting> <ranks>: {metric: memory, dims: {format: csr}}
    turns: turns
  samples: epoch_time
"""


@pytest.fixture
def patterns(tmp_path, monkeypatch):
    (tmp_path / "toy.yaml").write_text(PATTERNS)
    monkeypatch.setattr(old_names.resources, "files", lambda name: tmp_path)
    old_names._names.cache_clear()
    old_names._read.cache_clear()
    yield tmp_path
    old_names._names.cache_clear()
    old_names._read.cache_clear()


def numbers(**fields) -> dict:
    row = Row(id="a", paper="toy", experiment="fig1", **fields)
    return {
        (one.metric, *one.dims.items()): (one.value, one.low, one.high) for one in row.observations
    }


def test_names_become_metrics_and_dimensions(patterns) -> None:
    found = numbers(
        values={"step all on": 2.0, "gain x y": 3.0, "low x y": 2.5, "high x y": 3.5, "gain z": 1.0,
                "took_ms": 5.0, "loss a 12": 0.5},
        counters={"bytes w/o CF 4": 9, "turns": 3},
        phases={"gnn": 0.25},
    )  # fmt: skip
    assert found == {
        ("step_time", ("setting", "all on")): (2.0, None, None),
        ("speedup", ("setting", "x y")): (3.0, 2.5, 3.5),
        ("speedup", ("setting", "z")): (1.0, None, None),
        ("preparation_time",): (0.005, None, None),
        ("loss", ("setting", "a"), ("epoch", 12)): (0.5, None, None),
        ("memory", ("setting", "w/o CF"), ("ranks", 4), ("format", "csr")): (9, None, None),
        ("turns",): (3, None, None),
        ("phase_time", ("phase", "gnn")): (0.25, None, None),
    }


def test_a_name_that_no_pattern_fits_is_kept_under_its_old_name(patterns) -> None:
    found = numbers(
        values={"loss c 1": 0.5, "other s": 2.0, "rate": 3.0},
        units={"rate": "1/s"},
        counters={"more": 4},
    )
    assert {key[0]: value for key, (value, *_) in found.items()} == {
        "unnamed_number": 3.0, "unnamed_time": 2.0, "unnamed_count": 4,
    }  # fmt: skip
    assert ("unnamed_number", ("old_name", "loss c 1")) in found


@pytest.mark.parametrize(
    "broken",
    ["{a: {values: {x: no_such_metric}}}", "{a: {values: {'<nothing> x': loss}}}",
     "{a: {values: {x: {metric: loss, sale: 2}}}}",
     "{a: {values: {x: {metric: loss, dims: {ranks: four}}}}}"],
)  # fmt: skip
def test_a_wrong_pattern_is_refused_when_it_is_read(patterns, broken: str) -> None:
    (patterns / "toy.yaml").write_text(yaml.safe_dump(yaml.safe_load(broken)))
    with pytest.raises((DgbenchError, InvalidInputError)):
        numbers(values={"x": 1.0})
