"""Real data: the copies that dgbench carries, and what DGBENCH_DATA names."""

import re
from pathlib import Path

import pytest
import torch

from dgbench import datasets
from dgbench.datasets import SnapshotSpec, open_events, open_snapshots
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
HOLDABLE = [
    name if any(ref.bundled for form in card.forms for ref in form.files)
    else pytest.param(name, marks=pytest.mark.nightly)  # large, and on few machines
    for name, card in datasets.cards().items() if card.forms
]  # fmt: skip


def test_every_copy_has_the_bytes_of_its_card_its_licence_and_its_source():
    assert {p.relative_to(BUNDLED).as_posix() for p in BUNDLED.rglob("*.bz2")} == set(FILES)
    for path, (card, ref) in FILES.items():
        assert (BUNDLED / path).stat().st_size == ref.bundled.bytes
        assert check_file(BUNDLED / path, ref) == ref.bundled.sha256
        assert content_sha256(BUNDLED / path) == ref.content_sha256
        folder = BUNDLED / Path(path).parts[0]
        kind = next(kind for kind in LICENCES if card.licence.startswith(kind))
        assert LICENCES[kind] in (folder / "LICENSE").read_text()
        source = (folder / "SOURCE").read_text()
        assert f"Licence: {kind}" in source
        assert Path(path).relative_to(folder.name).as_posix() in source
        assert re.search(r"^(Repository: https://github\.com/|Publisher: https?://)", source, re.M)
        assert "Attribution: " in source or not kind.startswith("CC")


def test_the_users_folder_and_downloads_come_first(monkeypatch, tmp_path):
    monkeypatch.delenv("DGBENCH_DATA", raising=False)
    card = datasets.card("chickenpox")
    (ref,) = card.forms[0].files
    assert find_form(card).bundled
    downloaded = download_dir() / ref.path
    downloaded.parent.mkdir(parents=True)
    downloaded.write_bytes(b"x")
    assert find_form(card).paths == (downloaded,)
    assert find_form(card).downloaded
    # A publisher's file may have another form, with more columns than the copy.
    other = datasets.card("wikipedia")
    whole = next(form for form in other.forms if form.name == "publisher").files[0].path
    for path, of in ((ref.path, card), (whole, other)):
        own = tmp_path / path
        own.parent.mkdir(parents=True)
        own.write_bytes(b"x")
        monkeypatch.setenv("DGBENCH_DATA", str(tmp_path))
        assert find_form(of).paths == (own,)
    with pytest.raises(DataError):
        find_form(card).hashes()


@pytest.fixture
def held(held_data):
    def check(name):
        if name not in held_data:
            pytest.skip(f"'{name}' is neither bundled nor in DGBENCH_DATA")

    return check


@pytest.mark.parametrize("name", HOLDABLE)
def test_reads_as_its_card_says(name, held):
    held(name)
    card = datasets.card(name)
    assert verify_dataset(card)["ok"]
    wanted = find_form(card).form.counts
    if card.kind == "signals":
        spec = SnapshotSpec(name, snapshots=2, feature_dim=2)
        assert open_snapshots(spec).check().num_nodes == wanted.nodes
        return
    events = open_events(name)
    assert (len(events), events.num_nodes) == (wanted.edges, wanted.nodes)
    assert bool((events.t[1:] >= events.t[:-1]).all())
    assert int(torch.stack([events.src, events.dst]).max()) < events.num_nodes
    if name == "flights":  # delay and distance
        assert events.edge_feat[0].tolist() == [33.0, 2176.0]


def test_england_covid(held):
    held("covid19-england")
    made = open_snapshots(SnapshotSpec("covid19-england")).check()
    assert (len(made), made.num_nodes, made.feature_dim) == (61, 129, 16)
    assert sum(made.num_edges) == 82_529 - 7_869  # the self loops are dropped
    assert torch.equal(made.features[20, :, -1], made.targets[20])
    assert torch.equal(made.features[20, :, 0], made.targets[5])
    assert made.features[3, :, :12].abs().max() == 0
    assert made.origin.kind == "real"
    smooth = open_snapshots(SnapshotSpec("covid19-england", edge_life=8))
    assert sum(smooth.num_edges) == 100_061  # with the self loops the paper's 108 K
    weighted = open_snapshots(SnapshotSpec("covid19-england", weighted=True)).check()
    assert float(weighted.topology[0].values.min()) >= 10
