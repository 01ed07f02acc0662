"""The oracle of timelines: parameters whose outputs tell something, found once for all."""

from __future__ import annotations

import random

import pytest
import torch

from dgbench.systems.base.conditioning import MIN_TOLERANCE
from dgbench.systems.base.kept import begin_kept, kept_key, read, write
from dgbench.systems.base.timeline import PlainTimeline, TimelineWorkload
from dgbench.systems.esdg import oracle
from dgbench.systems.esdg.experiments.random_graphs import random_graphs
from dgbench.systems.esdg.oracle import TimelineOracle, TimelineResult

DATA = random_graphs(48, steps=9)
TASK = TimelineWorkload(dataset="random", model="evolvegcn_o")


class DeadTimeline(PlainTimeline):
    """Plain trainer whose outputs are all zero with the workload's first parameters."""

    def forward(self) -> list[torch.Tensor]:
        first = self.workload.seed == TASK.seed and all(
            torch.equal(own.float(), made.float())
            for own, made in zip(self.model.parameters(), FIRST, strict=True)
        )
        return [0 * out if first else out for out in super().forward()]


FIRST = [p.detach().clone() for p in PlainTimeline(TASK, DATA).model.parameters()]


@pytest.fixture(autouse=True)
def dead(monkeypatch, tmp_path):
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path))
    begin_kept({})
    monkeypatch.setattr(oracle, "PlainTimeline", DeadTimeline)
    chance = random.Random(7)
    monkeypatch.setattr(oracle, "draws_of", lambda what: chance)
    return kept_key((TASK, "parameters of live outputs"))


def test_outputs_that_are_all_zero_are_not_what_is_compared(dead) -> None:
    judge = TimelineOracle(TASK, DATA)
    asked = judge.request
    found = TimelineResult.of(PlainTimeline(TASK, DATA), asked)
    assert asked.parameters is not None
    assert all(out.any() for out in found.outputs.values())
    checks = judge.checks({"plain": found}, "")
    assert checks
    assert all(check.passed for check in checks)
    slopes = [check for check in checks if check.of == "gradients"]
    assert slopes
    assert all(check.tolerance == MIN_TOLERANCE for check in slopes)


def test_parameters_of_live_outputs_are_found_once(dead, monkeypatch) -> None:
    first = TimelineOracle(TASK, DATA).request.parameters
    monkeypatch.setattr(oracle, "DRAWN_PARAMETERS", 0)  # nothing more is drawn
    again = TimelineOracle(TASK, DATA).request.parameters
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_a_kept_seed_whose_outputs_are_zero_is_replaced(dead) -> None:
    write(dead, {"seed": TASK.seed})
    parameters = TimelineOracle(TASK, DATA).request.parameters
    assert parameters is not None
    assert read(dead)["seed"] != TASK.seed


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_later_processes_compare_live_outputs_of_a_dead_model(dead, monkeypatch, factor) -> None:
    class Spoiled(DeadTimeline):
        def outputs(self):
            return [factor * out for out in super().outputs()]

    for _ in range(2):  # with and without a kept seed
        found = TimelineOracle(TASK, DATA).later_checks({"plain": Spoiled(TASK, DATA)})
        assert {check.of for check in found} >= {"outputs"}
        compared = [check for check in found if check.of == "outputs"]
        assert all(check.passed for check in compared) is (factor == 1.0)
        # That the workload's own parameters give no output is a result, too.
        (dead,) = (check for check in found if check.of == "liveness")
        assert not dead.passed
