"""Sites appear whole: built beside, then put in place; only what a build wrote is ever removed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from dgbench.harness.signals import signals_unwind
from dgbench.harness.store.files import cannot_write, new_folder
from dgbench.runtime.errors import StoreError

MANIFEST: Final = "site.json"
"""Names every file of a site, the runs it was made from and its counts."""


@contextmanager
def beside(target: Path) -> Iterator[Path]:
    """An empty folder next to `target`, on the same disk; removed at the end if it is still there.

    What a build that was killed left there is removed, too. SIGTERM and SIGHUP end the build as
    Ctrl-C does, so that they leave nothing.

    Raises:
        StoreError: the folder cannot be written.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(signals_unwind())
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            folder = stack.enter_context(new_folder(target.parent, f".{target.name}-"))
            folder.chmod(0o755)
        except OSError as error:
            raise cannot_write(target, error) from error
        yield folder


def put(folder: Path, name: str, data: bytes) -> None:
    """Write a file of a folder that is being built."""
    path = folder / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise cannot_write(path, error) from error


def files_of(folder: Path) -> list[str]:
    """Names of all files below a folder, sorted."""
    found = (p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir())
    return sorted(found)


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Read site.json; None where there is none. Raises StoreError for a damaged one."""
    try:
        found = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=dict[str, Any])
        for name in found["files"]:
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise ValueError(f"it names '{name}', which lies outside the folder")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"{folder / MANIFEST} cannot be read: {error}",
            hint="if the folder holds an old site only, remove it and build again",
        ) from error
    return found


def refuse_foreign(target: Path) -> None:
    """Raises StoreError where `target` holds files that no build of a site wrote."""
    if not target.exists():
        return
    if not target.is_dir():
        raise StoreError(f"{target} is a file, a site needs a folder")
    there = files_of(target)
    manifest = read_manifest(target)
    written = {MANIFEST, *(manifest["files"] if manifest else ())}
    foreign = [name for name in there if name not in written]
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise StoreError(
            f"{target} holds '{foreign[0]}'{more}, which no earlier report wrote",
            hint="name another folder with --out, or move these files away",
        )


def swap(built: Path, target: Path) -> None:
    """Put a built folder in the place of `target`; what was there goes."""
    try:
        with new_folder(target.parent, f".{target.name}-old-") as old:
            if target.exists():
                os.rename(target, old / target.name)
            try:
                os.rename(built, target)
            except BaseException:  # Ctrl-C, too, must not take the old one along
                if (old / target.name).exists() and not target.exists():
                    os.rename(old / target.name, target)
                raise
    except OSError as error:
        raise cannot_write(target, error) from error


def lay_over(built: Path, target: Path, stale: Sequence[str]) -> None:
    """Move all files of a built folder into `target`, then remove those of an earlier build."""
    try:
        for name in files_of(built):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(built / name, target / name)
        for name in stale:
            (target / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # folders go when they are empty
                for parent in (target / name).parents:
                    if parent == target:
                        break
                    parent.rmdir()
    except OSError as error:
        raise cannot_write(target, error) from error
