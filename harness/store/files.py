"""Files that appear whole or not at all, and lines that carry their own check."""

from __future__ import annotations

import contextlib
import gzip
import os
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from dgbench.runtime.errors import StoreError

_HEAD = b'{"crc":"'
_MIDDLE = b'","row":'
_START = len(_HEAD) + 8 + len(_MIDDLE)


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
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: OSError) -> StoreError:
    """The error for a file that cannot be written, with what to do."""
    import errno

    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "the disk is full: free some space, then go on with --resume"
    elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
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
        except OSError as error:
            raise cannot_write(path, error) from error

    def append(self, payload: bytes) -> None:
        """Add one line. Raises StoreError; what was there before stays whole."""
        line = to_line(payload)
        size = os.fstat(self._descriptor).st_size
        try:
            written = os.write(self._descriptor, line)
            if written != len(line):
                raise OSError(28, "No space left on device")
            os.fsync(self._descriptor)
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
        return gzip.decompress(text)
    except FileNotFoundError:
        return b""
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise StoreError(
            f"{path} is damaged: {error}", hint="fetch it again, such as from version control"
        ) from error
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error


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
