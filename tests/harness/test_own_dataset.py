"""Experiments run on a dataset of the user's own, and no claim of a paper rests on that."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from dgbench.harness.claims.evaluate import evaluate
from dgbench.harness.plan import Plan, own_data
from dgbench.harness.store import Row
from dgbench.lab.compare import OWN_DATA
from dgbench.runtime.errors import DataError, MissingDataError, UnsupportedError
from dgbench.systems.base import RunContext
from dgbench.systems.base.registry import get_paper

PAPERS = {name: get_paper(name) for name in ("pipad", "esdg", "dgc", "gnnflow", "tgcn")}
EXPERIMENTS = {f"{n}/{e.name}": e for n, paper in PAPERS.items() for e in paper.experiments}
CHEAP = {
    "pipad/fig10": {"system": "pipad", "model": "tgcn_model"},
    "esdg/smoothing": {},
    "dgc/fig4": {},
    "tgcn/depth": {},
}
"""Experiments of which one cell is run, and params that choose it."""


@pytest.fixture(autouse=True, scope="module")
def _private(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("CACHE", "cache"), ("CARDS", "cards")):
            patch.setenv(f"DGBENCH_{name}", str(folder / value))
        patch.setenv("DGBENCH_DATASET", "")
        patch.delenv("DGBENCH_DATA", raising=False)
        yield


def write_table(file):
    """A dataset of three columns: 60 vertices, 2,000 events."""
    draw = np.random.default_rng(1)
    times = np.sort(draw.integers(0, 10**6, 2000))
    rows = zip(draw.integers(0, 60, 2000), draw.integers(0, 60, 2000), times, strict=True)
    file.write_text("src,dst,t\n" + "".join(f"{s},{d},{t}\n" for s, d, t in rows))
    return file


@pytest.fixture(scope="module")
def data(tmp_path_factory, _private):
    """The dataset, which is read once for all experiments."""
    return own_data.own_data(str(write_table(tmp_path_factory.mktemp("data") / "my.csv")))[0]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_takes_a_dataset_or_says_why_not(name, data):
    experiment = EXPERIMENTS[name]
    planned = experiment.cells("smoke", "cpu")
    if experiment.own_data or not any({"dataset", "graphs"} & c.params.keys() for c in planned):
        with pytest.raises(UnsupportedError):
            own_data.on_dataset(experiment, planned, data)
        return
    cells = own_data.on_dataset(experiment, planned, data)
    assert cells
    for cell in cells:
        assert "my" in (cell.params.get("dataset"), cell.params.get("graphs"))
        assert cell.params[OWN_DATA] == data.content
        assert cell.params.get("scale", 1.0) == 1.0
    assert len({(cell.group, str(sorted(cell.params.items()))) for cell in cells}) == len(cells)


@pytest.mark.parametrize("name", CHEAP)
def test_cells_run_on_the_dataset_and_figures_show_it(name, data):
    experiment = EXPERIMENTS[name]
    cells = own_data.on_dataset(experiment, experiment.cells("smoke", "cpu"), data)
    cell = next(c for c in cells if CHEAP[name].items() <= c.params.items())
    found = experiment.run(cell, RunContext("cpu", "smoke", threads=1, budget_s=0.05))
    assert (found.data["dataset"], bool(found.data["twin"])) == ("my", False)
    row = Row(
        id="a", paper=experiment.paper, experiment=experiment.name, params=cell.params,
        preset="smoke", observed=found.observations, data=found.data, deviation=found.deviation,
    )  # fmt: skip
    points = [point for spec in experiment.figures() for point in spec.points([row])]
    if name != "pipad/fig10":  # its one cell is a check
        assert any("my" in str(value) for point in points for value in point.values())
    experiment.answer([row])


@pytest.mark.parametrize("paper", PAPERS)
def test_no_claim_is_decided_by_rows_on_a_dataset_of_the_users(paper):
    """A row that would decide claims does not, once it is marked as the user's."""
    plugin = PAPERS[paper]
    rows = [
        Row(id=f"{n}", paper=paper, experiment=e.name, group="g",
            params={"dataset": "my", "model": "tgn", "system": paper, OWN_DATA: "0"})
        for n, e in enumerate(plugin.experiments)
    ]  # fmt: skip
    found = evaluate(plugin, rows)
    assert {v.verdict for v in found.verdicts} <= {"not run here", "by definition"}
    assert all("'my'" in v.reason for v in found.verdicts if v.glyph != "=")
    assert not found.warnings


def test_a_plan_keeps_the_dataset_and_refuses_a_changed_file(tmp_path, monkeypatch):
    table = write_table(tmp_path / "mine.csv")
    data, sentences = own_data.own_data(str(table))
    assert any("2,000 events of 60 vertices" in sentence for sentence in sentences)
    plan = Plan.build([PAPERS["pipad"]], ["fig9"], "smoke", "cpu", own_data=data)
    assert not plan.problems
    again = msgspec.convert(msgspec.to_builtins(plan), Plan)  # as a run keeps it
    assert (again.own_data, again.fault) == (data, "")
    monkeypatch.setenv("DGBENCH_DATASET", "")  # another shell
    own_data.restore(again.own_data, "run")
    assert own_data.is_card("mine")
    text = table.read_text()
    table.write_text(text + "1,2,1000000\n")
    with pytest.raises(DataError):
        own_data.restore(again.own_data, "run")
    other, _ = own_data.own_data(str(table))
    twin = Plan.build([PAPERS["pipad"]], ["fig9"], "smoke", "cpu", own_data=other)
    assert {c.hash for c in twin.cells}.isdisjoint(c.hash for c in plan.cells)
    table.unlink()
    with pytest.raises(MissingDataError):
        own_data.restore(again.own_data, "run")
