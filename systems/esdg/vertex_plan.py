"""Which rows a rank must be told by which other, step by step, made once (ESDG, section 4.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.collectives import Communicator, Exchange
from dgbench.systems.esdg.vertex_parts import VertexParts


def needs(rows: Tensor, cols: Tensor, parts: VertexParts) -> Tensor:
    """Distinct (vertex, rank) pairs with the rank needing the vertex and not owning it.

    Their number is sum over v of lambda(v): the parts other than the owner that read v. The paper
    prints lambda with the owner in it, which would send every vertex to itself.

    Args:
        rows, cols: int64[E], who reads whom; duplicates and loops may be among them.
        parts: of the vertices.

    Returns:
        int64[2, number]: new number of the vertex, ascending, and the rank.
    """
    readers = parts.owner[rows]
    remote = readers != parts.owner[cols]
    key = torch.unique(parts.position[cols[remote]] * parts.size + readers[remote])
    return torch.stack([key // parts.size, key % parts.size])


def remote_reads(topology: Sequence[Csr], parts: VertexParts) -> int:
    """Sum of lambda over all snapshots and vertices: rows that one layer sends in one pass."""
    return sum(needs(*coordinates(csr), parts).shape[1] for csr in topology)


def coordinates(csr: Csr) -> tuple[Tensor, Tensor]:
    """(rows, cols) int64 of all entries."""
    rows = torch.repeat_interleave(torch.arange(csr.num_rows), csr.indptr.diff())
    return rows, csr.indices.long()


@dataclass(frozen=True)
class StepPlan:
    """One rank's messages for one step.

    Rows received stand behind the rank's own, in order of owner and then of vertex: column
    `n + i` of a local matrix is the i-th of them.

    Attributes:
        send: per rank, own rows (0 .. n - 1) that it needs, int64.
        receive: per rank, how many rows come from it.
        columns: int64[n + ghosts], the vertices behind the local columns.
        numbers: int64[ghosts], their new numbers, ascending.
    """

    send: tuple[Tensor, ...]
    receive: tuple[int, ...]
    columns: Tensor
    numbers: Tensor

    @classmethod
    def build(cls, rows: Tensor, cols: Tensor, parts: VertexParts, rank: int) -> StepPlan:
        """From who reads whom (int64[E] each, of all ranks)."""
        vertex, needer = needs(rows, cols, parts)
        first, stop = parts.starts[rank], parts.starts[rank + 1]
        own = (vertex >= first) & (vertex < stop)
        numbers = vertex[needer == rank]
        received = torch.bincount(parts.owner[parts.order[numbers]], minlength=parts.size)
        return cls(
            tuple(vertex[own & (needer == q)] - first for q in range(parts.size)),
            tuple(received.tolist()),
            torch.cat([parts.vertices(rank), parts.order[numbers]]),
            numbers,
        )

    def local(self, vertices: Tensor, parts: VertexParts, rank: int) -> Tensor:
        """Local columns of vertices that this rank owns or receives, int64."""
        first, own = parts.starts[rank], parts.sizes[rank]
        number = parts.position[vertices]
        mine = (number >= first) & (number < first + own)
        return torch.where(mine, number - first, own + torch.searchsorted(self.numbers, number))


class Gather:
    """The rows that a run of steps needs, in one exchange."""

    def __init__(self, comm: Communicator, plans: Sequence[StepPlan]) -> None:
        self.comm, self._plans = comm, plans
        size = comm.size
        self._send = [sum(p.send[q].numel() for p in plans) for q in range(size)]
        self._receive = [sum(p.receive[q] for p in plans) for q in range(size)]
        own = plans[0].columns.numel() - plans[0].numbers.numel() if plans else 0
        picked = [p.send[q] + i * own for q in range(size) for i, p in enumerate(plans)]
        self._rows = torch.cat(picked) if picked else torch.zeros(0, dtype=torch.int64)

    def start(self, h: Tensor, *, grad: bool = True) -> Exchange:
        """Send what others need of h [steps, n, D]; `grad`: alike on all ranks, see all_to_all."""
        rows = h.reshape(h.shape[0] * h.shape[1], h.shape[2]).index_select(0, self._rows)
        return self.comm.start_all_to_all(rows, self._send, self._receive, grad=grad)

    def finish(self, exchange: Exchange) -> list[Tensor]:
        """The rows received for each step, [ghosts, D] each; a list of none without steps."""
        received = exchange.wait()
        if not self._plans:
            return []
        runs = [p.receive[q] for q in range(self.comm.size) for p in self._plans]
        parts, steps = received.split(runs), len(self._plans)
        return [torch.cat(parts[i::steps]) for i in range(steps)]


def local_matrix(csr: Csr, plan: StepPlan, parts: VertexParts, rank: int) -> Csr:
    """A rank's rows of a snapshot over its local columns, without what was renumbered away."""
    rows, cols = coordinates(csr)
    mine = (parts.owner[rows] == rank).nonzero().squeeze(1)
    row = parts.position[rows[mine]] - parts.starts[rank]
    col = plan.local(cols[mine], parts, rank)
    width = plan.columns.numel()
    by = torch.argsort(row * max(1, width) + col)
    indptr = torch.zeros(parts.sizes[rank] + 1, dtype=torch.int64)
    indptr[1:] = torch.bincount(row, minlength=parts.sizes[rank]).cumsum(0)
    values = None if csr.values is None else csr.values[mine[by]].contiguous()
    return Csr(indptr, col[by].to(torch.int32), width, values)
