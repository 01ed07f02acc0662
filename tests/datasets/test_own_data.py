"""A file of somebody's events becomes a dataset: it is read as it is meant, or refused by line."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from dgbench.datasets import own_data
from dgbench.datasets.catalogue import DatasetCard, offer_card
from dgbench.datasets.guessing import FileOptions
from dgbench.datasets.opening import open_events, open_snapshots
from dgbench.datasets.own_data import content_of, describe_file
from dgbench.datasets.readers import raw
from dgbench.datasets.sequence import SnapshotSpec
from dgbench.runtime.errors import DataError, InvalidInputError, MissingDataError

ROWS = [(7, 30, 5), (30, 9, 6), (7, 9, 6), (9, 7, 11)]
SRC, DST, TIMES = [0, 2, 0, 1], [2, 1, 1, 0], [5.0, 6.0, 6.0, 11.0]


@pytest.fixture(autouse=True)
def _no_card_stays(monkeypatch):
    monkeypatch.setenv("DGBENCH_DATASET", "")


def described(path: Path, text: str | bytes, **options) -> DatasetCard:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return describe_file(path, FileOptions(**options)).card


def events_of(card: DatasetCard):
    offer_card(card)
    return open_events(card.name, "real")


def lines(join: str, rows=ROWS) -> str:
    return "".join(join.join(map(str, row)) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "src,dst,t\n" + lines(",")),
        ("a.csv", "From,To,When\n" + lines(",")),
        ("a.csv", "note,target,source,time\n" + lines(",", [("x", d, s, t) for s, d, t in ROWS])),
        ("a.csv", lines(",")),
        ("a.csv", "src;dst;t\n" + lines(";")),
        ("a.tsv", "src\tdst\tt\n" + lines("\t")),
        ("a.txt", lines(" ")),
        ("a.txt", "# by hand\n" + lines(",")),
        ("a.txt", "% sym\n 7 30\t5\n\t30  9 6 \n% in the middle\n\n7\t\t9 6\n9 7 11"),
        ("a.csv", "src,dst,t\r\n" + lines(",").replace("\n", "\r\n")),
        ("a.csv", "\ufeffsrc,dst,t\n" + lines(",")),
        ("a.csv", 'src,dst,t,"a\nnote"\n' + lines(",", [(*row, '"two\nlines"') for row in ROWS])),
    ],
    ids=range(12),
)
def test_the_same_events_are_found_however_they_are_written(tmp_path, name, text):
    found = events_of(described(tmp_path / name, text))
    assert found.src.tolist() == SRC
    assert found.dst.tolist() == DST
    assert found.t.tolist() == TIMES
    assert (found.num_nodes, found.num_src) == (3, None)


def test_packed_text_parquet_and_npz_hold_the_same_events(tmp_path):
    columns = dict(zip(("source", "target", "time"), map(list, zip(*ROWS, strict=True))))  # noqa: B905
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(lines(",").encode()))
    parquet.write_table(pa.table(columns), tmp_path / "b.parquet")
    np.savez(tmp_path / "c.npz", **{k: np.array(v, np.int32) for k, v in columns.items()})
    for name in ("a.csv.gz", "b.parquet", "c.npz"):
        found = events_of(describe_file(tmp_path / name).card)
        assert (found.src.tolist(), found.dst.tolist(), found.t.tolist()) == (SRC, DST, TIMES), name


def test_quoted_ends_of_lines_are_read_in_a_file_of_many_blocks(tmp_path):
    rows = "".join(f'"town\n{k % 50:09}",v{k % 7},{k}\n' for k in range(60_000))
    found = events_of(described(tmp_path / "a.csv", "src,dst,t\n" + rows))
    assert (len(found), found.num_nodes) == (60_000, 57)


@settings(max_examples=25)  # each makes files and describes them
@example(rows=[(0, 50, 9), (50, 0, 0)], blanks=["\t"])
@example(rows=[(1, 1, 0)] * 3, blanks=[" \t ", "  ", " ", "\t", "  ", " \t ", " "])
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 9)),
        min_size=2,
        max_size=30,
    ),
    blanks=st.lists(st.sampled_from([" ", "\t", "  ", " \t "]), min_size=1, max_size=7),
)
def test_any_white_space_means_what_a_comma_means(tmp_path_factory, rows, blanks):
    folder = tmp_path_factory.mktemp("white")
    text, rows = "", [*rows, (0, 1, 10)]  # a file with one time is refused
    for number, row in enumerate(rows):
        gap = [blanks[(number + k) % len(blanks)] for k in range(2)]
        lead = blanks[number % len(blanks)] if number % 3 else ""
        text += f"{lead}{row[0]}{gap[0]}{row[1]}{gap[1]}{row[2]}{lead}\n"
    plain = events_of(described(folder / "plain.csv", lines(",", rows)))
    white = events_of(described(folder / "white.txt", text, delimiter="whitespace"))
    for name in ("src", "dst", "t"):
        assert getattr(white, name).tolist() == getattr(plain, name).tolist()


def test_names_are_one_space_unless_two_kinds_are_asked_for(tmp_path):
    text = "user,item,ts\nann,bob,1\nbob,ann,2\ncid,ann,3\n"
    one = events_of(described(tmp_path / "a.csv", text))
    assert (one.src.tolist(), one.dst.tolist()) == ([0, 1, 2], [1, 0, 0])
    assert (one.num_nodes, one.num_src) == (3, None)
    two = events_of(described(tmp_path / "a.csv", text, bipartite=True))
    assert (two.num_nodes, two.num_src) == (5, 3)


BASE = 1_600_000_000_000_000_000


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_nanoseconds_stay_apart(tmp_path, kind):
    times = [BASE + k for k in (0, 1, 250)]
    path = tmp_path / f"a.{kind}"
    if kind == "csv":
        path.write_text("src,dst,t\n" + "".join(f"1,2,{t}\n" for t in times))
    elif kind == "npz":
        np.savez(path, src=[1, 1, 1], dst=[2, 2, 2], t=times)
    else:
        parquet.write_table(pa.table({"src": [1] * 3, "dst": [2] * 3, "t": times}), path)
    found = events_of(describe_file(path).card)
    assert found.t.tolist() == [0.0, 1.0, 250.0]
    assert any(str(BASE) in note for note in found.origin.notes)


def test_seconds_with_nine_decimals_stay_apart(tmp_path):
    text = "src,dst,t\n1,2,1600000000.000000001\n1,2,1600000000.000000002\n"
    found = events_of(described(tmp_path / "a.csv", text))
    assert np.allclose(found.t, [0, 1e-9], rtol=1e-6)
    plain = "src,dst,t\n1,2,0.30000000000000004\n1,2,1600000000.1234567\n"  # what floats print
    kept = events_of(described(tmp_path / "b.csv", plain))
    assert kept.t.tolist() == [0.30000000000000004, 1600000000.1234567]


def test_times_that_float64_cannot_hold_are_refused(tmp_path):
    text = f"src,dst,t\n1,2,0\n1,2,{2**53 + 1}\n"
    with pytest.raises(DataError, match=r"a\.csv, line 3: .*2\*\*53"):
        described(tmp_path / "a.csv", text)


def test_dates_and_clocks_become_unix_seconds(tmp_path):
    days = "src,dst,day\n1,2,1970-01-02\n1,2,1970-01-03\n"
    found = events_of(described(tmp_path / "a.csv", days, columns="src=src,dst=dst,t=day"))
    assert found.t.tolist() == [86400.0, 172800.0]
    clocks = "src,dst,t\n1,2,1970-01-01 00:00:10\n1,2,1970-01-01T00:01:00\n"
    assert events_of(described(tmp_path / "b.csv", clocks)).t.tolist() == [10.0, 60.0]
    fine = "src,dst,t\n1,2,2020-01-01 00:00:00.001Z\n1,2,2020-01-01 00:00:01Z\n"
    found = events_of(described(tmp_path / "c.csv", fine))
    assert found.t.diff().tolist() == [999.0]
    assert "times are in ms" in found.origin.notes


def test_what_is_not_in_time_order_is_sorted_and_said(tmp_path):
    (tmp_path / "a.csv").write_text("src,dst,t\n1,2,9\n2,1,3\n")
    found = describe_file(tmp_path / "a.csv")
    assert any("not in time order" in sentence for sentence in found.sentences)
    assert not found.card.forms[0].reader.sorted
    assert events_of(found.card).t.tolist() == [3.0, 9.0]


def test_weights_labels_and_features_come_along(tmp_path):
    text = "a,b,c,w,l,x,y\n1,2,3,0.5,1,7,8\n2,1,4,-1,0,9,10\n"
    columns = "src=a,dst=b,t=c,weight=w,label=l,feature=y,feature=x"
    found = events_of(described(tmp_path / "a.csv", text, columns=columns))
    assert found.weight.tolist() == [0.5, -1.0]
    assert found.label.tolist() == [1, 0]
    assert found.edge_feat.tolist() == [[7, 8], [9, 10]]


@pytest.mark.parametrize("named", [False, True])
def test_vertices_have_labels(tmp_path, named):
    word = (lambda k: f"v{k}") if named else str
    rows = [(word(s), word(d), t) for s, d, t in ROWS]
    vertices = tmp_path / "v.csv"
    vertices.write_text(f"id,label\n{word(9)},2\n{word(7)},1\n{word(99)},5\n")
    card = described(tmp_path / "a.csv", "src,dst,t\n" + lines(",", rows), vertices=vertices)
    found = events_of(card)
    places = {7: SRC[0], 30: DST[0], 9: DST[1]} if not named else {7: 0, 30: 1, 9: 2}
    wanted = {7: 1, 9: 2, 30: -1}
    assert {k: int(found.node_label[at]) for k, at in places.items()} == wanted
    assert found.select(0, 2).node_label is found.node_label
    assert sum("v.csv" in note for note in found.origin.notes) == 2
    vertices.write_text(f"id,label\n{word(9)},2\n{word(9)},1\n")
    with pytest.raises(DataError, match=r"v\.csv, line 3: the vertex .*9 is listed twice"):
        described(tmp_path / "a.csv", "src,dst,t\n" + lines(",", rows), vertices=vertices)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no rows"),
        ("src,dst,t\n", "a header and no rows"),
        ("# nothing\n\n", "has no rows"),
        ("src,dst,t\n1,2,1\n\n1,-2,3\n", "line 4: dst = -2; ids must be >= 0"),
        ("src,dst,t\n1,2,1\n1,2,nan\n", "line 3: the column `t` is empty or not a number"),
        ("src,dst,t\n1,2,1\n1,2,inf\n", "line 3: t is inf; only finite numbers"),
        ("src,dst,t\n" + "1,2,1\n" * 300 + "x,2,3\n", "line 302: the column `src`: .*'x'"),
        ("src,dst,t\n1,2,1\n1,2,soon\n", "line 3: the column `t`: .*'soon'"),
        ("# c\nsrc,dst,t\n# c\n1,2,1\n1,2\n", "line 5: it has 2 columns, 3 are expected"),
        ('src,dst,t,n\n1,2,1,"a\nb"\n1,2,x,c\n', "line 4: the column `t`: .*'x'"),
        ("src,dst,t\n1,2,soon\n", "the time of the first row is 'soon'"),
        ("src,dst,t,weight\n1,2,3,1\n1,2,3,1e99\n", "line 3: a weight is not a finite number"),
        ("src,dst,t,label\n1,2,3,1\n1,2,3,yes\n", "line 3: the column `label`: .*'yes'"),
        ("src,dst,t\n1,2,2020-01-01\n1,2,2020-13-01\n", "line 3: a date is not written"),
        ("src,dst,t\n1,2,5\n2,3,5\n", r"its events \(2\) all have the time 5; .* two times"),
        (
            "src,dst,t\n1,2,2020-01-01 10:00:00\n1,2,later\n",
            "line 3: a time is not written as in ISO 8601",
        ),
    ],
)
def test_a_bad_file_is_refused_with_its_line(tmp_path, text, words):
    with pytest.raises(DataError, match=rf"a\.csv.*{words}") as caught:
        described(tmp_path / "a.csv", text)
    assert str(tmp_path / "a.csv") in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"columns": "src=src,dst=dst,t=when"}, "column 'when' is not known"),
        ({"columns": "src=src,dst=dst"}, "no column for `t`"),
        ({"columns": "source=src,dst=dst,t=t"}, "role in --columns 'source' is not known"),
        ({"columns": "src=src,dst=src,t=t"}, "the column 'src' is both src and dst"),
        ({"columns": "src=src,dst=dst,t=t,t=src"}, "names `t` twice"),
        ({"columns": "src,dst,t"}, "'src' names no column"),
        ({"delimiter": "komma"}, "--delimiter is 'komma'"),
        ({"ids": "hash"}, "--ids is 'hash'"),
        ({"ids": "keep", "bipartite": True}, "exclude each other"),
        ({"snapshots": 0}, "snapshots is 0"),
    ],
)
def test_an_option_that_cannot_be_met_is_named(tmp_path, options, words):
    with pytest.raises(InvalidInputError, match=words):
        described(tmp_path / "a.csv", "src,dst,t\n1,2,3\n", **options)


def test_columns_that_nobody_can_tell_apart_are_asked_for(tmp_path):
    with pytest.raises(InvalidInputError, match=r"columns 1, 2, 3, 4; .* `src`") as caught:
        described(tmp_path / "a.txt", "1 2 1 50\n3 4 1 60\n")
    assert "--columns" in caught.value.hint
    found = described(tmp_path / "a.txt", "1 2 1 50\n3 4 1 60\n", columns="src=1,dst=2,t=4")
    assert events_of(found).t.tolist() == [50.0, 60.0]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"src": [1], "dst": [2]}, "`t` is not plain"),
        ({"src": [1.5, 1], "dst": [2.5, 2], "t": [0, 1]}, None),
        ({"src": [1, None], "dst": [2, 3], "t": [0, 1]}, "row 1: the column `src` is empty"),
        ({"src": [1, -1], "dst": [2, 3], "t": [0, 1]}, "row 1: src = -1"),
        ({"src": [1], "dst": [2], "t": [float("nan")]}, "row 0: t is nan"),
        ({"src": [1], "dst": [2], "t": ["soon"]}, "row 0: a time is not written"),
        ({"src": [], "dst": [], "t": []}, "no events|not plain|holds"),
    ],
)
def test_a_bad_parquet_file_is_refused(tmp_path, columns, words):
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table(columns), path)
    if words is None:  # numbers that are no whole ones are names
        assert describe_file(path).card.forms[0].reader.ids == "names"
        return
    with pytest.raises(InvalidInputError, match=words):
        describe_file(path)


def test_files_that_are_none_are_refused(tmp_path):
    for name in ("a.parquet", "a.npz"):
        (tmp_path / name).write_bytes(b"PK\x03\x04 no such thing")
        with pytest.raises(DataError, match=f"{name} is not a readable"):
            describe_file(tmp_path / name)
    with pytest.raises(MissingDataError, match=r"no file .*gone\.csv"):
        describe_file(tmp_path / "gone.csv")
    np.savez(tmp_path / "o.npz", src=np.array([{}], object), dst=[1], t=[1])
    with pytest.raises(DataError, match=r"o\.npz"):
        describe_file(tmp_path / "o.npz")


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet", "a.npz"])
def test_a_file_too_large_for_the_memory_is_refused_before_it_is_read(tmp_path, monkeypatch, name):
    path = tmp_path / name
    columns = {k: list(range(5000)) for k in ("src", "dst", "t")}
    if name.endswith("parquet"):
        parquet.write_table(pa.table(columns), path)
    elif name.endswith("npz"):
        np.savez(path, **columns)
    else:
        text = b"src,dst,t\n" + b"1,2,3\n" * 5000
        path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    monkeypatch.setattr(raw, "free_memory", lambda: 30_000)
    with pytest.raises(DataError, match=rf"{name} (is too large|unpacks to more than)"):
        describe_file(path)


def test_a_card_says_what_was_counted_and_can_be_opened_by_its_name(tmp_path):
    card = described(tmp_path / "My Trips.csv", "src,dst,t\n" + lines(",", [*ROWS, ROWS[3]]))
    assert card.name == "my-trips"
    counts = card.forms[0].counts.known()
    assert counts == {
        **{"nodes": 3, "edges": 5, "pairs": 4, "self_edges": 0, "t_first": 5, "t_last": 11}
    }
    offer_card(card)
    assert len(open_snapshots(SnapshotSpec("my-trips"))) == own_data.SNAPSHOTS


def test_a_name_that_is_taken_is_not_taken_over(tmp_path):
    assert described(tmp_path / "wikipedia.csv", lines(",")).name == "own-wikipedia"


def test_content_changes_with_the_file_and_with_how_it_is_read(tmp_path):
    path = tmp_path / "a.csv"
    cards = [
        described(path, "src,dst,t\n1,2,3\n4,5,6\n"),
        described(path, "src,dst,t\n1,2,3\n4,5,6\n", columns="src=dst,dst=src,t=t"),
        described(path, "src,dst,t\n1,2,3\n4,5,7\n"),
    ]
    assert content_of(cards[2])
    with pytest.raises(DataError, match="not the file of the card"):
        content_of(cards[0])
    path.write_text("src,dst,t\n1,2,3\n4,5,6\n")
    assert content_of(cards[0]) != content_of(cards[1])
