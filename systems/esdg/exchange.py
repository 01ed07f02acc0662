"""The two redistributions of a layer: from snapshots to vertices and back (ESDG, section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dgbench.runtime.collectives import Communicator, Exchange
from dgbench.systems.esdg.partition import BlockShares
from dgbench.systems.esdg.reuse import BlockCache, CachedExchange, Keeping, Key, replay

TO_VERTICES, TO_SNAPSHOTS = "to_vertices", "to_snapshots"


class Redistribution:
    """The exchanges of one block, piece by piece, each begun and finished apart.

    Rows of a message are the floats of one vertex at one step. Messages to the vertices are cut by
    vertex ranges of the sender's steps; what arrives is in order of time without sorting, as the
    ranks' steps are. A piece's exchange may be under way while the next piece is computed; in the
    backward pass as well, since autograd runs in the reverse order. Where snapshots are, rows stand
    in the order of messages already, or are sorted by one copy each way; where vertices are, they
    need not be.

    Args:
        comm, shares: of the block.
        dealt: snapshots' rows are in the order of messages, see `partition_local.positions`.
        keep: gets what arrives, for a pass that replays it.
        given: what arrived before; what it holds is not exchanged again.
    """

    def __init__(
        self,
        comm: Communicator,
        shares: BlockShares,
        *,
        dealt: bool = False,
        keep: BlockCache | None = None,
        given: BlockCache | None = None,
    ) -> None:
        self.comm, self.shares = comm, shares
        self._dealt, self._keep, self._given = dealt, keep, given
        self._chunks = [len(v) for v in shares.vertices]
        self._own = self._chunks[comm.rank]

    def start_to_vertices(
        self, layer: int, piece: int, y: Tensor, *, grad: bool = True
    ) -> Exchange | Keeping | CachedExchange:
        """Send this rank's steps of a piece, [steps N, D], to the owners of the vertices.

        `grad`: whether gradients come back, alike on all ranks.
        """
        steps = len(self.shares.steps[self.comm.rank][piece])
        if not self._dealt:
            y = deal(y.view(steps, self.shares.num_nodes, y.shape[1]), self._chunks)
        return self._begin(
            (layer, TO_VERTICES, piece),
            y,
            [steps * chunk for chunk in self._chunks],
            [len(pieces[piece]) * self._own for pieces in self.shares.steps],
            grad=grad,
        )

    def finish_to_vertices(self, begun: Sequence[Exchange | Keeping | CachedExchange]) -> Tensor:
        """[steps of the block, own vertices, D] in order of time, from the pieces in order."""
        arrived = [exchange.wait() for exchange in begun]
        width = arrived[0].shape[1]
        rows = arrived[0]
        if len(arrived) > 1:
            lengths = [
                [len(pieces[k]) * self._own for pieces in self.shares.steps]
                for k in range(len(arrived))
            ]
            rows = _Join.apply(lengths, *arrived)
        return rows.view(len(self.shares.times), self._own, width)

    def cut(self, z: Tensor) -> list[Tensor]:
        """Rows of each piece's exchange back, of z [steps of the block, own vertices, D]."""
        rows = z.reshape(-1, z.shape[2])
        if self.shares.pieces == 1:
            return [rows]
        lengths = [
            [len(pieces[k]) * self._own for pieces in self.shares.steps]
            for k in range(self.shares.pieces)
        ]
        return list(_Cut.apply(lengths, rows))

    def start_to_snapshots(
        self, layer: int, piece: int, rows: Tensor
    ) -> Arriving | Exchange | Keeping | CachedExchange:
        """Send one piece of every rank's steps home; `rows` of `cut`.

        What `wait` gives is [steps, N, D], or [steps N, D] where rows stay as messages bring them.
        """
        steps = [len(pieces[piece]) for pieces in self.shares.steps]
        own = steps[self.comm.rank]
        exchange = self._begin(
            (layer, TO_SNAPSHOTS, piece),
            rows,
            [count * self._own for count in steps],
            [own * chunk for chunk in self._chunks],
        )
        return exchange if self._dealt else Arriving(exchange, own, self._chunks)

    def _begin(
        self, key: Key, rows: Tensor, send: list[int], receive: list[int], *, grad: bool = True
    ) -> Exchange | Keeping | CachedExchange:
        known = None if self._given is None else self._given.take(key)
        if known is not None:
            return replay(self.comm, rows, known, send, receive) if grad else CachedExchange(known)
        exchange = self.comm.start_all_to_all(rows, send, receive, grad=grad)
        return exchange if self._keep is None else Keeping(exchange, self._keep, key)


class Arriving:
    """Snapshots under way; `wait` gives them, once."""

    def __init__(
        self, exchange: Exchange | Keeping | CachedExchange, steps: int, chunks: Sequence[int]
    ) -> None:
        self._exchange, self._steps, self._chunks = exchange, steps, chunks

    def wait(self) -> Tensor:
        """[steps, N, D]."""
        return gather(self._exchange.wait(), self._steps, self._chunks)


def deal(y: Tensor, chunks: Sequence[int]) -> Tensor:
    """[steps, N, D] as rows [steps N, D]: all steps of the first chunk of vertices, then ..."""
    if len(chunks) == 1 or y.shape[0] == 1:
        return y.reshape(-1, y.shape[2])
    return _Deal.apply(y, tuple(chunks))


def gather(rows: Tensor, steps: int, chunks: Sequence[int]) -> Tensor:
    """The inverse of `deal`."""
    if len(chunks) == 1 or steps == 1:
        return rows.view(steps, sum(chunks), rows.shape[1])
    return _Gather.apply(rows, steps, tuple(chunks))


def _deal(y: Tensor, chunks: tuple[int, ...]) -> Tensor:
    steps, nodes, width = y.shape
    rows = y.new_empty(steps * nodes, width)
    for part, piece in zip(
        rows.split([steps * c for c in chunks]), y.split(chunks, dim=1), strict=True
    ):
        part.view(piece.shape).copy_(piece)
    return rows


def _gather(rows: Tensor, steps: int, chunks: tuple[int, ...]) -> Tensor:
    y = rows.new_empty(steps, sum(chunks), rows.shape[1])
    for part, piece in zip(
        rows.split([steps * c for c in chunks]), y.split(chunks, dim=1), strict=True
    ):
        piece.copy_(part.reshape(piece.shape))
    return y


class _Deal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, chunks: tuple[int, ...]) -> Tensor:
        ctx.steps, ctx.chunks = y.shape[0], chunks
        return _deal(y, chunks)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _gather(gradient, ctx.steps, ctx.chunks), None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, steps: int, chunks: tuple[int, ...]) -> Tensor:
        ctx.chunks = chunks
        return _gather(rows, steps, chunks)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _deal(gradient, ctx.chunks), None, None


def _join(lengths: list[list[int]], pieces: Sequence[Tensor]) -> Tensor:
    """Runs of rows in order of rank, then of piece, from pieces in order of rank."""
    runs = [piece.split(own) for piece, own in zip(pieces, lengths, strict=True)]
    return torch.cat([run[rank] for rank in range(len(lengths[0])) for run in runs])


def _cut(lengths: list[list[int]], rows: Tensor) -> tuple[Tensor, ...]:
    """The inverse of `_join`."""
    ranks = range(len(lengths[0]))
    runs = iter(rows.split([own[rank] for rank in ranks for own in lengths]))
    by_rank = [[next(runs) for _ in lengths] for _ in ranks]
    return tuple(torch.cat([found[k] for found in by_rank]) for k in range(len(lengths)))


class _Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, lengths: list[list[int]], *pieces: Tensor) -> Tensor:
        ctx.lengths = lengths
        return _join(lengths, pieces)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return None, *_cut(ctx.lengths, gradient)


class _Cut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, lengths: list[list[int]], rows: Tensor) -> tuple[Tensor, ...]:
        ctx.lengths = lengths
        return _cut(lengths, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, _join(ctx.lengths, gradients)
