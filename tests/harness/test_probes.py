"""Probes of a process, the machine and a GPU, by names that the harness writes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest

from dgbench.harness.machine import facts as facts_module
from dgbench.harness.machine import gpu_count
from dgbench.harness.probes import GpuSampler, Nvml, Tree
from dgbench.harness.probes import nvml as nvml_module
from dgbench.harness.probes.gpm import COURSE
from dgbench.harness.probes.series import Recording, pack


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
    expected = {
        "gpu_kernel_resident_percent": 42, "gpu_memory_peak_bytes": 3 << 30,
        "gpu_power_mw": 100_000, "gpu_sm_clock_mhz": 1500, "gpu_sm_clock_min_mhz": 1500,
        "gpu_memory_clock_mhz": 2600, "gpu_temperature_peak_c": 55, "energy_mj": 500,
        "energy_source": "counter", "pcie_tx_bytes": 500, "nvlink_rx_bytes": 500 * 1024,
        "gpu_throttle": ["software power cap"], "gpm_sm_active_percent": 20,
        "gpm_dram_percent": "NVML error 3", "gpu_sample_period_s": 0.005,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert fake.freed == 2


def test_the_course_of_a_gpu_is_recorded_with_its_limits(monkeypatch):
    """Four samples without a thread, at times that are told."""
    fake, recording = FakeNvml(), Recording(begin=50.0)
    sampler = GpuSampler(Nvml(fake), recording=recording).start()
    sampler._stop.set()
    sampler._thread.join()
    recording.rings.clear()
    sampler._next_gpm = 0.0
    for now in (50.0, 50.2, 50.4, 50.6):
        monkeypatch.setattr(nvml_module.time, "monotonic", lambda now=now: now)
        sampler._sample(course=True)
    found = sampler.stop()
    assert set(recording.rings) == {
        "gpu_memory", "gpu_resident", "gpu_power", "gpu_sm_clock", "gpm_sm_active",
    }  # fmt: skip
    assert recording.limits == {
        "gpu_memory": 8 << 30, "gpu_power": 700_000, "gpu_sm_clock": 1980, "gpu_resident": 100,
        "gpm_sm_active": 100, "gpm_tensor": 100, "gpm_dram": 100,
    }  # fmt: skip
    assert recording.rings["gpu_resident"].high[0] == 42
    assert [v for v in recording.rings["gpm_sm_active"].high if v is not None] == [20.0] * 3
    assert recording.reasons["gpm_dram"] == "NVML error 3"
    assert set(recording.reasons) == set(COURSE) - {"gpm_sm_active"}
    assert found["gpu_sampling_core_percent"] >= 0
    assert fake.freed == 4  # first, last, and two that take turns
    packed = pack(recording, 0.8)
    assert packed["tracks"]["gpu_memory"]["low"][0] == 3072
    assert packed["tracks"]["gpu_power"]["limit"] == 700


GPM = "gpm_sm_active_percent"
LOSES = {
    "nvmlDeviceGetUtilizationRates": "gpu_kernel_resident_percent",
    "nvmlDeviceGetMemoryInfo": "gpu_memory_peak_bytes",
    "nvmlDeviceGetPowerUsage": "gpu_power_mw",
    "nvmlDeviceGetClockInfo": "gpu_sm_clock_mhz gpu_memory_clock_mhz gpu_sm_clock_min_mhz",
    "nvmlDeviceGetTemperature": "gpu_temperature_peak_c",
    "nvmlDeviceGetFieldValues": "pcie_tx_bytes pcie_rx_bytes nvlink_tx_bytes nvlink_rx_bytes",
    "nvmlGpmQueryDeviceSupport": GPM, "nvmlGpmSampleAlloc": GPM, "nvmlGpmSampleGet": GPM,
    "nvmlGpmMetricsGet": GPM,
}  # fmt: skip


@pytest.fixture(scope="module")
def whole():
    return sampled(FakeNvml(), 0.01)


@pytest.mark.parametrize("how", ["fails", "absent"])
@pytest.mark.parametrize("call", LOSES)
def test_what_one_call_refuses_has_a_reason_and_nothing_else_is_lost(whole, call, how):
    found = sampled(FakeNvml(**{how: [call]}), 0.01)
    lost = {k for k in whole if type(found.get(k)) is not type(whole[k])}
    assert lost - {"gpm_dram_percent"} == set(LOSES[call].split())
    assert all("not offered" in found[name] for name in lost & set(found))


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
