"""Distinct vertices, rows and messages of a batch on a device, against torch and the CPU's code."""

from __future__ import annotations

import pytest
import torch
from device_cases import same_memory
from kernel_checks import refuses
from torch import Tensor

from dgbench.kernels_cuda.batch_rows import (
    BatchMemory,
    DistinctIds,
    MemoryTables,
    device,
    gather_by_count,
)
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.stream_memory import VertexMemory

FIELDS = ("memory", "updated", "mail", "mail_time")


@pytest.fixture
def there(serve) -> str:
    """The device that is emulated or there."""
    return serve(device)


def number(there: str, value: int) -> Tensor:
    return torch.tensor([value], device=there)


@pytest.mark.parametrize("num_ids", [1, 33, 3 * 256 * 32 + 1])
def test_distinct_ids_are_those_of_torch(there, num_ids):
    """One batch after the other in the same memory: full, empty, of one id, of the largest one."""
    random = torch.Generator().manual_seed(num_ids)
    capacity = 700
    found = DistinctIds(num_ids, capacity, there)
    drawn = torch.randint(0, num_ids, (capacity,), generator=random)
    few = torch.randint(0, min(num_ids, 9), (capacity,), generator=random)
    same = torch.full((capacity,), num_ids - 1)
    for ids, live in ((drawn, capacity), (drawn, 0), (same, capacity), (few, 300), (drawn, 1)):
        found.place.fill_(-7)
        found.launch(ids.to(there), number(there, live))
        right, place = torch.unique(ids[:live], return_inverse=True)
        assert int(found.count) == right.numel()
        assert torch.equal(found.ids[: right.numel()].cpu(), right)
        assert torch.equal(found.place[:live].cpu(), place)
        assert bool((found.place[live:] == -7).all())


def test_what_is_no_id_has_no_place(there):
    found = DistinctIds(5, 6, there)
    ids = torch.tensor([-1, 4, 5, 2**62, -(2**62), 4], device=there)
    found.launch(ids, number(there, 6))
    assert (int(found.count), found.place.tolist()) == (1, [-1, 0, -1, -1, -1, 0])
    small = DistinctIds(300, 3, there)
    small.launch(torch.arange(3, device=there), number(there, 10**12))  # what does not fit is left
    assert small.ids[: int(small.count)].tolist() == [0, 1, 2]
    for num_ids, capacity in ((0, 3), (3, 0), (0, 0)):
        none = DistinctIds(num_ids, capacity, there)
        none.count.fill_(9)
        none.launch(torch.zeros(capacity, dtype=torch.int64, device=there), number(there, capacity))
        assert int(none.count) == 0
        assert none.place.tolist() == [-1] * capacity
    with pytest.raises(InvalidInputError, match="capacity"):
        DistinctIds(1, -1, there)
    with pytest.raises(InvalidInputError, match="ids"):
        none.launch(ids, number(there, 6))


def test_rows_come_from_the_hosts_memory_too(there, native):
    """The last table may be page-locked; rows of it go beside those of the device."""
    table = torch.arange(24.0).view(6, 4)
    held = table.pin_memory() if there == "cuda" else table
    ids, live = torch.tensor([5, 0, 9], device=there), number(there, 3)
    one, other = torch.zeros(3, 4, device=there), torch.zeros(3, 4, device=there)
    native.call("gather_by_count", ids, live, [2 * table.to(there)], held, [one, other])
    assert torch.equal(other[:2].cpu(), table[[5, 0]])
    assert torch.equal(one[:2].cpu(), 2 * table[[5, 0]])
    assert other[2].tolist() == [0.0] * 4  # no such row


def test_wrong_rows_are_refused(there):
    ids, live = torch.zeros(3, dtype=torch.int64, device=there), number(there, 1)
    table, target = torch.zeros(5, 2, device=there), torch.zeros(3, 2, device=there)
    for tables, targets in [
        ([], []), ([table], [target[:2]]), ([table.long()], [target.long()]),
        ([table], [target.double()]), ([table.to("meta")], [target]),
    ]:  # fmt: skip
        with pytest.raises(InvalidInputError, match="table"):
            gather_by_count(ids, live, tables, targets)


class Kept:
    """A memory on the device and the CPU's, with the same contents."""

    def __init__(self, there: str, vertices: int, width: int, edge_dim: int, dtype, capacity: int):
        self.here = VertexMemory(vertices, width, 2 * width + edge_dim, begin=-3.0, dtype=dtype)
        state = self.here.state()
        self.tables = MemoryTables(*(getattr(state, name).to(there) for name in FIELDS))
        self.found = DistinctIds(vertices, capacity, there)
        self.batch = BatchMemory(self.tables, self.found.ids.numel())
        self.there, self.width, self.edge_dim, self.dtype = there, width, edge_dim, dtype

    def step(self, ids: Tensor, t: Tensor, seed: int) -> None:
        """Both read, take their messages in somehow, and write; everything is compared."""
        random = torch.Generator().manual_seed(seed)
        live = number(self.there, ids.numel())
        padded = torch.zeros(self.found.capacity, dtype=torch.int64)
        padded[: ids.numel()] = ids
        self.found.launch(padded.to(self.there), live)
        gather_by_count(self.found.ids, self.found.count, self.tables.all, self.batch.rows.all)
        vertices, place = torch.unique(ids, return_inverse=True)
        memories = torch.rand(self.batch.capacity, self.width, dtype=self.dtype, generator=random)
        edges = torch.rand(t.numel(), self.edge_dim, dtype=self.dtype, generator=random)
        given = edges if self.edge_dim else None
        self.batch.write(
            self.found.place, t.to(self.there), self.found.ids, memories.to(self.there),
            None if given is None else given.to(self.there),
        )  # fmt: skip
        same_memory(self.here, self.batch, vertices, place, memories, t, given)


@pytest.mark.parametrize(
    ("width", "edge_dim", "dtype"),
    [(4, 0, torch.float32), (100, 172, torch.float32), (5, 3, torch.float32), (3, 1, torch.double)],
)
def test_memory_is_what_the_cpu_leaves(there, width, edge_dim, dtype):
    vertices = 30
    kept = Kept(there, vertices, width, edge_dim, dtype, 120)
    random = torch.Generator().manual_seed(5)
    drawn = torch.randint(0, vertices, (90,), generator=random)
    hub = drawn.clone()
    hub[:30] = 29
    self_edges = drawn.clone()
    self_edges[30:60] = self_edges[:30]
    all_same = torch.full((90,), 29)
    last = 0.0
    for seed, ids in enumerate((drawn, hub, self_edges, all_same, all_same[:3])):
        count = ids.numel() // 3
        t = last + (torch.arange(count) // 4).double()  # ties
        last = float(t[-1])
        kept.step(ids, t, seed)
    kept.step(hub, torch.zeros(30).double(), 9)  # all of them late
    kept.step(drawn[:60], torch.empty(0).double(), 10)  # no events


def test_ends_that_are_no_vertices_leave_nothing(there):
    kept = Kept(there, 4, 2, 0, torch.float32, 4)
    before = kept.here.state()
    place = torch.tensor([0, -1, 1, -1], device=there)
    memories = torch.ones(4, 2, device=there)
    kept.batch.rows.mail_time.fill_(-torch.inf)
    ids = torch.arange(4, device=there)
    kept.batch.write(place[[0, 1, 3, 2]], torch.ones(2, device=there).double(), ids, memories, None)
    for name in FIELDS:
        assert torch.equal(getattr(kept.tables, name).cpu(), getattr(before, name))
    kept.batch.write(place, torch.ones(2, device=there).double(), ids, memories, None)
    assert kept.tables.mail_time.tolist() == [1.0, 1.0, -torch.inf, -torch.inf]


def test_wrong_memory_is_refused(there):
    tables = {"memory": torch.zeros(4, 2), "updated": torch.zeros(4).double()}
    tables |= {"mail": torch.zeros(4, 5), "mail_time": torch.zeros(4).double()}
    tables = {name: table.to(there) for name, table in tables.items()}
    refuses(
        lambda **how: BatchMemory(MemoryTables(**how), 3), tables,
        ("mail|tables", torch.zeros(4, 3)), ("mail|tables", torch.zeros(3, 5)),
        ("updated|tables", torch.zeros(4)), ("mail_time|tables", torch.zeros(5).double()),
        ("memory|tables", torch.zeros(4, 2).half()),
    )  # fmt: skip
    batch = BatchMemory(MemoryTables(**tables), 3)
    ids, t = torch.zeros(3, dtype=torch.int64, device=there), torch.zeros(1, device=there).double()
    rows, edges = torch.zeros(3, 2, device=there), torch.zeros(1, 1, device=there)
    refuses(
        lambda **how: batch.write(*how.values()),
        {"place": ids, "t": t, "distinct": ids, "memories": rows, "edges": edges},
        ("place", ids[:1]), ("edges", None), ("memories", rows[:2]), ("distinct", ids[:2]),
        ("edges", edges.double()),
    )  # fmt: skip
