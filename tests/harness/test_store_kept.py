"""The three files beside the rows: checked, kept twice, and rid of what a killed writer left."""

from __future__ import annotations

import os

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dgbench.harness.store import Row, Store
from dgbench.runtime.errors import StoreError

PLAN = {"preset": "smoke", "device": "cpu", "cells": [{"hash": "ab", "cell": {"repeats": 3}}]}
FACTS = {"machine": {"cpu": {"model": "é", "hz": 2.5e9, "none": None}}, "settings": {"threads": 1}}
BITS = st.integers(0, 8 * 4096 - 1)  # of files of some hundred bytes: taken modulo their size
NAMES = ("run.json", "plan.json", "provenance.json")


def read(path, name):
    store = Store.open(path)
    values = {"run.json": store.info, "plan.json": store.read_plan()}
    return values.get(name) or store.provenance(), store


@pytest.fixture(scope="module")
def spare(tmp_path_factory):
    """A run whose files are put back by who changes them."""
    with Store.create(tmp_path_factory.mktemp("spare"), {"preset": "smoke"}, PLAN) as store:
        store.add_provenance(FACTS)
    return store.path


@settings(max_examples=120, deadline=None)
@example(bits=(8 * 192, 0), name="provenance.json", both=False)  # in the name of the checksum
@given(bits=st.tuples(BITS, BITS), name=st.sampled_from(NAMES), both=st.booleans())
def test_a_flipped_bit_is_harmless_or_found(spare, bits, name, both):
    whole = (spare / name).read_bytes()
    before, _ = read(spare, name)
    paths = (spare / name, spare / "copies" / f"{name}.copy")
    for path, bit in zip(paths[: 1 + both], bits, strict=False):
        text = bytearray(whole)
        text[bit // 8 % len(text)] ^= 1 << bit % 8
        path.write_bytes(text)
    found, opened, error = None, None, ""
    try:
        found, opened = read(spare, name)
    except StoreError as problem:
        error = str(problem)
    finally:
        for path in paths:
            path.write_bytes(whole)
    if found is None:
        assert both
        assert name in error
        return
    # A changed name of the checksum's own entry is the one flip that adds something.
    assert {k: v for k, v in found.items() if k in before} == before
    assert len(found) - len(before) in (0, 1)
    assert all(name in sentence for sentence in opened.damaged)


def test_a_writer_sweeps_what_a_killed_one_left_and_nothing_else(spare):
    path = spare
    left = [
        ".run.json.abcd1234",
        ".rows.jsonl._x9_____",
        "..probe.zzzzzzzz",
        "copies/.plan.json.copy.12345678",
    ]
    stay = [".lock", ".hidden", ".run.json.backup-of-mine", "notes.txt", "logs/a.log"]
    for name in (*left, "logs/a-r1.result", "logs/a-r1.result.part", *stay):
        (path / name).write_text("x")
    Store.open(path)
    assert (path / left[0]).exists()  # a reader leaves the files alone
    with Store.open(path, writable=True):
        there = {p.relative_to(path).as_posix() for p in path.rglob("*")}
    assert there.isdisjoint({*left, "logs/a-r1.result", "logs/a-r1.result.part"})
    assert set(stay) <= there


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
        Row(id=f"x-r{i}", group="g", round=i, samples=[i / 3, 1e-300], notes=["é\t\\ "])
        for i in range(1, 5)
    ]
    for row in rows:
        store.append(row)
    store.close()
    return store, rows, store.rows_path.read_bytes()


@settings(max_examples=300, deadline=None)
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
