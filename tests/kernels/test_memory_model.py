"""The counting model against hand counts and against a lane-by-lane simulation of the loads."""

from __future__ import annotations

from csr_cases import random_csr, snapshot_groups
from hypothesis import given
from hypothesis import strategies as st

from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.slices import SlicedCsr, slice_csr
from dgbench.kernels_cuda.variants import memory_model as model
from dgbench.kernels_cuda.variants.memory_model import LoadCounts


class Simulator:
    """Counts warp loads of word addresses: one request each, a transaction per distinct sector."""

    def __init__(self) -> None:
        self.requests = self.transactions = 0

    def load(self, words: list[int]) -> None:
        if words:
            self.requests += 1
            self.transactions += len({word // 8 for word in words})

    @property
    def counts(self) -> LoadCounts:
        return LoadCounts(self.requests, self.transactions)


def simulate_sliced_adjacency(sliced: SlicedCsr, d: int, coalesce: bool) -> LoadCounts:
    warp = Simulator()
    offsets = sliced.slice_offsets.tolist()
    g = model.thread_groups(d, coalesce)
    lanes = g * d if g > 1 else 32
    for first in range(0, sliced.num_slices, g):
        slices = range(first, min(first + g, sliced.num_slices))
        warp.load(list(slices))  # begins
        warp.load([s + 1 for s in slices])  # ends
        warp.load(list(slices))  # rows
        for start in range(0, 32 * g, lanes):
            words = []
            for nid in range(start, min(start + lanes, 32 * g)):
                s, off = first + nid % g, nid // g
                if s in slices and off < offsets[s + 1] - offsets[s]:
                    words.append(offsets[s] + off)
            warp.load(words)
    return warp.counts


def simulate_gespmm_adjacency(csr, weighted: bool) -> LoadCounts:
    warp = Simulator()
    indptr = csr.indptr.tolist()
    for row in range(csr.num_rows):
        warp.load([row])
        warp.load([row + 1])
        for begin in range(indptr[row], indptr[row + 1], 32):
            words = list(range(begin, min(begin + 32, indptr[row + 1])))
            for _ in range(2 if weighted else 1):
                warp.load(words)
    return warp.counts


@given(
    seed=st.integers(0, 999), density=st.sampled_from([0.0, 0.02, 0.3, 1.0]),
    d=st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 24, 31, 32, 64]), coalesce=st.booleans(),
)  # fmt: skip
def test_adjacency_loads_equal_the_simulated_warps(seed, density, d, coalesce):
    csr = random_csr(seed, 9, 100, density)
    sliced = slice_csr(csr)
    assert model.sliced_adjacency(sliced, d, coalesce=coalesce) == simulate_sliced_adjacency(
        sliced, d, coalesce
    )
    for weighted in (False, True):
        assert model.gespmm_adjacency(csr, 16, weighted=weighted) == simulate_gespmm_adjacency(
            csr, weighted
        )


@given(group=snapshot_groups(), width=st.sampled_from([1, 2, 6, 16]))
def test_a_partition_is_the_sum_of_its_parts(group, width):
    parts = PartTopology.build(group)
    total = model.sliced_loads(slice_csr(parts.over), len(group) * width)
    for rest in parts.exclusive:
        total += model.sliced_loads(slice_csr(rest), width)
    assert model.partition_loads(parts, width) == total
