"""Taking one expected member out of an archive, and nothing else."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, cast

from dgbench.runtime.errors import DataError

MAX_MEMBERS: Final = 100_000
"""Entries of an archive; one of ours has a handful."""
_ROOM: Final = 1 << 30
_CHUNK: Final = 1 << 20
_PACKERS: Final[dict[bytes, Callable[..., Any]]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}


def extract_member(archive: Path, member: str, target: Path, max_bytes: int) -> None:
    """Unpack `member` of a zip or tar archive to `target`.

    An archive that holds a path that leaves its folder (absolute, or with `..`), more than
    `MAX_MEMBERS` entries, or a tar that unpacks to far more than `max_bytes`, is refused as a
    whole; so is a member that is not a plain file, is there twice, or unpacks to more than
    `max_bytes`. Other members are never written, and nothing is left where this raises.

    Raises:
        DataError: for such an archive, a missing member or a damaged archive.
    """
    try:
        if zipfile.is_zipfile(archive):
            _from_zip(archive, member, target, max_bytes)
        else:
            _from_tar(archive, member, target, max_bytes)
    except DataError:
        target.unlink(missing_ok=True)
        raise
    except Exception as error:  # a dozen kinds: unpackers, struct, unicode, an unknown method
        target.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is not None:
            raise  # of the disk, not of the archive
        raise DataError(f"{archive.name} is damaged: {error}") from None
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _from_zip(archive: Path, member: str, target: Path, max_bytes: int) -> None:
    with zipfile.ZipFile(archive) as store:
        infos = store.infolist()
        if len(infos) > MAX_MEMBERS:
            raise _crowded(archive)
        for info in infos:
            _safe(archive, info.orig_filename)
        found = _find(archive, member, [i.filename for i in infos if not i.filename.endswith("/")])
        info = store.getinfo(found)
        if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
            raise DataError(f"{archive.name}: '{found}' is not a plain file")
        with store.open(info) as stream:
            _copy(stream, target, max_bytes, found)


def _from_tar(archive: Path, member: str, target: Path, max_bytes: int) -> None:
    with _unpacked(archive, _ROOM + 4 * max_bytes) as plain:
        if not _is_tar(plain):
            raise DataError(f"{archive.name} is neither a zip nor a tar archive")
        with tarfile.open(fileobj=plain, mode="r:") as store:
            infos: list[tarfile.TarInfo] = []
            for info in store:
                if len(infos) == MAX_MEMBERS:
                    raise _crowded(archive)
                _safe(archive, info.name)
                if hasattr(tarfile, "data_filter"):
                    # Raises for links that leave the folder, devices and the like.
                    tarfile.data_filter(info, str(target.parent))
                infos.append(info)
            found = _find(archive, member, [i.name for i in infos if i.isreg()])
            if sum(i.name == found for i in infos) > 1:
                raise DataError(f"{archive.name} holds '{found}' more than once")
            stream = store.extractfile(found)
            if stream is None:
                raise DataError(f"{archive.name}: '{found}' is not a plain file")
            with stream:
                _copy(stream, target, max_bytes, found)


@contextmanager
def _unpacked(archive: Path, most: int) -> Iterator[IO[bytes]]:
    with open(archive, "rb") as stream:
        head = stream.read(8)
    opener: Callable[..., Any] = next(
        (o for magic, o in _PACKERS.items() if head.startswith(magic)), open
    )
    with opener(archive, "rb") as stream:
        yield cast(IO[bytes], _Bounded(archive, stream, most))


class _Bounded(io.RawIOBase):
    """A stream that gives no more than so many bytes, however they are asked for."""

    def __init__(self, archive: Path, stream: IO[bytes], most: int) -> None:
        self._archive, self._stream, self._most = archive, stream, most

    def read(self, size: int = -1) -> bytes:
        left = self._most - self._stream.tell()
        if size > left:
            raise self._full()
        found = self._stream.read(left + 1 if size < 0 else size)
        if len(found) > left:
            raise self._full()
        return found

    def seek(self, place: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET or place > self._most:
            raise self._full()
        return self._stream.seek(place)

    def tell(self) -> int:
        return self._stream.tell()

    def _full(self) -> DataError:
        return DataError(f"{self._archive.name} unpacks to more than {self._most:,} bytes")


def _is_tar(stream: IO[bytes]) -> bool:
    try:
        with tarfile.open(fileobj=stream, mode="r:"):
            return True
    except tarfile.TarError:
        return False
    finally:
        stream.seek(0)


def _crowded(archive: Path) -> DataError:
    return DataError(f"{archive.name} holds more than {MAX_MEMBERS:,} entries")


def _safe(archive: Path, name: str) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or (path.parts and ":" in path.parts[0]):
        raise DataError(
            f"{archive.name} holds the path '{name}', which leaves its folder",
            hint="nothing was unpacked; do not use this archive",
        )
    if "\0" in name:
        raise DataError(f"{archive.name} holds the path {name!r}, which goes on behind a NUL")


def _find(archive: Path, member: str, names: list[str]) -> str:
    """The member by its whole path, else by its file name; there must be one."""
    same = [n for n in names if n == member]
    same = same or [n for n in names if PurePosixPath(n).name == PurePosixPath(member).name]
    if len(same) == 1:
        return same[0]
    if same:
        raise DataError(f"{archive.name} holds '{member}' {len(same)} times: {', '.join(same[:8])}")
    listed = ", ".join(sorted(names)[:8])
    raise DataError(f"{archive.name} does not hold '{member}'; it holds: {listed or 'nothing'}")


def _copy(stream: IO[bytes], target: Path, max_bytes: int, name: str) -> None:
    written = 0
    with open(target, "wb") as out:
        while part := stream.read(_CHUNK):
            written += len(part)
            if written > max_bytes:
                raise DataError(f"'{name}' unpacks to more than {max_bytes:,} bytes")
            out.write(part)
