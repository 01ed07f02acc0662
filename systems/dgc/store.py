"""The store that carries all embeddings through one server (DGC, section 6).

The paper's workers push local embeddings to a store and pull remote ones out of it; the store is
one process, so every row crosses its link twice and the server is a serial point. Here the last
rank of a group of P + 1 is the server: it owns no vertex-steps and takes part in each exchange
between the two halves. A row that several workers read is pushed once. Backward, gradients travel
the same way round; the server adds up those of one row before it hands them to its owner.
"""

from __future__ import annotations

import math
import time

import torch
from torch import Tensor

from dgbench.runtime.collectives import Communicator
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.dgc.halo_lists import RowLists


class _Shelf:
    """Layout of the rows of one exchange on the server.

    Attributes:
        rows: int64[B], own rows that are pushed, each once.
        pushed: by rank, rows that come to the server; on workers only what they send.
        order: int64, on the server: rows of what was pushed, in the order of the pulls.
        pulled: rows that the server sends to each rank.
    """

    def __init__(self, comm: Communicator, lists: RowLists) -> None:
        server, size = comm.size - 1, comm.size
        self.rows, place = torch.unique(lists.send, return_inverse=True)
        to_server = [0] * size
        # What a worker owns and who wants which of it, told once.
        about = torch.tensor([self.rows.numel(), *lists.send_counts], device=place.device)
        heads = _to_server(comm, about)
        wanted = _to_server(comm, place)
        to_server[server] = self.rows.numel()
        self.push_counts = to_server
        self.order = torch.empty(0, dtype=torch.int64, device=place.device)
        self.pushed = [0] * size
        self.pulled = [0] * size
        if comm.rank != server:
            self.pull_counts = [0] * size
            self.pull_counts[server] = sum(lists.receive_counts)
            self.pushed = [0] * size
            return
        self.pull_counts = [0] * size
        head = heads.view(size, 1 + size).tolist()
        self.pushed = [int(row[0]) for row in head]
        parts: list[list[Tensor]] = [[] for _ in range(size)]
        at, base = 0, 0
        for row in head:
            for reader, count in enumerate(row[1:]):
                parts[reader].append(wanted[at : at + count] + base)
                at += count
            base += row[0]
        self.pulled = [sum(part.numel() for part in some) for some in parts]
        self.order = torch.cat([part for some in parts for part in some])


class StoreRows:
    """Rows to other workers by push and pull through the last rank; a `RowExchange`.

    Counted in the communicator's meter, beside the traffic of both halves: `store_rows_pushed` on
    workers, `store_rows_pulled` on the server. `store_serve` in `spent` is the time that the
    server had rows in its hands, `store_push` and `store_pull` what a rank waited for each half.

    Args:
        comm: P + 1 ranks; the last is the server and must own no rows.

    Raises:
        InvalidInputError: a group of one.
    """

    def __init__(self, comm: Communicator) -> None:
        if comm.size < 2:
            raise InvalidInputError(
                f"a store needs a group of workers and one server, found {comm.size} rank",
                hint="start one rank more than there are workers",
            )
        self.comm = comm
        self.server = comm.size - 1
        self._shelves: dict[str, _Shelf] = {}

    def fetch(self, name: str, x: Tensor, lists: RowLists) -> Tensor:
        """Push own rows that others read, pull those of others; both halves are differentiable.

        Args:
            name: of the exchange; says which lists belong to it.
            x: [R, W], own rows; on the server [0, W].
            lists: the same at every call of this name.

        Returns:
            [H, W], grouped by sender; [0, W] on the server.

        Raises:
            InvalidInputError: the server owns or wants rows, or lists of another size than before.
        """
        if lists.idle:
            return x.new_empty(0, x.shape[1])
        shelf = self._shelf(name, lists)
        comm, at_server = self.comm, self.comm.rank == self.server
        begin = time.perf_counter()
        table = comm.all_to_all(x.index_select(0, shelf.rows), shelf.push_counts, shelf.pushed)
        arrived = time.perf_counter()
        comm.meter.spend("store_push", arrived - begin)
        out = table.index_select(0, shelf.order)
        if at_server:
            comm.meter.spend("store_serve", time.perf_counter() - arrived)
            comm.meter.count("store_rows_pulled", out.shape[0])
            comm.meter.count("store_floats_pulled", out.shape[0] * math.prod(out.shape[1:]))
        else:
            comm.meter.count("store_rows_pushed", shelf.rows.numel())
        arrived = time.perf_counter()
        found = comm.all_to_all(out, shelf.pulled, shelf.pull_counts)
        comm.meter.spend("store_pull", time.perf_counter() - arrived)
        return found

    def end_epoch(self, loss: float) -> None:
        """Nothing is kept from one epoch to the next."""

    def _shelf(self, name: str, lists: RowLists) -> _Shelf:
        if self.comm.rank == self.server and (
            lists.send.numel() or sum(lists.receive_counts) or lists.send_counts[self.server]
        ):
            raise InvalidInputError(
                f"rank {self.server} is the server of the store and has rows in '{name}'",
                hint="place vertex-steps on all ranks but the last",
            )
        shelf = self._shelves.get(name)
        if shelf is None:
            shelf = self._shelves[name] = _Shelf(self.comm, lists)
        elif shelf.pull_counts[self.server] != sum(lists.receive_counts) and (
            self.comm.rank != self.server
        ):
            raise InvalidInputError(
                f"the exchange '{name}' wants {sum(lists.receive_counts)} rows, "
                f"{shelf.pull_counts[self.server]} at first",
                hint="give each list of rows a name of its own",
            )
        return shelf


def _to_server(comm: Communicator, numbers: Tensor) -> Tensor:
    """Every rank's numbers, below each other in order of rank, on the last rank; none elsewhere."""
    sizes = [0] * comm.size
    sizes[-1] = numbers.numel()
    return comm.all_to_all(numbers, sizes, comm.exchange_sizes(sizes))
