"""Overlap, exclusive parts, masked union and traces against sets of (row, column)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from csr_cases import csr_of, entries, random_csr, snapshot_groups
from device_cases import to_device
from device_fixtures import ONE_PLACE
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kernel_checks import refuses, same_csr

from dgbench.kernels_cuda.csr import Csr, check
from dgbench.kernels_cuda.overlap import PartTopology, UnionTopology, op, trace_edges
from dgbench.kernels_cuda.slices import slice_csr
from dgbench.runtime.errors import InvalidInputError

SERVED = (op, check)


def weights(csr: Csr) -> dict[tuple[int, int], float | list[float]]:
    return dict(zip(entries(csr), csr.values.tolist(), strict=True))


def shared_by_set(group: list[Csr]) -> set[tuple[int, int]]:
    return set.intersection(*(set(entries(csr)) for csr in group))


def shared_by_slice(group: list[Csr], cap: int = 32) -> set[tuple[int, int]]:
    """Entries of slices that stand, with the same content, at the same place of all snapshots."""
    shared = set()
    for row in range(group[0].num_rows):
        rows = [csr.indices[csr.indptr[row] : csr.indptr[row + 1]].tolist() for csr in group]
        for begin in range(0, max(len(r) for r in rows), cap):
            pieces = [r[begin : begin + cap] for r in rows]
            if all(piece == pieces[0] for piece in pieces):
                shared |= {(row, column) for column in pieces[0]}
    return shared


HUBS = ("alike", "apart", "some", "one empty", "shifted")


def hub_snapshots(case: str, weighted: bool) -> list[Csr]:
    """Three snapshots with a hub in row 1, in whose row they differ as `case` says."""
    random, columns, found = np.random.default_rng(3), 9000, []
    alike = np.sort(random.choice(columns, 6000, replace=False))
    for i in range(3):
        hub = {
            "alike": alike, "apart": np.arange(i, columns, 3),
            "some": alike[random.random(6000) < 0.8], "one empty": alike if i else alike[:0],
            "shifted": np.unique([*alike, columns + i]),
        }[case]  # fmt: skip
        rows = [random.choice(columns, 5, replace=False), hub, [], [i, 7], alike[: 1030 + i]]
        ids = torch.from_numpy(np.concatenate([np.sort(row) for row in rows]).astype(np.int32))
        indptr = torch.from_numpy(np.cumsum([0, *map(len, rows)]))
        values = torch.from_numpy(random.normal(size=ids.numel()).astype(np.float32))
        found.append(Csr(indptr, ids, columns + 3, values if weighted else None))
    return found


def with_large_ones(test):
    """Also ask a test of groups about rows that a device cuts, and about many rows."""
    for number, case in enumerate(HUBS):
        test = example(group=hub_snapshots(case, number % 2 == 0))(test)
    return example(group=[random_csr(t, 300, 80, 0.2, weighted=True) for t in range(3)])(test)


def moved(csrs: list[Csr], device: str) -> list[Csr]:
    return [to_device(csr, device) for csr in csrs]


@pytest.mark.parametrize(
    ("granularity", "reference"), [("edge", shared_by_set), ("slice", shared_by_slice)]
)
@with_large_ones
@given(group=snapshot_groups())
@settings(max_examples=50, suppress_health_check=ONE_PLACE)
def test_parts_are_disjoint_and_complete(place, granularity, reference, group):
    made = PartTopology.build(moved(group, place.device), granularity)
    over, *exclusive = moved([made.over, *made.exclusive], "cpu")
    parts = PartTopology(over, exclusive)
    shared = reference(group)
    assert entries(parts.over) == sorted(shared)
    assert len(parts.exclusive) == parts.num_snapshots == len(group)
    for csr, rest in zip(group, parts.exclusive, strict=True):
        assert entries(rest) == sorted(set(entries(csr)) - shared)
        assert rest.num_cols == csr.num_cols
    if group[0].values is None:
        assert parts.over.values is None
        assert all(rest.values is None for rest in parts.exclusive)
        return
    assert parts.over.values.shape == (len(shared), len(group))
    over = weights(parts.over)
    for i, (csr, rest) in enumerate(zip(group, parts.exclusive, strict=True)):
        whole = {entry: value[i] for entry, value in over.items()} | weights(rest)
        assert whole == weights(csr)


@with_large_ones
@given(group=snapshot_groups())
@settings(max_examples=50, suppress_health_check=ONE_PLACE)
def test_union_mask_rebuilds_every_snapshot(place, group):
    made = UnionTopology.build(moved(group, place.device))
    union = UnionTopology(to_device(made.csr, "cpu"), made.mask.cpu(), len(group))
    assert entries(union.csr) == sorted(set().union(*(entries(csr) for csr in group)))
    for i, csr in enumerate(group):
        held = (union.mask >> i) & 1 == 1
        assert [e for e, h in zip(entries(union.csr), held.tolist(), strict=True) if h] == entries(
            csr
        )
        if csr.values is not None:
            assert torch.equal(union.csr.values[held, i], csr.values)
            assert (union.csr.values[~held, i] == 0).all()


def test_thirty_two_snapshots_fill_every_bit_of_the_mask(place):
    group = moved([csr_of([[0, i + 1]], 40) for i in range(32)], place.device)
    union = UnionTopology.build(group)
    assert union.mask.tolist() == [-1, *(1 << i for i in range(31)), -(2**31)]
    assert entries(PartTopology.build(group).over) == [(0, 0)]


def test_words_and_the_collapse_of_whole_slices():
    """Snapshots {01, 02} and {01, 10}: one shared, one left to each, three distinct."""
    group = [csr_of([[1, 2], []], 3), csr_of([[1], [0]], 3)]
    parts, union = PartTopology.build(group), UnionTopology.build(group)
    assert (parts.overlap_rate(), parts.jaccard()) == (1 / 2, 1 / 3)
    # Each part: 1 entry, 1 slice: 2 + 2 + 1 words; plain: 2 + 2 rows + 1.
    found = parts.words(), parts.words(with_values=False), parts.words(sliced=False), union.words()
    assert found == (3 * 5, 3 * 4, 3 * 5, (2 * 3 + 2 * 2 + 1) + 3)
    weighted = [Csr(c.indptr, c.indices, 3, torch.ones(2)) for c in group]
    assert PartTopology.build(weighted).words() == 3 * 5 + 1  # the shared entry has two weights
    empty = PartTopology.build([csr_of([[], []], 2)] * 3)
    assert (empty.over.nnz, empty.overlap_rate(), empty.jaccard()) == (0, 1.0, 1.0)
    before, after = csr_of([list(range(1, 129))], 200), csr_of([list(range(129))], 200)
    for granularity, shared in (("edge", 128), ("slice", 0)):
        assert PartTopology.build([before, after], granularity).over.nnz == shared


# --- Traces of sequences -------------------------------------------------------------------------


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


@given(
    group=sequences(), granularity=st.sampled_from(["edge", "slice"]),
    cap=st.sampled_from([1, 3, 8, 16, 32, 64]), window=st.integers(1, 12),
    threads=st.integers(1, 3),
)  # fmt: skip
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
            same_csr(one, other)
        assert found.shared == built.over.nnz
        assert found.entries == sum(group[t].nnz for t in times)
        weightless = built.words(with_values=False, cap=cap)
        nnz = built.over.nnz + sum(part.nnz for part in built.exclusive)
        assert weightless == nnz + 2 * found.slices + len(times) + 1
        union = set().union(*(entries(group[t]) for t in times))
        assert found.distinct == len(union)


def test_an_entry_may_live_longer_than_a_byte_counts():
    one = csr_of([[0]], 1)
    trace = trace_edges([one] * 300, 32)
    assert trace.back[299].tolist() == trace.ahead[0].tolist() == [255]
    counts = trace.counts([32])
    assert {(found.shared, found.distinct) for found in counts.values()} == {(1, 1)}
    assert trace.split(268, 32).over.nnz == 1


def test_refusals_say_what_is_wrong():
    good, other = csr_of([[0, 1], [1]], 2), csr_of([[0]], 2)
    weighted = Csr(good.indptr, good.indices, 2, torch.ones(3))
    wrong = [[], [good, other], [good, csr_of([[0, 1], [1, 1]], 2)], [csr_of([[1, 0], []], 2)]]
    for build in (PartTopology.build, UnionTopology.build, trace_edges):
        for group in [*wrong, [good, weighted], *([[good] * 33] if build != trace_edges else [])]:
            with pytest.raises(InvalidInputError):
                build(group)
    refuses(PartTopology.build, {"csrs": [good]}, ("granularity", "edges"))
    refuses(
        trace_edges, {"csrs": [good], "window": 2}, ("window", 33), ("cap", 0),
        ("granularity", "edges"),
    )  # fmt: skip
    assert trace_edges([good] * 3, 2, stop=lambda: True) is None
    trace = trace_edges([good] * 3, 2)
    assert trace.counts([2], stop=lambda: True) is None
    for call in (lambda: trace.split(0, 3), lambda: trace.split(2, 2), lambda: trace.counts([3])):
        with pytest.raises(InvalidInputError):
            call()


# --- A device's -----------------------------------------------------------------------------------


def test_a_matrix_that_is_none_and_a_build_are_told(native):
    found = native.put([-1, -1, -1], torch.int64)
    wrong = native.put([0, 2], torch.int64), native.put([1, 1], torch.int32)
    native.call("check_csr", *wrong, 1, found)
    assert found.tolist() == [-1, 0, 0]
    assert native.module.probe() == ""
    assert native.module.build_info()["architectures"]


@with_large_ones
@example(group=[csr_of([[c, c + 32], []], 70, [1.0, c]) for c in range(32)])
@given(group=snapshot_groups())
@settings(max_examples=20, suppress_health_check=ONE_PLACE)
def test_offsets_of_arrived_slices(native, group):
    """Offsets of rows from slices."""
    count, rows = len(group), group[0].num_rows
    for cap in (1, 8, 32, 64):
        cut = [slice_csr(csr, cap) for csr in group]
        out = native.put(torch.full((count, rows + 1), -1), torch.int64)
        rows_of = [native.put(s.row_indices) for s in cut]
        at = [native.put(s.slice_offsets.int()) for s in cut]
        native.call("unpack_offsets", rows_of, at, out)
        for found, csr in zip(out.cpu(), group, strict=True):
            assert torch.equal(found, csr.indptr)
