from __future__ import annotations

import gzip
import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from passed_checks import PASSED

from dgbench.harness.samples import raced
from dgbench.harness.store import Row, Store, find_run, list_runs
from dgbench.lab.compare import (
    control_ratios,
    paired,
    quantity,
    ratio,
    select,
    split_rounds,
    without_control,
)
from dgbench.lab.table import Table, observation
from dgbench.runtime.errors import InvalidInputError, StoreError, UnknownKeyError


def row(system="x", number=1, **more):
    more.setdefault("cell_hash", system)
    more.setdefault("samples", [1.0, 2.0, 4.0])
    more.setdefault("checks", [PASSED])
    return Row(
        id=f"{system}-r{number}",
        paper="p",
        experiment="e",
        params={"system": system, **more.pop("params", {})},
        group=more.pop("group", "g"),
        round=number,
        **more,
    )


@pytest.fixture
def store(tmp_path):
    with Store.create(tmp_path, {"preset": "smoke"}) as made:
        yield made


def test_rows_come_back_as_they_were(store):
    rows = [row(number=i, probes={"gpu": "no driver", "n": 3}, notes=["é\n"]) for i in range(1, 4)]
    for each in rows:
        store.append(each)
    again = Store.open(store.path)
    assert again.rows() == rows
    assert again.torn == []
    assert rows[0].time == 2.0
    assert Row(id="a").time is None
    lines = [json.loads(line) for line in store.rows_path.read_text().splitlines()]
    assert [line["row"]["id"] for line in lines] == [r.id for r in rows]


@settings(max_examples=25, deadline=None)
@given(cut=st.integers(0, 2000), junk=st.binary(max_size=30))
def test_a_cut_loses_only_the_torn_line(tmp_path_factory, cut, junk):
    store = Store.create(tmp_path_factory.mktemp("cut"))
    rows = [row(number=i) for i in range(1, 6)]
    for each in rows:
        store.append(each)
    store.close()
    whole = store.rows_path.read_bytes()
    cut = min(cut, len(whole))
    store.rows_path.write_bytes(whole[:cut] + junk.replace(b"\n", b""))
    complete = whole[:cut].count(b"\n")
    with Store.open(store.path, writable=True) as again:
        kept = again.rows()
        # a cut just before a line break leaves the line whole
        assert kept in (rows[:complete], rows[: complete + 1])
        assert len(again.torn) <= 1
        again.append(row(number=9))
    last = Store.open(store.path)
    assert last.torn == []
    assert last.rows() == [*kept, row(number=9)]


def test_only_the_last_attempt_counts(store):
    store.append(row(status="crash", samples=[]))
    store.append(row(number=2))
    retried = row()
    retried.id = "x-r1.2"
    store.append(retried)
    assert [r.id for r in store.rows()] == ["x-r2", "x-r1.2"]
    assert len(store.written(latest=False)) == 3
    assert store.attempts("x-r1") == 2


def test_one_writer_at_a_time(store):
    with pytest.raises(StoreError):
        Store.open(store.path, writable=True)
    assert Store.open(store.path).rows() == []
    store.close()
    Store.open(store.path, writable=True).close()
    with pytest.raises(StoreError):
        Store.open(store.path).append(row())


def test_provenance_has_one_key_for_the_same_facts(store):
    first = store.add_provenance({"code": {"commit": "a"}, "settings": {"x": 1, "y": 2}})
    assert store.add_provenance({"settings": {"y": 2, "x": 1}, "code": {"commit": "a"}}) == first
    other = store.add_provenance({"code": {"commit": "b"}})
    assert set(Store.open(store.path).provenance()) == {first, other}


def test_runs_are_found_by_stamp_id_prefix_path_and_last(tmp_path):
    made = [Store.create(tmp_path) for _ in range(3)]
    for each in made:
        each.close()
    assert len({s.path for s in made}) == 3
    assert sorted(list_runs(tmp_path)) == sorted(s.path for s in made)
    for each in made:
        for name in (each.run, each.path.name, str(each.path)):
            assert find_run(name, tmp_path) == each.path
    assert find_run(made[0].run[:7], tmp_path) == made[0].path
    assert find_run("last", tmp_path) in [s.path for s in made]
    with pytest.raises(UnknownKeyError):
        find_run("nothing-like-it", tmp_path)
    with pytest.raises(StoreError):
        find_run(made[0].path.name[:4], tmp_path)
    with pytest.raises(StoreError):
        find_run("last", tmp_path / "empty")
    with pytest.raises(StoreError):
        Store.open(tmp_path)


def keep(store, folder):
    """The run of a store as a reference: its rows packed."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_bytes((store.path / "run.json").read_bytes())
    packed = folder / "rows.jsonl.gz"
    packed.write_bytes(gzip.compress(store.rows_path.read_bytes()))
    return packed


def test_a_reference_is_read_like_a_run_and_never_written(store, tmp_path):
    for i in range(1, 4):
        store.append(row(number=i))
    folder = tmp_path / "reference" / "machine" / "p"
    packed = keep(store, folder)
    before = packed.read_bytes()
    again = Store.open(folder)
    assert again.rows() == store.rows()
    assert again.row_bytes() == store.row_bytes() == store.rows_path.read_bytes()
    with pytest.raises(StoreError):
        again.append(row(number=9))
    with pytest.raises(StoreError):
        Store.open(folder, writable=True)
    assert sorted(p.name for p in folder.iterdir()) == ["rows.jsonl.gz", "run.json"]
    assert packed.read_bytes() == before
    for name in (str(folder), "machine/p"):
        assert find_run(name, tmp_path / "runs") == folder


def test_pairs_are_formed_inside_group_and_round():
    rows = [row("a", i, samples=[2.0 * i]) for i in (1, 2, 3)]
    rows += [row("b", i, samples=[1.0 * i], deviation={"loss": -1e-5}) for i in (1, 2, 3)]
    rows += [row("b", 4, samples=[9.0]), row("a", 5, status="oom")]
    rows += [row("a", 1, samples=[100.0], instrumented=True)]
    found = paired(rows, {"system": "a"}, {"system": "b"})
    assert (found.value, found.n) == (pytest.approx(2.0), 3)
    assert found.low == pytest.approx(2.0)
    assert found.deviation == 1e-5
    assert found.twin is False
    assert set(found.rows) == {f"{s}-r{i}" for s in "ab" for i in (1, 2, 3)}
    assert paired(rows, {"system": "a"}, {"system": "c"}) is None
    assert paired(rows[:1] + rows[4:5], {"system": "a"}, {"system": "b"}) is None
    assert paired([], {}, {}) is None


def test_pairs_follow_the_other_params_or_are_refused():
    rows = [
        row(s, 1, params={"size": n}, samples=[n * (2.0 if s == "a" else 1.0)], cell_hash=f"{s}{n}")
        for s in "ab"
        for n in (1, 10)
    ]
    found = paired(rows, {"system": "a"}, {"system": "b"})
    assert (found.value, found.n) == (pytest.approx(2.0), 2)
    one = paired(rows, {"system": "a", "size": 10}, {"system": "b", "size": 1})
    assert one.value == pytest.approx(20.0)
    with pytest.raises(InvalidInputError, match="ambiguous"):
        paired(rows, {}, {"system": "b"})


def test_metrics_are_paired_too_and_nonsense_is_not():
    rows = [
        row("a", 1, observed=[observation("memory", 3), observation("edges", 10)]),
        row("b", 1, observed=[observation("memory", 2), observation("edges", 0)]),
    ]
    assert paired(rows, {"system": "a"}, {"system": "b"}, "memory").value == pytest.approx(1.5)
    assert paired(rows, {"system": "a"}, {"system": "b"}, "edges") is None
    assert paired(rows, {"system": "a"}, {"system": "b"}, "loss") is None
    assert quantity(rows[0], "edges") == 10.0
    with pytest.raises(UnknownKeyError):
        paired(rows, {"system": "a"}, {"system": "b"}, "nothing")


def step(time):
    return observation("step_time", time, samples=[time])


@pytest.mark.parametrize("other", [{"run": "b"}, {"resumed": 1}, {"provenance": "b"}])
def test_processes_of_two_starts_of_a_run_form_no_pair(other):
    rows = [row("p", observed=[step(1.0)]), row("pygt", observed=[step(2.0)])]
    sides = {"system": "pygt"}, {"system": "p"}
    times = [Table.of(rows).where("step_time", **side) for side in sides]
    assert paired(rows, *sides).n == ratio(*times).n == len(list(raced(rows))) == 1
    assert split_rounds(rows) == set()
    apart = [rows[0], msgspec.structs.replace(rows[1], **other)]
    times = [Table.of(apart).where("step_time", **side) for side in sides]
    assert paired(apart, *sides) is None
    assert ratio(*times) is None
    assert not list(raced(apart))
    assert len(split_rounds(apart)) == 1


def test_controls_belong_to_no_contender():
    rows = [row("a", i, samples=[1.0]) for i in (1, 2)]
    rows += [
        row("a", i, samples=[1.1 * i], params={"control": "aa"}, cell_hash="aa") for i in (1, 2)
    ]
    assert len(select(rows, system="a")) == 2
    assert len(select(rows, control="aa")) == 2
    assert len(without_control([*rows, Row(id="m", paper="-")])) == 2
    assert control_ratios(rows) == [pytest.approx(1.1), pytest.approx(2.2)]


@pytest.mark.parametrize(
    "strange",
    [
        {"values": {"loss": float("nan")}},
        {"samples": [float("inf")]},
        {"seconds": float("-inf")},
        {"deviation": {"loss": float("nan")}},
        {"counters": {"steps": True}},
        {"reason": "half a letter \ud800"},
    ],
)
def test_a_row_that_could_not_be_read_again_is_refused(store, strange):
    """JSON turns NaN into null: the row was kept, and gone when the run was opened again."""
    store.append(Row(id="a-r1"))
    with pytest.raises(StoreError):
        store.append(Row(id="b-r1", **strange))
    assert [row.id for row in Store.open(store.path).rows()] == ["a-r1"]
    assert [row.id for row in store.rows()] == ["a-r1"]
