"""A file of somebody's events becomes a dataset: it is read as it is meant, or refused by line."""

from __future__ import annotations

import bz2
import datetime
import decimal
import gzip
import lzma
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from packing import arrays, tarred, written, zipped
from pyarrow import feather, parquet

from dgbench.datasets import own_data
from dgbench.datasets.catalogue import DatasetCard, offer_card
from dgbench.datasets.guessing import FileOptions
from dgbench.datasets.opening import open_events, open_snapshots
from dgbench.datasets.own_data import describe_file
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
        ("a.csv", 'src, dst, t\n7, 30, 5\n 30 ,"9"\t, 6\n7, 9, 6\n9, 7, 11\n'),
        ("a.csv", "\ufeffsrc,dst,t\n" + lines(",")),
        ("a.csv", 'src,dst,t,"a\nnote"\n' + lines(",", [(*row, '"two\nlines"') for row in ROWS])),
    ],
)
def test_the_same_events_are_found_however_they_are_written(tmp_path, name, text):
    found = events_of(described(tmp_path / name, text))
    assert found.src.tolist() == SRC
    assert found.dst.tolist() == DST
    assert found.t.tolist() == TIMES
    assert (found.num_nodes, found.num_src) == (3, None)


BASE = 1_600_000_000_000_000_000


def table_file(path: Path, **columns) -> Path:
    """A file of these columns, of the kind that its name ends with."""
    if path.suffix == ".parquet":
        parquet.write_table(pa.table(columns), path)
    elif path.suffix == ".npz":
        np.savez(path, **columns)
    else:
        text = ",".join(columns) + "\n" + lines(",", zip(*columns.values(), strict=True))
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


KINDS = ["a.csv", "a.csv.gz", "a.parquet", "a.npz"]


@pytest.mark.parametrize("name", KINDS)
def test_nanoseconds_stay_apart(tmp_path, name):
    times = [BASE + k for k in (0, 1, 250)]
    path = table_file(tmp_path / name, src=[1, 1, 3], dst=[2, 2, 1], t=times)
    events = events_of(describe_file(path).card)
    assert (events.src.tolist(), events.dst.tolist()) == ([0, 0, 2], [1, 1, 0])
    assert events.t.tolist() == [0.0, 1.0, 250.0]
    assert any(str(BASE) in note for note in events.origin.notes)


def test_decimals_stay_apart_and_what_float64_cannot_hold_is_refused(tmp_path):
    text = "src,dst,t\n1,2,1600000000.000000001\n1,2,1600000000.000000002\n"
    assert np.allclose(events_of(described(tmp_path / "a.csv", text)).t, [0, 1e-9], rtol=1e-6)
    plain = "src,dst,t\n1,2,0.30000000000000004\n1,2,1600000000.1234567\n"  # what floats print
    kept = events_of(described(tmp_path / "b.csv", plain))
    assert kept.t.tolist() == [0.30000000000000004, 1600000000.1234567]
    with pytest.raises(DataError, match=r"a\.csv, line 3: .*2\*\*53"):
        described(tmp_path / "a.csv", f"src,dst,t\n1,2,0\n1,2,{2**53 + 1}\n")


def test_dates_and_clocks_become_unix_seconds(tmp_path):
    days = "src,dst,day\n1,2,1970-01-02\n1,2,1970-01-03\n"
    found = events_of(described(tmp_path / "a.csv", days, columns="src=src,dst=dst,t=day"))
    assert found.t.tolist() == [86400.0, 172800.0]
    clocks = "src,dst,t\n1,2,1970-01-01 00:00:10\n1,2,1970-01-01T00:01:00\n"
    assert events_of(described(tmp_path / "b.csv", clocks)).t.tolist() == [10.0, 60.0]
    fine = "src,dst,t\n1,2,2020-01-01 00:00:00.001Z\n1,2,2020-01-01 00:00:01Z\n"
    assert events_of(described(tmp_path / "c.csv", fine)).t.diff().tolist() == [999.0]
    (tmp_path / "d.csv").write_text("src,dst,t\n1,2,9\n2,1,3\n")
    unsorted = describe_file(tmp_path / "d.csv").card
    assert not unsorted.forms[0].reader.sorted
    assert events_of(unsorted).t.tolist() == [3.0, 9.0]


def test_weights_labels_and_features_come_along(tmp_path):
    text = "a,b,c,w,l,x,y\n1,2,3,0.5,1,7,8\n2,1,4,-1,0,9,10\n"
    columns = "src=a,dst=b,t=c,weight=w,label=l,feature=y,feature=x"
    found = events_of(described(tmp_path / "a.csv", text, columns=columns))
    assert found.weight.tolist() == [0.5, -1.0]
    assert found.label.tolist() == [1, 0]
    assert found.edge_feat.tolist() == [[7, 8], [9, 10]]


@pytest.mark.parametrize(
    ("word", "labels"), [(str, [1, 2, -1]), (lambda k: f"v{k}", [1, -1, 2])], ids=["ids", "names"]
)
def test_vertices_have_labels(tmp_path, word, labels):
    text = "src,dst,t\n" + lines(",", [(word(s), word(d), t) for s, d, t in ROWS])
    vertices = tmp_path / "v.csv"
    vertices.write_text(f"id,label\n{word(9)},2\n{word(7)},1\n{word(99)},5\n")
    found = events_of(described(tmp_path / "a.csv", text, vertices=vertices))
    assert found.node_label.tolist() == labels
    assert found.select(0, 2).node_label is found.node_label
    assert sum("v.csv" in note for note in found.origin.notes) == 2
    vertices.write_text(f"id,label\n{word(9)},2\n{word(9)},1\n")
    with pytest.raises(DataError, match=r"v\.csv, line 3: the vertex .*9 is listed twice"):
        described(tmp_path / "a.csv", text, vertices=vertices)


HEAD = "src,dst,t\n"
BAD = [
    ("", "no rows"), (HEAD, "no rows"), ("# nothing\n\n", "no rows"),
    (HEAD + "1,2,1\n\n1,-2,3\n", "line 4: dst = -2"),
    (HEAD + "1,2,1\n1,2,nan\n", "line 3: .*`t`"), (HEAD + "1,2,1\n1,2,inf\n", "line 3: t is inf"),
    (HEAD + "1,2,1\n" * 300 + "x,2,3\n", "line 302: .*`src`: .*'x'"),
    (HEAD + "1,2,1\n1,2,soon\n", "line 3: .*`t`: .*'soon'"),
    ("# c\nsrc,dst,t\n# c\n1,2,1\n1,2\n", "line 5: .*2 columns"),
    ('src,dst,t,n\n1,2,1,"a\nb"\n1,2,x,c\n', "line 4: .*`t`: .*'x'"),
    (HEAD + "1,2,soon\n", "'soon'"), (HEAD + "1,2,2020-01-01\n1,2,2020-13-01\n", "line 3: "),
    (HEAD + "1,2,5\n2,3,5\n", "the time 5"),
    (HEAD + "1,2,2020-01-01 10:00:00\n1,2,later\n", "line 3: "),
    ("1 2 1 50\n3 4 1 60\n", "columns 1, 2, 3, 4"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), BAD)
def test_a_bad_file_is_refused_with_its_line(tmp_path, text, words):
    with pytest.raises(InvalidInputError, match=words) as caught:
        described(tmp_path / "a.csv", text)
    assert str(tmp_path / "a.csv") in str(caught.value) or "--columns" in caught.value.hint


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"columns": "src=src,dst=dst,t=when"}, "'when'"),
        ({"columns": "src=src,dst=dst"}, "`t`"),
        ({"columns": "source=src,dst=dst,t=t"}, "'source'"),
        ({"columns": "src=src,dst=src,t=t"}, "both src and dst"),
        ({"columns": "src=src,dst=dst,t=t,t=src"}, "`t`"),
        ({"columns": "src,dst,t"}, "'src'"),
        ({"delimiter": "komma"}, "--delimiter"),
        ({"ids": "hash"}, "--ids"),
        ({"ids": "keep", "bipartite": True}, "exclude each other"),
        ({"snapshots": 0}, "snapshots"),
        ({"time_unit": "fortnight"}, "--time-unit"),
    ],
)
def test_an_option_that_cannot_be_met_is_named(tmp_path, options, words):
    with pytest.raises(InvalidInputError, match=words):
        described(tmp_path / "a.csv", "src,dst,t\n1,2,3\n", **options)


SIDES = {"src": [1, 2], "dst": [2, 3]}
PARQUET = [
    (SIDES, "`t`"), ({"src": [1.5, 1], "dst": [2.5, 2], "t": [0, 1]}, "row 0: src = 1.5"),
    ({"src": [1, None], "dst": [2, 3], "t": [0, 1]}, "row 1: .*`src`"),
    ({"src": ["a", "<NA>"], "dst": ["b", "c"], "t": [0, 1]}, "row 1: .*`src`"),
    ({"src": [1, -1], "dst": [2, 3], "t": [0, 1]}, "row 1: src = -1"),
    ({"src": [1], "dst": [2], "t": [float("nan")]}, "row 0: t is nan"),
    ({"src": [1], "dst": [2], "t": ["soon"]}, "row 0: "),
    ({"src": [], "dst": [], "t": []}, "parquet"),
]  # fmt: skip
NPZ = [np.array(3), np.array(["NaT", "2020-01-01"], "M8[s]"), [1.0, 2 + 1j],
       np.array([1, 2], "m8[s]"), np.ones((2, 2)), np.array([{}, {}], object)]  # fmt: skip


def test_bad_arrays_are_refused(tmp_path):
    for columns, words in PARQUET:
        with pytest.raises(InvalidInputError, match=words):
            describe_file(table_file(tmp_path / "a.parquet", **columns))
    for t in NPZ:
        with pytest.raises(DataError, match=r"`t`|a\.npz"):
            describe_file(table_file(tmp_path / "a.npz", **SIDES, t=t))
    for name in ("a.parquet", "a.npz"):
        (tmp_path / name).write_bytes(b"PK\x03\x04 no such thing")
        with pytest.raises(DataError, match=name):
            describe_file(tmp_path / name)
    with pytest.raises(MissingDataError, match=r"gone\.csv"):
        describe_file(tmp_path / "gone.csv")


@pytest.mark.parametrize("name", KINDS)
def test_a_file_too_large_for_the_memory_is_refused_before_it_is_read(tmp_path, monkeypatch, name):
    path = table_file(tmp_path / name, **{k: list(range(5000)) for k in ("src", "dst", "t")})
    monkeypatch.setattr(raw, "available_memory", lambda: 30_000)
    with pytest.raises(DataError, match=name):
        describe_file(path)


def test_a_card_says_what_was_counted_and_can_be_opened_by_its_name(tmp_path):
    card = described(tmp_path / "My Trips.csv", "src,dst,t\n" + lines(",", [*ROWS, ROWS[3]]))
    assert card.name == "my-trips"
    counts = {"nodes": 3, "edges": 5, "pairs": 4, "self_edges": 0, "t_first": 5, "t_last": 11}
    assert card.forms[0].counts.known() == counts
    assert described(tmp_path / "wikipedia.csv", lines(",")).name == "own-wikipedia"
    offer_card(card)
    assert len(open_snapshots(SnapshotSpec("my-trips"))) == own_data.SNAPSHOTS


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
    quoted = events_of(described(tmp_path / "c.csv", 'src,dst,t\n"NA",DE,1\nDE,FR,2\n'))
    assert quoted.num_nodes == 3


@pytest.mark.parametrize("word", NO_NUMBERS)
def test_what_writes_no_whole_number_is_refused_with_its_line(tmp_path, word):
    text = "src,dst,t\n" + "1,2,1\n" * 300 + f"2,{word},3\n"
    with pytest.raises(DataError, match=r"a\.csv, line 302: "):
        described(tmp_path / "a.csv", text)
    with pytest.raises(DataError, match=r"a\.csv, line 2: "):
        described(tmp_path / "a.csv", f"src,dst,t\n2,{word},3\n1,2,4\n", ids="compact")


@pytest.mark.parametrize("word", LACKING)
def test_a_missing_id_is_no_vertex(tmp_path, word):
    for other in ("ann", "5"):
        for row in (f"{word},{other},2", f"{other},{word},2"):
            with pytest.raises(DataError, match=r"a\.csv, line 3: the column `(src|dst)`"):
                described(tmp_path / "a.csv", f"src,dst,t\n{other},{other},1\n{row}\n")


SIZES = {"Y": 365 * 86400, "M": 31 * 86400, "W": 7 * 86400, "D": 86400, "h": 3600, "m": 60, "s": 1,
         "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "as": 1.0}  # fmt: skip


@pytest.mark.parametrize("unit", [*SIZES, "5D", "5ms", "ps", "fs"])
def test_every_unit_of_datetime64_is_read(tmp_path, unit):
    t = np.array([1, 3], np.int64) * (10**18 if unit == "as" else 1)
    np.savez(tmp_path / "a.npz", src=[1, 2], dst=[2, 3], t=t.view(f"M8[{unit}]"))
    if unit in ("ps", "fs"):  # finer than anything that is kept
        with pytest.raises(DataError, match="the column `t`"):
            describe_file(tmp_path / "a.npz")
        return
    card = describe_file(tmp_path / "a.npz").card
    ticks = [value * card.unit_s for value in events_of(card).t.tolist()]
    size = 5 * SIZES[unit[1:]] if unit[0] == "5" else SIZES[unit]
    assert ticks[0] == pytest.approx(size)
    assert unit in ("Y", "M") or ticks[1] == pytest.approx(3 * size)


NUMBERS = [pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.decimal256(40, 0),
           pa.dictionary(pa.int8(), pa.int64())]  # fmt: skip
TEXTS = [pa.large_string(), pa.string_view(), pa.binary(), pa.dictionary(pa.int8(), pa.string())]
CLOCKS = [pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("ns"),
          pa.timestamp("us", "Europe/Paris"),
          pa.dictionary(pa.int8(), pa.timestamp("us"))]  # fmt: skip
NONE = [pa.array([True, False]), pa.array([[1], [2]]), pa.array([1, 2], pa.duration("s")),
        pa.array([1, 2], pa.time32("s")), pa.array([None, None])]  # fmt: skip


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
    found = events_of(
        describe_file(
            table_file(tmp_path / "a.parquet", src=ends[0], dst=ends[1], t=[1, 2, 3])
        ).card
    )
    assert (found.src.tolist(), found.dst.tolist()) == ([0, 1, 0], [1, 2, 2])


@pytest.mark.parametrize("kind", NUMBERS + CLOCKS, ids=str)
def test_every_arrow_type_of_times_is_read(tmp_path, kind):
    values = [datetime.datetime(1970, 1, day) for day in (2, 3)] if kind in CLOCKS else [1, 2]
    card = describe_file(table_file(tmp_path / "a.parquet", **SIDES, t=arrow(values, kind))).card
    assert events_of(card).t.diff().tolist() == ([86400.0] if kind in CLOCKS else [1.0])
    assert card.unit_s == (1.0 if kind in CLOCKS else None)


@pytest.mark.parametrize("column", NONE, ids=lambda column: str(column.type))
def test_arrow_types_that_are_no_ids_and_no_times_are_refused(tmp_path, column):
    for role in ("src", "t"):
        with pytest.raises(DataError, match=f"`{role}`"):
            describe_file(
                table_file(tmp_path / "a.parquet", **{**SIDES, "t": [1, 2], role: column})
            )


PLAIN = b"src,dst,t\n1,2,1\n2,3,2\n"
READ = {
    "gzip": gzip.compress(PLAIN),
    "bzip2": bz2.compress(PLAIN),
    "xz": lzma.compress(PLAIN),
    "a zip of a Mac": zipped({"a.csv": PLAIN, "__MACOSX/._a.csv": b"x"}),
    "gzip in a zip": zipped({"a": gzip.compress(PLAIN)}),
    "utf-16": PLAIN.decode().encode("utf-16"),
    "utf-16-be": b"\xfe\xff" + PLAIN.decode().encode("utf-16-be"),
    "parquet": written(lambda out: parquet.write_table(pa.table(SIDES | {"t": [1, 2]}), out)),
    "npz": arrays(**SIDES, t=[1, 2]),
    "packed utf-16": gzip.compress(PLAIN.decode().encode("utf-16")),
}
FOREIGN = {
    "zip": zipped({"a": PLAIN, "b": PLAIN}),
    "Excel": zipped({"[Content_Types].xml": b"<", "xl/workbook.xml": b"<"}),
    "torch": zipped({"archive/data.pkl": b"\x80", "archive/version": b"3"}),
    "tar": tarred({"a.csv": PLAIN}),
    "tar of gzip": tarred({"a.csv": PLAIN}, "w:gz"),
    "zstd": b"\x28\xb5\x2f\xfd\x24\x00",
    "pickle": pickle.dumps({"src": [1, 2]}),
    "npy": written(lambda out: np.save(out, [[1, 2, 1]])),
    "arrow": written(lambda out: feather.write_feather(pa.table(SIDES), out)),
    "json": b'[{"src": 1, "dst": 2, "t": 3}]',
    "json lines": b'{"src": 1, "dst": 2, "t": 3}\n{"src": 1, "dst": 2, "t": 3}\n',
    "hdf5": b"\x89HDF\r\n\x1a\n\x00",
    "html": b"<!DOCTYPE html>\n<html>\n",
    "utf-16 without its mark": PLAIN.decode().encode("utf-16-le"),
    "half of utf-16": b"\xff\xfe1\x00,",
    "half of a zip": zipped({"a": PLAIN})[:40],
    "half of xz": lzma.compress(PLAIN)[:40],
    "a packed Parquet": gzip.compress(b"PAR1\x15\x04"),
}


@pytest.mark.parametrize("form", READ)
def test_a_table_is_read_whatever_its_name_ends_with(tmp_path, form):
    for end in (".npz", ""):
        found = events_of(described(tmp_path / f"a{end}", READ[form]))
        assert (found.src.tolist(), found.dst.tolist()) == ([0, 1], [1, 2])


@pytest.mark.parametrize("form", FOREIGN)
def test_what_is_no_table_is_named_and_refused(tmp_path, form):
    with pytest.raises(DataError, match=r"a\.csv is |a\.csv unpacks"):
        described(tmp_path / "a.csv", FOREIGN[form])


@pytest.mark.parametrize("value", ["", "yes"])
def test_a_column_that_nobody_asked_for_is_left_out_where_it_cannot_be_read(tmp_path, value):
    text = f"src,dst,t,weight,label\n1,2,3,0.5,1\n1,2,4,1.5,{value}\n"
    found = events_of(described(tmp_path / "a.csv", text))
    assert (found.label, found.weight.tolist()) == (None, [0.5, 1.5])
    with pytest.raises(DataError, match=r"line 3: the column `label`"):
        described(tmp_path / "a.csv", text, columns="src=src,dst=dst,t=t,label=label")


def test_a_card_names_the_unit_that_times_are_kept_in(tmp_path):
    plain, dates = "src,dst,t\n1,2,3\n2,3,4\n", "src,dst,t\n1,2,2020-01-01\n2,3,2020-01-02\n"
    for unit, seconds in (("s", 1), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
        assert described(tmp_path / "b.csv", plain, time_unit=unit).unit_s == seconds
        digits = {"s": "", "ms": ".5", "us": ".0005", "ns": ".000000005"}[unit]
        text = f"src,dst,t\n1,2,2020-01-01 00:00:00{digits}\n2,3,2020-01-02T00:00:00\n"
        assert described(tmp_path / "a.csv", text).time_unit == unit
    with pytest.raises(InvalidInputError, match="--time-unit"):
        described(tmp_path / "a.csv", dates, time_unit="day")
