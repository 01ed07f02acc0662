"""Taking one expected member out of an archive, and nothing else."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO

from dgbench.runtime.errors import DataError

_CHUNK = 1 << 20


def extract_member(archive: Path, member: str, target: Path, max_bytes: int) -> None:
    """Unpack `member` of a zip or tar archive to `target`.

    An archive that holds a path that leaves its folder (absolute, or with `..`) is refused as
    a whole, and so is a member that is not a plain file or unpacks to more than `max_bytes`.
    Other members are never written.

    Raises:
        DataError: for such an archive, a missing member or a damaged archive.
    """
    try:
        if zipfile.is_zipfile(archive):
            _from_zip(archive, member, target, max_bytes)
        elif tarfile.is_tarfile(archive):
            _from_tar(archive, member, target, max_bytes)
        else:
            raise DataError(f"{archive.name} is neither a zip nor a tar archive")
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error) as error:
        target.unlink(missing_ok=True)
        raise DataError(f"{archive.name} is damaged: {error}") from None
    except DataError:
        target.unlink(missing_ok=True)
        raise


def _from_zip(archive: Path, member: str, target: Path, max_bytes: int) -> None:
    with zipfile.ZipFile(archive) as store:
        for info in store.infolist():
            _safe(archive, info.filename)
        found = _find(archive, member, [i.filename for i in store.infolist() if not i.is_dir()])
        with store.open(found) as stream:
            _copy(stream, target, max_bytes, found)


def _from_tar(archive: Path, member: str, target: Path, max_bytes: int) -> None:
    with tarfile.open(archive) as store:
        infos = store.getmembers()
        for info in infos:
            _safe(archive, info.name)
            if hasattr(tarfile, "data_filter"):
                # Raises for links that leave the folder, devices and the like.
                tarfile.data_filter(info, str(target.parent))
        found = _find(archive, member, [i.name for i in infos if i.isreg()])
        stream = store.extractfile(found)
        if stream is None:
            raise DataError(f"{archive.name}: '{found}' is not a plain file")
        with stream:
            _copy(stream, target, max_bytes, found)


def _safe(archive: Path, name: str) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or (path.parts and ":" in path.parts[0]):
        raise DataError(
            f"{archive.name} holds the path '{name}', which leaves its folder",
            hint="nothing was unpacked; do not use this archive",
        )


def _find(archive: Path, member: str, names: list[str]) -> str:
    """The member by its whole path, else by its file name if that is unique."""
    if member in names:
        return member
    same = [n for n in names if PurePosixPath(n).name == PurePosixPath(member).name]
    if len(same) == 1:
        return same[0]
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
