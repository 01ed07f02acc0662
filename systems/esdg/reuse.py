"""Exchanged activations of a first pass, kept for the re-run of its block.

ESDG's re-run repeats its all-to-alls (Table 2 counts three passes). What they
bring is the same both times, so it may be kept instead: two passes, for memory that grows with the
timeline and that checkpoints were meant to save. An ablation of ours.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from dgbench.runtime.collectives import Communicator, Exchange
from dgbench.runtime.collectives.exchange import Arrived, PendingExchange

Key = tuple[int, str, int]
"""Layer, direction and piece of an exchange."""


class BlockCache:
    """Cache of the rows received in the exchanges of one block, without history."""

    def __init__(self) -> None:
        self._held: dict[Key, Tensor] = {}

    @property
    def nbytes(self) -> int:
        """Of what is held."""
        return sum(x.untyped_storage().nbytes() for x in self._held.values())

    def put(self, key: Key, received: Tensor) -> None:
        self._held[key] = received.detach()

    def take(self, key: Key) -> Tensor | None:
        """Remove and return the rows of `key`; None if there are none (left)."""
        return self._held.pop(key, None)


class Keeping:
    """An exchange whose result is also kept."""

    def __init__(self, exchange: Exchange, kept: BlockCache, key: Key) -> None:
        self._exchange, self._kept, self._key = exchange, kept, key

    def wait(self) -> Tensor:
        received = self._exchange.wait()
        self._kept.put(self._key, received)
        return received


class CachedExchange:
    """An exchange that was made before, of what has no gradient."""

    def __init__(self, received: Tensor) -> None:
        self._received = received

    def wait(self) -> Tensor:
        return self._received


def replay(
    comm: Communicator, rows: Tensor, received: Tensor, send: Sequence[int], receive: Sequence[int]
) -> Exchange:
    """An exchange that was made before: nothing travels forward, gradients travel back as ever.

    Args:
        comm: of all ranks, which all replay the same exchange.
        rows: what would be sent, recorded by autograd.
        received: what came.
        send, receive: sizes as of `Communicator.all_to_all`.
    """

    def begin(x: Tensor, to: tuple[int, ...], by: tuple[int, ...], phase: str) -> PendingExchange:
        if phase != "backward":
            return Arrived(received)
        with comm.phase("backward"):
            return _Returning(comm.start_all_to_all(x.detach(), to, by))

    if not rows.requires_grad:
        rows = rows.detach().requires_grad_()
    return Exchange(begin, rows, tuple(send), tuple(receive), "rerun")


class _Returning(PendingExchange):
    """Gradients on their way."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def wait(self) -> None:
        self.received = self._exchange.wait()
