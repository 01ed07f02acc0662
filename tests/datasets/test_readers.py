"""Readers of published files: what they give, and what they refuse."""

import bz2
import gzip
import json
import lzma
import sys
from copy import deepcopy

import numpy as np
import pytest

from dgbench.datasets.catalogue import ReaderSpec
from dgbench.datasets.readers import signals, tables
from dgbench.datasets.readers.raw import read_bytes
from dgbench.runtime.errors import DataError
from tests.fuzz.targets.signals import CHICKENPOX, COVID, npy, zipped


def table(tmp_path, text, name="x.csv", **spec):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return tables.read_table([path], ReaderSpec(format="table", **spec))


COLUMNS = ("src", "dst", "t")


def test_ids_are_compact_or_of_two_sides_or_names(tmp_path):
    raw = table(tmp_path, "u,i,ts,label\n7,30,5,0\n9,7,6,1\n", columns=(*COLUMNS, "label"), skip=1)
    assert (raw.src.tolist(), raw.dst.tolist(), raw.t.tolist()) == ([0, 1], [2, 0], [5, 6])
    assert (raw.label.tolist(), raw.num_nodes, raw.num_src) == ([0, 1], 3, None)
    raw = table(tmp_path, "4,4,0\n9,4,1\n4,8,2\n", columns=COLUMNS, ids="bipartite")
    assert (raw.src.tolist(), raw.dst.tolist()) == ([0, 1, 0], [2, 2, 3])
    assert (raw.num_nodes, raw.num_src) == (4, 2)
    text = "B1,zoe,5,10\nA1,adam,4,11\nB1,adam,3,12\n"
    raw = table(tmp_path, text, columns=("dst", "src", "weight", "t"), ids="names-bipartite")
    assert (raw.src.tolist(), raw.dst.tolist()) == ([0, 1, 1], [2, 3, 2])
    assert raw.weight.tolist() == [5, 4, 3]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_may_end_in_any_way(tmp_path, end):
    """A comment that ends with a lone return once took the first row with it."""
    lines = ["% a comment", "head", "1 2 1.5", "2 1 2.5", ""]
    spec = {"columns": COLUMNS, "delimiter": "space", "comment": "%", "skip": 1}
    for name in ("x.txt", "x.txt.gz"):
        assert table(tmp_path, end.join(lines), name, **spec).t.tolist() == [1.5, 2.5]


@pytest.mark.parametrize("ids", ["compact", "bipartite", "keep", "names", "names-bipartite"])
def test_a_table_without_rows(tmp_path, ids):
    for text in ("", "u,i,ts\n"):
        raw = table(tmp_path, text, columns=COLUMNS, skip=1, ids=ids)
        assert raw.src.size == raw.dst.size == raw.t.size == raw.num_nodes == 0


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_packed_file_is_whole_and_no_bomb(tmp_path, pack):
    end = {gzip: "gz", bz2: "bz2", lzma: "xz"}[sys.modules[pack.__module__]]
    path = tmp_path / f"x.csv.{end}"
    whole = pack(b"1,2,3\n" * 5000)
    for cut in (5, 12, -4, -9):
        path.write_bytes(whole[:cut])
        with pytest.raises(DataError, match=f"x.csv.{end}"):
            tables.read_table([path], ReaderSpec(format="table", columns=COLUMNS))
    path.write_bytes(pack(bytes(1_000_000)) * 3)
    assert len(read_bytes(path, 3_000_000)) == len(read_bytes(path)) == 3_000_000
    with pytest.raises(DataError):
        read_bytes(path, 2_999_999)


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
    with pytest.raises(DataError, match="accounts"):
        tables.read_amlsim([rows, nodes], spec)


def write(tmp_path, tree):
    path = tmp_path / "x.json.gz"
    path.write_bytes(gzip.compress(json.dumps(tree).encode()))
    return [path]


KEEP = ReaderSpec(format="json", ids="keep")


def test_covid_days_are_put_in_order(tmp_path):
    got = signals.read_covid(write(tmp_path, COVID), KEEP)
    assert got.src.tolist() == [0, 1, 1]
    assert got.dst.tolist() == [1, 1, 0]
    assert got.step.tolist() == [0, 0, 1]
    assert got.weight.tolist() == [3, 4, 5]
    assert got.targets.tolist() == [[-1, 0], [1, 0]]
    assert (got.num_nodes, got.steps, got.static) == (2, 2, False)


def without_a_day(tree):
    del tree["edge_mapping"]["edge_index"]["1"]


def one_edge(ends, weight):
    lists = {"edge_index": {"0": [ends], "1": []}, "edge_weight": {"0": [weight], "1": []}}
    return lambda tree: tree.update(edge_mapping=lists)


NONSENSE = {
    "day 1 of 2": without_a_day,
    "edges and of weights": lambda tree: tree["edge_mapping"]["edge_weight"]["0"].pop(),
    "equal rows": lambda tree: tree["y"].__setitem__(1, [1]),
    "JSON": lambda tree: tree["y"].__setitem__(1, ["many", 2]),
    "`time_periods` is 0": lambda tree: tree.update(time_periods=0, y=[]),
    "`time_periods` is -1": lambda tree: tree.update(time_periods=-1),
    "a table": lambda tree: tree.update(y=[[], []]),
    "float32": lambda tree: tree.update(y=[[1e300, 0], [0, 0]]),
    "int64": one_edge([0, 2**63], 1),
    "weight .*float32": one_edge([0, 1], 1e39),
}


@pytest.mark.parametrize("words", NONSENSE)
def test_covid_that_would_become_nonsense(tmp_path, words):
    tree = deepcopy(COVID)
    NONSENSE[words](tree)
    with pytest.raises(DataError, match=words):
        signals.read_covid(write(tmp_path, tree), KEEP)


def test_tennis(tmp_path):
    hour = {"index": 0, "edges": [[0, 1]], "weights": [2], "y": [0, 1], "X": [[0, 1], [3, 0]]}
    empty = {"index": 1, "edges": [], "weights": [], "y": [0, 0], "X": [[0, 0], [0, 0]]}
    got = signals.read_tennis(write(tmp_path, {"0": hour, "1": empty, "time_periods": 2}), KEEP)
    assert got.step.tolist() == [0]
    np.testing.assert_allclose(got.targets, np.log([[1, 2], [1, 1]]), rtol=1e-6)
    assert got.native.shape == (2, 2, 2)
    for change in ({}, {"time_periods": 1, "0": hour | {"y": [0, -1]}}, {"time_periods": 0}):
        with pytest.raises(DataError):
            signals.read_tennis(write(tmp_path, {"0": hour, "time_periods": 2} | change), KEEP)


def test_chickenpox_and_montevideo(tmp_path):
    got = signals.read_chickenpox(write(tmp_path, CHICKENPOX), KEEP)
    assert (got.static, got.steps, got.num_nodes) == (True, 3, 2)
    assert got.targets.shape == (3, 2)
    stops = [{"bus_stop": 70, "y": [0, 2]}, {"bus_stop": 30, "y": [5, 5]}]
    tree = {"nodes": stops, "links": [{"source": 30, "target": 70, "weight": 1.5}]}
    got = signals.read_montevideo(write(tmp_path, tree), KEEP)
    assert (got.src.tolist(), got.dst.tolist(), got.weight.tolist()) == ([1], [0], [1.5])
    assert got.targets.tolist() == [[-1, 0], [1, 0]]
    tree["links"][0]["target"] = 31
    with pytest.raises(DataError, match="31"):
        signals.read_montevideo(write(tmp_path, tree), KEEP)
    tree = {"nodes": [stops[0], {**stops[1], "bus_stop": 70}], "links": []}
    with pytest.raises(DataError, match="stops"):  # the later would take the lines of both
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


@pytest.mark.parametrize("name", ["covid", "tennis", "chickenpox", "montevideo"])
def test_json_that_is_none(tmp_path, name):
    for text in (b"[" * 100_000, b'{"\xff": 2}', b""):
        (tmp_path / "x.json").write_bytes(text)
        with pytest.raises(DataError, match=r"JSON|step"):
            getattr(signals, f"read_{name}")([tmp_path / "x.json"], KEEP)


ARRAYS = [
    ((10**6, 10**6), "<f8", 64),  # 8 TB in a file of 200 bytes
    ((2, 2), "<U3", 48), ((2, 2), "<c8", 32), ((2, 2), "<M8[s]", 32), ((2, 2), "|b1", 4),
    ((2, 2), "(", 4), ((-2, 2), "<f8", 64), ((0, 2), "<f8", 0), ((2, 2, 0), "<f8", 0),
    ((4,), "<f8", 32), ((2, 3), "<f8", 40),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "kind", "size"), ARRAYS)
def test_arrays_that_are_refused(tmp_path, shape, kind, size):
    (tmp_path / "p.npz").write_bytes(zipped("flow.npy", npy(shape, kind, size)))
    (tmp_path / "d.csv").write_text("from,to,cost\n0,1,10.5\n")
    with pytest.raises(DataError, match=r"p\.npz"):
        signals.read_pems([tmp_path / "p.npz", tmp_path / "d.csv"], KEEP)
