"""First-fit decreasing against the rule written out, and fused recurrences over the packed rows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.kernels_cuda.scan import (
    CONTINUES,
    FROM_ZERO,
)
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.dgc.packing import pack_sequences

LENGTHS = st.lists(st.integers(0, 12), max_size=60)


def first_fit(lengths, capacity):
    """Every sequence by itself: the first row with room, rows in the order they were opened."""
    room, row, offset = [], {}, {}
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if lengths[i] == 0:
            continue
        r = next((r for r, free in enumerate(room) if free >= lengths[i]), len(room))
        if r == len(room):
            room.append(capacity)
        row[i], offset[i] = r, capacity - room[r]
        room[r] -= lengths[i]
    return row, offset, len(room)


@settings(max_examples=300, deadline=None)
@given(lengths=LENGTHS, longer=st.integers(0, 9))
def test_is_first_fit_decreasing(lengths, longer):
    capacity = max(lengths, default=0) + longer
    rows = pack_sequences(torch.tensor(lengths, dtype=torch.int64), capacity)
    row, offset, count = first_fit(lengths, capacity)
    assert rows.num_rows == count
    for i in row:
        assert (int(rows.row[i]), int(rows.offset[i])) == (row[i], offset[i])


@settings(max_examples=200, deadline=None)
@given(lengths=LENGTHS)
def test_every_step_has_a_place_of_its_own(lengths):
    rows = pack_sequences(torch.tensor(lengths, dtype=torch.int64))
    total, longest = sum(lengths), max(lengths, default=0)
    assert rows.steps == total
    assert rows.row_length == longest
    assert rows.place.unique().numel() == total
    assert rows.padding == rows.num_rows * longest - total == int((rows.sequence < 0).sum())
    assert rows.padding_unpacked == len(lengths) * longest - total
    assert rows.padding <= rows.padding_unpacked
    least = -(-total // longest) if longest else 0
    # First fit leaves one row at most half empty.
    assert least <= rows.num_rows <= 2 * least
    values = torch.arange(2.0 * total).view(total, 2)
    there = rows.pack(values)
    assert torch.equal(rows.unpack(there), values)
    assert float(there.sum()) == float(values.sum())
    at = 0
    for i, length in enumerate(lengths):
        for k in range(length):
            t, n = int(rows.offset[i]) + k, int(rows.row[i])
            assert torch.equal(there[t, n], values[at])
            assert (int(rows.sequence[t, n]), int(rows.position[t, n])) == (i, k)
            assert int(rows.begins[t, n]) == (FROM_ZERO if k == 0 else CONTINUES)
            at += 1
    assert bool((rows.begins[rows.sequence < 0] == FROM_ZERO).all())


def test_mistakes_are_named():
    for lengths in ([1, 2], torch.tensor([1.0]), torch.tensor([3, -1])):
        with pytest.raises(InvalidInputError, match="lengths"):
            pack_sequences(lengths)
    for length in (3, 4.0):
        with pytest.raises(InvalidInputError, match="row_length"):
            pack_sequences(torch.tensor([3, 4]), length)
    rows = pack_sequences(torch.tensor([2, 1]))
    for name, call, bad in (("values", rows.pack, torch.zeros(2, 4)),
                              ("rows", rows.unpack, torch.zeros(3, 4)),
                              ("starts", rows.begins_from, torch.zeros(3).long())):  # fmt: skip
        with pytest.raises(InvalidInputError, match=name):
            call(bad)
