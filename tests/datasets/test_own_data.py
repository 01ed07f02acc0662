"""A file of somebody's events becomes a dataset: it is read as it is meant, or refused by line.

Over 500 lines: a small file of each form that people have.
"""

from __future__ import annotations

import bz2
import datetime
import decimal
import gzip
import io
import lzma
import os
import pickle
import resource
import tarfile
import zipfile
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
from dgbench.datasets.own_data import content_of, describe_file, keep_card
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
        ({"src": [1.5, 1], "dst": [2.5, 2], "t": [0, 1]}, "row 0: src = 1.5"),
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
    monkeypatch.setattr(raw, "available_memory", lambda: 30_000)
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


SPELT = ("7", " 7 ", "+7", "007", "7.0", "7.", "7e0", "0.7e1", "70e-1", "7.00E+00", "+07.0")
NO_NUMBERS = ("0x7", "7.5", "-7", "1e30", "9007199254740993.0", "9" * 20, "1e999999999", "\u0667",
              "7_0", "7e")  # fmt: skip
LACKING = ("", " ", "NaN", "nan", "NA", "N/A", "NULL", "null", "None", "<NA>", "NaT", r"\N", " NaN")


def test_a_whole_number_is_one_vertex_however_it_is_written(tmp_path):
    text = "src,dst,t\n" + "".join(f"{word},8,{k}\n" for k, word in enumerate(SPELT))
    found = events_of(described(tmp_path / "a.csv", text))
    assert (found.num_nodes, set(found.src.tolist())) == (2, {0})
    text = text.replace(",8,", ",0x8,")  # by itself a name
    assert described(tmp_path / "b.csv", text).forms[0].reader.ids == "names"


@pytest.mark.parametrize("word", NO_NUMBERS)
def test_what_writes_no_whole_number_is_refused_with_its_line(tmp_path, word):
    text = "src,dst,t\n" + "1,2,1\n" * 300 + f"2,{word},3\n"
    with pytest.raises(DataError, match=r"a\.csv, line 302: "):
        described(tmp_path / "a.csv", text)
    with pytest.raises(DataError, match=r"a\.csv, line 2: "):
        described(tmp_path / "a.csv", f"src,dst,t\n2,{word},3\n1,2,4\n", ids="compact")


def test_names_have_no_blanks_around_them(tmp_path):
    text = 'src, dst, t\nann, bob, 1\n bob ,ann\t, 2\n "ann", "bob", 3\n'
    assert events_of(described(tmp_path / "a.csv", text)).num_nodes == 2


def test_a_number_written_twice_among_names_is_said(tmp_path):
    card = described(tmp_path / "a.csv", "src,dst,t\n3,ann,1\n3.0,ann,2\n")
    assert any("'3.0'" in note for note in events_of(card).origin.notes)


@pytest.mark.parametrize("word", LACKING)
@pytest.mark.parametrize("other", ["ann", "5"])
def test_a_missing_id_is_no_vertex(tmp_path, word, other):
    for row in (f"{word},{other},2", f"{other},{word},2"):
        with pytest.raises(DataError, match=r"a\.csv, line 3: the column `(src|dst)`"):
            described(tmp_path / "a.csv", f"src,dst,t\n{other},{other},1\n{row}\n")


@pytest.mark.parametrize("word", ["", "nan", "None", "<NA>", None, float("nan")])
def test_a_missing_id_of_an_array_is_no_vertex(tmp_path, word):
    number = isinstance(word, float)
    table = pa.table({"src": [1.0 if number else "ann", word], "dst": ["b", "c"], "t": [1, 2]})
    parquet.write_table(table, tmp_path / "a.parquet")
    ids = {"ids": "names"} if number else {}
    with pytest.raises(DataError, match="row 1: the column `src` is empty"):
        describe_file(tmp_path / "a.parquet", FileOptions(**ids))


def test_a_vertex_called_na_stands_in_quotes(tmp_path):
    found = events_of(described(tmp_path / "a.csv", 'src,dst,t\n"NA",DE,1\nDE,FR,2\n'))
    assert found.num_nodes == 3


@pytest.mark.parametrize("many", [1, 5])
@pytest.mark.parametrize(
    "unit", ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"]
)
def test_every_unit_of_datetime64_is_read(tmp_path, unit, many):
    t = np.array([1, 3], np.int64) * (10**18 if unit == "as" else 1)
    t = t.view(f"M8[{many}{unit}]")
    np.savez(tmp_path / "a.npz", src=[1, 2], dst=[2, 3], t=t)
    if unit in ("ps", "fs"):  # finer than anything that is kept
        with pytest.raises(DataError, match="the column `t`"):
            describe_file(tmp_path / "a.npz")
        return
    card = describe_file(tmp_path / "a.npz").card
    ticks = [value * card.unit_s for value in events_of(card).t.tolist()]
    wanted = {"Y": 365 * 86400, "M": 31 * 86400}.get(unit)
    size = {"W": 7 * 86400, "D": 86400, "h": 3600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6,
            "ns": 1e-9, "as": 1.0}  # fmt: skip
    if wanted is None:
        assert ticks == pytest.approx([many * size[unit], 3 * many * size[unit]])
    elif many == 1:
        assert ticks[0] == wanted


@pytest.mark.parametrize("t", [np.array(3), np.array(["NaT", "2020-01-01"], "M8[s]"), [1.0, 2 + 1j],
                               np.array([1, 2], "m8[s]"), np.ones((2, 2))])  # fmt: skip
def test_arrays_that_are_no_times_are_refused(tmp_path, t):
    np.savez(tmp_path / "a.npz", src=[1, 2], dst=[2, 3], t=t)
    with pytest.raises(DataError, match="`t`"):
        describe_file(tmp_path / "a.npz")


def test_arrays_of_every_type_of_number_and_text_hold_the_same_events(tmp_path):
    for kind in (">i8", "<u2", "i1", "f8", ">f4", "f2", "U2", ">U2", "S2"):
        columns = {"src": np.array([1, 2, 1]).astype(kind), "dst": np.array([2, 3, 3]).astype(kind)}
        np.savez(tmp_path / "a.npz", **columns, t=[1, 2, 3], about=np.array([{}], object))
        found = events_of(describe_file(tmp_path / "a.npz").card)
        assert (found.src.tolist(), found.dst.tolist()) == ([0, 1, 0], [1, 2, 2]), kind


NUMBERS = [pa.int8(), pa.uint8(), pa.uint64(), pa.float16(), pa.float32(), pa.decimal128(9, 2),
           pa.decimal256(40, 0), pa.dictionary(pa.int8(), pa.int64())]  # fmt: skip
TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(),
         pa.dictionary(pa.int8(), pa.string()),
         pa.dictionary(pa.int32(), pa.large_string())]  # fmt: skip
CLOCKS = [pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us"),
          pa.timestamp("ns"), pa.timestamp("us", "UTC"), pa.timestamp("ns", "Europe/Paris"),
          pa.dictionary(pa.int8(), pa.timestamp("us"))]  # fmt: skip
REFUSED = [pa.bool_(), pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.duration("s"),
           pa.time32("s"), pa.null(), pa.map_(pa.string(), pa.int64())]  # fmt: skip


def arrow(values: list, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return arrow(values, kind.value_type).dictionary_encode().cast(kind)
    if pa.types.is_float16(kind):
        return pa.array(np.array(values, np.float16))
    if pa.types.is_decimal(kind):
        values = [decimal.Decimal(value) for value in values]
    return pa.array(values, kind)


@pytest.mark.parametrize("kind", NUMBERS + TEXTS, ids=str)
def test_every_arrow_type_of_ids_is_read(tmp_path, kind):
    write = str if kind in TEXTS else int
    ends = [arrow([write(v) for v in side], kind) for side in ((1, 2, 1), (2, 3, 3))]
    table = pa.table({"src": ends[0], "dst": ends[1], "t": [1, 2, 3]})
    parquet.write_table(table, tmp_path / "a.parquet")
    found = events_of(describe_file(tmp_path / "a.parquet").card)
    assert (found.src.tolist(), found.dst.tolist()) == ([0, 1, 0], [1, 2, 2])


@pytest.mark.parametrize("kind", NUMBERS + CLOCKS, ids=str)
def test_every_arrow_type_of_times_is_read(tmp_path, kind):
    days = [datetime.datetime(1970, 1, day) for day in (2, 3)]
    values = days if kind in CLOCKS else [1, 2]
    table = pa.table({"src": [1, 2], "dst": [2, 3], "t": arrow(values, kind)})
    parquet.write_table(table, tmp_path / "a.parquet")
    card = describe_file(tmp_path / "a.parquet").card
    assert events_of(card).t.diff().tolist() == ([86400.0] if kind in CLOCKS else [1.0])
    assert card.unit_s == (1.0 if kind in CLOCKS else None)


@pytest.mark.parametrize("kind", REFUSED, ids=str)
@pytest.mark.parametrize("role", ["src", "t"])
def test_arrow_types_that_are_no_ids_and_no_times_are_refused(tmp_path, kind, role):
    value = {"bool": True, "null": None}.get(str(kind), [(1)] if pa.types.is_list(kind) else 1)
    value = {"a": 1} if pa.types.is_struct(kind) else [("a", 1)] if "map" in str(kind) else value
    columns = {"src": [1, 2], "dst": [2, 3], "t": [1, 2], role: pa.array([value, value], kind)}
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=f"`{role}`"):
        describe_file(tmp_path / "a.parquet")


def zipped(**files: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def tarred(data: bytes, mode: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        info = tarfile.TarInfo("a.csv")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def npy() -> bytes:
    out = io.BytesIO()
    np.save(out, [[1, 2, 1]])
    return out.getvalue()


def feather() -> bytes:
    from pyarrow import feather as form

    out = io.BytesIO()
    form.write_feather(pa.table({"src": [1], "dst": [2], "t": [3]}), out)
    return out.getvalue()


PLAIN = b"src,dst,t\n1,2,1\n2,3,2\n"
READ = {
    "gzip": gzip.compress(PLAIN),
    "bzip2": bz2.compress(PLAIN),
    "xz": lzma.compress(PLAIN),
    "zip": zipped(a=PLAIN),
    "a zip of a Mac": zipped(**{"a.csv": PLAIN, "__MACOSX/._a.csv": b"x"}),
    "gzip in a zip": zipped(a=gzip.compress(PLAIN)),
    "utf-16": PLAIN.decode().encode("utf-16"),
    "utf-16-be": b"\xfe\xff" + PLAIN.decode().encode("utf-16-be"),
    "utf-32": PLAIN.decode().encode("utf-32"),
    "packed utf-16": gzip.compress(PLAIN.decode().encode("utf-16")),
}
FOREIGN = {
    "zip": zipped(a=PLAIN, b=PLAIN),
    "Excel": zipped(**{"[Content_Types].xml": b"<", "xl/workbook.xml": b"<"}),
    "torch": zipped(**{"archive/data.pkl": b"\x80", "archive/version": b"3"}),
    "tar": tarred(PLAIN, "w"),
    "tar of gzip": tarred(PLAIN, "w:gz"),
    "tar of bzip2": tarred(PLAIN, "w:bz2"),
    "zstd": b"\x28\xb5\x2f\xfd\x24\x00",
    "7z": b"7z\xbc\xaf\x27\x1c\x00\x04",
    "pickle": pickle.dumps({"src": [1, 2]}),
    "npy": npy(),
    "arrow": feather(),
    "json": b'[{"src": 1, "dst": 2, "t": 3}]',
    "json lines": b'{"src": 1, "dst": 2, "t": 3}\n{"src": 1, "dst": 2, "t": 3}\n',
    "hdf5": b"\x89HDF\r\n\x1a\n\x00",
    "xls": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\x00",
    "sqlite": b"SQLite format 3\x00",
    "html": b"<!DOCTYPE html>\n<html>\n",
    "utf-16 without its mark": PLAIN.decode().encode("utf-16-le"),
    "half of utf-16": b"\xff\xfe1\x00,",
    "half of a zip": zipped(a=PLAIN)[:40],
    "half of gzip": gzip.compress(PLAIN)[:20],
    "half of xz": lzma.compress(PLAIN)[:40],
    "a packed Parquet": gzip.compress(b"PAR1\x15\x04"),
}


@pytest.mark.parametrize("end", [".csv", ".npz", ".GZ", ""])
@pytest.mark.parametrize("form", READ)
def test_a_packed_table_is_read_whatever_its_name_ends_with(tmp_path, form, end):
    found = events_of(described(tmp_path / f"a{end}", READ[form]))
    assert (found.src.tolist(), found.dst.tolist()) == ([0, 1], [1, 2])


@pytest.mark.parametrize("form", FOREIGN)
def test_what_is_no_table_is_named_and_refused(tmp_path, form):
    with pytest.raises(DataError, match=r"a\.csv is |a\.csv unpacks") as caught:
        described(tmp_path / "a.csv", FOREIGN[form])
    assert caught.value.hint or "is not " in str(caught.value)


def test_arrays_are_known_by_their_content(tmp_path):
    columns = {"src": [1, 2], "dst": [2, 3], "t": [1, 2]}
    parquet.write_table(pa.table(columns), tmp_path / "a.csv")
    with open(tmp_path / "b.txt", "wb") as file:
        np.savez(file, **columns)
    for name in ("a.csv", "b.txt"):
        assert len(events_of(describe_file(tmp_path / name).card)) == 2


JODIE = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n"


@pytest.mark.parametrize("width", [1, 2, 5])
def test_the_last_name_of_jodies_header_stands_for_all_features(tmp_path, width):
    rows = "".join(f"{k % 2},{k},{k}.0,{k % 2}{',0.5' * width}\n" for k in range(4))
    found = events_of(described(tmp_path / "a.csv", JODIE + rows, bipartite=True))
    assert (found.num_src, found.label.tolist()) == (2, [0, 1, 0, 1])
    plain = described(tmp_path / "b.csv", JODIE + rows, columns="src=1,dst=2,t=timestamp")
    assert events_of(plain).edge_feat is None
    if width > 1:
        assert found.edge_feat.shape == (4, width)
        with pytest.raises(DataError, match="line 2"):  # a name short, and nobody says which
            described(tmp_path / "c.csv", JODIE.replace("features", "x") + rows)


@pytest.mark.parametrize("value", ["", "yes", "0.5"])
def test_a_column_that_nobody_asked_for_is_left_out_where_it_cannot_be_read(tmp_path, value):
    text = f"src,dst,t,weight,label\n1,2,3,0.5,1\n1,2,4,1.5,{value}\n"
    found = events_of(described(tmp_path / "a.csv", text))
    assert (found.label, found.weight.tolist()) == (None, [0.5, 1.5])
    with pytest.raises(DataError, match=r"line 3: the column `label`"):
        described(tmp_path / "a.csv", text, columns="src=src,dst=dst,t=t,label=label")


def test_a_label_may_be_written_as_a_float(tmp_path):
    card = described(tmp_path / "a.csv", ",u,i,ts,label,idx\n0,1,2,0.0,0.0,1\n1,1,2,1.0,1.0,2\n")
    assert events_of(card).label.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("header", "rows", "said"),
    [
        ("user_id,item_id,t", ((0, 0), (1, 0)), True),
        ("user,item,t", ((0, 5), (1, 6)), False),
        ("src,dst,t", ((0, 0), (1, 0)), False),
    ],
)
def test_two_kinds_that_share_numbers_are_said(tmp_path, header, rows, said):
    lines_ = "".join(f"{a},{b},{k}\n" for k, (a, b) in enumerate(rows))
    (tmp_path / "a.csv").write_text(f"{header}\n{lines_}")
    for bipartite in (False, True):
        sentences = describe_file(tmp_path / "a.csv", FileOptions(bipartite=bipartite)).sentences
        assert any("--bipartite" in s for s in sentences) is (said and not bipartite)


@pytest.mark.parametrize(
    ("first", "unit"),
    [
        ("2020-01-01", "s"),
        ("2020-01-01 00:00:01", "s"),
        ("2020-01-01 00:00:00.5", "ms"),
        ("2020-01-01T00:00:00.000500Z", "us"),
        ("2020-01-01 00:00:00.000000005", "ns"),
        ("1500-01-01 00:00:00", "s"),
    ],
)
def test_a_card_names_the_unit_that_times_are_kept_in(tmp_path, first, unit):
    zone = "Z" if first.endswith("Z") else ""
    last = "2020-01-02" if len(first) == 10 else f"2020-01-02T00:00:00{zone}"
    text = f"src,dst,t\n1,2,{first}\n2,3,{last}\n"
    assert described(tmp_path / "a.csv", text).time_unit == unit
    with pytest.raises(InvalidInputError, match="--time-unit"):
        described(tmp_path / "a.csv", text, time_unit="day")


def test_the_unit_of_numbers_is_the_one_that_is_said(tmp_path):
    text = "src,dst,t\n1,2,3\n2,3,4\n"
    seconds = {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60, "h": 3600, "day": 86400}
    for unit in ("", "step", *seconds):
        assert described(tmp_path / "a.csv", text, time_unit=unit).unit_s == seconds.get(unit)
    with pytest.raises(InvalidInputError, match="--time-unit is 'fortnight'"):
        described(tmp_path / "a.csv", text, time_unit="fortnight")


@pytest.mark.parametrize(
    ("unit", "seconds"), [("5 min", 300.0), ("week", 604800.0), ("none", None), ("x min", None)]
)
def test_units_of_published_cards(unit, seconds):
    assert DatasetCard(name="a", title="a", about="", time_unit=unit).unit_s == seconds


def test_a_name_that_is_no_utf8_is_refused(tmp_path):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/Z\xfcrich.csv"))
    path.write_bytes(PLAIN)
    with pytest.raises(InvalidInputError, match="UTF-8"):
        describe_file(path)


@pytest.mark.parametrize("mark", [None, "", "%"])
def test_lines_taken_as_comments_are_counted_and_can_be_kept(tmp_path, mark):
    (tmp_path / "a.csv").write_text("#rain,ann,1\n#sun,bob,2\nwind,ann,3\nwind,bob,4\n")
    found = describe_file(tmp_path / "a.csv", FileOptions(comment=mark))
    assert found.card.forms[0].counts.edges == (2 if mark is None else 4)
    assert ("'#'" in found.sentences[0]) is (mark is None)


def test_no_half_of_a_card_is_left_where_the_disk_is_full(tmp_path, own_cache):
    card = described(tmp_path / "a.csv", PLAIN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(InvalidInputError, match="cannot be written"):
            keep_card(card)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list((own_cache / "cards").iterdir())
    assert keep_card(card).is_file()
