"""The copies of datasets that dgbench carries."""

import bz2
import gzip
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from dgbench import datasets
from dgbench.datasets import SnapshotSpec, open_events, open_snapshots
from dgbench.datasets.readers.raw import read_bytes
from dgbench.datasets.sources import check_file, find_form
from dgbench.datasets.sources.hashing import content_sha256
from dgbench.datasets.sources.locate import BUNDLED, download_dir
from dgbench.datasets.verifying import verify_dataset
from dgbench.runtime.errors import DataError

FILES = {
    ref.bundled.path: (card, ref)
    for card in datasets.cards().values()
    for form in card.forms
    for ref in form.files
    if ref.bundled
}
LICENCES = {
    "MIT": "MIT License",
    "Apache-2.0": "Apache License",
    "CC BY-SA 3.0": "Attribution-ShareAlike 3.0 Unported",
    "public domain": "work of the United States government",
}
NAMES = sorted({card.name for card, _ in FILES.values()})


@pytest.fixture(autouse=True)
def nothing_else_here(monkeypatch):
    monkeypatch.delenv("DGBENCH_DATA", raising=False)


def test_the_cards_and_the_folder_name_the_same_files():
    there = {p.relative_to(BUNDLED).as_posix() for p in BUNDLED.rglob("*.bz2")}
    assert there == set(FILES)
    assert sum(p.stat().st_size for p in BUNDLED.rglob("*") if p.is_file()) <= 11_000_000


@pytest.mark.parametrize("path", sorted(FILES))
def test_a_copy_holds_the_bytes_of_its_card(path):
    card, ref = FILES[path]
    file = BUNDLED / path
    assert file.stat().st_size == ref.bundled.bytes
    assert check_file(file, ref) == ref.bundled.sha256
    assert content_sha256(file) == ref.content_sha256
    folder = BUNDLED / Path(path).parts[0]
    licence = (folder / "LICENSE").read_text()
    kind = next(kind for kind in LICENCES if card.licence.startswith(kind))
    assert LICENCES[kind] in licence
    source = (folder / "SOURCE").read_text()
    assert f"Licence: {kind}" in source
    assert Path(path).relative_to(folder.name).as_posix() in source
    assert re.search(r"^(Repository: https://github\.com/|Publisher: https?://)", source, re.M)
    if kind.startswith("CC"):
        assert "Attribution: " in source


@pytest.mark.parametrize("name", NAMES)
def test_it_opens_as_real_data_without_any_folder(name):
    card = datasets.card(name)
    found = verify_dataset(card)
    assert found["ok"], found["words"]
    if card.kind == "signals":
        made = open_snapshots(SnapshotSpec(name, snapshots=3, feature_dim=2))
    else:
        made = open_events(name, "real")
    assert made.origin.kind == "real"


def test_the_users_folder_and_downloads_come_first(monkeypatch, tmp_path):
    card = datasets.card("chickenpox")
    (ref,) = card.forms[0].files
    assert find_form(card).bundled
    downloaded = download_dir() / ref.path
    downloaded.parent.mkdir(parents=True)
    downloaded.write_bytes(b"x")
    assert find_form(card).paths == (downloaded,)
    assert find_form(card).downloaded
    own = tmp_path / ref.path
    own.parent.mkdir(parents=True)
    own.write_bytes(gzip.compress(b"[]"))
    monkeypatch.setenv("DGBENCH_DATA", str(tmp_path))
    assert find_form(card).paths == (own,)
    with pytest.raises(DataError, match="is not the file of the card"):
        find_form(card).hashes()


def test_a_users_file_of_another_form_comes_before_a_bundled_copy(monkeypatch, tmp_path):
    """A publisher's file may have more columns than the copy."""
    card = datasets.card("wikipedia")
    assert find_form(card).bundled
    own = tmp_path / next(form for form in card.forms if form.name == "publisher").files[0].path
    own.parent.mkdir(parents=True)
    own.write_text("x")
    monkeypatch.setenv("DGBENCH_DATA", str(tmp_path))
    assert find_form(card).paths == (own,)


def test_flights_keep_delay_and_distance_as_features_of_edges():
    stream = open_events("flights", "real")
    assert stream.edge_feat.shape == (len(stream), 2)
    assert stream.edge_feat[0].tolist() == [33.0, 2176.0]


def test_what_is_installed_holds_every_copy():
    """The wheel takes the whole folder `datasets`; nothing in it is left out by a pattern."""
    tomli = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
    root = Path(__file__).parents[2]
    built = tomli.loads((root / "pyproject.toml").read_text())["tool"]["scikit-build"]
    assert built["wheel"]["packages"]["dgbench/datasets"] == "datasets"
    files = [p for p in (root / "datasets/bundled").rglob("*") if p.is_file()]
    ignored = subprocess.run(
        ["git", "-C", root, "check-ignore", *files], capture_output=True, text=True
    ).stdout
    assert len(files) > len(FILES)
    assert not ignored  # neither the wheel nor the sdist has what git ignores
    patterns = [*built["wheel"]["exclude"], *built["sdist"]["exclude"]]
    assert not [p for p in files if any(fnmatch(p.name, one) for one in patterns)]


@pytest.mark.parametrize("damage", [b"BZh9", None])
def test_a_damaged_bzip2_file_is_refused(tmp_path, damage):
    path = tmp_path / "x.json.bz2"
    whole = bz2.compress(b"1,2,3\n" * 5000)
    path.write_bytes(whole[:-9] if damage is None else damage)
    with pytest.raises(DataError, match="not a whole bzip2 file"):
        read_bytes(path)


def test_a_bzip2_bomb_stops_at_the_cap(tmp_path):
    path = tmp_path / "x.csv.bz2"
    path.write_bytes(bz2.compress(bytes(40_000_000)))
    assert path.stat().st_size < 1000
    with pytest.raises(DataError, match="unpacks to more than 1,000 bytes"):
        read_bytes(path, 1000)
