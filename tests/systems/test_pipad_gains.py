"""The tuner's table of gains, the groups it is measured on, and the command that measures."""

from __future__ import annotations

import json
import math
from contextlib import closing
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_data import serve, tiny_sequence, tiny_workload

from dgbench.harness.cli import main
from dgbench.kernels_cuda import build_info
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.steps import FrameProduct
from dgbench.runtime.errors import InvalidInputError, StoreError
from dgbench.systems.base.calibration import calibration_path, machine_of
from dgbench.systems.pipad import gains as gains_module
from dgbench.systems.pipad.gains import (
    GainTable,
    MeasuredGain,
    measure_gains,
    save_all,
)
from dgbench.systems.pipad.groups import (
    aggregation,
    partitions_for,
    random_group,
)
from dgbench.systems.pipad.kernels import ArrivedKernel, kernels_on
from dgbench.systems.pipad.ladders import PUBLISHED, stage
from dgbench.systems.pipad.partitions import split
from dgbench.systems.pipad.system import PipadSystem

TINY = {
    "s_per": (2, 4),
    "overlap_rate": (0.0, 1.0),
    "width": (2, 8),
    "nodes": (16, 64),
    "degree": (1.0, 3.0),
}


# --- the table ------------------------------------------------------------------------------------


def table(
    gain=lambda s, r, w, n, d: 1.0 + s * r / (w + n / 100 + d), axes=TINY, kernel="rows"
) -> GainTable:
    places = [
        MeasuredGain(s, r, w, n, d, gain(s, r, w, n, d), kernel=kernel)
        for s in axes["s_per"]
        for r in axes["overlap_rate"]
        for w in axes["width"]
        for n in axes["nodes"]
        for d in axes["degree"]
    ]
    return GainTable(device="cpu", machine={"name": "a test", "threads": 1}, points=places)


@settings(max_examples=200, deadline=None)
@given(
    data=st.data(),
    s_per=st.integers(2, 9),
    width=st.integers(1, 20),
    nodes=st.integers(0, 200),
    degree=st.floats(0.0, 10.0),
    rates=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_interpolation_is_monotone_where_the_points_are(data, s_per, width, nodes, degree, rates):
    """More overlap never lowers the gain between points that rise with overlap; and no value
    leaves the range of the points."""
    drawn: dict[tuple, float] = {}

    def gain(s, r, w, n, d):
        if (s, w, n, d) not in drawn:
            drawn[s, w, n, d] = data.draw(st.floats(0.3, 3.0))
        return drawn[s, w, n, d] * (1 + r)

    found = table(gain)
    low, high = (
        found.gain(s_per, r, width, nodes=nodes, edges=degree * nodes) for r in sorted(rates)
    )
    assert low <= high * (1 + 1e-9)
    every = [1.0, *(p.gain for p in found.points)]
    assert min(every) * (1 - 1e-9) <= low <= max(every) * (1 + 1e-9)


def test_a_table_written_is_the_table_read(tmp_path):
    found = table()
    path = tmp_path / "new" / "folder" / "table.json"
    found.save(path)
    again = GainTable.load(path)
    assert again.points == found.points
    assert (again.machine, again.device, again.axes) == (found.machine, found.device, found.axes)
    assert again.gain(3, 0.4, 5, nodes=30, edges=70) == found.gain(3, 0.4, 5, nodes=30, edges=70)
    assert json.loads(path.read_text())["schema"] == gains_module.SCHEMA
    assert list(path.parent.iterdir()) == [path]  # nothing temporary is left


DAMAGES = {
    "field": lambda points: points[0].pop("gain"),
    "hole": lambda points: points.pop(3),
    "twice": lambda points: points.append(points[0]),
    "value": lambda points: points[0].update(gain=-1.0),
    "none": lambda points: points.clear(),
}


def test_damaged_and_foreign_tables_are_errors(tmp_path):
    path = tmp_path / "table.json"
    with pytest.raises(StoreError):
        GainTable.load(path)
    table().save(path)
    whole = path.read_text()
    texts = [
        whole[: len(whole) // 2],
        "",
        "\x13 no json",
        '{"schema": 99, "layout": "of tomorrow"}',
    ]
    for damage in DAMAGES.values():
        content = json.loads(whole)
        damage(content["points"])
        texts.append(json.dumps(content))
    for text in texts:
        path.write_text(text)
        with pytest.raises(StoreError) as error:
            GainTable.load(path)
        assert "dgbench calibrate pipad" in error.value.hint


def test_finding_prefers_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path))
    packaged = GainTable.find("cpu", "rows")
    assert packaged is not None
    assert packaged.source != "table of this machine"
    own = calibration_path("pipad", "cpu")
    assert own.parent == tmp_path / "calibration" / "pipad"
    table().save(own)
    assert GainTable.find("cpu", "rows").points == table().points
    assert GainTable.find("cpu", "rows").source == "table of this machine"
    own.write_text("{")
    with pytest.warns(RuntimeWarning):
        assert GainTable.find("cpu", "rows").points == packaged.points


def test_the_nearest_packaged_table_says_whose_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(gains_module, "PACKAGED", tmp_path)
    assert GainTable.find("cpu", "rows") is None
    machine = machine_of("cpu")
    for name, threads in (("other", machine["threads"]), (machine["name"], 64)):
        found = table()
        found.machine = {"name": name, "threads": threads}
        found.save(tmp_path / f"{threads}-{name[:3]}.json")
    nearest = GainTable.find("cpu", "rows")
    assert nearest.machine["threads"] == 64  # the same CPU, with other threads
    assert nearest.source != "table of this machine"
    assert GainTable.find("cuda", "rows") is None


def test_a_table_of_another_kernel_is_not_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(gains_module, "PACKAGED", tmp_path / "none")
    rows, slices = table(), table(lambda *_: 1.5, kernel="slices")
    save_all([rows, slices], calibration_path("pipad", "cpu"))
    assert GainTable.find("cpu", "rows").points == rows.points
    assert GainTable.find("cpu", "slices").points == slices.points
    assert GainTable.find("cpu", "scattered rows") is None
    with pytest.raises(StoreError):
        GainTable.load(calibration_path("pipad", "cpu"), "products")
    with pytest.raises(InvalidInputError, match="kernels"):
        GainTable(device="cpu", machine={}, points=[*rows.points, *slices.points])


def test_gains_that_cannot_be_asked_for():
    for given in ((0, 0.5, 8), (2, math.nan, 8), (2, 0.5, 0), (-3, 0.5, 8), (2, math.inf, 8)):
        with pytest.raises(InvalidInputError):
            table().gain(*given)
    for arguments, name in (((10, 5, 1.5), "overlap_rate"), ((4, 6, 0.0), "edges")):
        with pytest.raises(InvalidInputError, match=name):
            random_group(*arguments)


# --- groups ---------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    nodes=st.integers(2, 60),
    share=st.floats(0.0, 1.0),
    rate=st.floats(0.0, 1.0),
    snapshots=st.integers(1, 8),
    seed=st.integers(1, 5),
)
def test_random_groups_have_the_rate_they_were_asked_for(nodes, share, rate, snapshots, seed):
    edges = int(share * nodes * (nodes - 1) / snapshots)
    group = random_group(nodes, edges, rate, snapshots=snapshots, seed=seed)
    sets = [_pairs(csr) for csr in group]
    assert [len(s) for s in sets] == [edges] * snapshots  # no entry twice
    assert not any(i == j for s in sets for i, j in s)
    shared = round(rate * edges)
    for a in range(snapshots):
        for b in range(a + 1, snapshots):
            assert len(sets[a] & sets[b]) == shared  # so every size sees the same rate
    if snapshots > 1 and edges:
        assert PartTopology.build(group).overlap_rate() == pytest.approx(shared / edges)


def _pairs(csr) -> set[tuple[int, int]]:
    rows = torch.repeat_interleave(torch.arange(csr.num_rows), csr.indptr.diff())
    return set(zip(rows.tolist(), csr.indices.tolist(), strict=True))


COMPILED = {"spmm", "aggregate_parts", "aggregate_parts_scatter", "merge_exclusive",
            "unpack_offsets", "multiply", "aggregate", "scatter"}  # fmt: skip
"""Compiled operators that aggregate, or open what arrived for it."""


class Recorder:
    """A compiled module or object that notes which of `COMPILED` were called."""

    def __init__(self, native: Any, called: set[str]) -> None:
        self._native, self._called = native, called

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._native, name)
        if name == "SlicedGroup":
            return lambda *given: Recorder(found(*given), self._called)
        if name not in COMPILED:
            return found

        def call(*given: Any, **named: Any) -> Any:
            self._called.add(name)
            return found(*given, **named)

        return call


@pytest.mark.parametrize("s_per", [1, 4])
@pytest.mark.parametrize(
    "switches",
    [{"compiled_step": False}, stage(PUBLISHED), {"arena": True},
     {**stage(PUBLISHED), "arena": True}, {}],
    ids=["rows", "slices", "scattered rows", "scattered slices", "products"],
)  # fmt: skip
def test_the_tuner_times_the_kernels_that_run(monkeypatch, request, switches, s_per):
    """The compiled operators of a race of the table are those of the engine's turn."""
    called: set[str] = set()
    host = build_info.extension(torch.device("cpu"))
    monkeypatch.setattr(build_info, "_import", lambda name: (Recorder(host, called), ""))
    multiply = FrameProduct.multiply

    def counted(*given: Any, **named: Any) -> None:
        called.add("multiply")
        multiply(*given, **named)

    monkeypatch.setattr(FrameProduct, "multiply", counted)
    serve(monkeypatch, tiny_sequence(nodes=30, edges=90, snapshots=12))
    task = tiny_workload(model="evolvegcn", frame=8)
    with closing(PipadSystem(s_per=s_per).open(task, switches=switches)) as trainer:
        trainer.prepare()
        engine = trainer.engine
        times = trainer.task.times(0)
        for _ in range(2):  # the first also makes what is kept
            called.clear()
            engine.first(times)
            engine.turn(times, 5, wants=True)()
            engine.finish()
        running = called.copy()
    assert engine.kernel.name == request.node.callspec.id.removesuffix(f"-{s_per}")
    partitions = partitions_for(engine.kernel, random_group(30, 90, 0.7), "cpu")
    device = (torch.device("cpu"),) if isinstance(engine.kernel, ArrivedKernel) else ()
    turn = engine.kernel.turn(partitions, split(range(8), s_per), 5, *device)
    for _ in range(3):  # lists of rows are sorted at the second product
        called.clear()
        turn()
    assert called
    assert called == running


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernel", kernels_on("cpu"), ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("s_per", [2, 3, 7])
def test_frames_that_do_not_divide_are_aggregated_like_single_snapshots(s_per, kernel, weighted):
    group = [tiny_sequence(14, 7, 40, weighted=weighted).topology[t] for t in range(7)]
    draw = torch.Generator().manual_seed(2)
    x = torch.randn(7, 14, 3, generator=draw, requires_grad=True)
    grad = torch.randn(7, 14, 3, generator=draw)
    found, wanted = (aggregation(kernel, group, s)(x) for s in (s_per, 1))
    torch.testing.assert_close(found, wanted)
    one, other = (torch.autograd.grad(y, x, grad)[0] for y in (found, wanted))
    torch.testing.assert_close(one, other)
    with torch.no_grad():
        assert torch.equal(aggregation(kernel, group, s_per)(x), found)


# --- measuring ------------------------------------------------------------------------------------


def test_the_command_writes_where_training_looks(tmp_path, monkeypatch, capsys):
    """Real races of one place of the grid: `measure_gains` is tested above."""
    one = {name: values[:1] for name, values in TINY.items()}
    monkeypatch.setattr(gains_module, "QUICK", one)
    monkeypatch.setattr(gains_module, "measure_gains", partial(measure_gains, budget_s=0.0))
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path))
    with pytest.raises(SystemExit) as end:
        main(["calibrate", "pipad", "--quick", "--json", "--threads", "1"])
    assert not end.value.code
    result = json.loads(capsys.readouterr().out)
    assert result["points"] == len(kernels_on("cpu"))
    assert result["path"] == str(calibration_path("pipad", "cpu"))
    assert GainTable.find("cpu", "rows").source == "table of this machine"
    assert GainTable.find("cpu", "rows").quick
