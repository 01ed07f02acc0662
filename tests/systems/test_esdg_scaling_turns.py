"""One rank and several in turns: both train the same, and phases are of the epochs timed."""

from __future__ import annotations

import pytest

from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.timeline import PlainTimeline
from dgbench.systems.esdg.experiments import random_graphs
from dgbench.systems.esdg.experiments.fig7 import task_of
from dgbench.systems.esdg.experiments.scaling_turns import PHASES, named, take_scaling_turns


@pytest.mark.parametrize("model", ["cd_gcn", "evolvegcn_o"])
def test_both_sides_train_the_plain_timeline(model):
    task, data = task_of(model), random_graphs.random_graphs(30, steps=5)
    found = take_scaling_turns(task, data, 2, least=3, budget_s=1e-3)
    plain = PlainTimeline(task, data)
    wanted = [plain.train_epoch() for _ in range(5)]  # two of them warm up
    for side in ("alone", "together"):
        assert found.losses[side] == pytest.approx(wanted, rel=1e-4)
        assert len(found.seconds[side]) == 3
        assert set(found.shares[side]) == set(PHASES)
        assert found.shares[side]["compute"] > 0
        assert sum(found.shares[side].values()) <= 1
    assert found.shares["alone"]["communicate"] == 0
    assert found.shares["together"]["communicate"] > 0
    moved = found.traffic.total("floats", operation="all_to_all")
    assert (moved == 0) == (model == "evolvegcn_o")


def test_waiting_has_two_names():
    assert named({"compute": 3.0, "exchange": 1.0, "communicate": 0.5}) == {
        "compute": 3.0,
        "communicate": 1.5,
        "update": 0.0,
    }


@pytest.mark.parametrize(("ranks", "least"), [(1, 3), (2, 0)])
def test_turns_out_of_range(ranks, least):
    data = random_graphs.random_graphs(30, steps=5)
    with pytest.raises(InvalidInputError, match="at least 2 and 1"):
        take_scaling_turns(task_of("tm_gcn"), data, ranks, least=least, budget_s=1.0)
