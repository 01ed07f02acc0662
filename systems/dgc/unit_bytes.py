"""Bytes that a unit of work holds in a training pass (DGC, section 5.1.1).

The paper measures the memory of every chunk in the first epoch and relies on it afterwards, as
shapes do not change. An allocator's counter tells it on one device only and not for units whose
rows are parts of one table, so here it is what autograd keeps for the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


class UnitBytes:
    """Counts units one after the other; a memory counts once for each unit that keeps it.

    Args:
        units: their number.
        shared: tensors that are there once for all units (parameters); they count for none.

    Attributes:
        bytes: of each unit, so far.
    """

    def __init__(self, units: int, shared: Iterable[Tensor]) -> None:
        self.bytes = [0] * units
        self._shared = {_memory(tensor) for tensor in shared}

    @contextmanager
    def of(self, unit: int, *given: Tensor) -> Iterator[None]:
        """Count what the block keeps for the backward pass.

        Args:
            unit: whose.
            given: tensors, or parts of larger ones, that the block reads and others of this unit
                do not; they count as long as they are and not again where they are kept.
        """
        seen = self._shared | {_memory(tensor) for tensor in given}
        self.bytes[unit] += sum(tensor.numel() * tensor.element_size() for tensor in given)

        def keep(tensor: Tensor) -> Tensor:
            if _memory(tensor) not in seen:
                seen.add(_memory(tensor))
                self.bytes[unit] += tensor.untyped_storage().nbytes()
            return tensor.detach()  # an output that keeps itself would never be given back

        with saved_tensors_hooks(keep, lambda tensor: tensor):
            yield


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
