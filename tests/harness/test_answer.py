"""Speedup of a paper's system: outcomes as fields, their words in one place."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import msgspec
import pytest
from passed_checks import PASSED

from dgbench.harness.store import Row
from dgbench.harness.terminal.answer import RunFacts, answers, paper_answer
from dgbench.lab.main_race import MainRace, RaceComparison, observed_ratio, paired_systems
from dgbench.lab.quality import quality
from dgbench.lab.table import observation

CHECKS = {"check": True}
TITLES = {"covid": "England-Covid", "tgcn": "T-GCN model", "mpnn": "MPNN-LSTM"}
HEADLINE = RaceComparison(
    subject="PiPAD",
    rival="PyG-Temporal",
    package="torch-geometric-temporal",
    rival_without="PyG-Temporal (re-implemented)",
    systems=("pipad", "pygt"),
    ratio=paired_systems("pygt", "pipad"),
)
FAIRER = RaceComparison(
    subject="PiPAD",
    rival="PyG-Temporal with reuse",
    systems=("pipad", "pygt-r"),
    ratio=paired_systems("pygt-r", "pipad"),
    fairer=True,
)
RACE = MainRace(verb="trains", comparisons=(HEADLINE, FAIRER), checks=CHECKS, titles=TITLES)
FACTS = RunFacts(cpu="2 CPU cores", packages={"torch-geometric-temporal": "0.56.2"})


def paper_of(race, name="toy"):
    experiment = SimpleNamespace(name="fig1", main_race=race)
    idle = SimpleNamespace(name="table1", main_race=None)
    return SimpleNamespace(name=name, title="PiPAD", experiments=(idle, experiment))


def row(system, dataset, model="tgcn", *, turn=1, time=None, **fields):
    params = {"system": system, "dataset": dataset, "model": model} | fields.pop("params", {})
    given = {
        "data": {"dataset": dataset, "twin": dataset.endswith("-twin")},
        "samples": [time] if time else [],
        "rests_on_cell": True,  # as rows with cells that only compare were kept
    } | fields
    return Row(
        id=f"{system}-{dataset}-{model}-{turn}-{len(params)}",
        paper="toy",
        experiment="fig1",
        params=params,
        group=f"{dataset}/{model}",
        round=turn,
        **given,
    )


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


@pytest.mark.parametrize(("score", "said"), [(0.04, "0.040"), (0.5, "0.100"), (0.6, None)])
def test_what_a_model_has_learned_is_said_beside_its_speed(score, said):
    """Below what trains nothing, worse than the reference, or as good."""

    def read(rows, workload):
        mine, other = (dict.fromkeys(range(5), mean) for mean in (score, 0.6))
        return quality("mrr", mine, other, {"edgebank": {None: 0.36}})

    judged = replace(RACE, comparisons=(replace(HEADLINE, quality=read), FAIRER))
    found = answers([paper_of(judged)], raced("covid", 8.0), FACTS)
    predicts = [sentence for sentence in found if "predicts" in sentence]
    assert len(predicts) == bool(said)
    assert all(said in sentence for sentence in predicts)


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


def test_a_smoke_run_has_no_factor():
    rows = [msgspec.structs.replace(one, preset="smoke") for one in raced("covid", 8.0)]
    assert not any("8." in text for text in answers([paper_of(RACE)], rows, FACTS))


def test_no_side_of_a_race_may_raise():
    def broken(rows, workload):
        raise KeyError("epoch")

    race = MainRace(
        verb="trains", comparisons=(RaceComparison(subject="A", rival="B", ratio=broken),)
    )
    (one,) = outcomes(raced("covid", 8.0), race=race).values()
    assert (one.outcome, one.fault) == ("not counted", "unreadable")


def test_real_data_come_first_and_a_released_rival_has_its_version():
    rows = raced("flickr-twin", 9.0) + raced("covid", 8.0)
    assert [name[0] for name in outcomes(rows)] == ["England-Covid", "flickr-twin"]
    assert [one.twin for one in outcomes(rows).values()] == [False, True]
    paper = paper_of(RACE)
    assert paper_answer(paper, rows, FACTS).races[0].rival == "PyG-Temporal 0.56.2"
    assert paper_answer(paper, rows, RunFacts()).races[0].rival == "PyG-Temporal (re-implemented)"


def test_a_fairer_baseline_is_said_where_it_ran():
    systems = ("pygt", "pygt-r", "pipad")
    rows = raced("covid", 8.0) + raced("pems", 4.0, systems=systems)
    headline, fairer = paper_answer(paper_of(RACE), rows, FACTS).races
    assert (headline.fairer, fairer.fairer) == (False, True)
    assert [one.dataset for one in fairer.workloads] == ["pems"]


def test_gains_of_turns_need_a_check_to_count():
    gain = [observation("speedup", 2.0, low=1.5, high=2.5, setting="tgl")]
    race = MainRace(
        verb="trains",
        dims=("dataset",),
        comparisons=(RaceComparison(subject="A", rival="B", ratio=observed_ratio(setting="tgl")),),
    )
    rows = [row("-", "covid", observed=gain, checks=[PASSED]), row("-", "pems", observed=gain)]
    found = outcomes(rows, race=race)
    assert found["covid",].outcome == "faster"
    assert (found["pems",].outcome, found["pems",].fault) == ("not counted", "not checked")
    assert paper_answer(paper_of(race), rows, FACTS).one_process
    assert not paper_answer(paper_of(RACE), raced("covid", 8.0), FACTS).one_process


@pytest.mark.parametrize(
    ("active", "idle"), [(0.3, True), (19.9, True), (20.1, False), ("no such counter", False)]
)
def test_an_idle_gpu_is_said(active, idle):
    rows = raced("covid", 8.0)
    for one in rows:
        one.device, one.probes = "cuda", {"gpm_sm_active_percent": active}
    said = answers([paper_of(RACE)], rows, RunFacts(cpu="2 CPU cores", gpu="NVIDIA H200"))
    assert "NVIDIA H200" in said[0]
    assert ("idle" in " ".join(said)) == idle
