"""Numbers on their way from a device to the host, for a caller who has something else to do."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

AHEAD: Final = 1
"""Steps that a timed loop may be ahead of the device: it never drains, and no more is queued."""


def copy_to_host(tensor: Tensor) -> tuple[Tensor, Any]:
    """A copy in page-locked memory, and the event in the current stream behind it."""
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    host.copy_(tensor, non_blocking=True)
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(tensor.device))
    return host, event


class Readback:
    """One number, copied to the host behind the work that makes it.

    Args:
        number: a scalar tensor on any device, or the number itself.
    """

    def __init__(self, number: Tensor | float) -> None:
        self._event: Any = None
        self._host: Tensor | float = number
        if isinstance(number, Tensor):
            self._host = number.detach()
            if number.is_cuda:
                self._host, self._event = copy_to_host(self._host)

    def wait(self) -> None:
        """Return when the device has made the number."""
        if self._event is not None:
            self._event.synchronize()
            self._event = None

    def value(self) -> float:
        """The number; waits for it."""
        self.wait()
        return float(self._host)
