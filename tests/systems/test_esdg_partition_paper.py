"""Table 2, Figure 6, section 6.5 and what partitioning costs: what runs, on data that is tiny."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from esdg_rows import number, row, row_of, seen
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
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
    floats = number(found, "floats")
    assert table2.rounds_to(floats, printed_table2("volume", model)[4])
    assert floats == number(found, "floats", method="formula")
    assert 3 * number(found, "floats", setting="without_rerun") == 2 * floats
    layers = number(found, "exchanges", of="layers")
    assert number(found, "exchanges", phase="forward") == 2 * layers


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
    assert number(found, "vertices", of="steps") == NODES * STEPS
    assert number(found, "edges") == sum(csr.nnz for csr in served.topology)
    for ranks in table2_runs.RANKS:
        per = number(found, "remote_reads", ranks=ranks) / (NODES * STEPS)
        assert table2.remote_parts(found, ranks) == per
        assert table2.billions(found, ranks=ranks) == pytest.approx(18 * per * 192 * 1e-3)
    assert found.data["twin"] is False
    assert found.notes == ["vertices parted by ranges"]


def part_row(remote: float, **params: Any) -> Row:
    twin = params.pop("twin", False)
    found = [
        seen("density", remote * (1 + i / 10), of="remote_reads", ranks=p)
        for i, p in enumerate(table2_runs.RANKS)
    ]
    params = {"part": "parts", "cut": "dense", "model": "tm_gcn", **params}
    return row("table2", params, *found, data={"twin": twin})


def test_what_stands_for_the_papers_graph():
    ask = table2.remote_per_vertex_step
    assert ask([], "tm_gcn", 4) is None
    rows = [part_row(5.0, twin=True, cut="own"), part_row(3.0, cut="own")]
    assert ask(rows, "tm_gcn", 4) == 3.0  # real before twin
    rows += [part_row(2.0, method="ranges"), part_row(1.0, method="pymetis")]
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

    def sent(setting: str, **dims: str) -> int:
        return number(found, "floats", setting=setting, **dims)

    for name in ("snapshot", "vertex", "reuse"):
        assert sent(name) == sent(name, method="formula") > 0
    assert 3 * sent("reuse") == 2 * sent("snapshot")
    assert sent("snapshot", of="reduced") == 2 * (number(found, "parameters") + 1)
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
    raced = row_of(cell, found)
    (point,) = table2.time_points([raced])
    assert point["value"] == number(found, "speedup", setting="snapshot")
    assert len(table2.split_points([raced])) == 4
    assert table2.time_points([replace(raced, status="time")])[0]["failed"].startswith("time")


def test_a_vertex_partition_may_skip_the_first_pass_too(served):
    found = table2_runs.race(workload("evolvegcn_o"), 2, context(), lean=True)
    assert number(found, "speedup", setting=table2_runs.LEAN) > 0
    assert number(found, "floats", setting="snapshot") == 0
    lean, whole = (number(found, "floats", setting=name) for name in (table2_runs.LEAN, "vertex"))
    assert 0 < lean < whole


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
    trained = row_of(cell, experiment.run(cell, context()))
    assert number(trained, "epochs") == 4 == len(fig6.curve(trained, "loss", fig6.PLAIN))
    for name in fig6.PARTITIONS:
        assert max(fig6.gaps(trained, name, fig6.PLAIN, fig6.FLOAT64)) < 1e-12
        assert fig6.gaps(trained, name, fig6.PLAIN)[0] < 1e-5
        assert all(0 <= a <= 1 for a in fig6.curve(trained, "accuracy", name))
    points = fig6.curve_points([trained], "loss")
    assert len(points) == 3 * 4
    assert [p["x"] for p in points if p.get("reference")] == [1, 2, 3, 4]
    assert all(p["seconds"] > 0 for p in points)
    kept = [one for one in trained.observations if one.metric != "epoch_time"]
    older = replace(trained, observed=kept)  # as rows of older runs
    points = fig6.curve_points([older], "accuracy")
    assert points
    assert not any("seconds" in p for p in points)
    assert all(0 < p["y"] < 1e-3 for p in fig6.gap_points([trained]))
    edges = sum(csr.nnz for csr in served.topology[1:])
    assert number(trained, "edges") == edges
    positives, negatives = (number(trained, "pairs", of=of) for of in ("positives", "negatives"))
    assert positives == negatives >= 0.1 * edges
    assert "TM-GCN" in experiment.answer([trained])


def curves_row(plain: list[float], snapshot: list[float], accuracy: list[float]) -> Row:
    named = (
        ("loss", fig6.PLAIN, plain),
        ("loss", "snapshot", snapshot),
        ("accuracy", fig6.PLAIN, accuracy),
    )
    found = [
        seen(metric, value, setting=setting, epoch=epoch)
        for metric, setting, values in named
        for epoch, value in enumerate(values)
    ]
    return row("fig6", {}, *found)


def test_gaps_of_curves_and_where_they_part():
    bent = curves_row([1.0, 2.0, 4.0], [1.0, 2.0 * (1 + 5e-6), 4.1], [0.5, 0.75, 0.5])
    assert fig6.gaps(bent, "snapshot", fig6.PLAIN) == pytest.approx([0, 5e-6, 0.025])
    assert fig6.apart(bent, "snapshot") == 3
    assert fig6.apart(curves_row([1.0], [1.0], [0.5]), "snapshot") is None
    assert fig6.fluctuation(bent) == (1.0, 0.25)
    assert fig6.fluctuation(curves_row([2.0, 1.0, 1.5], [], [0.5, 0.5, 0.5])) == (0.5, 0.0)


# Section 6.5 and preparation.


def test_snapshots_that_exceed_a_rank_are_shared(served):
    experiment = sec65.Sec65()
    rows = [
        row_of(cell, experiment.run(cell, context())) for cell in experiment.cells("smoke", "cpu")
    ]
    split, groups = rows
    assert number(split, "processes", of="group") == 2
    part, budget, largest = (number(split, "memory", of=of) for of in ("part", "budget", "largest"))
    assert part <= budget < largest
    assert split.deviation["output"] < 1e-5
    assert number(split, "relative_error", of="losses", statistic="largest") < 1e-4
    width = sum(map(sum, timeline("tm_gcn").redistributed_dims))
    # With one rank per group nothing but redistributions is sent, of unequal shares here.
    most = 3 * width * number(groups, "vertices", of="steps")
    assert 0 < number(groups, "floats", group_size=1) <= most
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
    rows = [row_of(cell, experiment.run(cell, context())) for cell in cells]
    for prepared in rows:
        parts, vertices = (
            number(prepared, "preparation_time", setting=name) for name in ("parts", "vertices")
        )
        assert preparation.seconds_of(prepared, "snapshots") > 0
        assert 0 <= parts <= vertices
        assert number(prepared, "vertices") == NODES
    assert all(ratio.value > 0 for ratio in preparation.slowdowns(rows, "ranges").values())
    assert set(preparation.slowdowns(rows, "kahypar")) == set()
    assert {p["series"] for p in preparation.points(rows)} >= {"snapshots", "vertices by ranges"}
