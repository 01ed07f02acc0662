"""GPU performance monitoring (Hopper and later): shares of time between two hardware samples."""

from __future__ import annotations

import contextlib
from typing import Any, Final

METRICS: Final = {
    "gpm_sm_active_percent": "NVML_GPM_METRIC_SM_UTIL",
    "gpm_sm_occupancy_percent": "NVML_GPM_METRIC_SM_OCCUPANCY",
    "gpm_tensor_percent": "NVML_GPM_METRIC_ANY_TENSOR_UTIL",
    "gpm_fp32_percent": "NVML_GPM_METRIC_FP32_UTIL",
    "gpm_dram_percent": "NVML_GPM_METRIC_DRAM_BW_UTIL",
    "gpm_pcie_tx_mibs": "NVML_GPM_METRIC_PCIE_TX_PER_SEC",
    "gpm_pcie_rx_mibs": "NVML_GPM_METRIC_PCIE_RX_PER_SEC",
    "gpm_nvlink_tx_mibs": "NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC",
    "gpm_nvlink_rx_mibs": "NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC",
}
COURSE: Final = {
    "gpm_sm_active": "gpm_sm_active_percent",
    "gpm_tensor": "gpm_tensor_percent",
    "gpm_dram": "gpm_dram_percent",
    "gpm_pcie_rx": "gpm_pcie_rx_mibs",
    "gpm_pcie_tx": "gpm_pcie_tx_mibs",
    "gpm_nvlink_rx": "gpm_nvlink_rx_mibs",
    "gpm_nvlink_tx": "gpm_nvlink_tx_mibs",
}
"""Tracks of a series, and the metrics that they are made of."""

PERIOD_S: Final = 0.1
"""Seconds between two hardware samples; NVIDIA asks for at least that many."""


class Gpm:
    """Hardware samples of one device: the first, the last, and pairs in between.

    Attributes:
        reason: why there are none, or "". steps: by track, why its course is not offered.
    """

    def __init__(self, module: Any, handle: Any) -> None:
        """Take the first sample, where the device has any."""
        self.module, self.handle = module, handle
        self.reason = ""
        self.steps: dict[str, str] = {}
        self._first: Any = None
        self._before: Any = None
        self._after: Any = None
        try:
            if not module.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
                self.reason = "not supported by this device (it needs Hopper or later)"
                return
            self._first = module.nvmlGpmSampleAlloc()
            module.nvmlGpmSampleGet(handle, self._first)
        except Exception as error:
            self.reason = reason(error)
            self.close()

    def step(self) -> dict[str, float]:
        """Each track of `COURSE` since the last step, in percent or MiB/s; empty at the first
        one."""
        if self.reason or len(self.steps) == len(COURSE):
            return {}
        m, found = self.module, {}
        try:
            begun = self._before is not None
            for name in ("_before", "_after"):
                if getattr(self, name) is None:
                    setattr(self, name, m.nvmlGpmSampleAlloc())
            m.nvmlGpmSampleGet(self.handle, self._after)
            asked = {COURSE[track]: track for track in COURSE if track not in self.steps}
            values = self._between(self._before, self._after, tuple(asked)) if begun else {}
        except Exception as error:
            self.steps |= {track: reason(error) for track in COURSE if track not in self.steps}
            return {}
        self._before, self._after = self._after, self._before
        for key, value in values.items():
            if isinstance(value, float):
                found[asked[key]] = value
            else:
                self.steps[asked[key]] = value
        return found

    def metrics(self) -> dict[str, Any]:
        """Averages from the first sample to now, each a number or why there is none; gives all
        samples back."""
        if self._first is None:
            return dict.fromkeys(METRICS, self.reason or "not offered")
        last = None
        try:
            last = self.module.nvmlGpmSampleAlloc()
            self.module.nvmlGpmSampleGet(self.handle, last)
            return self._between(self._first, last, tuple(METRICS))
        except Exception as error:
            return dict.fromkeys(METRICS, reason(error))
        finally:
            self._free(last)
            self.close()

    def close(self) -> None:
        """Give all samples back; may be called twice."""
        for name in ("_first", "_before", "_after"):
            self._free(getattr(self, name))
            setattr(self, name, None)

    def _between(self, first: Any, last: Any, keys: tuple[str, ...]) -> dict[str, Any]:
        m = self.module
        names = {key: getattr(m, METRICS[key]) for key in keys if hasattr(m, METRICS[key])}
        request = m.c_nvmlGpmMetricsGet_t()
        request.version = m.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(names)
        request.sample1, request.sample2 = first, last
        for i, number in enumerate(names.values()):
            request.metrics[i].metricId = number
        m.nvmlGpmMetricsGet(request)
        found: dict[str, Any] = {
            key: "not offered by this nvidia-ml-py" for key in keys if key not in names
        }
        for i, key in enumerate(names):
            metric = request.metrics[i]
            wrong = metric.nvmlReturn
            found[key] = float(metric.value) if wrong == 0 else f"NVML error {wrong}"
        return found

    def _free(self, sample: Any) -> None:
        if sample is not None:
            with contextlib.suppress(Exception):
                self.module.nvmlGpmSampleFree(sample)


def reason(error: Exception) -> str:
    """Why a call of NVML gave nothing."""
    if isinstance(error, AttributeError):
        return "not offered by this nvidia-ml-py"
    return f"not offered: {error}"
