"""Table 2, Figure 6, section 6.5 and what partitioning costs: what runs, on data that is tiny."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_data import TinyOrigin, TinySequence, csr_of

from dgbench.harness.store.row import Row
from dgbench.runtime.errors import CheckFailed
from dgbench.systems.base import Cell, RunContext
from dgbench.systems.base.timeline import TimelineWorkload
from dgbench.systems.esdg.experiments import fig6, preparation, sec65, table2, table2_runs
from dgbench.systems.esdg.experiments.rank_turns import take_rank_turns
from dgbench.systems.esdg.experiments.settings import table2 as printed_table2
from dgbench.systems.esdg.oracle import TimelineOracle
from dgbench.systems.esdg.vertex_parts import VertexParts
from dgbench.systems.esdg.volumes import timeline

NODES, STEPS = 13, 6
EXPERIMENTS = (table2.Table2(), preparation.Preparation(), fig6.Fig6(), sec65.Sec65())
MODELS = ("tm_gcn", "cd_gcn", "evolvegcn_o")


def tiny(kind: str = "real", seed: int = 3) -> TinySequence:
    draw = torch.Generator().manual_seed(seed)
    topology = [
        csr_of(torch.randint(0, NODES - 1, (25, 2), generator=draw).tolist(), NODES)
        for _ in range(STEPS)
    ]
    features = torch.randn(STEPS, NODES, 2, generator=draw)
    targets = torch.randn(STEPS, NODES, generator=draw)
    return TinySequence(topology, features, targets, NODES, TinyOrigin(kind=kind))


def workload(model: str = "tm_gcn") -> TimelineWorkload:
    return TimelineWorkload(dataset="tiny", model=model, window=2, theta=0.5, lr=0.05)


def context(preset: str = "smoke") -> RunContext:
    return RunContext(device="cpu", preset=preset, threads=1, budget_s=0.01)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> TinySequence:
    """Every experiment loads this data, whatever it asks for."""
    data = tiny()
    for module in (table2_runs, fig6, sec65, preparation):
        monkeypatch.setattr(module, "load_timeline", lambda task: data)
    return data


def as_row(cell: Cell, found: Any, number: int = 0) -> Row:
    return Row(
        id=f"{cell.experiment}-{number}",
        paper="esdg",
        experiment=cell.experiment,
        params=dict(cell.params),
        group=cell.group,
        status="ok",
        preset="smoke",
        device="cpu",
        values=found.values,
        counters=found.counters,
        deviation=found.deviation,
        data=found.data,
        notes=found.notes,
    )


# Cells.


@pytest.mark.parametrize("preset", ["smoke", "quick", "full", "paper"])
@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
def test_cells_are_distinct_and_named(experiment, preset):
    cells = experiment.cells(preset, "cpu")
    keys = {tuple(sorted((k, repr(v)) for k, v in cell.params.items())) for cell in cells}
    assert cells
    assert len(keys) == len(cells)
    assert all((c.paper, c.experiment) == ("esdg", experiment.name) for c in cells)
    assert experiment.answer([]) == ""
    assert all(figure.points([]) == [] for figure in experiment.figures())


def test_partitioners_that_are_not_installed_say_so(monkeypatch):
    monkeypatch.setattr(table2_runs.importlib.util, "find_spec", lambda name: None)
    cells = [*table2.Table2().cells("full", "cpu"), *preparation.Preparation().cells("full", "cpu")]
    lacking = {c.params["method"]: c.unavailable for c in cells if c.params.get("method")}
    assert lacking["ranges"] == ""
    assert "pip install" in lacking["pymetis"]
    assert "pip install" in lacking["kahypar"]
    assert table2_runs.methods("quick") == ["ranges"]


# Volumes.


@pytest.mark.parametrize("model", ["tm_gcn", "cd_gcn"])
def test_a_walk_gives_the_printed_volume_and_a_third_less_without_the_rerun(model):
    found = table2_runs.walk(model, 4)
    assert table2.rounds_to(found.counters["floats"], printed_table2("volume", model)[4])
    assert found.counters["floats"] == found.counters["formula"]
    assert 3 * found.counters["floats_without_rerun"] == 2 * found.counters["floats"]
    assert found.counters["exchanges_forward"] == 2 * found.counters["layers"]


def test_rounding_to_a_printed_number():
    assert table2.rounds_to(5_184_000_000, 5.2)
    assert not table2.rounds_to(5_120_000_000, 5.2)
    assert not table2.rounds_to(5_260_000_000, 5.2)


@settings(max_examples=25, deadline=None)
@given(
    edges=st.lists(
        st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12),
        min_size=1,
        max_size=4,
    ),
    ranks=st.sampled_from([2, 3]),
)
def test_remote_readers_are_lambda_vertex_by_vertex(edges, ranks):
    steps = [csr_of(pairs, 7) for pairs in edges]
    owner = [v * ranks // 7 for v in range(7)]
    want = 0
    for pairs in edges:
        for v in range(7):
            readers = {owner[d] for s, d in pairs if s == v and d != s}
            want += len(readers - {owner[v]})
    parts = VertexParts(torch.tensor(owner), ranks)
    assert table2_runs.remote_reads(steps, parts) == want


def test_parts_are_scaled_to_the_papers_size(served):
    found = table2_runs.part(workload(), "ranges")
    counters, values = found.counters, found.values
    assert counters["vertex_steps"] == NODES * STEPS
    assert counters["edges"] == sum(csr.nnz for csr in served.topology)
    for ranks in table2_runs.RANKS:
        per = counters[f"remote_{ranks}"] / (NODES * STEPS)
        assert values[f"remote_{ranks}"] == per
        assert values[f"billions_{ranks}"] == pytest.approx(18 * per * 192 * 1e-3)
    assert found.data["twin"] is False
    assert found.notes == ["vertices parted by ranges"]


def part_row(number: int, remote: float, **params: Any) -> Row:
    twin = params.pop("twin", False)
    values = {f"remote_{p}": remote * (1 + i / 10) for i, p in enumerate(table2_runs.RANKS)}
    params = {"part": "parts", "cut": "dense", "model": "tm_gcn", **params}
    return Row(
        id=f"parts-{number}",
        paper="esdg",
        experiment="table2",
        params=params,
        status="ok",
        values=values,
        data={"twin": twin},
    )


def test_what_stands_for_the_papers_graph():
    ask = table2.remote_per_vertex_step
    assert ask([], "tm_gcn", 4) is None
    rows = [part_row(0, 5.0, twin=True, cut="own"), part_row(1, 3.0, cut="own")]
    assert ask(rows, "tm_gcn", 4) == 3.0  # real before twin
    rows += [part_row(2, 2.0, method="ranges"), part_row(3, 1.0, method="pymetis")]
    assert ask(rows, "tm_gcn", 4) == 1.0  # as dense as the paper's, and the better partitioner
    assert ask(rows, "evolvegcn_o", 64) == pytest.approx(1.2)
    assert ask(rows, "cd_gcn", 4) is None
    assert ask(rows, "tm_gcn", 5) is None


# Races.


@pytest.mark.parametrize("model", MODELS)
def test_contenders_take_turns_on_the_same_ranks(model):
    task, data = workload(model), tiny()
    contenders = {
        "snapshot": {"partition": "snapshot"},
        "vertex": {"partition": "vertex", "parts": VertexParts(torch.arange(NODES) % 2, 2)},
    }
    oracle = TimelineOracle(task, data)
    found = take_rank_turns(
        task, data, 2, contenders, least=3, budget_s=0.01, timeout_s=240, request=oracle.request
    )
    assert all(check.passed for check in found.checks(oracle))
    for name in contenders:
        assert len(found.seconds[name]) >= 3
        assert all(s > 0 for s in found.seconds[name])
        assert len(found.losses[name]) == len(found.seconds[name]) + 2
        assert set(found.phases[name]) == {"compute", "communicate"}
        assert found.traffic[name].total("floats") > 0
    assert found.losses["vertex"] == pytest.approx(found.losses["snapshot"], rel=1e-4)


def test_a_race_counts_what_formulas_say(served):
    found = table2_runs.race(
        workload("cd_gcn"), 2, context(), {"reuse": {"reuse": True}}, transport="gloo"
    )
    assert found.notes[-1] == "2 processes over Gloo"
    counters = found.counters
    for name in ("snapshot", "vertex", "reuse"):
        assert counters[f"sent_{name}"] == counters[f"formula_{name}"] > 0
    assert 3 * counters["sent_reuse"] == 2 * counters["sent_snapshot"]
    assert counters["reduced_snapshot"] == 2 * (counters["parameters"] + 1)
    assert found.deviation["output"] < 1e-5
    cell = Cell(
        paper="esdg",
        experiment="table2",
        params={
            "part": "time",
            "dataset": table2_runs.SAMPLES[0],
            "cut": "dense",
            "model": "cd_gcn",
            "ranks": 2,
            "transport": "gloo",
        },
        group="g",
    )
    row = as_row(cell, found)
    (point,) = table2.time_points([row])
    assert point["value"] == found.values["gain snapshot"]
    assert len(table2.split_points([row])) == 4
    bad = Row(**{**{f: getattr(row, f) for f in row.__struct_fields__}, "status": "time"})
    assert table2.time_points([bad])[0]["failed"].startswith("time")


def test_a_vertex_partition_may_skip_the_first_pass_too(served):
    found = table2_runs.race(workload("evolvegcn_o"), 2, context(), lean=True)
    assert found.values["gain vertex lean"] > 0
    assert found.counters["sent_snapshot"] == 0
    assert 0 < found.counters[f"sent_{table2_runs.LEAN}"] < found.counters["sent_vertex"]


def test_a_race_that_computes_something_else_fails(served, monkeypatch):
    real = table2_runs.take_rank_turns

    def spoilt(*args: Any, **fields: Any) -> Any:
        found = real(*args, **fields)
        found.after["vertex"].gradients["conv_1.weight"] *= 1.05
        return found

    monkeypatch.setattr(table2_runs, "take_rank_turns", spoilt)
    (wrong,) = (c for c in table2_runs.race(workload(), 2, context()).checks if not c.passed)
    assert wrong.of == "gradients"
    assert wrong.part == "vertex, after training, conv_1.weight"


# Figure 6.


def test_both_partitions_follow_the_sequential_run(served):
    experiment = fig6.Fig6()
    (cell,) = experiment.cells("smoke", "cpu")
    row = as_row(cell, experiment.run(cell, context()))
    assert row.counters["epochs"] == 4 == len(fig6.curve(row, "loss plain"))
    for name in fig6.PARTITIONS:
        assert max(fig6.gaps(row, name, "plain", "loss64")) < 1e-12
        assert fig6.gaps(row, name, "plain")[0] < 1e-5
        assert all(0 <= a <= 1 for a in fig6.curve(row, f"accuracy {name}"))
    points = fig6.curve_points([row], "loss")
    assert len(points) == 3 * 4
    assert [p["x"] for p in points if p.get("reference")] == [1, 2, 3, 4]
    assert all(p["seconds"] > 0 for p in points)
    kept = {k: v for k, v in row.values.items() if not k.startswith("seconds")}
    row.values.clear()
    row.values.update(kept)  # as rows of older runs
    assert not any("seconds" in p for p in fig6.curve_points([row], "accuracy"))
    assert all(0 < p["y"] < 1e-3 for p in fig6.gap_points([row]))
    edges = sum(csr.nnz for csr in served.topology[1:])
    assert row.counters["edges"] == edges
    assert row.counters["positives"] == row.counters["negatives"] >= 0.1 * edges
    assert "TM-GCN" in experiment.answer([row])


def curves_row(plain: list[float], snapshot: list[float], accuracy: list[float]) -> Row:
    named = {"loss plain": plain, "loss snapshot": snapshot, "accuracy plain": accuracy}
    values = {f"{name} {i}": v for name, vs in named.items() for i, v in enumerate(vs)}
    return Row(id="x", experiment="fig6", values=values)


def test_gaps_of_curves_and_where_they_part():
    row = curves_row([1.0, 2.0, 4.0], [1.0, 2.0 * (1 + 5e-6), 4.1], [0.5, 0.75, 0.5])
    assert fig6.gaps(row, "snapshot", "plain") == pytest.approx([0, 5e-6, 0.025])
    assert fig6.apart(row, "snapshot") == 3
    assert fig6.apart(curves_row([1.0], [1.0], [0.5]), "snapshot") is None
    assert fig6.fluctuation(row) == (1.0, 0.25)
    assert fig6.fluctuation(curves_row([2.0, 1.0, 1.5], [], [0.5, 0.5, 0.5])) == (0.5, 0.0)


# Section 6.5 and preparation.


def test_snapshots_that_exceed_a_rank_are_shared(served):
    experiment = sec65.Sec65()
    rows = []
    for number, cell in enumerate(experiment.cells("smoke", "cpu")):
        rows.append(as_row(cell, experiment.run(cell, context()), number))
    split, groups = rows
    assert split.counters["group"] == 2
    assert split.counters["part_bytes"] <= split.counters["budget_bytes"]
    assert split.counters["budget_bytes"] < split.counters["largest_bytes"]
    assert split.deviation["output"] < 1e-5
    assert split.values["largest_loss_gap"] < 1e-4
    width = sum(map(sum, timeline("tm_gcn").redistributed_dims))
    # With one rank per group nothing but redistributions is sent, of unequal shares here.
    assert 0 < groups.counters["floats_1"] <= 3 * width * groups.counters["vertex_steps"]
    assert len(sec65.volume_points(rows)) == len(sec65.time_points(rows)) == 3
    assert "one process" in experiment.answer(rows)


def test_a_budget_that_holds_everything_needs_no_split(served, monkeypatch):
    monkeypatch.setattr(sec65, "BUDGET_SHARE", 1.0)
    cell = sec65.Sec65().cells("smoke", "cpu")[0]
    with pytest.raises(CheckFailed, match="nothing has to be split"):
        sec65.Sec65().run(cell, context())


def test_preparation_times_both(served):
    experiment = preparation.Preparation()
    cells = [c for c in experiment.cells("smoke", "cpu") if not c.unavailable]
    rows = [as_row(c, experiment.run(c, context()), i) for i, c in enumerate(cells)]
    for row in rows:
        assert row.values["snapshots_s"] > 0
        assert 0 <= row.values["parts_s"] <= row.values["vertices_s"]
        assert row.counters["vertices"] == NODES
    assert preparation.slowdown(rows, "ranges").value > 0
    assert preparation.slowdown(rows, "kahypar") is None
    assert {p["series"] for p in preparation.points(rows)} >= {"snapshots", "vertices by ranges"}
