"""Where cards of others lie: installed packages, the folders in `DGBENCH_CARDS`, the user's folder.

A package names the folder of its card files by an entry point of the group `dgbench.datasets`
(`my-data = "my_package.cards"`). Cards are data: the package is never imported for them.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

CARDS_GROUP: Final = "dgbench.datasets"
CARDS_VARIABLE: Final = "DGBENCH_CARDS"
DATASET_VARIABLE: Final = "DGBENCH_DATASET"
"""The card of `--dataset` as JSON, for the processes of a run."""


class CardPlace(NamedTuple):
    """A file of cards.

    Attributes:
        owner: the plugin it belongs to, or "" for a file of a folder.
        path: the file.
        changed: its time of change in nanoseconds, so that an edited file is read again.
    """

    owner: str
    path: Path
    changed: int

    def __str__(self) -> str:
        return f"{self.owner} ({self.path})" if self.owner else str(self.path)


def own_folder() -> Path:
    """Where `dgbench data add` puts cards: the first of `DGBENCH_CARDS`, else the user's folder."""
    for entry in _named():
        if entry.suffix not in (".yaml", ".yml"):
            return entry
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "dgbench" / "cards"


def own_places() -> tuple[CardPlace, ...]:
    """The card files of `DGBENCH_CARDS`, or of the user's folder where that is not set."""
    return tuple(one for entry in _named() or [own_folder()] for one in _files("", entry))


def plugin_places() -> tuple[CardPlace, ...]:
    """The card files of installed packages."""
    return tuple(one for owner, folder in _plugins() for one in _files(owner, folder))


def given_card() -> str:
    """The card that a run was given, as JSON, or ""."""
    return os.environ.get(DATASET_VARIABLE, "")


def _named() -> list[Path]:
    text = os.environ.get(CARDS_VARIABLE, "")
    return [Path(part).expanduser() for part in text.split(os.pathsep) if part]


@cache
def _plugins() -> tuple[tuple[str, Path], ...]:
    """Owner and folder of each entry point whose package is here."""
    found = []
    for point in sorted(entry_points(group=CARDS_GROUP), key=lambda p: p.name):
        top, *rest = point.value.partition(":")[0].split(".")
        try:
            spec = find_spec(top)  # of a top-level package: nothing is imported
        except (ImportError, ValueError):
            spec = None
        owner = point.dist.name if point.dist else point.name
        for folder in (spec.submodule_search_locations if spec else None) or ():
            found.append((f"the package {owner}", Path(folder, *rest)))
    return tuple(found)


def _files(owner: str, entry: Path) -> list[CardPlace]:
    """The card files of a folder, or the file itself."""
    paths = [entry]
    if entry.is_dir():
        paths = sorted(p for p in entry.iterdir() if p.suffix in (".yaml", ".yml"))
    found = []
    for path in paths:
        try:
            found.append(CardPlace(owner, path, path.stat().st_mtime_ns))
        except OSError:  # a folder that is not made yet has no cards
            continue
    return found
