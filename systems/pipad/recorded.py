"""PiPAD's training step on a device as one CUDA graph: transfers, forward, backward, update.

A switch of ours (`compiled_step`), not of the paper, which captures the dense parts of a step (4.3)
and starts all else from the host: on graphs of some hundred vertices that takes ten times as long
as the device's work. Here a frame's step is recorded as the engine does it, copies and all, and
launched as one. Frames come in a fixed order, so that the graph of a frame also brings the first
unit of the next one (4.3), and leaves in the device's buffer what that one uses (4.4).

What a graph finds when it is launched must be what it found when it was recorded: the buffer's
snapshots, and the frame's first unit in its place. Where the buffer differs, as in the first step
after an evaluation, the step is made operator by operator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from dgbench.runtime.errors import UnsupportedError
from dgbench.runtime.meter import Meter
from dgbench.runtime.readback import Readback
from dgbench.runtime.transfer.recorded import GraphRecorder, RecordedLink, RecordedTicket
from dgbench.runtime.transfer.slots import Slot, SlotLayout, Staged
from dgbench.systems.base.adam import as_lies, make_state
from dgbench.systems.pipad.delivery import FramePrefetcher, Unit
from dgbench.systems.pipad.device_engine import DeviceEngine

MOST_FRAMES: Final = 2048
"""Frames that are recorded; a graph of a step takes some hundred kilobytes and milliseconds. Fewer
where the topology that they read does not fit into half of the host's budget."""


@dataclass(frozen=True, slots=True)
class RecordedFrame:
    """The step of one frame.

    Attributes:
        launch: starts the step. loss: scalar that it writes.
        found, left: snapshots in the device's buffer before and after it.
        unit: what its first unit brings; None where nothing travels.
        counts: what the step adds to the meter.
    """

    launch: Callable[[], None]
    loss: Tensor
    found: range
    left: range
    unit: SlotLayout | None
    counts: Counter[str]


class _RecordedFrames(FramePrefetcher):
    """Units of a frame while it is recorded: the first is there, the others are sent at once."""

    def __init__(
        self,
        link: RecordedLink,
        units: list[Unit],
        first: RecordedTicket | None,
        on_send: Callable[[Unit], None],
    ) -> None:
        super().__init__(link, lambda _: units, ahead=False, on_send=on_send)
        self._first = first

    def begin(self, times: range) -> None:
        super().begin(times)
        frame = self._now
        if self._first is not None:
            frame.tickets[0] = self._first
            frame.sent = 1
        self._send_up_to(frame, len(frame.units) - 1)


class RecordedSteps:
    """All frames' steps, each as one CUDA graph.

    Args:
        engine: of the device, past its preparation.
        loss: frame -> its loss with the graph of autograd, without whatever runs on the host.
        leaves: what is trained. optimiser: may be captured.
        frames: snapshots of every frame, in the order of training.
        meter: of the engine. recorder: makes the graphs.

    Raises:
        UnsupportedError: a step could not be captured.
    """

    def __init__(
        self,
        engine: DeviceEngine,
        loss: Callable[[int], Tensor],
        leaves: Sequence[Tensor],
        optimiser: torch.optim.Optimizer,
        frames: Sequence[range],
        meter: Meter,
        recorder: GraphRecorder | None = None,
    ) -> None:
        self._engine, self._loss, self._meter = engine, loss, meter
        self._recorder = recorder or GraphRecorder(engine.device, meter)
        self._leaves, self._optimiser = list(leaves), optimiser
        self._frames = list(frames[: min(MOST_FRAMES, engine.recordable(frames))])
        self._steps: dict[int, RecordedFrame] = {}
        # A frame's first unit arrives while the frame before it is computed on, so that neighbours
        # have different places, the last and the first frame of an epoch too.
        count = len(self._frames)
        self._place_of = [i % 2 if i < count - 1 or count % 2 == 0 else 2 for i in range(count)]
        self._places: list[Tensor] = []
        self._sources: list[Unit] = []  # the graphs read their memory
        self._held: list[range | None] = [None] * 3
        self._whole = count == len(frames)
        with self._aside():
            try:
                self._record()
            except Exception as error:
                raise UnsupportedError(
                    "the step could not be captured in a CUDA graph: "
                    f"{type(error).__name__}: {error}",
                    hint="switch 'compiled_step' off to run it operator by operator",
                ) from error
        engine.forget()

    def note(self) -> str:
        """A sentence for a row where frames are left out, else ""."""
        return "" if self._whole else f"The first {len(self._frames)} frames are CUDA graphs."

    def _after(self, frame: int) -> int | None:
        """The frame that a graph also brings the first unit of; None where there is none."""
        following = frame + 1
        if following == len(self._frames):
            following = 0 if self._whole else frame
        return None if following == frame else following

    def run(self, frame: int) -> Readback | None:
        """Train on a frame; its loss, or None where the graph would not find what it needs."""
        step = self._steps.get(frame)
        if step is None or step.found != self._engine.buffer.resident:
            return None
        if step.unit is not None and self._held[self._place_of[frame]] != self._frames[frame]:
            self._fetch(frame, step.unit)
        with self._meter.phase("compute"):
            step.launch()
        self._meter.counters.update(step.counts)
        self._engine.buffer.resident = step.left
        if (following := self._after(frame)) is not None:
            self._held[self._place_of[following]] = self._frames[following]
        return Readback(step.loss)

    # --- recording --------------------------------------------------------------------------------

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """In the order of training, uncounted and untimed."""
        engine, meter = self._engine, self._meter
        counters, timing, order = meter.counters.copy(), meter.timing, engine.in_order
        meter.timing, engine.in_order = False, True
        try:
            with self._recorder.aside():
                yield
        finally:
            meter.timing, engine.in_order = timing, order
            meter.counters.clear()
            meter.counters.update(counters)

    def _record(self) -> None:
        engine = self._engine
        for frame in range(len(self._frames)):  # loads kernels, stages topology, fills the buffer
            self._gradients(frame)
            engine.finish()
        engine.courier.forget()
        make_state(self._optimiser)
        # Of a frame as it comes after the one before it.
        units = [self._units_after(frame - 1, frame) for frame in range(len(self._frames))]
        layouts = [_layout(of_frame) for of_frame in units]
        spans = [0, 0, 0]
        for place, layout in zip(self._place_of, layouts, strict=True):
            spans[place] = max(spans[place], layout.span if layout is not None else 0)
        self._places = [
            torch.empty(max(span, 1), dtype=torch.uint8, device=engine.device) for span in spans
        ]
        for frame, (of_frame, layout) in enumerate(zip(units, layouts, strict=True)):
            if layout is not None:
                self._bring(frame, layout)
            self._steps[frame] = self._record_frame(frame, of_frame, layout)
        for leaf in self._leaves:
            leaf.grad = None

    def _units_after(self, before: int, frame: int) -> list[Unit]:
        """Units of a frame with the device's buffer as another one leaves it."""
        buffer, times = self._engine.buffer, self._frames[before]
        found, capacity = buffer.resident, buffer.capacity
        buffer.capacity = self._engine.capacity(times)
        buffer.resident = buffer.kept_of(times, self._engine.following(times))
        try:
            return self._engine.units(self._frames[frame])
        finally:
            buffer.resident, buffer.capacity = found, capacity

    def _record_frame(
        self, frame: int, units: list[Unit], layout: SlotLayout | None
    ) -> RecordedFrame:
        engine, meter = self._engine, self._meter
        before, found = meter.counters.copy(), engine.buffer.resident
        launch, loss = self._recorder.record(lambda link: self._step(frame, units, layout, link))
        counts = Counter(meter.counters)
        counts.subtract(before)
        return RecordedFrame(
            launch, loss, found, engine.buffer.resident, layout,
            Counter({name: amount for name, amount in counts.items() if amount}),
        )  # fmt: skip

    def _step(
        self, frame: int, units: list[Unit], layout: SlotLayout | None, link: RecordedLink
    ) -> Tensor:
        """A frame's step, and the first unit of the next frame; returns the loss."""
        engine = self._engine
        self._sources += units
        first = None
        if layout is not None:
            views = Slot(self._places[self._place_of[frame]]).views(layout)
            first = RecordedTicket(layout.nbytes, views, None)
        courier = engine.courier
        engine.courier = _RecordedFrames(link, units, first, engine.count_unit)
        try:
            loss, gradients = self._gradients(frame)
        finally:
            engine.courier = courier
        for leaf, gradient in zip(self._leaves, gradients, strict=True):
            leaf.grad = as_lies(gradient, leaf)
        self._optimiser.step()
        if (following := self._after(frame)) is not None:
            ahead = self._units_after(frame, following)
            if ahead and ahead[0].tensors:
                self._sources.append(ahead[0])
                link.send_into(self._places[self._place_of[following]], ahead[0].tensors)
                engine.count_unit(ahead[0])
        return loss

    def _gradients(self, frame: int) -> tuple[Tensor, tuple[Tensor | None, ...]]:
        loss = self._loss(frame)
        return loss.detach(), torch.autograd.grad(loss, self._leaves, allow_unused=True)

    # --- before a launch --------------------------------------------------------------------------

    def _fetch(self, frame: int, layout: SlotLayout) -> None:
        """Bring a frame's first unit to its place: the frame before it was no graph."""
        place = self._place_of[frame]
        buffer = self._places[place]
        arrived = self._engine.courier.sent_ahead(self._frames[frame])
        if arrived is not None:
            for source, target in zip(arrived, Slot(buffer).views(layout), strict=True):
                target.copy_(source)
        else:
            self._bring(frame, layout)
            self._meter.count("transfers")
            self._meter.count("bytes_h2d_counted", layout.nbytes)
            self._meter.count("bytes_h2d_moved", layout.nbytes)
        self._engine.courier.forget()
        self._held[place] = self._frames[frame]

    def _bring(self, frame: int, layout: SlotLayout) -> None:
        buffer = self._places[self._place_of[frame]]
        for source, offset, nbytes in layout.runs:
            buffer[offset : offset + nbytes].copy_(source, non_blocking=True)


def _layout(units: Sequence[Unit]) -> SlotLayout | None:
    """Layout of a frame's first unit; None where there is none or nothing travels."""
    tensors = units[0].tensors if units else ()
    if not tensors:
        return None
    return tensors.layout if isinstance(tensors, Staged) else SlotLayout.of(tensors)
