"""Publishers' downloads: verified under a temporary name before they get their own."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dgbench.datasets.catalogue import DatasetCard, DatasetVariant, FileRef
from dgbench.datasets.sources.extract import extract_member
from dgbench.datasets.sources.hashing import check_file, file_sha256
from dgbench.datasets.sources.locate import download_dir
from dgbench.datasets.sources.transfer import TransferLimits, transfer
from dgbench.datasets.sources.trusted import pin
from dgbench.runtime.errors import DataError, MissingDataError, UnsupportedError, unknown_key

Progress = Callable[[str, int, int | None], None]
"""Called with the file, the bytes so far and the bytes in all (None if not announced)."""

LOCK_TIMEOUT_S: Final = 3600.0
_ALLOWING: Final = ("", "0", "false", "no", "off")


def offline() -> bool:
    """Return True if `DGBENCH_OFFLINE` forbids downloads: any value but 0, false, no, off does."""
    return os.environ.get("DGBENCH_OFFLINE", "").strip().lower() not in _ALLOWING


def downloadable(card: DatasetCard) -> list[DatasetVariant]:
    """The forms of a card whose files all have an address."""
    return [form for form in card.forms if all(ref.url for ref in form.files)]


def fetch(
    card: DatasetCard,
    *,
    form: str | None = None,
    trust: bool = False,
    progress: Progress | None = None,
    limits: TransferLimits | None = None,
) -> list[Path]:
    """Download the files of a form that are not here yet; return all paths.

    Args:
        card: the dataset.
        form: name of the form; by default the first that can be downloaded.
        trust: accept files whose hash is not on the card. What comes is written down, and must
            be the same the next time.
        progress: told about bytes as they come.
        limits: of each transfer, None for patient ones without a limit of size but the card's.

    Raises:
        UnsupportedError: no form can be downloaded.
        DataError: a file without a known hash and no `trust`, or one with the wrong content.
        MissingDataError: `DGBENCH_OFFLINE` forbids it, the publisher does not answer, or the disk
            cannot be written.
    """
    chosen = _choose(card, form)
    if offline():
        raise MissingDataError(
            f"'{card.name}' is not fetched: DGBENCH_OFFLINE is set", hint="unset it to fetch data"
        )
    limits = limits or TransferLimits()
    unknown = [r.path for r in chosen.files if not r.hashed]
    if unknown and not trust:
        why = next((r.unhashed for r in chosen.files if r.unhashed), "")
        raise DataError(
            f"the card of '{card.name}' has no hash for {', '.join(unknown)}"
            + (f" ({why})" if why else "")
            + ", so a download could not be verified",
            hint="add --trust to accept what the publisher sends now and nothing else later; its "
            "counts are still checked",
        )
    from filelock import FileLock, Timeout

    folder = download_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Whoever comes second waits, and then finds the files.
        with FileLock(folder / f".{card.name}.lock", timeout=limits.total_s or LOCK_TIMEOUT_S):
            for stale in folder.glob(f".fetch-{card.name}.*"):  # of a process that died
                shutil.rmtree(stale, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=f".fetch-{card.name}.", dir=folder) as scratch:
                found = [
                    _fetch_file(folder, ref, Path(scratch), progress, limits)
                    for ref in chosen.files
                ]
            for path, ref in zip(found, chosen.files, strict=True):
                if ref.path in unknown:
                    pin(ref.path, file_sha256(path), ref.url or "")
            return found
    except Timeout:
        raise MissingDataError(
            f"another process has been fetching '{card.name}' for too long",
            hint=f"if none is running, remove {folder}/.{card.name}.lock",
        ) from None
    except OSError as error:
        raise MissingDataError(
            f"'{card.name}' cannot be stored in {folder}: {error.strerror or error}",
            hint="set DGBENCH_CACHE to a folder with room to write",
        ) from None


def _choose(card: DatasetCard, name: str | None) -> DatasetVariant:
    forms = {form.name: form for form in downloadable(card)}
    if not forms:
        where = "; ".join(a.url for a in card.addresses) or "no address is known"
        raise UnsupportedError(
            f"'{card.name}' cannot be downloaded by dgbench: {where}",
            hint="use its synthetic twin, or put the files on the card into DGBENCH_DATA",
        )
    if name is None:
        return next(iter(forms.values()))
    if name not in forms:
        raise unknown_key("form", name, forms, of=f"'{card.name}'")
    return forms[name]


def _fetch_file(
    folder: Path, ref: FileRef, scratch: Path, progress: Progress | None, limits: TransferLimits
) -> Path:
    target = folder / ref.path
    if target.is_file():
        check_file(target, ref)
        return target

    def told(done: int, total: int | None) -> None:
        free = shutil.disk_usage(scratch).free
        if total is not None and free < total - done:
            raise OSError(errno.ENOSPC, f"{total:,} bytes are needed, {free:,} are free")
        if progress is not None:
            progress(ref.path, done, total)

    got = scratch / "download"
    transfer(ref.url or "", got, ref.max_bytes, limits, told)
    if ref.member is not None:
        member = scratch / "member"
        extract_member(got, ref.member, member, ref.max_bytes)
        got = member
    if target.suffix == ".gz" and not _gzipped(got):
        packed = scratch / "packed.gz"
        with (
            open(got, "rb") as plain,
            open(packed, "wb") as raw,
            gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as out,
        ):
            shutil.copyfileobj(plain, out)
        got = packed
    named = scratch / target.name  # .gz is told by the name
    os.replace(got, named)
    check_file(named, ref)
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(named, target)
    return target


def _gzipped(path: Path) -> bool:
    with open(path, "rb") as stream:
        return stream.read(2) == b"\x1f\x8b"
