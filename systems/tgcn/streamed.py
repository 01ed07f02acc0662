"""An interval on devices that hold no state: rows come from host memory and go back (4.3, 6.2).

For graphs whose state is larger than a device, and for what the paper compares its placement with
(NeuGraph's: vectors in host memory, edges in stream order). Three passes, so that a device holds no
more than two parts at a time:

1. Every part is refreshed, and its embeddings are kept in host memory.
2. Every piece of pairs is trained: a grid, or a stretch of the stream. Embeddings of its sources
   and destinations come in, what was added up goes out.
3. Every part is refreshed once more, with a graph that takes the gradients to the parameters, and
   its state goes out.

Where there is one part and one piece, all of it is done while its rows are on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dgbench.models.streaming import DygnnState, PendingInteractions, VertexColumns
from dgbench.runtime.transfer import PendingTransfer, Staged
from dgbench.systems.base.interaction_trainer import VertexLabels
from dgbench.systems.tgcn.device import IntervalScores, Owner, train_pairs
from dgbench.systems.tgcn.feeding import Feeder, StagedInterval
from dgbench.systems.tgcn.grids import Parts
from dgbench.systems.tgcn.intervals import Pairs, PartRows
from dgbench.systems.tgcn.regions import Regions, Visitor
from dgbench.systems.tgcn.rounds import DeviceSettings


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of an interval that are refreshed together.

    Attributes:
        device: that does it. first: the interval's row that it begins with.
        share: in host memory; all of its rows count as sources and as targets.
        ids: int64[n], rows of the whole state.
    """

    device: int
    first: int
    share: PartRows
    ids: Tensor

    @property
    def rows(self) -> slice:
        """Its rows of the interval."""
        return slice(self.first, self.first + self.ids.numel())


@dataclass(frozen=True, slots=True)
class Piece:
    """Pairs that are trained together.

    Attributes:
        device: that does it. cell: source and destination part, or twice its number.
        pairs, staged: in host memory.
        sources, targets: rows of the interval.
    """

    device: int
    cell: tuple[int, int]
    pairs: Pairs
    staged: Staged
    sources: slice | Tensor
    targets: slice | Tensor


@dataclass(slots=True)
class Sums:
    """Of all rows of an interval, in host memory: [n, H] each."""

    embedding: Tensor
    gradient: Tensor
    total_s: Tensor
    total_g: Tensor


class HostRounds:
    """Runs intervals on devices that stream state.

    Args:
        regions: of each device; parts are dealt out to them in turns.
        settings: shared by all. parts: of the vertices.
        state, pending: of all vertices, in host memory, in the order of rows; written to.
        labels: of all vertices in the order of rows, on the device, or None.
    """

    def __init__(
        self,
        regions: Sequence[Regions],
        settings: DeviceSettings,
        parts: Parts,
        state: DygnnState,
        pending: PendingInteractions,
        labels: VertexLabels | None,
    ) -> None:
        self.regions, self.set, self.parts = regions, settings, parts
        self.state, self.pending, self.labels = state, pending, labels
        self._bounds = parts.bounds.tolist()
        self._feeders = [Feeder(one) for one in regions]
        self._rows = [Incoming(one) for one in regions]

    def reserve(self, rows: int, width: int, dtype: torch.dtype) -> None:
        """Nothing is kept ready: what comes in has the size of its part."""

    def run(self, load: StagedInterval, *, scale: float | None) -> list[IntervalScores]:
        """One interval: score it, learn where there is a scale, and keep what happened."""
        self.set.meter.count("rounds")
        pieces = self._pieces(load)
        share = load.shares[0][0]
        if len(load.shares) == 1 and len(pieces) == 1 and _covers(pieces[0], share):
            return [self._at_once(load, pieces[0], scale)]
        blocks = self._blocks(load)
        width = self.state.embedding.shape[1]
        sums = Sums(*(self.state.embedding.new_zeros(load.rows, width) for _ in range(4)))
        self._refresh(blocks, sums)
        found = self._train(load, pieces, sums, scale)
        return [*found, *self._keep(blocks, sums, scale)]

    # --- the passes -------------------------------------------------------------------------------

    def _refresh(self, blocks: list[Block], sums: Sums) -> None:
        """Refresh all rows and keep their embeddings on the host."""
        for block, columns in self._each(blocks, self._state_of):
            with self.set.meter.phase("refresh"), torch.no_grad():
                now = self.set.model.refresh(*self._rows_of(columns))
            sums.embedding[block.rows] = self._home(now.embedding)

    def _train(
        self, load: StagedInterval, pieces: list[Piece], sums: Sums, scale: float | None
    ) -> list[IntervalScores]:
        """Train every piece of pairs; what it adds up goes to the host."""

        def columns(piece: Piece) -> list[Tensor]:
            return [sums.embedding[piece.sources], sums.embedding[piece.targets]]

        found = []
        learn = scale is not None and self.set.link
        for number, (piece, (sources, targets)) in enumerate(self._each(pieces, columns)):
            feeder = self._feeders[piece.device]
            key = (load.key, *piece.cell)
            pairs = piece.pairs.received(feeder.get(key, piece.staged))
            if number + 1 < len(pieces):
                later = pieces[number + 1]
                self._feeders[later.device].ahead((load.key, *later.cell), later.staged)
            gradient, total_g, total_s = (torch.zeros_like(x) for x in (targets, targets, sources))
            visitor = Visitor(piece.cell[1], targets, gradient, total_g)
            with torch.set_grad_enabled(learn):
                leaf = sources.detach().requires_grad_(learn)
                graph = self.set.model.head.keys(leaf) if self.set.link else leaf
            keys = graph.detach().requires_grad_(learn)
            self.set.meter.count("edges", pairs.edges)
            with self.regions[piece.device].timeline.span("train"):
                scored = self._pairs(pairs, keys, sources, visitor, total_s, scale)
                if learn:
                    torch.autograd.backward(graph, keys.grad)
            feeder.done(key)
            parts = [(sums.total_s, piece.sources, total_s), (sums.total_g, piece.targets, total_g)]
            if learn:
                parts.append((sums.gradient, piece.sources, leaf.grad))
                parts.append((sums.gradient, piece.targets, gradient))
            for table, rows, added in parts:
                # With one partner to keep, rows that no last edge of this piece names are zero.
                table[rows] += self._home(added)
            loss, positives, negatives = scored
            nothing = loss.new_zeros(())
            found.append(
                IntervalScores(
                    loss, {piece.cell: positives}, {piece.cell: negatives}, nothing, nothing
                )
            )
        return found

    def _keep(self, blocks: list[Block], sums: Sums, scale: float | None) -> list[IntervalScores]:
        """Refresh with a graph, learn, and write the state of the ends of edges."""

        def columns(block: Block) -> list[Tensor]:
            rows = block.rows
            sent = [*self._state_of(block), *block.share.tensors()]
            sent += [sums.total_s[rows], sums.total_g[rows]]
            return sent if scale is None else [*sent, sums.gradient[rows]]

        found = []
        for block, tensors in self._each(blocks, columns):
            names = len(self.state.columns()) + len(self.pending.columns())
            share = block.share.received(tensors[names : names + 5])
            owner = self._owner(share, tensors[:names], learn=scale is not None, link=False)
            total_s, total_g, *gradient = tensors[names + 5 :]
            owner.total = total_s
            scored, loss = self._classified(owner, block.ids, scale)
            if scale is not None:
                with self.set.meter.phase("backward"):
                    owner.backward_rows(gradient[0], loss)
            self._write(owner, block.ids, total_g)
            found.append(scored)
        return found

    def _at_once(self, load: StagedInterval, piece: Piece, scale: float | None) -> IntervalScores:
        """All of an interval while its rows are on the device."""
        share, _ = load.shares[0]
        block = Block(0, 0, share, share.ids.long())
        columns = [*self._state_of(block), *share.tensors()]
        feeder, key = self._feeders[0], (load.key, *piece.cell)
        incoming = self._rows[0]
        tensors = incoming.get(0, columns)
        table = self.state.embedding
        self.regions[0].work(block.ids.numel(), table.shape[1], table.dtype)
        feeder.ahead(key, piece.staged)
        names = len(self.state.columns()) + len(self.pending.columns())
        share = share.received(tensors[names:])
        learn = scale is not None
        owner = self._owner(share, tensors[:names], learn=learn, link=self.set.link)
        pairs = piece.pairs.received(feeder.get(key, piece.staged))
        if load.following is not None:
            follow = self._pieces(load.following)[0]
            feeder.ahead((load.following.key, *follow.cell), follow.staged)
        zeros = torch.zeros_like(owner.targets), torch.zeros_like(owner.targets)
        visitor = Visitor(0, owner.targets, *zeros)
        self.set.meter.count("edges", pairs.edges)
        with self.regions[0].timeline.span("train"):
            loss, positives, negatives = self._pairs(
                pairs, owner.keys, owner.sources, visitor, owner.total, scale
            )
            scored, own = self._classified(owner, block.ids, scale)
            scored.loss = scored.loss + loss
            scored.positives[piece.cell], scored.negatives[piece.cell] = positives, negatives
            if learn:
                with self.set.meter.phase("backward"):
                    owner.backward(visitor.gradient, own)
        feeder.done(key)
        self._write(owner, block.ids, visitor.total)
        incoming.done(0)
        return scored

    # --- parts of the passes ----------------------------------------------------------------------

    def _owner(self, share: PartRows, columns: list[Tensor], *, learn: bool, link: bool) -> Owner:
        with self.set.meter.phase("refresh"):
            old, waiting = self._rows_of(columns)
            return Owner(self.set.model, share, old, waiting, learn=learn, link=link)

    def _pairs(self, pairs, keys, sources, visitor, total, scale):
        return train_pairs(
            self.set.model,
            pairs,
            keys,
            sources,
            visitor,
            total,
            scale=scale,
            link=self.set.link,
            last=self.set.last,
            meter=self.set.meter,
        )

    def _classified(
        self, owner: Owner, ids: Tensor, scale: float | None
    ) -> tuple[IntervalScores, Tensor | None]:
        nothing = owner.total.new_zeros(())
        scored = IntervalScores(nothing, {}, {}, nothing, nothing)
        if self.labels is None:
            return scored, None
        ends = ids[: owner.share.ends].to(owner.total.device)
        with self.set.meter.phase("score"), torch.set_grad_enabled(scale is not None):
            summed, scored.correct, scored.asked = owner.classified(self.labels, ends)
        scored.loss = summed.detach()
        return scored, None if scale is None else summed * scale

    def _write(self, owner: Owner, ids: Tensor, total_g: Tensor) -> None:
        """Bring the state of the ends of edges home."""
        with self.set.meter.phase("interact"), torch.no_grad():
            now, waits = owner.left(total_g, last=self.set.last)
        ends = ids[: owner.share.ends]
        for table, rows in ((self.state, now), (self.pending, waits)):
            table.write(ends, type(table)(**{k: self._home(c) for k, c in rows.columns().items()}))

    def _home(self, column: Tensor) -> Tensor:
        """A copy in host memory."""
        with self.set.meter.phase("io"):
            self.set.meter.count("bytes_d2h", column.numel() * column.element_size())
            return column.detach().to("cpu", copy=True)

    def _state_of(self, block: Block) -> list[Tensor]:
        """Columns of a block's rows, gathered on the host."""
        tables: tuple[VertexColumns, VertexColumns] = self.state, self.pending
        return [c.index_select(0, block.ids) for table in tables for c in table.columns().values()]

    def _rows_of(self, columns: list[Tensor]) -> tuple[DygnnState, PendingInteractions]:
        names = list(self.state.columns())
        old = DygnnState(**dict(zip(names, columns, strict=False)))
        waiting = dict(zip(self.pending.columns(), columns[len(names) :], strict=False))
        return old, PendingInteractions(**waiting)

    def _each(
        self, works: Sequence[Any], columns: Callable[[Any], list[Tensor]]
    ) -> Iterator[tuple[Any, list[Tensor]]]:
        """Each block or piece with its columns on its device; the next ones come meanwhile."""
        table = self.state.embedding
        for number, work in enumerate(works):
            incoming = self._rows[work.device]
            tensors = incoming.get(number, None if incoming.has(number) else columns(work))
            self.regions[work.device].work(tensors[0].shape[0], table.shape[1], table.dtype)
            if number + 1 < len(works):
                later = works[number + 1]
                self._rows[later.device].ahead(number + 1, lambda later=later: columns(later))
            yield work, tensors
            incoming.done(number)

    def _blocks(self, load: StagedInterval) -> list[Block]:
        """The rows of each part, or, of edges in stream order, equal pieces of all rows."""
        blocks, first, count = [], 0, len(self.regions)
        cuts = 1 if not load.tasks else len(load.tasks)
        for part, (share, _) in load.shares.items():
            rows = share.ids.numel()
            for k in range(cuts):
                a, b = k * rows // cuts, (k + 1) * rows // cuts
                ends = min(max(share.ends - a, 0), b - a)
                kept = slice(a, a + ends)
                flat = PartRows(
                    share.ids[a:b],
                    b - a,
                    0,
                    ends,
                    *(one[kept] for one in share.tensors()[1:]),
                )
                ids = share.ids[a:b].long() + self._bounds[part]
                blocks.append(Block((part + k) % count, first + a, flat, ids))
            first += rows
        return blocks

    def _pieces(self, load: StagedInterval) -> list[Piece]:
        count = len(self.regions)
        if load.tasks:
            return [
                Piece(k % count, (k, k), task.pairs, staged, task.sources, task.targets)
                for k, (task, staged) in enumerate(load.tasks)
            ]
        base = [0]
        for share, _ in load.shares.values():
            base.append(base[-1] + share.ids.numel())
        shares = [share for share, _ in load.shares.values()]
        return [
            Piece(
                i % count,
                (i, j),
                pairs,
                staged,
                slice(base[i], base[i] + shares[i].sources),
                slice(base[j] + shares[j].targets, base[j + 1]),
            )
            for (i, j), (pairs, staged) in load.grids.items()
        ]


class Incoming:
    """Rows on their way to a device, by number."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions
        self._tickets: dict[int, PendingTransfer] = {}

    def has(self, number: int) -> bool:
        """Return True if the rows of part `number` were sent."""
        return number in self._tickets

    def ahead(self, number: int, columns: Callable[[], list[Tensor]]) -> None:
        """Send what will be asked for, where there is a third region."""
        if self._regions.overlap:
            self._send(number, columns())

    def get(self, number: int, columns: list[Tensor] | None) -> list[Tensor]:
        """The tensors, on the device until `done`; sent now if they were not before."""
        if columns is not None:
            self._send(number, columns)
        return self._regions.arrived(self._tickets[number])

    def done(self, number: int) -> None:
        """They are not needed any more."""
        self._tickets.pop(number).release()
        self._account()

    def _send(self, number: int, columns: list[Tensor]) -> None:
        self._tickets[number] = self._regions.send_rows(columns)
        self._account()

    def _account(self) -> None:
        sizes = [ticket.nbytes for ticket in self._tickets.values()]
        self._regions.account.hold("R2 rows", sum(sizes[:1]))
        self._regions.account.hold("R3 rows", sum(sizes[1:]))


def _covers(piece: Piece, share: PartRows) -> bool:
    """Return True if a piece names a part's sources and targets as its share does."""
    if isinstance(piece.sources, slice):
        return True
    sizes = piece.sources.numel(), piece.targets.numel()
    return sizes == (share.sources, share.travelling)
