"""Publishers' downloads: verified under a temporary name before they get their own."""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dgbench.datasets.catalogue import DatasetCard, FileRef, Form
from dgbench.datasets.sources.extract import extract_member
from dgbench.datasets.sources.hashing import check_file, file_sha256
from dgbench.datasets.sources.locate import download_dir
from dgbench.datasets.sources.trusted import pin
from dgbench.runtime.errors import DataError, MissingDataError, UnsupportedError, unknown_key

Progress = Callable[[str, int, int | None], None]
"""Called with the file, the bytes so far and the bytes in all (None if not announced)."""

_TIMEOUT_S = 60


def downloadable(card: DatasetCard) -> list[Form]:
    """The forms of a card whose files all have an address."""
    return [form for form in card.forms if all(ref.url for ref in form.files)]


def fetch(
    card: DatasetCard,
    *,
    form: str | None = None,
    trust: bool = False,
    progress: Progress | None = None,
) -> list[Path]:
    """Download the files of a form that are not here yet; return all paths.

    Args:
        card: the dataset.
        form: name of the form; by default the first that can be downloaded.
        trust: accept files whose hash is not on the card. What comes is written down, and must
            be the same the next time.
        progress: told about bytes as they come.

    Raises:
        UnsupportedError: no form can be downloaded.
        DataError: a file without a known hash and no `trust`, or one with the wrong content.
        MissingDataError: the publisher does not answer, or the disk cannot be written.
    """
    chosen = _choose(card, form)
    unknown = [r.path for r in chosen.files if not (r.sha256 or r.content_sha256)]
    if unknown and not trust:
        why = next((r.unhashed for r in chosen.files if r.unhashed), "")
        raise DataError(
            f"the card of '{card.name}' has no hash for {', '.join(unknown)}"
            + (f" ({why})" if why else "")
            + ", so a download could not be verified",
            hint="add --trust to accept what the publisher sends now and nothing else later; its "
            "counts are still checked",
        )
    folder = download_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        from filelock import FileLock

        with FileLock(folder / f".{card.name}.lock"):
            found = [_fetch_file(folder, ref, progress) for ref in chosen.files]
            for path, ref in zip(found, chosen.files, strict=True):
                if ref.path in unknown:
                    pin(ref.path, file_sha256(path), ref.url or "")
            return found
    except OSError as error:
        raise MissingDataError(
            f"'{card.name}' cannot be stored in {folder}: {error.strerror or error}",
            hint="set DGBENCH_CACHE to a folder with room to write",
        ) from None


def _choose(card: DatasetCard, name: str | None) -> Form:
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


def _fetch_file(folder: Path, ref: FileRef, progress: Progress | None) -> Path:
    target = folder / ref.path
    if target.is_file():
        check_file(target, ref)
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as scratch:
        got = _retrieve(ref, Path(scratch), progress)
        if ref.member is not None:
            member = Path(scratch) / "member"
            extract_member(got, ref.member, member, ref.max_bytes)
            got = member
        if target.suffix == ".gz" and not _gzipped(got):
            packed = Path(scratch) / "packed.gz"
            with (
                open(got, "rb") as plain,
                open(packed, "wb") as raw,
                gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as out,
            ):
                shutil.copyfileobj(plain, out)
            got = packed
        named = Path(scratch) / target.name  # .gz is told by the name
        os.replace(got, named)
        check_file(named, ref)
        os.replace(named, target)
    return target


def _retrieve(ref: FileRef, scratch: Path, progress: Progress | None) -> Path:
    import logging

    import pooch
    import requests

    pooch.get_logger().setLevel(logging.WARNING)

    def download(url: str, output: str | Path, _: Any) -> None:
        with requests.get(url, stream=True, timeout=_TIMEOUT_S) as answer:
            answer.raise_for_status()
            total = answer.headers.get("content-length")
            done = 0
            with open(output, "wb") as out:
                for part in answer.iter_content(1 << 18):
                    done += len(part)
                    if done > ref.max_bytes:
                        raise DataError(f"{url} sends more than {ref.max_bytes:,} bytes")
                    out.write(part)
                    if progress is not None:
                        progress(ref.path, done, int(total) if total else None)

    try:
        # The hash is checked by `check_file`, which also knows the hash of unpacked content.
        return Path(
            pooch.retrieve(
                ref.url, known_hash=None, fname="download", path=scratch, downloader=download
            )
        )
    except requests.RequestException as error:
        raise MissingDataError(
            f"{ref.url} cannot be fetched: {error}",
            hint="try later, or put the file into DGBENCH_DATA as " + ref.path,
        ) from None


def _gzipped(path: Path) -> bool:
    with open(path, "rb") as stream:
        return stream.read(2) == b"\x1f\x8b"
