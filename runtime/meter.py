"""Exact counters and timed phases of a running system.

The harness opens one `Meter` per process and hands it to the trainer. Counters are
always on: they are integers and cost a dictionary update. Phases are timed only in an
instrumented run (`timing=True`), because reading clocks around every phase changes what
is measured; otherwise `phase` does nothing.

In an instrumented process the harness also opens a `SpanLog` (`keep_spans`): all meters of the
process tell it when their phases began and ended, and what they `mark`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # who reads rows or draws figures needs no torch
    import torch

SPANS = 400
"""Most spans that a log hands over."""

MARKS = 50
"""Most marks of one name that a log hands over."""


class SpanLog:
    """When phases began and ended, in bounded room however long a process runs.

    Up to `limit` spans are kept as they were. Where there are more, time is cut into cells, and
    within a cell the spans of one phase become one: their order in the cell is lost, the seconds of
    each phase are not. Cells grow (by factors of 2) until the spans are few enough.

    Attributes:
        of: whose phases these are, where not of the process itself ("rank 0").
        seen: spans told of so far. resolution: length of a cell in seconds, 0.0 while every span
            is kept as it was.
    """

    def __init__(self, limit: int = SPANS) -> None:
        self.of = ""
        self.seen = 0
        self.resolution = 0.0
        self._limit = limit
        self._spans: list[tuple[str, float, float]] = []
        self._marks: dict[str, list[float]] = {}
        self._strides: dict[str, int] = {}
        self._counts: Counter[str] = Counter()

    def add(self, name: str, begin: float, end: float) -> None:
        """A phase lasted from `begin` to `end`, seconds of `time.perf_counter`."""
        if end <= begin:
            return
        self.seen += 1
        self._spans.append((name, begin, end))
        if len(self._spans) >= 4 * self._limit:
            self._fit()

    def mark(self, name: str, at: float) -> None:
        """Something called `name` (an epoch) began at `at`."""
        number, stride = self._counts[name], self._strides.setdefault(name, 1)
        self._counts[name] += 1
        if number % stride:
            return
        kept = self._marks.setdefault(name, [])
        kept.append(at)
        if len(kept) > MARKS:
            del kept[1::2]
            self._strides[name] = 2 * stride

    @property
    def spans(self) -> list[tuple[str, float, float]]:
        """(phase, begin, end) in order of time, at most `limit` of them."""
        self._fit()
        return list(self._spans)

    @property
    def merged(self) -> int:
        """Number of spans that were merged into another one."""
        self._fit()
        return self.seen - len(self._spans)

    @property
    def marks(self) -> dict[str, list[float]]:
        """Times of what was marked, by name; of many, every second, fourth ... one."""
        return {name: list(times) for name, times in self._marks.items()}

    @property
    def strides(self) -> dict[str, int]:
        """By name, how many of a mark's times each kept one stands for."""
        return dict(self._strides)

    def _fit(self) -> None:
        self._spans.sort(key=lambda span: span[1])
        if len(self._spans) <= self._limit and not self.resolution:
            return
        length = max(end for *_, end in self._spans) - self._spans[0][1]
        if not self.resolution:
            self.resolution = length / self._limit
        while self.resolution * 8 * self._limit < length:  # the process went on for much longer
            self.resolution *= 2
        self._spans = merge_spans(self._spans, self.resolution)
        while len(self._spans) > self._limit:
            self.resolution *= 2
            self._spans = merge_spans(self._spans, self.resolution)


def merge_spans(
    spans: list[tuple[str, float, float]], cell: float
) -> list[tuple[str, float, float]]:
    """Spans with one span per phase and cell of `cell` seconds; cells begin at multiples of it.

    Args:
        spans: (phase, begin, end) in order of begin.
    """
    cells: dict[int, dict[str, float]] = {}
    first: dict[int, float] = {}
    for name, begin, end in spans:
        index = int(begin // cell)
        while True:
            border = (index + 1) * cell
            length = max(min(end, border) - begin, 0.0)
            mine = cells.setdefault(index, {})
            mine[name] = mine.get(name, 0.0) + length
            first.setdefault(index, begin)
            if end <= border:
                break
            begin, index = border, index + 1
    found: list[tuple[str, float, float]] = []
    for index in sorted(cells):
        at = first[index]
        for name, length in cells[index].items():
            last = found[-1] if found else None
            if last and last[0] == name and at - last[2] < 1e-6 * cell:
                found[-1] = (name, last[1], at + length)
            else:
                found.append((name, at, at + length))
            at += length
    return found


_log: SpanLog | None = None


def keep_spans(log: SpanLog | None) -> None:
    """Let meters that are made from now on in this process tell `log` of their phases."""
    global _log
    _log = log


def kept_spans() -> SpanLog | None:
    """The log of this process, or of the one that it is a fork of; None where none is kept."""
    return _log


class Meter:
    """Counters and phases of one process.

    Attributes:
        counters: name -> exact integer (bytes, edges, launches, hits ...).
        spent: name -> seconds that a part of the machine was busy or waited (see `spend`); reading
            it waits for the events of `spend_between`.
        timing: whether `phase` reads clocks.
    """

    def __init__(self, *, timing: bool = False, device: str = "cpu") -> None:
        self.counters: Counter[str] = Counter()
        self._spent: dict[str, float] = defaultdict(float)
        self.timing = timing
        self._lock = threading.Lock()
        import torch

        self._device = torch.device(device)
        self._cuda = self._device.type == "cuda"
        self._seconds: dict[str, float] = defaultdict(float)
        self._events: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []
        self._waits: deque[tuple[torch.cuda.Event, torch.cuda.Event, tuple[str, ...]]] = deque()
        self._open: str | None = None
        self._since: float | torch.cuda.Event = 0.0
        self._log = _log
        self._zero: tuple[torch.cuda.Event, float] | None = None

    def count(self, name: str, amount: int = 1) -> None:
        """Add `amount` to the counter `name`."""
        self.counters[name] += int(amount)

    def spend(self, name: str, seconds: float) -> None:
        """Add `seconds` to the busy or waiting time `name`; from any thread, instrumented or not.

        Unlike phases these may overlap: a copy engine's busy time runs beside the compute's.
        """
        with self._lock:
            self._spent[name] += seconds

    def spend_between(self, begin: torch.cuda.Event, end: torch.cuda.Event, *names: str) -> None:
        """`spend` the seconds between two events of a device for each name; nothing waits here."""
        with self._lock:
            self._waits.append((begin, end, names))
            while self._waits and self._waits[0][1].query():
                self._settle()

    @property
    def spent(self) -> dict[str, float]:
        with self._lock:
            while self._waits:
                self._waits[0][1].synchronize()
                self._settle()
        return self._spent

    def _settle(self) -> None:
        begin, end, names = self._waits.popleft()
        for name in names:
            self._spent[name] += begin.elapsed_time(end) / 1e3

    def mark(self, name: str) -> None:
        """Note that something called `name` begins here, such as an "epoch".

        Only an instrumented process keeps it, with the host's clock.
        """
        if self._log is not None:
            self._log.mark(name, time.perf_counter())

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
            import torch

            if self._log is not None and self._zero is None:
                # An event of an idle device and the host's clock: what ties the two together.
                torch.cuda.synchronize(self._device)
                zero = torch.cuda.Event(enable_timing=True)
                zero.record(torch.cuda.current_stream(self._device))
                self._zero = zero, time.perf_counter()
            now = torch.cuda.Event(enable_timing=True)
            now.record(torch.cuda.current_stream(self._device))
            if self._open is not None:
                self._events.append((self._open, self._since, now))
        else:
            now = time.perf_counter()
            if self._open is not None:
                self._seconds[self._open] += now - self._since
                if self._log is not None:
                    self._log.add(self._open, self._since, now)
        self._open, self._since = name, now

    def phases(self) -> dict[str, float]:
        """Seconds per phase so far. On CUDA this waits for the recorded events."""
        if self._events:
            import torch

            torch.cuda.synchronize(self._device)
            for name, begin, end in self._events:
                seconds = begin.elapsed_time(end) / 1e3
                self._seconds[name] += seconds
                if self._log is not None and self._zero is not None:
                    zero, host = self._zero
                    at = host + zero.elapsed_time(begin) / 1e3
                    self._log.add(name, at, at + seconds)
            self._events.clear()
        return dict(self._seconds)

    def reset(self) -> None:
        """Forget counters, spent time and phases, as at the end of warm-up.

        A log of spans keeps what it was told: a strip over time shows the warm-up, too.
        """
        self.phases()
        self.counters.clear()
        with self._lock:
            self._waits.clear()
            self._spent.clear()
        self._seconds.clear()
