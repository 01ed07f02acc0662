"""Races of operators on a device: timed by its events, here by a device of the tests' own."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import pytest
import torch
from msgspec import structs
from paper_rows import row_of

from dgbench.lab.experiment import Measurement, RunContext
from dgbench.lab.table import Entry, Table, observation
from dgbench.runtime.errors import UnsupportedError
from dgbench.runtime.launches import KernelLaunch, count_calls, read_trace, short_name
from dgbench.systems.base.race import observe_launches
from dgbench.systems.operators import PAPER, race
from dgbench.systems.operators.experiments import billion, predicted, scan
from dgbench.systems.operators.graphs import keys_of
from dgbench.systems.operators.predictions import graphs as predicted_graphs
from dgbench.systems.operators.predictions.case import PredictedCase
from dgbench.systems.operators.race import OURS, OperatorRace
from dgbench.systems.operators.timing import CallSetting, DeviceTimer, HostTimer, open_timer

RACES = {
    one.name: one
    for one in PAPER.experiments
    if isinstance(one, OperatorRace) and "cuda" in one.devices
}
ON_THE_HOST = [name for name in RACES if name != "ceilings"]  # tests/cuda/test_ceilings.py


class CountingDevice:
    """Device whose clock ticks with each call to it; what it was asked for is kept."""

    place = "cpu:0"  # tells a device from the host

    def __init__(self) -> None:
        self.now, self.asked = 0.0, []

    def _take(self, what: str, seconds: float) -> None:
        self.asked.append(what)
        self.now += seconds

    def wait(self) -> None:
        self._take("wait", 0.0)

    def hold(self) -> None:
        self._take("hold", 100.0)

    def flush(self) -> None:
        self._take("flush", 1000.0)

    def record(self) -> float:
        self._take("record", 1.0)
        return self.now

    def seconds(self, begin: float, end: float) -> float:
        return end - begin

    def kernels(self, call: Callable[[], object]) -> list[KernelLaunch]:
        call()
        return [
            KernelLaunch("product", 3e-6, 1, 40, 1024, 0.5),
            KernelLaunch("fill", 1e-6, 2, 16, 0, 0.9),
        ]

    def clock_rate(self) -> float:
        return 1.98e9


@pytest.fixture
def device(monkeypatch) -> CountingDevice:
    """Device that races open in place of a CUDA device."""
    found = CountingDevice()
    monkeypatch.setattr(race, "open_timer", lambda device, now: DeviceTimer(found))
    return found


def test_a_turn_empties_the_cache_and_lets_the_host_get_ahead_outside_of_the_marks() -> None:
    device = CountingDevice()
    timer = DeviceTimer(device)
    assert timer.turn(lambda: device.asked.append("call"), 2, CallSetting()) == pytest.approx(1.0)
    assert device.asked == ["flush", "hold", "record", "call", "record"] * 2


def test_what_makes_a_call_ready_is_not_timed_and_a_warm_one_keeps_its_cache() -> None:
    device = CountingDevice()
    setting = CallSetting(lambda: device._take("ready", 7.0), warm=True)
    assert DeviceTimer(device).turn(lambda: None, 1, setting) == pytest.approx(1.0)
    assert device.asked == ["ready", "hold", "record", "record"]
    clock = iter([7.0, 8.0])
    ready = []
    host = HostTimer(lambda: next(clock))
    assert host.turn(lambda: None, 50, CallSetting(lambda: ready.append(1))) == 1.0
    assert ready == [1]


def test_a_time_with_warm_caches_a_whole_call_and_launches_stand_beside() -> None:
    device, found = CountingDevice(), Measurement()
    timer = DeviceTimer(device)
    timer.observe("ours", lambda: None, CallSetting(), found)
    timer.finish(found)
    assert "flush" not in device.asked
    seen = {(one.metric, *one.dims.values()): one.value for one in found.observations}
    assert seen["operation_time", "ours", "warm"] == pytest.approx(1.0)
    assert seen["operation_time", "ours", "wall"] > 0
    assert seen["spent_time", "ours", "kernels"] == pytest.approx(4e-6)
    assert seen["launches", "ours"] == 3
    assert seen["utilisation", "ours", "warps"] == pytest.approx(0.6)
    assert seen["clock_rate", "device", "begin"] == seen["clock_rate", "device", "end"] == 1.98e9


def test_a_run_without_a_device_says_so() -> None:
    assert isinstance(open_timer("cpu", lambda: 0.0), HostTimer)
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(UnsupportedError, match="no CUDA device"):
        open_timer("cuda", lambda: 0.0)


@pytest.mark.parametrize("name", ON_THE_HOST)
def test_races_of_a_device_compare_time_and_draw(name: str, device: CountingDevice) -> None:
    experiment, rows = RACES[name], []
    cells = experiment.cells("smoke", "cuda")
    assert not any(cell.unavailable or cell.device for cell in cells)
    for number, cell in enumerate(cells):
        found = experiment.run(cell, RunContext("cuda", "smoke", 1))
        assert found.checks
        assert all(check.passed for check in found.checks), found.checks
        fields = structs.asdict(found)
        rows.append(row_of(cell, number, observed=fields.pop("observations"), **fields))
    table = Table.of(rows, experiment=name)
    turns = table.where("operation_time", caches=None, clock=None)
    assert {len(one.of.samples) for one in turns} == {2}
    for one in turns:
        assert one.value == median(one.of.samples)
    methods = set(turns.by("method"))
    assert set(table.where("operation_time", clock="wall").by("method")) == methods
    beside = table.where("operation_time", caches=("warm", "cold"))
    assert set(beside.by("method")) == methods
    assert set(table.where("launches").by("method")) == methods
    assert {one["method"] for one in table.where("speedup")} <= methods
    for figure in experiment.figures():
        points = figure.points(rows)
        assert points or figure.kind == "limit_share"  # its limit is another row's
    assert experiment.answer(rows)


@pytest.mark.parametrize("name", RACES)
def test_cells_of_a_device_alone_say_what_they_need_on_the_cpu(name: str) -> None:
    cells = RACES[name].cells("quick", "cpu")
    alone = "cpu" not in RACES[name].devices
    assert all(("GPU" in cell.unavailable) == alone for cell in cells)


def test_kernels_of_a_trace_are_added_up_by_name_and_registers() -> None:
    def launch(name: str, us: float, registers: int) -> dict[str, Any]:
        facts = {"registers per thread": registers, "shared memory": 0}
        facts["est. achieved occupancy %"] = 25
        return {"cat": "kernel", "name": name, "dur": us, "args": facts}

    long = "void (anonymous namespace)::spmm_rows<4, true>(float const*, int)"
    events = [launch(long, 5, 32), {"cat": "cpu_op", "name": "mm"}, launch("fill", 1, 16)]
    calls = [{"cat": "cuda_runtime", "name": name} for name in ("cudaMemcpyAsync", "cudaFree")]
    assert count_calls({"traceEvents": [*events, *calls]}) == {
        "graphs": 0, "copies": 1, "waits": 0, "allocations": 1,
    }  # fmt: skip
    found = read_trace({"traceEvents": [*events, launch(long, 7, 32)]})
    assert [(one.name, one.count, one.registers, one.occupancy) for one in found] == [
        ("spmm_rows", 2, 32, 0.25),
        ("fill", 1, 16, 0.25),
    ]
    assert found[0].seconds == pytest.approx(12e-6)
    assert short_name("void at::native::fill<float>(float*)") == "fill"


def test_snapshots_of_predictions_overlap_as_their_edges_live() -> None:
    found = predicted_graphs.snapshots(500, 2100, 4, 7, "cpu")
    keys = [set(keys_of(one).tolist()) for one in found]
    assert all(len(k) == g.nnz == 2100 for k, g in zip(keys, found, strict=True))
    assert len(set.intersection(*keys)) == 2100 * 4 // 7  # (life - snapshots + 1) / life
    steps = predicted_graphs.vertex_steps(0.00002, "cpu")
    rows = torch.repeat_interleave(torch.arange(steps.num_rows), steps.indptr.diff())
    there = set(zip(rows.tolist(), steps.indices.tolist(), strict=True))
    assert there == {(b, a) for a, b in there}
    last = predicted_graphs.MOVIE[1] - 1
    assert all((v, v + 1) in there for v in range(last))
    assert (last, last + 1) not in there  # another entity begins


def test_every_prediction_has_a_workload_that_is_compared(device: CountingDevice) -> None:
    experiment = RACES["predicted"]
    known = {experiment.method(name) for name in predicted.PREDICTIONS}
    seen: set[str] = set()
    for cell in experiment.cells("smoke", "cuda"):
        found = experiment.run(cell, RunContext("cuda", "smoke", 1))
        table = Table(Entry(found, one) for one in found.observations)
        seen |= set(table.where("operation_time").by("method"))
        for one in table.where("speedup", baseline=predicted.PREDICTED):
            (time,) = table.where("operation_time", method=one["method"], caches=None, clock=None)
            (expected,) = table.where("predicted_time", method=one["method"])
            assert one.value == pytest.approx(expected.of.high / time.value)
    # GE-SpMM is a kernel of a device; the cache of the host evicts inside of its update.
    assert seen == known - {f"{OURS}, D1 evict", "A2 GE-SpMM-like"}


def test_a_graph_of_a_billion_edges_is_planned_by_count() -> None:
    whole = billion.plan_memory(1.0)
    assert (whole.events, whole.vertices) == (1_468_365_182, 41_652_230)
    assert whole.host["hold rows"] == 16 * whole.events + 8 * whole.vertices
    assert not whole.lacks(128e9, 125e9)
    assert "host" in whole.lacks(40e9, 125e9)
    assert "device" in whole.lacks(128e9, 15e9)
    assert not billion.plan_memory(0.125).lacks(40e9, 15e9)  # a T4


def test_a_graph_of_many_edges_is_sampled_as_counted(device: CountingDevice, monkeypatch) -> None:
    monkeypatch.setattr(billion, "open_timer", lambda name, now: DeviceTimer(device))
    (experiment,) = (one for one in PAPER.experiments if one.name == "billion")
    (cell,) = experiment.cells("smoke", "cuda")
    assert "GPU" in experiment.cells("smoke", "cpu")[0].unavailable
    found = experiment.run(cell, RunContext("cuda", "smoke", 1))
    assert [check.passed for check in found.checks] == [True, True]
    table = Table(Entry(found, one) for one in found.observations)
    assert table.where("memory", of="rows").values == [
        table.where("memory", phase="hold rows").one().value + 8
    ]
    fields = structs.asdict(found)
    row = row_of(cell, observed=fields.pop("observations"), **fields)
    assert "lie on one device" in experiment.answer([row])
    monkeypatch.setattr(billion, "HOST_SHARE", 0.0)
    with pytest.raises(UnsupportedError, match="does not fit"):
        experiment.run(cell, RunContext("cuda", "smoke", 1))


def test_operators_stand_against_the_larger_share_of_a_roof(device: CountingDevice) -> None:
    scan = RACES["scan"].cells("smoke", "cuda")[0]
    machine = structs.replace(scan, paper="-", experiment="machine")
    measured = (
        (("bandwidth", 4e12, "place", "device"), ("product_rate", 50e12, "place", "device")),
        (
            ("bandwidth", 1e12, "method", OURS),
            ("product_rate", 25e12, "method", OURS),
            ("bandwidth", 4e12, "method", "torch loop"),
        ),
    )
    rows = [
        row_of(
            cell, device="cuda",
            observed=[observation(metric, value, **{dim: of}) for metric, value, dim, of in seen],
        )
        for cell, seen in zip((machine, scan), measured, strict=True)
    ]  # fmt: skip
    (point,) = RACES["ceilings"].roof_points(rows)
    assert (point["value"], point["limit"], point["unit"]) == (25e3, 50e3, "GFLOP/s")


@pytest.mark.parametrize("name", ["scan", "packed_scan"])
def test_scans_on_tensor_cores_race_the_plain_ones(device, monkeypatch, name) -> None:
    cell = RACES[name].cells("smoke", "cuda")[0]
    for there in (False, True):
        monkeypatch.setattr(scan, "splits", lambda x, w_hid, there=there: there)
        found = RACES[name].run(cell, RunContext("cuda", "smoke", 1))
        assert all(check.passed for check in found.checks)
        table = Table(Entry(found, one) for one in found.observations)
        gained = table.where("speedup", method=scan.TENSOR_CORES).by("baseline")
        assert set(gained) == ({OURS} if there else set())
        peers = set(table.where("speedup", method=OURS).by("baseline"))
        assert scan.LOOP in peers
        assert scan.TENSOR_CORES not in peers


def test_a_prediction_that_is_wrong_makes_its_row_void(device, monkeypatch) -> None:
    def family(share: float, place: str):
        yield "H1 distances", PredictedCase(lambda: None, lambda: 1e-3)

    monkeypatch.setitem(predicted.FAMILIES, "stale rows", family)
    (cell,) = (
        c for c in RACES["predicted"].cells("smoke", "cuda") if c.params["case"] == "stale rows"
    )
    found = RACES["predicted"].run(cell, RunContext("cuda", "smoke", 1))
    assert [check.passed for check in found.checks] == [False, False]


def test_an_instrumented_step_says_what_it_launches_and_asks_of_the_runtime() -> None:
    """Two kernels of one name and different registers, in five steps of each."""
    steps: list[int] = []

    def profiled(call: Callable[[], object]) -> dict[str, Any]:
        call()
        kernels = [
            {"cat": "kernel", "name": "void rows<4>(int)", "dur": us, "args": facts}
            for us, facts in ((30.0, {"registers per thread": 8}), (20.0, {}))
        ]
        waits = [{"cat": "cuda_runtime", "name": "cudaStreamSynchronize"}]
        return {"traceEvents": [*kernels, *waits] * len(steps)}

    found = Measurement()
    observe_launches(found, lambda: steps.append(1), profiled)
    seen = {(one.metric, *one.dims.values()): one.value for one in found.observations}
    assert len(steps) == 5
    assert seen["spent_time", "kernels"] == pytest.approx(50e-6)
    assert seen["spent_time", "kernels", "rows"] == pytest.approx(50e-6)
    assert (seen["launches",], seen["launches", "waits"]) == (2, 1)


@pytest.mark.cuda
@pytest.mark.parametrize("name", RACES)
def test_races_run_on_the_device_that_is_here(name: str) -> None:
    for cell in RACES[name].cells("smoke", "cuda"):
        found = RACES[name].run(cell, RunContext("cuda", "smoke", 1))
        assert found.checks
        assert all(check.passed for check in found.checks), found.checks
        launched = {o.dims["method"] for o in found.observations if o.metric == "launches"}
        assert OURS in launched or name == "ceilings"  # some of which are copies, no kernels
