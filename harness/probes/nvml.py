"""GPU counters through NVML (package nvidia-ml-py). What a device does not offer has a reason."""

from __future__ import annotations

import contextlib
import importlib
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

PERIOD_S = 0.05
"""Seconds between two samples; the driver itself renews utilisation only every 20 to 170 ms."""

_REASONS = {
    "SwPowerCap": "software power cap",
    "HwSlowdown": "hardware slowdown",
    "SyncBoost": "sync boost",
    "SwThermalSlowdown": "software thermal slowdown",
    "HwThermalSlowdown": "hardware thermal slowdown",
    "HwPowerBrakeSlowdown": "power brake",
    "ApplicationsClocksSetting": "application clocks",
}

_GPM = {
    "gpm_sm_active_percent": "NVML_GPM_METRIC_SM_UTIL",
    "gpm_sm_occupancy_percent": "NVML_GPM_METRIC_SM_OCCUPANCY",
    "gpm_tensor_percent": "NVML_GPM_METRIC_ANY_TENSOR_UTIL",
    "gpm_fp32_percent": "NVML_GPM_METRIC_FP32_UTIL",
    "gpm_dram_percent": "NVML_GPM_METRIC_DRAM_BW_UTIL",
    "gpm_pcie_tx_mibs": "NVML_GPM_METRIC_PCIE_TX_PER_SEC",
    "gpm_pcie_rx_mibs": "NVML_GPM_METRIC_PCIE_RX_PER_SEC",
}


class Nvml:
    """NVML, opened; or the reason why it is not there.

    Attributes:
        reason: "" where NVML works, else one sentence. module: `pynvml`, or None.
    """

    def __init__(self, module: Any = None) -> None:
        """Open NVML. `module` replaces `pynvml` (for tests)."""
        self.module: Any = None
        self.reason = ""
        if module is None:
            try:
                module = importlib.import_module("pynvml")
            except ImportError as error:
                self.reason = f"package nvidia-ml-py is missing: {error}"
                return
        try:
            module.nvmlInit()
        except Exception as error:  # NVML's errors are classes made at import; any will do
            found = type(error).__name__
            missing = "LibraryNotFound" in found or "DriverNotLoaded" in found
            self.reason = "no NVIDIA driver" if missing else f"NVML does not start: {error}"
            return
        self.module = module

    def close(self) -> None:
        """Close NVML; may be called twice."""
        if self.module is not None:
            with contextlib.suppress(Exception):
                self.module.nvmlShutdown()
            self.module = None
            self.reason = self.reason or "NVML was closed"

    def __enter__(self) -> Nvml:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def handles(self) -> list[Any]:
        """Handles of all GPUs; empty where NVML does not work."""
        if self.module is None:
            return []
        try:
            count = self.module.nvmlDeviceGetCount()
            return [self.module.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
        except Exception as error:
            self.reason = f"NVML lists no devices: {error}"
            return []

    def describe(self) -> list[dict[str, Any]]:
        """Facts of each GPU; a fact the device does not offer is the reason instead."""
        m = self.module
        found = []
        for handle in self.handles():
            asked: dict[str, Callable[[], Any]] = {
                "name": lambda h=handle: _text(m.nvmlDeviceGetName(h)),
                "memory_bytes": lambda h=handle: int(m.nvmlDeviceGetMemoryInfo(h).total),
                "driver": lambda: _text(m.nvmlSystemGetDriverVersion()),
                "power_limit_mw": lambda h=handle: int(m.nvmlDeviceGetEnforcedPowerLimit(h)),
                "max_sm_clock_mhz": lambda h=handle: int(
                    m.nvmlDeviceGetMaxClockInfo(h, m.NVML_CLOCK_SM)
                ),
                "pcie_generation": lambda h=handle: int(m.nvmlDeviceGetCurrPcieLinkGeneration(h)),
                "pcie_width": lambda h=handle: int(m.nvmlDeviceGetCurrPcieLinkWidth(h)),
                "compute_capability": lambda h=handle: ".".join(
                    map(str, m.nvmlDeviceGetCudaComputeCapability(h))
                ),
            }
            found.append({name: _try(ask) for name, ask in asked.items()})
        return found


class GpuSampler:
    """Samples one GPU from a thread of the runner, while another process uses it.

    Counters of the whole device: what other processes do on it is in them.
    """

    def __init__(self, nvml: Nvml, index: int = 0, *, period_s: float = PERIOD_S) -> None:
        self.nvml, self.period_s = nvml, period_s
        handles = nvml.handles()
        self.handle = handles[index] if index < len(handles) else None
        self.reason = "" if handles else nvml.reason or "NVML lists no devices"
        if handles and self.handle is None:
            self.reason = f"there is no GPU {index}, NVML lists {len(handles)}"
        self._series: dict[str, list[tuple[float, float]]] = {}
        self._refused: dict[str, str] = {}
        self._throttle = 0
        self._before: dict[str, int] = {}
        self._gpm: Any = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._start = 0.0

    def start(self) -> GpuSampler:
        """Begin to sample. Does nothing where there is no device."""
        if self.handle is not None:
            self._start = time.perf_counter()
            self._before = self._totals()
            self._gpm = self._gpm_sample()
            self._thread = threading.Thread(target=self._loop, name="dgbench-nvml", daemon=True)
            self._thread.start()
        return self

    def stop(self) -> dict[str, Any]:
        """End sampling; what was found, by name, a number or the reason why there is none."""
        if self.handle is None:
            return {"gpu": self.reason}
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
        self._sample()
        seconds = time.perf_counter() - self._start
        found: dict[str, Any] = {"gpu_sample_period_s": self.period_s}
        for name, refusal in self._refused.items():
            if name not in self._series:
                found[name] = refusal
        for name, points in self._series.items():
            values = [value for _, value in points]
            found[name] = max(values) if "peak" in name else sum(values) / len(values)
            if name == "gpu_sm_clock_mhz":
                found["gpu_sm_clock_min_mhz"] = min(values)
        found.update(self._differences(seconds))
        if "gpu_throttle" not in self._refused:
            found["gpu_throttle"] = self._throttle_words()
        found.update(self._gpm_metrics())
        return found

    def _loop(self) -> None:
        while not self._stop.wait(self.period_s):
            self._sample()

    def _sample(self) -> None:
        m, h = self.nvml.module, self.handle
        now = time.perf_counter()
        asked: dict[str, Callable[[], float]] = {
            # NVML calls it utilisation; it is the share of time in which any kernel was resident.
            "gpu_kernel_resident_percent": lambda: m.nvmlDeviceGetUtilizationRates(h).gpu,
            "gpu_memory_peak_bytes": lambda: m.nvmlDeviceGetMemoryInfo(h).used,
            "gpu_power_mw": lambda: m.nvmlDeviceGetPowerUsage(h),
            "gpu_sm_clock_mhz": lambda: m.nvmlDeviceGetClockInfo(h, m.NVML_CLOCK_SM),
            "gpu_memory_clock_mhz": lambda: m.nvmlDeviceGetClockInfo(h, m.NVML_CLOCK_MEM),
            "gpu_temperature_peak_c": lambda: m.nvmlDeviceGetTemperature(h, m.NVML_TEMPERATURE_GPU),
        }
        for name, ask in asked.items():
            if name in self._refused:
                continue  # a counter that is not offered will not be offered later
            try:
                self._series.setdefault(name, []).append((now, float(ask())))
            except Exception as error:
                if not self._series.get(name):
                    self._series.pop(name, None)
                    self._refused[name] = _reason(error)
        if "gpu_throttle" not in self._refused:
            try:
                self._throttle |= int(self._ask_throttle())
            except Exception as error:
                self._refused["gpu_throttle"] = _reason(error)

    def _ask_throttle(self) -> int:
        m = self.nvml.module
        ask = getattr(m, "nvmlDeviceGetCurrentClocksEventReasons", None)
        ask = ask or m.nvmlDeviceGetCurrentClocksThrottleReasons
        return ask(self.handle)

    def _throttle_words(self) -> list[str]:
        m, words = self.nvml.module, []
        for name, word in _REASONS.items():
            bit = getattr(m, f"nvmlClocksEventReason{name}", None)
            bit = getattr(m, f"nvmlClocksThrottleReason{name}", 0) if bit is None else bit
            if bit and self._throttle & bit:
                words.append(word)
        return words

    def _totals(self) -> dict[str, int]:
        """Counters that only grow: energy in mJ, PCIe and NVLink bytes."""
        m, h = self.nvml.module, self.handle
        asked: dict[str, Callable[[], int]] = {
            "energy_mj": lambda: int(m.nvmlDeviceGetTotalEnergyConsumption(h)),
            "pcie_tx_bytes": lambda: self._field("NVML_FI_DEV_PCIE_COUNT_TX_BYTES"),
            "pcie_rx_bytes": lambda: self._field("NVML_FI_DEV_PCIE_COUNT_RX_BYTES"),
            # NVML counts these in KiB; scope 0xffffffff sums all links.
            "nvlink_tx_bytes": lambda: (
                1024 * self._field("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", 0xFFFFFFFF)
            ),
            "nvlink_rx_bytes": lambda: (
                1024 * self._field("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX", 0xFFFFFFFF)
            ),
        }
        found = {}
        for name, ask in asked.items():
            try:
                found[name] = ask()
            except Exception as error:
                self._refused[name] = _reason(error)
        return found

    def _field(self, name: str, scope: int = 0) -> int:
        m = self.nvml.module
        value = m.nvmlDeviceGetFieldValues(self.handle, [(getattr(m, name), scope)])[0]
        if value.nvmlReturn != 0:
            raise m.NVMLError(value.nvmlReturn)
        kinds = {
            getattr(m, "NVML_VALUE_TYPE_UNSIGNED_INT", 1): "uiVal",
            getattr(m, "NVML_VALUE_TYPE_UNSIGNED_LONG", 2): "ulVal",
            getattr(m, "NVML_VALUE_TYPE_SIGNED_LONG_LONG", 4): "sllVal",
        }
        return int(getattr(value.value, kinds.get(value.valueType, "ullVal")))

    def _differences(self, seconds: float) -> dict[str, Any]:
        before, after = self._before, self._totals()
        found: dict[str, Any] = {}
        for name in before:
            if name in after:
                found[name] = after[name] - before[name]
                if name.startswith("pcie_") and found[name] < 0:
                    found[name] += 1 << 32  # a counter of 32 bits that began again
        if "energy_mj" in found:
            found["energy_source"] = "counter"
        elif points := self._series.get("gpu_power_mw"):
            mean = sum(value for _, value in points) / len(points)
            found["energy_mj"] = mean * seconds
            found["energy_source"] = "mean of power samples times seconds"
        return found

    def _gpm_sample(self) -> Any:
        m, sample = self.nvml.module, None
        try:
            if not m.nvmlGpmQueryDeviceSupport(self.handle).isSupportedDevice:
                self._refused["gpm"] = "not supported by this device (it needs Hopper or later)"
                return None
            sample = m.nvmlGpmSampleAlloc()
            m.nvmlGpmSampleGet(self.handle, sample)
            return sample
        except Exception as error:
            self._refused["gpm"] = _reason(error)
            _free(m, (sample,))
            return None

    def _gpm_metrics(self) -> dict[str, Any]:
        """Averages between two hardware samples, one at the start and one at the end."""
        if self._gpm is None:
            return {"gpm": self._refused.get("gpm", "not offered")}
        m, first, last = self.nvml.module, self._gpm, None
        try:
            last = m.nvmlGpmSampleAlloc()
            m.nvmlGpmSampleGet(self.handle, last)
            names = {key: getattr(m, name) for key, name in _GPM.items() if hasattr(m, name)}
            request = m.c_nvmlGpmMetricsGet_t()
            request.version = m.NVML_GPM_METRICS_GET_VERSION
            request.numMetrics = len(names)
            request.sample1, request.sample2 = first, last
            for i, number in enumerate(names.values()):
                request.metrics[i].metricId = number
            m.nvmlGpmMetricsGet(request)
            found: dict[str, Any] = {}
            for i, key in enumerate(names):
                metric = request.metrics[i]
                wrong = metric.nvmlReturn
                found[key] = float(metric.value) if wrong == 0 else f"NVML error {wrong}"
            return found
        except Exception as error:
            return {"gpm": _reason(error)}
        finally:
            _free(m, (first, last))
            self._gpm = None


def _free(module: Any, samples: Iterable[Any]) -> None:
    for sample in samples:
        if sample is not None:
            with contextlib.suppress(Exception):
                module.nvmlGpmSampleFree(sample)


def _try(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Exception as error:
        return _reason(error)


def _reason(error: Exception) -> str:
    if isinstance(error, AttributeError):
        return "not offered by this nvidia-ml-py"
    return f"not offered: {error}"


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
