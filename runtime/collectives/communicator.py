"""Communicator interface: the same operations for one rank, many ranks and no group at all."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, Literal

import torch
from torch import Tensor

from dgbench.runtime.collectives.exchange import Exchange, PendingExchange
from dgbench.runtime.collectives.progress import RankProgress
from dgbench.runtime.collectives.traffic import (
    PHASES,
    UNITS,
    Operation,
    Phase,
    Traffic,
    TrafficMatrix,
    ring_share,
)
from dgbench.runtime.collectives.wire import LinkEmulation
from dgbench.runtime.errors import (
    DgbenchError,
    InvalidInputError,
    UnsupportedError,
    unknown_key,
)
from dgbench.runtime.meter import Meter

Reduction = Literal["sum", "max", "min", "mean"]
_WORD: Final = 2**64 - 1
REDUCTIONS: Final[tuple[Reduction, ...]] = ("sum", "max", "min", "mean")


class CommunicationError(DgbenchError):
    """A collective operation that did not come about; most often because another rank is gone."""


class Communicator(ABC):
    """A rank's end of a group of ranks. All ranks must call the same operations in one order.

    Every operation is counted before it starts: in `traffic` per link, and in the meter under
    `<operation>_<unit>_<phase>`, for instance `all_to_all_floats_backward`. Counted is a stated
    algorithm, which the library may replace by another of its own: an all-to-all and an all-gather
    send each part straight to its receiver, an all-reduce is a ring, a broadcast goes from its
    root to each other rank. Barriers carry no data and are not counted.

    Seconds that a rank stands still for the others are in `meter.spent`, in every run:
    `communicate_wait` in all operations, `exchange_wait` in all-to-alls alone. The latter is the
    communication that is exposed, for an exchange that has arrived when it is waited for costs
    nothing there. Both are the phase `communicate` of an instrumented run. Between CPUs the host
    stands still; under NCCL the stream does, and events around each wait take the time.

    Attributes:
        rank, size: this rank, 0 <= rank < size.
        wire: what links are emulated, None for those that there are (see `use_wire`).
        device: where its tensors live.
        meter: gets the counters.
        traffic: what this rank sent.
        generator: a CPU generator seeded differently on every rank; torch's own seed is left to
            the launcher, which sets it equally so that replicated weights agree.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        *,
        device: str | torch.device = "cpu",
        meter: Meter | None = None,
        seed: int = 1,
        progress: RankProgress | None = None,
    ) -> None:
        self.traffic = Traffic(rank, size)
        self.rank, self.size = rank, size
        self.device = torch.device(device)
        self.meter = meter or Meter(device=str(device))
        self.progress = progress or RankProgress()
        self.generator = torch.Generator().manual_seed(rank_seed(seed, rank))
        self.operations = 0
        self.wire: LinkEmulation | None = None
        self._phase: Phase = "forward"

    # What it travels on.

    def use_wire(self, wire: LinkEmulation | None) -> None:
        """Let operations take no less time than on such links, or with None their own again.

        All ranks call it alike, with nothing under way. Values and counts stay what they are. See
        `dgbench.runtime.collectives.wire` for the rule. A communicator on which nothing travels
        (one rank, or counts alone) takes note of it and is as fast as before.

        Raises:
            UnsupportedError: ranks of several machines, or of GPUs that talk to each other.
        """
        self.wire = wire

    # What to count as.

    @contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """Count what is called inside as part of `name`: forward, rerun or backward.

        Exchanges that autograd runs are of the backward phase whatever is said here.

        Raises:
            UnknownKeyError: another name.
        """
        if name not in PHASES:
            raise unknown_key("phase", name, PHASES)
        before, self._phase = self._phase, name
        try:
            yield
        finally:
            self._phase = before

    # The operations.

    def all_to_all(
        self, x: Tensor, send: Sequence[int], receive: Sequence[int], *, grad: bool | None = None
    ) -> Tensor:
        """Send the first `send[0]` rows of `x` to rank 0, the next `send[1]` to rank 1, ...

        Args:
            x: [sum(send), ...]; trailing dimensions and dtype are the same on all ranks.
            send: rows for each rank, P numbers >= 0.
            receive: rows from each rank; `receive[q]` here equals `send[rank]` on rank q (see
                `exchange_sizes` where that is not known).
            grad: whether the backward pass exchanges gradients. None: when `x` requires one. All
                ranks must decide alike, so a rank whose `x` requires none (an empty share) says
                True where the others' do.

        Returns:
            [sum(receive), ...] in order of the source. It may be `x` itself on one rank, so do not
            write into it.

        Raises:
            InvalidInputError: sizes that do not fit.
            CommunicationError: another rank is gone or late.
        """
        return self.start_all_to_all(x, send, receive, grad=grad).wait()

    def start_all_to_all(
        self, x: Tensor, send: Sequence[int], receive: Sequence[int], *, grad: bool | None = None
    ) -> Exchange:
        """Begin what `all_to_all` does; the handle's `wait` gives the result.

        `x` must not be written to before. Several exchanges may be under way; all ranks begin
        them in one order. The reverse exchange overlaps likewise in the backward pass.
        """
        sent, received = self._sizes("send", send), self._sizes("receive", receive)
        if x.dim() < 1 or sum(sent) != x.shape[0]:
            raise InvalidInputError(
                f"'send' asks for {sum(sent)} rows of 'x', which has shape {tuple(x.shape)}",
                hint="the sizes must add up to the first dimension",
            )
        if sent[self.rank] != received[self.rank]:
            raise InvalidInputError(
                f"rank {self.rank} sends itself {sent[self.rank]} rows and receives "
                f"{received[self.rank]}"
            )
        if grad is False:
            x = x.detach()
        elif grad is True and torch.is_grad_enabled() and not x.requires_grad:
            x = x.detach().requires_grad_()
        return Exchange(self._begin_counted, x, sent, received, self._phase)

    def exchange_sizes(self, send: Sequence[int]) -> list[int]:
        """Tell every rank how many rows it will get; returns how many this one will get.

        One int64 to each rank, counted as the operation `sizes`.
        """
        sent = self._sizes("send", send)
        for to in range(self.size):
            self._count("sizes", self._phase, to, 1, 8, 1)
        return self._exchange_sizes(sent)

    def all_reduce(self, x: Tensor, op: Reduction = "sum") -> Tensor:
        """Element-wise sum, mean, maximum or minimum over the ranks, in a new tensor.

        Counted as a ring: 2 n (P - 1) elements over all ranks. Not differentiable.

        Raises:
            InvalidInputError: `x` requires a gradient.
            UnknownKeyError: another `op`.
        """
        self._plain("all_reduce", x)
        if op not in REDUCTIONS:
            raise unknown_key("op", op, REDUCTIONS, of="all_reduce")
        floats, messages = ring_share(x.numel(), self.rank, self.size)
        to = (self.rank + 1) % self.size
        self._count("all_reduce", self._phase, to, floats, x.element_size(), messages)
        return self._all_reduce(x, op)

    def all_gather(self, x: Tensor, rows: Sequence[int] | None = None) -> Tensor:
        """The `x` of all ranks below each other, in order of rank. Not differentiable.

        Args:
            x: [rows[rank], ...]; trailing dimensions and dtype are the same on all ranks.
            rows: first dimension on each rank. None: the same everywhere.

        Returns:
            [sum(rows), ...].

        Raises:
            InvalidInputError: sizes that do not fit, or `x` requires a gradient.
        """
        self._plain("all_gather", x)
        if x.dim() < 1:
            raise InvalidInputError("'x' is a scalar, all_gather needs rows", hint="x[None]")
        sizes = self._sizes("rows", [x.shape[0]] * self.size if rows is None else rows)
        if sizes[self.rank] != x.shape[0]:
            raise InvalidInputError(
                f"'rows' gives rank {self.rank} {sizes[self.rank]} rows, 'x' has {x.shape[0]}"
            )
        for to in range(self.size):
            self._count("all_gather", self._phase, to, x.numel(), x.element_size(), 1)
        return self._all_gather(x, sizes)

    def broadcast(self, x: Tensor, root: int = 0) -> Tensor:
        """The `x` of rank `root`, on all ranks; `x` gives shape and dtype elsewhere.

        Raises:
            InvalidInputError: a root that does not exist, or `x` requires a gradient.
        """
        self._plain("broadcast", x)
        if not 0 <= root < self.size:
            raise InvalidInputError(f"'root' is {root}, allowed: 0 <= root < {self.size}")
        if self.rank == root:
            for to in range(self.size):
                self._count("broadcast", self._phase, to, x.numel(), x.element_size(), 1)
        return self._broadcast(x, root)

    @abstractmethod
    def barrier(self) -> None:
        """Return when all ranks have come here.

        Raises:
            CommunicationError: some did not come in time; the message names them where the
                backend knows.
        """

    def gather_objects(self, what: Any) -> list[Any]:
        """One object from every rank, in order of rank; all must call it. It is not counted.

        Raises:
            UnsupportedError: the other ranks of the group do not exist.
        """
        if self.size > 1:
            raise UnsupportedError(
                "what other ranks would tell is not known to a rank that only counts"
            )
        return [what]

    @abstractmethod
    def all_traffic(self) -> TrafficMatrix:
        """The counts of all ranks; all must call it. It is not counted itself."""

    # What a kind of communicator does itself. Sizes are checked and counted before.

    @abstractmethod
    def _begin(
        self, x: Tensor, send: tuple[int, ...], receive: tuple[int, ...]
    ) -> PendingExchange: ...

    @abstractmethod
    def _exchange_sizes(self, send: tuple[int, ...]) -> list[int]: ...

    @abstractmethod
    def _all_reduce(self, x: Tensor, op: Reduction) -> Tensor: ...

    @abstractmethod
    def _all_gather(self, x: Tensor, rows: tuple[int, ...]) -> Tensor: ...

    @abstractmethod
    def _broadcast(self, x: Tensor, root: int) -> Tensor: ...

    def _begin_counted(
        self, x: Tensor, send: tuple[int, ...], receive: tuple[int, ...], phase: Phase
    ) -> PendingExchange:
        width = math.prod(x.shape[1:])
        for to, rows in enumerate(send):
            self._count("all_to_all", phase, to, rows * width, x.element_size(), 1)
        return self._begin(x.contiguous(), send, receive)

    def _count(
        self, operation: Operation, phase: Phase, to: int, floats: int, itemsize: int, messages: int
    ) -> None:
        if to == self.rank or not floats:
            return
        self.traffic.add(operation, phase, to, floats, itemsize, messages)
        in_floats, in_bytes, in_messages = _names(operation, phase)
        self.meter.count(in_floats, floats)
        self.meter.count(in_bytes, floats * itemsize)
        self.meter.count(in_messages, messages)

    def _sizes(self, name: str, sizes: Sequence[int]) -> tuple[int, ...]:
        found = tuple(int(n) for n in sizes)
        if len(found) != self.size or any(n < 0 for n in found):
            raise InvalidInputError(
                f"'{name}' is {list(found)[:8]} ({len(found)} numbers), needed: {self.size} "
                "numbers >= 0, one for each rank"
            )
        return found

    def _plain(self, name: str, x: Tensor) -> None:
        if torch.is_grad_enabled() and x.requires_grad:
            raise InvalidInputError(
                f"{name} is not differentiable and 'x' requires a gradient",
                hint="pass x.detach(); only all_to_all has a backward pass",
            )


@cache
def _names(operation: Operation, phase: Phase) -> tuple[str, ...]:
    return tuple(f"{operation}_{unit}_{phase}" for unit in UNITS)


def rank_seed(seed: int, rank: int) -> int:
    """A 63-bit seed for `rank`, far from those of other ranks and of neighbouring seeds."""
    mixed = (seed * 0x9E3779B97F4A7C15 + rank + 1) & _WORD
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # splitmix64
        mixed = ((mixed ^ (mixed >> shift)) * factor) & _WORD
    return (mixed ^ (mixed >> 31)) >> 1
