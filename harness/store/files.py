"""Files that appear whole or not at all, and lines that carry their own check."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import io
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from dgbench.runtime.documents import decode_json
from dgbench.runtime.errors import StoreError

_HEAD = b'{"crc":"'
_MIDDLE = b'","row":'
_START = len(_HEAD) + 8 + len(_MIDDLE)
_CHECK = "crc32"
_CHUNK = 1 << 22
_NO_FOLDER = {
    errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.EEXIST, errno.ENOTDIR,
}  # fmt: skip
MAX_UNPACKED = 2 << 30
"""Bytes of a kept run's rows; the largest of ours has a few million."""


@dataclass(frozen=True, slots=True)
class Torn:
    """A line that cannot be trusted.

    Attributes:
        line: number of the line, from 1. text: its bytes. reason: what is wrong with it.
    """

    line: int
    text: bytes
    reason: str


def write_whole(path: Path, data: bytes) -> None:
    """Write a file under a temporary name, flush it to disk and put it in place.

    Raises:
        StoreError: the folder cannot be written; nothing is left behind.
    """
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException as error:  # Ctrl-C, too, leaves nothing behind
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if isinstance(error, OSError):
            raise cannot_write(path, error) from error
        raise


def sweep_whole(folder: Path, *names: str) -> None:
    """Remove what a `write_whole` of these names left in a folder when its process was killed.

    Only for who is sure that no other process writes them, such as the holder of a run's lock.
    """
    for name in names:
        for path in folder.glob(f".{name}.????????"):
            with contextlib.suppress(OSError):
                path.unlink()


@contextlib.contextmanager
def new_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """An empty folder with a name of its own, removed at the end if it is still there.

    A lock that ends with this process marks it as in use; what a killed one left behind under the
    same prefix is removed first. Raises OSError.
    """
    for left in parent.glob(f"{prefix}????????"):
        _remove_left(left)
    while True:
        folder = Path(tempfile.mkdtemp(dir=parent, prefix=prefix))
        descriptor = os.open(folder, os.O_RDONLY)
        with contextlib.suppress(OSError):  # a disk without locks: nobody removes it, then
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if folder.exists():  # somebody may have taken it for left in between
            break
        os.close(descriptor)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _remove_left(folder: Path) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)


def to_checked(value: dict[str, Any]) -> bytes:
    """A JSON object for people to read, with a checksum of its contents as last entry."""
    plain = msgspec.json.decode(msgspec.json.encode(value))
    text = msgspec.json.encode({**plain, _CHECK: _sum_of(plain)})
    return msgspec.json.format(text, indent=2) + b"\n"


def from_checked(path: Path, *, required: bool = False) -> dict[str, Any]:
    """The object without its checksum; one that never had a checksum is taken as it is.

    Args:
        required: it was written with a checksum; without one it is damaged.

    Raises:
        FileNotFoundError: there is no such file.
        StoreError: it cannot be read or is not what was written.
    """
    try:
        found = decode_json(path.read_bytes(), dict[str, Any])
        if (wanted := found.pop(_CHECK, None)) not in (None, _sum_of(found)):
            raise StoreError(f"{path} is damaged: its checksum is not {wanted}")
        if wanted is None and required:
            raise StoreError(f"{path} is damaged: it has no checksum")
    except FileNotFoundError:
        raise
    except (OSError, OverflowError, msgspec.MsgspecError) as error:
        raise StoreError(f"cannot read {path}: {error}") from error
    return found


def _sum_of(plain: dict[str, Any]) -> str:
    return f"{zlib.crc32(msgspec.json.encode(plain, order='deterministic')):08x}"


def cannot_write(path: Path, error: OSError) -> StoreError:
    """The error for a file that cannot be written, with what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "the disk is full: free some space, then go on with --resume"
    elif error.errno in _NO_FOLDER:
        hint = "choose a folder that can be written with --out or DGBENCH_RESULTS"
    else:
        hint = ""
    return StoreError(f"cannot write {path}: {error.strerror or error}", hint=hint)


def to_line(payload: bytes) -> bytes:
    """`{"crc":"<crc32 of the payload, hex>","row":<payload>}` and a line break."""
    return _HEAD + b"%08x" % zlib.crc32(payload) + _MIDDLE + payload + b"}\n"


def from_line(line: bytes) -> bytes | str:
    """The payload of a line without its line break, or what is wrong with the line."""
    if not line.startswith(_HEAD) or not line.endswith(b"}") or line[16:_START] != _MIDDLE:
        return "the line is cut off or not one of ours"
    payload = line[_START:-1]
    if line[len(_HEAD) : len(_HEAD) + 8] != b"%08x" % zlib.crc32(payload):
        return "the checksum does not match"
    return payload


class Appender:
    """An open file that only grows, one checked line per write.

    A line goes out in a single write to a descriptor opened with O_APPEND and is flushed to
    disk before `append` returns. A write that stops half-way (a full disk) is cut off again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            size = os.fstat(self._descriptor).st_size
            if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
                os.write(self._descriptor, b"\n")  # or a torn tail would swallow the next line
            self._text = bytearray(path.read_bytes())
        except OSError as error:
            raise cannot_write(path, error) from error

    def restore(self) -> bool:
        """Write the file anew where it is not what was read and appended; False where it is."""
        try:
            if self.path.read_bytes() == self._text:
                return False
        except OSError:
            pass  # it was removed, or made unreadable
        write_whole(self.path, bytes(self._text))
        os.close(self._descriptor)
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND, 0o644)
        return True

    def append(self, payload: bytes) -> None:
        """Add one line. Raises StoreError; what was there before stays whole."""
        line = to_line(payload)
        size = os.fstat(self._descriptor).st_size
        try:
            written = os.write(self._descriptor, line)
            if written != len(line):
                raise OSError(28, "No space left on device")
            os.fsync(self._descriptor)
            self._text += line
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, size)
            raise cannot_write(self.path, error) from error

    def close(self) -> None:
        """Close the descriptor."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def read_text(path: Path) -> bytes:
    """A file's bytes, unpacked where its name ends in .gz; none where it is missing.

    Raises:
        StoreError: it cannot be read, or a packed one is damaged: nothing behind the damage can
            be told from what is missing.
    """
    try:
        text = path.read_bytes()
        if path.suffix != ".gz":
            return text
        if not text:
            raise EOFError("it is empty")
        return _unpack(path, text)
    except FileNotFoundError:
        return b""
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise StoreError(
            f"{path} is damaged: {error}", hint="fetch it again, such as from version control"
        ) from error
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error


def _unpack(path: Path, text: bytes) -> bytes:
    parts, size = [], 0
    with gzip.open(io.BytesIO(text)) as stream:
        while part := stream.read(_CHUNK):
            size += len(part)
            if size > MAX_UNPACKED:
                raise StoreError(f"{path} unpacks to more than {MAX_UNPACKED:,} bytes")
            parts.append(part)
    return b"".join(parts)


def read_lines(path: Path) -> tuple[list[bytes], list[Torn]]:
    """Payloads of all good lines, and the lines that are not. A missing file has none."""
    good, torn = [], []
    for number, line in enumerate(read_text(path).split(b"\n"), 1):
        if not line.strip():
            continue
        found = from_line(line)
        if isinstance(found, bytes):
            good.append(found)
        else:
            torn.append(Torn(number, line, found))
    return good, torn
