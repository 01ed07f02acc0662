"""A device whose streams run their work when a test says so, in any order that CUDA allows."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

TICK_MS = 2.0  # from one executed piece of work to the next, on every stream


class Event:
    """Done when its stream gets to where it was recorded."""

    def __init__(self, device: SimulatedCuda) -> None:
        self._device = device
        self.stream: Stream | None = None
        self.at: float | None = None

    def record(self, stream: Stream) -> None:
        assert self.stream is None, "recorded twice: waits would be for the first one or the last"
        self.stream = stream

        def reach() -> None:
            self.at = self._device.now

        stream.work.append(reach)

    def query(self) -> bool:
        return self.at is not None

    def synchronize(self) -> None:
        self._device.host_waits += 1
        while not self.query():
            assert self._device.advance(), "the host waits for ever"

    def elapsed_time(self, end: Event) -> float:
        assert self.query()
        assert end.query()
        return end.at - self.at


class Stream:
    """Work in order; an event stands for waiting until it is done."""

    def __init__(self) -> None:
        self.work: deque[Callable[[], None] | Event] = deque()

    def wait_event(self, event: Event) -> None:
        assert event.stream is not None, "waiting for an event that was never recorded does nothing"
        self.work.append(event)

    def ready(self) -> bool:
        while self.work and isinstance(self.work[0], Event) and self.work[0].query():
            self.work.popleft()
        return bool(self.work) and not isinstance(self.work[0], Event)


class SimulatedCuda:
    """Stands for `CudaDevice`.

    Attributes:
        compute: the caller's current stream.
        host_waits: how often the host waited for the device.
    """

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.compute = self.new_stream()
        self.now = 0.0
        self.host_waits = 0
        self._known: set[tuple[int, int]] = set()  # what the allocator was told

    def new_stream(self) -> Stream:
        self.streams.append(Stream())
        return self.streams[-1]

    def current_stream(self) -> Stream:
        return self.compute

    def new_event(self) -> Event:
        return Event(self)

    def allocate(self, nbytes: int, stream: Stream) -> Tensor:
        buffer = torch.full((nbytes,), 170, dtype=torch.uint8)
        self.used_on(buffer, stream)
        return buffer

    def copy(self, target: Tensor, source: Tensor, stream: Stream, *, blocking: bool) -> None:
        def run() -> None:
            target.copy_(source)
            self.now += TICK_MS

        stream.work.append(run)
        if blocking:
            self.host_waits += 1
            while stream.work:
                assert self.advance(), "a blocking copy waits for ever"

    def used_on(self, buffer: Tensor, stream: Stream) -> None:
        self._known.add((buffer.untyped_storage().data_ptr(), id(stream)))

    def pin(self, tensor: Tensor) -> Tensor:
        pinned = tensor.clone()
        pinned.pinned = True
        return pinned

    def launch(self, kernel: Callable[[], None], *reads: Tensor) -> None:
        """Put work that reads tensors on the current stream."""
        for tensor in reads:
            if tensor.numel():
                known = tensor.untyped_storage().data_ptr(), id(self.compute)
                assert known in self._known, "the allocator does not know of this reader"

        def run() -> None:
            kernel()
            self.now += TICK_MS

        self.compute.work.append(run)

    def advance(self, choice: int = 0) -> bool:
        """Run the next piece of one stream that can go on; False if none can."""
        ready = [stream for stream in self.streams if stream.ready()]
        if not ready:
            return False
        ready[choice % len(ready)].work.popleft()()
        return True

    def drain(self, choices: Iterable[int] = (0,)) -> None:
        """Run everything; which stream goes on is chosen by each number in turn, over and over."""
        turns = itertools.cycle(choices)
        while self.advance(next(turns)):
            pass
        assert not any(stream.work for stream in self.streams), "streams wait for each other"
