"""The store as the cache of stale aggregation (DGC, sections 5.2 and 6).

A worker pushes only rows that moved far from the copy it pushed last; the server keeps the last
pushed copy of every row, and hands out what changed since a worker pulled it. All other rows a
worker reads in its own client's copy. So a row crosses the server's link once for its push and once
for each reader, in the epochs in which it is sent, and not at all in the others.

Rows that are sent, values that are read and gradients are those of `StaleRows`. What is told, too:
one bit for each row that a worker may push, to the server, and one for each row that it may pull,
back. Backward, gradients of rows that were sent travel the same way round, added up on the server.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dgbench.runtime.collectives import Communicator
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.dgc.halo_lists import RowLists
from dgbench.systems.dgc.stale import StaleRoute, StaleRows, StaleSettings
from dgbench.systems.dgc.stale_counts import BitLists, places_of
from dgbench.systems.dgc.store import Shelf, StoreRows


@dataclass(slots=True, eq=False)
class _StoredRows:
    """One exchange in the store.

    Attributes:
        shelf: its layout.
        table: [rows, W] on the server, as they were pushed last; [0, W] on workers.
        push, pushed: bits of rows that leave for the server, and of those that come to it.
        pulled, pull: bits of rows that leave the server, and of those that come from it.
    """

    shelf: Shelf
    table: Tensor
    push: BitLists
    pushed: BitLists
    pulled: BitLists
    pull: BitLists

    @classmethod
    def of(cls, shelf: Shelf, table: Tensor) -> _StoredRows:
        """The bits of a layout, for a table of all rows."""
        counts = shelf.push_counts, shelf.pushed, shelf.pulled, shelf.pull_counts
        return cls(shelf, table, *(BitLists(some, table.device) for some in counts))


class StaleStoreRows(StaleRows):
    """Rows to other workers through a store that keeps them; a `RowExchange`.

    Counted as by `StaleRows` and by `StoreRows`; a worker counts what it sent and held back, a row
    to two readers twice, although it is pushed once.

    Args:
        comm: P + 1 ranks; the last is the server and must own no rows.
        settings: when a row counts as unchanged; receivers are told by bits.

    Raises:
        InvalidInputError: a group of one, or an `index` of ids.
    """

    def __init__(self, comm: Communicator, settings: StaleSettings = StaleSettings()) -> None:
        if settings.index != "bits":
            raise InvalidInputError(
                f"index is {settings.index!r}, allowed with a store is 'bits'",
                hint="the server tells by a bit for each row which ones changed",
            )
        super().__init__(comm, settings)
        self.store = StoreRows(comm)
        self._stored: dict[str, _StoredRows] = {}

    @property
    def stored_bytes(self) -> int:
        """Bytes of the rows that the server keeps, 4 W for each row others read; 0 on workers."""
        return sum(one.table.numel() * one.table.element_size() for one in self._stored.values())

    def _all(self, name: str, x: Tensor, lists: RowLists) -> Tensor:
        return self.store.fetch(name, x, lists)

    def _whole(self, name: str, x: Tensor, route: StaleRoute) -> Tensor:
        shelf = self.store.shelf(name, route.lists)
        table, found = self.store.fetch_all(x, shelf)
        if name not in self._stored:
            self._stored[name] = _StoredRows.of(shelf, table.detach())
        self._stored[name].table = table.detach()
        return found

    def _changed(
        self, name: str, x: Tensor, route: StaleRoute, sent: Tensor
    ) -> tuple[Tensor, Tensor, int]:
        store, stored = self.store, self._stored[name]
        shelf, grad = stored.shelf, x.requires_grad
        leaving = stored.push.pack(sent)
        new = self._tell_mask(leaving, stored.push, stored.pushed)
        # Of what the server sends to each reader, the rows that have just come.
        fresh = stored.pushed.unpack(new).index_select(0, shelf.order)
        going = stored.pulled.pack(fresh)
        came = self._tell_mask(going, stored.pulled, stored.pull)
        pairs = route.bits.pack(sent.index_select(0, route.place))
        push, pushed, pulled, pull, kept = self._read(
            name,
            route,
            [
                stored.push.counts(leaving),
                stored.pushed.counts(new),
                stored.pulled.counts(going),
                stored.pull.counts(came),
                route.bits.counts(pairs),
            ],
        )
        rows = route.rows.index_select(0, places_of(sent, sum(push)))
        arrived = store.push(x.index_select(0, rows), push, pushed, grad=grad)
        table = arrived
        if store.at_server:
            places = places_of(stored.pushed.unpack(new), sum(pushed))
            table = stored.table.index_copy(0, places, arrived)
            stored.table = table.detach()
        chosen = shelf.order.index_select(0, places_of(fresh, sum(pulled)))
        found = store.pull(table, chosen, pulled, pull, grad=grad)
        return found, places_of(stored.pull.unpack(came), sum(pull)), sum(kept)
