"""The prepared form: arrays in one file that is mapped into memory, and a small index.

A prepared dataset is a directory `<cache>/prepared/<name>-<hash>/` with

* `data.bin`, all arrays one after the other, each at a multiple of 64 bytes;
* `meta.json`, their names, types, shapes and places, free fields, the sizes and checksums;
* `seen.json`, the identity that `data.bin` had when all its bytes were as they were written.

The hash covers the content of the source files, how they were read and the version of this
format, so that a change of any of them makes another directory. A directory appears under its
name by one rename after everything in it has been flushed. A reader checks the checksum of the
index and the size of the data each time, and the data itself whenever the file is not the one that
was seen; `verify` always does. What is damaged is made again, with a `DataWarning`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import math
import mmap
import os
import shutil
import stat
import tempfile
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import torch
from torch import Tensor

from dgbench.datasets.identity import Identity, identity, settle, written_bytes
from dgbench.runtime.documents import decode_json
from dgbench.runtime.errors import DataError, DataWarning
from dgbench.runtime.machine import cache_root

FORMAT: Final = 3
"""Version of the layout and of what is computed before storing; part of every hash."""

LOCK_TIMEOUT_S: Final = 3600.0
_ALIGN: Final = 64
_CHUNK: Final = 1 << 24
_LARGEST: Final = 1 << 48
_UNWRITABLE: Final = {
    *(errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.ENOTDIR, errno.EEXIST),
    *(errno.EDQUOT, errno.EFBIG, errno.ENOENT, errno.ENOLCK),
}
_DTYPES: Final = {
    str(d).removeprefix("torch."): d
    for d in (torch.int64, torch.int32, torch.float64, torch.float32, torch.uint8)
}


@dataclass(slots=True)
class Pack:
    """Unit of storage: free fields (JSON) and named arrays (contiguous CPU tensors)."""

    fields: dict[str, Any]
    arrays: dict[str, Tensor] = field(default_factory=dict)


class _Place(msgspec.Struct, array_like=True):
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int


class _Index(msgspec.Struct):
    format: int
    fields: msgspec.Raw
    arrays: list[_Place]
    bytes: int
    crc32: int


class _Sealed(msgspec.Struct):
    sha256: str
    index: msgspec.Raw


class BrokenError(Exception):
    """A prepared directory that is incomplete or damaged; it is made again."""


def slot(name: str, key: Any) -> str:
    """Directory name of prepared data: the dataset's name and a hash of `key` (JSON-able)."""
    digest = hashlib.sha256(msgspec.json.encode([FORMAT, key], order="deterministic"))
    return f"{name}-{digest.hexdigest()[:24]}"


def obtain(where: str, build: Callable[[], Pack]) -> Pack:
    """The prepared data at slot `where`, built first if it is not there.

    One process builds, others wait for it. If the cache cannot be written, a temporary folder
    is used with a warning, and if that fails too, what was built is returned as it is.

    Args:
        where: a name made by `slot`.
        build: makes the data; it is called at most once.
    """
    pack: Pack | None = None
    for root in _roots():
        target = root / "prepared" / where
        found = load(target)
        if found is not None:
            return found
        try:
            with _locked(root, where):
                found, fault = _try(target)
                if found is None:
                    pack = pack or _run(build)
                    save(target, pack)
                    found = load(target)
                if fault:
                    text = f"prepared data '{where}' was damaged and has been made again: {fault}"
                    warnings.warn(text, DataWarning, stacklevel=3)
            if found is not None:
                return found
        except OSError as error:
            if error.errno not in _UNWRITABLE:
                raise
            warnings.warn(
                f"prepared data cannot be written to {root} ({error.strerror or error}); "
                "set DGBENCH_CACHE to a folder with room to write",
                RuntimeWarning,
                stacklevel=3,
            )
    return pack or _run(build)


def load(target: Path) -> Pack | None:
    """Map a prepared directory; None if it is not there or damaged."""
    return _try(target)[0]


def _try(target: Path) -> tuple[Pack | None, str]:
    """The mapped directory, or why it is damaged; "" where there is none."""
    try:
        return _load(target), ""
    except FileNotFoundError as error:
        name = os.path.basename(error.filename or "")
        return None, f"{name} is missing" if target.is_dir() else ""
    except (BrokenError, OSError, ValueError, KeyError, msgspec.MsgspecError) as error:
        return None, str(error) or type(error).__name__


def verify(target: Path) -> str:
    """Why a prepared directory is damaged, or "" if every byte of it is as it was written."""
    try:
        _load(target)
        with open(target / "data.bin", "rb") as stream:
            _check_bytes(stream, _read_index(target))
        return ""
    except (BrokenError, OSError, ValueError, KeyError, msgspec.MsgspecError) as error:
        return str(error)


def clean(names: set[str] | None = None) -> tuple[int, int]:
    """Remove the prepared forms of some datasets (None: of all); return how many and the bytes.

    A process that has one of them open keeps its data.
    """
    root = cache_root() / "prepared"
    count = freed = 0
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        dataset = folder.name.lstrip(".").rpartition("-")[0]
        if names is not None and dataset not in names:
            continue
        freed += sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        count += not folder.name.startswith(".")
        shutil.rmtree(folder)
    return count, freed


def save(target: Path, pack: Pack) -> None:
    """Write a directory under a temporary name and rename it. The caller holds the lock."""
    parent = target.parent
    parent.mkdir(parents=True, exist_ok=True)
    for stale in parent.glob(f".{target.name}.*"):  # left by a process that died
        shutil.rmtree(stale, ignore_errors=True)
    arrays = {k: v.detach().cpu().contiguous() for k, v in pack.arrays.items()}
    need = sum(v.numel() * v.element_size() + _ALIGN for v in arrays.values()) + (1 << 16)
    if shutil.disk_usage(parent).free < need:
        raise OSError(errno.ENOSPC, f"{need:,} bytes are needed")
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=parent))
    try:
        places, size, crc = _write_arrays(temporary / "data.bin", arrays)
        index = msgspec.json.encode(
            {
                "format": FORMAT,
                "fields": pack.fields,
                "arrays": places,
                "bytes": size,
                "crc32": crc,
            }
        )
        sealed = {"sha256": hashlib.sha256(index).hexdigest(), "index": msgspec.Raw(index)}
        with open(temporary / "meta.json", "wb") as stream:
            stream.write(msgspec.json.encode(sealed))
            _flush(stream)
        _note_seen(temporary, identity(os.stat(temporary / "data.bin")))
        _flush_folder(temporary)
        if target.exists():
            damaged = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=parent))
            os.rename(target, damaged / "old")
            shutil.rmtree(damaged, ignore_errors=True)
        os.chmod(temporary, 0o755)
        os.rename(temporary, target)
        _flush_folder(parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _write_arrays(path: Path, arrays: Mapping[str, Tensor]) -> tuple[list[_Place], int, int]:
    places, offset, crc = [], 0, 0
    with open(path, "wb") as stream:
        for name, value in arrays.items():
            padding = b"\0" * (-offset % _ALIGN)
            offset += stream.write(padding)
            crc = zlib.crc32(padding, crc)
            dtype = str(value.dtype).removeprefix("torch.")
            places.append(_Place(name, dtype, tuple(value.shape), offset))
            flat = (
                value.reshape(-1).view(torch.uint8).numpy() if value.numel() else np.empty(0, "u1")
            )
            for start in range(0, flat.size, _CHUNK):
                part = memoryview(flat[start : start + _CHUNK])
                stream.write(part)
                crc = zlib.crc32(part, crc)
            offset += flat.size
        _flush(stream)
    return places, offset, crc


def _read_index(target: Path) -> _Index:
    with open(os.path.join(target, "meta.json"), "rb") as stream:
        sealed = decode_json(stream.read(), _Sealed)
    if hashlib.sha256(bytes(sealed.index)).hexdigest() != sealed.sha256:
        raise BrokenError("the checksum of meta.json does not match")
    index = decode_json(bytes(sealed.index), _Index)
    if index.format != FORMAT:
        raise BrokenError(f"format {index.format}, {FORMAT} is needed")
    return index


def _load(target: Path) -> Pack:
    index = _read_index(target)
    with open(os.path.join(target, "data.bin"), "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        if size != index.bytes:
            raise BrokenError(f"data.bin has {size} bytes, {index.bytes} are needed")
        found = identity(os.fstat(stream.fileno()))
        if _read_seen(target) != found:
            settle(found)
            _check_bytes(stream, index)
            with contextlib.suppress(OSError):  # a cache that cannot be written is read each time
                _note_seen(target, found)
        # Copy on write: a caller that writes to a tensor changes neither the file nor others.
        view = _View(stream.fileno(), 0, access=mmap.ACCESS_COPY) if size else b""
        if size:
            view.path = os.path.join(target, "data.bin")
            _MAPPED[view.path] += 1
    _OPENED[os.path.join(target, "data.bin")] = found, index.crc32
    arrays = {}
    for place in index.arrays:
        dtype = _DTYPES[place.dtype]
        if math.prod(max(1, length) for length in place.shape) > _LARGEST:
            raise BrokenError(f"the shape of '{place.name}' is none")
        count = math.prod(place.shape)
        end = place.offset + count * dtype.itemsize
        if min(place.shape, default=0) < 0 or not 0 <= place.offset <= end <= index.bytes:
            raise BrokenError(f"the place of '{place.name}' is not inside the file")
        if count == 0:
            arrays[place.name] = torch.empty(0, dtype=dtype).view(place.shape)
            continue
        flat = torch.frombuffer(view, dtype=dtype, count=count, offset=place.offset)
        arrays[place.name] = flat if len(place.shape) == 1 else flat.view(place.shape)
    return Pack(decode_json(bytes(index.fields), dict[str, Any]), arrays)


class _View(mmap.mmap):
    """A mapped `data.bin`; where writes are watched, it counts them when it is let go."""

    path = ""

    def __del__(self) -> None:
        _MAPPED[self.path] -= 1
        if _WATCHING:
            _count_writes(self.path)


_OPENED: dict[str, tuple[Identity, int]] = {}
_WRITTEN: dict[str, int] = {}
_MAPPED: Counter[str] = Counter()
"""Mappings of a file that are in use; those that were let go have been counted."""
_WATCHING = False


def watch_writes() -> None:
    """From now on notice writes to prepared data in this process, for `disturbed` to tell."""
    global _WATCHING
    _WATCHING = True


def _count_writes(path: str) -> None:
    _WRITTEN[path] = max(_WRITTEN.get(path, 0), written_bytes(path))


def disturbed() -> list[str]:
    """List changes made by this or another process to the prepared data that this process has
    opened.

    Writes to its own memory are only told where `watch_writes` was called before.
    """
    found = []
    for path, (known, crc) in _OPENED.items():
        name = os.path.basename(os.path.dirname(path))
        if _WATCHING and _MAPPED[path]:
            _count_writes(path)
        if count := _WRITTEN.get(path):
            found.append(
                f"it wrote to the prepared data '{name}' in its memory ({count >> 10} KiB; the "
                "file and what others read are as before)"
            )
        with contextlib.suppress(OSError), open(path, "rb") as stream:
            now = identity(os.fstat(stream.fileno()))
            # A new inode is another file: this process still has the old one.
            if now[0] == known[0] and now != known and _crc(stream) != crc:
                found.append(f"the prepared data '{name}' was changed on disk while it ran")
    return found


def _crc(stream: Any) -> int:
    crc = 0
    while part := stream.read(_CHUNK):
        crc = zlib.crc32(part, crc)
    return crc


def _check_bytes(stream: Any, index: _Index) -> None:
    if _crc(stream) != index.crc32:
        raise BrokenError("the checksum of data.bin does not match")


def _read_seen(target: Path) -> Identity | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError), open(target / "seen.json", "rb") as f:
        return decode_json(f.read(), Identity)
    return None


def _note_seen(target: Path, known: Identity) -> None:
    settle(known)
    handle, temporary = tempfile.mkstemp(prefix=".seen.", dir=target)
    with os.fdopen(handle, "wb") as stream:
        stream.write(msgspec.json.encode(known))
    os.chmod(temporary, 0o644)
    os.replace(temporary, target / "seen.json")


def _run(build: Callable[[], Pack]) -> Pack:
    """Build, keeping errors of the source apart from errors of the cache."""
    try:
        return build()
    except OSError as error:
        raise DataError(f"the data cannot be read: {error}") from error


@contextlib.contextmanager
def _locked(root: Path, where: str) -> Iterator[None]:
    from filelock import FileLock, Timeout

    folder = root / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / f"{where}.lock", timeout=LOCK_TIMEOUT_S):
            yield
    except Timeout:
        raise DataError(
            f"another process has been preparing '{where}' for {LOCK_TIMEOUT_S:.0f} s",
            hint=f"if none is running, remove {folder / where}.lock",
        ) from None


def _roots() -> Iterator[Path]:
    yield cache_root()
    with contextlib.suppress(OSError):
        owner = os.getuid() if hasattr(os, "getuid") else "user"
        # Cells have a TMPDIR of their own that is emptied after each of them.
        common = os.environ.get("DGBENCH_COMMON_TMP") or tempfile.gettempdir()
        spare = Path(common) / f"dgbench-cache-{owner}"
        spare.mkdir(mode=0o700, exist_ok=True)
        facts = spare.lstat()
        mine = not hasattr(os, "getuid") or facts.st_uid == os.getuid()
        if stat.S_ISDIR(facts.st_mode) and mine:
            yield spare


def _flush(stream: Any) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _flush_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some file systems cannot flush a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
