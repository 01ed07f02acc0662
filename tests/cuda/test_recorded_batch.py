"""A whole batch on a device without a wait, against the CPU's store, torch and memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from device_cases import HOP, same_memory, stream_events
from kernel_checks import refuses
from torch import Tensor

from dgbench.kernels_cuda.batch_rows import MemoryTables, device
from dgbench.kernels_cuda.temporal_sample import sample_hops
from dgbench.kernels_cuda.temporal_store import TemporalStore, recorded, resident
from dgbench.kernels_cuda.temporal_store.recorded import RecordedBatch
from dgbench.kernels_cuda.temporal_store.resident import ResidentStore
from dgbench.models.ctdg import MemoryRows
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.stream_memory import VertexMemory

VERTICES, WIDTH, EDGE_DIM, NODE_DIM = 40, 8, 3, 5


@pytest.fixture
def there(serve) -> str:
    """The device that is emulated or there."""
    return serve(resident, recorded, device)


def events(seed: int, count: int) -> list[Tensor]:
    """Sources, destinations, others and times."""
    src, dst, t = stream_events(seed, count, 1000.0 * seed, VERTICES)
    random = torch.Generator().manual_seed(seed)
    return [src, dst, torch.randint(0, VERTICES, (count,), generator=random), t]


class Both:
    """A batch on the device, and a store and a memory of the CPU that are given the same."""

    def __init__(self, there: str, count: int, fanouts: list[int], **how: Any) -> None:
        random = torch.Generator().manual_seed(3)
        self.here = TemporalStore(VERTICES, undirected=True)
        self.memory = VertexMemory(VERTICES, WIDTH, 2 * WIDTH + EDGE_DIM)
        self.features = torch.rand(VERTICES, NODE_DIM, generator=random)
        state = self.memory.state()
        store = ResidentStore(VERTICES, undirected=True, device=there, room=2000)
        self.there = RecordedBatch(
            store, count, fanouts, features=self.features.to(there),
            memory=MemoryTables(*(getattr(state, n).to(there) for n in MemoryRows.__slots__)),
            **how,
        )  # fmt: skip
        self.how = {name: how[name] for name in how if name != "draw"}
        self.draw, self.fanouts, self.taken = how.get("draw", 0), fanouts, 0
        capacity = self.there.distinct.ids.numel()
        self.memories = torch.rand(capacity, WIDTH, generator=random).to(there)
        self.edges = torch.rand(count, EDGE_DIM, generator=random).to(there)

    def give(self, batch: list[Tensor]) -> None:
        """The next batch, where the device finds it."""
        src, dst, others, t = batch
        eids = torch.arange(self.taken, self.taken + t.numel())
        self.there.given[:4].copy_(torch.stack([src, dst, others, eids]))
        self.there.t.copy_(t)
        self.taken += t.numel()

    def play(self) -> None:
        """Launch what a graph of the batch records."""
        self.there.read()
        self.there.write(self.memories, self.edges)

    def check(self, batch: list[Tensor]) -> int:
        """Compare all that the device has with the CPU; return the number of neighbours."""
        src, dst, others, t = batch
        eids = torch.arange(self.taken - t.numel(), self.taken)
        self.here.insert(src, dst, t, eids)
        nodes = torch.cat([src, dst, others])
        ((*right,),) = sample_hops(
            self.here, nodes, t.repeat(3), self.fanouts, draw=self.draw % 2**32, **self.how
        )
        self.draw += 1
        found = self.there
        for one, hop in zip(right, found.samples, strict=True):
            for name in HOP:
                wanted, got = getattr(one, name), getattr(hop, name).cpu()
                assert torch.equal(got[: wanted.numel()], wanted), name
            count = one.neighbours.numel()
            assert bool((hop.offsets[one.nodes.numel() :] == count).all())
        named = torch.cat([right[-1].nodes, right[-1].neighbours])
        vertices, place = torch.unique(named, return_inverse=True)
        count = vertices.numel()
        assert (int(found.named), int(found.distinct.count)) == (named.numel(), count)
        assert torch.equal(found.distinct.ids[:count].cpu(), vertices)
        assert torch.equal(found.distinct.place[: named.numel()].cpu(), place)
        assert torch.equal(found.node_rows[:count].cpu(), self.features[vertices])
        same_memory(
            self.memory, found.memory, vertices, place, self.memories.cpu(), t, self.edges.cpu()
        )
        return sum(one.neighbours.numel() for one in right)


@pytest.mark.parametrize("count", [1, 30])
@pytest.mark.parametrize(
    "how",
    [{"fanouts": [3, 2]}, {"fanouts": [70, 1], "policy": "uniform", "search": "linear"},
     {"fanouts": [4], "policy": "uniform", "window": 1500.0, "closed": True, "draw": 2**32 - 2},
     {"fanouts": [2, 3, 2], "policy": "uniform", "prop_time": True, "seed": 5, "replace": True}],
    ids=str,
)  # fmt: skip
def test_batches_are_those_of_the_cpu(there, count, how):
    both = Both(there, count, **how)
    sampled = []
    for seed in range(4):
        batch = events(seed, count)
        both.give(batch)
        both.play()
        sampled.append(both.check(batch))
    assert sampled[3] > sampled[0]
    assert both.there.store.num_events == 4 * count


@pytest.mark.cuda
@pytest.mark.usefixtures("usable_device")
def test_a_graph_of_a_batch_is_played_again():
    both = Both("cuda", 30, [4, 3], policy="uniform", draw=7)
    both.there.store.reserve(1000, 30)
    batch = events(0, 30)
    both.give(batch)
    both.play()  # on its own
    both.check(batch)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # nothing is done while it is recorded
        both.play()
    grown = both.there.store.growths
    for seed in range(1, 6):
        batch = events(seed, 30)
        both.give(batch)
        graph.replay()
        both.check(batch)
    assert both.there.store.growths == grown


def test_a_batch_takes_few_launches_and_no_wait(there, log):
    """One for the roots, 4 a hop, 4 for the vertices, 1 for rows and 2 for memory."""
    both = Both(there, 30, [3, 2])
    for seed in range(2):
        both.give(events(seed, 30))
        log.clear()
        both.play()
        names = [call.name for call in log.calls()]
        inserts = 4
        assert names == inserts * ["launch"] + ["copy"] + (1 + 2 * 4 + 4 + 1 + 2) * ["launch"]
    assert both.there.store.num_events == 60


def test_events_at_no_vertices_are_told_later(there):
    both = Both(there, 4, [2])
    batch = events(0, 4)
    both.give(batch)
    both.there.given[0, 2] = VERTICES
    both.there.given[1, 3] = -1
    both.play()
    ((hop,), place) = both.there.samples, both.there.distinct.place.tolist()
    assert int(hop.offsets[-1]) == 0
    assert [at >= 0 for at in place[:12]] == [i not in (2, 7) for i in range(12)]
    with pytest.raises(InvalidInputError, match=r"src\[2\]"):
        both.there.store.check()


def test_what_does_not_fit_is_refused(there):
    store = ResidentStore(VERTICES, device=there)
    table = torch.zeros(3, 2, device=there)
    refuses(
        lambda **given: RecordedBatch(store, **given), {"events": 9, "fanouts": [2]},
        ("events", 0), ("fanouts|events", [2000, 2000]), ("fanouts|fanout", [0]),
        ("features", table), ("memory", MemoryTables(table, table, table, table)),
    )  # fmt: skip
    plain = RecordedBatch(store, 2, [1])
    plain.given[:2] = 1
    plain.read()
    assert plain.distinct.ids[: int(plain.distinct.count)].tolist() == [0, 1]
    with pytest.raises(InvalidInputError, match="memory"):
        plain.write(table)
