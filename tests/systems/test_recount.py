"""Counters of timed steps, counted again from the graphs."""

from __future__ import annotations

import pytest
from tiny_data import serve, tiny_sequence, tiny_workload

from dgbench.lab.experiment import RunContext
from dgbench.runtime.meter import Meter
from dgbench.systems.base import get_system, race
from dgbench.systems.base.recount import AGAINST, recounted

DATA = tiny_sequence(nodes=15, edges=50, snapshots=9)
STEPS = range(1, 4)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch, tmp_path):
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path))
    serve(monkeypatch, DATA)


def edges(times) -> set[tuple[int, int]]:
    """Edges of snapshots, one by one."""
    found = set()
    for t in times:
        csr = DATA.topology[t]
        for row in range(csr.num_rows):
            begin, end = int(csr.indptr[row]), int(csr.indptr[row + 1])
            found |= {(row, int(column)) for column in csr.indices[begin:end]}
    return found


def judged(task, counters, before=None):
    return recounted(task, DATA, counters, before or {}, STEPS, 5, system="mine")


def timed_checks(system: str, task, monkeypatch, share: int = 1):
    count = Meter.count

    def fewer(self, name, amount=1):
        count(self, name, amount // share)

    monkeypatch.setattr(Meter, "count", fewer)
    context = RunContext("cpu", "smoke", 1, meter=Meter(), budget_s=0.01)
    return [one for one in race.timed(system, task, context).checks if one.against == AGAINST]


@pytest.mark.parametrize("model", ["tgcn_model", "evolvegcn", "mpnn_lstm"])
@pytest.mark.parametrize("system", ["reference", "pipad", "pygt", "pygt-g"])
def test_counters_of_own_systems_agree_and_a_hundredth_does_not(monkeypatch, system, model) -> None:
    task = tiny_workload(model=model)
    if get_system(system).unsupported(task, "cpu"):
        pytest.skip("it does not train this")
    (right,) = timed_checks(system, task, monkeypatch)
    assert (right.of, right.passed) == ("counters", True)
    with monkeypatch.context() as patch:
        (wrong,) = timed_checks(system, task, patch, share=100)
    assert not wrong.passed
    assert "recount finds" in wrong.words


def test_edges_are_those_of_the_graphs() -> None:
    task = tiny_workload(model="mpnn_lstm")
    frames = [range(i, i + task.frame) for i in range(4)]
    above = sum(len(edges(times)) for times in frames[1:])
    first = len(edges(range(3 + task.frame))) + len(edges(frames[0]))
    for short, passed in ((0, True), (1, False)):
        (check,) = judged(task, {"edges_aggregated": above - short}, {"edges_aggregated": 10**6})
        assert check.passed is passed
        found = {"edges_aggregated": above}, {"edges_aggregated": first - short}
        (check,) = judged(task, *found)
        assert check.passed is passed


def test_no_more_aggregations_are_reused_than_there_are() -> None:
    task = tiny_workload()
    for count, passed in ((3 * task.frame, True), (3 * task.frame + 1, False)):
        (check,) = judged(task, {"reused_aggregations": count})
        assert check.passed is passed


def test_less_than_nothing_is_named_where_nothing_is_needed() -> None:
    (check,) = judged(tiny_workload(model="tgcn_model"), {"edges_aggregated": -7})
    assert not check.passed
    assert "edges_aggregated: -7," in check.words


def test_what_nobody_counted_is_not_compared() -> None:
    assert judged(tiny_workload(), {"something": 1}) == []
    assert judged("another task", {"edges_aggregated": 1}) == []
