"""Communicators without processes: one rank alone, and one that only counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dgbench.runtime.collectives.communicator import Communicator, Reduction
from dgbench.runtime.collectives.exchange import Arrived, PendingExchange
from dgbench.runtime.collectives.traffic import TrafficMatrix, stack
from dgbench.runtime.errors import InvalidInputError, UnsupportedError
from dgbench.runtime.meter import Meter

MAX_COUNTED = 4096
"""Largest group that is counted; its traffic matrix has the square of it."""


class LocalCommunicator(Communicator):
    """A group of one rank: nothing travels, nothing is counted, nothing is started."""

    def __init__(
        self, *, device: str | torch.device = "cpu", meter: Meter | None = None, seed: int = 1
    ) -> None:
        super().__init__(0, 1, device=device, meter=meter, seed=seed)

    def barrier(self) -> None:
        """Return at once."""

    def all_traffic(self) -> TrafficMatrix:
        """A 1 x 1 matrix of nothing."""
        return stack([self.traffic])

    def _begin(self, x: Tensor, send: tuple[int, ...], receive: tuple[int, ...]) -> PendingExchange:
        # Autograd may not be given an input back as the output; a view of it may.
        return Arrived(x.view_as(x))

    def _exchange_sizes(self, send: tuple[int, ...]) -> list[int]:
        return list(send)

    def _all_reduce(self, x: Tensor, op: Reduction) -> Tensor:
        return x.clone()

    def _all_gather(self, x: Tensor, rows: tuple[int, ...]) -> Tensor:
        return x.clone()

    def _broadcast(self, x: Tensor, root: int) -> Tensor:
        return x.clone()


class CountOnly(Communicator):
    """One rank of a group that does not exist: counts are exact, tensors have no data.

    Give it tensors on torch's `meta` device, which have a shape and a gradient but no memory, and
    run the code that would run on that rank: T = 192 snapshots of a million vertices on 128 ranks
    are walked in milliseconds. What other ranks would tell this one is not known, so
    `exchange_sizes` is refused.
    """

    def __init__(self, rank: int, size: int, *, meter: Meter | None = None, seed: int = 1) -> None:
        if size > MAX_COUNTED:
            raise InvalidInputError(f"'size' is {size}, allowed: at most {MAX_COUNTED}")
        super().__init__(rank, size, device="meta", meter=meter or Meter(), seed=seed)

    def barrier(self) -> None:
        """Return at once."""

    def all_traffic(self) -> TrafficMatrix:
        """Refused: the other ranks do not exist; see `count_ranks`.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            "a rank that only counts knows its own traffic alone",
            hint="count_ranks(function, size) runs the function as every rank and stacks the rows",
        )

    def _begin(self, x: Tensor, send: tuple[int, ...], receive: tuple[int, ...]) -> PendingExchange:
        return Arrived(_meta(x, sum(receive)))

    def _exchange_sizes(self, send: tuple[int, ...]) -> list[int]:
        raise UnsupportedError(
            "sizes that other ranks would tell are not known to a rank that only counts",
            hint="give all_to_all sizes that follow from the partition",
        )

    def _all_reduce(self, x: Tensor, op: Reduction) -> Tensor:
        return torch.empty_like(x, device="meta")

    def _all_gather(self, x: Tensor, rows: tuple[int, ...]) -> Tensor:
        return _meta(x, sum(rows))

    def _broadcast(self, x: Tensor, root: int) -> Tensor:
        return torch.empty_like(x, device="meta")


def count_ranks(
    function: Callable[..., Any], size: int, *args: Any, meter: Meter | None = None
) -> TrafficMatrix:
    """Run `function(communicator, *args)` as each of `size` ranks, one after the other, and count.

    Args:
        function: what a rank does, on `meta` tensors of its own making.
        meter: gets the counters of all ranks together.

    Raises:
        UnsupportedError: the function asks for something that only other ranks know.
    """
    meter = meter or Meter()
    rows = []
    for rank in range(size):
        comm = CountOnly(rank, size, meter=meter)
        function(comm, *args)
        rows.append(comm.traffic)
    return stack(rows)


def _meta(x: Tensor, rows: int) -> Tensor:
    return torch.empty((rows, *x.shape[1:]), dtype=x.dtype, device="meta")
