"""The trace of a sequence against taking every group apart by itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from csr_cases import csr_of, random_csr
from hypothesis import given
from hypothesis import strategies as st

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology, trace_edges
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError


@st.composite
def sequences(draw: st.DrawFn) -> list[Csr]:
    """1 to 11 snapshots whose entries come and go, some of them the same object twice."""
    steps = draw(st.integers(1, 11))
    rows, cols = draw(st.integers(0, 5)), draw(st.integers(1, 150))
    weighted = draw(st.booleans())
    change = draw(st.sampled_from([0.0, 0.02, 0.3, 1.0]))
    density = draw(st.sampled_from([0.0, 0.05, 0.6, 1.0]))
    generator = np.random.default_rng(draw(st.integers(0, 2**16)))
    present = generator.random((rows, cols)) < density
    found: list[Csr] = []
    for _ in range(steps):
        if found and generator.random() < 0.15:
            found.append(found[-1])
            continue
        fresh = generator.random((rows, cols)) < density
        present = np.where(generator.random((rows, cols)) < change, fresh, present)
        now = present & (generator.random() > 0.1)  # an empty snapshot now and then
        lists = [np.flatnonzero(row).tolist() for row in now]
        values = generator.normal(size=int(now.sum())).tolist() if weighted else None
        found.append(csr_of(lists, cols, values))
    return found


def same(one: Csr, other: Csr) -> None:
    assert torch.equal(one.indptr, other.indptr)
    assert torch.equal(one.indices, other.indices)
    assert one.num_cols == other.num_cols
    assert (one.values is None) == (other.values is None)
    if one.values is not None and other.values is not None:
        assert one.values.shape == other.values.shape
        assert torch.equal(one.values, other.values)


@given(
    group=sequences(),
    granularity=st.sampled_from(["edge", "slice"]),
    cap=st.sampled_from([1, 3, 8, 16, 32, 64]),
    window=st.integers(1, 12),
    threads=st.integers(1, 3),
)
def test_every_group_is_what_a_build_makes(group, granularity, cap, window, threads):
    trace = trace_edges(group, window, granularity, cap, threads=threads)
    sizes = [size for size in (1, 2, 3, 4, 8, 11) if size <= min(window, len(group))]
    counts = trace.counts(sizes, threads=threads)
    assert len(counts) == sum(len(group) - size + 1 for size in sizes)
    for times, found in counts.items():
        built = PartTopology.build(group[times.start : times.stop], granularity, cap)
        split = trace.split(times.start, len(times))
        for one, other in zip(
            (split.over, *split.exclusive), (built.over, *built.exclusive), strict=True
        ):
            same(one, other)
        assert found.shared == built.over.nnz
        assert found.entries == sum(group[t].nnz for t in times)
        weightless = built.words(with_values=False, cap=cap)
        entries = built.over.nnz + sum(part.nnz for part in built.exclusive)
        assert weightless == entries + 2 * found.slices + len(times) + 1
        union = set().union(*(set(_keys(group[t])) for t in times))
        assert found.distinct == len(union)


def _keys(csr: Csr) -> list[int]:
    rows = np.repeat(np.arange(csr.num_rows), csr.indptr.diff().numpy())
    return (rows * csr.num_cols + csr.indices.numpy()).tolist()


def test_lives_by_hand():
    """Column 0 stays, column 1 leaves and returns, column 2 is there once."""
    group = [csr_of([columns], 3) for columns in ([0, 1], [0], [0, 1, 2], [0, 1])]
    trace = trace_edges(group, 4)
    assert [lives.tolist() for lives in trace.back] == [[0, 0], [1], [2, 0, 0], [3, 1]]
    assert [lives.tolist() for lives in trace.ahead] == [[3, 0], [2], [1, 1, 0], [0, 0]]
    # Held g = 1, 2, 3 snapshots before, or not within the four.
    assert trace.gaps[:, 1:].tolist() == [[0, 0, 0, 2], [1, 0, 0, 0], [1, 1, 0, 1], [2, 0, 0, 0]]
    assert trace.nbytes == 2 * 8


def test_an_entry_may_live_longer_than_a_byte_counts():
    one = csr_of([[0]], 1)
    trace = trace_edges([one] * 300, 32)
    assert trace.back[299].tolist() == trace.ahead[0].tolist() == [255]
    counts = trace.counts([32])
    assert {(found.shared, found.distinct) for found in counts.values()} == {(1, 1)}
    assert trace.split(268, 32).over.nnz == 1


def test_stopping_gives_nothing():
    group = [random_csr(1, 4, 9, 0.5)] * 3
    assert trace_edges(group, 2, stop=lambda: True) is None
    assert trace_edges(group, 2).counts([2], stop=lambda: True) is None


def test_refusals_say_what_is_wrong():
    good = csr_of([[0, 1], [1]], 2)
    with pytest.raises(InvalidInputError, match=r"csrs\[1\].*repeats a column"):
        trace_edges([good, csr_of([[0, 1], [1, 1]], 2)])
    with pytest.raises(InvalidInputError, match=r"csrs\[1\] is 1 x 2"):
        trace_edges([good, csr_of([[0]], 2)])
    with pytest.raises(InvalidInputError, match="0 snapshots"):
        trace_edges([])
    with pytest.raises(InvalidInputError, match="window 33"):
        trace_edges([good], 33)
    with pytest.raises(InvalidInputError, match="cap 0"):
        trace_edges([good], 2, cap=0)
    with pytest.raises(UnknownKeyError):
        trace_edges([good], 2, "edges")
    trace = trace_edges([good, good, good], 2)
    with pytest.raises(InvalidInputError, match="size is 3, allowed are 1 to 2"):
        trace.split(0, 3)
    with pytest.raises(InvalidInputError, match="size is 3, allowed are 1 to 2"):
        trace.counts([3])
    with pytest.raises(InvalidInputError, match="start is 2, allowed are 0 to 1"):
        trace.split(2, 2)
    assert trace.split(1, 2).over.nnz == 3
