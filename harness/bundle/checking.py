"""Reading a bundle that anybody may have made: whole, or one sentence that says why not."""

from __future__ import annotations

import io
import stat
import string
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

import msgspec

from dgbench.harness.bundle.labels import LABEL
from dgbench.harness.bundle.packing import (
    FORMAT,
    MANIFEST,
    MEMBERS,
    Manifest,
    sha256,
    system_of,
)
from dgbench.harness.bundle.scrub import Scrubber
from dgbench.harness.store.files import from_line
from dgbench.harness.store.row import SCHEMA, STATUSES, Facts, Info, Row, decode
from dgbench.runtime.documents import decode_json
from dgbench.runtime.errors import DgbenchError, StoreError

MAX_PACKED: Final = 64 << 20
MAX_UNPACKED: Final = 512 << 20
"""Bytes of a bundle, as it lies on the disk and in all of its files."""
_CHUNK: Final = 1 << 20
_PICKLES: Final = (".pkl", ".pickle", ".pt", ".pth", ".npy", ".npz", ".joblib")
_PICKLED: Final = (b"\x80", b"\x93NUMPY", b"PK\x03\x04")
"""First bytes of pickles, arrays and archives; none of them begins JSON."""
_LETTERS: Final = frozenset(string.ascii_letters + string.digits + "_.+-")
_LONGEST: Final = 80
"""Letters of an identifier."""
_CRC: Final = "crc32"


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle whose files are whole and what the manifest says.

    Attributes:
        path: the file. digest: SHA-256 of its manifest, which names that of all other files.
        info, provenance: contents of run.json and provenance.json. rows: as they were written.
    """

    path: Path
    digest: str
    manifest: Manifest
    info: dict[str, Any]
    provenance: dict[str, dict[str, Any]]
    rows: list[Row]


def check_bundle(path: Path) -> Bundle:
    """Read a bundle and check all that needs no run.

    Raises:
        StoreError: it is no bundle, was altered, has another format or schema, or holds what a
            bundle never holds; the message says which.
    """
    path = Path(path)
    files = _unpacked(path, _bytes_of(path))
    manifest = _manifest(path, files)
    for name, (size, digest) in manifest.files.items():
        if (len(files[name]), sha256(files[name])) != (size, digest):
            raise StoreError(f"{path} was altered: {name} is not the file that {MANIFEST} names")
    info = _checked(path, "run.json", files, Info)
    if LABEL in info:
        raise StoreError(f"{path}: run.json has a label, which only its verifier may write")
    provenance = _checked(path, "provenance.json", files, dict[str, Facts])
    if _checked(path, "system.json", files, dict[str, Any]) != system_of(provenance):
        raise StoreError(f"{path}: system.json does not describe the system of provenance.json")
    rows = list(_rows(path, files["rows.jsonl"], manifest))
    _refuse_strange(path, rows, manifest, info, provenance)
    _refuse_private(path, {"run.json": info, "provenance.json": provenance}, rows)
    return Bundle(path, sha256(files[MANIFEST]), manifest, info, provenance, rows)


def _bytes_of(path: Path) -> bytes:
    try:
        facts = path.lstat()
        if not stat.S_ISREG(facts.st_mode):
            kind = "a symbolic link" if stat.S_ISLNK(facts.st_mode) else "no regular file"
            raise StoreError(f"{path} is {kind}, a bundle is a file")
        if facts.st_size > MAX_PACKED:
            raise StoreError(
                f"{path} has {facts.st_size:,} bytes, a bundle has at most {MAX_PACKED:,}"
            )
        return path.read_bytes()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error


def _unpacked(path: Path, data: bytes) -> dict[str, bytes]:
    """The files of a bundle by name; nothing is written to the disk."""
    files: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            for entry in entries:
                if fault := _fault_of(entry, files):
                    raise StoreError(f"{path} {fault}")
                files[entry.filename] = b""
            if sum(entry.file_size for entry in entries) > MAX_UNPACKED:
                raise StoreError(f"{path} unpacks to more than {MAX_UNPACKED:,} bytes")
            left = MAX_UNPACKED
            for entry in entries:
                files[entry.filename] = _read(path, archive, entry, left)
                left -= len(files[entry.filename])
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as error:
        raise StoreError(f"{path} is no bundle, or a damaged one: {error}") from error
    for name, text in files.items():
        if text.startswith(_PICKLED):
            raise StoreError(f"{path} holds a pickle or an archive as '{name}', allowed: JSON")
    if missing := {MANIFEST, *MEMBERS} - set(files):
        raise StoreError(f"{path} is no bundle: it has no {min(missing)}")
    return files


def _fault_of(entry: zipfile.ZipInfo, seen: Mapping[str, bytes]) -> str:
    """Fault of an entry of the archive, or ""."""
    name = entry.orig_filename
    if name.startswith(("/", "\\")) or name[1:2] == ":":
        return f"holds the absolute path '{name}', allowed: names without a folder"
    if ".." in PurePosixPath(name.replace("\\", "/")).parts:
        return f"holds '{name}', a path outside of the bundle"
    mode = entry.external_attr >> 16
    if stat.S_ISLNK(mode):
        return f"holds the symbolic link '{name}', allowed: regular files"
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        return f"holds '{name}', which is no regular file"
    if name.lower().endswith(_PICKLES):
        return f"holds a pickle or arrays as '{name}', allowed: JSON"
    if name not in (MANIFEST, *MEMBERS):
        return f"holds '{name[:80]}', allowed: {', '.join((MANIFEST, *MEMBERS))}"
    if name in seen:
        return f"holds two files called '{name}'"
    if entry.flag_bits & 1:
        return f"holds '{name}' encrypted"
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return f"packs '{name}' in a way that is not allowed: store it or deflate it"
    return ""


def _read(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, left: int) -> bytes:
    parts, size = [], 0
    with archive.open(entry) as stream:
        while part := stream.read(_CHUNK):
            size += len(part)
            if size > left:
                raise StoreError(f"{path} unpacks to more than {MAX_UNPACKED:,} bytes")
            parts.append(part)
    return b"".join(parts)


def _manifest(path: Path, files: Mapping[str, bytes]) -> Manifest:
    try:
        found = decode_json(files[MANIFEST], dict[str, Any])
        if (version := found.get("format")) != FORMAT:
            raise StoreError(f"{path} has format {version}, this dgbench reads format {FORMAT}")
        schema = found.get("schema")
        if schema != SCHEMA:
            raise StoreError(
                f"{path} has rows of schema {schema}, this dgbench reads schema {SCHEMA}",
                hint="another dgbench wrote it; read it with that one",
            )
        manifest = msgspec.convert(found, Manifest)
    except msgspec.MsgspecError as error:
        raise StoreError(f"{path}: {MANIFEST} is no manifest: {error}") from error
    if set(manifest.files) != set(MEMBERS):
        raise StoreError(f"{path}: {MANIFEST} names other files than the bundle holds")
    return manifest


def _checked(path: Path, name: str, files: Mapping[str, bytes], kind: Any) -> dict[str, Any]:
    try:
        found = decode_json(files[name], dict[str, Any])
        found.pop(_CRC, None)
        msgspec.convert(found, kind)
    except (msgspec.MsgspecError, OverflowError) as error:
        raise StoreError(f"{path}: {name} cannot be read: {error}") from error
    return found


def _rows(path: Path, text: bytes, manifest: Manifest) -> Iterator[Row]:
    for number, line in enumerate(text.splitlines(), 1):
        payload = from_line(line)
        if isinstance(payload, str):
            raise StoreError(f"{path}: rows.jsonl, line {number}: {payload}")
        try:
            yield decode(payload)
        except (DgbenchError, msgspec.MsgspecError, OverflowError) as error:
            raise StoreError(f"{path}: rows.jsonl, line {number} is no row: {error}") from error


def _refuse_strange(
    path: Path, rows: list[Row], manifest: Manifest, info: Mapping[str, Any],
    provenance: Mapping[str, Any],
) -> None:  # fmt: skip
    if len(rows) != manifest.processes:
        raise StoreError(
            f"{path}: rows.jsonl has {len(rows)} rows, {MANIFEST} says {manifest.processes}"
        )
    if sorted({row.paper for row in rows} - {"-"}) != sorted(manifest.papers):
        raise StoreError(f"{path}: its rows are of other papers than {MANIFEST} says")
    seen: set[str] = set()
    for row in rows:
        fault = ""
        if row.run != info["run"]:
            fault = f"is of run '{row.run}', the bundle of '{info['run']}'"
        elif row.id in seen:
            fault = "stands there twice"
        elif row.provenance not in provenance:
            fault = f"names the provenance '{row.provenance}', which is not there"
        elif row.status not in STATUSES:
            fault = f"has the status '{row.status}', allowed: {', '.join(STATUSES)}"
        elif row.log:
            fault = "names a log, which no bundle holds"
        elif not all(
            0 < len(word) <= _LONGEST and _LETTERS.issuperset(word)
            for word in (row.id, row.paper, row.experiment, row.preset)
        ):
            fault = "has an identifier with letters that are not allowed"
        if fault:
            raise StoreError(f"{path}: row '{row.id[:80]}' {fault}")
        seen.add(row.id)


def _refuse_private(path: Path, documents: Mapping[str, Any], rows: list[Row]) -> None:
    """Raise StoreError where a text holds a path or an address of somebody's machine."""
    scrubber = Scrubber()
    found = {name: next(scrubber.left(value), "") for name, value in documents.items()}
    found["rows.jsonl"] = next(
        (text for row in rows for text in scrubber.left(msgspec.to_builtins(row))), ""
    )
    for name, text in found.items():
        if text:
            raise StoreError(
                f"{path}: {name} holds a private path or address: '{text[:80]}'",
                hint="make the bundle with 'dgbench submit', which takes such words out",
            )
