"""A run settles its data before it starts, keeps it in its plan and says it once."""

import msgspec
import pytest
from fake_papers import make_paper
from typer.testing import CliRunner

from dgbench.datasets import first_use
from dgbench.datasets.first_use import DatasetSource
from dgbench.harness.cli import app, running
from dgbench.harness.plan import Plan
from dgbench.harness.plan.sources import dataset_names, set_sources, settled
from dgbench.harness.terminal.downloads import DownloadBar, sources_text
from dgbench.lab.arena import IN_PLACE_OF
from dgbench.systems.base import Cell
from dgbench.systems.base.registry import get_paper

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


def test_datasets_are_found_in_parameters_by_name_or_alias():
    plan = plan_of(
        {"dataset": "England-Covid"},
        {"graphs": "email-eu-core wikipedia"},
        {"dataset": "made on the way", "n": 3},
        {"dataset": "covid19-england", "system": "flickr"},
        {"dataset": 7},
    )
    assert dataset_names(plan) == ["covid19-england", "email-eu-core", "wikipedia"]


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


def test_a_plan_is_built_again_only_where_files_came():
    built = []

    def build():
        built.append(1)
        return plan_of({"dataset": "flickr"})

    settled(build, lambda names: [DatasetSource(name=n, source="twin") for n in names])
    assert len(built) == 1
    plan = settled(build, lambda names: [DatasetSource(name=n, source="fetched") for n in names])
    assert len(built) == 3
    assert plan.cells[0].data == "real"


def test_what_shares_a_cause_is_said_together():
    late = [
        DatasetSource(name=n, source="twin", reason="no route", hosts=(h,))
        for n, h in (("a", "one.example"), ("b", "two.example"), ("c", "one.example"))
    ]
    text = sources_text([*SOURCES, *late])
    assert all(len(line) <= 80 for line in text.splitlines())
    plain = " ".join(text.split())
    assert "real data: covid19-england (bundled)" in plain
    assert "flickr, hepth (no checksum known)" in plain
    assert "a, b, c (one.example, two.example: no route)" in plain
    assert "missing: pems08 (a.example: cut)" in plain
    assert sources_text([]) == ""


def test_fig10_of_pipad_is_real_where_dgbench_carries_the_data(monkeypatch):
    monkeypatch.delenv("DGBENCH_DATA", raising=False)
    options = running.Options("quick", "cpu", None, "", None, None, 0, offline=True)
    plan = running._new_plan([get_paper("pipad")], ["fig10"], options)
    by_data = {}
    for cell in plan.runnable:
        by_data.setdefault(cell.data, set()).add(cell.cell.params["dataset"])
    assert by_data == {"real": {"covid19-england"}, "twin": {"flickr"}}
    lost = {c.cell.params["dataset"] for c in plan.cells if "is not here" in c.reason}
    assert lost == {"pems08"}


def offline_plan(monkeypatch, paper, **options):
    monkeypatch.delenv("DGBENCH_DATA", raising=False)
    plain = running.Options("quick", "cpu", None, "", None, None, 0, offline=True, **options)
    return running._new_plan([get_paper(paper)], [], plain)


@pytest.mark.parametrize("paper", ["pipad", "esdg", "dgc", "gnnflow", "tgcn"])
def test_every_paper_has_real_data_without_a_network(monkeypatch, paper):
    plan = offline_plan(monkeypatch, paper)
    assert any(cell.data == "real" for cell in plan.runnable)


def test_every_race_of_the_arena_has_real_data_without_a_network(monkeypatch):
    plan = offline_plan(monkeypatch, "arena")
    assert {cell.cell.experiment for cell in plan.runnable} == {
        one.name for one in get_paper("arena").experiments
    }
    assert {cell.data for cell in plan.runnable if "dataset" in cell.cell.params} == {"real"}
    assert not plan.fault
    assert plan.problems  # says what stands in for what
    moved = {str(c.cell.params["dataset"]) for c in plan.cells if IN_PLACE_OF in c.cell.params}
    assert moved == {"montevideo-bus", "flights-2001-01"}


def test_a_dataset_that_is_asked_for_has_no_stand_in(monkeypatch):
    keep = {"keep": lambda params: params.get("dataset") == "enron", "stand_ins": False}
    plan = offline_plan(monkeypatch, "arena", **keep)
    assert [cell.data for cell in plan.runnable] == ["twin"]


@pytest.mark.parametrize("command", [["run", "pipad/fig10"], ["reproduce", "pipad"]])
def test_offline_reaches_the_download(monkeypatch, command, tmp_path):
    asked = []

    class Settled(Exception):
        pass

    def settle(names, *, fetching, progress):
        asked.append(fetching)
        raise Settled

    monkeypatch.setattr(first_use, "settle_sources", settle)
    for flags in ([], ["--offline"]):
        found = CliRunner().invoke(
            app, [*command, "--device", "cpu", "--out", str(tmp_path), *flags]
        )
        assert isinstance(found.exception, Settled)
    assert asked == [True, False]
    assert not any(tmp_path.iterdir())  # no run was begun


def test_a_download_is_one_line_a_file_where_nobody_watches(capsys):
    bar = DownloadBar()
    for done in (10, 20, 46):
        bar.update("tiny/tiny.csv.gz", done, 46)
    bar.update("tiny/more.csv.gz", 5, None)
    bar.close()
    said = ["fetching tiny/tiny.csv.gz (46 bytes)", "fetching tiny/more.csv.gz"]
    assert capsys.readouterr().err.splitlines() == said
