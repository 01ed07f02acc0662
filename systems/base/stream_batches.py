"""Cut of events into batches, and a worker's part of one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor

from dgbench.systems.base.stream_data import StreamWorkload, mixed
from dgbench.systems.base.time_borders import time_cuts


def batches(
    workload: StreamWorkload, events: Tensor, times: Tensor, epoch: int | None = 0
) -> tuple[Tensor, ...]:
    """Events int64[n] cut into batches in their order.

    With random chunk scheduling (TGL, section 3.3) the first batch of an epoch is a random number
    of chunks shorter, a function of seed and epoch, so that the borders of batches move. Batches of
    a model with memory end with the time value that fills them, unless `strict_time` is off; where
    that makes one longer by half or more, the rest of that time value is batches of its own.

    Args:
        workload: says how long batches are.
        events: int64[n] ordinals.
        times: float64[n], when they happened; read for models with memory only.
        epoch: moves the borders; None: no epoch of training, the first batch is a whole one.
    """
    first = 0
    if workload.chunks > 1 and epoch is not None:
        chunk = workload.batch // workload.chunks
        first = int(mixed(workload.seed, 1, epoch) % workload.chunks) * chunk
    if workload.ends_with_time:
        cuts = time_cuts(times, workload.batch, first=first, split=True)
        return tuple(events[a:b] for a, b in pairwise(cuts))
    head, rest = events[:first], events[first:]
    return tuple(part for part in (head, *rest.split(workload.batch)) if part.numel())


def batch_draw(workload: StreamWorkload, first: int, epoch: int, *, scored: bool = False) -> int:
    """Number of the sampling call of a batch, in [0, 2**32): of training below 2**31.

    A function of the batch's first event and the epoch, never of a process or of calls before.
    """
    bits = int(mixed(workload.seed, 2, epoch * 2**40 + first)) >> 32
    return bits | (int(scored) << 31)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One worker's part of a batch: b of its events.

    Attributes:
        events: int64[b].
        nodes: int64[3 b] roots: sources, destinations, negatives.
        times: float64[3 b].
        holds: time of the last event where more events of it follow in the stream: what the batch
            writes to memory is held until that time is over. None: it is written at once.
        positions: int64[3 b] among the roots of the whole batch; None where it is the whole.
        count: events of the whole batch.
        draw: see `batch_draw`.
    """

    events: Tensor
    nodes: Tensor
    times: Tensor
    holds: float | None
    positions: Tensor | None
    count: int
    draw: int
