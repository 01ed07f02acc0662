"""Speedup of a paper's system: outcomes as fields, their words in one place."""

from __future__ import annotations

from dataclasses import replace
from html import unescape
from itertools import product
from types import SimpleNamespace

import fake_run
import msgspec
import pytest
from passed_checks import PASSED

from dgbench.harness.report.build import build_report
from dgbench.harness.store import Row, Store
from dgbench.harness.terminal.answer import RunFacts, answers, paper_answer
from dgbench.harness.terminal.answer_words import MAX_LENGTH, MAX_SENTENCES, answer_text
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
    assert one.outcome == expected
    assert one.ratio.value == pytest.approx(factor, rel=0.1)
    assert not one.twin


@pytest.mark.parametrize(
    ("score", "said"),
    [
        (0.04, ("below the dictionary", "0.040 against 0.360 of EdgeBank")),
        (0.5, ("worse than the reference", "by 0.100 [0.100, 0.100]")),
        (0.6, None),
    ],
)
def test_what_a_model_has_learned_is_said_beside_its_speed(score, said):
    def read(rows, workload):
        mine, other = (dict.fromkeys(range(5), mean) for mean in (score, 0.6))
        return quality("mrr", mine, other, {"edgebank": {None: 0.36}})

    judged = replace(RACE, comparisons=(replace(HEADLINE, quality=read), FAIRER))
    found = answers([paper_of(judged)], raced("covid", 8.0), FACTS)
    assert any("faster" in sentence for sentence in found)
    quality_said = [sentence for sentence in found if "predicts" in sentence]
    assert len(quality_said) == bool(said)
    assert all(words in quality_said[0] for words in said or ())


def test_inside_the_noise_floor_nothing_is_faster():
    rows = raced("covid", 1.2, spread=0.001)
    assert outcomes(rows)["England-Covid", "T-GCN model"].outcome == "faster"
    (floor,) = outcomes([*rows, *control(0.3)], race=race_without_noise()).values()
    assert (floor.outcome, floor.within_noise) == ("no difference", True)


def test_beside_a_disturbed_control_nothing_is_judged():
    (one,) = outcomes([*raced("covid", 8.0), *control(0.6)], race=race_without_noise()).values()
    assert (one.outcome, one.fault) == ("not counted", "control disturbed")


def race_without_noise():
    """The race, without the workload that the A/A pair trains."""

    class Quiet(MainRace):
        def workloads(self, params):
            return [one for one in super().workloads(params) if one["dataset"] != "noise"]

    return Quiet(verb="trains", comparisons=(HEADLINE,), checks=CHECKS, titles=TITLES)


def test_a_single_pair_decides_nothing():
    rows = [r for r in raced("covid", 8.0) if r.round == 1]
    assert outcomes(rows)["England-Covid", "T-GCN model"].outcome == "no difference"


@pytest.mark.parametrize(("system", "culprit"), [("pipad", "PiPAD"), ("pygt", "PyG-Temporal")])
def test_a_failed_check_is_no_win(system, culprit):
    rows = [r for r in raced("covid", 8.0) if r.id != check(system, "covid").id]
    rows.append(check(system, "covid", status="check", reason="loss differs", deviation={}))
    (one,) = outcomes(rows).values()
    assert (one.outcome, one.fault, one.culprit) == ("not counted", "check failed", culprit)
    assert any(f"{culprit} failed its check" in text for text in answers([paper_of(RACE)], rows))


def test_a_missing_check_is_no_win():
    rows = raced("covid", 8.0) + raced("pems", 3.0)
    rows = [r for r in rows if r.id != check("pipad", "pems").id]
    found = outcomes(rows)
    assert found["England-Covid", "T-GCN model"].outcome == "faster"
    assert found["pems", "T-GCN model"].fault == "not checked"
    text = " ".join(answers([paper_of(RACE)], rows))
    assert "Not counted" in text
    assert "of 2 workloads" not in text


def test_deviations_stand_beside_the_factors():
    near = msgspec.structs.replace(PASSED, gap=3e-6)
    rows = [r for r in raced("covid", 8.0) if r.id != check("pygt", "covid").id]
    rows.append(check("pygt", "covid", checks=[near]))
    (one,) = outcomes(rows).values()
    assert one.deviations == (PASSED.gap, near.gap)
    (text,) = [t for t in answers([paper_of(RACE)], rows) if "of float64" in t]
    assert "1e-07" in text
    assert "3e-06" in text


def test_models_are_judged_by_whole_trainings_of_other_runs():
    scores = {seed: 0.2 + seed / 1e6 for seed in range(5)}
    above = {"edgebank": dict.fromkeys(range(5), 0.5)}

    def scored(rows, workload):
        known = any(one.preset == "quality" for one in rows)
        return quality("mrr", scores, None, above) if known else None

    race = replace(RACE, comparisons=(replace(RACE.comparisons[0], quality=scored),))
    rows = raced("covid", 8.0)
    kept = [msgspec.structs.replace(rows[0], experiment="quality", preset="quality")]
    said = [" ".join(answers([paper_of(race)], rows, FACTS, given)) for given in ((), kept)]
    assert ["trained whole in another run" in text for text in said] == [False, True]


def test_what_did_not_run_is_neither_won_nor_lost():
    rows = raced("covid", 8.0)
    rows += [row(s, "big", status="no-gpu", reason="needs a GPU") for s in ("pygt", "pipad")]
    rows += [row("pygt", "wide", status="oom"), row("pipad", "wide", time=1.0)]
    found = outcomes(rows)
    assert found["big", "T-GCN model"].outcome == "not run"
    assert found["wide", "T-GCN model"].outcome == "not counted"
    assert found["wide", "T-GCN model"].culprit == "PyG-Temporal"
    text = " ".join(answers([paper_of(RACE)], rows))
    assert "faster on 1 of 1 workload" in text
    assert "2 of 3 workloads ran" in text
    assert "PyG-Temporal ran out of memory on wide (T-GCN model)" in text


def test_cells_of_the_plan_that_never_ran_are_missing():
    planned = [("toy", "fig1", {"dataset": d, "model": "tgcn"}) for d in ("covid", "pems")]
    facts = RunFacts(cells=planned, stopped=True)
    found = outcomes(raced("covid", 8.0), facts)
    assert found["pems", "T-GCN model"].outcome == "not run"
    said = answers([paper_of(RACE)], raced("covid", 8.0), facts)
    assert "stopped early" in said[-1]
    assert "1 of 2 workloads ran" in " ".join(said)


def test_nothing_ran_is_said_and_no_race_says_nothing():
    rows = [row(s, "covid", status="no-gpu", reason="needs a GPU") for s in ("pygt", "pipad")]
    (said,) = answers([paper_of(RACE)], rows, FACTS)
    assert "PiPAD" in said
    assert "needs a GPU" in said
    assert answers([paper_of(RACE)], [], FACTS) == []
    assert answers([paper_of(RACE, name="other")], raced("covid", 8.0), FACTS) == []


def test_no_side_of_a_race_may_raise():
    def broken(rows, workload):
        raise KeyError("epoch")

    race = MainRace(
        verb="trains", comparisons=(RaceComparison(subject="A", rival="B", ratio=broken),)
    )
    (one,) = outcomes(raced("covid", 8.0), race=race).values()
    assert (one.outcome, one.fault) == ("not counted", "unreadable")
    assert "KeyError" in answers([paper_of(race)], raced("covid", 8.0))[0]


def test_real_data_come_first_and_twins_are_marked():
    rows = raced("flickr-twin", 9.0) + raced("covid", 8.0)
    names = list(outcomes(rows))
    assert [name[0] for name in names] == ["England-Covid", "flickr-twin"]
    (said, *_) = answers([paper_of(RACE)], rows)
    assert said.index("England-Covid") < said.index("flickr-twin (twin, T-GCN model)")


def test_a_released_baseline_has_its_version_and_another_says_what_it_is():
    rows = raced("covid", 8.0)
    paper = paper_of(RACE)
    assert paper_answer(paper, rows, FACTS).races[0].rival == "PyG-Temporal 0.56.2"
    assert paper_answer(paper, rows, RunFacts()).races[0].rival == "PyG-Temporal (re-implemented)"


def test_a_fairer_baseline_is_said_where_it_ran():
    systems = ("pygt", "pygt-r", "pipad")
    rows = raced("covid", 8.0) + raced("pems", 4.0, systems=systems)
    found = paper_answer(paper_of(RACE), rows, FACTS)
    headline, fairer = found.races
    assert (headline.fairer, fairer.fairer) == (False, True)
    assert [one.dataset for one in fairer.workloads] == ["pems"]
    assert answers([paper_of(RACE)], rows)[1].startswith("Against PyG-Temporal with reuse, ")


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


def test_a_cell_of_several_models_is_several_workloads():
    params = {"dataset": "covid", "models": "tgcn mpnn", "ranks": 4, "part": "race"}
    race = MainRace(
        verb="trains",
        comparisons=(),
        dims=("dataset", "model", "ranks"),
        where={"part": ("race", "again")},
    )
    assert [one["model"] for one in race.workloads(params)] == ["tgcn", "mpnn"]
    assert race.workloads({**params, "part": "projected"}) == []
    assert race.workloads({"part": "race", "dataset": "covid"}) == []


@pytest.mark.parametrize(("active", "idle"), [(0.3, True), (19.9, True), (20.1, False)])
def test_an_idle_gpu_is_said(active, idle):
    rows = raced("covid", 8.0)
    for one in rows:
        one.device, one.probes = "cuda", {"gpm_sm_active_percent": active}
    said = answers([paper_of(RACE)], rows, RunFacts(cpu="2 CPU cores", gpu="NVIDIA H200"))
    assert said[0].startswith("On NVIDIA H200, ")
    assert ("idle" in " ".join(said)) == idle
    for one in rows:
        one.probes = {"gpm_sm_active_percent": "this GPU has no such counter"}
    assert "idle" not in " ".join(answers([paper_of(RACE)], rows))


def test_a_smoke_run_has_no_factor():
    rows = raced("covid", 8.0)
    for one in rows:
        one.preset = "smoke"
    (said,) = answers([paper_of(RACE)], rows, FACTS)
    assert "8." not in said


def test_sentences_are_few_short_and_wrapped():
    rows = []
    for number, (dataset, model) in enumerate(product("abcdefghij", ("tgcn", "mpnn"))):
        long = f"a-dataset-with-quite-a-long-name-{dataset}"
        rows += raced(long, (8.0, 0.5, 1.0)[number % 3], model)
    said = answers([paper_of(RACE)], rows, FACTS)
    assert 0 < len(said) <= MAX_SENTENCES
    assert all(len(text) <= MAX_LENGTH for text in said)
    for width in (40, 80):
        assert all(len(line) <= width for line in answer_text(said, width).splitlines())


def test_the_report_begins_with_the_same_sentences(tmp_path):
    folder = fake_run.make_run(tmp_path)
    paper = fake_run.light_paper(tmp_path)
    store = Store.open(folder)
    said = answers([paper], store.rows(), RunFacts.of(store))
    assert "Toy" in said[0]
    build_report(folder, [paper])
    markdown = (folder / "report.md").read_text("utf-8")
    page = unescape((folder / "report.html").read_text("utf-8"))
    for text in said:
        assert f"- {text}" in markdown
        assert text in page
    assert markdown.index("What was found") < markdown.index("Noise floor")


SNAPSHOT = [
    "On 2 CPU cores, PiPAD trains 8.1x [7.6, 8.5] faster than PyG-Temporal 0.56.2 on England-Covid "
    "(T-GCN model), 1.98x [1.88, 2.10] slower on England-Covid (MPNN-LSTM) and shows no clear "
    "difference on flickr-twin (twin, T-GCN model) (1.01x [0.95, 1.06]).",
    "In all: faster on 1 of 3 workloads, slower on 1, no clear difference on 1.",
    "Against PyG-Temporal with reuse, PiPAD trains 8.1x [7.6, 8.5] faster on England-Covid (T-GCN "
    "model).",
    "Outputs, gradients and losses are within 1e-07 (PiPAD) and 1e-07 (PyG-Temporal 0.56.2) of "
    "float64.",
]
"""The wording, in one place."""


def test_the_wording():
    rows = raced("covid", 8.0, systems=("pygt", "pygt-r", "pipad"))
    rows += raced("covid", 0.5, "mpnn") + raced("flickr-twin", 1.0)
    assert answers([paper_of(RACE)], rows, FACTS) == SNAPSHOT
