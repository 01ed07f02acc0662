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
        self._open: str | None = None
        self._since: float | torch.cuda.Event = 0.0

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
        """Time a block as part of phase `name` (sample, transfer, compute, gnn, rnn, communicate,
        update).

        Phases do not overlap: a phase within another takes its time away from the outer one. On
        CUDA they are bounded by events on the current stream, so nothing waits.
        """
        if not self.timing:
            yield
            return
        outer = self._open
        self._turn(name)
        try:
            yield
        finally:
            self._turn(outer)

    def turn(self, name: str) -> None:
        """Charge the time from here to the end of the phase that is open to `name` instead.

        For code that cannot be put into a block, such as parts of a backward pass. Does nothing
        where no phase is open.
        """
        if self._open is not None and self._open != name:
            self._turn(name)

    def _turn(self, name: str | None) -> None:
        if self._cuda:
            now = torch.cuda.Event(enable_timing=True)
            now.record()
            if self._open is not None:
                self._events.append((self._open, self._since, now))
        else:
            now = time.perf_counter()
            if self._open is not None:
                self._seconds[self._open] += now - self._since
        self._open, self._since = name, now

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
