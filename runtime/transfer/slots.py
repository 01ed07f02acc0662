"""Where sent tensors lie: layouts of groups, and slots of memory that are used again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.meter import Meter

ALIGN: Final = 128
"""Bytes at whose multiples a tensor of a group begins: a cache line pair, a line of a GPU."""

PATIENCE_S: Final = 60.0
"""Seconds that a send waits for a slot before it says that nobody releases one."""


class TensorSlot(NamedTuple):
    """Where one tensor of a group lies in the slot, and as what."""

    dtype: torch.dtype
    shape: torch.Size
    stride: tuple[int, ...]
    first: int  # element of the slot taken as an array of this dtype


class CopyRun(NamedTuple):
    """Bytes that lie in one piece in the source and in the slot."""

    source: Tensor  # uint8, nbytes long
    offset: int  # in the slot
    nbytes: int


class SlotLayout(NamedTuple):
    """Layout of a group of tensors inside one slot, and the copies that fill it.

    Attributes:
        places: of each tensor.
        runs: what to copy; neighbours in one storage are one run, gaps between them included.
        nbytes: of the tensors, without gaps.
        span: bytes taken in the slot.
    """

    places: tuple[TensorSlot, ...]
    runs: tuple[CopyRun, ...]
    nbytes: int
    span: int

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> SlotLayout:
        """The layout of contiguous strided CPU tensors; raises InvalidInputError for others."""
        places: list[TensorSlot] = []
        # a piece: first and last byte's addresses, offset, first tensor
        pieces: list[tuple[int, int, int, Tensor]] = []
        nbytes = end = 0
        for i, tensor in enumerate(tensors):
            check_source(tensor, i)
            offset = -(-end // ALIGN) * ALIGN
            size = tensor.nbytes
            places.append(
                TensorSlot(
                    tensor.dtype,
                    tensor.shape,
                    tensor.stride(),
                    offset // tensor.element_size(),
                )
            )
            if size == 0:
                continue
            nbytes += size
            end = offset + size
            address = tensor.data_ptr()
            if pieces:
                begin, _, at, first = pieces[-1]
                if address - begin == offset - at and _same_storage(first, tensor):
                    pieces[-1] = begin, address + size, at, first
                    continue
            pieces.append((address, address + size, offset, tensor))
        runs = tuple(
            CopyRun(_bytes(first, last - begin), offset, last - begin)
            for begin, last, offset, first in pieces
        )
        return cls(tuple(places), runs, nbytes, end)


class Staged(tuple):
    """Host tensors ready to be sent together, with their layout worked out once."""

    layout: SlotLayout

    @classmethod
    def of(cls, tensors: Iterable[Tensor]) -> Staged:
        """The tensors where they are; raises InvalidInputError for one that cannot be sent."""
        staged = cls(tensors)
        staged.layout = SlotLayout.of(staged)
        return staged

    @classmethod
    def block(
        cls, tensors: Sequence[Tensor], stage: Callable[[Tensor], Tensor] = Tensor.contiguous
    ) -> Staged:
        """Copies of the tensors in one block that `stage` puts in place; one run of a layout."""
        apart = SlotLayout.of([tensor.detach().contiguous() for tensor in tensors])
        block = torch.zeros(max(apart.span, 1), dtype=torch.uint8)
        for source, offset, nbytes in apart.runs:
            block[offset : offset + nbytes].copy_(source)
        return cls.of(Slot(stage(block)).views(apart))


class Slot:
    """A piece of memory that one group of tensors occupies at a time.

    Attributes:
        buffer: uint8[capacity].
        free: CUDA: the event after which it may be overwritten, or None.
        reader: CUDA: the stream that the allocator knows to read this buffer, or None.
    """

    def __init__(self, buffer: Tensor | None = None) -> None:
        self.free: torch.cuda.Event | None = None
        self.replace(buffer)

    def replace(self, buffer: Tensor | None) -> None:
        """Take other memory; views of the old keep it alive."""
        self.buffer: Any = buffer  # a tensor wherever a group was placed
        self.reader: torch.cuda.Stream | None = None
        self._typed: dict[torch.dtype, Tensor] = {}

    @property
    def capacity(self) -> int:
        """Bytes."""
        return 0 if self.buffer is None else self.buffer.numel()

    def views(self, layout: SlotLayout) -> list[Tensor]:
        """The group's tensors in this memory."""
        return [
            self._as(dtype).as_strided(shape, stride, first)
            for dtype, shape, stride, first in layout.places
        ]

    def _as(self, dtype: torch.dtype) -> Tensor:
        if dtype not in self._typed:
            whole = self.capacity // dtype.itemsize * dtype.itemsize
            self._typed[dtype] = self.buffer[:whole].view(dtype)
        return self._typed[dtype]


class SlotPool:
    """A fixed number of slots, each grown when something larger comes.

    Args:
        slots: how many.
        allocate: bytes -> uint8 buffer.
        meter: `copy_wait` gets the time spent waiting for a free slot.
    """

    def __init__(
        self,
        slots: int,
        allocate: Callable[[int], Tensor],
        meter: Meter,
    ) -> None:
        self.slots = slots
        self._allocate, self._meter = allocate, meter
        self._free = [Slot() for _ in range(slots)]
        self._changed = threading.Condition()

    def take(self, nbytes: int) -> Slot:
        """A slot of at least `nbytes`, nobody else's until `give`; waits for one.

        Raises:
            InvalidInputError: none came free for `PATIENCE_S` seconds.
        """
        with self._changed:
            if not self._free:
                self._wait()
            # The one free for longest that is large enough, else the largest, to grow it least.
            slot = min(
                self._free, key=lambda s: (0, 0) if s.capacity >= nbytes else (1, -s.capacity)
            )
            self._free.remove(slot)
        if slot.capacity < nbytes or slot.buffer is None:
            try:
                self._grow(slot, nbytes)
            except BaseException:
                self.give(slot)
                raise
        return slot

    def give(self, slot: Slot) -> None:
        """Hand a slot back."""
        with self._changed:
            self._free.append(slot)
            self._changed.notify()

    def _grow(self, slot: Slot, nbytes: int) -> None:
        # An eighth more, so that a series of slowly growing groups does not allocate each time.
        wanted = nbytes if slot.buffer is None else nbytes + nbytes // 8
        slot.replace(None)  # before the larger one is allocated, not after
        slot.replace(self._allocate(max(1, -(-wanted // ALIGN)) * ALIGN))

    def _wait(self) -> None:
        start = time.perf_counter()
        came = self._changed.wait_for(lambda: self._free, PATIENCE_S)
        self._meter.spend("copy_wait", time.perf_counter() - start)
        if not came:
            raise InvalidInputError(
                f"all {self.slots} slots are held by unreleased tickets, for {PATIENCE_S:.0f} s",
                hint="release a ticket before sending another, or open the link with more slots",
            )


def check_source(tensor: Tensor, i: int) -> None:
    """Raise InvalidInputError unless this tensor, the i-th of a group, can be sent."""
    if not isinstance(tensor, Tensor):
        raise InvalidInputError(
            f"tensors[{i}] is of the type {type(tensor).__name__}, expected a tensor"
        )
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise InvalidInputError(
            f"tensors[{i}] is {tensor.layout} on {tensor.device}, expected torch.strided on cpu"
        )
    if not tensor.is_contiguous():
        raise InvalidInputError(
            f"tensors[{i}] has shape {list(tensor.shape)} and strides {list(tensor.stride())}, "
            "expected a contiguous tensor",
            hint="stage it with `link.stage`",
        )


def _same_storage(a: Tensor, b: Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def _bytes(first: Tensor, nbytes: int) -> Tensor:
    """uint8[nbytes] of the storage of `first`, from its beginning."""
    begin = first.storage_offset() * first.element_size()
    return torch.empty(0, dtype=torch.uint8).set_(first.untyped_storage(), begin, (nbytes,), (1,))
