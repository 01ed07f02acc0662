"""Arrays that a foreign contender and this process share, in files without a name."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy
import torch
from torch import Tensor

from dgbench.systems.base.foreign_server import view

ALIGNMENT: Final = 64
"""Bytes that the places of arrays are multiples of."""


class SharedResults:
    """Arrays in a file without a name that a contender writes and this process reads."""

    def __init__(self, arrays: Mapping[str, Sequence[int]]) -> None:
        """Args: arrays: shape of each, float32."""
        self.places, size = _places({name: ("float32", shape) for name, shape in arrays.items()})
        self.file = _nameless(size)
        self._memory = mmap.mmap(self.file.fileno(), 0)
        self._views = {name: view(self._memory, place) for name, place in self.places.items()}

    def forget(self) -> None:
        """Make all of it NaN, so that what is not written anew is no result."""
        for one in self._views.values():
            one.fill(numpy.nan)

    def read(self, prefix: str) -> dict[str, Tensor]:
        """Copies of the arrays whose names begin like that, without it."""
        return {
            name[len(prefix) :]: torch.from_numpy(one.copy())
            for name, one in self._views.items()
            if name.startswith(prefix)
        }


def _places(arrays: Mapping[str, tuple[str, Sequence[int]]]) -> tuple[dict[str, list[Any]], int]:
    """[dtype, shape, offset] of arrays that lie behind each other, and their bytes."""
    places: dict[str, list[Any]] = {}
    offset = 0
    for name, (dtype, shape) in arrays.items():
        places[name] = [dtype, list(shape), offset]
        size = int(numpy.prod(shape, dtype=numpy.int64)) * numpy.dtype(dtype).itemsize
        offset += -(-size // ALIGNMENT) * ALIGNMENT
    return places, max(offset, ALIGNMENT)


def _nameless(size: int) -> Any:
    """An open file of that size without a name: it is gone when all who hold it are."""
    if hasattr(os, "memfd_create"):
        file: Any = os.fdopen(os.memfd_create("dgbench"), "r+b", buffering=0)
    else:
        file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - its owner closes it
    file.truncate(size)
    return file


def written(arrays: Mapping[str, numpy.ndarray]) -> tuple[Any, dict[str, list[Any]]]:
    """A file with arrays, and their places. It is written and not mapped: this process need not
    hold what the contender reads."""
    places, size = _places({name: (str(a.dtype), a.shape) for name, a in arrays.items()})
    file = _nameless(size)
    for name, array in arrays.items():
        file.seek(places[name][2])
        left = memoryview(numpy.ascontiguousarray(array)).cast("B") if array.size else b""
        while left:
            left = left[file.write(left) :]
    return file, places
