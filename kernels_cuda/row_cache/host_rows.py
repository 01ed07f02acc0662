"""Rows of a table in host memory as a device takes them where no cache is between."""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import check_ids
from dgbench.kernels_cuda.build_info import extension, stream_of
from dgbench.runtime.errors import UnsupportedError


def page_locked(table: Tensor, device: torch.device | str) -> Tensor:
    """The table in page-locked memory, which a CUDA device reads over the bus itself.

    Args:
        table: of the host; itself is returned where it is page-locked, or the device is none.
        device: that reads it.
    """
    if torch.device(device).type != "cuda" or table.is_pinned():
        return table
    return table.pin_memory()


def take_rows(table: Tensor, ids: Tensor, device: torch.device | str) -> Tensor:
    """[n, D] on the device, the rows of ids in their order; a repeated id travels again.

    A CUDA device reads a page-locked table itself, by one kernel. Where there are no compiled
    operators for it, or the table is pageable, the host gathers the rows and sends them.

    Args:
        table: float32[N, D] of the host, contiguous; see `page_locked`.
        ids: int64[n], on the host or the device.
        device: where the rows are wanted.
    """
    device = torch.device(device)
    if device.type != "cuda":
        return table.index_select(0, ids.to(table.device))
    locked = table.is_pinned()
    native = _operators(device) if locked and table.dtype == torch.float32 else None
    if native is not None:
        return read_over_bus(native, table, ids.to(device), stream_of(device))
    rows = table.index_select(0, ids.to(table.device))
    return (rows.pin_memory() if locked else rows).to(device, non_blocking=locked)


def read_over_bus(
    native: ModuleType, table: Tensor, ids: Tensor, stream: tuple[int, ...]
) -> Tensor:
    """The rows of ids, on their device, by its kernel for misses of a cache without slots."""
    check_ids(ids, "ids", table.shape[0])
    out = torch.empty(ids.numel(), table.shape[1], device=ids.device)
    place = -1 - torch.arange(ids.numel(), dtype=torch.int32, device=ids.device)
    native.gather_rows_pinned(place, ids.contiguous(), out[:0], table, out, *stream)
    return out


def _operators(device: torch.device) -> ModuleType | None:
    try:
        native = extension(device)
    except UnsupportedError:
        return None
    return native if hasattr(native, "gather_rows_pinned") else None
