"""The main race of each paper: declared as data, and the same ratios as its figures."""

from __future__ import annotations

import pytest

from dgbench.systems.base import get_paper, system_names

PAPERS = ("pipad", "esdg", "dgc", "gnnflow", "tgcn")


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
