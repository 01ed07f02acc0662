"""Timing of calls and storage of results for the scripts that run on a device.

Two times of one call. On the device: between two events, while the host is ahead, so that gaps
between launches count only where the call itself waits for the device. Of the call: by the clock of
the host, until the device is done. On a CPU both are by the clock.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dgbench.runtime.statistics import median

AHEAD = 400_000
"""Clocks that the device sleeps before a call, for the host to get ahead: about 0.2 ms."""
WARM_UP = 3


LATE = "out of time"
"""Value of `failed` in a row that was not started."""


class Rows:
    """Rows to a file and lines to the screen as they are found; knows when the time is over.

    A second call with the same file goes on: `kept` names what it need not measure again.
    """

    def __init__(self, path: str | Path, seconds: float) -> None:
        self.path, self.end = path, time.monotonic() + seconds
        self.failed = self.late = 0

    def kept(self, *keys: str) -> dict[str, dict[str, Any]]:
        """Rows of earlier calls that were measured, by the words in their fields `keys`."""
        found: dict[str, dict[str, Any]] = {}
        for line in Path(self.path).read_text().splitlines() if Path(self.path).exists() else ():
            try:
                row = json.loads(line)
            except ValueError:  # the last line of a call that was killed
                continue
            if all(key in row for key in keys) and row.get("failed") != LATE:
                found[" ".join(str(row[key]) for key in keys)] = row
        return found

    @property
    def status(self) -> int:
        """Exit status: 1 where a row failed, 124 where one was not begun, 0 otherwise."""
        return 1 if self.failed else 124 if self.late else 0

    def add(self, text: str, **row: Any) -> None:
        self.late += row.get("failed") == LATE
        with open(self.path, "a+b") as file:
            file.seek(max(0, file.seek(0, 2) - 1))
            torn = file.read(1) not in (b"", b"\n")
            file.write((b"\n" if torn else b"") + json.dumps(row).encode() + b"\n")
        print(text, flush=True)

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.end


class Report:
    """Lines to a file and to the screen, and the clock of a script on one device.

    Attributes:
        left: seconds until no further part may begin. wrong: results that were not right.
    """

    def __init__(self, path: str, device: str, seconds: float) -> None:
        self.path, self.device = path, device
        self.begin = time.monotonic()
        self.end = self.begin + seconds
        self.wrong = 0

    @property
    def left(self) -> float:
        return self.end - time.monotonic()

    def over(self, what: str) -> bool:
        """Return True, and say so, where nothing may begin any more."""
        if self.left >= 0:
            return False
        print(f"{what}: {LATE}", flush=True)
        return True

    def add(self, text: str, **line: Any) -> None:
        with open(self.path, "a") as file:
            file.write(json.dumps(line) + "\n")
        print(text, flush=True)

    def seconds(self, work: Callable[[], object]) -> float:
        """Seconds of one call, the device included."""
        wait(self.device)
        start = time.perf_counter()
        work()
        wait(self.device)
        return time.perf_counter() - start


@dataclass(frozen=True)
class Timer:
    """Times calls on one device.

    Attributes:
        device: `cuda` or `cpu`.
        rounds: calls that are counted at most, after `WARM_UP` that are not.
        most_s: no further round begins after so many seconds.
        cold: read a buffer of four times the second-level cache before each call, so that the call
            finds its inputs in memory. Reading leaves nothing there to be written back.
    """

    device: str
    rounds: int = 50
    most_s: float = 1.5
    cold: bool = False

    def on_device(
        self, run: Callable[[], object], before: Callable[[], object] | None = None
    ) -> list[float]:
        """Seconds of each round between events; `before` makes each round ready and is not timed.

        Includes what the host takes inside of a call that waits for the device.
        """
        if self.device == "cpu":
            return self.of_call(run, before)
        for _ in range(WARM_UP):
            _ready(before)
            run()
        cache = torch.cuda.get_device_properties(0).L2_cache_size if self.cold else 0
        buffer = torch.zeros(cache, dtype=torch.float32, device="cuda")  # of four bytes each
        took: list[float] = []
        begin = time.monotonic()
        while len(took) < self.rounds and (not took or time.monotonic() - begin < self.most_s):
            _ready(before)
            if self.cold:
                buffer.sum()
            torch.cuda._sleep(AHEAD)
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            marks[0].record()
            run()
            marks[1].record()
            marks[1].synchronize()
            took.append(1e-3 * marks[0].elapsed_time(marks[1]))
        return took

    def of_call(
        self, run: Callable[[], object], before: Callable[[], object] | None = None
    ) -> list[float]:
        """Seconds of each round by the host's clock, the device included."""
        for _ in range(WARM_UP):
            _ready(before)
            run()
        took: list[float] = []
        begin = time.monotonic()
        while len(took) < self.rounds and (not took or time.monotonic() - begin < self.most_s):
            _ready(before)
            wait(self.device)
            start = time.perf_counter()
            run()
            wait(self.device)
            took.append(time.perf_counter() - start)
        return took


def _ready(before: Callable[[], object] | None) -> None:
    if before is not None:
        before()


def wait(device: str) -> None:
    """Until the device is done."""
    if device == "cuda":
        torch.cuda.synchronize()


def call_seconds(run: Callable[[], object], device: str, rounds: int) -> float:
    """Median seconds of a call that is waited for."""
    return median(Timer(device, rounds, most_s=float("inf")).of_call(run))


def need_device(device: str) -> None:
    """End the script where a device is asked for and none is there."""
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch sees no CUDA device; nothing to measure")
