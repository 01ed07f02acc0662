"""Graphs with native signals: PyG-Temporal's JSON files and PEMS08's arrays."""

from __future__ import annotations

import functools
import io
import json
import zipfile

import numpy as np

from dgbench.datasets.catalogue import DatasetVariant, FileRef, ReaderSpec
from dgbench.datasets.readers import read
from dgbench.datasets.readers.raw import Signals
from dgbench.datasets.shaping import check_signals
from tests.fuzz.target import sane, scratch, target

NUMBERS = (
    *(b"-1", b"1e400", b"1e39", b"-1e308", b"9223372036854775808", b"18446744073709551616"),
    *(b"1.5", b"1e2", b"null", b"[]", b"{}", b"true", b'""', b"NaN", b"-0", b'"0"', b"[[]]"),
    *(b"[" * 3000, b'{"a":' * 3000, b"\\ud800", b'"\xff"', b"9" * 400),
)


def open_signals(data: bytes, format: str) -> None:
    path = scratch(format) / "data.json"
    path.write_bytes(data)
    reader = ReaderSpec(format=format, ids="keep")
    check(
        read(DatasetVariant(name="held", files=(FileRef(path="data.json"),), reader=reader), [path])
    )


def check(found: Signals) -> None:
    """Entries inside the graph, one weight an entry, all numbers finite, shapes as promised."""
    check_signals(found)
    entries = found.src.size
    sane(found.dst.size == found.step.size == entries, "columns differ in length")
    last = 1 if found.static else found.steps
    sane(not entries or 0 <= found.step.min() <= found.step.max() < last, "a step out of range")
    if found.weight is not None:
        sane(found.weight.shape == (entries,), "not one weight an entry")
        sane(np.isfinite(found.weight).all(), "a weight that is not finite")
    sane(found.steps > 0 and found.num_nodes > 0, "a graph of nothing")


COVID = {
    "edge_mapping": {
        "edge_index": {"1": [[1, 0]], "0": [[0, 1], [1, 1]]},
        "edge_weight": {"0": [3.0, 4.0], "1": [5.0]},
    },
    "time_periods": 2,
    "y": [[1, 2], [3, 2]],
}
HOUR = {"index": 0, "edges": [[0, 1]], "weights": [2], "y": [0, 1], "X": [[0, 1], [3, 0]]}
TENNIS = {"0": HOUR, "1": HOUR | {"edges": [], "weights": []}, "time_periods": 2}
CHICKENPOX = {"edges": [[0, 1], [1, 1]], "node_ids": {"A": 0, "B": 1}, "FX": [[1, 2]] * 3}
MONTEVIDEO = {
    "nodes": [{"bus_stop": 70, "y": [0, 2]}, {"bus_stop": 30, "y": [5, 5]}],
    "links": [{"source": 30, "target": 70, "weight": 1.5}],
}


for name, tree in (
    ("covid", COVID), ("tennis", TENNIS), ("chickenpox", CHICKENPOX), ("montevideo", MONTEVIDEO),
):  # fmt: skip
    seeds = [json.dumps(tree).encode()]
    register = target(name, seeds=seeds, kind="json", tokens=NUMBERS)
    register(functools.partial(open_signals, format=f"{name}-json"))


def npz_seeds() -> list[bytes]:
    """Arrays of both keys, packed and plain, of several types."""
    flow = np.arange(6, dtype=np.int16).reshape(2, 3)
    found = []
    data = {"data": np.stack([flow, flow], 2).astype(np.float64)}
    for arrays in (data, {"flow": flow.astype(">f4"), "other": flow}):
        out = io.BytesIO()
        np.savez_compressed(out, **arrays)
        found.append(out.getvalue())
    for entry in (b"\x93NUMPY\x01\x00", npy((2, 3), "<f8", 48), npy((10**6, 10**6), "<f8", 8)):
        found.append(zipped("flow.npy", entry))
    for kind in ("|O", "<U3", "<c8", "<M8[s]", "|b1", "|V4"):
        found.append(zipped("flow.npy", npy((2, 2), kind, 64)))
    return found


def npy(shape: tuple[int, ...], kind: str, size: int) -> bytes:
    """An array's file with any head."""
    head = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + bytes(size)


def zipped(name: str, entry: bytes) -> bytes:
    """One entry in an archive."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as store:
        store.writestr(name, entry)
    return out.getvalue()


@target("pems", seeds=npz_seeds, tokens=(b"flow.npy", b"data.npy", b"'shape': (", b"<f8", b"|O"))
def pems(data: bytes) -> None:
    """PEMS08: arrays of a npz file."""
    folder = scratch("pems")
    (folder / "p.npz").write_bytes(data)
    (folder / "d.csv").write_bytes(b"from,to,cost\n0,1,10.5\n1,0,3\n")
    reader = ReaderSpec(format="pems-npz", ids="keep")
    files = (FileRef(path="p.npz"), FileRef(path="d.csv"))
    form = DatasetVariant(name="held", files=files, reader=reader)
    check(read(form, [folder / "p.npz", folder / "d.csv"]))
