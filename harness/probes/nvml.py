"""GPU counters through NVML (package nvidia-ml-py). What a device does not offer has a reason."""

from __future__ import annotations

import contextlib
import importlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dgbench.harness.probes.gpm import COURSE, METRICS, Gpm, reason
from dgbench.harness.probes.gpm import PERIOD_S as GPM_PERIOD_S
from dgbench.harness.probes.series import Recording

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

SHARE = 0.004
"""Share of a core that sampling may take; where a reading costs more, readings become rarer."""

_TRACKS = {
    "gpu_kernel_resident_percent": "gpu_resident",
    "gpu_memory_peak_bytes": "gpu_memory",
    "gpu_power_mw": "gpu_power",
    "gpu_sm_clock_mhz": "gpu_sm_clock",
}
"""Probes whose course over time is kept, and the tracks of a series that they become."""

_WRAP = 1 << 32
"""NVML's PCIe counters have 32 bits."""


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
        return [
            {name: _try(ask) for name, ask in self._facts(handle).items()}
            for handle in self.handles()
        ]

    def _facts(self, handle: Any) -> dict[str, Callable[[], Any]]:
        m = self.module
        return {
            "name": lambda: _text(m.nvmlDeviceGetName(handle)),
            "memory_bytes": lambda: int(m.nvmlDeviceGetMemoryInfo(handle).total),
            "driver": lambda: _text(m.nvmlSystemGetDriverVersion()),
            "power_limit_mw": lambda: int(m.nvmlDeviceGetEnforcedPowerLimit(handle)),
            "max_sm_clock_mhz": lambda: int(m.nvmlDeviceGetMaxClockInfo(handle, m.NVML_CLOCK_SM)),
            "pcie_generation": lambda: int(m.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
            "pcie_width": lambda: int(m.nvmlDeviceGetCurrPcieLinkWidth(handle)),
            "compute_capability": lambda: ".".join(
                map(str, m.nvmlDeviceGetCudaComputeCapability(handle))
            ),
        }


@dataclass(slots=True)
class _CounterReadings:
    """Readings of one counter so far."""

    count: int = 0
    total: float = 0.0
    low: float = float("inf")
    high: float = float("-inf")

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.low, self.high = min(self.low, value), max(self.high, value)

    @property
    def mean(self) -> float:
        return self.total / self.count


class GpuSampler:
    """Samples one GPU from a thread of the runner, while another process uses it.

    Counters of the whole device: what other processes do on it is in them. The thread measures
    its own processor time and samples more rarely where it would take more than `SHARE` of a core.
    """

    def __init__(
        self,
        nvml: Nvml,
        index: int = 0,
        *,
        period_s: float = PERIOD_S,
        recording: Recording | None = None,
    ) -> None:
        """With a `recording`, what is read over time goes there as well."""
        self.nvml, self.period_s, self.recording = nvml, period_s, recording
        handles = nvml.handles()
        self.handle = handles[index] if index < len(handles) else None
        self.reason = "" if handles else nvml.reason or "NVML lists no devices"
        if handles and self.handle is None:
            self.reason = f"there is no GPU {index}, NVML lists {len(handles)}"
        self._seen: dict[str, _CounterReadings] = {}
        self._refused: dict[str, str] = {}
        self._throttle = 0
        self._before: dict[str, int] = {}
        self._wrapping: dict[str, tuple[int, int]] = {}
        self._lost: dict[str, str] = {}
        self._gpm: Gpm | None = None
        self._next_gpm = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._start = 0.0
        self._spent = 0.0

    def start(self) -> GpuSampler:
        """Begin to sample. Does nothing where there is no device."""
        if self.handle is None:
            self._no_course(self.reason)
            return self
        self._start = time.perf_counter()
        self._before = self._totals()
        self._gpm = Gpm(self.nvml.module, self.handle)
        self._limits()
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
        self._sample(course=False)
        seconds = time.perf_counter() - self._start
        found: dict[str, Any] = {"gpu_sample_period_s": self.period_s}
        found["gpu_sampling_core_percent"] = round(100 * self._spent / max(seconds, 1e-9), 3)
        for name, refusal in self._refused.items():
            if name not in self._seen:
                found[name] = refusal
        for name, seen in self._seen.items():
            found[name] = seen.high if "peak" in name else seen.mean
            if name == "gpu_sm_clock_mhz":
                found["gpu_sm_clock_min_mhz"] = seen.low
        found.update(self._differences(seconds))
        if "gpu_throttle" not in self._refused:
            found["gpu_throttle"] = self._throttle_words()
        found.update(
            self._gpm.metrics() if self._gpm is not None else dict.fromkeys(METRICS, "not offered")
        )
        return found

    def _loop(self) -> None:
        period, count, begin = self.period_s, 0, time.thread_time()
        while not self._stop.wait(period):
            self._sample(course=True)
            count += 1
            self._spent = time.thread_time() - begin
            period = max(self.period_s, self._spent / count / SHARE)

    def _sample(self, *, course: bool) -> None:
        m, h = self.nvml.module, self.handle
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
            if name in self._refused and name not in self._seen:
                continue  # a counter that is not offered will not be offered later
            try:
                value = float(ask())
            except Exception as error:
                self._refused[name] = why = reason(error)
                if course:
                    self._interrupt(name, why)
                continue
            self._seen.setdefault(name, _CounterReadings()).add(value)
            if course and name in _TRACKS:
                self._record(_TRACKS[name], value)
        if "gpu_throttle" not in self._refused:
            try:
                self._throttle |= int(self._ask_throttle())
            except Exception as error:
                self._refused["gpu_throttle"] = reason(error)
        for name in list(self._wrapping):
            try:
                self._wrapping[name] = self._grown(name)
            except Exception as error:
                # It may wrap unseen before it comes back, and a sum without that is no sum.
                self._lost[name] = self._refused[name] = reason(error)
                del self._wrapping[name]
        if course:
            self._gpm_step()

    def _record(self, track: str, value: float) -> None:
        if self.recording is None:
            return
        self.recording.add(track, time.monotonic(), value)
        if (ring := self.recording.rings.get(track)) is not None:
            ring.reason = ""

    def _interrupt(self, name: str, why: str) -> None:
        """A counter refused: for good, or from here on."""
        if self.recording is None or name not in _TRACKS:
            return
        track = _TRACKS[name]
        if (ring := self.recording.rings.get(track)) is not None:
            ring.reason = why
        else:
            self.recording.reasons[track] = why

    def _gpm_step(self) -> None:
        gpm, recording, now = self._gpm, self.recording, time.monotonic()
        if gpm is None or recording is None or now < self._next_gpm:
            return
        self._next_gpm = now + GPM_PERIOD_S
        for track, value in gpm.step().items():
            self._record(track, value)
        for track in COURSE:
            why = gpm.reason or gpm.steps.get(track, "")
            if why and (ring := recording.rings.get(track)) is not None:
                ring.reason = why
            elif why:
                recording.reasons[track] = why

    def _limits(self) -> None:
        if self.recording is None:
            return
        m, h = self.nvml.module, self.handle
        asked: dict[str, Callable[[], float]] = {
            "gpu_memory": lambda: float(m.nvmlDeviceGetMemoryInfo(h).total),
            "gpu_power": lambda: float(m.nvmlDeviceGetEnforcedPowerLimit(h)),
            "gpu_sm_clock": lambda: float(m.nvmlDeviceGetMaxClockInfo(h, m.NVML_CLOCK_SM)),
        }
        for track, ask in asked.items():
            with contextlib.suppress(Exception):
                self.recording.limits[track] = ask()
        shares = [track for track, metric in COURSE.items() if metric.endswith("_percent")]
        self.recording.limits |= dict.fromkeys(("gpu_resident", *shares), 100.0)

    def _no_course(self, why: str) -> None:
        if self.recording is not None:
            self.recording.reasons |= dict.fromkeys((*_TRACKS.values(), *COURSE), why)

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
            "pcie_tx_bytes": lambda: self._grown("pcie_tx_bytes")[1],
            "pcie_rx_bytes": lambda: self._grown("pcie_rx_bytes")[1],
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
            if name in self._lost:
                continue
            try:
                found[name] = ask()
            except Exception as error:
                self._refused[name] = reason(error)
        return found

    def _grown(self, name: str) -> tuple[int, int]:
        """A PCIe counter's reading and how far it has come since the first one.

        It wraps every 67 ms at 64 GB/s, so it is followed from sample to sample.
        """
        now = self._field(f"NVML_FI_DEV_PCIE_COUNT_{name[5:7].upper()}_BYTES")
        before, grown = self._wrapping.get(name, (now, 0))
        step = now - before
        self._wrapping[name] = now, grown + (step if step >= 0 else step + _WRAP)
        return self._wrapping[name]

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
        found: dict[str, Any] = {name: after[name] - before[name] for name in before
                                 if name in after}  # fmt: skip
        found |= {name: self._refused[name] for name in before if name not in after}
        if "energy_mj" in after and "energy_mj" in before:
            found["energy_source"] = "counter"
        elif seen := self._seen.get("gpu_power_mw"):
            found["energy_mj"] = seen.mean * seconds
            found["energy_source"] = "mean of power samples times seconds"
        return found


def _try(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Exception as error:
        return reason(error)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
