"""What a running system records about itself: exact counters and timed phases.

The harness opens one `Meter` per process and hands it to the trainer. Counters are
always on: they are integers and cost a dictionary update. Phases are timed only in an
instrumented run (`timing=True`), because reading clocks around every phase changes what
is measured; otherwise `phase` does nothing.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Meter:
    """Counters and phases of one process.

    Attributes:
        counters: name -> exact integer (bytes, edges, launches, hits ...).
        spent: name -> seconds that a part of the machine was busy or waited (see `spend`).
        timing: whether `phase` reads clocks.
    """

    def __init__(self, *, timing: bool = False, device: str = "cpu") -> None:
        self.counters: Counter[str] = Counter()
        self.spent: dict[str, float] = defaultdict(float)
        self.timing = timing
        self._lock = threading.Lock()
        self._cuda = device.startswith("cuda")
        self._seconds: dict[str, float] = defaultdict(float)
        self._events: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []

    def count(self, name: str, amount: int = 1) -> None:
        """Add `amount` to the counter `name`."""
        self.counters[name] += int(amount)

    def spend(self, name: str, seconds: float) -> None:
        """Add `seconds` to the busy or waiting time `name`; from any thread, instrumented or not.

        Unlike phases these may overlap: a copy engine's busy time runs beside the compute's.
        """
        with self._lock:
            self.spent[name] += seconds

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a block as part of phase `name` (sample, transfer, compute, communicate, update).

        On CUDA the block is bracketed by events on the current stream, so nothing waits.
        """
        if not self.timing:
            yield
            return
        if self._cuda:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            yield
            end.record()
            self._events.append((name, begin, end))
            return
        start = time.perf_counter()
        yield
        self._seconds[name] += time.perf_counter() - start

    def phases(self) -> dict[str, float]:
        """Seconds per phase so far. On CUDA this waits for the recorded events."""
        if self._events:
            torch.cuda.synchronize()
            for name, begin, end in self._events:
                self._seconds[name] += begin.elapsed_time(end) / 1e3
            self._events.clear()
        return dict(self._seconds)

    def reset(self) -> None:
        """Forget counters, spent time and phases, as at the end of warm-up."""
        self.phases()
        self.counters.clear()
        with self._lock:
            self.spent.clear()
        self._seconds.clear()
