"""Load balance of a kernel over the device, from the clocks of its warps.

PiPAD's figure 12 (PPoPP 2023) sets a kernel's time beside the time it would take if its work were
spread evenly. The paper does not say how the second is found; here it is the work of all warps over
the places that warps had.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from dgbench.runtime.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Balance:
    """A kernel's time as it was and as it would be with its work spread evenly.

    Attributes:
        actual: cycles from the first begin to the last end on the multiprocessor that took longest.
        balanced: cycles of all warps together, divided by `places`; at most `actual`.
        warps: number of warps.
        places: warps that ran at once, at most, summed over the multiprocessors.
        multiprocessors: those that took part.
    """

    actual: float
    balanced: float
    warps: int
    places: int
    multiprocessors: int

    @property
    def gap(self) -> float:
        """Share of the time lost to imbalance: 1 - balanced / actual; 0 without work."""
        return 1 - self.balanced / self.actual if self.actual else 0.0


def balance(clocks: Tensor) -> Balance:
    """Load balance of a kernel from the clocks of its warps.

    Clocks of one multiprocessor are comparable with each other only, so times are formed on each of
    them and the longest counts. A warp's own time includes its waiting for memory that others use.

    Args:
        clocks: int64[warps, 3] on the CPU, begin, end and multiprocessor, of
            `variants.warp_clocks`.

    Raises:
        InvalidInputError: another shape, or a warp that ended before it began.
    """
    if clocks.dim() != 2 or clocks.shape[1] != 3:
        raise InvalidInputError(f"clocks has shape {tuple(clocks.shape)}, expected (warps, 3)")
    begin, end, where = clocks.cpu().numpy().T
    if not len(begin):
        return Balance(0.0, 0.0, 0, 0, 0)
    if (end < begin).any():
        row = int(np.argmax(end < begin))
        raise InvalidInputError(f"clocks: warp {row} ends at {end[row]}, before {begin[row]}")
    actual, places = 0, 0
    found = np.unique(where)
    for number in found:
        here = where == number
        actual = max(actual, int(end[here].max() - begin[here].min()))
        places += _most_at_once(begin[here], end[here])
    total = float((end - begin).sum())
    return Balance(float(actual), total / places, len(begin), places, len(found))


def _most_at_once(begin: np.ndarray, end: np.ndarray) -> int:
    """The largest number of intervals [begin, end) that hold one moment, at least 1."""
    times = np.concatenate([begin, end])
    steps = np.concatenate([np.ones_like(begin), -np.ones_like(end)])
    order = np.lexsort((steps, times))  # at one moment ends come first: a place is free again
    return max(1, int(np.cumsum(steps[order]).max()))
