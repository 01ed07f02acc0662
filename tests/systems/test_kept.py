"""Losses that processes of a cell keep for one another."""

from __future__ import annotations

import json
import math

import pytest
from dgc_tiny import random_sequence

from dgbench.lab.result_checks import at_most
from dgbench.systems.base.kept import KeptLosses

DATA = random_sequence(20, 5, 30, 1)
PASSED = at_most("losses", 0.0, 0.0, against="oracle", compared=1)
FAILED = at_most("losses", 1.0, 0.0, against="oracle", compared=1)
LOSSES = {"exact": [0.7, 0.69, 0.68], "stale": [0.7, 0.69 * 1.004, 0.68 * 1.004]}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path))


def opened(**fields) -> KeptLosses:
    return KeptLosses(**{"task": "task", "data": DATA, "setting": 2} | fields)


@pytest.fixture
def kept() -> KeptLosses:
    opened().keep(LOSSES, [PASSED])
    return opened()


def passes(kept: KeptLosses, losses: dict[str, list[float]], stale=()) -> bool:
    return all(check.passed for check in kept.checks(losses, stale=stale))


def test_only_what_an_oracle_confirmed_is_kept():
    opened().keep(LOSSES, [PASSED, FAILED])
    assert opened().known is None
    opened().keep(LOSSES, [PASSED])
    assert opened().known == LOSSES


def test_other_data_tasks_and_settings_have_their_own(kept, tmp_path):
    assert opened(data=random_sequence(20, 5, 30, 2)).known is None
    assert opened(task="other").known is None
    assert opened(setting=4).known is None
    (tmp_path / "module.py").write_text("")
    assert opened(package=tmp_path).known is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"exact": []}', '{"exact": ["x"]}', "NaN"])
def test_a_damaged_file_is_none(kept, tmp_path, text):
    (path,) = (tmp_path / "tolerances").iterdir()
    path.write_text(text)
    assert opened().known is None
    path.write_text(json.dumps({"exact": [math.nan]}))
    assert opened().known is None


@pytest.mark.parametrize("step", [0, 1, 2])
@pytest.mark.parametrize("wrong", [1.0001, 0.9, math.nan, math.inf])
def test_a_loss_of_any_step_that_parts_fails(kept, step, wrong):
    losses = list(LOSSES["exact"])
    losses[step] *= wrong
    assert not passes(kept, {"exact": losses})


def test_rounding_and_another_number_of_steps_pass(kept):
    assert passes(kept, {"exact": [0.7 * (1 + 1e-7), 0.69]})
    assert passes(kept, {"exact": [*LOSSES["exact"], 0.1]})
    assert passes(kept, {"exact, not kept": LOSSES["exact"]})
    opened().keep({"exact": [0.7] * 9}, [PASSED])
    assert passes(opened(), {"other": [0.7] * 3 + [0.8] * 6})
    assert not passes(opened(), {"exact": [0.7] * 3 + [0.8] * 6})


def test_nothing_in_common_is_no_check_that_passed(kept):
    assert not passes(kept, {"exact": []})


def test_stale_rows_have_half_of_what_parts_them_from_exact_training(kept):
    near, far = ([0.7, *(one * (1 + gap) for one in LOSSES["stale"][1:])] for gap in (1e-3, 3e-3))
    assert passes(kept, {"stale": near}, ["stale"])
    assert not passes(kept, {"stale": far}, ["stale"])
    assert not passes(kept, {"stale": near})
    assert not passes(kept, {"stale": [0.71, *near[1:]]}, ["stale"])  # the first sends all rows
    assert passes(kept, {"stale, not kept": [0.7, 0.1]}, ["stale, not kept"])


def test_every_failure_names_its_training(kept):
    (check,) = kept.checks({"exact": [0.7, 0.7]}, part="graph")
    assert check.part == "graph, exact, step, 1"
