"""The counting model against hand counts and against a lane-by-lane simulation of the loads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from csr_cases import random_csr, snapshot_groups
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.slices import SlicedCsr, slice_csr
from dgbench.kernels_cuda.variants import memory_model as model
from dgbench.kernels_cuda.variants.memory_model import LoadCounts


def counted(loads: Iterable[list[int]]) -> LoadCounts:
    """Warp loads of word addresses: a request each, and a transaction per distinct sector."""
    made = [words for words in loads if words]
    return LoadCounts(len(made), sum(len({word // 8 for word in words}) for words in made))


def sliced_adjacency(sliced: SlicedCsr, d: int, coalesce: bool) -> Iterator[list[int]]:
    offsets = sliced.slice_offsets.tolist()
    g = model.thread_groups(d, coalesce)
    lanes = g * d if g > 1 else 32
    for first in range(0, sliced.num_slices, g):
        slices = range(first, min(first + g, sliced.num_slices))
        yield list(slices)  # begins
        yield [s + 1 for s in slices]  # ends
        yield list(slices)  # rows
        for start in range(0, 32 * g, lanes):
            words = []
            for nid in range(start, min(start + lanes, 32 * g)):
                s, off = first + nid % g, nid // g
                if s in slices and off < offsets[s + 1] - offsets[s]:
                    words.append(offsets[s] + off)
            yield words


def gespmm_adjacency(csr, weighted: bool) -> Iterator[list[int]]:
    indptr = csr.indptr.tolist()
    for row in range(csr.num_rows):
        yield [row]
        yield [row + 1]
        for begin in range(indptr[row], indptr[row + 1], 32):
            words = list(range(begin, min(begin + 32, indptr[row + 1])))
            yield from [words] * (2 if weighted else 1)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 999), density=st.sampled_from([0.0, 0.02, 0.3, 1.0]),
    d=st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 24, 31, 32, 64]), coalesce=st.booleans(),
)  # fmt: skip
def test_adjacency_loads_equal_the_simulated_warps(seed, density, d, coalesce):
    csr = random_csr(seed, 9, 100, density)
    sliced = slice_csr(csr)
    loads = sliced_adjacency(sliced, d, coalesce)
    assert model.sliced_adjacency(sliced, d, coalesce=coalesce) == counted(loads)
    for weighted in (False, True):
        loads = gespmm_adjacency(csr, weighted)
        assert model.gespmm_adjacency(csr, 16, weighted=weighted) == counted(loads)


@settings(max_examples=30)
@given(group=snapshot_groups(), width=st.sampled_from([1, 2, 6, 16]))
def test_a_partition_is_the_sum_of_its_parts(group, width):
    parts = PartTopology.build(group)
    total = model.sliced_loads(slice_csr(parts.over), len(group) * width)
    for rest in parts.exclusive:
        total += model.sliced_loads(slice_csr(rest), width)
    assert model.partition_loads(parts, width) == total
