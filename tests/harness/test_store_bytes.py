"""Any byte of the rows' file that turns into another is found, and no row is read as another."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.harness.store import Row, Store


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
