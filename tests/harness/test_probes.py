"""Probes of a process, the machine and a GPU, by names that the harness writes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest
from fake_papers import cell, lookup, make_paper

from dgbench.harness.machine import facts as facts_module
from dgbench.harness.machine import gpu_count
from dgbench.harness.plan import Plan
from dgbench.harness.probes import GpuSampler, Nvml, Tree
from dgbench.harness.probes import nvml as nvml_module
from dgbench.harness.probes.cpu import MachineActivity
from dgbench.harness.probes.gpm import COURSE, METRICS
from dgbench.harness.probes.series import Recording, pack
from dgbench.harness.runner import Listener, run_plan
from dgbench.harness.store import Store
from dgbench.lab.probes import PROBES, probe, sources
from dgbench.runtime.errors import UnknownKeyError


class Refused(Exception):
    """Stands for pynvml.NVMLError."""


class NVMLError_DriverNotLoaded(Exception):
    """Named as the real one."""


ANSWERS = {
    "nvmlInit": None, "nvmlShutdown": None, "nvmlDeviceGetCount": 1,
    "nvmlDeviceGetHandleByIndex": "handle", "nvmlDeviceGetName": b"Fake 9000",
    "nvmlSystemGetDriverVersion": "999.9",
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=8 << 30, used=3 << 30),
    "nvmlDeviceGetEnforcedPowerLimit": 700_000, "nvmlDeviceGetMaxClockInfo": 1980,
    "nvmlDeviceGetCurrPcieLinkGeneration": 5, "nvmlDeviceGetCurrPcieLinkWidth": 16,
    "nvmlDeviceGetCudaComputeCapability": (9, 0),
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=42, memory=7),
    "nvmlDeviceGetPowerUsage": 100_000, "nvmlDeviceGetTemperature": 55,
    "nvmlDeviceGetCurrentClocksEventReasons": 4, "nvmlDeviceGetCurrentClocksThrottleReasons": 4,
    "nvmlGpmQueryDeviceSupport": SimpleNamespace(isSupportedDevice=1),
    "nvmlGpmSampleAlloc": "sample", "nvmlGpmSampleGet": "sample",
}  # fmt: skip
"""Answers of a device that offers everything; what changes from call to call is in `FakeNvml`."""


class FakeNvml:
    """As much of pynvml as a device offers; `fails` and `absent` name calls."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    NVML_FI_DEV_PCIE_COUNT_TX_BYTES, NVML_FI_DEV_PCIE_COUNT_RX_BYTES = 197, 198
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 138, 139
    NVML_GPM_METRICS_GET_VERSION = 1
    NVML_GPM_METRIC_SM_UTIL, NVML_GPM_METRIC_DRAM_BW_UTIL = 2, 10
    nvmlClocksEventReasonSwPowerCap, nvmlClocksEventReasonHwSlowdown = 4, 8
    NVMLError = Refused

    def __init__(self, *, fails=(), absent=(), start=None, **answers):
        self.fails, self.absent, self.start = set(fails), set(absent), start
        self.answers = ANSWERS | answers
        self.energy, self.freed = 1000, 0

    def __getattribute__(self, name):
        if name.startswith("nvml") and name not in ("nvmlInit",):
            if name in self.absent:
                raise AttributeError(name)
            if name in self.fails:
                return self._refuse
            if name in self.answers:
                return lambda *_: self.answers[name]
        return super().__getattribute__(name)

    def _refuse(self, *args):
        raise Refused("Not Supported")

    def nvmlInit(self):
        if self.start is not None:
            raise self.start

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        self.energy += 500
        return self.energy

    def nvmlDeviceGetClockInfo(self, handle, kind):
        return 1500 if kind == 1 else 2600

    def nvmlDeviceGetFieldValues(self, handle, fields):
        value = SimpleNamespace(ullVal=self.energy, uiVal=1)
        return [SimpleNamespace(nvmlReturn=0, valueType=3, value=value)]

    def nvmlGpmSampleFree(self, sample):
        self.freed += 1

    def c_nvmlGpmMetricsGet_t(self):
        metrics = [SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(9)]
        return SimpleNamespace(metrics=metrics)

    def nvmlGpmMetricsGet(self, request):
        for metric in request.metrics[: request.numMetrics]:
            metric.value = 10.0 * metric.metricId
            metric.nvmlReturn = 0 if metric.metricId != 10 else 3


def sampled(fake, seconds=0.03):
    sampler = GpuSampler(Nvml(fake), period_s=0.005).start()
    time.sleep(seconds)
    return sampler.stop()


def test_a_device_that_offers_everything():
    fake = FakeNvml()
    found = sampled(fake)
    assert found["gpu_kernel_resident_percent"] == 42
    assert found["gpu_memory_peak_bytes"] == 3 << 30
    assert found["gpu_power_mw"] == 100_000
    assert found["gpu_sm_clock_mhz"] == found["gpu_sm_clock_min_mhz"] == 1500
    assert found["gpu_memory_clock_mhz"] == 2600
    assert found["gpu_temperature_peak_c"] == 55
    assert (found["energy_mj"], found["energy_source"]) == (500, "counter")
    assert found["pcie_tx_bytes"] == 500
    assert found["nvlink_rx_bytes"] == 500 * 1024
    assert found["gpu_throttle"] == ["software power cap"]
    assert found["gpm_sm_active_percent"] == 20
    assert found["gpm_dram_percent"] == "NVML error 3"
    assert found["gpu_sample_period_s"] == 0.005
    assert fake.freed == 2


def course_of(fake, samples=4, period=0.2, begin=50.0, monkeypatch=None):
    """Sample without a thread and at times that are told."""
    recording = Recording(begin=begin)
    sampler = GpuSampler(Nvml(fake), recording=recording)
    sampler.start()
    sampler._stop.set()
    sampler._thread.join()
    for name in list(recording.rings):
        del recording.rings[name]
    clock = SimpleNamespace(now=begin)
    monkeypatch.setattr(nvml_module.time, "monotonic", lambda: clock.now)
    sampler._next_gpm = 0.0
    for i in range(samples):
        clock.now = begin + i * period
        sampler._sample(course=True)
    clock.now = begin + samples * period
    return recording, sampler.stop()


def test_the_course_of_a_gpu_is_recorded_with_its_limits(monkeypatch):
    fake = FakeNvml()
    recording, found = course_of(fake, monkeypatch=monkeypatch)
    assert set(recording.rings) == {
        "gpu_memory", "gpu_resident", "gpu_power", "gpu_sm_clock", "gpm_sm_active",
    }  # fmt: skip
    assert recording.limits == {
        "gpu_memory": 8 << 30, "gpu_power": 700_000, "gpu_sm_clock": 1980, "gpu_resident": 100,
        "gpm_sm_active": 100, "gpm_tensor": 100, "gpm_dram": 100,
    }  # fmt: skip
    assert recording.rings["gpu_resident"].high[0] == 42
    assert [v for v in recording.rings["gpm_sm_active"].high if v is not None] == [20.0] * 3
    assert recording.reasons.pop("gpm_dram") == "NVML error 3"
    assert set(recording.reasons) == set(COURSE) - {"gpm_sm_active", "gpm_dram"}
    assert set(recording.reasons.values()) == {"not offered by this nvidia-ml-py"}
    assert found["gpm_sm_active_percent"] == 20
    assert found["gpu_sampling_core_percent"] >= 0
    assert fake.freed == 4  # first, last, and two that take turns
    packed = pack(recording, 0.8)
    assert packed["tracks"]["gpu_memory"]["low"][0] == 3072
    assert packed["tracks"]["gpu_power"]["limit"] == 700


def test_counters_of_32_bits_may_wrap_any_number_of_times(monkeypatch):
    fake = FakeNvml()
    sampler = GpuSampler(Nvml(fake))
    readings = iter([4_000_000_000, 100, 3_000_000_000, 50, 60])
    monkeypatch.setattr(sampler, "_field", lambda *_: next(readings))
    for _ in range(5):
        now, grown = sampler._grown("pcie_tx_bytes")
    assert now == 60
    wrapped = (2**32 - 4_000_000_000 + 100) + 2_999_999_900 + (2**32 - 3_000_000_000 + 50) + 10
    assert grown == wrapped > 2**32


LOSES = {
    "nvmlDeviceGetUtilizationRates": {"gpu_kernel_resident_percent"},
    "nvmlDeviceGetMemoryInfo": {"gpu_memory_peak_bytes"},
    "nvmlDeviceGetPowerUsage": {"gpu_power_mw"},
    "nvmlDeviceGetClockInfo": {"gpu_sm_clock_mhz", "gpu_memory_clock_mhz", "gpu_sm_clock_min_mhz"},
    "nvmlDeviceGetTemperature": {"gpu_temperature_peak_c"},
    "nvmlDeviceGetFieldValues": {
        "pcie_tx_bytes",
        "pcie_rx_bytes",
        "nvlink_tx_bytes",
        "nvlink_rx_bytes",
    },
    "nvmlGpmQueryDeviceSupport": {"gpm_sm_active_percent", "gpm_dram_percent"},
    "nvmlGpmSampleAlloc": {"gpm_sm_active_percent", "gpm_dram_percent"},
    "nvmlGpmSampleGet": {"gpm_sm_active_percent", "gpm_dram_percent"},
    "nvmlGpmMetricsGet": {"gpm_sm_active_percent", "gpm_dram_percent"},
}


@pytest.mark.parametrize("how", ["fails", "absent"])
@pytest.mark.parametrize("call", LOSES)
def test_what_one_call_refuses_has_a_reason_and_nothing_else_is_lost(call, how):
    whole = sampled(FakeNvml(), 0.01)
    fake = FakeNvml(**{how: [call]})
    found = sampled(fake, 0.01)
    lost = {k for k in whole if type(found.get(k)) is not type(whole[k])}
    assert lost - {"gpm_dram_percent"} == LOSES[call] - {"gpm_dram_percent"}
    for name in lost & set(found):
        assert "not offered" in found[name]
    if "Gpm" in call:
        assert all("not offered" in found[name] for name in METRICS)


@pytest.mark.parametrize(
    ("error", "reason"),
    [(NVMLError_DriverNotLoaded("x"), "no NVIDIA driver"), (Refused("odd"), "odd")],
)
def test_nvml_that_does_not_start(error, reason):
    nvml = Nvml(FakeNvml(start=error))
    assert reason in nvml.reason
    assert nvml.handles() == []
    assert nvml.describe() == []
    assert reason in GpuSampler(nvml).start().stop()["gpu"]
    nvml.close()


def test_the_gpu_count_follows_torch_and_the_environment(monkeypatch):
    import torch

    monkeypatch.setattr(facts_module, "gpu_facts", lambda: [{}, {}, {}])
    monkeypatch.setattr(torch.version, "cuda", None)
    assert gpu_count() == 0
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpu_count() == 3
    for shown, count in (("", 0), ("-1", 0), ("1", 1), ("0,2", 2), ("0,1,2,3", 3)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
        assert gpu_count() == count


def test_a_tree_counts_its_children_and_ends_at_zero():
    inner = "import time; x = bytearray(60 << 20); print('x', flush=True); time.sleep(30)"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    process = subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE)
    try:
        process.stdout.read(1)
        tree = Tree(process.pid)
        alone = psutil.Process(process.pid).memory_info().rss
        assert tree.rss() > alone + (55 << 20)
        assert tree.processes == 2
        assert len(tree.pids()) == 2
        for pid in reversed(tree.pids()):
            os.kill(pid, 9)
    finally:
        process.kill()
        process.communicate()
    assert Tree(process.pid).rss() == 0
    assert tree.peak_bytes > 55 << 20


def test_a_name_that_nobody_writes_is_refused_with_the_nearest():
    with pytest.raises(UnknownKeyError) as caught:
        probe("gpu_kernel_resident")
    assert "gpu_kernel_resident_percent" in caught.value.hint
    with pytest.raises(UnknownKeyError):
        probe("gpu_util_percent")


def test_a_probe_reads_numbers_words_and_reasons():
    row = SimpleNamespace(probes={"energy_mj": 3, "gpu_throttle": ["a"], "gpm_dram_percent": "no"})
    assert probe("energy_mj").read(row) == 3.0
    assert probe("gpu_throttle").words(row) == ["a"]
    assert probe("gpu_throttle").read(row) is None
    dram = probe("gpm_dram_percent")
    assert dram.read(row) is None
    assert dram.refusal(row) == "no"
    assert probe("cpu_percent").read(row) is None
    assert probe("cpu_percent").refusal(row) == ""
    assert sources(row.probes) == ["nvml"]


@pytest.mark.usefixtures("warm_starts")
def test_everything_that_is_written_is_registered(tmp_path):
    plan = Plan.build([make_paper(cell("ok"))], None, "smoke", control="none")
    settings = {"limits": False, "modules": ("torch",), "lookup": lookup, "threads": 1}
    with Store.create(tmp_path) as store:
        run_plan(plan, store, listener=Listener(), **settings)
        (row,) = store.written()
    assert set(row.probes) <= set(PROBES)
    assert len(row.probes) >= 6
    assert {PROBES[name].source for name in row.probes} == {"process", "machine"}
    assert set(MachineActivity().probes(0.0)) <= {
        n for n, p in PROBES.items() if p.source == "machine"
    }
    assert set(METRICS) <= {n for n, p in PROBES.items() if p.source == "gpm"}
