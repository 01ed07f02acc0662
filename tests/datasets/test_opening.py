import dataclasses
import gzip
import hashlib

import pytest
import torch
from slow_snapshots import slow_edge_snapshots

from dgbench.datasets import SnapshotSpec, open_events, open_snapshots, store, twins
from dgbench.datasets.readers import tables
from dgbench.runtime.errors import DataError, InvalidInputError, MissingDataError, UnsupportedError


def test_the_second_opening_reads_no_source(tiny, monkeypatch):
    first = open_events("tiny")
    monkeypatch.setattr(tables, "read_table", None)
    second = open_events("wee one")
    for field in dataclasses.fields(first):
        a, b = getattr(first, field.name), getattr(second, field.name)
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def test_a_file_counts_by_its_content(tiny):
    """It may be compressed otherwise; what changed, or is cut, is noticed even when prepared."""
    plain = gzip.decompress(tiny.file.read_bytes())
    tiny.ref["content_sha256"] = hashlib.sha256(plain).hexdigest()
    whole = gzip.compress(plain, 1, mtime=7)
    tiny.put(whole, hashed=False)
    assert len(open_events("tiny")) == 5
    for damaged in (gzip.compress(plain + b"5,5,1,50\n"), whole[:-9]):
        tiny.put(damaged, hashed=False)
        with pytest.raises(DataError):
            open_events("tiny")
    tiny.ref = {"path": "tiny/tiny.csv.gz"}
    tiny.save()
    with pytest.raises(DataError, match="gzip"):
        open_events("tiny")
    tiny.counts = {}
    tiny.write([])
    assert len(open_events("tiny")) == 0


def test_a_card_that_does_not_match_is_refused_with_both_values(tiny):
    tiny.counts |= {"pairs": 3, "nodes": 4}
    tiny.save()
    with pytest.raises(DataError, match=r"nodes: card 4, read 3.*pairs: card 3, read 4"):
        open_events("tiny")


def test_an_unsorted_file_is_refused_unless_the_card_says_so(tiny):
    first, second, *rest = tiny.ROWS
    tiny.write([second, first, *rest])
    with pytest.raises(DataError, match=r"line 2: .*10\.0 .*20\.0"):
        open_events("tiny")
    tiny.reader["sorted"] = False
    tiny.save()
    made = open_events("tiny")
    assert made.eid.tolist() == [1, 0, 2, 3, 4]
    assert made.t.tolist() == sorted(made.t.tolist())


def test_missing_data_says_all_ways_out(tiny, monkeypatch):
    tiny.ref["url"] = "http://localhost:1/tiny.csv.gz"
    tiny.save()
    tiny.file.unlink()
    with pytest.raises(MissingDataError, match="DGBENCH_DATA") as caught:
        open_events("tiny")
    assert "tiny/tiny.csv.gz" in caught.value.hint
    assert "dgbench data fetch tiny" in caught.value.hint
    monkeypatch.delenv("DGBENCH_DATA")
    with pytest.raises(MissingDataError, match="DGBENCH_DATA"):
        open_events("tiny", "real")
    with pytest.raises(UnsupportedError, match="tiny"):
        open_events("tiny", "twin")
    with pytest.raises(InvalidInputError, match="source"):
        open_events("tiny", "fake")
    monkeypatch.setenv("DGBENCH_DATA", str(tiny.data / "nowhere"))
    with pytest.raises(InvalidInputError, match="DGBENCH_DATA"):
        open_events("tiny")


def test_auto_falls_back_to_the_twin_and_prepares_it(monkeypatch, own_cache):
    monkeypatch.delenv("DGBENCH_DATA", raising=False)
    with pytest.raises(MissingDataError) as caught:
        open_events("reddit", "real")
    assert "twin" in caught.value.hint
    first = open_events("reddit", scale=0.01, seed=3)
    assert first.origin.kind == "twin"
    assert (first.origin.scale, first.origin.seed) == (0.01, 3)
    monkeypatch.setattr(twins, "generate", None)
    again = open_events("reddit", scale=0.01, seed=3)
    assert torch.equal(first.src, again.src)
    assert torch.equal(first.t, again.t)
    with pytest.raises(TypeError):
        open_events("reddit", scale=0.01, seed=4)


@pytest.mark.parametrize(
    "options",
    [{}, {"edge_life": 2}, {"symmetric": True}, {"snapshots": 1}, {"snapshots": 7},
     {"weighted": True, "edge_life": 3, "symmetric": True}],
)  # fmt: skip
def test_snapshots_against_the_slow_reference(tiny, options):
    spec = SnapshotSpec("tiny", feature_dim=4, **options)
    got = open_snapshots(spec).check()
    count = options.get("snapshots", 3)
    events = open_events("tiny")
    width = 30 / count
    bins = [min(count - 1, int((t - 10) / width + 1e-9)) for t in events.t.tolist()]
    more = {name: value for name, value in options.items() if name != "snapshots"}
    if options.get("weighted"):
        more["weight"] = events.weight
    want = slow_edge_snapshots(events.src, events.dst, bins, count, 3, **more)
    assert len(got) == count
    assert got.num_edges == [csr.nnz for csr in want]
    for a, b in zip(got.topology, want, strict=True):
        assert a.indptr.tolist() == b.indptr.tolist()
        assert a.indices.tolist() == b.indices.tolist()
        assert (a.values is None) == (b.values is None)
        assert a.values is None or a.values.tolist() == b.values.tolist()
    assert got.features.shape == (count, 3, 4)
    assert got.features.is_contiguous()
    assert torch.equal(got.features[:, :, 0], got.features[:, :, 2])
    assert got.targets.shape == (count, 3)
    assert "task" in got.origin.notes[-1]


def test_snapshots_are_prepared_once_and_share_csr_objects(tiny, monkeypatch):
    spec = SnapshotSpec("tiny")
    first = open_snapshots(spec)
    with monkeypatch.context() as patch:
        patch.setattr(store, "save", None)
        second = open_snapshots(spec)
    assert torch.equal(first.features, second.features)
    assert second.topology[1] is second.topology[1]
    assert second.topology[-1] is second.topology[2]
    assert second.spec.snapshots == 3
    with pytest.raises(IndexError):
        second.topology[3]
    part = second.slice(1, 3)
    assert len(part) == 2
    assert part.topology[0] is second.topology[1]
    assert part.num_edges == second.num_edges[1:]
    assert torch.equal(part.features, second.features[1:])
    with pytest.raises(InvalidInputError):
        second.slice(2, 9)
    specs = [SnapshotSpec("tiny", features="random", seed=seed) for seed in (1, 1, 2)]
    a, b, c = (open_snapshots(spec).features for spec in specs)
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


@pytest.mark.parametrize(
    ("options", "word"),
    [({"features": "native"}, "features"), ({"features": "pretty"}, "features"),
     ({"snapshots": 0}, "snapshots"), ({"edge_life": -1}, "edge_life"),
     ({"feature_dim": 2.5}, "feature_dim"), ({"scale": 0.0}, "scale"),
     ({"scale": float("nan")}, "scale"), ({"weighted": True}, "weights")],
)  # fmt: skip
def test_a_spec_that_cannot_be_met_is_refused(tiny, options, word):
    tiny.reader["columns"] = ["src", "dst", "skip", "t"]
    tiny.save()
    with pytest.raises(InvalidInputError, match=word):
        open_snapshots(SnapshotSpec("tiny", **options))


def test_a_static_graph_has_no_events(tiny):
    tiny.card["static"] = True
    tiny.save()
    with pytest.raises(UnsupportedError):
        open_events("tiny")
