"""Brings the inputs of frames to a device, one unit ahead of the compute (PiPAD 4.3).

A frame travels in units: what is new in it, and its partitions. While unit k is computed on, unit
k + 1 travels, and behind the last one the first unit of the frame that is trained on next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from dgbench.runtime.transfer import PendingTransfer, TransferLink


@dataclass(frozen=True, slots=True)
class Unit:
    """Unit of transfer.

    Attributes:
        tensors: host tensors in the form that the link sends; none where nothing has to travel.
        unpack: makes of the tensors on the device what compute needs.
        adjacency_bytes: how many of the bytes are topology.
    """

    tensors: Sequence[Tensor]
    unpack: Callable[[list[Tensor]], Any]
    adjacency_bytes: int = 0


class _Frame:
    """The units of one frame, as far as they were sent and opened."""

    def __init__(self, times: range, units: list[Unit]) -> None:
        self.times = times
        self.units = units
        self.tickets: dict[int, PendingTransfer] = {}
        self.contents: dict[int, Any] = {}
        self.sent = 0


class FramePrefetcher:
    """Sends the units of frames in order and hands their contents out.

    A frame's memory on the device is lent until `finish`, because its backward pass reads it.

    Args:
        link: a link with a slot for every unit of a frame and one more.
        plan: what a frame has to be sent, asked when its first unit is about to be sent.
        ahead: send one unit before it is asked for.
        on_send: called with every unit that is sent.
    """

    def __init__(
        self,
        link: TransferLink,
        plan: Callable[[range], list[Unit]],
        *,
        ahead: bool,
        on_send: Callable[[Unit], None],
    ) -> None:
        self._link = link
        self._plan = plan
        self._ahead = ahead
        self._on_send = on_send
        self._now: _Frame | None = None
        self._next: _Frame | None = None

    def begin(self, times: range) -> None:
        """Go over to another frame; the memory of the one before may be used again."""
        self.finish()
        if self._next is not None and self._next.times == times:
            self._now, self._next = self._next, None
            return
        self._drop_next()
        self._now = _Frame(times, self._plan(times))

    def take(self, k: int) -> Any:
        """The content of unit k of the frame that was begun, on the device."""
        frame = self._now
        if k not in frame.contents:
            self._send_up_to(frame, k)
            ticket = frame.tickets.get(k)
            tensors = [] if ticket is None else ticket.wait()
            frame.contents[k] = frame.units[k].unpack(tensors)
        return frame.contents[k]

    def look_ahead(self, following: range | None) -> None:
        """Send the unit after those sent so far: of this frame, or the first of the next.

        Args:
            following: the next frame's snapshots, or None where it is not known.
        """
        frame = self._now
        if not self._ahead or frame is None:
            return
        if frame.sent < len(frame.units):
            self._send_up_to(frame, frame.sent)
        elif following is not None and self._next is None:
            self._next = _Frame(following, self._plan(following))
            if self._next.units:
                self._send_up_to(self._next, 0)

    def sent_ahead(self, times: range) -> list[Tensor] | None:
        """Tensors of a frame's first unit where it was sent before the frame is begun."""
        if self._next is None or self._next.times != times or 0 not in self._next.tickets:
            return None
        return self._next.tickets[0].wait()

    def finish(self) -> None:
        """The frame's tensors are not read any more."""
        if self._now is not None:
            _release(self._now)
            self._now = None

    def forget(self) -> None:
        """Also give up what was sent ahead, as after a change of plans."""
        self.finish()
        self._drop_next()

    def _send_up_to(self, frame: _Frame, k: int) -> None:
        while frame.sent <= k:
            unit = frame.units[frame.sent]
            if unit.tensors:
                frame.tickets[frame.sent] = self._link.send(unit.tensors)
                self._on_send(unit)
            frame.sent += 1

    def _drop_next(self) -> None:
        if self._next is not None:
            _release(self._next)
            self._next = None


def _release(frame: _Frame) -> None:
    frame.contents.clear()
    for ticket in frame.tickets.values():
        ticket.release()
    frame.tickets.clear()
