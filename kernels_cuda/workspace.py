"""Memory that one step leaves to the next on the CPU, as a GPU's caching allocator does.

The C library gives large freed blocks back to the system, and every page of them is cleared again
when the next step asks for as much: on a graph of 4000 vertices a frame of hidden rows is 8 MB, and
its page faults take as long as its aggregation. A block is used again only when nothing refers to
it any more, neither a tensor nor an autograd graph that saved one.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

SMALLEST: Final = 1 << 20
"""Bytes from which a block is kept; smaller ones the C library keeps itself."""

# Not public in torch, so a version without it goes without reuse.
_use_count: Final = getattr(torch._C, "_storage_Use_Count", None)


class Workspace:
    """Blocks by size, for results of operators that write all of their output.

    Holds no more blocks of a size than were in use at once. When a new size comes, blocks of other
    sizes that nobody uses are given back.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, list[torch.UntypedStorage]] = {}
        self._lock = threading.Lock()

    def empty(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """Uninitialised memory with the dtype and device of `like`; fresh on a device."""
        count = 1
        for size in shape:
            count *= size
        nbytes = count * like.element_size()
        if nbytes < SMALLEST or like.device.type != "cpu" or _use_count is None:
            return like.new_empty(shape)
        with self._lock:  # between finding a free block and taking it
            blocks = self._blocks.setdefault(nbytes, [])
            for block in blocks:
                if _holders(block) == 1:
                    return torch.empty(0, dtype=like.dtype).set_(block, 0, tuple(shape))
            for other, kept in list(self._blocks.items()):
                kept[:] = [block for block in kept if _holders(block) > 1]
                if not kept and other != nbytes:
                    del self._blocks[other]
            fresh = like.new_empty(shape)
            blocks.append(fresh.untyped_storage())
            return fresh

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks, in use or not."""
        return sum(size * len(blocks) for size, blocks in self._blocks.items())

    def clear(self) -> None:
        """Give all blocks back; one in use lives as long as its tensors."""
        with self._lock:
            self._blocks.clear()


scratch: Final = Workspace()
"""The operators' own."""


def _holders(block: torch.UntypedStorage) -> int:
    """Number of references to a block, this one included."""
    return _use_count(block._cdata)
