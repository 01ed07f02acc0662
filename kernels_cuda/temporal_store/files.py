"""Blocks of a temporal store in files: arrays without pickle, written whole or not at all."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from dgbench.runtime.errors import DataError, StoreError

FORMAT: Final = "dgbench temporal blocks 1"
UNREADABLE: Final = (
    OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""Exceptions that reading a damaged file of arrays may raise. A flipped bit can request a password,
another compression or another version of zip (RuntimeError)."""
_ARRAYS: Final = {
    "vertices": np.int64,
    "counts": np.int64,
    "sizes": np.int64,
    "capacity": np.int64,
    "records": np.uint8,
}


def write_blocks(path: Path, header: Mapping[str, Any], shelf: Any) -> int:
    """Write blocks and what must be known of them; returns the bytes of the file.

    Raises:
        StoreError: the file cannot be written. None is left behind then.
    """
    text = json.dumps({"format": FORMAT, **header}).encode()
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            arrays = {name: getattr(shelf, name)() for name in _ARRAYS}
            np.savez(file, header=np.frombuffer(text, np.uint8), **arrays)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise StoreError(f"cannot write '{path}': {error}") from error
    return path.stat().st_size


def read_blocks(path: Path) -> tuple[dict[str, Any], list[Tensor]]:
    """Read what `write_blocks` wrote.

    Returns:
        The header, and vertices, counts, sizes, capacity int64[...] and records uint8[...].

    Raises:
        DataError: not such a file, or a damaged one.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(file["header"].tobytes())
            arrays = [file[name] for name in _ARRAYS]
    except UNREADABLE as error:
        raise DataError(f"cannot read blocks from '{path}': {error}") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise DataError(f"'{path}' does not hold {FORMAT!r}")
    for (name, dtype), array in zip(_ARRAYS.items(), arrays, strict=True):
        if array.dtype != dtype or array.ndim != 1:
            raise DataError(f"'{path}': {name} is {array.dtype} with {array.ndim} dimensions")
    return header, [_aligned(torch.from_numpy(array)) for array in arrays]


def _aligned(array: Tensor) -> Tensor:
    return array if array.data_ptr() % 16 == 0 else array.clone()
