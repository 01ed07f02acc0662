"""A run settles its data before it starts, keeps it in its plan and says it once."""

import msgspec
from fake_papers import make_paper

from dgbench.datasets.first_use import DatasetSource
from dgbench.harness.plan import Plan
from dgbench.harness.plan.sources import set_sources
from dgbench.systems.base import Cell

SOURCES = [
    DatasetSource(name="covid19-england", source="bundled"),
    DatasetSource(name="flickr", source="twin", reason="no checksum known"),
    DatasetSource(name="hepth", source="twin", reason="no checksum known"),
    DatasetSource(name="pems08", source="missing", reason="cut", hosts=("a.example",)),
]


def plan_of(*params):
    cells = [
        Cell(paper="fake", experiment="runs", params=p, group=str(i)) for i, p in enumerate(params)
    ]
    return Plan.build([make_paper(*cells)], None, "smoke", "cpu")


def test_cells_know_whether_they_run_on_a_twin():
    plan = plan_of(
        {"dataset": "covid19-england"},
        {"dataset": "flickr"},
        {"dataset": "covid19-england", "source": "twin"},
        {"graphs": "covid19-england flickr"},
        {"part": "machine"},
    )
    set_sources(plan, SOURCES)
    assert [cell.data for cell in plan.cells] == ["real", "twin", "twin", "twin", ""]
    assert all(not cell.status for cell in plan.cells)
    again = msgspec.convert(msgspec.to_builtins(plan), Plan)  # as a run keeps it
    assert (again.sources, again.cells) == (SOURCES, plan.cells)


def test_cells_without_data_never_start():
    plan = plan_of(
        {"dataset": "pems08"}, {"dataset": "flickr", "source": "real"}, {"dataset": "flickr"}
    )
    set_sources(plan, SOURCES)
    assert [cell.status for cell in plan.cells] == ["skipped", "skipped", ""]
    assert plan.cells[0].reason == "the real data of 'pems08' is not here: a.example: cut"
    assert [step.index for step in plan.steps] == [2]
