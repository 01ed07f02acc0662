"""Send and receive lists of rows between ranks, made once (ESDG, section 4.1)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.collectives import Communicator, Exchange
from dgbench.runtime.meter import Meter
from dgbench.systems.esdg.vertex_parts import VertexParts


def needs(rows: Tensor, cols: Tensor, parts: VertexParts, *, rank: int | None = None) -> Tensor:
    """Distinct (vertex, rank) pairs with the rank needing the vertex and not owning it.

    Their number is sum over v of lambda(v): the parts other than the owner that read v. The paper
    prints lambda with the owner in it, which would send every vertex to itself.

    Args:
        rows, cols: int64[E], who reads whom; duplicates and loops may be among them.
        parts: of the vertices.
        rank: only pairs in which this rank has the vertex or needs it; None: all.

    Returns:
        int64[2, number]: new number of the vertex, ascending, and the rank.
    """
    readers, owners = parts.owner[rows], parts.owner[cols]
    remote = readers != owners
    if rank is not None:
        remote &= (readers == rank) | (owners == rank)
    key = torch.unique(parts.position[cols[remote]] * parts.size + readers[remote])
    return torch.stack([key // parts.size, key % parts.size])


def read_counts(topology: Iterable[Csr], parts: VertexParts) -> Iterator[np.ndarray]:
    """Distinct vertices that the ranks read of each other, one int64[P, P] per snapshot.

    [owner, reader]; the diagonal is zero. Made without the lists themselves, a few array passes
    over the entries of a snapshot, so that graphs of many millions can be counted in seconds.
    """
    count = _Counter(parts)
    for csr in topology:
        readers = np.repeat(count.owner, csr.indptr.diff().numpy())
        yield count(readers, csr.indices.numpy())


def remote_reads(topology: Iterable[Csr], parts: VertexParts) -> int:
    """Sum of lambda over all snapshots and vertices: rows that one layer sends in one pass."""
    return sum(int(found.sum()) for found in read_counts(topology, parts))


class _Counter:
    """Counts (owner, reader) of distinct vertices, with memory for one number per vertex."""

    def __init__(self, parts: VertexParts) -> None:
        self.size = parts.size
        small = np.uint8 if self.size <= 256 else np.uint16 if self.size <= 65536 else np.int64
        self.owner = parts.owner.numpy().astype(small)
        self._last = np.empty(len(self.owner), dtype=np.int32)

    def __call__(self, readers: np.ndarray, cols: np.ndarray) -> np.ndarray:
        found = np.zeros((self.size, self.size), dtype=np.int64)
        remote = np.flatnonzero(self.owner[cols] != readers)
        readers, cols = readers[remote], cols[remote]
        if (readers[1:] < readers[:-1]).any():
            # Small unsigned keys are sorted by their digits, in time linear in the entries.
            by = np.argsort(readers, kind="stable")
            readers, cols = readers[by], cols[by]
        cuts = np.searchsorted(readers, np.arange(self.size + 1))
        for reader in np.flatnonzero(np.diff(cuts)):
            read = cols[cuts[reader] : cuts[reader + 1]]
            # Of entries that name one vertex, one is the last to leave its number there.
            number = np.arange(len(read), dtype=np.int32)
            self._last[read] = number
            distinct = read[self._last[read] == number]
            found[:, reader] = np.bincount(self.owner[distinct], minlength=self.size)
        return found


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
        vertex, needer = needs(rows, cols, parts, rank=rank)
        first, stop = parts.starts[rank], parts.starts[rank + 1]
        own = (vertex >= first) & (vertex < stop)
        numbers = vertex[needer == rank]
        received = torch.bincount(parts.owner[parts.order[numbers]], minlength=parts.size)
        mine, by = vertex[own] - first, needer[own]
        return cls(
            tuple(mine[by == q] for q in range(parts.size)),
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


def place_of(comm: Communicator) -> torch.device:
    """Where a rank keeps lists and matrices: its device; the memory, if it only counts."""
    return torch.device("cpu") if comm.device.type == "meta" else comm.device


class Gather:
    """The rows that a run of steps needs, in one exchange.

    What arrives is left as it is, ordered by rank, then step, then vertex: `places` says where each
    step's rows are, so that matrices can be numbered to read them there and nothing is unpacked.

    Attributes:
        places: for each step, int64[ghosts]: where its i-th row of another rank arrives.
        arriving: rows that arrive.
    """

    def __init__(
        self, comm: Communicator, plans: Sequence[StepPlan], own: int, *, base: int = 0
    ) -> None:
        """Lists of one run.

        Args:
            comm: of P ranks.
            plans: of the steps, made for this rank among those that take part; may be empty.
            own: vertices of this rank.
            base: the first of the consecutive ranks that take part; the others get nothing.
        """
        self.comm = comm
        inside = len(plans[0].send) if plans else 0
        before, behind = [0] * base, [0] * (comm.size - base - inside)
        send = [sum(p.send[q].numel() for p in plans) for q in range(inside)]
        receive = [sum(p.receive[q] for p in plans) for q in range(inside)]
        self._send, self._receive = before + send + behind, before + receive + behind
        self.arriving = sum(receive)
        picked = [p.send[q] + i * own for q in range(inside) for i, p in enumerate(plans)]
        rows = torch.cat(picked) if picked else torch.zeros(0, dtype=torch.int64)
        self._rows = rows.to(place_of(comm))
        arrived: list[list[Tensor]] = [[] for _ in plans]
        first = 0
        for q in range(inside):
            for i, plan in enumerate(plans):
                arrived[i].append(torch.arange(first, first + plan.receive[q]))
                first += plan.receive[q]
        self.places = [torch.cat(runs) for runs in arrived]

    def start(self, h: Tensor, *, grad: bool = True) -> Exchange:
        """Send what others need of h [steps, n, D]; `grad`: alike on all ranks, see all_to_all.

        `wait` of what it returns gives [arriving, D].
        """
        rows = _Pack.apply(h.reshape(-1, h.shape[-1]), self._rows, self.comm.meter)
        return self.comm.start_all_to_all(rows, self._send, self._receive, grad=grad)


class _Pack(torch.autograd.Function):
    """Selection of rows; the time of both directions is the meter's `pack`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor, meter: Meter) -> Tensor:
        ctx.rows, ctx.meter, ctx.length = rows, meter, x.shape[0]
        with packing(meter, x.device):
            return x.index_select(0, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        with packing(ctx.meter, gradient.device):
            found = gradient.new_zeros(ctx.length, gradient.shape[1])
            return found.index_add_(0, ctx.rows, gradient), None, None


@contextmanager
def packing(meter: Meter, device: torch.device) -> Iterator[None]:
    """Add the time of a block to `meter.spent["pack"]`; it stays part of the phase it lies in.

    On a CUDA device in instrumented runs alone, for which the host waits at both ends: it would
    else be the time that launches take.
    """
    there = device.type == "cuda"
    if there and not meter.timing:
        yield
        return
    if there:
        torch.cuda.synchronize(device)
    begin = time.perf_counter()
    yield
    if there:
        torch.cuda.synchronize(device)
    meter.spend("pack", time.perf_counter() - begin)
