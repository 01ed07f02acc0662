"""Dataset cards: what publishers and papers say of a dataset, as data (`cards/*.yaml`).

Cards of others are found beside dgbench's own, see `dgbench.datasets.card_places`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from types import MappingProxyType

import msgspec

from dgbench.datasets.card_fields import (
    Address,
    BundledFile,
    Counts,
    DatasetCard,
    DatasetVariant,
    Delimiter,
    FileRef,
    PaperUse,
    ReaderSpec,
    VertexSpec,
)
from dgbench.datasets.card_places import (
    DATASET_VARIABLE,
    CardPlace,
    given_card,
    own_places,
    plugin_places,
)
from dgbench.runtime.errors import DataError, unknown_key

__all__ = [
    "Address",
    "BundledFile",
    "Counts",
    "DatasetCard",
    "DatasetVariant",
    "Delimiter",
    "FileRef",
    "PaperUse",
    "ReaderSpec",
    "VertexSpec",
    "card",
    "card_problems",
    "cards",
    "load_cards",
    "offer_card",
    "plain_name",
]

CARDS = Path(__file__).parent / "cards"


class Catalogue(msgspec.Struct, frozen=True):
    """All cards that were found.

    Attributes:
        cards: by canonical name.
        index: canonical name by plain name or alias.
        conflicts: plain name -> the sentence that says which cards share it.
        problems: sentences on cards of others that are left out.
    """

    cards: Mapping[str, DatasetCard]
    index: dict[str, str]
    conflicts: dict[str, str]
    problems: tuple[str, ...]


def cards() -> Mapping[str, DatasetCard]:
    """All cards by canonical name: dgbench's own, then those of plugins and of card folders."""
    return _found().cards


def card_problems() -> tuple[str, ...]:
    """Sentences on cards of plugins and folders that cannot be used."""
    return _found().problems


def card(name: str) -> DatasetCard:
    """The card of a dataset, by its name or an alias; case, `_` and spaces do not matter.

    Raises:
        UnknownKeyError: no card has that name; the nearest names are suggested.
        DataError: two cards of others have it.
    """
    found = _found()
    plain = _plain(name)
    if plain in found.conflicts:
        raise DataError(found.conflicts[plain], hint="rename one of them, or remove it")
    key = found.index.get(plain)
    if key is None:
        error = unknown_key("dataset", name, found.cards)
        error.hint = "\n".join([error.hint, *found.problems])
        raise error
    return found.cards[key]


def offer_card(entry: DatasetCard) -> None:
    """Make a card known to this process and to those that it starts, before all others."""
    import os

    os.environ[DATASET_VARIABLE] = msgspec.json.encode(entry).decode()


def _found() -> Catalogue:
    return _catalogue(CARDS, (*plugin_places(), *own_places()), given_card())


@lru_cache(maxsize=4)
def _catalogue(own: Path, others: tuple[CardPlace, ...], given: str) -> Catalogue:
    found: dict[str, DatasetCard] = {}
    index: dict[str, str] = {}
    owners: dict[str, str] = {}
    for path in sorted(own.glob("*.yaml")):
        for entry in load_cards(path):
            for name in (entry.name, *entry.aliases):
                if index.setdefault(_plain(name), entry.name) != entry.name:
                    raise DataError(f"{path.name}: the name '{name}' is used by two cards")
            if entry.name in found:
                raise DataError(f"{path.name}: there are two cards '{entry.name}'")
            found[entry.name] = entry
    conflicts: dict[str, str] = {}
    problems: list[str] = []
    for place, entry in _entries_of(others, problems):
        names = [_plain(name) for name in (entry.name, *entry.aliases)]
        taken = next((name for name in names if name in index), None)
        if taken is None:
            found[entry.name] = entry
            index |= dict.fromkeys(names, entry.name)
            owners |= dict.fromkeys(names, str(place))
        elif taken in owners:
            sentence = f"two cards have the name '{taken}': one of {owners[taken]}, one of {place}"
            conflicts |= {n: sentence for n in names if n == taken or n not in index}
            problems.append(sentence)
        else:
            problems.append(
                f"the card '{entry.name}' of {place} is left out: dgbench has a dataset '{taken}'"
            )
    if given:
        entry = msgspec.json.decode(given, type=DatasetCard)
        found[entry.name] = entry
        index[_plain(entry.name)] = entry.name
        conflicts.pop(_plain(entry.name), None)
    return Catalogue(MappingProxyType(found), index, conflicts, tuple(problems))


def _entries_of(
    places: tuple[CardPlace, ...], problems: list[str]
) -> list[tuple[CardPlace, DatasetCard]]:
    """The cards of others; what is wrong with a file is added to `problems`."""
    found = []
    for place in places:
        try:
            found += [(place, entry) for entry in load_cards(place.path, own=False)]
        except (DataError, OSError) as error:
            problems.append(f"the cards of {place} are left out: {error}")
    return found


def load_cards(path: Path, *, own: bool = True) -> list[DatasetCard]:
    """Read a file of cards strictly.

    Args:
        path: a YAML list of cards.
        own: whether it is one of dgbench's. The cards of others may name files by an absolute
            path, or relative to the folder of the card file.

    Raises:
        DataError: with the place of an unknown key, or a path that leads elsewhere.
    """
    import yaml

    from dgbench.runtime.documents import load_yaml

    try:
        found = msgspec.convert(load_yaml(path.read_bytes()), list[DatasetCard])
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise DataError(f"{path.name} is not a valid list of dataset cards: {error}") from None
    for entry in found:
        if not _plain(entry.name):
            raise DataError(f"{path.name}: a card has no name")
        if not own and not NAME.fullmatch(entry.name):
            raise DataError(f"{path.name}: the name '{entry.name}' of a card is not {NAME_RULE}")
        refs = [*entry.beside, *(ref for form in entry.forms for ref in form.files)]
        paths = [ref.path for ref in refs if own or ref.url is not None or not _absolute(ref)]
        for path_text in paths + [ref.bundled.path for ref in refs if ref.bundled]:
            place = PurePosixPath(path_text)
            if place.is_absolute() or ".." in place.parts or not place.name:
                raise DataError(
                    f"{path.name}: '{path_text}' of '{entry.name}' is no path in a folder"
                )
    return found if own else [_beside_card(entry, path.parent) for entry in found]


NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
NAME_RULE = "made of lower-case letters, digits, '-' and '.'"


def plain_name(text: str) -> str:
    """A card's name made of any text; "" where nothing of it can be kept."""
    return re.sub(r"[^a-z0-9.-]+", "-", text.strip().lower()).strip("-.")


def _absolute(ref: FileRef) -> bool:
    return Path(ref.path).is_absolute()


def _beside_card(entry: DatasetCard, folder: Path) -> DatasetCard:
    """The card with absolute paths for files that lie in the folder of the card file."""
    replace = msgspec.structs.replace
    forms = []
    for form in entry.forms:
        files = [
            replace(ref, path=str((folder / ref.path).resolve()))
            if (folder / ref.path).is_file()
            else ref
            for ref in form.files
        ]
        forms.append(replace(form, files=tuple(files)))
    return replace(entry, forms=tuple(forms))


def _plain(name: str) -> str:
    return re.sub(r"[\s_]+", "-", str(name).strip().lower())
