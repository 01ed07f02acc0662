"""Rows that a worker fetches from others: the one place where embeddings travel.

What replaces `PlainRows` (stale aggregation, a store between the workers) answers the same call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from dgbench.runtime.collectives import Communicator
from dgbench.systems.dgc.rows import take_rows

if TYPE_CHECKING:
    from dgbench.systems.dgc.plan import RowLists

NAMES = ("structure0", "structure1", "move", "time", "state", "task")
"""Names of exchanges: rows of a structure round, rows moved between the encoders, structure outputs
of other steps for attention, end states of segments (`state0`, `state1`, ... by stage), ends of
pairs."""


class RowExchange(Protocol):
    """Exchange of rows with other workers. All workers call it alike and in one order."""

    def fetch(self, name: str, x: Tensor, lists: RowLists) -> Tensor:
        """The rows of other workers that `lists` says.

        Args:
            name: one of `NAMES`, the same on all workers; what is kept between epochs is kept by
                it.
            x: [R, W], own rows; whether it requires a gradient is alike on all workers.
            lists: which rows go to whom.

        Returns:
            [H, W], grouped by sender; differentiable in the senders' `x` where that requires a
            gradient. Nothing is done where the lists are idle.
        """
        ...

    def end_epoch(self, loss: float) -> None:
        """An epoch of training ended with this loss (before its step), alike on all workers."""
        ...


class PendingRows(Protocol):
    """Rows on their way."""

    def wait(self) -> Tensor:
        """[H, W], once."""
        ...


class PlainRows:
    """Every row is sent in every epoch, straight to who needs it, gradients back.

    Counts in the communicator's meter are `<name>_rows_forward` and `<name>_floats_forward`, and
    of the gradients `..._backward`: what this worker sends, to others alone.
    """

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm

    def fetch(self, name: str, x: Tensor, lists: RowLists) -> Tensor:
        """As in `RowExchange`."""
        return self.start(name, x, lists).wait()

    def start(self, name: str, x: Tensor, lists: RowLists) -> PendingRows:
        """Begin what `fetch` does, so that work can be done before `wait`.

        Work between the two also lies between them in the backward pass.
        """
        if lists.idle:
            return Fetched(x.new_empty(0, x.shape[1]))
        grad = torch.is_grad_enabled() and x.requires_grad
        count_rows(self.comm, name, lists, x.shape[1], backward=grad)
        return self.comm.start_all_to_all(
            take_rows(x, lists.send), lists.send_counts, lists.receive_counts, grad=grad
        )

    def end_epoch(self, loss: float) -> None:
        """Nothing is kept."""


class Fetched:
    """Rows of an exchange that cannot be begun apart from its end."""

    def __init__(self, rows: Tensor) -> None:
        self._rows = rows

    def wait(self) -> Tensor:
        """Rows that were fetched."""
        return self._rows


def begin(exchange: RowExchange, name: str, x: Tensor, lists: RowLists) -> PendingRows:
    """`exchange.start` where it has one, else the whole `fetch` at once."""
    start = getattr(exchange, "start", None)
    return Fetched(exchange.fetch(name, x, lists)) if start is None else start(name, x, lists)


def count_rows(
    comm: Communicator, name: str, lists: RowLists, width: int, *, backward: bool
) -> None:
    """Add what an exchange in full sends to the meter's counters by name.

    Args:
        comm: whose meter.
        name: of the exchange.
        lists: of the rows.
        width: floats of a row.
        backward: whether gradients of what is received go back.
    """
    directions = [("forward", lists.send_counts)]
    if backward:
        directions.append(("backward", lists.receive_counts))
    for direction, counts in directions:
        rows = sum(counts) - counts[comm.rank]
        if rows:
            comm.meter.count(f"{name}_rows_{direction}", rows)
            comm.meter.count(f"{name}_floats_{direction}", rows * width)
