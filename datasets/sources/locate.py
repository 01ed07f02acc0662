"""Finding the files of a dataset on this machine.

Three places are looked at, file by file: the folder in `DGBENCH_DATA`, because its owner put the
files there to be used; then what was downloaded, because somebody asked for it; then the copies
that dgbench carries, which are always there. All three must pass the same hashes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dgbench.datasets.catalogue import DatasetCard, DatasetVariant
from dgbench.datasets.sources.hashing import check_file
from dgbench.datasets.store import cache_root
from dgbench.runtime.errors import InvalidInputError, MissingDataError

BUNDLED: Final = Path(__file__).parents[1] / "bundled"
"""Copies of datasets whose licence lets dgbench carry them, each folder with LICENSE and SOURCE."""


@dataclass(frozen=True, slots=True)
class LocalVariant:
    """A form whose files are all here.

    Attributes:
        form: the form.
        paths: its files, in the order of the form.
    """

    form: DatasetVariant
    paths: tuple[Path, ...]

    def hashes(self) -> list[str]:
        """sha256 of each file, checked against the card (DataError)."""
        return [check_file(p, ref) for p, ref in zip(self.paths, self.form.files, strict=True)]

    @property
    def bundled(self) -> bool:
        """True if any of its files is a copy shipped with dgbench."""
        return any(path.is_relative_to(BUNDLED) for path in self.paths)

    @property
    def downloaded(self) -> bool:
        """True if any of its files was downloaded by dgbench."""
        return any(path.is_relative_to(download_dir()) for path in self.paths)


def data_dir() -> Path | None:
    """The folder named by `DGBENCH_DATA`, or None. InvalidInputError if it is not a folder."""
    named = os.environ.get("DGBENCH_DATA")
    if not named:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise InvalidInputError(
            f"DGBENCH_DATA names '{named}', which is not a folder",
            hint="unset it, or point it at a folder laid out like the `path`s on the cards",
        )
    return folder


def download_dir() -> Path:
    """Where `fetch` puts files: `downloads` in the cache folder."""
    return cache_root() / "downloads"


def find_form(card: DatasetCard) -> LocalVariant | None:
    """The first form of a card whose files are all in `DGBENCH_DATA` or downloaded, else the first
    whose files are there or bundled.

    A user's file of another form (with features, say) therefore comes before a bundled copy.
    """
    folders = [f for f in (data_dir(), download_dir()) if f is not None]
    return _find(card, folders, bundled=False) or _find(card, folders, bundled=True)


def _find(card: DatasetCard, folders: list[Path], *, bundled: bool) -> LocalVariant | None:
    for form in card.forms:
        paths = []
        for ref in form.files:
            places = [os.path.join(folder, ref.path) for folder in folders]
            if bundled and ref.bundled is not None:
                places.append(os.path.join(BUNDLED, ref.bundled.path))
            found = next((place for place in places if os.path.isfile(place)), None)
            if found is None:
                break
            paths.append(Path(found))
        else:
            return LocalVariant(form, tuple(paths))
    return None


def missing(card: DatasetCard, twin: bool) -> MissingDataError:
    """The error for a dataset that is not here, with the ways out."""
    own = [ref.path for form in card.forms for ref in form.files if os.path.isabs(ref.path)]
    if own:
        gone = next((path for path in own if not os.path.isfile(path)), own[0])
        return MissingDataError(
            f"the file of '{card.name}' is not there any more: {gone}",
            hint=f"put it back, or say where it is now: dgbench data add FILE --name {card.name} "
            f"--replace\nor remove its card: dgbench data forget {card.name}",
        )
    folder = os.environ.get("DGBENCH_DATA")
    where = f"not in DGBENCH_DATA ({folder})" if folder else "DGBENCH_DATA is not set"
    ways = []
    wanted = ", ".join(ref.path for ref in card.forms[0].files) if card.forms else ""
    if wanted:
        ways.append(f"set DGBENCH_DATA to a folder that holds {wanted}")
    if any(all(ref.url for ref in form.files) for form in card.forms):
        ways.append(f"run `dgbench data fetch {card.name}`")
    if twin:
        ways.append("use the synthetic twin: source='twin' (`--source twin`)")
    if card.addresses and not card.forms:
        ways.append(f"its publisher: {card.addresses[0].url} (no reader for it here)")
    return MissingDataError(
        f"the real data of '{card.name}' is not here: {where}, and nothing was downloaded",
        hint="\n".join(ways),
    )
