"""A communicator over torch.distributed: Gloo between CPUs, NCCL between GPUs.

Rows travel as plain bytes, so every dtype works on every backend. Ranks of one machine that have no
GPUs of their own pass rows through memory that they share (`Mailbox`), which no loopback comes near
to; Gloo then brings them together and carries what is large and reduced. Between machines it
carries everything. Tensors of a GPU that several ranks share are staged through the host, which is
for tests and not for speed.

NCCL moves tensors of devices alone. What the host has and others must know (sizes, objects,
barriers of ranks that time themselves) goes through a group of Gloo beside it, so that no rank
waits for its device to say how many rows it sends. Rows that lie in host memory are staged through
the device, the reverse of what is done for Gloo.
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
from dgbench.runtime.collectives.exchange import PendingExchange
from dgbench.runtime.collectives.progress import RankProgress
from dgbench.runtime.collectives.shared import Mailbox, share_memory
from dgbench.runtime.collectives.traffic import Operation, Phase, TrafficMatrix, stack
from dgbench.runtime.collectives.wire import Clock, EmulatedLink, LinkEmulation, Timetable
from dgbench.runtime.errors import UnsupportedError, unknown_key
from dgbench.runtime.meter import Meter

Method = Literal["auto", "shared", "collective", "pairs"]
METHODS: tuple[Method, ...] = ("auto", "shared", "collective", "pairs")

REDUCED_HERE = 2**20
"""Bytes of all ranks together up to which each rank reduces all of them itself."""

_OPERATORS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}


class GroupCommunicator(Communicator):
    """This process's end of a `torch.distributed` process group that was initialised before.

    Args:
        group: the process group, None for the default one.
        device, meter, seed, progress: see `Communicator`.
        method: how rows are exchanged: through `shared` memory, by the backend's all-to-all
            (`collective`), in `pairs` of sends and receives, or `auto`: through shared memory where
            ranks have one, else by the backend. The same on all ranks; may be changed by all with
            nothing under way.
        timeout_s: after which waiting on shared memory fails. The group has its own.
        host_group: where NCCL connects the ranks, a group of the same ranks over Gloo for sizes
            and objects; None: they go through the device.

    Raises:
        UnsupportedError: torch.distributed is missing or not initialised; later, where the method
            is `shared` and ranks are not of one Linux machine.
    """

    def __init__(
        self,
        group: Any = None,
        *,
        device: str | torch.device = "cpu",
        meter: Meter | None = None,
        seed: int = 1,
        progress: RankProgress | None = None,
        method: Method = "auto",
        timeout_s: float = 1800.0,
        host_group: Any = None,
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
        self.group, self._host_group = group, host_group
        self.backend = str(dist.get_backend(group))
        self.method: Method = method
        self._timeout_s = timeout_s
        self._timetable: Timetable | None = None
        self._leaving: dict[int, tuple[int, int]] = {}
        self._box: Mailbox | None = None
        self._box_asked = False

    def use_wire(
        self,
        wire: LinkEmulation | None,
        *,
        link: EmulatedLink | None = None,
        clock: Clock | None = None,
    ) -> None:
        """See `Communicator.use_wire`.

        Operations but barriers then note in `meter.spent` also `wire_busy`, the seconds that this
        rank's link was busy, and `wire_late`, those that a rank waited longer than the wire says
        because the real transfer took longer.

        Args:
            wire: what to emulate.
            link: of this rank, where another communicator uses it as well; its wire is `wire`.
            clock: of what kind, the same on all ranks; None: the machine's. Waiting is then
                noted in its seconds.
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
        with self._waiting("share_memory"):
            memory = share_memory(Timetable.nbytes(self.size), self.rank, self._tell)
        link = link or EmulatedLink(wire)
        self._timetable = Timetable(memory, self.rank, self.size, link, clock)

    @property
    def host(self) -> bool:
        """True if data travels between host memories."""
        return self.backend != "nccl"

    @property
    def carrier(self) -> str:
        """Transport that has carried rows so far: `shared memory`, or the backend's name."""
        boxed = self._box is not None and self.method in ("auto", "shared")
        return "shared memory" if boxed else self.backend

    def barrier(self) -> None:
        """See `Communicator.barrier`. On Gloo the error names the ranks that did not come."""
        number = self._depart(whole=True)
        with self._waiting("barrier", number, range(self.size)):
            if self.backend == "gloo":
                dist.monitored_barrier(self.group, wait_all_ranks=True)
            else:
                dist.barrier(self.group)

    def all_traffic(self) -> TrafficMatrix:
        """See `Communicator.all_traffic`."""
        return stack(self.gather_objects(self.traffic))

    def gather_objects(self, what: Any) -> list[Any]:
        """See `Communicator.gather_objects`."""
        with self._waiting("gather_objects"):
            return self._tell(what)

    def _tell(self, what: Any) -> list[Any]:
        """Gather one object from every rank, in order of rank."""
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, what, self._host_group or self.group)
        return found

    def _count(
        self, operation: Operation, phase: Phase, to: int, floats: int, itemsize: int, messages: int
    ) -> None:
        super()._count(operation, phase, to, floats, itemsize, messages)
        if self._timetable is not None and to != self.rank and floats:
            self._leaving[to] = (messages, floats * itemsize)

    def _begin(self, x: Tensor, send: tuple[int, ...], receive: tuple[int, ...]) -> PendingExchange:
        out = x.new_empty((sum(receive), *x.shape[1:]))
        number = self._depart()
        source, target = self._carried(x), self._carried(out)
        width = math.prod(x.shape[1:]) * x.element_size()
        sends, receives = ([n * width for n in sizes] for sizes in (send, receive))
        senders = [by for by, n in enumerate(receives) if n and by != self.rank]
        data, place = _bytes(source), _bytes(target)
        box = self._mailbox("all_to_all", number)
        with self._naming("all_to_all", number):
            if box is not None:
                parts, places = data.split(sends), place.split(receives)
                places[self.rank].copy_(parts[self.rank])
                box.post(number, {to: p for to, p in enumerate(parts) if to != self.rank})
                taking = {by: places[by] for by in senders}
                return _Fetching(self, box, taking, number, out, target)
            works = self._exchange(data, place, sends, receives, number)
        return _Waiting(self, works, number, senders, out, target, source)

    def _mailbox(self, operation: str, number: int) -> Mailbox | None:
        """The shared memory, where the method has any; the first call opens it, on all ranks."""
        if self.method not in ("auto", "shared") or not self.host:
            return None
        if not self._box_asked:
            with self._waiting(operation, number):
                self._box = Mailbox.open(self.rank, self.size, self._tell, self._timeout_s)
            self._box_asked = True
        if self._box is None and self.method == "shared":
            raise UnsupportedError(
                "memory can be shared by the ranks of one Linux machine only", hint="method='auto'"
            )
        return self._box

    def _exchange(
        self, source: Tensor, target: Tensor, send: list[int], receive: list[int], number: int
    ) -> list[Any]:
        if self.method == "pairs":
            return self._exchange_pairs(source, target, send, receive, number)
        return [
            dist.all_to_all_single(target, source, receive, send, group=self.group, async_op=True)
        ]

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
        if self._host_group is not None:
            told = torch.tensor(send, dtype=torch.int64)
            came = torch.empty_like(told)
            number = self._depart()
            with self._waiting("sizes", number):
                dist.all_to_all_single(came, told, group=self._host_group)
            return came.tolist()
        told = torch.tensor(send, dtype=torch.int64, device="cpu" if self.host else self.device)
        ticket = self._begin(told, ones, ones)
        ticket.wait()
        return ticket.received.tolist()

    def _all_reduce(self, x: Tensor, op: Reduction) -> Tensor:
        out = self._carried(x.detach()).clone(memory_format=torch.contiguous_format)
        number = self._depart(whole=True)
        box = self._mailbox("all_reduce", number)
        nbytes = out.numel() * out.element_size() * self.size
        senders = range(self.size) if out.numel() else ()
        with self._waiting("all_reduce", number, senders):
            small = 0 < nbytes <= REDUCED_HERE and out.dtype != torch.bool
            if small and box is None and self.backend == "gloo" and self.method == "collective":
                # Gloo's own takes 2 (P - 1) steps, each after the other: 5 ms instead of 1 ms for
                # a small model's gradients on four ranks.
                whole = out.new_empty((self.size, *out.shape))
                same = out.expand_as(whole).contiguous()
                dist.all_to_all_single(_bytes(whole), _bytes(same), group=self.group)
                out = _reduced(whole, op)
            elif box is None or not small:
                dist.all_reduce(out, _OPERATORS["sum" if op == "mean" else op], self.group)
            else:
                whole = self._everybodys(box, number, out.reshape(-1), [out.numel()] * self.size)
                # In order of rank, so every rank has the same bits.
                out = _reduced(whole.reshape(self.size, *out.shape), op)
        return (out / self.size if op == "mean" else out).to(x.device)

    def _all_gather(self, x: Tensor, rows: tuple[int, ...]) -> Tensor:
        mine = self._carried(x.detach()).contiguous()
        number = self._depart()
        box = self._mailbox("all_gather", number)
        width = math.prod(x.shape[1:])
        senders = [by for by, n in enumerate(rows) if n and width and by != self.rank]
        with self._waiting("all_gather", number, senders):
            if box is not None:
                found = self._everybodys(box, number, mine, rows)
            else:
                found = self._gather_padded(mine, rows)
        return found.to(x.device)

    def _everybodys(self, box: Mailbox, number: int, mine: Tensor, rows: Sequence[int]) -> Tensor:
        """[sum(rows), ...], each rank's rows in order of rank, through shared memory."""
        found = mine.new_empty((sum(rows), *mine.shape[1:]))
        parts = found.split(list(rows))
        parts[self.rank].copy_(mine)
        others = [by for by in range(self.size) if by != self.rank]
        box.post(number, dict.fromkeys(others, _bytes(mine)), same=True)
        for by in others:
            box.take(number, by, _bytes(parts[by]))
        return found

    def _gather_padded(self, mine: Tensor, rows: Sequence[int]) -> Tensor:
        # Gloo gathers equal parts only, so parts are padded to the longest.
        most = max(rows)
        padded = mine
        if mine.shape[0] < most:
            padded = mine.new_zeros((most, *mine.shape[1:]))
            padded[: mine.shape[0]] = mine
        parts = [torch.empty_like(padded) for _ in rows]
        if padded.numel():
            dist.all_gather([_bytes(p) for p in parts], _bytes(padded), self.group)
        return torch.cat([part[:n] for part, n in zip(parts, rows, strict=True)])

    def _broadcast(self, x: Tensor, root: int) -> Tensor:
        out = self._carried(x.detach()).clone(memory_format=torch.contiguous_format)
        number = self._depart()
        box = self._mailbox("broadcast", number)
        with self._waiting("broadcast", number, (root,) if out.numel() else ()):
            if box is None:
                peer = root if self.group is None else dist.get_global_rank(self.group, root)
                if out.numel():
                    dist.broadcast(_bytes(out), peer, self.group)
            elif self.rank == root:
                others = [to for to in range(self.size) if to != root]
                box.post(number, dict.fromkeys(others, _bytes(out)), same=True)
            else:
                box.take(number, root, _bytes(out))
        return out.to(x.device)

    def _carried(self, x: Tensor) -> Tensor:
        """The tensor that the backend moves: `x`, or a copy where the backend reaches."""
        if self.host:
            return x if x.device.type == "cpu" else x.cpu()
        return x if x.device == self.device else x.to(self.device)

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

    def _arrive(self, number: int, senders: Sequence[int], since: float) -> float:
        """Return when the wire has brought what the group has brought; the moment on its clock.

        `since`: when waiting began.
        """
        table = self._timetable
        if table is None:
            return time.perf_counter()
        due, now = table.due(number, senders), table.now()
        self.meter.spend("wire_late", max(0.0, now - max(due, since)))
        return table.sleep_until(due, now)

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
            number = self._depart()
        self.progress.waits(operation, number)
        names = ["communicate_wait"] + ["exchange_wait"] * (operation == "all_to_all")
        begin = None if self.host else self._event()
        start = time.perf_counter() if self._timetable is None else self._timetable.now()
        with self._naming(operation, number), self.meter.phase("communicate"):
            yield
            seconds = self._arrive(number, senders, start) - start
        if begin is None:
            for name in names:
                self.meter.spend(name, seconds)
        else:
            self.meter.spend_between(begin, self._event(), *names)
        self.progress.goes_on()

    def _event(self) -> torch.cuda.Event:
        """Record where this rank's stream is; NCCL lets the stream wait and not the host."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

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


class _Waiting(PendingExchange):
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


class _Fetching(PendingExchange):
    """An exchange through shared memory; what is there lies with its senders until `wait`."""

    def __init__(
        self,
        comm: GroupCommunicator,
        box: Mailbox,
        places: dict[int, Tensor],
        number: int,
        received: Tensor,
        target: Tensor,
    ) -> None:
        self.received = received
        self._comm, self._box, self._places, self._number = comm, box, places, number
        self._target = target

    def wait(self) -> None:
        with self._comm._waiting("all_to_all", self._number, list(self._places)):
            for by, place in self._places.items():
                self._box.take(self._number, by, place)
        if self._target is not self.received:
            self.received.copy_(self._target)
        self._places = {}
        del self._target


def _reduced(parts: Tensor, op: Reduction) -> Tensor:
    """[...] from [P, ...]; `mean` is summed."""
    if op == "max":
        return parts.amax(0)
    if op == "min":
        return parts.amin(0)
    return parts.sum(0, dtype=parts.dtype)


def _bytes(x: Tensor) -> Tensor:
    """The memory of a contiguous tensor as uint8[numel * itemsize]."""
    flat = x.reshape(-1)
    # A tensor without elements may have any stride, and then has no view of another width.
    return flat.view(torch.uint8) if flat.numel() else flat.new_empty(0, dtype=torch.uint8)
