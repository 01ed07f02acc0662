"""Owner machines of vertices, their balance, and the ranks that serve requests."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.gnnflow.owners import (
    SCHEDULES,
    AssignedOwners,
    IdentityHash,
    MachineLayout,
    shares,
    variation,
)
from dgbench.systems.gnnflow.partitioners import PARTITIONERS, adjacency, partition


@given(st.integers(1, 9), st.integers(0, 200))
def test_hash_numbers_each_machines_vertices_without_gaps(machines: int, count: int) -> None:
    owners, ids = IdentityHash(machines), torch.arange(count)
    assert torch.equal(owners.of(ids), ids % machines)
    for one in range(machines):
        places = owners.local(ids[owners.of(ids) == one])
        assert places.tolist() == list(range(owners.count(one, count)))


@given(st.integers(1, 5), st.lists(st.integers(0, 4), max_size=40))
def test_table_numbers_each_machines_vertices_without_gaps(machines: int, part: list[int]) -> None:
    table = torch.tensor([p % machines for p in part], dtype=torch.int64)
    owners, ids = AssignedOwners(table, machines), torch.arange(len(part))
    assert torch.equal(owners.of(ids), table)
    for one in range(machines):
        places = owners.local(ids[table == one])
        assert places.tolist() == list(range(owners.count(one, len(part))))


def test_owners_refuse_what_is_not_there() -> None:
    with pytest.raises(InvalidInputError, match="'machines' is 0"):
        IdentityHash(0)
    with pytest.raises(InvalidInputError, match="holds machines 0 to 2"):
        AssignedOwners(torch.tensor([0, 2]), 2)
    with pytest.raises(InvalidInputError, match="made for 2 vertices, there are 3"):
        AssignedOwners(torch.tensor([0, 1]), 2).count(0, 3)
    with pytest.raises(InvalidInputError, match="'per_machine'"):
        MachineLayout(2, 0)


@settings(max_examples=30)
@given(st.integers(1, 4), st.integers(1, 4), st.sampled_from(SCHEDULES), st.integers(0, 99))
def test_servers_are_ranks_of_the_owner_and_own_vertices_stay(
    machines: int, per: int, schedule: str, seed: int
) -> None:
    layout, owners = MachineLayout(machines, per), IdentityHash(machines)
    ids = torch.randint(0, 1 << 40, (50,), generator=torch.Generator().manual_seed(seed))
    askers = ids % layout.ranks
    found = layout.servers(askers, owners.of(ids), ids, schedule)
    assert torch.equal(layout.machines_of(found), owners.of(ids))
    own = owners.of(ids) == layout.machines_of(askers)
    assert torch.equal(found[own], askers[own])
    if schedule == "static":
        assert torch.equal(found % per, askers % per)
    for rank in range(layout.ranks):
        mine = askers == rank
        alone = layout.servers(rank, owners.of(ids[mine]), ids[mine], schedule)
        assert torch.equal(alone, found[mine])


def test_servers_refuse_another_schedule() -> None:
    with pytest.raises(UnknownKeyError, match="statik"):
        MachineLayout(2).servers(0, torch.zeros(1, dtype=torch.int64), torch.zeros(1), "statik")


def test_hash_balance_is_lost_by_ids_in_strides_and_kept_by_a_mixing_hash() -> None:
    """Users have even ids, each with one edge to the next odd id, except that all end at 1."""
    src = torch.arange(0, 4000, 2)
    dst = torch.ones_like(src)
    directed = shares(IdentityHash(2), src, dst, undirected=False)
    assert directed.records.tolist() == [2000, 0]
    assert directed.record_excess == 1.0
    mixed, _ = partition("mixed", 4000, src, dst, 2)
    assert shares(mixed, src, dst, undirected=False).record_excess < 0.1
    both = shares(IdentityHash(2), src, dst, undirected=True)
    assert both.records.tolist() == [2000, 2000]
    assert both.cut == 1.0
    assert both.vertices.tolist() == [2000, 1]


def test_shares_of_nothing() -> None:
    nothing = torch.zeros(0, dtype=torch.int64)
    found = shares(IdentityHash(3), nothing, nothing, undirected=True)
    assert found.records.tolist() == [0, 0, 0]
    assert found.record_excess == 0.0
    assert found.cut == 0.0


@pytest.mark.parametrize("by", PARTITIONERS)
def test_partitioners_assign_everyone(by: str) -> None:
    if by.startswith("metis"):
        pytest.importorskip("pymetis")
    draw = torch.Generator().manual_seed(3)
    src = torch.randint(0, 90, (600,), generator=draw)
    dst = (src + torch.randint(0, 3, (600,), generator=draw)) % 90
    owners, seconds = partition(by, 100, src, dst, 4)  # ten vertices without an edge
    part = owners.of(torch.arange(100))
    assert seconds >= 0
    assert int(part.min()) >= 0
    assert int(part.max()) < 4
    assert sum(owners.count(m, 100) for m in range(4)) == 100
    if by in ("fennel", "ldg"):
        assert int(torch.bincount(part).max()) <= 28  # 10 % above the mean, and the last one
    if by not in ("hash", "mixed"):
        assert shares(owners, src, dst, undirected=True).cut < 0.5  # a ring
    alone, _ = partition(by, 100, src, dst, 1)
    assert int(alone.of(torch.arange(100)).max()) == 0


def test_partitioners_refuse_another_name() -> None:
    with pytest.raises(UnknownKeyError, match="metsi"):
        partition("metsi", 1, torch.zeros(0), torch.zeros(0), 1)


def test_adjacency_merges_and_drops_loops() -> None:
    src, dst = torch.tensor([0, 1, 0, 2]), torch.tensor([1, 0, 1, 2])
    first, other, weight = adjacency(3, src, dst)
    assert first.tolist() == [0, 1, 2, 2]
    assert other.tolist() == [1, 0]
    assert weight.tolist() == [3, 3]


def test_variation() -> None:
    assert variation(torch.tensor([2, 2, 2])) == 0.0
    assert variation(torch.tensor([1, 3])) == pytest.approx(0.5)
    assert variation(torch.zeros(0)) == 0.0
