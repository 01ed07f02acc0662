"""Raw data that readers return, and helpers that open files for them."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from dgbench.runtime.errors import DataError
from dgbench.runtime.memory import available_memory


@dataclass(slots=True)
class RawEvents:
    """Columns of a table of events, ids already dense, not yet validated nor sorted.

    Attributes:
        src, dst: int64[E].
        t: float64[E].
        num_nodes, num_src: sizes; num_src is None unless the graph is bipartite.
        weight: float32[E] or None. edge_feat: float32[E, D] or None. label: int64[E] or None.
        node_feat: float32[N, D] or None. node_label: int64[N], -1 where not known, or None.
        time_unit: unit of `t` where the file itself says it, as dates do, else "".
        notes: how what was read differs from the file.
    """

    src: np.ndarray
    dst: np.ndarray
    t: np.ndarray
    num_nodes: int
    num_src: int | None = None
    weight: np.ndarray | None = None
    edge_feat: np.ndarray | None = None
    label: np.ndarray | None = None
    node_feat: np.ndarray | None = None
    node_label: np.ndarray | None = None
    time_unit: str = ""
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Signals:
    """A graph with a native signal per vertex and step.

    Attributes:
        src, dst: int64[E]; step: int64[E], the snapshot of each entry. A static graph has
            the entries of its one topology, all at step 0.
        weight: float32[E] or None.
        num_nodes, steps: N and T.
        static: whether the topology never changes.
        targets: float32[T, N], normalised as the notes say.
        native: float32[T, N, D] or None; without it the last values of `targets` are the
            native features.
        notes: how targets and features were normalised.
    """

    src: np.ndarray
    dst: np.ndarray
    step: np.ndarray
    weight: np.ndarray | None
    num_nodes: int
    steps: int
    static: bool
    targets: np.ndarray
    native: np.ndarray | None = None
    notes: tuple[str, ...] = ()


MAX_UNPACKED: Final = 16 * 2**30
"""Most bytes that a file is unpacked to: a bomb ends here and not with the machine's memory."""
_CHUNK: Final = 1 << 24
_UNPACKERS: Final[tuple[tuple[re.Pattern[bytes], str, Callable[..., Any]], ...]] = (
    (re.compile(rb"\x1f\x8b"), "gzip", gzip.open),
    (re.compile(rb"BZh[1-9](1AY&|\x17rE8|$)"), "bzip2", bz2.open),
    (re.compile(rb"\xfd7zXZ"), "xz", lzma.open),
)
"""First bytes of a packed file, the name of its format and what opens it."""


COPIES: Final = 8
"""Bytes of memory that reading takes for each byte of a file, at most: the text, its columns, the
sorts that make ids dense, the events. Six million events took 7 as text, 6 as Parquet, 4 as npz."""


def check_memory(path: Path, size: int) -> None:
    """Refuse content that is too large for this machine's memory, before it is read."""
    free = available_memory()
    if COPIES * size > free:
        raise DataError(
            f"{path} is too large to be read here: {size / 2**30:,.1f} GiB take about "
            f"{COPIES * size / 2**30:,.1f} GiB of memory, {free / 2**30:,.1f} GiB are free",
            hint="use a part of it, or a machine with more memory",
        )


def read_bytes(path: Path, most: int = MAX_UNPACKED) -> bytes:
    """The content of a file, unpacked if it begins as a gzip, bzip2 or xz file does.

    Raises:
        DataError: it cannot be read, is damaged, unpacks to more than `most` bytes, or is too large
            for the memory.
    """
    try:
        check_memory(path, path.stat().st_size)
        with open(path, "rb") as file:
            packed = packing(file.read(8))
            file.seek(0)
            return unpacked(path, file, packed, most) if packed else file.read()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None


def packing(head: bytes) -> tuple[str, Callable[..., Any]] | None:
    """Name and opener of the format that packed content is in, by its first bytes."""
    return next(((name, opener) for mark, name, opener in _UNPACKERS if mark.match(head)), None)


def unpacked(
    path: Path, file: IO[bytes], packed: tuple[str, Callable[..., Any]], most: int
) -> bytes:
    """Unpack the content of an open file; raises as `read_bytes`."""
    most = min(most, available_memory() // COPIES)
    name, unpack = packed
    parts, size = [], 0
    try:
        with unpack(file) as stream:
            while part := stream.read(_CHUNK):
                size += len(part)
                if size > most:
                    raise DataError(f"{path} unpacks to more than {most:,} bytes")
                parts.append(part)
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        if getattr(error, "errno", None) is not None:  # the disk's fault, not that of the content
            raise
        raise DataError(
            f"{path} is not a whole {name} file: {error}", hint="fetch the file again"
        ) from None
    return b"".join(parts)
