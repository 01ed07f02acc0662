"""The peak of memory that tensors take, on any device, seen from the operations that make them.

CUDA has an allocator that can be asked; the CPU has none, and resident memory also counts what
libraries keep. This counts storages from the operation that returns them until they are freed.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class MemoryTally(TorchDispatchMode):
    """Counts bytes of the storages made inside its `with`, on the thread that entered it.

    What was there before is not counted, nor is scratch memory inside one operation.

    Attributes:
        now: bytes alive.
        peak: the most that were alive at a time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        # What comes in and is not known was made outside and is not to be counted when it is
        # returned as a view.
        given = {
            t.untyped_storage()._cdata
            for t in tree_leaves((args, kwargs))
            if isinstance(t, Tensor) and t.layout == torch.strided
        }
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and tensor.layout == torch.strided:
                self._see(tensor.untyped_storage(), given)
        return out

    def _see(self, storage: torch.UntypedStorage, given: set[int]) -> None:
        key, nbytes = storage._cdata, storage.nbytes()
        if key in self._known or key in given or nbytes == 0:
            return
        self._known.add(key)
        self.now += nbytes
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._gone, key, nbytes)

    def _gone(self, key: int, nbytes: int) -> None:
        self._known.discard(key)
        self.now -= nbytes
