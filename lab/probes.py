"""Registry of probes: every name under which the harness writes into `row.probes`.

A check, figure or page asks for a probe by `probe(name)` when its module is imported, so that a
name that nobody writes fails there and not as a value that is missing on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from dgbench.lab.judging import note_read
from dgbench.lab.metrics import PROBE
from dgbench.runtime.errors import unknown_key

Source = Literal["process", "machine", "nvml", "gpm"]


@dataclass(frozen=True, slots=True)
class ProcessProbe:
    """One number, or a list of words, that is read from outside of a measured process.

    Attributes:
        name: key in `row.probes`.
        source: what reads it: the runner of the process tree (`process`) or of the rest of the
            machine (`machine`), NVML, or its performance monitoring (`gpm`).
        unit: of the number; "" for words.
    """

    name: str
    source: Source
    unit: str = ""

    def read(self, row: Any) -> float | None:
        """The number in a row; None where there is none, or a sentence that says why."""
        note_read(row, PROBE)
        value = row.probes.get(self.name)
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if plain else None

    def words(self, row: Any) -> list[str] | None:
        """The list of words in a row; None where it holds none."""
        value = row.probes.get(self.name)
        return [str(one) for one in value] if isinstance(value, list) else None

    def refusal(self, row: Any) -> str:
        """Why a row has no such probe, in the words of what was to read it, or ""."""
        value = row.probes.get(self.name)
        return value if isinstance(value, str) else ""


_UNITS: Final[Mapping[Source, Mapping[str, str]]] = {
    "process": {
        "peak_rss_bytes": "B",
        "base_rss_bytes": "B",
        "cpu_percent": "%",
        "context_switches_voluntary": "",
        "context_switches_involuntary": "",
        "read_bytes": "B",
        "written_bytes": "B",
        "processes": "",
        "check_s": "s",
    },
    "machine": {
        "other_cpu_percent": "%",
        "stolen_cpu_percent": "%",
        "cpu_waiting_percent": "%",
        "cpu_throttled": "",
        "load_average_1m": "",
    },
    "nvml": {
        "gpu": "",
        "gpu_sample_period_s": "s",
        "gpu_sampling_core_percent": "%",
        "gpu_kernel_resident_percent": "%",
        "gpu_memory_peak_bytes": "B",
        "gpu_power_mw": "mW",
        "gpu_sm_clock_mhz": "MHz",
        "gpu_sm_clock_min_mhz": "MHz",
        "gpu_memory_clock_mhz": "MHz",
        "gpu_temperature_peak_c": "C",
        "gpu_throttle": "",
        "energy_mj": "mJ",
        "energy_source": "",
        "pcie_tx_bytes": "B",
        "pcie_rx_bytes": "B",
        "nvlink_tx_bytes": "B",
        "nvlink_rx_bytes": "B",
    },
    "gpm": {
        "gpm": "",
        "gpm_sm_active_percent": "%",
        "gpm_sm_occupancy_percent": "%",
        "gpm_tensor_percent": "%",
        "gpm_fp32_percent": "%",
        "gpm_dram_percent": "%",
        "gpm_pcie_tx_mibs": "MiB/s",
        "gpm_pcie_rx_mibs": "MiB/s",
        "gpm_nvlink_tx_mibs": "MiB/s",
        "gpm_nvlink_rx_mibs": "MiB/s",
    },
}
PROBES: Final[Mapping[str, ProcessProbe]] = {
    name: ProcessProbe(name, source, unit)
    for source, units in _UNITS.items()
    for name, unit in units.items()
}
"""By name. The reason why a source is absent has one, too: `gpu`, and `gpm` in older rows."""


def probe(name: str) -> ProcessProbe:
    """The probe of this name.

    Raises:
        UnknownKeyError: nobody writes it; the nearest names are suggested.
    """
    if name not in PROBES:
        raise unknown_key("probe", name, PROBES)
    return PROBES[name]


def sources(probes: Mapping[str, Any]) -> list[Source]:
    """Sorted sources of a row's probes that are numbers or lists of words."""
    found = {
        PROBES[name].source
        for name, value in probes.items()
        if name in PROBES and not isinstance(value, str)
    }
    return sorted(found)
