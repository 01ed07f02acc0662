"""Overlap, exclusive parts and masked union against sets of (row, column)."""

from __future__ import annotations

import pytest
import torch
from csr_cases import csr_of, entries, random_csr, snapshot_groups
from hypothesis import given

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology, UnionTopology
from dgbench.kernels_cuda.slices import csr_words, slice_csr
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError


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


@pytest.mark.parametrize(
    ("granularity", "reference"), [("edge", shared_by_set), ("slice", shared_by_slice)]
)
@given(group=snapshot_groups())
def test_parts_are_disjoint_and_complete(granularity, reference, group):
    parts = PartTopology.build(group, granularity)
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


@given(group=snapshot_groups())
def test_union_mask_rebuilds_every_snapshot(group):
    union = UnionTopology.build(group)
    assert entries(union.csr) == sorted(set().union(*(entries(csr) for csr in group)))
    for i, csr in enumerate(group):
        held = (union.mask >> i) & 1 == 1
        assert [e for e, h in zip(entries(union.csr), held.tolist(), strict=True) if h] == entries(
            csr
        )
        if csr.values is not None:
            assert torch.equal(union.csr.values[held, i], csr.values)
            assert (union.csr.values[~held, i] == 0).all()


def test_thirty_two_snapshots_fill_every_bit_of_the_mask():
    group = [csr_of([[0, i + 1]], 40) for i in range(32)]
    union = UnionTopology.build(group)
    assert union.mask.tolist() == [-1, *(1 << i for i in range(31)), -(2**31)]
    assert entries(PartTopology.build(group).over) == [(0, 0)]


def test_counts_by_hand():
    """Snapshots {01, 02} and {01, 10}: one shared, one left to each, three distinct."""
    group = [csr_of([[1, 2], []], 3), csr_of([[1], [0]], 3)]
    parts = PartTopology.build(group)
    assert [part.nnz for part in (parts.over, *parts.exclusive)] == [1, 1, 1]
    assert parts.overlap_rate() == 1 / 2
    assert parts.jaccard() == 1 / 3
    # each part: 1 entry, 1 slice: 2 + 2 + 1 words; plain: 2 + 2 rows + 1
    assert parts.words() == 3 * 5
    assert parts.words(with_values=False) == 3 * 4
    assert parts.words(sliced=False) == 3 * 5
    weighted = [Csr(c.indptr, c.indices, 3, torch.ones(2)) for c in group]
    assert PartTopology.build(weighted).words() == 3 * 5 + 1  # the shared entry has two weights
    union = UnionTopology.build(group)
    assert union.words() == (2 * 3 + 2 * 2 + 1) + 3


def test_words_agree_with_the_formats():
    group = [random_csr(seed, 30, 200, 0.4) for seed in (1, 1, 1)]
    group[2] = random_csr(2, 30, 200, 0.4)
    parts = PartTopology.build(group)
    all_parts = (parts.over, *parts.exclusive)
    assert parts.words() == sum(slice_csr(part).words() for part in all_parts)
    assert parts.words(sliced=False) == sum(csr_words(part) for part in all_parts)


def test_all_snapshots_empty_share_everything():
    parts = PartTopology.build([csr_of([[], []], 2)] * 3)
    assert (parts.over.nnz, parts.overlap_rate(), parts.jaccard()) == (0, 1.0, 1.0)


def test_one_insertion_collapses_the_overlap_of_whole_slices():
    before = csr_of([list(range(1, 129))], 200)
    after = csr_of([list(range(129))], 200)
    assert PartTopology.build([before, after], "edge").over.nnz == 128
    assert PartTopology.build([before, after], "slice").over.nnz == 0


def test_refusals_say_what_is_wrong():
    good = csr_of([[0, 1], [1]], 2)
    duplicate = csr_of([[0, 1], [1, 1]], 2)
    with pytest.raises(InvalidInputError, match=r"csrs\[1\].indices: row 1 repeats a column"):
        PartTopology.build([good, duplicate])
    with pytest.raises(InvalidInputError, match="not in ascending order"):
        UnionTopology.build([csr_of([[1, 0], []], 2)])
    with pytest.raises(InvalidInputError, match=r"csrs\[1\] is 1 x 2"):
        PartTopology.build([good, csr_of([[0]], 2)])
    with pytest.raises(InvalidInputError, match="weighted or none"):
        PartTopology.build([good, Csr(good.indptr, good.indices, 2, torch.ones(3))])
    with pytest.raises(InvalidInputError, match="holds 0 snapshots"):
        PartTopology.build([])
    with pytest.raises(InvalidInputError, match="holds 33 snapshots"):
        PartTopology.build([good] * 33)
    with pytest.raises(UnknownKeyError) as caught:
        PartTopology.build([good], "edges")
    assert "edge" in caught.value.hint
