import pytest

from dgbench import datasets
from dgbench.datasets import catalogue
from dgbench.datasets.readers import read
from dgbench.datasets.sources.download import downloadable
from dgbench.runtime.errors import DataError, UnknownKeyError

PIPAD = {  # Table 1 of the paper: vertices, edges, D, T, smoothed edges; edge-life is derived
    "flickr": (2_300_000, 33_100_000, 2, 132, 480_000_000, 15),
    "youtube": (3_200_000, 602_000, 2, 198, 11_000_000, 18),
    "amz-automotive": (1_100_000, 1_300_000, 2, 524, 55_000_000, 42),
    "epinions": (727_000, 13_600_000, 2, 99, 78_000_000, 6),
    "hepth": (22_000, 2_600_000, 16, 214, 18_000_000, 7),
    "pems08": (170, 7_202, 16, 90, 7_202, None),
    "covid19-england": (130, 82_000, 16, 61, 108_000, 8),
}


@pytest.mark.parametrize("name", sorted(PIPAD))
def test_pipads_table_is_on_the_cards(name):
    card = datasets.card(name)
    use = card.papers["pipad"]
    row = (use.nodes, use.edges, use.feature_dim, use.snapshots, use.smoothed_edges, use.edge_life)
    assert row == PIPAD[name]
    assert card.default_snapshots == use.snapshots


def test_pipad_names_seven():
    named = {c.name for c in datasets.cards().values() if "pipad" in c.papers}
    assert named == set(PIPAD)


@pytest.mark.parametrize("name", list(datasets.cards()))
def test_every_card_is_complete(name):
    card = datasets.card(name)
    assert card.title
    assert card.about.endswith(".")
    assert card.licence
    assert card.addresses
    assert card.default_snapshots or card.kind == "signals"
    if card.bipartite and card.published.src_nodes:
        both = card.published.src_nodes + card.published.dst_nodes
        assert both == card.published.nodes
    for form in card.forms:
        assert form.files
        for ref in form.files:
            assert not ref.path.startswith("/")
            assert ".." not in ref.path
            assert ref.sha256 is None or len(ref.sha256) == 64
            assert ref.url or ref.sha256, "a file is neither known nor to be had"
        with pytest.raises(DataError):  # the reader exists: it complains of the file, not of itself
            read(form, [_nowhere(ref.path) for ref in form.files])


def _nowhere(path):
    from pathlib import Path

    return Path("/nonexistent-folder") / path


def test_every_dataset_is_held_downloadable_or_has_a_twin():
    for card in datasets.cards().values():
        known = any(ref.sha256 for form in card.forms for ref in form.files)
        assert known or downloadable(card) or card.twin is not None, card.name


def test_twins_have_cards():
    from dgbench.datasets import twins

    assert set(twins.names()) <= set(datasets.cards())


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("England-Covid", "covid19-england"),
        ("ENGLAND_COVID", "covid19-england"),
        (" soc-flickr-growth ", "flickr"),
        ("sx-stackoverflow", "stack"),
        ("Wikipedia", "wikipedia"),
    ],
)
def test_aliases(alias, name):
    assert datasets.card(alias).name == name


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(UnknownKeyError, match="dataset 'redit' is not known") as caught:
        datasets.card("redit")
    assert "reddit" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- {name: a, title: A, about: x., colour: red}", "colour"),
        ("- {name: a, title: A}", "about"),
        ("- {name: a, title: A, about: x., papers: {p: {nodes: many}}}", "nodes"),
        (
            "- {name: a, title: A, about: x., addresses: [{url: 'javascript:a()', mark: seen}]}",
            "url",
        ),
        ("- [unclosed", "card"),
        ("name: a", "list"),
    ],
)
def test_a_wrong_card_is_refused_with_its_place(tmp_path, text, words):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(DataError, match=f"bad.yaml.*{words}|{words}"):
        catalogue.load_cards(path)


def test_two_cards_may_not_share_a_name(tmp_path, monkeypatch):
    one = "- {name: a, title: A, about: x., aliases: [same]}\n"
    (tmp_path / "one.yaml").write_text(one)
    (tmp_path / "two.yaml").write_text(one.replace("name: a", "name: b"))
    monkeypatch.setattr(catalogue, "CARDS", tmp_path)
    catalogue._catalogue.cache_clear()
    with pytest.raises(DataError, match="'same' is used by two cards"):
        catalogue.cards()


@pytest.mark.parametrize("path", ["../x.csv", "/etc/passwd", "a/../../x.csv", "", "..", "a/.."])
def test_a_card_names_files_inside_its_folder(tmp_path, path):
    """A download goes to where the card says."""
    file = tmp_path / "cards.yaml"
    file.write_text(
        "- name: toy\n  title: T\n  about: A.\n  forms:\n    - name: held\n"
        f"      files: [{{path: '{path}'}}]\n      reader: {{format: table}}\n"
    )
    with pytest.raises(DataError, match="no path in a folder"):
        catalogue.load_cards(file)
    file.write_text(
        "- name: toy\n  title: T\n  about: A.\n  forms:\n    - name: held\n      files:\n"
        f"        - {{path: a.csv, bundled: {{path: '{path}', bytes: 1, sha256: ab}}}}\n"
        "      reader: {format: table}\n"
    )
    with pytest.raises(DataError, match="no path in a folder"):
        catalogue.load_cards(file)
    file.write_text("- name: ' '\n  title: T\n  about: A.\n")
    with pytest.raises(DataError, match="no name"):
        catalogue.load_cards(file)
