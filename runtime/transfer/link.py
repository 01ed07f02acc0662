"""Interfaces of every link and every ticket."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.meter import Meter
from dgbench.runtime.transfer.slots import SlotLayout, Staged


class PendingTransfer(ABC):
    """One group of tensors on its way.

    Attributes:
        nbytes: bytes of the tensors, without the gaps between them.
    """

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._released = False

    @abstractmethod
    def wait(self) -> list[Tensor]:
        """The tensors on the device, in the order sent, ready for the caller's next work.

        On CUDA the current stream waits, the caller does not. Links that copy lend memory: the
        tensors may be read, also by a backward pass, until `release`.

        Raises:
            InvalidInputError: the ticket was released.
            Exception: whatever went wrong while copying.
        """

    @abstractmethod
    def release(self) -> None:
        """Let the memory be overwritten once all work enqueued so far is done. Twice is once."""

    def _check_held(self) -> None:
        if self._released:
            raise InvalidInputError(
                "the ticket was released, its memory may hold something else by now",
                hint="release a ticket after the last use of its tensors",
            )


class TransferLink(ABC):
    """A way for tensors from the host to the device.

    Attributes:
        copies: whether tensors really move; False where they are handed through and counted.
    """

    copies: ClassVar[bool]

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._closed = False

    def stage(self, tensor: Tensor) -> Tensor:
        """The form to send `tensor` from: contiguous, and pinned where that speeds up the copy.

        Costs a copy where it is not so yet; do it once and keep the result. A source must not
        change between `send` and `wait`.
        """
        return tensor.contiguous()

    def stage_all(self, tensors: Sequence[Tensor]) -> Staged:
        """Tensors that always travel together, laid out as one block so that one copy brings all.

        The result is a tuple of them in host memory, to be handed to `send` as it is.
        """
        return Staged.block(tensors)

    @abstractmethod
    def send(self, tensors: Sequence[Tensor]) -> PendingTransfer:
        """Start bringing `tensors` to the device; an asynchronous link returns at once.

        With as many unreleased tickets as there are slots it waits for one to be released, which
        another thread then has to do.

        Args:
            tensors: contiguous strided CPU tensors, any number and dtype, empty ones too.

        Raises:
            InvalidInputError: a tensor that is not so, or the link is closed, or no ticket was
                released for a minute.
        """

    def bandwidth(self) -> float | None:
        """Bytes per second of the copies so far; None where nothing was copied."""
        return None

    def close(self) -> None:
        """End the copying after what is under way, and its thread. Twice is once.

        Tensors of unreleased tickets stay readable.
        """
        self._closed = True

    def __enter__(self) -> TransferLink:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _count(self, nbytes: int) -> None:
        """Count a group about to be sent; raises InvalidInputError if the link is closed."""
        if self._closed:
            raise InvalidInputError("the link is closed", hint="open another with `open_link`")
        self._meter.count("transfers")
        self._meter.count("bytes_h2d_counted", nbytes)
        if self.copies:
            self._meter.count("bytes_h2d_moved", nbytes)

    def _layout(self, tensors: Sequence[Tensor]) -> SlotLayout:
        """Check what is to be sent, count it and say where it goes."""
        layout = tensors.layout if isinstance(tensors, Staged) else SlotLayout.of(tensors)
        self._count(layout.nbytes)
        return layout
