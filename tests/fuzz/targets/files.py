"""Archives, packed files, the prepared form and the small notes beside downloads."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import shutil
import stat
import tarfile
import zipfile
from pathlib import Path

import torch

from dgbench.datasets import store
from dgbench.datasets.readers.raw import packing, read_bytes
from dgbench.datasets.sources.extract import extract_member
from tests.fuzz.target import sane, scratch, target

CAP = 4096


def zips() -> list[bytes]:
    """Archives with what a wicked publisher may put into them."""
    found = []
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        for names in (("x.csv",), ("in/x.csv", "y"), ("../x.csv",), ("/x.csv", "x.csv"),
                      ("C:x.csv",), ("x.csv\x00.exe",), ("X\u202evsc.csv", "x.csv")):  # fmt: skip
            out = io.BytesIO()
            with zipfile.ZipFile(out, "w", method) as archive:
                for name in names:
                    archive.writestr(name, b"1,2,3\n")
            found.append(out.getvalue())
    for size, attributes in ((CAP + 1, 0o644), (10, stat.S_IFLNK | 0o777)):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            info = zipfile.ZipInfo("x.csv")
            info.external_attr = attributes << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, b"/etc/passwd"[:size].ljust(size, b"\0"))
        found.append(out.getvalue())
    return found


def tars() -> list[bytes]:
    """The same for tar, packed and plain, with links, devices and large heads."""
    found = []
    kinds = (tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE,
             tarfile.DIRTYPE, tarfile.GNUTYPE_SPARSE)  # fmt: skip
    for mode in ("w", "w:gz", "w:bz2", "w:xz"):
        for kind in kinds:
            for link in ("x.csv", "/etc/passwd", "../up"):
                out = io.BytesIO()
                with tarfile.open(fileobj=out, mode=mode) as archive:
                    put(archive, "in/x.csv", b"1,2,3\n")
                    put(archive, "x.csv", b"1,2\n", kind, link)
                found.append(out.getvalue())
                if kind in (tarfile.REGTYPE, tarfile.DIRTYPE):
                    break
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode=mode, format=tarfile.PAX_FORMAT) as archive:
            info = tarfile.TarInfo("x" * 300 + ".csv")
            info.pax_headers = {"comment": "c" * 500, "size": "7", "path": "../x.csv"}
            archive.addfile(info, io.BytesIO())
            put(archive, "x.csv", bytes(CAP + 1))
        found.append(out.getvalue())
    return found


def put(archive: tarfile.TarFile, name: str, data: bytes, kind=tarfile.REGTYPE, link="") -> None:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(data)
    archive.addfile(info, io.BytesIO(data))


def unpack(data: bytes, suffix: str) -> None:
    """Nothing but the one file appears, and nothing else changes."""
    folder = scratch(f"archive-{suffix}")
    inside = folder / "inside"
    shutil.rmtree(inside, ignore_errors=True)
    inside.mkdir()
    archive = inside / f"a.{suffix}"
    archive.write_bytes(data)
    try:
        extract_member(archive, "x.csv", inside / "out", CAP)
    except Exception:
        sane(sorted(os.listdir(inside)) == [archive.name], "something was left behind")
        raise
    finally:
        sane(os.listdir(folder) == ["inside"], "something was written outside")
    sane(sorted(os.listdir(inside)) == sorted([archive.name, "out"]), "further files appeared")
    facts = os.lstat(inside / "out")
    sane(stat.S_ISREG(facts.st_mode) and facts.st_size <= CAP, "no plain file of allowed size")
    sane(archive.read_bytes() == data, "the archive changed")


@target("archive-zip", seeds=zips, tokens=(b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"../"))
def archive_zip(data: bytes) -> None:
    """Zip archives."""
    unpack(data, "zip")


@target("archive-tar", seeds=tars, tokens=(b"ustar\x0000", b"ustar  \x00", b"../", b"/"))
def archive_tar(data: bytes) -> None:
    """Tar archives, packed or plain."""
    unpack(data, "tar")


@target("packed", seeds=[gzip.compress(b"1,2,3\n" * 20, mtime=0),
                         gzip.compress(b"a", mtime=0) + gzip.compress(b"b", mtime=0),
                         bz2.compress(b"1,2,3\n" * 20)])  # fmt: skip
def packed(data: bytes) -> None:
    """A file that may be packed: the bytes that were packed, its own where not, or refused."""
    unpackers = {"gzip": gzip.decompress, "bzip2": bz2.decompress, "xz": lzma.decompress}
    packed = packing(data[:8])
    path = scratch("packed") / "x.csv.gz"
    path.write_bytes(data)
    found = read_bytes(path)
    wanted = unpackers[packed[0]](data) if packed else data
    sane(found == wanted, "other bytes came out")


FIELDS = {"num_nodes": 3, "num_src": None, "origin": ["tiny", "real", 1.0, 1, ["a note"]]}
ARRAYS = {
    "src": torch.tensor([0, 1, 2]),
    "t": torch.tensor([0.5, 1.5, 2.5], dtype=torch.float64),
    "feat": torch.ones(3, 2),
    "none": torch.zeros(0, 4, dtype=torch.int32),
}


def made() -> Path:
    """A whole prepared directory."""
    folder = scratch("prepared") / "made"
    if not folder.exists():
        store.save(folder, store.Pack(FIELDS, ARRAYS))
    return folder


def prepared_seeds() -> list[bytes]:
    folder = made()
    return [b"\n=====\n".join((folder / n).read_bytes() for n in ("meta.json", "data.bin"))]


@target("prepared", seeds=prepared_seeds)
def prepared(data: bytes) -> None:
    """The prepared form: what was stored, or made again; and `verify` sees every changed byte."""
    meta, _, arrays = data.partition(b"\n=====\n")
    folder = scratch("prepared") / "damaged"
    folder.mkdir(exist_ok=True)
    (folder / "meta.json").write_bytes(meta)
    (folder / "data.bin").write_bytes(arrays)
    whole = (made() / "data.bin").read_bytes()
    fault = store.verify(folder)
    pack = store.load(folder)
    sane(fault or pack is not None, "verified, and cannot be loaded")
    if pack is None:
        return
    sane(bool(fault) == (arrays != whole), f"verify says {fault!r}")
    sane(pack.fields == FIELDS and pack.arrays.keys() == ARRAYS.keys(), "other fields")
    for name, value in pack.arrays.items():
        sane(value.dtype == ARRAYS[name].dtype and value.shape == ARRAYS[name].shape, name)
        sane(fault or torch.equal(value, ARRAYS[name]), f"{name} changed")
