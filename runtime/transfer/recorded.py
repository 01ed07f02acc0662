"""Work that is recorded into CUDA graphs together with the copies that bring its inputs."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import torch
from torch import Tensor

from dgbench.runtime.graphs import capture_stream
from dgbench.runtime.meter import Meter
from dgbench.runtime.transfer.link import PendingTransfer, TransferLink
from dgbench.runtime.transfer.slots import Slot, SlotLayout


class RecordedTicket(PendingTransfer):
    """A group that a graph brings into memory of its own each time it is launched."""

    def __init__(self, nbytes: int, views: list[Tensor], arrived: torch.cuda.Event | None) -> None:
        super().__init__(nbytes)
        self._views, self._arrived = views, arrived

    def wait(self) -> list[Tensor]:
        self._check_held()
        if self._arrived is not None:
            torch.cuda.current_stream(self._views[0].device).wait_event(self._arrived)
        return self._views

    def release(self) -> None:
        self._released = True


class RecordedLink(TransferLink):
    """A link for the time of a capture: a branch of the graph copies beside its compute.

    All copies wait for nothing but the launch of the graph, one behind the other; what reads them
    waits for its own. Sources lie in pinned memory and stay where they are as long as the graph.

    Args:
        device: of the graph. meter: counts as for any link, once for each capture.
        stream: of the copies; not the one that is captured.
    """

    copies = True

    def __init__(self, device: torch.device, meter: Meter, stream: torch.cuda.Stream) -> None:
        super().__init__(meter)
        self._device, self._stream = device, stream
        self._lent: list[Tensor] = []  # until the end: another group may not take their place

    def fork(self) -> None:
        """Begin the branch; called first within a capture."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))

    def join(self) -> None:
        """End the branch; called last within a capture."""
        torch.cuda.current_stream(self._device).wait_stream(self._stream)
        self._lent.clear()

    def send(self, tensors: Sequence[Tensor]) -> RecordedTicket:
        layout = self._layout(tensors)
        with torch.cuda.stream(self._stream):
            buffer = torch.empty(max(layout.span, 1), dtype=torch.uint8, device=self._device)
        self._lent.append(buffer)
        return self._copy(layout, buffer)

    def send_into(self, buffer: Tensor, tensors: Sequence[Tensor]) -> RecordedTicket:
        """Send to a place that outlives the graph, uint8 on the device."""
        return self._copy(self._layout(tensors), buffer)

    def _copy(self, layout: SlotLayout, buffer: Tensor) -> RecordedTicket:
        with torch.cuda.stream(self._stream):
            for source, offset, nbytes in layout.runs:
                buffer[offset : offset + nbytes].copy_(source, non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record(self._stream)
        return RecordedTicket(layout.nbytes, Slot(buffer).views(layout), arrived)


class GraphRecorder:
    """Records work into CUDA graphs of one device, which use the same memory in turns.

    Args:
        device: of the work. meter: of its links.
    """

    def __init__(self, device: torch.device, meter: Meter) -> None:
        self._device, self._meter = device, meter
        self._pool = torch.cuda.graph_pool_handle()
        self._copies = torch.cuda.Stream(device)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Run what is recorded, and what makes ready for it, on the stream of captures."""
        stream = capture_stream(self._device)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        gc.collect()
        gc.disable()  # what it destroys may ask the driver for what a capture forbids
        try:
            with torch.cuda.stream(stream):
                yield
        finally:
            gc.enable()
            torch.cuda.current_stream(self._device).wait_stream(stream)

    def record(self, work: Callable[[RecordedLink], Tensor]) -> tuple[Callable[[], None], Tensor]:
        """A graph of a piece of work, as a function that launches it, and the tensor it writes.

        The graph holds none of what the work reads beside its own memory; the caller does.

        Args:
            work: the same launches each time, without waiting; copies go over the link.
        """
        torch.cuda.synchronize(self._device)
        graph, link = torch.cuda.CUDAGraph(), RecordedLink(self._device, self._meter, self._copies)
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        try:
            link.fork()
            result = work(link)
            link.join()
        except BaseException:
            with suppress(Exception):  # the capture is broken, and says so
                graph.capture_end()
            raise
        graph.capture_end()
        return graph.replay, result
