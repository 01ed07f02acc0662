"""Races of operators on a device: timed by its events, here by a device of the tests' own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import pytest
from msgspec import structs
from paper_rows import row_of

from dgbench.lab.experiment import RunContext
from dgbench.lab.table import Table
from dgbench.runtime.launches import KernelLaunch, count_calls, read_trace, short_name
from dgbench.systems.operators import PAPER, race
from dgbench.systems.operators.race import OURS, OperatorRace
from dgbench.systems.operators.timing import CallSetting, DeviceTimer, HostTimer

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
        self.wait, self.hold = partial(self._take, "wait", 0), partial(self._take, "hold", 100)
        self.flush = partial(self._take, "flush", 1000)

    def _take(self, what: str, seconds: float) -> None:
        self.asked.append(what)
        self.now += seconds

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
    device, ready, clock = CountingDevice(), [], iter([7.0, 8.0])
    setting = CallSetting(lambda: device._take("ready", 7.0), warm=True)
    assert DeviceTimer(device).turn(lambda: None, 1, setting) == pytest.approx(1.0)
    assert device.asked == ["ready", "hold", "record", "record"]
    host = HostTimer(lambda: next(clock))
    assert host.turn(lambda: None, 50, CallSetting(lambda: ready.append(1))) == 1.0
    assert ready == [1]


@pytest.mark.parametrize("name", ON_THE_HOST)
def test_races_of_a_device_compare_and_time(name: str, device: CountingDevice) -> None:
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
    for metric, dims in (
        ("operation_time", {"clock": "wall"}), ("operation_time", {"caches": ("warm", "cold")}),
        ("launches", {}),
    ):  # fmt: skip
        assert set(table.where(metric, **dims).by("method")) == set(turns.by("method"))


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
    told = [(one.name, one.count, one.registers, one.occupancy) for one in found]
    assert told == [("spmm_rows", 2, 32, 0.25), ("fill", 1, 16, 0.25)]
    assert found[0].seconds == pytest.approx(12e-6)
    assert short_name("void at::native::fill<float>(float*)") == "fill"


@pytest.mark.cuda
@pytest.mark.parametrize("name", RACES)
def test_races_run_on_the_device_that_is_here(name: str) -> None:
    for cell in RACES[name].cells("smoke", "cuda"):
        found = RACES[name].run(cell, RunContext("cuda", "smoke", 1))
        assert found.checks
        assert all(check.passed for check in found.checks), found.checks
        launched = {o.dims["method"] for o in found.observations if o.metric == "launches"}
        assert OURS in launched or name == "ceilings"  # some of which are copies, no kernels
