"""Links between ranks as they are found at start: swaps of every pair, timed (section 4.2).

The paper's ring is that of its machine, a DGX-1. Elsewhere other links are wide, so that ranks time
what a phase of the ring does, a swap, between every two of them, and pass destinations round the
ring whose slowest swaps take least time.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import torch

from dgbench.runtime.collectives import Communicator
from dgbench.runtime.errors import InvalidInputError

SWAPPED: Final = {"cpu": 1 << 20, "cuda": 16 << 20}
"""Bytes of a timed swap each way, by the kind of device."""
REPEATS: Final = 4
"""Swaps of a pair, the first of which warms up; the fastest counts."""
STEP: Final = 2.0
"""Rates count as this factor, or a power of it, below the widest: bonded links double a rate, noise
does not, and among equal rings the first one in order is taken on every start."""


@dataclass(frozen=True, slots=True)
class MeasuredLinks:
    """Rates between G devices.

    Attributes:
        rates: by device and device, bytes per second and direction of a swap that is alone on its
            way; the same both ways, above 0; what stands for a device and itself is not read.
    """

    rates: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        size = len(self.rates)
        for i, row in enumerate(self.rates):
            if len(row) != size:
                raise InvalidInputError(f"'rates' has {len(row)} numbers in row {i} of {size}")
            for j, rate in enumerate(row):
                if i != j and not (0 < rate < math.inf and rate == self.rates[j][i]):
                    raise InvalidInputError(
                        f"'rates' is {rate} from {i} to {j} and {self.rates[j][i]} back, needed: "
                        "the same number above 0"
                    )

    @property
    def size(self) -> int:
        """G."""
        return len(self.rates)

    def bricks(self, i: int, j: int) -> int:
        """Bricks of a pair, 0: a rate does not say what it consists of."""
        return 0

    def bandwidth(self, i: int, j: int) -> float:
        """The rate of a pair, by whole steps below the widest."""
        widest = max(r for k, row in enumerate(self.rates) for m, r in enumerate(row) if k != m)
        steps = math.floor(math.log(widest / self.rates[i][j], STEP) + 0.5)
        return widest * STEP**-steps


def measure_links(comm: Communicator) -> MeasuredLinks | None:
    """Time the swaps of every two ranks; all ranks call it alike and get the same.

    What is swapped for it is in no counter.

    Returns:
        None of one rank, and of ranks that share their memory: then all pairs are alike.
    """
    size = comm.size
    if size < 2:
        return None
    with _uncounted(comm):
        swap_seconds(comm, 0, 1, 1)  # opens what carries rows
        if getattr(comm, "carrier", "") == "shared memory":
            return None
        nbytes = SWAPPED[comm.device.type]
        mine = torch.zeros(1, size, dtype=torch.float64)
        for i, j in itertools.combinations(range(size), 2):
            seconds = min([swap_seconds(comm, i, j, nbytes) for _ in range(REPEATS)][1:])
            if comm.rank in (i, j):
                mine[0, i + j - comm.rank] = seconds
        every = comm.all_gather(mine.to(comm.device), [1] * size).cpu()
    slower = torch.maximum(every, every.t()).clamp_(min=1e-9)
    return MeasuredLinks(tuple(tuple(row) for row in (nbytes / slower).tolist()))


def swap_seconds(comm: Communicator, i: int, j: int, nbytes: int) -> float:
    """Seconds that ranks i and j take to swap so many bytes, as one of them sees it."""
    ours = comm.rank in (i, j)
    rows = [int(ours and rank == i + j - comm.rank) for rank in range(comm.size)]
    x = torch.zeros(sum(rows), nbytes, dtype=torch.uint8, device=comm.device)
    _wait(comm)
    comm.barrier()
    start = time.perf_counter()
    comm.all_to_all(x, rows, rows)
    _wait(comm)
    return time.perf_counter() - start


def ring_words(links: MeasuredLinks, ring: Sequence[int]) -> str:
    """A note on the ring that was chosen."""
    rates = [links.rates[a][b] / 1e9 for a, b in itertools.pairwise((*ring, ring[0]))]
    return (
        f"the ring {'-'.join(map(str, ring))} of swaps measured between ranks at start, "
        f"{min(rates):.2f} to {max(rates):.2f} GB/s"
    )


@contextmanager
def _uncounted(comm: Communicator) -> Iterator[None]:
    """Leave what is sent inside out of the counters of a rank."""
    sent, counters = comm.traffic.copy().sent, Counter(comm.meter.counters)
    try:
        yield
    finally:
        comm.traffic.sent = sent
        comm.meter.counters.clear()
        comm.meter.counters.update(counters)


def _wait(comm: Communicator) -> None:
    if comm.device.type == "cuda":
        torch.cuda.synchronize(comm.device)
