"""A communicator over torch.distributed: Gloo between CPUs, NCCL between GPUs.

Rows travel as plain bytes, so every dtype works on every backend. Where a backend has no all-to-all
(older Gloo), each pair of ranks exchanges by itself; the counts are the same. Gloo is given host
memory: tensors of a GPU that several ranks share are staged, which is for tests and not for speed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from dgbench.runtime.collectives.communicator import (
    CommunicationError,
    Communicator,
    Reduction,
)
from dgbench.runtime.collectives.exchange import Ticket
from dgbench.runtime.collectives.progress import Progress
from dgbench.runtime.collectives.traffic import Operation, Phase, TrafficMatrix, stack
from dgbench.runtime.collectives.wire import Clock, Link, Timetable, Wire, share_memory
from dgbench.runtime.errors import UnsupportedError, unknown_key
from dgbench.runtime.meter import Meter

Method = Literal["auto", "collective", "pairs"]
METHODS: tuple[Method, ...] = ("auto", "collective", "pairs")

_OPERATORS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}


class GroupCommunicator(Communicator):
    """This process's end of a `torch.distributed` process group that was initialised before.

    Args:
        group: the process group, None for the default one.
        device, meter, seed, progress: see `Communicator`.
        method: how rows are exchanged: by the backend's all-to-all, in `pairs` of sends and
            receives, or `auto`: the former where the backend has it.

    Raises:
        UnsupportedError: torch.distributed is missing or not initialised.
    """

    def __init__(
        self,
        group: Any = None,
        *,
        device: str | torch.device = "cpu",
        meter: Meter | None = None,
        seed: int = 1,
        progress: Progress | None = None,
        method: Method = "auto",
    ) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise UnsupportedError(
                "torch.distributed has no process group here",
                hint="start ranks with dgbench.runtime.ranks.launch, or join() under torchrun",
            )
        if method not in METHODS:
            raise unknown_key("method", method, METHODS)
        super().__init__(
            dist.get_rank(group),
            dist.get_world_size(group),
            device=device,
            meter=meter,
            seed=seed,
            progress=progress,
        )
        self.group = group
        self.backend = str(dist.get_backend(group))
        self.method: Method = method
        self._timetable: Timetable | None = None
        self._leaving: dict[int, tuple[int, int]] = {}

    def use_wire(
        self, wire: Wire | None, *, link: Link | None = None, clock: Clock | None = None
    ) -> None:
        """See `Communicator.use_wire`.

        Operations but barriers then note in `meter.spent` also `wire_busy`, the seconds that this
        rank's link was busy, and `wire_late`, those that a rank waited longer than the wire says
        because the real transfer took longer.

        Args:
            wire: what to emulate.
            link: of this rank, where another communicator uses it as well; its wire is `wire`.
            clock: the same for all ranks; None: the machine's.
        """
        if wire is not None and not self.host:
            raise UnsupportedError(
                f"a wire is emulated between host memories, not for '{self.backend}'",
                hint="backend='gloo'",
            )
        super().use_wire(wire)
        self._timetable = None
        if wire is None:
            return
        with self._waiting("wire"):
            memory = share_memory(
                Timetable.nbytes(self.size),
                self.rank,
                self._tell,
                lambda: dist.barrier(self.group),
            )
        link = link or Link(wire)
        self._timetable = Timetable(memory, self.rank, self.size, link, clock)

    @property
    def host(self) -> bool:
        """Whether data travels between host memories."""
        return self.backend != "nccl"

    def barrier(self) -> None:
        """See `Communicator.barrier`. On Gloo the error names the ranks that did not come."""
        with self._waiting("barrier"):
            if self.backend == "gloo":
                dist.monitored_barrier(self.group, wait_all_ranks=True)
            else:
                dist.barrier(self.group)

    def all_traffic(self) -> TrafficMatrix:
        """See `Communicator.all_traffic`."""
        with self._waiting("all_traffic"):
            return stack(self._tell(self.traffic))

    def _tell(self, what: Any) -> list[Any]:
        """What every rank says, in order of rank."""
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, what, self.group)
        return found

    def _count(
        self, operation: Operation, phase: Phase, to: int, floats: int, itemsize: int, messages: int
    ) -> None:
        super()._count(operation, phase, to, floats, itemsize, messages)
        if self._timetable is not None and to != self.rank and floats:
            self._leaving[to] = (messages, floats * itemsize)

    def _begin(self, x: Tensor, send: tuple[int, ...], receive: tuple[int, ...]) -> Ticket:
        out = x.new_empty((sum(receive), *x.shape[1:]))
        number = self._depart()
        source, target = self._carried(x), self._carried(out)
        width = math.prod(x.shape[1:]) * x.element_size()
        sends, receives = ([n * width for n in sizes] for sizes in (send, receive))
        with self._naming("all_to_all", number):
            works = self._exchange(_bytes(source), _bytes(target), sends, receives, number)
        senders = [by for by, n in enumerate(receives) if n and by != self.rank]
        return _Waiting(self, works, number, senders, out, target, source)

    def _exchange(
        self, source: Tensor, target: Tensor, send: list[int], receive: list[int], number: int
    ) -> list[Any]:
        if self.method != "pairs":
            try:
                work = dist.all_to_all_single(
                    target, source, receive, send, group=self.group, async_op=True
                )
                return [work]
            except RuntimeError as error:
                if self.method == "collective" or "support" not in str(error).lower():
                    raise
                self.method = "pairs"  # the same on every rank: they run one torch
        return self._exchange_pairs(source, target, send, receive, number)

    def _exchange_pairs(
        self, source: Tensor, target: Tensor, send: list[int], receive: list[int], number: int
    ) -> list[Any]:
        parts, places = source.split(send), target.split(receive)
        places[self.rank].copy_(parts[self.rank])
        operations = []
        for step in range(1, self.size):
            # Everybody begins with another partner, so that nobody is asked by all at once.
            to, by = (self.rank + step) % self.size, (self.rank - step) % self.size
            if receive[by]:
                operations.append(self._peer(dist.irecv, places[by], by, number))
            if send[to]:
                operations.append(self._peer(dist.isend, parts[to], to, number))
        return dist.batch_isend_irecv(operations) if operations else []

    def _peer(self, function: Any, part: Tensor, rank: int, number: int) -> dist.P2POp:
        peer = rank if self.group is None else dist.get_global_rank(self.group, rank)
        return dist.P2POp(function, part, peer, self.group, tag=number)

    def _exchange_sizes(self, send: tuple[int, ...]) -> list[int]:
        ones = (1,) * self.size
        told = torch.tensor(send, dtype=torch.int64, device="cpu" if self.host else self.device)
        ticket = self._begin(told, ones, ones)
        ticket.wait()
        return ticket.received.tolist()

    def _all_reduce(self, x: Tensor, op: Reduction) -> Tensor:
        out = self._carried(x.detach()).clone(memory_format=torch.contiguous_format)
        with self._waiting("all_reduce", senders=range(self.size) if out.numel() else ()):
            dist.all_reduce(out, _OPERATORS["sum" if op == "mean" else op], self.group)
        return (out / self.size if op == "mean" else out).to(x.device)

    def _all_gather(self, x: Tensor, rows: tuple[int, ...]) -> Tensor:
        mine = self._carried(x.detach()).contiguous()
        # Gloo gathers equal parts only, so parts are padded to the longest.
        most = max(rows)
        padded = mine
        if mine.shape[0] < most:
            padded = mine.new_zeros((most, *mine.shape[1:]))
            padded[: mine.shape[0]] = mine
        parts = [torch.empty_like(padded) for _ in rows]
        senders = [by for by, n in enumerate(rows) if n and padded.numel() and by != self.rank]
        with self._waiting("all_gather", senders=senders):
            if padded.numel():
                dist.all_gather([_bytes(p) for p in parts], _bytes(padded), self.group)
        found = torch.cat([part[:n] for part, n in zip(parts, rows, strict=True)])
        return found.to(x.device)

    def _broadcast(self, x: Tensor, root: int) -> Tensor:
        out = self._carried(x.detach()).clone(memory_format=torch.contiguous_format)
        peer = root if self.group is None else dist.get_global_rank(self.group, root)
        with self._waiting("broadcast", senders=(root,) if out.numel() else ()):
            if out.numel():
                dist.broadcast(_bytes(out), peer, self.group)
        return out.to(x.device)

    def _carried(self, x: Tensor) -> Tensor:
        """The tensor that the backend moves: `x`, or a host copy of a device's."""
        return x.cpu() if self.host and x.device.type != "cpu" else x

    def _number(self) -> int:
        self.operations += 1
        return self.operations

    def _depart(self, *, whole: bool = False) -> int:
        """Number the next operation and put what was counted of it on the wire."""
        number = self._number()
        if self._timetable is not None:
            busy = self._timetable.depart(number, self._leaving, whole=whole)
            self._leaving.clear()
            self.meter.spend("wire_busy", busy)
        return number

    def _arrive(self, number: int, senders: Sequence[int], since: float) -> None:
        """Return when the wire has brought what the group has brought; `since`: waiting began."""
        table = self._timetable
        if table is None or not senders:
            return
        due, now = table.due(number, senders), table.now()
        self.meter.spend("wire_late", max(0.0, now - max(due, since)))
        table.sleep_until(due)

    @contextmanager
    def _waiting(
        self, operation: str, number: int | None = None, senders: Sequence[int] = ()
    ) -> Iterator[None]:
        """Note, time and name a wait for other ranks.

        Args:
            operation: its name.
            number: None where it begins here.
            senders: ranks whose data it brings, if they travel on the wire.
        """
        if number is None:
            number = self._depart(whole=operation == "all_reduce")
        self.progress.waits(operation, number)
        start = time.perf_counter()
        since = self._timetable.now() if self._timetable is not None else 0.0
        with self._naming(operation, number), self.meter.phase("communicate"):
            yield
            self._arrive(number, senders, since)
        if self.host:
            seconds = time.perf_counter() - start
            self.meter.spend("communicate_wait", seconds)
            if operation == "all_to_all":
                self.meter.spend("exchange_wait", seconds)
        self.progress.goes_on()

    @contextmanager
    def _naming(self, operation: str, number: int) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            text = " ".join(str(error).split())
            raise CommunicationError(
                f"rank {self.rank} of {self.size}: {operation} (operation {number}) failed: {text}",
                hint="another rank is gone, late, or in another operation",
            ) from error


class _Waiting(Ticket):
    """An exchange of the backend that may still be under way. Holds what it reads and writes."""

    def __init__(
        self,
        comm: GroupCommunicator,
        works: Sequence[Any],
        number: int,
        senders: Sequence[int],
        received: Tensor,
        target: Tensor,
        source: Tensor,
    ) -> None:
        self.received = received
        self._comm, self._works, self._number, self._senders = comm, works, number, senders
        self._target, self._source = target, source

    def wait(self) -> None:
        with self._comm._waiting("all_to_all", self._number, self._senders):
            for work in self._works:
                work.wait()
        if self._target is not self.received:
            self.received.copy_(self._target)
        self._works = ()
        del self._target, self._source


def _bytes(x: Tensor) -> Tensor:
    """The memory of a contiguous tensor as uint8[numel * itemsize]."""
    flat = x.reshape(-1)
    # A tensor without elements may have any stride, and then has no view of another width.
    return flat.view(torch.uint8) if flat.numel() else flat.new_empty(0, dtype=torch.uint8)
