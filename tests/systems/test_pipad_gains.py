"""The tuner's table of gains, the groups it is measured on, and the command that measures."""

from __future__ import annotations

import json
import math
import re
from contextlib import closing
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pipad_rows import facts
from tiny_data import serve, tiny_sequence, tiny_workload

from dgbench.harness.cli import main
from dgbench.kernels_cuda import build_info
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.steps import FrameProduct
from dgbench.runtime.errors import InvalidInputError, StoreError, UnsupportedError
from dgbench.runtime.meter import Meter
from dgbench.systems.base import get_system
from dgbench.systems.base.calibration import calibration_path, machine_of, write_atomically
from dgbench.systems.pipad import gains as gains_module
from dgbench.systems.pipad.engine import Engine
from dgbench.systems.pipad.gains import (
    GainTable,
    MeasuredGain,
    calibrate,
    measure_gains,
    save_all,
)
from dgbench.systems.pipad.groups import (
    aggregation,
    gains_of,
    made_group,
    partitions_for,
    race,
    random_group,
    sequence_of,
)
from dgbench.systems.pipad.kernels import ArrivedKernel, kernels_on
from dgbench.systems.pipad.ladders import PUBLISHED, stage
from dgbench.systems.pipad.partitions import Partitions, split
from dgbench.systems.pipad.system import PipadSystem
from dgbench.systems.pipad.tuner import Tuner

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


def test_grid_points_are_returned_as_measured():
    found = table()
    for p in found.points:
        got = found.gain(p.s_per, p.overlap_rate, p.width, nodes=p.nodes, edges=p.nodes * p.degree)
        assert got == pytest.approx(p.gain, rel=1e-12)


def test_one_snapshot_gains_nothing_and_outside_the_edge_counts():
    found = table()
    assert found.gain(1, 0.5, 8) == 1.0
    edge = found.gain(4, 1.0, 8, nodes=64, edges=192)
    assert found.gain(32, 2.0, 512, nodes=10**6, edges=10**9) == pytest.approx(edge)
    assert found.gain(4, -1.0, 1, nodes=1, edges=0) == pytest.approx(
        found.gain(4, 0.0, 2, nodes=16, edges=16)
    )


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


def _damage(path, how):
    text = path.read_text()
    content = json.loads(text)
    if how == "cut":
        path.write_text(text[: len(text) // 2])
    elif how == "empty":
        path.write_text("")
    elif how == "noise":
        path.write_bytes(b"\x00\xff\x13 no json")
    elif how == "field":
        del content["points"][0]["gain"]
    elif how == "hole":
        del content["points"][3]
    elif how == "twice":
        content["points"].append(content["points"][0])
    elif how == "value":
        content["points"][0]["gain"] = -1.0
    elif how == "none":
        content["points"] = []
    if content != json.loads(text):
        path.write_text(json.dumps(content))


DAMAGES = ("cut", "empty", "noise", "field", "hole", "twice", "value", "none")


@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_tables_are_named_as_such(tmp_path, how):
    path = tmp_path / "table.json"
    table().save(path)
    _damage(path, how)
    with pytest.raises(StoreError, match="damaged") as error:
        GainTable.load(path)
    assert str(path) in str(error.value)
    assert "dgbench calibrate pipad" in error.value.hint


def test_other_versions_and_missing_files(tmp_path):
    path = tmp_path / "table.json"
    with pytest.raises(StoreError, match="no table of gains can be read"):
        GainTable.load(path)
    path.write_text('{"schema": 99, "layout": "of tomorrow"}')
    with pytest.raises(StoreError, match=r"version 99, this program reads 2"):
        GainTable.load(path)


def test_finding_prefers_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path))
    packaged = GainTable.find("cpu", "rows")
    assert packaged is not None
    assert packaged.source != "table of this machine"
    assert re.match(r"table of (another machine|a machine named alike) \(", packaged.source)
    own = calibration_path("pipad", "cpu")
    assert own.parent == tmp_path / "calibration" / "pipad"
    table().save(own)
    assert GainTable.find("cpu", "rows").points == table().points
    assert GainTable.find("cpu", "rows").source == "table of this machine"
    own.write_text("{")
    with pytest.warns(RuntimeWarning, match="damaged"):
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
    assert nearest.source == f"table of another machine ({machine['name']}, 64 threads)"
    assert GainTable.find("cuda", "rows") is None
    reason = Tuner(nearest, bandwidth=None, free_bytes=1 << 30).decide(facts()).reason
    assert "by the table of another machine" in reason


def test_packaged_tables_are_whole():
    paths = sorted(gains_module.PACKAGED.glob("*.json"))
    assert paths
    held = set()
    for path in paths:
        for kernel, found in GainTable.load_all(path).items():
            assert found.kernel == kernel
            assert found.device in path.stem
            assert set(found.axes["s_per"]) == {2, 4, 8}
            assert len(found.axes["overlap_rate"]) >= 3
            held.add(kernel)
    assert held == {kernel.name for kernel in kernels_on("cpu")}


def test_a_table_of_another_kernel_is_not_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(gains_module, "PACKAGED", tmp_path / "none")
    rows, slices = table(), table(lambda *_: 1.5, kernel="slices")
    save_all([rows, slices], calibration_path("pipad", "cpu"))
    assert GainTable.find("cpu", "rows").points == rows.points
    assert GainTable.find("cpu", "slices").points == slices.points
    assert GainTable.find("cpu", "scattered rows") is None
    with pytest.raises(StoreError, match="rows, slices, not 'products'"):
        GainTable.load(calibration_path("pipad", "cpu"), "products")
    with pytest.raises(InvalidInputError, match="several kernels: rows, slices"):
        GainTable(device="cpu", machine={}, points=[*rows.points, *slices.points])


@pytest.mark.parametrize(
    "arguments", [(0, 0.5, 8), (2, math.nan, 8), (2, 0.5, 0), (-3, 0.5, 8), (2, math.inf, 8)]
)
def test_gains_that_cannot_be_asked_for(arguments):
    with pytest.raises(InvalidInputError):
        table().gain(*arguments)


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


def test_made_groups_keep_the_entries_of_their_base():
    base = random_group(40, 150, 0.0, snapshots=1, seed=3)[0]
    group = made_group(base, 0.6)
    known = _pairs(base)
    shared = set.intersection(*map(_pairs, group))
    assert len(shared) == 90
    assert shared <= known
    assert {csr.nnz for csr in group} == {150}


def test_groups_that_cannot_be():
    with pytest.raises(InvalidInputError, match="overlap_rate"):
        random_group(10, 5, 1.5)
    with pytest.raises(InvalidInputError, match="have room for 12"):
        random_group(4, 6, 0.0)


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


@pytest.mark.parametrize("s_per", [1, 2, 4, 8])
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


@pytest.mark.parametrize("s_per", [1, 2, 4, 8])
@pytest.mark.parametrize("slices", [False, True])
def test_what_is_raced_is_what_the_engine_does(s_per, slices):
    """Same values, forward and backward, as the engine that the table is for."""
    group = random_group(30, 90, 0.7)
    sequence = sequence_of(group)
    partitions = Partitions(sequence, norm="sym")
    switches = PipadSystem().switches({"slice_coalescing": slices})
    engine = Engine(partitions, switches, Meter(), s_per=s_per, following=lambda times: None)
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(8, 30, 5, generator=draw, requires_grad=True)
    grad = torch.randn(8, 30, 5, generator=draw)
    times = range(8)
    engine.first(times)
    wanted = engine.apply(times, x)
    found = aggregation(engine.kernel, group, s_per)(x)
    assert torch.equal(found, wanted)
    one, other = (torch.autograd.grad(y, x, grad)[0] for y in (found, wanted))
    assert torch.equal(one, other)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernel", kernels_on("cpu"), ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("s_per", [2, 3, 4, 7])
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


def test_a_race_takes_turns():
    found = race(random_group(20, 40, 0.5), 3, (2, 8), kernels_on("cpu")[0], budget_s=0.0, turns=3)
    assert {size: len(times) for size, times in found.items()} == {1: 3, 2: 3, 8: 3}
    assert gains_of({1: [9.0, 4.0, 6.0], 2: [2.0, 70.0, 3.0]}) == {2: 2.0}


# --- measuring ------------------------------------------------------------------------------------


def test_measuring_covers_the_grid_and_tells_how_far_it_is():
    said = []
    found = measure_gains(
        kernels_on("cpu")[0],
        axes=TINY,
        budget_s=0.0,
        progress=lambda done, total, words: said.append((done, total)),
    )
    assert found.axes == {name: tuple(float(v) for v in values) for name, values in TINY.items()}
    assert len(found.points) == 32
    assert said == [(i, 16) for i in range(17)]
    assert found.machine == machine_of("cpu")
    assert all(p.single_s > 0 for p in found.points)
    assert found.noise >= 0


def _small(monkeypatch):
    monkeypatch.setattr(gains_module, "QUICK", TINY)


def test_the_command_writes_where_training_looks(tmp_path, monkeypatch, capsys):
    _small(monkeypatch)
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path))
    assert _call("calibrate", "pipad", "--quick", "--json", "--threads", "1") == 0
    told = capsys.readouterr()
    result = json.loads(told.out)
    assert result["points"] == 32 * len(kernels_on("cpu"))
    assert "calibrating PiPAD" in told.err
    assert result["path"] == str(calibration_path("pipad", "cpu"))
    assert GainTable.find("cpu", "rows").source == "table of this machine"
    assert GainTable.find("cpu", "rows").quick
    assert _call("calibrate", "pipad", "--quick", "--threads", "1") == 0
    assert "mean gain over one snapshot at a time" in capsys.readouterr().out


def test_the_command_says_what_is_wrong(tmp_path, monkeypatch, capsys):
    _small(monkeypatch)
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path))
    for words, said in (
        (("calibrate", "pipat"), "did you mean: pipad"),
        (("calibrate", "reference"), "has nothing to calibrate"),
        (("calibrate", "pipad", "--device", "tpu"), "allowed: cpu, cuda"),
        (("calibrate", "pipad", "--quick", "--out", str(tmp_path)), "cannot be written"),
    ):
        assert _call(*words) == 2
        told = capsys.readouterr().err
        assert said in told
        assert "Traceback" not in told


@pytest.mark.parametrize("noise", [0.02, 0.6])
def test_a_busy_machine_is_named(noise, tmp_path, monkeypatch):
    found = table()
    found.noise = noise
    monkeypatch.setattr(gains_module, "measure_gains", lambda *_, **__: found)
    monkeypatch.setattr("dgbench.systems.pipad.kernels.kernels_on", lambda device: [None])
    state = calibrate(tmp_path / "table.json")["median turn"]
    assert ("measure again when it is quiet" in state) is (noise > 0.25)
    assert GainTable.load_all(tmp_path / "table.json")["rows"].noise == noise


def test_an_interrupted_command_leaves_the_old_table(tmp_path, monkeypatch):
    path = tmp_path / "table.json"
    table().save(path)
    before = path.read_bytes()

    def stop(done, total, words):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate(path, axes=TINY, progress=stop)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_replaced(tmp_path):
    (tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(StoreError, match="cannot be written"):
        write_atomically(tmp_path / "taken" / "table.json", "{}")


def test_systems_without_a_calibration_say_so(tmp_path):
    with pytest.raises(UnsupportedError, match="nothing to calibrate"):
        get_system("reference").calibrate(tmp_path / "x.json")
    assert not (tmp_path / "x.json").exists()


def _call(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(list(words))
    return int(end.value.code or 0)
