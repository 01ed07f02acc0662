"""The ceilings of a device, as far as a machine without one can play them through."""

from __future__ import annotations

import ctypes
from pathlib import Path

import emulator
import pytest

from dgbench.lab.experiment import RunContext
from dgbench.lab.table import Entry, Table
from dgbench.runtime.errors import UnsupportedError
from dgbench.systems.operators import race
from dgbench.systems.operators.ceilings import calls, kernels
from dgbench.systems.operators.experiments.ceilings import ASSUMED, Ceilings
from dgbench.systems.operators.race import OURS
from dgbench.systems.operators.timing import DeviceTimer, HostTimer


@pytest.mark.parametrize("nodes", [1, 2, 3, 64, 1000])
def test_a_chase_goes_through_every_line_before_it_comes_back(nodes) -> None:
    following = calls.cycle(nodes, "cpu")
    at, seen = 0, []
    for _ in range(nodes):
        seen.append(at)
        at = int(following[at])
    assert at == 0
    assert sorted(seen) == list(range(nodes))


@pytest.fixture(scope="module")
def emulated() -> ctypes.CDLL:
    """The kernels' own source over a stand-in for the runtime."""
    if reason := emulator.missing():
        pytest.skip(reason)
    clock = "inline long long clock64() { return emulated::ticks += 7; }\n"
    text = emulator.rewrite(kernels.SOURCE.read_text())
    text = text.replace("namespace {", clock + "namespace {", 1)
    return ctypes.CDLL(str(emulator.build_library("ceilings", text)))


class PlainDevice:
    """Device of the host that works at once."""

    place = "cpu:0"

    def __init__(self) -> None:
        self._clock = HostTimer()
        self.wait = self.hold = self.flush = lambda: None
        self.record = self._clock.now
        self.seconds = lambda begin, end: end - begin
        self.kernels = lambda call: []
        self.clock_rate = lambda: None


@pytest.mark.parametrize("name", calls.CEILINGS)
def test_the_kernels_do_what_the_cells_say(name: str, emulated, monkeypatch) -> None:
    monkeypatch.setattr(race, "open_timer", lambda device, now: DeviceTimer(PlainDevice()))
    monkeypatch.setattr(
        kernels, "open_bench", lambda device, scale: kernels.Bench("cpu", emulated, 1, scale)
    )
    experiment = Ceilings()
    (cell,) = (c for c in experiment.cells("smoke", "cuda") if c.params["case"] == name)
    context = RunContext("cuda", "smoke", 1)
    if name == "graph node":
        with pytest.raises(UnsupportedError, match="graphs"):
            experiment.run(cell, context)
        return
    found = experiment.run(cell, context)
    assert [check.passed for check in found.checks] == [True, True]
    table = Table(Entry(found, one) for one in found.observations)
    limit = calls.CEILINGS[name]
    times = table.where("operation_time", method=OURS, caches=None, clock=None).one()
    if limit.metric:
        (amount,) = table.where("requests").values
        rate = table.where(limit.metric, method=OURS).one()
        assert rate.value == pytest.approx(amount / times.value)
    assert bool(table.where("speedup", baseline=ASSUMED)) == (limit.assumed is not None)
    assert bool(table.where("predicted_time")) == (limit.assumed is not None)
    if name == "dependent load, shared memory":
        cycles = table.where("worker_cycles", statistic="load").one().value
        assert cycles == pytest.approx(7 / (65_536 // 2000), rel=0.1)


def test_a_call_that_left_work_out_makes_its_row_void(emulated, monkeypatch) -> None:
    monkeypatch.setattr(race, "open_timer", lambda device, now: DeviceTimer(PlainDevice()))

    class Idle(kernels.Bench):
        def launch(self, name, *arguments) -> None:
            """Nothing."""

    monkeypatch.setattr(
        kernels, "open_bench", lambda device, scale: Idle("cpu", emulated, 1, scale)
    )
    experiment = Ceilings()
    cells = {c.params["case"]: c for c in experiment.cells("smoke", "cuda")}
    found = experiment.run(cells["fp32 multiply-add"], RunContext("cuda", "smoke", 1))
    assert not any(check.passed for check in found.checks)


def test_the_kernels_compile(tmp_path: Path) -> None:
    if not kernels.nvcc():
        pytest.skip("no nvcc here")
    assert kernels.compile_kernels("sm_90", tmp_path).stat().st_size > 0


def test_a_compiler_that_fails_is_reported(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(kernels, "nvcc", lambda: "")
    with pytest.raises(UnsupportedError, match="nvcc"):
        kernels.compile_kernels("sm_90", tmp_path)
    monkeypatch.setattr(kernels, "nvcc", lambda: "/bin/false")
    with pytest.raises(UnsupportedError, match="compile"):
        kernels.compile_kernels("sm_90", tmp_path)
