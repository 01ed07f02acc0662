"""The main race of each paper: declared as data, and the same ratios as its figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dgbench.harness.store import Store
from dgbench.harness.store.row import Row
from dgbench.harness.terminal.answer import RunFacts, answers, paper_answer
from dgbench.harness.terminal.answer_words import MAX_LENGTH, MAX_SENTENCES
from dgbench.systems.base import get_paper, system_names
from dgbench.systems.dgc.experiments.race_runs import DGC
from dgbench.systems.pipad.ladders import PUBLISHED as AS_PUBLISHED

PAPERS = ("pipad", "esdg", "dgc", "gnnflow", "tgcn")
KEPT = Path(__file__).parents[2] / "results" / "reference" / "amd-epyc-2-cores"


def races_of(paper):
    return [e for e in paper.experiments if e.main_race is not None]


@pytest.mark.parametrize("name", PAPERS)
def test_every_paper_races_a_headline_and_a_fairer_baseline(name):
    races = [e.main_race for e in races_of(get_paper(name))]
    comparisons = [one for race in races for one in race.comparisons]
    assert any(not one.fairer for one in comparisons)
    assert any(one.fairer for one in comparisons)
    known = set(system_names())
    raced = {
        name for one in comparisons for name in one.systems or ()
    }  # or a stage: "pipad, all off"
    assert {name.partition(",")[0] for name in raced} <= known
    # A release is named with its version, and with what it is where it is not installed.
    assert all(bool(one.package) == bool(one.rival_without) for one in comparisons)


@pytest.mark.parametrize("preset", ["smoke", "quick", "full"])
@pytest.mark.parametrize("name", PAPERS)
def test_cells_of_every_preset_are_workloads_of_the_race(name, preset):
    headlines = [
        e for e in races_of(get_paper(name)) if any(not c.fairer for c in e.main_race.comparisons)
    ]
    for experiment in headlines:
        race = experiment.main_race
        found = [w for c in experiment.cells(preset, "cpu") for w in race.workloads(c.params)]
        assert found
        assert all(list(one) == list(race.dims) for one in found)


PUBLISHED = {"pipad": AS_PUBLISHED, "dgc": DGC}
"""Name in rows of the published form, where rows from before it had another one alone."""


def measured(name: str, rows: Sequence[Row]) -> bool:
    """Return True if rows have the published form of a paper's system."""
    names = {
        value
        for row in rows
        for value in (row.params.get("system"), *(one.dims.get("setting") for one in row.observed))
    }
    return name not in PUBLISHED or PUBLISHED[name] in names


@pytest.mark.parametrize("name", PAPERS)
def test_kept_rows_give_the_ratios_of_the_figures(name):
    store = Store.open(KEPT / name)
    rows, paper = store.rows(), get_paper(name)
    found = paper_answer(paper, rows, RunFacts.of(store))
    drawn = {
        (point["value"], point["low"], point["high"])
        for experiment in races_of(paper)
        for spec in experiment.figures()
        if spec.kind == "speedup"
        for point in spec.points([r for r in rows if r.paper == name])
        if "low" in point
    }
    whole = [race for race in found.races if not race.fairer and "alone" not in race.verb]
    ratios = [one.ratio for race in whole for one in race.workloads if one.ratio is not None]
    assert ratios or not measured(name, store.rows())
    assert {(r.value, r.low, r.high) for r in ratios} <= drawn


@pytest.mark.parametrize("name", PAPERS)
def test_kept_rows_are_said_in_few_short_sentences(name):
    store = Store.open(KEPT / name)
    said = answers([get_paper(name)], store.rows(), RunFacts.of(store))
    if not measured(name, store.rows()):
        assert said[0].startswith("There is")
        return
    assert said[0].startswith("On 2 CPU cores, ")
    assert len(said) <= MAX_SENTENCES
    assert all(len(text) <= MAX_LENGTH for text in said)
    assert any("gainst " in text for text in said)
