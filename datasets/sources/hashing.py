"""Checking files against the hashes on their cards, once per content."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

import msgspec

from dgbench.datasets.catalogue import FileRef, cards
from dgbench.datasets.identity import Identity, identity, settle
from dgbench.datasets.readers.raw import MAX_UNPACKED, read_bytes
from dgbench.datasets.store import cache_root
from dgbench.runtime.documents import decode_json, write_whole
from dgbench.runtime.errors import DataError


class _HashedFile(msgspec.Struct):
    identity: Identity
    sha256: str


_MEMORY: dict[str, _HashedFile] = {}


def file_sha256(path: Path) -> str:
    """sha256 of a file. Remembered in the cache for as long as size and times of change stay."""
    known = identity(os.stat(path))
    name = os.path.abspath(path)
    note = _note(name)
    seen = _MEMORY.get(name)
    if seen is None:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            seen = decode_json(note.read_bytes(), _HashedFile)
    if seen and seen.identity == known:
        _MEMORY[name] = seen
        return seen.sha256
    settle(known)
    with open(path, "rb") as stream:
        digest = hashlib.file_digest(stream, "sha256") if hasattr(hashlib, "file_digest") else None
        if digest is None:  # Python 3.10
            digest = hashlib.sha256()
            while part := stream.read(1 << 20):
                digest.update(part)
    seen = _MEMORY[name] = _HashedFile(known, digest.hexdigest())
    with contextlib.suppress(OSError):  # only saves time
        note.parent.mkdir(parents=True, exist_ok=True)
        write_whole(note, msgspec.json.encode(seen))
    return seen.sha256


def forget(path: Path) -> None:
    """Read the whole file when it is asked for next, whatever the cache remembers of it."""
    name = os.path.abspath(path)
    _MEMORY.pop(name, None)
    with contextlib.suppress(OSError):
        _note(name).unlink()


def _note(name: str) -> Path:
    return cache_root() / "hashes" / f"{hashlib.sha1(os.fsencode(name)).hexdigest()}.json"


def content_sha256(path: Path, most: int = MAX_UNPACKED) -> str:
    """sha256 of a file, of what it unpacks to if it is packed; DataError beyond `most` bytes."""
    return hashlib.sha256(read_bytes(path, most)).hexdigest()


def check_file(path: Path, ref: FileRef) -> str:
    """Compare a file with its card; return the sha256 of the file.

    A .gz file that was compressed differently is accepted if it unpacks to the right content, and
    so is the copy that dgbench carries. A download whose card has no hash must be what was
    accepted first (`trusted`).

    Raises:
        DataError: saying what was found and what the card wants.
    """
    found = file_sha256(path)
    if not ref.hashed:
        from dgbench.datasets.sources.trusted import check_pin  # it looks where files are

        check_pin(path, ref.path, found)
        return found
    if found == ref.sha256 or (ref.bundled is not None and found == ref.bundled.sha256):
        return found
    if ref.git_blob is not None and _git_blob(path) == ref.git_blob:
        return found
    if ref.content_sha256 is not None and content_sha256(path, ref.max_bytes) == ref.content_sha256:
        return found
    size = path.stat().st_size
    wanted = "" if ref.bytes is None else f" and {ref.bytes:,} bytes"
    raise DataError(
        f"{path} is not the file of the card: found sha256 {found} and {size:,} bytes, "
        f"expected {ref.sha256 or ref.content_sha256 or f'git blob {ref.git_blob}'}{wanted}",
        hint=again(path) or "fetch it again, or remove it to use another form or the twin",
    )


def again(path: Path) -> str:
    """Advice on a file of the user's that is not what its card says; "" for published data."""
    for card in cards().values():
        if any(ref.path == str(path) for form in card.forms for ref in form.files):
            return (
                f"if it is meant to be so, make its card anew: dgbench data add {path} "
                f"--name {card.name} --replace, with the options that it had"
            )
    return ""


def _git_blob(path: Path) -> str:
    """The name that git gives to a file's content."""
    digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode())
    with open(path, "rb") as stream:
        while part := stream.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()
