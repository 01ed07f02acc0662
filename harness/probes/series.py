"""Activity of a machine while a process runs, as short series that keep every peak.

A `Ring` takes readings for as long as it is given some and never holds more than `BUCKETS` pairs of
smallest and largest reading: when time runs out of its buckets, neighbours are merged and each
bucket stands for twice as long. Nothing is averaged.

`pack` makes the field `series` of a row, `unpack` reads it. Times are seconds since the fork of the
process, both for what the runner saw from outside and for the phases that the process told of:
on Linux `time.monotonic` and `time.perf_counter` are one clock that all processes share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from dgbench.runtime.meter import SpanLog

BUCKETS: Final = 100
"""Most buckets of a series; each has two points, the smallest and the largest reading."""

STEP_S: Final = 0.05
"""Seconds of a bucket to begin with."""

BYTES: Final = 5_800
"""Most bytes of a row's series as JSON."""

MIN_BUCKETS: Final = 3
"""Buckets below which a process was too short to have a course over time."""

SPANS: Final = 400
"""Most spans of phases."""

UNITS: Final[dict[str, tuple[str, float, int]]] = {
    # name: unit, how many of what is read make one, digits behind the point
    "memory": ("MiB", 2**20, 0),
    "cpu": ("%", 1.0, 0),
    "gpu_memory": ("MiB", 2**20, 0),
    "gpu_resident": ("%", 1.0, 0),
    "gpu_power": ("W", 1e3, 0),
    "gpu_sm_clock": ("MHz", 1.0, 0),
    "gpm_sm_active": ("%", 1.0, 1),
    "gpm_tensor": ("%", 1.0, 1),
    "gpm_dram": ("%", 1.0, 1),
    "gpm_pcie_rx": ("MiB/s", 1.0, 0),
    "gpm_pcie_tx": ("MiB/s", 1.0, 0),
    "gpm_nvlink_rx": ("MiB/s", 1.0, 0),
    "gpm_nvlink_tx": ("MiB/s", 1.0, 0),
}
"""Tracks in the order in which they are kept. NVML reads bytes, milliwatts and megahertz."""


class Ring:
    """Readings over time in at most `BUCKETS` buckets, smallest and largest of each kept.

    Attributes:
        step: seconds of a bucket now. low, high: by bucket; None where nothing was read.
        reason: why readings ended before the process did, or "".
    """

    def __init__(self, *, step: float = STEP_S, buckets: int = BUCKETS) -> None:
        self.step, self.buckets = step, buckets
        self.low: list[float | None] = []
        self.high: list[float | None] = []
        self.reason = ""

    def add(self, seconds: float, value: float) -> None:
        """A reading at so many seconds since the process began; those before it are left out."""
        if seconds < 0 or not math.isfinite(value):
            return
        while (place := int(seconds / self.step)) >= self.buckets:
            self.widen(2 * self.step)
        while len(self.low) <= place:
            self.low.append(None)
            self.high.append(None)
        low, high = self.low[place], self.high[place]
        self.low[place] = value if low is None else min(low, value)
        self.high[place] = value if high is None else max(high, value)

    def widen(self, step: float) -> None:
        """Merge neighbours until a bucket lasts `step`: its present length times 2, 4, 8 ..."""
        while self.step < step * (1 - 1e-9):
            self.low = _halve(self.low, min)
            self.high = _halve(self.high, max)
            self.step *= 2

    def cut(self, seconds: float) -> None:
        """Leave out buckets that begin after so many seconds."""
        keep = math.ceil(seconds / self.step)
        del self.low[keep:], self.high[keep:]

    def __len__(self) -> int:
        return len(self.low)


@dataclass(slots=True)
class Recording:
    """The rings of one process while it runs.

    Attributes:
        begin: `time.monotonic` at its fork; None before, and what is read then is not kept.
        rings: by name of `UNITS`.
        limits: by name, in the units that are read. reasons: by name, why there is no track.
    """

    begin: float | None = None
    rings: dict[str, Ring] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, now: float, value: float) -> None:
        """A reading at the `time.monotonic` of `now`."""
        if self.begin is None:
            return
        if (ring := self.rings.get(name)) is None:
            ring = self.rings[name] = Ring()
        ring.add(now - self.begin, value)


@dataclass(frozen=True, slots=True)
class Track:
    """One quantity over time.

    Attributes:
        unit: of all numbers. low, high: smallest and largest reading of each bucket, None where
            there was none. limit: what it cannot pass, or None.
        ended: why readings ended before the process did, or "".
    """

    unit: str
    low: list[float | None]
    high: list[float | None]
    limit: float | None = None
    ended: str = ""

    @property
    def peak(self) -> float:
        """Largest reading."""
        return max(v for v in self.high if v is not None)


@dataclass(frozen=True, slots=True)
class Series:
    """The course of one process.

    Attributes:
        step_s: seconds of a bucket; bucket i is about [i, i + 1) * step_s after the fork.
        seconds: the process lasted, from fork to exit.
        tracks: by name of `UNITS`; a str is the reason why there is none.
        spans: (phase, begin, end), seconds after the fork; empty where none was timed.
        merged: how many spans were merged into others. resolution_s: within cells of this length
            the order of phases is lost; 0.0 where it is not. of: whose spans these are, where
            not of the process itself ("rank 0").
        marks: by name, when epochs and the like began. strides: how many each mark stands for.
    """

    step_s: float
    seconds: float
    tracks: dict[str, Track | str]
    spans: list[tuple[str, float, float]] = field(default_factory=list)
    merged: int = 0
    resolution_s: float = 0.0
    of: str = ""
    marks: dict[str, list[float]] = field(default_factory=dict)
    strides: dict[str, int] = field(default_factory=dict)


def pack(
    recording: Recording | None, seconds: float, told: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The field `series` of a row, below `BYTES`; empty where there is no course to speak of.

    Args:
        recording: what the runner saw. seconds: the process lasted.
        told: what the process told of its phases (`tell`), with times of `time.perf_counter`.
    """
    if recording is None or recording.begin is None:
        return {}
    for ring in recording.rings.values():
        ring.cut(seconds)
    rings = {name: ring for name, ring in recording.rings.items() if len(ring) >= MIN_BUCKETS}
    if not rings:
        return {}
    step = max(ring.step for ring in rings.values())
    for ring in rings.values():
        ring.widen(step)
    told = dict(told or {})
    limit = SPANS
    while True:
        packed = _packed(recording, rings, seconds, told, limit)
        # Spans wear away first: a strip of phases is readable with few, a short peak is not.
        if len(msgspec.json.encode(packed)) <= BYTES:
            return packed
        longest = max(len(ring) for ring in rings.values())
        if limit > 100 and told.get("spans"):
            limit //= 2
        elif longest > 8:
            step *= 2
            for ring in rings.values():
                ring.widen(step)
        elif limit > 8:
            limit //= 2
        else:
            told = {}


def _packed(recording, rings, seconds, told, limit) -> dict[str, Any]:
    tracks: dict[str, Any] = {}
    for name, (_, scale, places) in UNITS.items():
        if name in rings:
            tracks[name] = _track(rings[name], scale, places, recording.limits.get(name))
        elif name in recording.reasons:
            tracks[name] = recording.reasons[name]
    step = next(iter(rings.values())).step
    packed: dict[str, Any] = {"step_s": round(step, 6), "seconds": round(seconds, 4)}
    packed["tracks"] = tracks
    if told.get("spans"):
        packed["phases"] = _phases(told, limit, recording.begin, seconds)
    if marks := _marks(told, recording.begin, seconds):
        packed["marks"] = marks
        strides = {k: v for k, v in told.get("strides", {}).items() if v > 1}
        if strides:
            packed["strides"] = strides
    return packed


def _track(ring: Ring, scale: float, places: int, limit: float | None) -> dict[str, Any]:
    low, high = (
        [None if v is None else _number(v / scale, places) for v in side]
        for side in (ring.low, ring.high)
    )
    track: dict[str, Any] = {"low": low}
    if high != low:
        track["high"] = high
    if limit is not None:
        track["limit"] = _number(limit / scale, places)
    if ring.reason:
        track["ended"] = ring.reason
    return track


def _number(value: float, places: int) -> float | int:
    found = round(value, places)
    return int(found) if found == int(found) else found


def _marks(told: Mapping[str, Any], begin: float, seconds: float) -> dict[str, list[float]]:
    marks = {
        name: [round(t - begin, 3) for t in times if 0 <= t - begin <= seconds]
        for name, times in told.get("marks", {}).items()
    }
    return {name: times for name, times in marks.items() if times}


def _phases(told: Mapping[str, Any], limit: int, begin: float, seconds: float) -> dict[str, Any]:
    """Names, and per span: which name, pause since the last span, length; in units of `unit_s`."""
    log = SpanLog(limit)
    log.resolution = float(told.get("resolution", 0.0))
    for name, first, last in told["spans"]:
        log.add(name, max(first, begin), min(last, begin + seconds))
    spans = log.spans
    unit = 1e-5 if seconds < 2 else 1e-4
    names = list(dict.fromkeys(name for name, _, _ in spans))
    flat: list[int] = []
    at = 0
    for name, first, last in spans:
        start, end = round((first - begin) / unit), round((last - begin) / unit)
        flat += [names.index(name), start - at, end - start]
        at = end
    found: dict[str, Any] = {"names": names, "unit_s": unit, "spans": flat}
    if told.get("of"):
        found["of"] = told["of"]
    if log.resolution:
        merged = int(told.get("merged", 0)) + len(told["spans"]) - len(spans)
        found |= {"merged": merged, "resolution_s": round(log.resolution, 6)}
    return found


def tell(log: SpanLog) -> dict[str, Any]:
    """A `SpanLog` as plain data, with times of `time.perf_counter`."""
    spans = log.spans
    if not spans and not log.marks:
        return {}
    return {
        "of": log.of,
        "spans": [list(span) for span in spans],
        "merged": log.merged,
        "resolution": log.resolution,
        "marks": log.marks,
        "strides": log.strides,
    }


def unpack(packed: Mapping[str, Any]) -> Series | None:
    """The series of a row; None where it has none, or one that this code cannot read."""
    if not packed:
        return None
    try:
        tracks: dict[str, Track | str] = {}
        for name, found in packed["tracks"].items():
            if isinstance(found, str):
                tracks[name] = found
                continue
            high = found.get("high", found["low"])
            unit = UNITS[name][0] if name in UNITS else ""
            if any(v is not None for v in high):
                tracks[name] = Track(
                    unit, found["low"], high, found.get("limit"), found.get("ended", "")
                )
        phases = packed.get("phases", {})
        return Series(
            step_s=float(packed["step_s"]),
            seconds=float(packed["seconds"]),
            tracks=tracks,
            spans=_spans(phases),
            merged=int(phases.get("merged", 0)),
            resolution_s=float(phases.get("resolution_s", 0.0)),
            of=str(phases.get("of", "")),
            marks=dict(packed.get("marks", {})),
            strides=dict(packed.get("strides", {})),
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        return None


def _spans(phases: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    names, flat = phases.get("names", []), phases.get("spans", [])
    unit = phases.get("unit_s", 1e-4)
    found, at = [], 0
    for index, pause, length in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
        first = at + pause
        at = first + length
        found.append((names[index], first * unit, at * unit))
    return found


def _halve(values: Sequence[float | None], pick: Any) -> list[float | None]:
    found: list[float | None] = []
    for place in range(0, len(values), 2):
        pair = [v for v in values[place : place + 2] if v is not None]
        found.append(pick(pair) if pair else None)
    return found
