"""Graph difference against Python sets of (row, column) pairs."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from csr_cases import changed_pairs, csr_of, entries, random_csr, snapshot_groups
from device_fixtures import ONE_PLACE, Native
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kernel_checks import refuses, same_csr

from dgbench.kernels_cuda import _cpu
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.difference import (
    Difference,
    count_changes,
    difference_bytes,
    encode,
    encode_sequence,
    plain_bytes,
    rebuild,
    with_self_loops,
)
from dgbench.runtime.errors import InvalidInputError

INDEX = ["int64", "int32"]


def pairs(array: torch.Tensor) -> list[tuple[int, int]]:
    return list(zip(*array.tolist(), strict=True))


def with_ones(csr: Csr) -> Csr:
    """The matrix with the values that a rebuilt one has."""
    return csr if csr.values is not None else dataclasses.replace(csr, values=torch.ones(csr.nnz))


def check_step(previous: Csr, current: Csr, index: str) -> Csr:
    """One difference, its two sets and what comes back."""
    sent = encode(previous, current, index=index, fallback=False)
    old, new = set(entries(previous)), set(entries(current))
    assert pairs(sent.removed) == sorted(old - new)
    assert pairs(sent.added) == sorted(new - old)
    assert sent.added.dtype == sent.removed.dtype == getattr(torch, index)
    assert count_changes(previous, current) == (len(old - new), len(new - old))
    size = 16 if index == "int64" else 8
    assert sent.nbytes == size * len(old ^ new) + 4 * len(new)
    assert sent.nbytes == difference_bytes(len(new - old), len(old - new), len(new), index)
    back = rebuild(previous, sent)
    same_csr(back, with_ones(current))
    return back


@settings(deadline=None, max_examples=30)
@given(group=snapshot_groups(), index=st.sampled_from(INDEX))
def test_sets_bytes_and_the_way_back(group, index):
    held = group[0]
    for current in group[1:]:
        # From what was rebuilt, as a device does, not from the original.
        held = check_step(Csr(held.indptr, held.indices, held.num_cols), current, index)


def rebuilt(place: Native, old: Csr | None, sent: Difference) -> tuple[Csr, list[int]]:
    """Snapshot that the compiled function makes of a difference, and faults that it names."""
    indptr = place.put(torch.full((sent.num_rows + 1,), -7))
    room = place.put(torch.full((sent.nnz + 64,), -7, dtype=torch.int32))
    out, found = (indptr, room[: sent.nnz]), place.put(torch.full((3,), -1))
    none = torch.empty(0, dtype=torch.int32)
    lists = [None, none] if old is None else [old.indptr, old.indices]
    lists = [None if x is None else place.put(x) for x in lists]
    pairs = place.put(sent.removed), place.put(sent.added)
    if place.own:
        _cpu.rebuild(*lists, sent.num_cols, *pairs, *out, found, 1)
    else:
        scratch = [torch.full_like(p[0], -7, dtype=torch.int32) for p in pairs]
        place.call("rebuild", *lists, sent.num_cols, *pairs, *scratch, *out, found)
    assert bool((room[sent.nnz :] == -7).all())  # nothing was written past the end
    return Csr(indptr.cpu(), out[1].cpu(), sent.num_cols), found.tolist()


def check_there(place: Native, old: Csr | None, new: Csr, index: str) -> None:
    csr, found = rebuilt(place, old, encode(old, new, index=index, fallback=False))
    assert found == [-1, -1, -1]
    assert torch.equal(csr.indptr, new.indptr)
    assert torch.equal(csr.indices, new.indices)


@pytest.mark.parametrize("index", INDEX)
def test_everything_comes_and_goes(place, index):
    for one, other in changed_pairs():
        for pair in ((one, other), (other, one)):
            check_step(*pair, index)
            check_there(place, *pair, index)
    none = csr_of([], 5)
    assert rebuild(none, encode(none, none)).num_rows == 0
    same_csr(rebuild(None, encode(None, none)), with_ones(none))
    if not place.own:
        check_there(place, None, random_csr(3, 40, 60, 0.3), index)  # from no matrix


def test_the_fallback_sends_plain_exactly_where_it_is_smaller():
    a = csr_of([list(range(10))], 100)
    for moved, plain in [(4, False), (5, False), (6, True), (10, True)]:
        b = csr_of([[*range(10 - moved), *range(50, 50 + moved)]], 100)
        for index in INDEX:
            sent = encode(a, b, index=index)
            assert sent.plain == plain
            assert sent.nbytes == min(
                plain_bytes(10, index), difference_bytes(moved, moved, 10, index)
            )
            same_csr(rebuild(None if plain else a, sent), with_ones(b))


def test_a_sequence_comes_back_from_what_was_sent():
    group = [random_csr(seed, 30, 30, 0.02 * (seed % 9), weighted=True) for seed in range(20)]
    previous = None
    for t, (current, sent) in enumerate(
        zip(group, encode_sequence(group, restarts=(3,)), strict=True)
    ):
        assert sent.plain or t not in (0, 3)
        previous = rebuild(previous, sent.with_tensors([t.clone() for t in sent.tensors]))
        same_csr(previous, current)
        assert sent.nbytes <= plain_bytes(current.nnz)


def test_values_can_stay_at_home():
    a, b = random_csr(1, 20, 20, 0.3), random_csr(2, 20, 20, 0.3)
    sent = encode(a, b, values=False, fallback=False)
    assert (sent.values, sent.nbytes) == (None, 16 * sum(count_changes(a, b)))
    assert rebuild(a, sent).values is None
    with pytest.raises(InvalidInputError, match="values"):
        encode(a, random_csr(2, 20, 20, 0.3, weighted=True), values=False)


def test_self_loops_cost_their_values_only():
    group = [csr_of([[(v + 1 + t) % 12] for v in range(12)], 12) for t in range(4)]
    with_loops = encode_sequence(group, self_loops=True, fallback=False)
    without = encode_sequence(group, fallback=False)
    for t, (one, other) in enumerate(zip(with_loops, without, strict=True)):
        assert one.nnz == other.nnz + 12
        assert one.nbytes - other.nbytes == (20 if t == 0 else 4) * 12
    wide = rebuild(rebuild(None, with_loops[0]), with_loops[1])
    assert entries(wide) == sorted([*entries(group[1]), *((v, v) for v in range(12))])
    weighted = with_self_loops(dataclasses.replace(group[0], values=-torch.ones(group[0].nnz)), 2.0)
    for (row, column), value in zip(entries(weighted), weighted.values.tolist(), strict=True):
        assert value == (2.0 if row == column else -1.0)
    for wrong in (csr_of([[1], [1]], 2), csr_of([[1]], 2)):  # has a loop, is no square
        with pytest.raises(InvalidInputError):
            with_self_loops(wrong)


def _difference(a: Csr, removed, added, nnz=None, dtype=torch.int64) -> Difference:
    gone, come = (
        torch.tensor(p, dtype=dtype).reshape(-1, 2).t().contiguous() for p in (removed, added)
    )
    nnz = a.nnz - gone.shape[1] + come.shape[1] if nnz is None else nnz
    return Difference(gone, come, None, nnz, a.num_rows, a.num_cols, plain=False)


CHANGES = st.lists(st.tuples(st.integers(-1, 5), st.integers(-1, 40)), max_size=8)


@settings(deadline=None, max_examples=40, suppress_health_check=ONE_PLACE)
# Removals in another order, of entries that one vector compares, are made all the same.
@example(2, 0.4, [(2, 1), (2, 0)], [], False, torch.int64)
@given(  # in few entries, rows are merged as one list
    seed=st.integers(0, 99), density=st.sampled_from([0.4, 0.02]), gone=CHANGES, come=CHANGES,
    ordered=st.booleans(), dtype=st.sampled_from([torch.int64, torch.int32]),
)  # fmt: skip
def test_random_nonsense_never_writes_out_of_bounds(
    place, seed, density, gone, come, ordered, dtype
):
    """Either refused or right; a canary behind the output shows a write past its end."""
    a = random_csr(seed, 5, 40, density)
    if ordered:
        gone, come = sorted(set(gone)), sorted(set(come))
    sent = _difference(a, gone, come, dtype=dtype)
    if sent.nnz < 0:
        return
    csr, found = rebuilt(place, a, sent)
    old = set(entries(a))
    inside = all(0 <= r < 5 and 0 <= c < 40 for r, c in come)
    sound = set(gone) <= old and not set(come) & old and inside
    canonical = sorted(set(gone)) == gone and sorted(set(come)) == come
    accepted = max(found) < 0
    assert sound or not accepted
    assert accepted or not (sound and canonical)
    if accepted:
        assert entries(csr) == sorted((old - set(gone)) | set(come))


def test_what_does_not_fit_is_refused():
    a, b = csr_of([[0, 1], [1]], 3), csr_of([[0, 2], [1]], 3)
    sent = encode(a, b)
    sideways = torch.zeros(3, 2, dtype=torch.int64).t()
    change = dataclasses.replace
    refuses(
        rebuild, {"previous": a, "difference": sent}, ("previous", None),
        ("previous", csr_of([[0]], 3)), ("previous|expected 3", csr_of([[1], [1]], 3)),
        ("difference|removed", change(sent, removed=sent.removed.float())),
        ("difference|added", change(sent, added=sideways)),
        ("difference|removed", change(sent, plain=True)),
        ("difference|values", change(sent, values=torch.ones(1))),
    )  # fmt: skip
    refuses(
        encode, {"previous": a, "current": b}, ("current", csr_of([[1, 1], [0]], 3)),
        ("previous", csr_of([[1, 0], [0]], 3)), ("current|vertex set", csr_of([[0]], 3)),
        ("index", "int8"),
    )  # fmt: skip
    with pytest.raises(InvalidInputError, match="tensors"):
        sent.with_tensors(sent.tensors[:2])
    a.indices[1] = 0  # written to after it was looked through
    with pytest.raises(InvalidInputError, match="column"):
        encode(None, a)
