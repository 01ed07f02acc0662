"""Speedup of a paper's system: outcomes as fields, their words in one place."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import pytest
from passed_checks import PASSED

from dgbench.harness.store import Row
from dgbench.harness.terminal.answer import RunFacts, answers, paper_answer
from dgbench.lab.main_race import MainRace, RaceComparison, paired_systems
from dgbench.lab.table import observation

CHECKS = {"check": True}
TITLES = {"covid": "England-Covid", "tgcn": "T-GCN model", "mpnn": "MPNN-LSTM"}
HEADLINE = RaceComparison(
    subject="PiPAD", rival="PyG-Temporal", package="torch-geometric-temporal",
    rival_without="PyG-Temporal (re-implemented)", systems=("pipad", "pygt"),
    ratio=paired_systems("pygt", "pipad"),
)  # fmt: skip
RACE = MainRace(verb="trains", comparisons=(HEADLINE,), checks=CHECKS, titles=TITLES)
FACTS = RunFacts(cpu="2 CPU cores", packages={"torch-geometric-temporal": "0.56.2"})


def paper_of(race, name="toy"):
    experiment = SimpleNamespace(name="fig1", main_race=race)
    idle = SimpleNamespace(name="table1", main_race=None)
    return SimpleNamespace(name=name, title="PiPAD", experiments=(idle, experiment))


def row(system, dataset, model="tgcn", *, turn=1, time=None, **fields):
    params = {"system": system, "dataset": dataset, "model": model} | fields.pop("params", {})
    return Row(
        id=f"{system}-{dataset}-{model}-{turn}-{len(params)}", paper="toy", experiment="fig1",
        params=params, group=f"{dataset}/{model}", round=turn,
        observed=[observation("step_time", time, samples=[time])] if time else [],
        data={"dataset": dataset, "twin": False},
        rests_on_cell=True,  # as rows with cells that only compare were kept
        **fields,
    )  # fmt: skip


def check(system, dataset, model="tgcn", **fields):
    fields = {"deviation": {"loss": 1e-7}, "checks": [PASSED]} | fields
    return row(system, dataset, model, params=CHECKS, **fields)


def raced(dataset, factor, model="tgcn", *, systems=("pygt", "pipad"), spread=0.02):
    """Five rounds of systems on a workload, the first `factor` times as slow as the last."""
    found = [check(system, dataset, model) for system in systems]
    for turn, system in product(range(1, 6), systems):
        # The two sides vary in opposite ways, so that there is an interval.
        up = 1 if (turn % 2 == 0) == (system == "pipad") else -1
        time = (1.0 if system == "pipad" else factor) * (1 + up * spread)
        found.append(row(system, dataset, model, turn=turn, time=time))
    return found


def control(spread):
    """An A/A pair whose two processes came out `spread` apart."""
    first = row("pygt", "noise", time=1.0, params={"what": "aa"}, checks=[PASSED])
    again = row("pygt", "noise", time=1.0 + spread, params={"what": "aa", "control": "aa"})
    return [first, again]


def outcomes(rows, facts=FACTS, race=RACE):
    found = paper_answer(paper_of(race), rows, facts)
    return {(one.dataset, *one.details): one for one in found.races[0].workloads}


@pytest.mark.parametrize(
    ("factor", "expected"), [(8.0, "faster"), (0.5, "slower"), (1.0, "no difference")]
)
def test_the_interval_decides(factor, expected):
    (one,) = outcomes(raced("covid", factor)).values()
    assert (one.outcome, one.twin) == (expected, False)
    assert one.ratio.value == pytest.approx(factor, rel=0.1)


def test_controls_and_single_pairs_decide_nothing():
    class Quiet(MainRace):
        """The race without the workload that the A/A pair trains."""

        def workloads(self, params):
            return [one for one in super().workloads(params) if one["dataset"] != "noise"]

    quiet = Quiet(verb="trains", comparisons=(HEADLINE,), checks=CHECKS, titles=TITLES)
    near = raced("covid", 1.2, spread=0.001)
    for rows, expected in (
        (near, ("faster", False, "")),
        ([*near, *control(0.3)], ("no difference", True, "")),
        ([*raced("covid", 8.0), *control(0.6)], ("not counted", False, "control disturbed")),
        ([r for r in raced("covid", 8.0) if r.round == 1], ("no difference", False, "")),
    ):
        (one,) = outcomes(rows, race=quiet).values()
        assert (one.outcome, bool(one.within_noise), one.fault or "") == expected


@pytest.mark.parametrize(("system", "culprit"), [("pipad", "PiPAD"), ("pygt", "PyG-Temporal")])
def test_failed_and_missing_checks_are_no_win(system, culprit):
    rows = [r for r in raced("covid", 8.0) if r.id != check(system, "covid").id]
    failed = check(system, "covid", status="check", reason="loss differs", deviation={})
    (one,) = outcomes([*rows, failed]).values()
    assert (one.outcome, one.fault, one.culprit) == ("not counted", "check failed", culprit)
    found = outcomes([*rows, *raced("pems", 3.0)])
    assert found["England-Covid", "T-GCN model"].fault == "not checked"
    assert found["pems", "T-GCN model"].outcome == "faster"


def test_what_did_not_run_is_neither_won_nor_lost():
    rows = raced("covid", 8.0)
    rows += [row(s, "big", status="no-gpu", reason="needs a GPU") for s in ("pygt", "pipad")]
    rows += [row("pygt", "wide", status="oom"), row("pipad", "wide", time=1.0)]
    planned = [("toy", "fig1", {"dataset": d, "model": "tgcn"}) for d in ("covid", "pems")]
    found = outcomes(rows, RunFacts(cells=planned, stopped=True))
    by_data = {dataset: one for (dataset, _), one in found.items()}
    assert {name: one.outcome for name, one in by_data.items()} == {
        "England-Covid": "faster", "big": "not run", "wide": "not counted", "pems": "not run",
    }  # fmt: skip
    assert by_data["wide"].culprit == "PyG-Temporal"
    text = " ".join(answers([paper_of(RACE)], rows))
    assert "faster on 1 of 1 workload" in text
    assert "2 of 3 workloads ran" in text
    assert answers([paper_of(RACE)], [], FACTS) == []
    assert answers([paper_of(RACE, name="other")], rows, FACTS) == []
