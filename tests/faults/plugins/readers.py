"""Cells that read a dataset, and cells that do harm to it. The files are those of `tiny`."""

from __future__ import annotations

import gzip
import os
import shutil
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dgbench import datasets
from dgbench.datasets import catalogue, store
from dgbench.datasets.events import EventStream
from dgbench.systems.base import Cell, Measurement, RunContext
from tests.observed import NUMBER, told

ROWS = [f"{3 * i % 17},{5 * i % 13},{i}" for i in range(20_000)]
"""src,dst,time: enough for several pages of memory."""

CARD = """
- name: tiny
  title: Tiny
  about: Edges by a rule.
  snapshots: 3
  published: {{nodes: 17, edges: {edges}}}
  forms:
    - name: held
      files:
        - {{path: tiny.csv.gz, sha256: {sha256}, bytes: {size}}}
      reader: {{format: table, columns: [src, dst, t]}}
      counts: {{edges: {edges}}}
"""


def source() -> Path:
    """The dataset's file."""
    return Path(os.environ["DGBENCH_DATA"]) / "tiny.csv.gz"


def prepared() -> Path:
    """The folder of its prepared form."""
    return next((store.cache_root() / "prepared").glob("tiny-*"))


def make(folder: Path) -> None:
    """Write data and card, and let this process and all its forks use them."""
    import hashlib

    import pyarrow.csv  # noqa: F401  once, and not in every cell

    for name in ("data", "cards"):
        (folder / name).mkdir()
    packed = gzip.compress("".join(f"{row}\n" for row in ROWS).encode(), mtime=0)
    (folder / "data" / "tiny.csv.gz").write_bytes(packed)
    facts = {"edges": len(ROWS), "size": len(packed), "sha256": hashlib.sha256(packed).hexdigest()}
    (folder / "cards" / "tiny.yaml").write_text(CARD.format(**facts))
    os.environ["DGBENCH_DATA"] = str(folder / "data")
    os.environ["DGBENCH_CACHE"] = str(folder / "cache")
    catalogue.CARDS = folder / "cards"
    catalogue._catalogue.cache_clear()


def _told(events: EventStream) -> Measurement:
    crc = zlib.crc32(events.src.numpy().tobytes() + events.dst.numpy().tobytes())
    return told(
        {NUMBER: float(crc), "edges": len(events)},
        data={"dataset": "tiny", "twin": False},
    )


def read(cell: Cell, context: RunContext) -> Measurement:
    """Open the data and say what was in it."""
    return _told(datasets.open_events("tiny", source="real"))


def read_what_is_there(cell: Cell, context: RunContext) -> Measurement:
    """As a cell with `source="auto"` does where there is a twin."""
    twin = not source().exists()
    return told(samples=[1e-5], data={"dataset": "tiny", "twin": twin})


def break_source(cell: Cell, context: RunContext) -> Measurement:
    """Do `cell.params["harm"]` of `SOURCE` to the dataset's file."""
    SOURCE[str(cell.params["harm"])](source())
    return Measurement()


def mend_source(cell: Cell, context: RunContext) -> Measurement:
    """Put the file back as it was."""
    path = source()
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.write_bytes(gzip.compress("".join(f"{row}\n" for row in ROWS).encode(), mtime=0))
    return Measurement()


def break_prepared(cell: Cell, context: RunContext) -> Measurement:
    """Do `cell.params["harm"]` of `PREPARED` to the prepared form."""
    PREPARED[str(cell.params["harm"])](prepared())
    return Measurement()


def mutate(cell: Cell, context: RunContext) -> Measurement:
    """Do `cell.params["harm"]` of `OPENED` to data that is open."""
    events = datasets.open_events("tiny", source="real")
    OPENED[str(cell.params["harm"])](events)
    return told(samples=[1e-5])


def _bytes(path: Path, change: Callable[[bytearray], bytes], *, hide: bool = False) -> None:
    """Write a file anew in place; `hide` sets the time of writing back."""
    before = path.stat()
    data = change(bytearray(path.read_bytes()))
    with open(path, "r+b") as file:
        file.write(data)
        file.truncate()
    if hide:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _flip(data: bytearray) -> bytes:
    data[len(data) // 2] ^= 0x10
    return data


def _replace(path: Path, data: bytes) -> None:
    """Another file under the same name, as old as the one before."""
    before = path.stat()
    other = path.with_name("other")
    other.write_bytes(data)
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.replace(other, path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


SOURCE: dict[str, Callable[[Path], None]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "cut off": lambda path: _bytes(path, lambda data: data[: len(data) // 2]),
    "altered": lambda path: _bytes(path, _flip),
    "altered, its time set back": lambda path: _bytes(path, _flip, hide=True),
    "replaced": lambda path: _replace(path, gzip.compress(b"1,2,3\n" * 400)),
    "replaced by one of its size": lambda path: _replace(path, bytes(path.stat().st_size)),
    "a folder": _folder,
    "a broken link": lambda path: (path.unlink(), path.symlink_to("/nowhere/at/all"))[0],
    "more behind its end": lambda path: _bytes(path, lambda data: data + b"1,2,3\n"),
}
"""Changes of the publisher's file by name."""

PREPARED: dict[str, Callable[[Path], object]] = {
    "no data": lambda at: (at / "data.bin").unlink(),
    "data cut off": lambda at: _bytes(at / "data.bin", lambda data: data[:-100]),
    "data longer": lambda at: _bytes(at / "data.bin", lambda data: data + bytes(64)),
    "data altered": lambda at: _bytes(at / "data.bin", _flip),
    "data altered, its time set back": lambda at: _bytes(at / "data.bin", _flip, hide=True),
    "data zeroed": lambda at: _bytes(at / "data.bin", lambda data: bytes(len(data)), hide=True),
    "data replaced": lambda at: _replace(
        at / "data.bin", bytes(_flip(bytearray((at / "data.bin").read_bytes())))
    ),
    "data a folder": lambda at: _folder(at / "data.bin"),
    "no index": lambda at: (at / "meta.json").unlink(),
    "index cut off": lambda at: _bytes(at / "meta.json", lambda data: data[:40]),
    "index altered": lambda at: _bytes(at / "meta.json", _flip),
    "index of nulls": lambda at: _bytes(at / "meta.json", lambda data: b"null"),
    "index nested deeply": lambda at: (at / "meta.json").write_text("[" * 100_000),
    "all of it gone": shutil.rmtree,
    "a file in its place": lambda at: (shutil.rmtree(at), at.write_bytes(b"x")),
}
"""Changes of the prepared form by name."""

HARMLESS: dict[str, Callable[[Path], object]] = {
    "nothing seen": lambda at: (at / "seen.json").unlink(),
    "something else seen": lambda at: (at / "seen.json").write_text("[1,2,3,4]"),
    "nonsense seen": lambda at: (at / "seen.json").write_bytes(b"\xff\x00"),
    "copied to another place": lambda at: (
        shutil.copytree(at, at.with_name("copy")),
        shutil.rmtree(at),
        os.rename(at.with_name("copy"), at),
    ),
    "touched": lambda at: os.utime(at / "data.bin"),
}
"""Changes that leave every byte as it was: nothing is prepared again."""
PREPARED |= HARMLESS


def _in_a_thread(events: EventStream) -> None:
    thread = threading.Thread(target=lambda: events.dst.add_(1))
    thread.start()
    thread.join()


def _through_memory(events: EventStream) -> None:
    import ctypes

    ctypes.memset(events.src.data_ptr(), 7, 64)


def _cut_while_open(events: EventStream) -> None:
    _bytes(prepared() / "data.bin", lambda data: b"")
    time.sleep(0.01)
    events.src.sum()


OPENED: dict[str, Callable[[EventStream], object]] = {
    "in place by torch": lambda events: events.src.zero_(),
    "one element": lambda events: events.t.__setitem__(3, -1.0),
    "by numpy": lambda events: events.src.numpy().sort(),
    "through a view": lambda events: events.src[5:500].view(-1, 5).mul_(3),
    "in a thread": _in_a_thread,
    "through raw memory": _through_memory,
    "on the disk": lambda events: _bytes(prepared() / "data.bin", _flip, hide=True),
    "cut while open": _cut_while_open,
    "by np.copyto": lambda events: np.copyto(events.dst.numpy(), 1),
}
"""Changes that a plugin may make to data that it has open."""
