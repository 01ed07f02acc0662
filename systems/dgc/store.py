"""The store that carries all embeddings through one server (DGC, section 6).

The paper's workers push local embeddings to a store and pull remote ones out of it; the store is
one process, so every row crosses its link twice and the server is a serial point. Here the last
rank of a group of P + 1 is the server: it owns no vertex-steps and takes part in each exchange
between the two halves. A row that several workers read is pushed once. Backward, gradients travel
the same way round; the server adds up those of one row before it hands them to its owner. With
stale aggregation the server's rows are the cache, see `stale_store`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from dgbench.runtime.collectives import Communicator
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.dgc.halo_lists import RowLists


class Shelf:
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
        self._shelves: dict[str, Shelf] = {}

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
        return self.fetch_all(x, self.shelf(name, lists))[1]

    @property
    def at_server(self) -> bool:
        """True on the server."""
        return self.comm.rank == self.server

    def fetch_all(self, x: Tensor, shelf: Shelf) -> tuple[Tensor, Tensor]:
        """All rows of an exchange as they lie on the server, [0, W] elsewhere, and those pulled."""
        pushed = x.index_select(0, shelf.rows)
        table = self.push(pushed, shelf.push_counts, shelf.pushed)
        return table, self.pull(table, shelf.order, shelf.pulled, shelf.pull_counts)

    def push(
        self, rows: Tensor, to: Sequence[int], by: Sequence[int], *, grad: bool | None = None
    ) -> Tensor:
        """Rows that come to the server, [0, W] elsewhere.

        Args:
            rows: own rows.
            to, by: rows for each rank and from each.
            grad: as in `Communicator.all_to_all`.
        """
        begin = time.perf_counter()
        table = self.comm.all_to_all(rows, to, by, grad=grad)
        self.comm.meter.spend("store_push", time.perf_counter() - begin)
        if not self.at_server:
            self.comm.meter.count("store_rows_pushed", rows.shape[0])
        return table

    def pull(
        self,
        table: Tensor,
        chosen: Tensor,
        to: Sequence[int],
        by: Sequence[int],
        *,
        grad: bool | None = None,
    ) -> Tensor:
        """Rows that come to a worker, [0, W] on the server.

        Args:
            table: on the server, its rows.
            chosen: int64, which of them go out, reader by reader.
            to, by, grad: as in `push`.
        """
        comm, begin = self.comm, time.perf_counter()
        out = table.index_select(0, chosen)
        if self.at_server:
            comm.meter.spend("store_serve", time.perf_counter() - begin)
            comm.meter.count("store_rows_pulled", out.shape[0])
            comm.meter.count("store_floats_pulled", out.shape[0] * math.prod(out.shape[1:]))
        begin = time.perf_counter()
        found = comm.all_to_all(out, to, by, grad=grad)
        comm.meter.spend("store_pull", time.perf_counter() - begin)
        return found

    def end_epoch(self, loss: float) -> None:
        """Nothing is kept from one epoch to the next."""

    def shelf(self, name: str, lists: RowLists) -> Shelf:
        """Layout of an exchange on the server; all ranks call it alike the first time."""
        if self.at_server and (
            lists.send.numel() or sum(lists.receive_counts) or lists.send_counts[self.server]
        ):
            raise InvalidInputError(
                f"rank {self.server} is the server of the store and has rows in '{name}'",
                hint="place vertex-steps on all ranks but the last",
            )
        shelf = self._shelves.get(name)
        if shelf is None:
            shelf = self._shelves[name] = Shelf(self.comm, lists)
        elif not self.at_server and shelf.pull_counts[self.server] != sum(lists.receive_counts):
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
