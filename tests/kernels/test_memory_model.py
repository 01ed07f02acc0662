"""The counting model against hand counts and against a lane-by-lane simulation of the loads."""

from __future__ import annotations

from csr_cases import csr_of, random_csr, snapshot_groups
from hypothesis import given
from hypothesis import strategies as st
from kernel_checks import refuses

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


def test_rows_and_lanes_by_hand():
    assert [model.row_transactions(d) for d in (1, 2, 8, 9, 64)] == [1, 1, 1, 2, 8]
    assert [model.row_requests(d) for d in (1, 32, 33, 64)] == [1, 1, 2, 2]
    assert [model.row_requests(128, v) for v in (1, 2, 4)] == [4, 2, 1]
    assert [model.vector_width(d) for d in (2, 32, 33, 48, 66, 96)] == [1, 1, 1, 2, 2, 4]
    occupied = [(2, 0.0625, 0.25), (6, 0.1875, 0.75), (24, 0.75, 0.75), (48, 0.75, 0.75)]
    for d, alone, together in occupied:
        assert model.lane_occupancy(d, coalesce=False) == alone
        assert model.lane_occupancy(d) == together
    refuses(model.row_requests, {"d": 4, "vector": 4}, ("vector", 3))
    refuses(model.lane_occupancy, {"d": 4}, ("d", 0))


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


def test_work_and_imbalance():
    """Rows of 0, 64, 1, 1: mean 16.5 with rows; slices 32, 32, 1, 1."""
    csr = csr_of([[], list(range(64)), [0], [1]], 64)
    sliced = slice_csr(csr)
    assert model.row_work(csr).tolist() == [0, 64, 1, 1]
    assert model.imbalance(model.row_work(csr)) == 64 / 16.5
    assert model.slice_work(sliced, 32).tolist() == [32, 32, 1, 1]
    assert model.slice_work(sliced, 16).tolist() == [32, 1]
    assert model.slice_work(sliced, 2).tolist() == [32]
    assert model.imbalance(model.slice_work(sliced, 2)) == 1.0
    empty = slice_csr(csr_of([[], []], 1))
    assert model.imbalance(model.slice_work(empty, 2)) == 1.0
    assert model.sliced_loads(empty, 2) == LoadCounts(0, 0)
