"""Where a stream may be cut so that events of one time stay together."""

from __future__ import annotations

import torch
from torch import Tensor


def time_borders(times: Tensor) -> Tensor:
    """int64[V + 1]: places at which the V time values of float64[n] begin, and n."""
    count = times.numel()
    starts = torch.ones(count, dtype=torch.bool)
    starts[1:] = times[1:] != times[:-1]
    return torch.cat([starts.nonzero().squeeze(1), torch.tensor([count])])


def border_before(times: Tensor, places: Tensor) -> Tensor:
    """int64[k]: the last place up to each of int64[k] in [0, n] at which a time value begins."""
    borders = time_borders(times)
    return borders[torch.searchsorted(borders, places, right=True) - 1]


def time_cuts(times: Tensor, size: int, *, first: int = 0, split: bool = False) -> list[int]:
    """Places 0 .. n that cut a stream into pieces that end with the time value that fills them.

    Where a piece begins and whether a time value belongs to it depends on what was before that time
    alone, never on how many events there are at it.

    Args:
        times: float64[n], not falling.
        size: events that fill a piece. first: the same of the first piece; 0: `size`.
        split: where its last time value makes a piece longer by `size` / 2 or more, what is beyond
            the size is cut into equal shares of about `size`. They lie inside of that time value.
    """
    borders = time_borders(times)
    cuts, wanted = [0], first or size
    while cuts[-1] < times.numel():
        begin = cuts[-1]
        after = int(torch.searchsorted(borders, begin + wanted))
        end = int(borders[min(after, borders.numel() - 1)])
        full = begin + wanted
        if split and 2 * (end - full) >= size:
            shares = max(1, round((end - full) / size))
            cuts += [full + (end - full) * share // shares for share in range(shares + 1)]
        else:
            cuts.append(end)
        wanted = size
    return cuts
