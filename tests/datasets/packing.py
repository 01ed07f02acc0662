"""Archives and arrays in memory, as people and publishers pack them."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


def written(write: Callable[[io.BytesIO], Any]) -> bytes:
    """Bytes of what a function writes."""
    out = io.BytesIO()
    write(out)
    return out.getvalue()


def zipped(members: Mapping[str, bytes | str]) -> bytes:
    """A zip archive."""

    def write(out: io.BytesIO) -> None:
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in members.items():
                archive.writestr(name, data)

    return written(write)


def tarred(members: Mapping[str, bytes], mode: str = "w") -> bytes:
    """A tar archive, packed as the mode says."""

    def write(out: io.BytesIO) -> None:
        with tarfile.open(fileobj=out, mode=mode) as archive:
            for name, data in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))

    return written(write)


def arrays(**columns: Any) -> bytes:
    """A file of numpy arrays."""
    return written(lambda out: np.savez(out, **columns))
