"""The link of a CPU that computes where the tensors lie: nothing moves, bytes are counted."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from dgbench.runtime.transfer.link import PendingTransfer, TransferLink
from dgbench.runtime.transfer.slots import Staged, check_source


class PlainTicket(PendingTransfer):
    """The very tensors that were sent. They belong to the sender, so a release changes nothing."""

    def __init__(self, nbytes: int, tensors: list[Tensor]) -> None:
        super().__init__(nbytes)
        self._tensors = tensors

    def wait(self) -> list[Tensor]:
        self._check_held()
        return self._tensors

    def release(self) -> None:
        self._released = True
        self._tensors = []


class PlainLink(TransferLink):
    """Hands tensors through; there is nothing to wait for and no limit on open tickets."""

    copies = False

    def stage_all(self, tensors: Sequence[Tensor]) -> Staged:
        """The tensors where they are, made contiguous; with nothing to copy there is no block."""
        return Staged.of(tensor.contiguous() for tensor in tensors)

    def send(self, tensors: Sequence[Tensor]) -> PlainTicket:
        if isinstance(tensors, Staged):
            nbytes = tensors.layout.nbytes
        else:
            for i, tensor in enumerate(tensors):
                check_source(tensor, i)
            nbytes = sum(tensor.nbytes for tensor in tensors)
        self._count(nbytes)
        return PlainTicket(nbytes, list(tensors))
