"""Timers of races: by a clock of the host, or by events of a device with its caches cold."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Protocol

import torch

from dgbench.lab.experiment import Measurement
from dgbench.runtime.errors import UnsupportedError
from dgbench.runtime.launches import KernelLaunch, profile_call, read_trace
from dgbench.runtime.precision import plain_products

AHEAD = 400_000
"""Clocks that the device sleeps before a call, for the host to get ahead: about 0.2 ms."""
FLUSHED = 4
"""Bytes that are read to empty the second-level cache, times its size."""
REPEATED = 5
"""Calls of one turn on a device, at most: a single one is long beside an event's resolution."""
FURTHER = 5
"""Calls whose median is a time beside that of the turns."""
Work = Callable[[], object]


@dataclass(frozen=True)
class CallSetting:
    """State in which a call is timed.

    Attributes:
        before: makes each call ready, and is not timed.
        warm: its inputs may lie in a device's cache.
    """

    before: Work | None = None
    warm: bool = False

    def ready(self) -> None:
        """Make the next call ready."""
        if self.before is not None:
            self.before()


class Timer(Protocol):
    """Way to time calls.

    Attributes:
        place: torch device of the inputs.
    """

    place: str

    def once(self, call: Work) -> float:
        """Seconds of one call, all that it starts included."""

    def turn(self, call: Work, count: int, setting: CallSetting) -> float:
        """Mean seconds of a call over `count` of them."""

    def observe(self, name: str, call: Work, setting: CallSetting, found: Measurement) -> None:
        """Observe what the turns do not say of a method."""

    def finish(self, found: Measurement) -> None:
        """Observe the state of the machine at the end."""


class HostTimer:
    """Timer by a clock of the host: wall time, or processor time."""

    place = "cpu"

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.now = now

    def once(self, call: Work) -> float:
        start = self.now()
        call()
        return self.now() - start

    def turn(self, call: Work, count: int, setting: CallSetting) -> float:
        if setting.before is not None:
            count = 1
            setting.before()
        start = self.now()
        for _ in range(count):
            call()
        return max(self.now() - start, 1e-9) / count

    def observe(self, name: str, call: Work, setting: CallSetting, found: Measurement) -> None:
        """Nothing: the turns say all."""

    def finish(self, found: Measurement) -> None:
        """Nothing."""


class TimedDevice(Protocol):
    """The calls that a timer makes to a device; tests have one of their own.

    Attributes:
        place: torch device of what lies on it.
    """

    place: str

    def wait(self) -> None:
        """Until the device is done."""

    def hold(self) -> None:
        """Keep the device busy for a moment, so that the host gets ahead."""

    def flush(self) -> None:
        """Read so much that nothing of before is left in the second-level cache."""

    def record(self) -> Any:
        """Mark of now in the device's queue."""

    def seconds(self, begin: Any, end: Any) -> float:
        """Seconds between two marks, once both have passed."""

    def kernels(self, call: Work) -> list[KernelLaunch]:
        """Kernels that a call launches."""

    def clock_rate(self) -> float | None:
        """Cycles a second of the processors, or None where the driver does not say."""


class CudaEvents:
    """The current CUDA device, timed by its events."""

    place = "cuda"

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise UnsupportedError("torch sees no CUDA device")
        plain_products()
        size = torch.cuda.get_device_properties(0).L2_cache_size
        # Read, not written: reading leaves nothing in the cache to be written back.
        self._buffer = torch.zeros(FLUSHED * size // 4, dtype=torch.float32, device="cuda")

    def wait(self) -> None:
        torch.cuda.synchronize()

    def hold(self) -> None:
        torch.cuda._sleep(AHEAD)

    def flush(self) -> None:
        self._buffer.sum()

    def record(self) -> Any:
        mark = torch.cuda.Event(enable_timing=True)
        mark.record()
        return mark

    def seconds(self, begin: Any, end: Any) -> float:
        end.synchronize()
        return 1e-3 * begin.elapsed_time(end)

    def kernels(self, call: Work) -> list[KernelLaunch]:
        return read_trace(profile_call(call))

    def clock_rate(self) -> float | None:
        try:
            return 1e6 * torch.cuda.clock_rate()
        except Exception:  # needs NVIDIA's management library
            return None


class DeviceTimer:
    """Timer by events of a device.

    Turns are between two events while the host is ahead, with cold caches: gaps between launches
    count only where a call itself waits for the device. Beside them stand a call with warm caches,
    a whole call by the host's clock, and the kernels alone.
    """

    def __init__(self, device: TimedDevice) -> None:
        self.device, self.place = device, device.place
        self._rate = device.clock_rate()

    def once(self, call: Work) -> float:
        self.device.wait()
        start = time.perf_counter()
        call()
        self.device.wait()
        return time.perf_counter() - start

    def turn(self, call: Work, count: int, setting: CallSetting) -> float:
        count = min(count, REPEATED)
        return sum(self._between(call, setting) for _ in range(count)) / count

    def _between(self, call: Work, setting: CallSetting) -> float:
        setting.ready()
        if not setting.warm:
            self.device.flush()
        self.device.hold()
        begin = self.device.record()
        call()
        return max(self.device.seconds(begin, self.device.record()), 1e-9)

    def observe(self, name: str, call: Work, setting: CallSetting, found: Measurement) -> None:
        other = replace(setting, warm=not setting.warm)
        beside: list[float] = [self._between(call, other) for _ in range(FURTHER)]
        whole = []
        for _ in range(FURTHER):
            setting.ready()
            whole.append(self.once(call))
        caches = {"caches": "warm" if other.warm else "cold"}
        for samples, dims in ((beside, caches), (whole, {"clock": "wall"})):
            found.observe("operation_time", median(samples), samples=samples, method=name, **dims)
        setting.ready()
        self.device.wait()
        kernels = self.device.kernels(call)
        if not kernels:
            return
        spent = sum(one.seconds for one in kernels)
        found.observe("spent_time", spent, method=name, of="kernels")
        found.observe("launches", sum(one.count for one in kernels), method=name)
        known = [one for one in kernels if one.occupancy is not None]
        if known and (total := sum(one.seconds for one in known)):
            share = sum(one.seconds * one.occupancy for one in known) / total
            found.observe("utilisation", share, method=name, of="warps")

    def finish(self, found: Measurement) -> None:
        rates = {"begin": self._rate, "end": self.device.clock_rate()}
        for when, rate in rates.items():
            if rate is not None:
                found.observe("clock_rate", rate, place="device", statistic=when)


def open_timer(device: str, now: Callable[[], float]) -> Timer:
    """The timer of a run on this device. Raises UnsupportedError where there is none."""
    return HostTimer(now) if device == "cpu" else DeviceTimer(CudaEvents())
