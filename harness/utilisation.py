"""Use of a GPU by the process of a row, and whether a race left the GPU idle.

Everything is read from the probes and the series that rows keep. What a device does not offer is a
reason in words, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from dgbench.harness.probes.series import Track, unpack
from dgbench.lab.metrics import metric
from dgbench.lab.probes import ProcessProbe, probe

IDLE_PERCENT: Final = 20.0
"""A race in which SM active stays below this says little about a GPU."""

IDLE: Final = "GPU idle"
GPU: Final = probe("gpu")
GPM: Final = probe("gpm")
"""Why NVML, or its performance monitoring, read nothing."""
RATE: Final = "rate"
"""Throughput of a race's own system per second, the first column beside its counters."""


@dataclass(frozen=True, slots=True)
class Counter:
    """A quantity of a GPU that rows keep.

    Attributes:
        probe: what of a row's probes. title: for people. unit: of the value shown.
        divide: what the probe is divided by. limit: what the value cannot pass, or None.
    """

    probe: ProcessProbe
    title: str
    unit: str
    divide: float = 1.0
    limit: float | None = None


COUNTERS: Final = (
    Counter(probe("gpm_sm_active_percent"), "SM active", "%", limit=100.0),
    Counter(probe("gpu_kernel_resident_percent"), "kernel resident", "%", limit=100.0),
    Counter(probe("gpu_memory_peak_bytes"), "memory, peak", "GiB", 2.0**30),
    Counter(probe("gpu_power_mw"), "power", "W", 1e3),
    Counter(probe("gpm_tensor_percent"), "tensor active", "%", limit=100.0),
    Counter(probe("gpm_dram_percent"), "DRAM active", "%", limit=100.0),
    Counter(probe("pcie_rx_bytes"), "PCIe in", "MB", 1e6),
    Counter(probe("pcie_tx_bytes"), "PCIe out", "MB", 1e6),
    Counter(probe("nvlink_rx_bytes"), "NVLink in", "MB", 1e6),
    Counter(probe("nvlink_tx_bytes"), "NVLink out", "MB", 1e6),
    Counter(probe("energy_mj"), "energy", "J", 1e3),
    Counter(probe("gpu_sm_clock_mhz"), "SM clock", "MHz"),
)
"""In the order in which figures show them, after the throughput."""


@dataclass(frozen=True, slots=True)
class IdleGpu:
    """A GPU that the rows of a race hardly used.

    Attributes:
        counter: "SM active", or "kernel resident" where the device offers no more.
        low, high: its smallest and largest value over the rows, in percent.
        rows: ids of these rows.
    """

    counter: str
    low: float
    high: float
    rows: tuple[str, ...]

    @property
    def use(self) -> str:
        """`SM active 0.23 to 0.4 %`."""
        low, high = f"{self.low:.2g}", f"{self.high:.2g}"
        span = low if low == high else f"{low} to {high}"
        return f"{self.counter} {span} %"

    @property
    def words(self) -> str:
        """`GPU idle: SM active 0.23 to 0.4 %`."""
        return f"{IDLE}: {self.use}"


def gpu_idle(rows: Iterable[Any]) -> IdleGpu | None:
    """Idleness of the GPU over the rows of a race, or None where it was busy.

    SM active counts: its largest reading where a row keeps it over time, else its mean over the
    whole process, set-up included. Where it is not offered, the share of time with a kernel
    resident, which it cannot exceed, stands for it.

    Args:
        rows: of one race; those of other devices and those without a result do not count.

    Returns:
        None where a row reaches `IDLE_PERCENT`, and where no row has either counter.
    """
    found: dict[str, tuple[str, float]] = {}
    for row in rows:
        if row.device == "cuda" and row.status == "ok" and (use := _use(row)) is not None:
            found[row.id] = use
    if not found or any(value >= IDLE_PERCENT for _, value in found.values()):
        return None
    names = {name for name, _ in found.values()}
    counter = "SM active" if names == {"SM active"} else "kernel resident"
    values = [value for _, value in found.values()]
    return IdleGpu(counter, min(values), max(values), tuple(found))


def counter_value(row: Any, counter: Counter) -> float | str:
    """A counter of a row in its own unit, or the reason why there is none."""
    value = counter.probe.read(row)
    if value is None or not math.isfinite(value):
        absent = [counter.probe, *([GPM] if counter.probe.source == "gpm" else []), GPU]
        return next(filter(None, (one.refusal(row) for one in absent)), "not read")
    if value < 0:
        return "the counter began again"
    return float(value) / counter.divide


def throughput(row: Any, system: str) -> tuple[float, str] | None:
    """Throughput of a system per second, and its unit: `(182582.0, "edges/s")`, or None.

    The first rate of a row that is the system's; else a row of one system with a time of its own
    did so many times a second.
    """
    own = str(row.params.get("system", "")) == system
    for one in row.observed:
        known = metric(one.metric)
        whose = one.dims.get("system") or one.dims.get("setting")
        if known.kind == "rate" and (whose == system or (own and not whose)):
            return float(one.value), f"{one.dims.get('of') or known.about}/s"
    if own and row.time:
        return 1 / row.time, "times/s"
    return None


def use_points(
    points: Iterable[dict[str, Any]], rows: Iterable[Any], system: str
) -> list[dict[str, Any]]:
    """Points of the kind `device_use` of a race: one per workload and counter.

    Args:
        points: of the race, with `row_ids`. rows: those they rest on, others among them.
        system: the paper's own, whose processes are shown; a process in which all contenders took
            turns is shown whole.

    Returns:
        [] where no row of the race is of a GPU. Over several rounds the mean of each counter, of
        the memory the largest.
    """
    by_id = {row.id: row for row in rows}
    cells: dict[tuple[str, ...], tuple[list[Any], list[Any]]] = {}
    for point in points:
        mine = [by_id[name] for name in point.get("row_ids") or [] if name in by_id]
        mine = [r for r in mine if r.device == "cuda" and r.status == "ok"
                and r.params.get("system", system) == system]  # fmt: skip
        if mine and not point.get("projected"):
            cells.setdefault(tuple(row.id for row in mine), (mine, []))[1].append(point)
    names = [str(first["row"]) for _, (first, *_) in cells.values()]
    made: list[dict[str, Any]] = []
    for ids, (mine, shown) in cells.items():
        label, panel = str(shown[0]["row"]), shown[0].get("panel")
        if names.count(label) > 1 and panel:
            label = f"{label}, {panel}"
        place = {"row": label, "system": system, "row_ids": list(ids),
                 "twin": any(p.get("twin") for p in shown)}  # fmt: skip
        rates = [rate for row in mine if (rate := throughput(row, system))]
        said: dict[str, Any] = {"failed": "skipped: no rate kept"}
        if rates:
            said = {"value": fmean(rate for rate, _ in rates), "unit": rates[0][1]}
        made.append({**place, "counter": RATE, **said})
        made += [{**place, "counter": c.title, **_over_rounds(mine, c)} for c in COUNTERS]
    return made


def _over_rounds(rows: Sequence[Any], counter: Counter) -> dict[str, Any]:
    """A counter over the rounds of a cell: its value, or why there is none."""
    values = [counter_value(row, counter) for row in rows]
    numbers = [value for value in values if not isinstance(value, str)]
    if not numbers:
        refused = bool(counter.probe.refusal(rows[0]))
        return {"failed": f"not-supported: {values[0]}", "offered": not refused}
    value = max(numbers) if "peak" in counter.probe.name else fmean(numbers)
    return {"value": value, "unit": counter.unit, "limit": counter.limit}


def mark_idle(points: Iterable[dict[str, Any]], rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Points of a race with `idle`: what its factor must be read with, where the GPU was idle.

    Args:
        points: with `row_ids`. rows: those they rest on, others among them.
    """
    by_id = {row.id: row for row in rows}
    marked = []
    for point in points:
        mine = [by_id[name] for name in point.get("row_ids") or [] if name in by_id]
        idle = None if point.get("failed") or point.get("projected") else gpu_idle(mine)
        marked.append({**point, "idle": idle.words} if idle else point)
    return marked


def _use(row: Any) -> tuple[str, float] | None:
    """The counter that tells how much of a GPU a row used, and its value in percent."""
    series = unpack(row.series) if row.series else None
    track = series.tracks.get("gpm_sm_active") if series is not None else None
    if isinstance(track, Track):
        return "SM active", track.peak
    for counter in COUNTERS[:2]:
        value = counter.probe.read(row)
        if value is not None and math.isfinite(value):
            return counter.title, value
    return None
