"""Losses that processes of a cell keep for one another."""

from __future__ import annotations

import math

import pytest
from dgc_tiny import random_sequence

from dgbench.harness.runner import kept as harness_kept
from dgbench.harness.runner.kept import ALTERED, KeptNumbers
from dgbench.harness.runner.protocol import Result
from dgbench.harness.store import Row
from dgbench.lab.experiment import Cell
from dgbench.lab.result_checks import at_most
from dgbench.systems.base.kept import KeptLosses, begin_kept, kept_in_process

DATA = random_sequence(20, 5, 30, 1)
PASSED = at_most("losses", 0.0, 0.0, against="oracle", compared=1)
FAILED = at_most("losses", 1.0, 0.0, against="oracle", compared=1)
LOSSES = {"exact": [0.7, 0.69, 0.68], "stale": [0.7, 0.69 * 1.004, 0.68 * 1.004]}


@pytest.fixture(autouse=True)
def _nothing_kept():
    begin_kept({})
    yield
    begin_kept({})


def opened(**fields) -> KeptLosses:
    return KeptLosses(**{"task": "task", "data": DATA, "setting": 2} | fields)


@pytest.fixture
def kept() -> KeptLosses:
    opened().keep(LOSSES, [PASSED])
    return opened()


def passes(kept: KeptLosses, losses: dict[str, list[float]], stale=()) -> bool:
    return all(check.passed for check in kept.checks(losses, stale=stale))


def test_only_what_an_oracle_confirmed_is_kept():
    for checks, known in (([PASSED, FAILED], None), ([PASSED], LOSSES)):
        opened().keep(LOSSES, checks)
        assert opened().known == known


def test_other_data_tasks_and_settings_have_their_own(kept, tmp_path):
    (tmp_path / "module.py").write_text("")
    other = random_sequence(20, 5, 30, 2)
    for fields in ({"data": other}, {"task": "other"}, {"setting": 4}, {"package": tmp_path}):
        assert opened(**fields).known is None


@pytest.mark.parametrize("losses", [{}, {"exact": []}, {"exact": ["x"]}, {"exact": [math.nan]}])
def test_what_are_no_losses_is_none(kept, losses):
    (key,) = kept_in_process()[0]
    begin_kept({key: losses})
    assert opened().known is None


def cell(system: str, paper: str = "pipad", group: str = "g") -> Cell:
    return Cell(paper=paper, experiment="fig10", params={"system": system}, group=group)


@pytest.fixture
def runner_s(monkeypatch) -> KeptNumbers:
    monkeypatch.setattr(harness_kept, "third_party", lambda group: {"mine": None})
    return KeptNumbers()


def test_cells_that_load_code_of_others_keep_nothing(runner_s):
    for own in (cell("mine"), cell("mine, no reuse"), cell("pipad", paper="theirs")):
        runner_s.take(own, Row(id="a"), Result(status="ok", made={"0": {"output": 0.0199}}))
        assert runner_s.of(own) == {}
    runner_s.take(cell("pipad"), Row(id="a"), Result(status="ok", made={"0": {"output": 1e-5}}))
    assert runner_s.of(cell("mine")) == {"0": {"output": 1e-5}}
    assert runner_s.of(cell("mine", group="other")) == {}
    runner_s.take(cell("pipad"), Row(id="a", status="crash"), Result(status="ok", made={"1": {}}))
    assert runner_s.of(cell("pipad")).keys() == {"0"}


@pytest.mark.parametrize(
    ("used", "status", "reason"),
    [({"0": {"output": 1e-5}}, "ok", ""), ({"0": {"output": 0.0199}}, "check", ALTERED),
     ({"1": {"output": 0.0199}}, "check", ALTERED)],
)  # fmt: skip
def test_a_cell_that_used_other_numbers_than_it_got_loses_its_row(runner_s, used, status, reason):
    runner_s.take(cell("pipad"), Row(id="a"), Result(status="ok", made={"0": {"output": 1e-5}}))
    row = Row(id="b")
    runner_s.take(cell("mine"), row, Result(status="ok", used=used))
    assert (row.status, row.reason) == (status, reason)


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


def test_stale_rows_have_half_of_what_parts_them_from_exact_training(kept):
    near, far = ([0.7, *(one * (1 + gap) for one in LOSSES["stale"][1:])] for gap in (1e-3, 3e-3))
    assert passes(kept, {"stale": near}, ["stale"])
    assert not passes(kept, {"stale": far}, ["stale"])
    assert not passes(kept, {"stale": near})
    assert not passes(kept, {"stale": [0.71, *near[1:]]}, ["stale"])  # the first sends all rows
    assert passes(kept, {"stale, not kept": [0.7, 0.1]}, ["stale, not kept"])
