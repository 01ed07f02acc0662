from __future__ import annotations

import os

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from passed_checks import PASSED

from dgbench.harness.samples import raced
from dgbench.harness.store import Row, Store, find_run, list_runs
from dgbench.lab.compare import paired, ratio, split_rounds
from dgbench.lab.table import Observation, Table, observation
from dgbench.runtime.errors import StoreError, UnknownKeyError


def step(*times):
    return observation("step_time", times[0], samples=list(times))


def row(system="x", number=1, **more):
    more.setdefault("cell_hash", system)
    samples = more.pop("samples", [1.0, 2.0, 4.0])
    more.setdefault("observed", [step(*samples)] if samples else [])
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
    assert (again.rows(), again.torn) == (rows, [])
    assert rows[0].time == 2.0
    assert Row(id="a").time is None


def test_only_the_last_attempt_counts(store):
    for each in (row(status="crash", samples=[]), row(number=2), row()):
        each.id += ".2" if each.status == "ok" and each.round == 1 else ""
        store.append(each)
    assert [r.id for r in store.rows()] == ["x-r2", "x-r1.2"]
    assert len(store.written(latest=False)) == 3
    assert store.attempts("x-r1") == 2


@settings(max_examples=12, deadline=None)
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


def test_one_writer_at_a_time(store):
    with pytest.raises(StoreError):
        Store.open(store.path, writable=True)
    assert Store.open(store.path).rows() == []
    store.close()
    Store.open(store.path, writable=True).close()
    with pytest.raises(StoreError):
        Store.open(store.path).append(row())


def test_runs_are_found_by_stamp_id_prefix_path_and_last(tmp_path):
    made = [Store.create(tmp_path) for _ in range(3)]
    for each in made:
        each.close()
    assert sorted(list_runs(tmp_path)) == sorted({s.path for s in made})
    for each in made:
        for name in (each.run, each.run[:7], each.path.name, str(each.path)):
            assert find_run(name, tmp_path) == each.path
    assert find_run("last", tmp_path) in [s.path for s in made]
    for name, folder, error in (
        ("nothing-like-it", tmp_path, UnknownKeyError),
        (made[0].path.name[:4], tmp_path, StoreError), ("last", tmp_path / "empty", StoreError),
    ):  # fmt: skip
        with pytest.raises(error):
            find_run(name, folder)


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


@pytest.mark.parametrize(
    "strange",
    [
        {"observed": [Observation(metric="loss", value=float("nan"))]},
        {"observed": [Observation(metric="step_time", value=1.0, samples=[float("inf")])]},
        {"seconds": float("-inf")},
        {"deviation": {"loss": float("nan")}},
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


PLAN = {"preset": "smoke", "device": "cpu", "cells": [{"hash": "ab", "cell": {"repeats": 3}}]}


def test_a_new_run_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", die)
        with pytest.raises(KeyboardInterrupt):
            Store.create(tmp_path, {}, PLAN)
    assert list(tmp_path.iterdir()) == []
    with Store.create(tmp_path, {}, PLAN) as one, Store.create(tmp_path, {}, PLAN) as two:
        assert one.path != two.path
        assert one.info["stamp"] == one.path.name
        assert one.read_plan() == two.read_plan() == PLAN


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, list[Row], bytes]:
    store = Store.create(tmp_path_factory.mktemp("bytes"))
    rows = [
        Row(
            id=f"x-r{i}",
            group="g",
            round=i,
            seconds=i / 3,
            deviation={"loss": 1e-300},
            notes=["é\t\\ "],
        )
        for i in range(1, 5)
    ]
    for row in rows:
        store.append(row)
    store.close()
    return store, rows, store.rows_path.read_bytes()


@settings(max_examples=60, deadline=None)
@given(at=st.integers(0, 2**16), change=st.integers(1, 255))
def test_any_changed_byte_is_found(kept, at, change):
    store, rows, whole = kept
    at %= len(whole)
    damaged = bytearray(whole)
    damaged[at] ^= change
    store.rows_path.write_bytes(damaged)
    try:
        reader = Store.open(store.path)
        found = reader.written()
    finally:
        store.rows_path.write_bytes(whole)
    assert reader.torn
    assert all(row in rows for row in found)
    lost = 2 if whole[at] == ord("\n") and at < len(whole) - 1 else 1
    assert len(rows) - lost <= len(found) < len(rows)
    assert found == [row for row in rows if row in found]
