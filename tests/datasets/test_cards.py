"""Cards of datasets: those that dgbench has, and those of folders and packages of others."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from dgbench import datasets
from dgbench.datasets import card_places, catalogue, twins
from dgbench.datasets.readers import read
from dgbench.datasets.sources.download import downloadable
from dgbench.runtime.errors import DataError, UnknownKeyError

CSV = "src,dst,t\n1,2,3\n2,3,4\n"


def test_every_card_is_complete():
    assert set(twins.names()) <= set(datasets.cards())
    for name, card in datasets.cards().items():
        assert all((card.title, card.licence, card.addresses, card.about.endswith("."))), name
        assert card.default_snapshots or card.kind == "signals", name
        known = any(ref.sha256 for form in card.forms for ref in form.files)
        assert known or downloadable(card) or card.twin is not None, name
        for form in card.forms:
            assert form.files
            assert all(ref.url or ref.sha256 for ref in form.files), "neither known nor to be had"
            nowhere = [Path("/nonexistent-folder", ref.path) for ref in form.files]
            with pytest.raises(DataError):  # the reader exists, and complains of the file
                read(form, nowhere)


def test_aliases_are_names_and_an_unknown_name_is_answered_with_the_nearest():
    for alias, name in (
        ("ENGLAND_COVID", "covid19-england"), (" soc-flickr-growth ", "flickr"),
        ("sx-stackoverflow", "stack"), ("Wikipedia", "wikipedia"),
    ):  # fmt: skip
        assert datasets.card(alias).name == name
    with pytest.raises(UnknownKeyError) as caught:
        datasets.card("redit")
    assert "reddit" in caught.value.hint


HEAD = "- {name: a, title: A, about: x., forms: [{name: f, reader: {format: table}, files: "
PATHS = ["../x.csv", "/etc/passwd", "a/../../x.csv", "", "..", "a/.."]
WRONG = {
    "- {name: a, title: A, about: x., colour: red}": "colour",
    "- {name: a, title: A}": "about",
    "- {name: ' ', title: A, about: x.}": "name",
    "- {name: a, title: A, about: x., papers: {p: {nodes: many}}}": "nodes",
    "- {name: a, title: A, about: x., addresses: [{url: 'javascript:a()', mark: seen}]}": "url",
    "- [unclosed": "bad.yaml",
    "name: a": "list",
    # A download goes to where the card says.
    **{f"{HEAD}[{{path: '{path}'}}]}}]}}": "path" for path in PATHS},
    **{
        f"{HEAD}[{{path: a.csv, bundled: {{path: '{path}', bytes: 1, sha256: ab}}}}]}}]}}": "path"
        for path in PATHS
    },
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_card_is_refused(tmp_path, text):
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(DataError, match=WRONG[text]):
        catalogue.load_cards(tmp_path / "bad.yaml")


def test_two_cards_may_not_share_a_name(tmp_path, monkeypatch):
    one = "- {name: a, title: A, about: x., aliases: [same]}\n"
    (tmp_path / "one.yaml").write_text(one)
    (tmp_path / "two.yaml").write_text(one.replace("name: a", "name: b"))
    monkeypatch.setattr(catalogue, "CARDS", tmp_path)
    catalogue._catalogue.cache_clear()
    with pytest.raises(DataError, match="same"):
        catalogue.cards()


def entry(name: str, path: str = "events.csv", **reader) -> dict:
    spec = {"format": "table", "columns": ["src", "dst", "t"], "skip": 1, **reader}
    form = {"name": "file", "files": [{"path": path}], "reader": spec}
    return {"name": name, "title": name, "about": "A test.", "snapshots": 2, "forms": [form]}


def card_file(folder, *entries, name="cards.yaml"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "events.csv").write_text(CSV)
    (folder / name).write_text(yaml.safe_dump(list(entries)))
    return folder


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder of cards in DGBENCH_CARDS."""
    folder = tmp_path / "own"
    monkeypatch.setenv("DGBENCH_CARDS", str(folder))
    return folder


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Installs a package that nobody may import, with cards and a reader."""
    site = tmp_path / "site"

    def install(*entries, reader: str = "", name: str = "other_data"):
        card_file(site / name / "cards", *entries)
        body = "" if reader else "raise SystemExit('imported')"
        (site / name / "__init__.py").write_text(body)
        (site / name / "reading.py").write_text(reader)
        info = site / f"{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(
            f"[dgbench.datasets]\n{name} = {name}.cards\n"
            f"[dgbench.readers]\nodd-format = {name}.reading:read\n"
        )
        monkeypatch.syspath_prepend(str(site))
        card_places._plugins.cache_clear()

    yield install
    card_places._plugins.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "other_data"]:
        del sys.modules[name]


def test_a_card_of_a_folder_is_opened_by_name(own):
    assert "mine" not in datasets.cards()
    card_file(own, entry("mine"))
    assert len(datasets.open_events("Mine", "real")) == 2
    card_file(own, entry("mine-2"))  # an edited file is read again
    assert "mine-2" in datasets.cards()


def test_a_card_of_a_package_is_opened_without_importing_it(package):
    package(entry("theirs"))
    assert len(datasets.open_events("theirs", "real")) == 2
    assert "other_data" not in sys.modules


def test_a_reader_of_a_package_reads_its_format(package):
    package(
        entry("theirs", format="odd-format"),
        reader="import numpy as np\n"
        "from dgbench.datasets.readers import RawEvents\n"
        "def read(paths, spec):\n"
        "    n = len(paths[0].read_text().splitlines())\n"
        "    return RawEvents(np.arange(n), np.arange(n), np.arange(n) * 1.0, num_nodes=n)\n",
    )
    assert datasets.open_events("theirs", "real").num_nodes == 3


@pytest.mark.parametrize("reader", ["raise ValueError", "def read(paths, spec): return 7"])
def test_a_broken_reader_is_named(package, reader):
    package(entry("theirs", format="odd-format"), reader=reader)
    with pytest.raises(DataError, match="odd-format"):
        datasets.open_events("theirs", "real")
    assert datasets.card("wikipedia").name == "wikipedia"


def test_two_cards_of_one_name_are_refused_when_it_is_used(own, package):
    package(entry("twice"), entry("theirs"))
    card_file(own, {**entry("mine"), "aliases": ["twice"]})
    for name in ("twice", "mine"):
        with pytest.raises(DataError, match="twice"):
            datasets.card(name)
    assert datasets.card("theirs").name == "theirs"
    assert len(catalogue.card_problems()) == 1


def test_a_card_of_others_never_replaces_one_of_dgbench(own):
    before = datasets.card("wikipedia")
    card_file(own, entry("wikipedia"), entry("mine"))
    assert datasets.card("wikipedia") == before
    assert datasets.card("mine").name == "mine"
    (problem,) = catalogue.card_problems()
    assert "'wikipedia'" in problem


def test_a_wrong_card_file_is_left_out_and_said(own):
    card_file(own, entry("other"))
    (own / "wrong.yaml").write_text("- {name: a, title: A, about: x., colour: red}")
    assert datasets.card("other").name == "other"
    with pytest.raises(UnknownKeyError) as caught:
        datasets.card("a")
    assert "wrong.yaml" in caught.value.hint


def test_files_of_a_card_lie_beside_it_or_where_it_says(own, tmp_path):
    (tmp_path / "far.csv").write_text("src,dst,t\n5,6,7\n")
    card_file(own, entry("near"), entry("far", path=str(tmp_path / "far.csv")))
    assert len(datasets.open_events("near", "real")) == 2
    assert len(datasets.open_events("far", "real")) == 1


def columns(last: str) -> dict:
    return {"columns": ["src", "dst", "t", last]}


@pytest.mark.parametrize(
    ("text", "reader"),
    [("1,2,5\n1,2,3\n", {}), ("1,2,1.7e18\n1,2,1.8e18\n", {}), ("1,2,3\n1,2\n", {}),
     ("1,9000000000,3\n", {"ids": "keep"}), ("1,2,2020-13-01\n", {"time": "date"}),
     ("1,2,3,1e99\n", columns("weight")), ("1,2,3,1.5\n", columns("label")),
     ("1,2,3,inf\n", columns("rest"))],
)  # fmt: skip
def test_an_error_of_content_names_its_file(own, text, reader):
    card_file(own, entry("bad", "bad.csv", **{"skip": 0, **reader}))
    (own / "bad.csv").write_text(text)
    with pytest.raises(DataError) as caught:
        datasets.open_events("bad")
    assert str(own / "bad.csv") in str(caught.value)
