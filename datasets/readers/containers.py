"""Formats of files by their first bytes, never by the end of a name, and the text in them."""

from __future__ import annotations

import codecs
import io
import re
import zipfile
from pathlib import Path
from typing import Final, Literal

from dgbench.datasets.readers.raw import COPIES, MAX_UNPACKED, packing, read_bytes, unpacked
from dgbench.runtime.errors import DataError
from dgbench.runtime.memory import available_memory

_ZIP: Final = (b"PK\x03\x04", b"PK\x05\x06")
_EXPORT: Final = "write its table of events as CSV or Parquet"
_UNPACK: Final = "unpack it, and name the file with the events"
_FOREIGN: Final = (
    (b"\x28\xb5\x2f\xfd", "packed with zstd", "unpack it: unzstd FILE"),
    (b"\x04\x22\x4d\x18", "packed with lz4", "unpack it: unlz4 FILE"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    (b"Rar!\x1a\x07", "a RAR archive", _UNPACK),
    (b"\x93NUMPY", "one array of numpy", "np.savez(FILE, src=..., dst=..., t=...) writes columns"),
    (b"PAR1", "a Parquet file inside of another one", _UNPACK),
    (b"ARROW1", "an Arrow (Feather) file", "write it as Parquet"),
    (b"\xff\xff\xff\xff", "an Arrow stream", "write it as Parquet"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", _EXPORT),
    (b"MATLAB 5.0", "a MATLAB file", _EXPORT),
    (b"SQLite format 3\0", "a SQLite database", _EXPORT),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Excel workbook (.xls)", "save its sheet as CSV"),
    (b"%PDF", "a PDF", _EXPORT),
    (b"version https://git-lfs", "a pointer of Git LFS", "fetch the file itself: git lfs pull"),
)
"""First bytes of formats that are not read, what these are, and what to do."""
_PICKLE: Final = re.compile(rb"\x80[\x02-\x05]")
_JSON: Final = re.compile(rb"\s*(\{\s*[\"}]|\[\s*[\[{\"\]])")
_HTML: Final = re.compile(rb"\s*<(!doctype html|html|\?xml)", re.I)
_UNICODE: Final = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_HEAD: Final = 1 << 12
_LAYERS: Final = 3
"""Most formats that are packed into each other."""


def stored_kind(path: Path) -> Literal["parquet", "npz", "table"]:
    """Return how a file stores its events: Parquet, arrays of numpy, or else a table of text."""
    try:
        with open(path, "rb") as file:
            head = file.read(4)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    if head == b"PAR1":
        return "parquet"
    if head in _ZIP:
        with _zip(path, path) as archive:
            if any(name.endswith(".npy") for name in archive.namelist()):
                return "npz"
    return "table"


def text_bytes(path: Path, most: int = MAX_UNPACKED) -> bytes:
    """The text of a file in UTF-8, out of gzip, bzip2, xz, a zip of one file, UTF-16 or UTF-32.

    Raises:
        DataError: it holds no text, with what it is and what to do; or as `read_bytes`.
    """
    data = read_bytes(path, most)
    for _ in range(_LAYERS):
        if data[:4] in _ZIP:
            data = _only_file(path, data, most)
        elif packed := packing(data[:8]):
            data = unpacked(path, io.BytesIO(data), packed, most)
        else:
            break
    what, todo = _foreign(data)
    if what:
        raise DataError(f"{path} is {what}, not a table of text", hint=todo)
    for mark, name in _UNICODE:
        if data.startswith(mark):
            try:
                return data.decode(name).encode()
            except UnicodeError as error:
                raise DataError(f"{path} is not whole {name.upper()}: {error}") from None
    if b"\0" in data[:_HEAD]:
        raise DataError(
            f"{path} is not a table of text: it holds zero bytes",
            hint="write it as CSV in UTF-8, or as Parquet",
        )
    return data


def _foreign(data: bytes) -> tuple[str, str]:
    """Name of the format of data that is no table of text, and what to do; "" where it may be."""
    head = data[:_HEAD]
    for mark, what, todo in _FOREIGN:
        if head.startswith(mark):
            return what, todo
    if packing(head) or head[:4] in _ZIP:
        return f"packed more than {_LAYERS} times", _UNPACK
    if head[257:262] == b"ustar":
        return "a tar archive", f"{_UNPACK}: tar xf FILE"
    if _PICKLE.match(head):
        return "a pickle of Python, which could run any code and is not opened", _EXPORT
    if _JSON.match(head):
        return "JSON", _EXPORT
    if _HTML.match(head):
        return "a page of HTML or XML, perhaps in place of a download", "fetch the file itself"
    return "", ""


def _only_file(path: Path, data: bytes, most: int) -> bytes:
    """The content of the one file in a zip archive."""
    with _zip(path, io.BytesIO(data)) as archive:
        members = [
            one
            for one in archive.infolist()
            if not one.is_dir() and not one.filename.startswith("__MACOSX/")
        ]
        if any(one.filename == "[Content_Types].xml" for one in members):
            raise DataError(f"{path} is an Excel workbook", hint="save its sheet as CSV")
        if any(one.filename.endswith("/data.pkl") for one in members):
            raise DataError(f"{path} is a file of torch.save, a pickle", hint=_EXPORT)
        if len(members) != 1:
            some = ", ".join(repr(one.filename) for one in members[:8])
            raise DataError(
                f"{path} is a zip archive of {len(members)} files"
                + (f": {some}{', ...' if len(members) > 8 else ''}" if members else ""),
                hint=_UNPACK,
            )
        most = min(most, available_memory() // COPIES)
        if members[0].file_size > most:
            raise DataError(f"{path} unpacks to more than {most:,} bytes")
        if members[0].flag_bits & 1:
            raise DataError(f"{path} is a zip archive with a password", hint=_UNPACK)
        try:
            return archive.read(members[0])
        except Exception as error:  # zipfile and its unpackers raise a dozen kinds
            raise DataError(f"{path} is not a readable zip archive: {error}") from None


def _zip(path: Path, source: Path | io.BytesIO) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(source)
    except Exception as error:  # zipfile raises a dozen kinds
        raise DataError(f"{path} is not a readable zip archive: {error}") from None
