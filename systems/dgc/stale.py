"""Adaptive stale aggregation: rows that hardly changed are not sent again (DGC, section 5.2).

A sender keeps, for every row that others read, the copy it sent last. In epoch r it measures how
far each row has moved from that copy (Euclidean distance d), takes the largest distance D_r, and
sends only rows with d > theta_r; receivers go on with the copy they have. Equations 6 and 7 set

    theta_r = D_r / (1 + exp(norm)),   norm = (l_1 - l_(r-1)) / l_1,   l the training loss.

As printed theta_r / D_r falls from 0.5 to 0.27 while the loss falls, but the text wants it small
at first and larger later. With exp(-norm) it rises from 0.5 to 0.73; this corrected sign is the
default.

What the paper leaves open, and what is done here:

- D is taken per sender and per exchange (`scope`), after the first epoch, which sends everything.
- A stale copy is a constant: gradients go back for the rows that were sent and for no other, so
  the backward pass saves the same rows. What a held row should have heard is lost.
- Receivers must learn which rows come. As lists are known on both sides, one bit for each row
  tells it and their number as well; ids of four bytes (`index`) are told after their number, so
  that everybody waits once more.
- Rows that need no gradient are the model's inputs. They never change, so after the first epoch
  D = 0 on every rank: nothing is compared or sent, and nobody has to be told.
- Where an exchange moves rows to the worker of the time encoder (`moves`), what moves are outputs
  of the structure encoder; a copy of one is as stale, and as constant, as any other.
- theta = 0 is the paper's run without the technique: then nothing is compared and every row goes.
- Passes without gradients, such as a measurement of accuracy, exchange every row and change no
  copy; the counts of an epoch know nothing of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, Literal

import torch
from torch import Tensor

from dgbench.runtime.collectives import Communicator
from dgbench.runtime.errors import CheckFailed, InvalidInputError
from dgbench.runtime.fields import check_choices, check_counts
from dgbench.systems.dgc.exchange import count_rows
from dgbench.systems.dgc.halo_lists import RowLists
from dgbench.systems.dgc.stale_counts import BitLists, StaleEpoch, places_of, summed

__all__ = [
    "LastSent",
    "StaleEpoch",
    "StaleRows",
    "StaleSettings",
    "Threshold",
    "adaptive_share",
    "loss_decrease",
    "summed",
]

Sign = Literal["corrected", "printed"]
CacheOf = Literal["sent", "previous"]
Scope = Literal["rank", "global"]
Reach = Literal["epoch", "past"]
IndexForm = Literal["ids", "bits"]

SIGNS: Final[tuple[Sign, ...]] = ("corrected", "printed")
CACHES: Final[tuple[CacheOf, ...]] = ("sent", "previous")
SCOPES: Final[tuple[Scope, ...]] = ("rank", "global")
REACHES: Final[tuple[Reach, ...]] = ("epoch", "past")
INDEX_FORMS: Final[tuple[IndexForm, ...]] = ("bits", "ids")
STATES: Final = "state"
"""Prefix of the exchanges that carry states of sequences from one worker to the next."""
MOVES: Final = "move"
"""The exchange of rows that change their worker between the encoders."""
NEVER_STALE: Final = "task"
"""Rows for the loss; no encoder aggregates them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleSettings:
    """When a row counts as unchanged.

    Attributes:
        threshold: theta / D, from 0 (everything is sent) to 1; None: adaptive, equation 6.
        sign: of equation 6's exponent, `corrected` or as `printed`.
        cache: what a row is compared with: the copy `sent` last, or that of the `previous` epoch,
            sent or not. The paper warns of the latter: many small moves are never seen.
        scope: D over the rows of a `rank`, or over all ranks (`global`, one more number to reduce).
        states: also states that a cut sequence hands on; off, only what encoders aggregate.
        moves: also structure outputs that change their worker between the encoders. None: where
            the time encoder attends, which reads such rows as it reads those of other workers.
        whole_epochs: first epochs that send everything, at least 1.
        reach: D is the largest distance of this `epoch`, as printed, or of all `past` epochs and
            this one. Changes shrink as training goes on, so the second sends less and less; the
            first sends the farthest rows however little they moved, and all rows where all move
            alike.
        quantile: D is this quantile of the distances that are not zero; 1, their maximum, is the
            paper's.
        refresh: a row is sent at the latest in this epoch after its last time; None: no limit.
        index: how receivers learn which rows come, see the module.
    """

    threshold: float | None = None
    sign: Sign = "corrected"
    cache: CacheOf = "sent"
    scope: Scope = "rank"
    states: bool = True
    moves: bool | None = None
    whole_epochs: int = 1
    reach: Reach = "epoch"
    quantile: float = 1.0
    refresh: int | None = None
    index: IndexForm = "bits"

    def check(self) -> StaleSettings:
        """Return self.

        Raises:
            UnknownKeyError, InvalidInputError: a field out of range.
        """
        words = {
            "sign": SIGNS,
            "cache": CACHES,
            "scope": SCOPES,
            "reach": REACHES,
            "index": INDEX_FORMS,
        }
        check_choices(self, words, of="StaleSettings")
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise InvalidInputError(
                f"threshold is {self.threshold!r}, allowed are 0 to 1 (shares of D) and None",
                hint="None is the adaptive threshold",
            )
        if not 0 < self.quantile <= 1:
            raise InvalidInputError(f"quantile is {self.quantile!r}, allowed is a share in (0, 1]")
        if self.quantile < 1 and self.scope == "global":
            raise InvalidInputError(
                f"quantile is {self.quantile!r} and scope 'global'; ranks only share a maximum",
                hint="scope='rank', or quantile=1",
            )
        check_counts(self, ("whole_epochs",), optional=("refresh",))
        return self

    def of_model(self, *, attention: bool) -> StaleSettings:
        """These settings with `moves` decided for a model whose time encoder attends or not."""
        return self if self.moves is not None else replace(self, moves=attention)

    def applies(self, name: str) -> bool:
        """Return True if an exchange of this name may hold rows back."""
        if self.threshold == 0 or name.startswith(NEVER_STALE):
            return False
        if name.startswith(MOVES):
            return bool(self.moves)
        return self.states or not name.startswith(STATES)


def loss_decrease(first: float, last: float) -> float:
    """Equation 7: (l_1 - l_(r-1)) / l_1; 0 where the first loss is 0."""
    return (first - last) / first if first else 0.0


def adaptive_share(norm: float, sign: Sign = "corrected") -> float:
    """Equation 6 without D: 1 / (1 + exp(-norm)), or with exp(norm) as printed."""
    return 1 / (1 + math.exp(-norm if sign == "corrected" else norm))


class Threshold:
    """theta / D of each epoch.

    Attributes:
        epoch: r, from 1.
        share: theta_r / D_r, or None where everything is sent.
    """

    def __init__(self, settings: StaleSettings) -> None:
        self.settings = settings.check()
        self.epoch = 1
        self._first: float | None = None
        self.share: float | None = None

    def end_epoch(self, loss: float) -> None:
        """Go on to the next epoch, knowing the loss of this one.

        Raises:
            CheckFailed: a loss that is no finite number; no threshold follows from it.
        """
        if not math.isfinite(loss):
            raise CheckFailed(
                f"the loss of epoch {self.epoch} is {loss}, so no stale threshold follows from it"
            )
        if self._first is None:
            self._first = loss
        self.epoch += 1
        if self.epoch <= self.settings.whole_epochs:
            self.share = None
        elif self.settings.threshold is not None:
            self.share = self.settings.threshold
        else:
            self.share = adaptive_share(loss_decrease(self._first, loss), self.settings.sign)


class LastSent:
    """The copies that one exchange compares with, for rows of one sender or of several.

    Args:
        settings: when a row counts as unchanged.
        sender: int64[B], whose row each is, for rows of several senders in one tensor; None: all
            of one. Every sender has a D of its own, unless the scope is `global`.
    """

    def __init__(self, settings: StaleSettings, sender: Tensor | None = None) -> None:
        self.settings = settings
        self._groups: list[Tensor] | None = None
        if sender is not None and settings.scope == "rank":
            self._groups = [(sender == s).nonzero().squeeze(1) for s in sender.unique().tolist()]
        self.copy: Tensor | None = None
        self._age: Tensor | None = None
        self._past: dict[int, Tensor] = {}
        self.reached = torch.zeros(())

    @property
    def largest(self) -> float:
        """D of the last epoch that compared, where its rows lie; waits for them."""
        return float(self.reached)

    @property
    def nbytes(self) -> int:
        """Bytes of the copies."""
        return 0 if self.copy is None else self.copy.numel() * self.copy.element_size()

    def choose(
        self, x: Tensor, share: float | None, over_all: Callable[[Tensor], Tensor] | None = None
    ) -> Tensor:
        """Select the rows to send in this epoch; they become the copies.

        Args:
            x: [B, W], the rows as they are now; read, not kept.
            share: theta / D; None: all are sent.
            over_all: the maximum of a number over all ranks, for the scope `global`.

        Returns:
            bool[B].
        """
        x = x.detach()
        if self.copy is None or share is None:
            # No rank has copies in its first epoch, so that all skip the reduction together.
            self.copy = x.clone()
            if self.settings.refresh is not None:
                self._age = torch.zeros(x.shape[0], dtype=torch.int32, device=x.device)
            return torch.ones(x.shape[0], dtype=torch.bool, device=x.device)
        distance = torch.linalg.vector_norm(x - self.copy, dim=1)
        limit = self._limit(distance, share, over_all)
        sent = ~(distance <= limit)  # a NaN is sent, not hidden
        if self._age is not None:
            self._age += 1
            sent |= self._age >= self.settings.refresh
            self._age.masked_fill_(sent, 0)
        if self.settings.cache == "sent":
            torch.where(sent[:, None], x, self.copy, out=self.copy)
        else:
            self.copy.copy_(x)
        return sent

    def _limit(
        self, distance: Tensor, share: float, over_all: Callable[[Tensor], Tensor] | None
    ) -> Tensor:
        """theta, one for all rows or one for each."""
        if self._groups is not None:
            limit = torch.zeros_like(distance)
            for number, rows in enumerate(self._groups):
                limit[rows] = share * self._reach(distance[rows], number)
            self.reached = distance.max() if distance.numel() else distance.new_zeros(())
            return limit
        reach = self._reach(distance, 0)
        if over_all is not None:
            reach = over_all(reach)
        self.reached = reach
        return share * reach

    def _reach(self, distance: Tensor, group: int) -> Tensor:
        """D: the maximum of the distances, or a quantile of those that are not zero."""
        quantile = self.settings.quantile
        if quantile < 1:
            distance = distance[distance != 0]
        if distance.numel() == 0:
            reach = distance.new_zeros(())
        elif quantile == 1:
            reach = distance.max()
        else:
            reach = distance.kthvalue(max(1, math.ceil(quantile * distance.numel()))).values
        if self.settings.reach == "past":
            reach = self._past[group] = torch.maximum(reach, self._past.get(group, reach))
        return reach


class StaleRoute:
    """State of one exchange: its copies on both sides, and the mapping of its lists to rows."""

    def __init__(self, lists: RowLists, settings: StaleSettings) -> None:
        self.lists = lists
        self.rows, self.place = torch.unique(lists.send, return_inverse=True)  # [B], [S]
        self.last = LastSent(settings)
        self.received: Tensor | None = None
        device = lists.send.device
        self.bits = BitLists(lists.send_counts, device)
        self.bits_here = BitLists(lists.receive_counts, device)
        self._same: tuple[Tensor, int] | None = None
        counts = torch.tensor(lists.send_counts)
        self.to = torch.repeat_interleave(torch.arange(len(counts)), counts).to(device)
        self.begin = _starts(lists.send_counts)
        self.arrive = _starts(lists.receive_counts)

    def is_constant(self, x: Tensor) -> bool:
        """Return True if the rows equal the copies; skips reading an `x` seen before."""
        if self._same is not None and self._same[0] is x and self._same[1] == x._version:
            return True
        self._same = x, x._version
        return torch.equal(x.index_select(0, self.rows), self.last.copy)


class StaleRows:
    """Rows to other workers, those that hardly changed left out; a `RowExchange`.

    All ranks call `fetch` alike, once per exchange and epoch, and `end_epoch` with the loss of the
    epoch. Rows that the plain exchange would send travel in one all-to-all whose backward pass
    returns gradients for just these.

    Counted in the meter: what travels as in `PlainRows`, and `stale_rows_sent`, `stale_rows_held`,
    `stale_floats_sent`, `stale_floats_held` and `stale_index_bytes`, which the communicator's
    own traffic holds as well: ids are elements of an all-to-all there, so that the floats of
    embeddings are the all-to-all's less `index_elements`.

    Args:
        comm: the group.
        settings: when a row counts as unchanged.

    Attributes:
        history: of every epoch that ended.
        index_elements: elements of all-to-alls so far that were ids or bytes of bits, not floats.
    """

    def __init__(self, comm: Communicator, settings: StaleSettings = StaleSettings()) -> None:
        self.comm = comm
        self.threshold = Threshold(settings)
        self.settings = settings
        self.history: list[StaleEpoch] = []
        self.index_elements = 0
        self._now = StaleEpoch()
        self._routes: dict[str, StaleRoute] = {}

    @property
    def cache_bytes(self) -> int:
        """Bytes of the copies on this rank as a sender, measured: 4 W for each row others read."""
        return sum(route.last.nbytes for route in self._routes.values())

    @property
    def received_bytes(self) -> int:
        """Bytes of the copies on this rank as a receiver: 4 W for each row it reads of others."""
        return sum(
            r.received.numel() * r.received.element_size()
            for r in self._routes.values()
            if r.received is not None
        )

    def fetch(self, name: str, x: Tensor, lists: RowLists) -> Tensor:
        """Rows of other workers, fresh where they were sent, else as they came last.

        Args:
            name: of the exchange; says which copies belong to it.
            x: [R, W], own rows.
            lists: the same in every epoch.

        Returns:
            [H, W], grouped by sender. Differentiable in rows that were sent; others are constants.

        Raises:
            InvalidInputError: lists of other sizes than before under this name, or rows without a
                gradient that are not those of the first epoch.
        """
        width, count = x.shape[1], lists.send.numel()
        if lists.idle:
            if torch.is_grad_enabled():
                self._count(name, 0, 0, width)
            return x.new_empty(0, width)
        if not torch.is_grad_enabled():
            return self._all(name, x, lists)
        if not self.settings.applies(name):
            self._count(name, count, 0, width)
            return self._all(name, x, lists)
        route = self._route(name, lists)
        share = self.threshold.share
        constant = not x.requires_grad and self.settings.refresh is None
        if constant and route.received is not None and share is not None:
            return self._constant(name, x, route)
        sent = route.last.choose(x.detach().index_select(0, route.rows), share, self._over_all())
        if route.received is None or share is None:
            # All ranks are in the same epoch, so that all send everything, and no ids.
            received = self._whole(name, x, route)
            route.received = received.detach().clone()
            self._now.largest[name] = 0.0
            self._count(name, count, 0, width)
            return received
        rows, places, number = self._changed(name, x, route, sent)
        self._count(name, number, count - number, width)
        found = route.received.index_copy(0, places, rows)
        route.received = found.detach()
        return found

    def end_epoch(self, loss: float) -> None:
        """Close the counts of the epoch and set the next threshold from its loss."""
        self._now.share = self.threshold.share
        self.history.append(self._now)
        self._now = StaleEpoch()
        self.threshold.end_epoch(float(loss))

    def _route(self, name: str, lists: RowLists) -> StaleRoute:
        route = self._routes.get(name)
        if route is None:
            route = self._routes[name] = StaleRoute(lists, self.settings)
        elif route.lists is not lists and (
            list(lists.receive_counts) != list(route.lists.receive_counts)
            or not torch.equal(lists.send, route.lists.send)
        ):
            raise InvalidInputError(
                f"the exchange '{name}' came with other lists than before: "
                f"{lists.send.numel()} rows to send, {route.lists.send.numel()} at first",
                hint="copies belong to a name, so give each list of rows a name of its own",
            )
        return route

    def _all(self, name: str, x: Tensor, lists: RowLists) -> Tensor:
        grad = torch.is_grad_enabled() and x.requires_grad
        count_rows(self.comm, name, lists, x.shape[1], backward=grad)
        return self.comm.all_to_all(
            x.index_select(0, lists.send), lists.send_counts, lists.receive_counts, grad=grad
        )

    def _whole(self, name: str, x: Tensor, route: StaleRoute) -> Tensor:
        """[H, W], all rows of an exchange, which become copies on both sides."""
        return self._all(name, x, route.lists)

    def _changed(
        self, name: str, x: Tensor, route: StaleRoute, sent: Tensor
    ) -> tuple[Tensor, Tensor, int]:
        """Send the rows that changed: what came, its places in [H, W], rows that left.

        Args:
            name, x: of the exchange.
            route: of its lists.
            sent: bool[B] over `route.rows`.
        """
        kept = sent.index_select(0, route.place)  # [S]
        counts, places, coming = self._tell(name, route, kept)
        leaving = route.lists.send.index_select(0, places_of(kept, sum(counts)))
        rows = self._all(name, x, RowLists(leaving, counts, coming))
        return rows, places, sum(counts)

    def _read(self, name: str, route: StaleRoute, numbers: Sequence[Tensor]) -> list[list[int]]:
        """Numbers of an exchange on the host, and its D: all that a device is waited for."""
        parts = [route.last.reached.reshape(1).double(), *(part.double() for part in numbers)]
        self._now.largest[name], *read = torch.cat(parts).tolist()
        whole = iter(int(number) for number in read)
        return [list(islice(whole, part.numel())) for part in numbers]

    def _over_all(self) -> Callable[[Tensor], Tensor] | None:
        if self.settings.scope != "global":
            return None
        return lambda reach: self.comm.all_reduce(reach.reshape(1), "max")[0]

    def _constant(self, name: str, x: Tensor, route: StaleRoute) -> Tensor:
        """The copies of rows that never change."""
        if not route.is_constant(x):
            raise InvalidInputError(
                f"rows of '{name}' need no gradient and are not those of the first epoch",
                hint="rows that change depend on parameters; rows that do not are never sent again",
            )
        self._now.largest[name] = 0.0
        self._count(name, 0, route.lists.send.numel(), x.shape[1])
        return route.received

    def _tell(
        self, name: str, route: StaleRoute, kept: Tensor
    ) -> tuple[list[int], Tensor, list[int]]:
        """Tell receivers which rows come: how many leave for each rank, where those that arrive
        stand here, and how many come from each rank."""
        if self.settings.index == "bits":
            return self._tell_bits(name, route, kept)
        (counts,) = self._read(name, route, [route.bits.counts(route.bits.pack(kept))])
        coming = self.comm.exchange_sizes(counts)
        begin = route.begin.to(kept.device)
        ids = (kept.nonzero().squeeze(1) - begin[route.to[kept]]).int()
        got = self.comm.all_to_all(ids, counts, coming).long()
        sender = torch.repeat_interleave(torch.tensor(coming, device=got.device))
        there = sum(n for to, n in enumerate(counts) if to != self.comm.rank)
        pairs = sum(1 for to in range(self.comm.size) if to != self.comm.rank)
        self._count_index(there, 4 * there + 8 * pairs)
        return counts, got + route.arrive.to(got.device)[sender], coming

    def _tell_bits(
        self, name: str, route: StaleRoute, kept: Tensor
    ) -> tuple[list[int], Tensor, list[int]]:
        packed = route.bits.pack(kept)
        got = self._tell_mask(packed, route.bits, route.bits_here)
        numbers = [route.bits.counts(packed), route.bits_here.counts(got)]
        counts, coming = self._read(name, route, numbers)
        return counts, places_of(route.bits_here.unpack(got), sum(coming)), coming

    def _tell_mask(self, packed: Tensor, there: BitLists, here: BitLists) -> Tensor:
        """Bits of the rows that come, from each rank's bits of those that leave."""
        nbytes = sum(n for to, n in enumerate(there.nbytes) if to != self.comm.rank)
        self._count_index(nbytes, nbytes)
        return self.comm.all_to_all(packed, there.nbytes, here.nbytes)

    def _count(self, name: str, sent: int, held: int, width: int) -> None:
        self._now.add(name, sent, held, width)
        meter = self.comm.meter
        for what, amount in (("sent", sent), ("held", held)):
            meter.count(f"stale_rows_{what}", amount)
            meter.count(f"stale_floats_{what}", amount * width)

    def _count_index(self, elements: int, nbytes: int) -> None:
        self.index_elements += elements
        self._now.index_bytes += nbytes
        self.comm.meter.count("stale_index_bytes", nbytes)


def _starts(counts: Iterable[int]) -> Tensor:
    sizes = torch.tensor(list(counts), dtype=torch.int64)
    return torch.cumsum(sizes, 0) - sizes
