"""Memory that the ranks of one machine share: files without names, and tensors in them.

One rank of a machine makes a file and writes, the others map the same pages. A file is gone when
nobody has it any more. Where a CUDA device reads it, each process page-locks the pages for itself.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from dgbench.runtime.collectives import Communicator
from dgbench.runtime.collectives.shared import machine_key
from dgbench.runtime.errors import DgbenchError

_STEP: Final = 2 << 20
"""Bytes that are page-locked at a time."""
_MAPPED_PORTABLE: Final = 3
"""Flags of `cudaHostRegister`: every device of the process may read it under its own address."""
_LOCKED_ALREADY: Final = 712
"""Status of `cudaHostRegister` where somebody else in this process has locked these pages."""


def share_files(comm: Communicator, members: Sequence[int], count: int) -> list[int] | None:
    """Descriptors of empty files that the ranks of a machine have in common; to be closed.

    All ranks of the group call it alike, each with the ranks of its own machine. The first of them
    makes the files.

    Args:
        members: ranks of this rank's machine. count: of files.

    Returns:
        None on every rank where those of some machine cannot open each other's files.
    """
    first, key = members[0], machine_key()
    made: list[int] = []
    opened: list[int] | None = None
    try:
        if comm.rank == first and key is not None:
            made = [os.memfd_create("dgbench") for _ in range(count)]
        told = comm.gather_objects((key, os.getpid(), made))
        if key is not None and all(told[rank][0] == key for rank in members):
            opened = _opened(*told[first][1:])
        good = all(comm.gather_objects(opened is not None))
    finally:
        for file in made:
            os.close(file)
    if not good and opened is not None:
        for file in opened:
            os.close(file)
    return opened if good else None


def _opened(pid: int, files: Sequence[int]) -> list[int] | None:
    found: list[int] = []
    try:
        for file in files:
            found.append(os.open(f"/proc/{pid}/fd/{file}", os.O_RDWR))
    except OSError:
        for file in found:
            os.close(file)
        return None
    return found


def shared_tensor(
    comm: Communicator, members: Sequence[int], shape: Sequence[int], dtype: torch.dtype
) -> Tensor | None:
    """A tensor of zeros that the ranks of a machine have in common; see `share_files`.

    Pages that nobody has touched take no memory.
    """
    files = share_files(comm, members, 1)
    if files is None:
        return None
    (file,) = files
    try:
        nbytes = max(1, math.prod(shape) * dtype.itemsize)
        if comm.rank == members[0]:
            os.ftruncate(file, nbytes)
        comm.barrier()
        memory = mmap.mmap(file, nbytes)
    finally:
        os.close(file)
    return torch.frombuffer(memory, dtype=dtype, count=math.prod(shape)).view(*shape)


class PageLock:
    """Page-locks the first bytes of a tensor, as far as they are in use, for the CUDA devices.

    Args:
        tensor: contiguous, of the host. device: that reads it; nothing is locked for a CPU.

    Attributes:
        nbytes: locked so far.
    """

    def __init__(self, tensor: Tensor, device: torch.device) -> None:
        self.nbytes = 0
        self._tensor, self._on = tensor, device.type == "cuda"
        self._pieces: list[int] = []

    def reach(self, nbytes: int) -> None:
        """Lock the first `nbytes` bytes, and what follows them in the same pages.

        Raises:
            DgbenchError: the driver refuses, most often because too much is locked already.
        """
        most = self._tensor.numel() * self._tensor.element_size()
        end = min(most, -(-nbytes // _STEP) * _STEP)
        if not self._on or end <= self.nbytes:
            return
        driver: Any = torch.cuda.cudart()
        at = self._tensor.data_ptr() + self.nbytes
        status = int(driver.cudaHostRegister(at, end - self.nbytes, _MAPPED_PORTABLE))
        if status not in (0, _LOCKED_ALREADY):
            raise DgbenchError(
                f"{end - self.nbytes} bytes of shared memory cannot be page-locked: "
                f"CUDA error {status}",
                hint="let each rank keep a copy of its own: shared=False",
            )
        if status == 0:
            self._pieces.append(at)
        self.nbytes = end

    def close(self) -> None:
        """Unlock all of it."""
        for at in self._pieces:
            torch.cuda.cudart().cudaHostUnregister(at)
        self._pieces, self.nbytes = [], 0
