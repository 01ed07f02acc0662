"""Bringing host tensors to the device while it computes (PiPAD, PPoPP 2023, section 4.6).

An engine opens one link and sends groups of tensors over it, say the partition it needs next::

    link = open_link(device, meter)
    partition = link.stage_all(arrays)  # once
    ticket = link.send(partition)  # returns at once
    ...  # compute on what came before
    on_device = ticket.wait()
    ...  # forward and backward on it
    ticket.release()
"""

from __future__ import annotations

import torch

from dgbench.runtime.errors import InvalidInputError, UnsupportedError
from dgbench.runtime.meter import Meter
from dgbench.runtime.transfer.link import PendingTransfer, TransferLink
from dgbench.runtime.transfer.slots import Staged

__all__ = ["PendingTransfer", "Staged", "TransferLink", "open_link"]


def open_link(
    device: torch.device | str,
    meter: Meter,
    *,
    asynchronous: bool = True,
    arena: bool = False,
    slots: int = 2,
) -> TransferLink:
    """A way to the device; close it when done.

    CPU without arena: tensors are handed through, their bytes counted. CPU with arena: they are
    copied into memory of its own, as a stand-in for a device, by a copy thread. CUDA: they are
    copied from pinned memory on a stream of its own.

    Args:
        device: where tensors go, `cpu` or a CUDA device.
        meter: gets the counters `bytes_h2d_counted`, `transfers` and, of links that copy,
            `bytes_h2d_moved`; and the spent times `copy_busy` and `copy_wait`.
        asynchronous: copy beside the caller's work. Off, `send` returns when the copy is done; on
            CUDA that is from pageable memory on the caller's stream, as plain `.to(device)` is.
        arena: copy also on the CPU.
        slots: how many tickets may be unreleased at a time (2 is double buffering).

    Raises:
        InvalidInputError: `slots` is below 1, or `arena` is asked for on a device that is none.
        UnsupportedError: there is no such device here.
    """
    device = torch.device(device)
    if slots < 1:
        raise InvalidInputError(f"'slots' is {slots}; at least 1 is needed")
    if device.type == "cpu":
        if not arena:
            from dgbench.runtime.transfer.plain import PlainLink

            return PlainLink(meter)
        from dgbench.runtime.transfer.arena import ArenaLink

        return ArenaLink(meter, asynchronous=asynchronous, slots=slots)
    if device.type != "cuda":
        raise UnsupportedError(
            f"there is no link to the device '{device}'", hint="devices: cpu, cuda"
        )
    if arena:
        raise InvalidInputError(
            f"'arena' is on with the device '{device}'; it stands in for a device on the CPU",
            hint="leave 'arena' off on CUDA, where copies are real",
        )
    if not torch.cuda.is_available():
        raise UnsupportedError("there is no CUDA device here", hint="use the device cpu")
    from dgbench.runtime.transfer.cuda import CudaLink

    return CudaLink(device, meter, asynchronous=asynchronous, slots=slots)
