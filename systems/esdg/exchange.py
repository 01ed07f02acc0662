"""The two redistributions of a layer: from snapshots to vertices and back (ESDG, section 4.1)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dgbench.runtime.collectives import Communicator, Exchange
from dgbench.systems.esdg.partition import Shares


class Redistribution:
    """The exchanges of one block, piece by piece, each begun and finished apart.

    Rows of a message are the floats of one vertex at one step. Messages to the vertices are cut by
    vertex ranges of the sender's steps; what arrives is in order of time without sorting, as the
    ranks' steps are. A piece's exchange may be under way while the next piece is computed; in the
    backward pass as well, since autograd runs in the reverse order.
    """

    def __init__(self, comm: Communicator, shares: Shares) -> None:
        self.comm, self.shares = comm, shares
        self._chunks = [len(v) for v in shares.vertices]
        self._own = self._chunks[comm.rank]

    def start_to_vertices(self, piece: int, y: Tensor) -> Exchange:
        """Send this rank's steps of a piece, [steps, N, D], to the owners of the vertices."""
        steps, width = y.shape[0], y.shape[2]
        rows = torch.cat([c.reshape(-1, width) for c in y.split(self._chunks, dim=1)])
        return self.comm.start_all_to_all(
            rows,
            [steps * chunk for chunk in self._chunks],
            [len(pieces[piece]) * self._own for pieces in self.shares.steps],
            grad=True,
        )

    def finish_to_vertices(self, begun: Sequence[Exchange]) -> Tensor:
        """[steps of the block, own vertices, D] in order of time, from the pieces in order."""
        arrived = [exchange.wait() for exchange in begun]
        width = arrived[0].shape[1]
        if len(arrived) > 1:
            runs = [
                rows.split([len(pieces[k]) * self._own for pieces in self.shares.steps])
                for k, rows in enumerate(arrived)
            ]
            arrived = [torch.cat([run[p] for p in range(self.comm.size) for run in runs])]
        return arrived[0].reshape(len(self.shares.times), self._own, width)

    def start_to_snapshots(self, piece: int, z: Tensor) -> Arriving:
        """Send one piece of every rank's steps of z [steps of the block, own vertices, D] home."""
        first, width = self.shares.times.start, z.shape[2]
        steps = [pieces[piece] for pieces in self.shares.steps]
        if self.shares.pieces == 1:
            rows = z.reshape(-1, width)
        else:
            runs = [z[s.start - first : s.stop - first].reshape(-1, width) for s in steps]
            rows = torch.cat(runs)
        own = len(steps[self.comm.rank])
        exchange = self.comm.start_all_to_all(
            rows,
            [len(s) * self._own for s in steps],
            [own * chunk for chunk in self._chunks],
            grad=True,
        )
        return Arriving(exchange, own, self._chunks)


class Arriving:
    """Snapshots under way; `wait` gives them, once."""

    def __init__(self, exchange: Exchange, steps: int, chunks: Sequence[int]) -> None:
        self._exchange, self._steps, self._chunks = exchange, steps, chunks

    def wait(self) -> Tensor:
        """[steps, N, D]."""
        rows = self._exchange.wait()
        width = rows.shape[1]
        parts = rows.split([self._steps * chunk for chunk in self._chunks])
        return torch.cat(
            [
                part.reshape(self._steps, chunk, width)
                for part, chunk in zip(parts, self._chunks, strict=True)
            ],
            dim=1,
        )
