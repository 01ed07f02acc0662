"""A cache of its own for every test, and a tiny dataset that a test can break."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from pathlib import Path

import pytest
import yaml

from dgbench.datasets import catalogue
from dgbench.datasets.sources import find_form, hashing

OWN, load_cards = catalogue.CARDS, catalogue.load_cards
own_cards = cache(load_cards)


def loaded(path, *, own=True):
    """Cards of a file; those of dgbench are parsed once, as each card that a test offers has all
    others read again."""
    return own_cards(path) if path.parent == OWN else load_cards(path, own=own)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """Nothing is read from or written to the user's cache and folder of cards."""
    monkeypatch.setattr(catalogue, "load_cards", loaded)
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("DGBENCH_CACHE", str(folder))
    monkeypatch.setenv("DGBENCH_CARDS", str(folder / "cards"))  # no card of the user's
    monkeypatch.setattr(hashing, "_MEMORY", {})
    return folder


@pytest.fixture
def held_data():
    """Names of the datasets whose real data is here, those that dgbench carries among them."""
    return [name for name, card in catalogue.cards().items() if find_form(card) is not None]


class Tiny:
    """A dataset `tiny` with its card, in a folder of its own."""

    ROWS = ("5,9,1,10", "7,9,2,20", "5,5,3,20", "9,7,-4,35", "5,9,1,40")
    """src,dst,weight,time: three vertices, one self edge, one repeated pair."""

    def __init__(self, folder: Path) -> None:
        self.data, self.cards = folder / "data", folder / "cards"
        self.data.mkdir()
        self.cards.mkdir()
        self.file = self.data / "tiny" / "tiny.csv.gz"
        self.file.parent.mkdir()
        self.card = {"name": "tiny", "title": "Tiny", "about": "Five events.", "snapshots": 3,
                     "aliases": ["Wee_One"], "published": {"nodes": 3, "edges": 6}}  # fmt: skip
        self.reader = {"format": "table", "columns": ["src", "dst", "weight", "t"]}
        self.counts = {"nodes": 3, "edges": 5, "pairs": 4, "self_edges": 1, "t_last": 40}
        self.ref = {"path": "tiny/tiny.csv.gz"}
        self.write([*self.ROWS])

    def write(self, rows: list[str], *, hashed: bool = True) -> None:
        """Write the file and, unless told not to, its hash on the card."""
        self.put(gzip.compress("".join(f"{row}\n" for row in rows).encode(), mtime=0), hashed)

    def put(self, data: bytes, hashed: bool = True) -> None:
        """Write raw bytes as the file."""
        self.file.write_bytes(data)
        if hashed:
            self.ref |= {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        self.save()

    def save(self, **form) -> None:
        """Write the card file and forget the cards that were read before."""
        own = {"name": "held", "files": [self.ref], "reader": self.reader, "counts": self.counts}
        text = yaml.safe_dump([{**self.card, "forms": [own | form]}])
        (self.cards / "tiny.yaml").write_text(text)
        catalogue._catalogue.cache_clear()


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """The tiny dataset as the only card, held in DGBENCH_DATA."""
    made = Tiny(tmp_path)
    monkeypatch.setattr(catalogue, "CARDS", made.cards)
    monkeypatch.setenv("DGBENCH_DATA", str(made.data))
    yield made
    catalogue._catalogue.cache_clear()


@pytest.fixture(autouse=True)
def _real_cards_after():
    yield
    catalogue._catalogue.cache_clear()
