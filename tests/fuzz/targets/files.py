"""Archives that publishers packed."""

from __future__ import annotations

import io
import os
import shutil
import stat
import tarfile
import zipfile

from dgbench.datasets.sources.extract import extract_member
from tests.fuzz.target import sane, scratch, target

CAP = 4096


def zips() -> list[bytes]:
    """Archives with what a wicked publisher may put into them."""
    found = []
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        for names in (("x.csv",), ("in/x.csv", "y"), ("../x.csv",), ("/x.csv", "x.csv")):
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
