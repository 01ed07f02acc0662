"""GNNFlow on a device: graphs of a million edges sampled where they lie, as they grow."""

from __future__ import annotations

import pytest
import torch
from device_cases import assert_hops_equal

from dgbench.kernels_cuda.temporal_sample import sample_hops
from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore
from dgbench.kernels_cuda.temporal_store.device import PLACEMENTS, DeviceStore, hold_ballast
from dgbench.kernels_cuda.temporal_store.resident import ResidentStore

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("usable_device")]
VERTICES, GROWN = 50_000, BlockPolicy("grown", 256)


def events(count: int, begin: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(count)
    src = (VERTICES * torch.rand(count, generator=random, dtype=torch.float64) ** 4).long()
    dst = torch.randint(VERTICES, (count,), generator=random)
    return src, dst, begin + torch.arange(count).div(3, rounding_mode="floor").double()


def compare(there: DeviceStore | ResidentStore, store: TemporalStore, roots: int, draw=0) -> None:
    random = torch.Generator().manual_seed(roots)
    nodes = torch.randint(VERTICES, (roots,), generator=random)
    times = store.last_time * torch.rand(roots, generator=random, dtype=torch.float64)
    for policy in ("recent", "uniform"):
        for search in ("binary", "linear"):
            how = {"policy": policy, "search": search, "draw": draw}
            right = sample_hops(store, nodes, times, [10, 10], **how)
            assert_hops_equal(right, there.sample_hops(nodes.cuda(), times.cuda(), [10, 10], **how))


@pytest.mark.parametrize("placement", [*PLACEMENTS, "resident"])
@pytest.mark.parametrize(
    "how",
    [*({"layout": name} for name in ("packed", "compact", "wide")), {"policy": GROWN}],
    ids=str,
)
def test_large_graphs_are_sampled_alike_as_they_grow(placement, how):
    how = {"policy": BlockPolicy("adaptive", 256), "undirected": True, **how}
    store, resident = TemporalStore(VERTICES, **how), placement == "resident"
    there = ResidentStore(VERTICES, **how) if resident else DeviceStore(store, placement)
    for count in (1_000_000, 100_000, 7, 400_000):
        batch = events(count, store.last_time if store.num_events else 0.0)
        store.insert(*batch)
        there.insert(*batch) if resident else there.update()
        compare(there, store, 12_000, count)
    assert not resident or there.memory().blocks == store.memory().blocks
    there.close()


def test_a_ballast_leaves_what_was_asked_for():
    leave = 1 << 30
    held = hold_ballast(leave, torch.device("cuda"))
    free, _ = torch.cuda.mem_get_info()
    assert held is not None
    assert free <= leave + (64 << 20)
    del held
    torch.cuda.empty_cache()


def test_samples_on_a_stream_of_their_own_wait_for_the_update():
    store = TemporalStore(VERTICES, undirected=True)
    store.insert(*events(300_000, 0.0))
    with torch.cuda.stream(torch.cuda.Stream()):
        there = DeviceStore(store, "cuda")
        for _ in range(3):
            store.insert(*events(50_000, store.last_time))
            there.update()
            compare(there, store, 3000)
