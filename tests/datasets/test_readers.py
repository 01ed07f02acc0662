import gzip
import json
import zipfile

import numpy as np
import pytest

from dgbench.datasets.catalogue import ReaderSpec
from dgbench.datasets.readers import signals, tables
from dgbench.datasets.readers.columns import compact
from dgbench.datasets.readers.raw import read_bytes
from dgbench.runtime.errors import DataError


def table(tmp_path, text, name="x.csv", **spec):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return tables.read_table([path], ReaderSpec(format="table", **spec))


COLUMNS = ("src", "dst", "t")


def test_comma_header_and_compact_ids(tmp_path):
    raw = table(tmp_path, "u,i,ts,label\n7,30,5,0\n9,7,6,1\n", columns=(*COLUMNS, "label"), skip=1)
    assert raw.src.tolist() == [0, 1]
    assert raw.dst.tolist() == [2, 0]
    assert raw.t.tolist() == [5.0, 6.0]
    assert raw.label.tolist() == [0, 1]
    assert (raw.num_nodes, raw.num_src) == (3, None)


def test_spaces_gzip_and_comments(tmp_path):
    raw = table(
        tmp_path,
        "% a comment\n%\n1 2 1.5\n2 1 2.5",
        name="x.txt.gz",
        columns=COLUMNS,
        delimiter="space",
        comment="%",
    )
    assert raw.t.tolist() == [1.5, 2.5]


def test_bipartite_sides_have_their_own_numbers(tmp_path):
    raw = table(tmp_path, "4,4,0\n9,4,1\n4,8,2\n", columns=COLUMNS, ids="bipartite")
    assert raw.src.tolist() == [0, 1, 0]
    assert raw.dst.tolist() == [2, 2, 3]
    assert (raw.num_nodes, raw.num_src) == (4, 2)


def test_names_are_numbered_in_order_of_appearance(tmp_path):
    raw = table(
        tmp_path,
        "B1,zoe,5,10\nA1,adam,4,11\nB1,adam,3,12\n",
        columns=("dst", "src", "weight", "t"),
        ids="names-bipartite",
    )
    assert raw.src.tolist() == [0, 1, 1]
    assert raw.dst.tolist() == [2, 3, 2]
    assert raw.weight.tolist() == [5, 4, 3]


def test_dates_rest_and_skipped_columns(tmp_path):
    raw = table(
        tmp_path,
        "1,2,2000-01-02,zzz,0.5,1.5\n",
        columns=(*COLUMNS, "skip", "rest"),
        time="date",
    )
    assert raw.t.tolist() == [946771200.0]
    assert raw.edge_feat.tolist() == [[0.5, 1.5]]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_may_end_in_any_way(tmp_path, end):
    """A comment that ends with a lone return once took the first row with it."""
    lines = ["% a comment", "head", "1 2 1.5", "2 1 2.5", ""]
    spec = {"columns": COLUMNS, "delimiter": "space", "comment": "%", "skip": 1}
    assert table(tmp_path, end.join(lines), **spec).t.tolist() == [1.5, 2.5]


@pytest.mark.parametrize("text", ["", "u,i,ts\n"])
@pytest.mark.parametrize("ids", ["compact", "bipartite", "keep", "names", "names-bipartite"])
def test_a_table_without_rows(tmp_path, text, ids):
    raw = table(tmp_path, text, columns=COLUMNS, skip=1, ids=ids)
    assert raw.src.size == raw.dst.size == raw.t.size == raw.num_nodes == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1,2,3\n1,-2,3\n", r"line 2: dst = -2; ids must be >= 0"),
        ("1,2\n", "2 columns in its first row; its card says 3"),
        ("1,2,3\n1,2\n", "Expected 3 columns, got 2"),
        ("1,2,3\n1,x,3\n", "x"),
        ("1,2,3\n1,,3\n", "line 2: the column `dst` is empty"),
        ("1,99999999999999999999,3\n", "99999999999999999999"),
        ("1,2,soon\n", "soon"),
    ],
)
def test_a_bad_row_is_named(tmp_path, text, words):
    with pytest.raises(DataError, match=words):
        table(tmp_path, text, columns=COLUMNS)


def test_a_bad_date_is_named(tmp_path):
    with pytest.raises(DataError, match="YYYY-MM-DD"):
        table(tmp_path, "1,2,yesterday\n", columns=COLUMNS, time="date")
    with pytest.raises(DataError, match=r"line 2: .* before year 1"):
        table(tmp_path, "1,2,0001-01-01\n1,2,0000-12-31\n", columns=COLUMNS, time="date")


@pytest.mark.parametrize("cut", [5, 12, -4])
def test_a_truncated_gzip_is_refused(tmp_path, cut):
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"1,2,3\n" * 50)[:cut])
    with pytest.raises(DataError, match="not a whole gzip file"):
        tables.read_table([path], ReaderSpec(format="table", columns=COLUMNS))


@pytest.mark.parametrize("ids", [[], [0], [5, 5, 2], [10**15, 3, 10**15, 0], [2**62]])
def test_compact_keeps_the_order_of_ids(ids):
    array = np.array(ids, np.int64)
    got, count = compact(array)
    rank = {v: k for k, v in enumerate(sorted(set(ids)))}
    assert got.tolist() == [rank[v] for v in ids]
    assert count == len(rank)


def test_amlsim_joins_its_two_files(tmp_path):
    nodes, rows = tmp_path / "n.csv", tmp_path / "t.csv"
    nodes.write_text("nodeid,isFraud,init_balance,fraudStep\n0,0,0,-1\n1,1,9,4\n2,0,99,-1\n")
    rows.write_text("sourceNodeId,targetNodeId,value,time\n0,1,5.5,1\n")
    spec = ReaderSpec(
        format="amlsim", columns=("src", "dst", "weight", "t"), skip=1, ids="keep", nodes=3
    )
    raw = tables.read_amlsim([rows, nodes], spec)
    np.testing.assert_allclose(raw.node_feat[:, 0], np.log([1, 10, 100]), rtol=1e-6)
    assert raw.num_nodes == 3
    nodes.write_text("nodeid,isFraud,init_balance,fraudStep\n1,0,0,-1\n")
    with pytest.raises(DataError, match="lists 1 accounts"):
        tables.read_amlsim([rows, nodes], spec)


def write(tmp_path, tree):
    path = tmp_path / "x.json.gz"
    path.write_bytes(gzip.compress(json.dumps(tree).encode()))
    return [path]


KEEP = ReaderSpec(format="json", ids="keep")


def covid():
    return {
        "edge_mapping": {
            "edge_index": {"1": [[1, 0]], "0": [[0, 1], [1, 1]]},
            "edge_weight": {"0": [3.0, 4.0], "1": [5.0]},
        },
        "time_periods": 2,
        "y": [[1, 2], [3, 2]],
    }


def test_covid_days_are_put_in_order(tmp_path):
    got = signals.read_covid(write(tmp_path, covid()), KEEP)
    assert got.src.tolist() == [0, 1, 1]
    assert got.dst.tolist() == [1, 1, 0]
    assert got.step.tolist() == [0, 0, 1]
    assert got.weight.tolist() == [3, 4, 5]
    assert got.targets.tolist() == [[-1, 0], [1, 0]]
    assert (got.num_nodes, got.steps, got.static) == (2, 2, False)


def test_covid_faults(tmp_path):
    tree = covid()
    del tree["edge_mapping"]["edge_index"]["1"]
    with pytest.raises(DataError, match="day 1 of 2 is missing"):
        signals.read_covid(write(tmp_path, tree), KEEP)
    tree = covid()
    tree["edge_mapping"]["edge_weight"]["0"].pop()
    with pytest.raises(DataError, match="numbers of edges and of weights differ"):
        signals.read_covid(write(tmp_path, tree), KEEP)
    tree = covid()
    tree["y"][1] = [1]
    with pytest.raises(DataError, match="equal rows"):
        signals.read_covid(write(tmp_path, tree), KEEP)
    tree = covid()
    tree["y"][1] = ["many", 2]
    with pytest.raises(DataError, match="not the JSON its card describes"):
        signals.read_covid(write(tmp_path, tree), KEEP)


def test_tennis(tmp_path):
    hour = {"index": 0, "edges": [[0, 1]], "weights": [2], "y": [0, 1], "X": [[0, 1], [3, 0]]}
    empty = {"index": 1, "edges": [], "weights": [], "y": [0, 0], "X": [[0, 0], [0, 0]]}
    got = signals.read_tennis(write(tmp_path, {"0": hour, "1": empty, "time_periods": 2}), KEEP)
    assert got.step.tolist() == [0]
    np.testing.assert_allclose(got.targets, np.log([[1, 2], [1, 1]]), rtol=1e-6)
    assert got.native.shape == (2, 2, 2)
    with pytest.raises(DataError, match="lacks a step"):
        signals.read_tennis(write(tmp_path, {"0": hour, "time_periods": 2}), KEEP)


def test_chickenpox_and_montevideo(tmp_path):
    tree = {"edges": [[0, 1], [1, 1]], "node_ids": {"A": 0, "B": 1}, "FX": [[1, 2]] * 3}
    got = signals.read_chickenpox(write(tmp_path, tree), KEEP)
    assert (got.static, got.steps, got.num_nodes) == (True, 3, 2)
    assert got.targets.shape == (3, 2)
    stops = [{"bus_stop": 70, "y": [0, 2]}, {"bus_stop": 30, "y": [5, 5]}]
    tree = {"nodes": stops, "links": [{"source": 30, "target": 70, "weight": 1.5}]}
    got = signals.read_montevideo(write(tmp_path, tree), KEEP)
    assert (got.src.tolist(), got.dst.tolist(), got.weight.tolist()) == ([1], [0], [1.5])
    assert got.targets.tolist() == [[-1, 0], [1, 0]]
    tree["links"][0]["target"] = 31
    with pytest.raises(DataError, match="unknown stop 31"):
        signals.read_montevideo(write(tmp_path, tree), KEEP)


@pytest.mark.parametrize("key", ["flow", "data"])
def test_pems(tmp_path, key):
    flow = np.arange(12, dtype=np.int16).reshape(4, 3)
    values = flow if key == "flow" else np.stack([flow, flow * 0, flow * 0], 2)
    np.savez(tmp_path / "p.npz", **{key: values})
    (tmp_path / "d.csv").write_text("from,to,cost\n0,1,10.5\n2,1,3\n")
    got = signals.read_pems([tmp_path / "p.npz", tmp_path / "d.csv"], KEEP)
    assert (got.static, got.steps, got.num_nodes) == (True, 4, 3)
    np.testing.assert_allclose(got.targets, (flow - flow.mean()) / flow.std(), rtol=1e-6)


def test_pems_never_unpickles(tmp_path):
    np.savez(tmp_path / "p.npz", flow=np.array([{"a": 1}], dtype=object))
    (tmp_path / "d.csv").write_text("from,to,cost\n0,1,10.5\n")
    with pytest.raises(DataError, match="not a readable npz"):
        signals.read_pems([tmp_path / "p.npz", tmp_path / "d.csv"], KEEP)
    (tmp_path / "p.npz").write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(DataError, match="not a readable npz"):
        signals.read_pems([tmp_path / "p.npz", tmp_path / "d.csv"], KEEP)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"time_periods": 0, "y": []}, "`time_periods` is 0"),
        ({"time_periods": -1}, "`time_periods` is -1"),
        ({"y": [[], []]}, "must be a table"),
        ({"y": [[1e300, 0], [0, 0]]}, "fit float32"),
        ({"edge_mapping": {"edge_index": {"0": [[0, 2**63]], "1": []},
                           "edge_weight": {"0": [1], "1": []}}}, "does not fit int64"),
        ({"edge_mapping": {"edge_index": {"0": [[0, 1]], "1": []},
                           "edge_weight": {"0": [1e39], "1": []}}}, "weight does not fit float32"),
    ],
)  # fmt: skip
def test_covid_that_would_become_nonsense(tmp_path, change, words):
    with pytest.raises(DataError, match=words):
        signals.read_covid(write(tmp_path, covid() | change), KEEP)


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"\xff": 2}', b""])
@pytest.mark.parametrize(
    "read",
    [signals.read_covid, signals.read_tennis, signals.read_chickenpox, signals.read_montevideo],
)
def test_json_that_is_none(tmp_path, text, read):
    (tmp_path / "x.json").write_bytes(text)
    with pytest.raises(DataError, match=r"not the JSON|lacks a step"):
        read([tmp_path / "x.json"], KEEP)


def test_tennis_with_ragged_features_or_without_hours(tmp_path):
    hour = {"edges": [], "weights": [], "y": [0, 1], "X": [[0, 1], [3]]}
    with pytest.raises(DataError, match="equal rows"):
        signals.read_tennis(write(tmp_path, {"0": hour, "time_periods": 1}), KEEP)
    odd = hour | {"X": [[0, 1]]}
    with pytest.raises(DataError, match="equal rows"):
        signals.read_tennis(write(tmp_path, {"0": odd, "time_periods": 1}), KEEP)
    with pytest.raises(DataError, match="less than 0 times"):
        signals.read_tennis(write(tmp_path, {"0": hour | {"y": [0, -1]}, "time_periods": 1}), KEEP)
    with pytest.raises(DataError, match="at least 1"):
        signals.read_tennis(write(tmp_path, {"time_periods": 0}), KEEP)


def test_two_stops_of_one_number_are_refused(tmp_path):
    """The later one would take the lines of both, and a vertex would be left without any."""
    stops = [{"bus_stop": 7, "y": [0, 2]}, {"bus_stop": 7, "y": [5, 5]}]
    with pytest.raises(DataError, match="2 stops have 1 numbers"):
        signals.read_montevideo(write(tmp_path, {"nodes": stops, "links": []}), KEEP)


def npz(tmp_path, head, data=b"", name="flow.npy"):
    text = repr(head).encode() + b"\n"
    with zipfile.ZipFile(tmp_path / "p.npz", "w", zipfile.ZIP_DEFLATED) as store:
        store.writestr(name, b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data)
    (tmp_path / "d.csv").write_text("from,to,cost\n0,1,10.5\n")
    return [tmp_path / "p.npz", tmp_path / "d.csv"]


@pytest.mark.parametrize(
    ("shape", "kind", "size", "words"),
    [
        ((10**6, 10**6), "<f8", 64, "not a readable npz"),  # 8 TB in a file of 200 bytes
        ((2, 2), "<U3", 48, "numbers are allowed"),
        ((2, 2), "<c8", 32, "numbers are allowed"),
        ((2, 2), "<M8[s]", 32, "numbers are allowed"),
        ((2, 2), "|b1", 4, "numbers are allowed"),
        ((2, 2), "(", 4, "not a readable npz"),
        ((-2, 2), "<f8", 64, "not a readable npz"),
        ((0, 2), "<f8", 0, "must be a table"),
        ((2, 2, 0), "<f8", 0, "must be a table"),
        ((4,), "<f8", 32, "must be a table"),
        ((2, 3), "<f8", 40, "not a readable npz"),
    ],
)
def test_arrays_that_are_refused(tmp_path, shape, kind, size, words):
    head = {"descr": kind, "fortran_order": False, "shape": shape}
    with pytest.raises(DataError, match=words):
        signals.read_pems(npz(tmp_path, head, bytes(size)), KEEP)


def test_an_array_that_is_bytes_or_a_broken_head_is_refused(tmp_path):
    paths = npz(tmp_path, "{'descr': (")
    with pytest.raises(DataError, match="not a readable npz"):
        signals.read_pems(paths, KEEP)
    with zipfile.ZipFile(paths[0], "w") as store:
        store.writestr("flow.npy", b"no array")
    with pytest.raises(DataError, match="not a readable npz"):
        signals.read_pems(paths, KEEP)


def test_a_packed_bomb_stops_at_the_cap(tmp_path):
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(bytes(1_000_000)) * 3)
    assert len(read_bytes(path)) == 3_000_000
    assert len(read_bytes(path, 3_000_000)) == 3_000_000
    with pytest.raises(DataError, match="more than 2,999,999 bytes"):
        read_bytes(path, 2_999_999)
