"""Where first-layer aggregation is kept between frames (PiPAD 4.4): on the host and on the device.

The host keeps A-hat_t X_t of every snapshot. The device keeps, as far as its memory allows, those
that the next frame uses first, so that a steady frame brings only what it has not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class HostStore:
    """A-hat_t X_t of all snapshots in host memory, filled in as snapshots are aggregated.

    Args:
        snapshots, nodes, features: T, N and F; the store takes 4 T N F bytes.
        stage: brings a host tensor into the form that a link sends from (pinned for CUDA).
    """

    def __init__(
        self,
        snapshots: int,
        nodes: int,
        features: int,
        *,
        stage: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        values = torch.empty(snapshots, nodes, features)
        self.values = values if stage is None else stage(values)  # [T, N, F]
        self._held = bytearray(snapshots)

    @property
    def nbytes(self) -> int:
        return self.values.numel() * self.values.element_size()

    def put(self, t: int, aggregated: Tensor) -> None:
        """Keep A-hat_t X_t, float32[N, F] on any device."""
        self.values[t].copy_(aggregated)
        self._held[t] = 1

    def missing(self, times: range) -> list[int]:
        """Snapshots of the range that were not put yet."""
        held = self._held[times.start : times.stop]
        return [] if all(held) else [t for t, found in zip(times, held, strict=True) if not found]

    def rows(self, times: range) -> Tensor:
        """Stored rows of consecutive snapshots, a view float32[len(times), N, F]."""
        return self.values[times.start : times.stop]


class DeviceBuffer:
    """The aggregation results that the device holds from one frame to the next.

    After a frame it keeps the results that the following frame uses first, in order of use, up to
    `capacity` bytes. Memory is taken when first needed and again only when it is too small.

    Args:
        nodes, features: N and F of a result; a snapshot takes 4 N F bytes.
        device: where rows are held.
        capacity: bytes allowed; may be changed before any frame.
        holds: False plans only, for a machine where the device reads host memory itself.
    """

    def __init__(
        self,
        nodes: int,
        features: int,
        *,
        device: torch.device,
        capacity: int,
        holds: bool = True,
    ) -> None:
        self.row_bytes = 4 * nodes * features
        self.capacity = capacity
        self.resident = range(0)
        self._shape = nodes, features
        self._device = device
        self._holds = holds
        self._rows: Tensor | None = None  # [R, N, F]; snapshot t lies in row t mod R

    @property
    def nbytes(self) -> int:
        """Bytes taken at present."""
        return 0 if self._rows is None else self._rows.shape[0] * self.row_bytes

    def fresh(self, times: range) -> list[range]:
        """Runs of snapshots of a frame that are not resident, in order of time."""
        low, high = max(times.start, self.resident.start), min(times.stop, self.resident.stop)
        if low >= high:
            return [times]
        return [run for run in (range(times.start, low), range(high, times.stop)) if run]

    def keep(self, times: range, following: range | None, frame: Tensor | None = None) -> None:
        """Keep of a frame what the one after it uses first; everything else may be overwritten.

        Args:
            times: the frame's snapshots.
            following: those of the next frame, or None where there is none.
            frame: the frame's results on the device, [W, N, F]; not needed where only planning.
        """
        kept = self.kept_of(times, following)
        if self._holds and kept:
            self._reserve(len(kept))
            for run in self._runs(kept):
                new = [r for r in self.fresh(run) if r]
                for part in new:
                    first = part.start - times.start
                    self._at(part).copy_(frame[first : first + len(part)])
        self.resident = kept

    def frame(self, times: range, arrived: Sequence[Tensor]) -> Tensor:
        """A frame's results [W, N, F] from what is resident and what was just sent.

        Args:
            times: the frame's snapshots.
            arrived: one tensor [k, N, F] for each run of `fresh(times)`, on the device.

        Returns:
            A new tensor, or the arrived one itself where nothing was resident.
        """
        runs = self.fresh(times)
        if runs == [times]:
            return arrived[0]
        out = torch.empty(len(times), *self._shape, device=self._device)
        for run, rows in zip(runs, arrived, strict=True):
            first = run.start - times.start
            out[first : first + len(run)].copy_(rows)
        low, high = max(times.start, self.resident.start), min(times.stop, self.resident.stop)
        for run in self._runs(range(low, high)):
            first = run.start - times.start
            out[first : first + len(run)].copy_(self._at(run))
        return out

    def forget(self) -> None:
        """Hold nothing any more; memory is kept."""
        self.resident = range(0)

    def close(self) -> None:
        """Give the memory back."""
        self.forget()
        self._rows = None

    def kept_of(self, times: range, following: range | None) -> range:
        """Snapshots of a frame that the one after it finds here, as far as `capacity` allows."""
        if following is None or not self.row_bytes:
            return range(0)
        low, high = max(times.start, following.start), min(times.stop, following.stop)
        return range(low, min(max(low, high), low + self.capacity // self.row_bytes))

    def _reserve(self, count: int) -> None:
        if self._rows is not None and self._rows.shape[0] >= count:
            return
        old, held = self._rows, self.resident
        self._rows = torch.empty(count, *self._shape, device=self._device)
        if old is not None:
            for t in held:  # fewer rows than the new memory has
                self._rows[t % count].copy_(old[t % old.shape[0]])

    def _runs(self, times: range) -> list[range]:
        """Cut consecutive snapshots where their rows start over; two runs at most."""
        if not times or self._rows is None:
            return [times] if times else []
        size = self._rows.shape[0]
        cut = min(times.stop, (times.start // size + 1) * size)
        return [run for run in (range(times.start, cut), range(cut, times.stop)) if run]

    def _at(self, run: range) -> Tensor:
        first = run.start % self._rows.shape[0]
        return self._rows[first : first + len(run)]
