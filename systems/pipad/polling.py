"""Reading a meter of the machine, again and again, while steps run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

PERIOD_S = 0.05
"""Between two readings; the driver renews its value every 20 to 170 ms."""


@dataclass(slots=True)
class MeterReadings:
    """Readings of a meter while a block ran, and the reason why it stopped reading, or ""."""

    values: list[float] = field(default_factory=list)
    broken: str = ""


@contextmanager
def readings(read: Callable[[], float], period_s: float = PERIOD_S) -> Iterator[MeterReadings]:
    """Values of `read` taken by a thread while the block runs, until it raises."""
    found = MeterReadings()
    stop = threading.Event()

    def loop() -> None:
        while not stop.wait(period_s):
            try:
                found.values.append(float(read()))
            except Exception as error:  # a driver or container without NVML fails in its own ways
                found.broken = f"{type(error).__name__}: {error}"
                return

    thread = threading.Thread(target=loop, name="dgbench-utilisation", daemon=True)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()
