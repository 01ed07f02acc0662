"""A device's memory in three regions (section 4.3), and what brings data into the third.

R1 holds parameters and the state of the part that the device owns. R2 holds the current work: pairs
of a grid, and the destination vectors that are passing through. R3 has the same shape and receives
what comes next; then both change roles. Pairs come from the host over a `TransferLink`, whose slots
are those of R2 and R3; vectors come from another device into one of two buffers.

What may overlap: a grid's pairs, and the embeddings of the next destinations, which are read only.
Their gradients and sums are written by the training that is under way, so they follow it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from dgbench.runtime.errors import DgbenchError
from dgbench.runtime.meter import Meter
from dgbench.runtime.transfer import PendingTransfer, TransferLink, open_link
from dgbench.runtime.transfer.cuda import CudaDevice, CudaLink
from dgbench.systems.base.interaction_baseline import SAVED

PLANES = 3
"""Vectors transferred per row: its embedding, the gradient of it, the sum over its partners."""


class DeviceFull(DgbenchError):
    """A region does not fit into the memory that a device may use."""


class Account:
    """Bytes that a device holds, by region, counted as they are taken.

    Args:
        limit: most bytes at a time; None: as many as it likes.

    Attributes:
        held, peaks: bytes by region, now and at most. peak: at most of all regions together.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.held: dict[str, int] = {}
        self.peaks: dict[str, int] = {}
        self.peak = 0

    def hold(self, region: str, nbytes: int) -> None:
        """Let a region be so large; raises DeviceFull where the whole is then above the limit."""
        total = sum(self.held.values()) - self.held.get(region, 0) + nbytes
        if self.limit is not None and total > self.limit:
            raise DeviceFull(
                f"region '{region}' of {nbytes} bytes does not fit: {total} bytes in all, the "
                f"device may use {self.limit}",
                hint="let state stay in host memory (resident=False), with more parts or intervals",
            )
        self.held[region] = nbytes
        self.peaks[region] = max(self.peaks.get(region, 0), nbytes)
        self.peak = max(self.peak, total)


@dataclass(frozen=True, slots=True)
class Visitor:
    """Destination vectors of one part on some device; views of one buffer.

    Attributes:
        part: whose they are.
        embedding: [r, H], read only. gradient, total: [r, H], what is added up on the way; None as
            long as nothing is.
        buffer: where they lie, if that is one of the device's.
    """

    part: int
    embedding: Tensor
    gradient: Tensor | None = None
    total: Tensor | None = None
    buffer: Buffer | None = None


class Buffer:
    """Room for the vectors of one part."""

    def __init__(self, rows: int, width: int, device: torch.device, dtype: torch.dtype) -> None:
        self.width = width
        self.flat = torch.empty(PLANES * rows * width, device=device, dtype=dtype)

    def planes(self, rows: int) -> Tensor:
        """[3, rows, H], contiguous."""
        return self.flat[: PLANES * rows * self.width].view(PLANES, rows, self.width)

    def visitor(self, part: int, rows: int) -> Visitor:
        """The buffer as the vectors of a part."""
        return Visitor(part, *self.planes(rows), self)


class Timeline:
    """When copies and training ran on a device, by events of CUDA; empty elsewhere."""

    def __init__(self, device: torch.device) -> None:
        self.on = False
        self._cuda = device.type == "cuda"
        self._spans: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []
        self._base: torch.cuda.Event | None = None

    def start(self) -> None:
        """Record from here on."""
        if self._cuda:
            self.on = True
            self._spans.clear()
            self._base = torch.cuda.Event(enable_timing=True)
            self._base.record()

    @contextmanager
    def span(self, what: str, stream: torch.cuda.Stream | None = None) -> Iterator[None]:
        """Record what is put on a stream inside."""
        if not self.on:
            yield
            return
        stream = stream or torch.cuda.current_stream()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record(stream)
        yield
        end.record(stream)
        self._spans.append((what, begin, end))

    def stop(self) -> list[tuple[str, float, float]]:
        """Stop recording; spans with the seconds of their begin and end. Waits for the device."""
        if not self.on:
            return []
        self.on = False
        torch.cuda.synchronize()
        base = self._base
        return [
            (what, base.elapsed_time(a) / 1e3, base.elapsed_time(b) / 1e3)
            for what, a, b in self._spans
        ]


def overlapped(spans: Sequence[tuple[str, float, float]], one: str, other: str) -> float:
    """Seconds during which both kinds of spans ran."""
    total = 0.0
    mine, theirs = (sorted((a, b) for what, a, b in spans if what == w) for w in (one, other))
    k = 0
    for begin, end in mine:
        while k < len(theirs) and theirs[k][1] <= begin:
            k += 1
        for first, last in theirs[k:]:
            if first >= end:
                break
            total += max(0.0, min(end, last) - max(begin, first))
    return total


class _TimedCuda(CudaDevice):
    """A CUDA device that notes its copies in a timeline."""

    def __init__(self, device: torch.device, timeline: Timeline) -> None:
        super().__init__(device)
        self._timeline = timeline

    def copy(
        self, target: Tensor, source: Tensor, stream: torch.cuda.Stream, *, blocking: bool
    ) -> None:
        with self._timeline.span("copy", stream):
            super().copy(target, source, stream, blocking=blocking)


class Regions:
    """R2 and R3 of one device, and its link to the host.

    Args:
        device: where they lie.
        meter: gets the counters and times of the link.
        account: gets the bytes.
        overlap: bring what comes next while training. Off, there is no third region for pairs and
            every copy is waited for.
    """

    def __init__(
        self, device: torch.device, meter: Meter, account: Account, *, overlap: bool
    ) -> None:
        self.device, self.account, self.overlap, self.meter = device, account, overlap, meter
        self.timeline = Timeline(device)
        self.link = self._open()
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda" and overlap:
            self._stream = torch.cuda.Stream(device)
        self._free: list[Buffer] = []
        self._room = 0

    def _open(self) -> TransferLink:
        # Rows of an interval and pairs of a grid, each now and next.
        slots = 4 if self.overlap else 2
        if self.device.type == "cuda":
            timed = _TimedCuda(self.device, self.timeline)
            return CudaLink(
                self.device, self.meter, asynchronous=self.overlap, slots=slots, hardware=timed
            )
        return open_link(
            self.device, self.meter, asynchronous=self.overlap, arena=True, slots=slots
        )

    def send(self, tensors: Sequence[Tensor]) -> PendingTransfer:
        """Bring tensors to the device, see `TransferLink.send`."""
        with self.meter.phase("io"):
            ticket = self.link.send(tensors)
        self.meter.count("bytes_h2d", ticket.nbytes)
        return ticket

    def work(self, rows: int, width: int, dtype: torch.dtype) -> None:
        """Say that so many rows are refreshed, with what a backward pass needs of them."""
        self.account.hold("work", SAVED["dygnn"] * rows * width * dtype.itemsize)

    def send_rows(self, columns: Sequence[Tensor]) -> PendingTransfer:
        """`send` what was just gathered; by pinned memory, if that is copied on a stream."""
        if self.device.type == "cuda" and self.overlap:
            with self.meter.phase("io"):
                columns = self.link.stage_all(columns)
        return self.send(columns)

    def arrived(self, ticket: PendingTransfer) -> list[Tensor]:
        """Wait for what was sent."""
        with self.meter.phase("io"):
            return ticket.wait()

    # --- destination vectors ----------------------------------------------------------------------

    def reserve(self, rows: int, width: int, dtype: torch.dtype, now: int, coming: int) -> None:
        """Have room for vectors of parts, each of `rows` rows at most.

        Args:
            now: parts that are trained on or leave, in R2. coming: parts that arrive, in R3.
        """
        if rows <= self._room and self._free:
            return
        self._free.clear()
        each = PLANES * rows * width * dtype.itemsize
        self.account.hold("R2 vectors", now * each)
        self.account.hold("R3 vectors", coming * each)
        self._free = [Buffer(rows, width, self.device, dtype) for _ in range(now + coming)]
        self._room = rows

    def take(self, part: int, rows: int) -> Visitor:
        """Room for the vectors of a part, unset."""
        return self._free.pop().visitor(part, rows)

    def give(self, visitor: Visitor) -> None:
        """These vectors have gone."""
        if visitor.buffer is not None:
            self._free.append(visitor.buffer)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Copy beside the training on a GPU, after what the current stream has done so far."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._stream):
            yield

    def join(self) -> None:
        """Let what comes next wait for what was copied aside."""
        if self._stream is not None:
            torch.cuda.current_stream(self.device).wait_stream(self._stream)

    def close(self) -> None:
        """Give memory back and end the link."""
        self.link.close()
        self._free, self._room = [], 0


def copy_across(source: Tensor, target: Tensor, meter: Meter, *, direct: bool) -> None:
    """Copy between devices, or where it is not `direct` through host memory."""
    nbytes = source.numel() * source.element_size()
    meter.count("bytes_swapped", nbytes)
    if direct:
        target.copy_(source, non_blocking=True)
        return
    meter.count("bytes_d2h", nbytes)
    meter.count("bytes_h2d", nbytes)
    target.copy_(source.detach().to("cpu", copy=True))
