"""Machines that own vertices or edges, requests between them, and projections to a cluster."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from looped_cache import LoopedCache

from dgbench.datasets.events import EventStream
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.base.stream import negatives_of, stream_data
from dgbench.systems.gnnflow.cluster import PER_MACHINE, ClusterMachine, Iteration, g4dn, project
from dgbench.systems.gnnflow.experiments import fig15
from dgbench.systems.gnnflow.experiments.partition import assignment_check
from dgbench.systems.gnnflow.experiments.sample_checks import NearbyStream
from dgbench.systems.gnnflow.experiments.settings import BY_NAME, LAMBDA, workload
from dgbench.systems.gnnflow.owners import (
    SCHEDULES,
    AssignedOwners,
    IdentityHash,
    MachineLayout,
    shares,
    variation,
)
from dgbench.systems.gnnflow.partitioners import PARTITIONERS, partition
from dgbench.systems.gnnflow.serving import root_ranks, served
from dgbench.systems.gnnflow.vertex_cut import CUTS, asked_edge_cut, asked_vertex_cut, edge_machines


@given(st.integers(1, 5), st.lists(st.integers(0, 4), max_size=40))
def test_vertices_of_each_machine_are_numbered_without_gaps(machines, part) -> None:
    table, ids = torch.tensor([p % machines for p in part]).long(), torch.arange(len(part))
    for owners, expected in (
        (AssignedOwners(table, machines), table), (IdentityHash(machines), ids % machines)
    ):  # fmt: skip
        assert torch.equal(owners.of(ids), expected)
        for one in range(machines):
            places = owners.local(ids[expected == one])
            assert places.tolist() == list(range(owners.count(one, len(part))))


@settings(max_examples=30)
@given(st.integers(1, 4), st.integers(1, 4), st.sampled_from(SCHEDULES), st.integers(0, 99))
def test_servers_are_ranks_of_the_owner_and_own_vertices_stay(machines, per, schedule, seed):
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


def test_bad_input_is_named() -> None:
    one, ids = torch.zeros(1), torch.zeros(1, dtype=torch.int64)
    for error, name, call in (
        (InvalidInputError, "machines", lambda: IdentityHash(0)),
        (InvalidInputError, "machines", lambda: AssignedOwners(torch.tensor([0, 2]), 2)),
        (InvalidInputError, "vertices", lambda: AssignedOwners(ids, 2).count(0, 3)),
        (InvalidInputError, "per_machine", lambda: MachineLayout(2, 0)),
        (InvalidInputError, "ranks", lambda: g4dn(0)),
        (InvalidInputError, "speed", lambda: project(ONE, 2, 0.0)),
        (UnknownKeyError, "clock", lambda: ClusterMachine(32e9, 81e9).speed("clock")),
        (UnknownKeyError, "statik", lambda: MachineLayout(2).servers(0, ids, one, "statik")),
        (UnknownKeyError, "metsi", lambda: partition("metsi", 1, one, one, 1)),
        (UnknownKeyError, "grid", lambda: edge_machines("grid", 1, ids, ids, 2)),
    ):  # fmt: skip
        with pytest.raises(error, match=name):
            call()


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
    assert (both.records.tolist(), both.vertices.tolist()) == ([2000, 2000], [2000, 1])
    assert both.cut == 1.0
    nothing = shares(IdentityHash(3), src[:0], dst[:0], undirected=True)
    assert (nothing.records.tolist(), nothing.record_excess, nothing.cut) == ([0, 0, 0], 0.0, 0.0)


@pytest.mark.parametrize("by", PARTITIONERS)
def test_partitioners_assign_everyone(by: str) -> None:
    if by.startswith("metis"):
        pytest.importorskip("pymetis")
    draw = torch.Generator().manual_seed(3)
    src = torch.randint(0, 90, (600,), generator=draw)
    dst = (src + torch.randint(0, 3, (600,), generator=draw)) % 90
    owners, _ = partition(by, 100, src, dst, 4)  # ten vertices without an edge
    part = owners.of(torch.arange(100))
    assert 0 <= int(part.min()) <= int(part.max()) < 4
    assert sum(owners.count(m, 100) for m in range(4)) == 100
    if by in ("fennel", "ldg"):
        assert int(torch.bincount(part).max()) <= 28  # 10 % above the mean, and the last one
    if by not in ("hash", "mixed"):
        assert shares(owners, src, dst, undirected=True).cut < 0.5  # a ring
    alone, _ = partition(by, 100, src, dst, 1)
    assert int(alone.of(torch.arange(100)).max()) == 0


edges = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=25)


def asked_by_loop(machine_of, src, dst, first, fanout, asker, machines, *, by_edge):
    """Counts of what sampling asks of other machines, event by event."""
    targets = requests = records = 0
    seen: dict[int, list[int]] = {}
    for event, ends in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        for vertex in ends if event >= first else ():
            targets += 1
            for machine, held in enumerate(seen.get(vertex, [0] * machines)):
                if held and machine != int(asker[event - first]):
                    requests += 1
                    records += min(held, fanout)
        for vertex in ends:
            held = seen.setdefault(vertex, [0] * machines)
            held[machine_of[event if by_edge else vertex]] += 1
    return {"targets": targets, "requests": requests, "records": records,
            "bytes": 24 * (requests + records)}  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_ranks_serve_the_targets_of_a_loop(schedule) -> None:
    layout, draw = MachineLayout(2, 3), torch.Generator().manual_seed(4)
    asker, hops = root_ranks(5, layout.ranks), []
    nodes = torch.randint(0, 40, asker.shape, generator=draw)
    for _ in range(2):
        counts = torch.randint(0, 4, nodes.shape, generator=draw)
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        hops.append(SimpleNamespace(nodes=nodes, offsets=offsets))
        drawn = torch.randint(0, 40, (int(offsets[-1]),), generator=draw)
        nodes = torch.cat([nodes, drawn])
    work = served(layout, IdentityHash(2), [hops], asker, schedule)
    targets, records, who = [0] * 6, [0] * 6, asker.tolist()
    for hop in hops:
        counts = hop.offsets.diff().tolist()
        for rank, vertex, count in zip(who, hop.nodes.tolist(), counts, strict=True):
            machine = torch.tensor(vertex % 2)
            server = int(layout.servers(rank, machine, torch.tensor(vertex), schedule))
            targets[server] += 1
            records[server] += count
        who = who + [rank for rank, n in zip(who, counts, strict=True) for _ in range(n)]
    assert (work.targets.tolist(), work.records.tolist()) == (targets, records)


@settings(max_examples=60)
@given(edges, st.integers(1, 3), st.integers(0, 3), st.integers(1, 4))
def test_requests_are_those_of_a_loop_over_events(pairs, machines, first, fanout) -> None:
    first = min(first, len(pairs))
    src, dst = (torch.tensor(column) for column in zip(*pairs, strict=True))
    asker, owners = torch.arange(len(pairs) - first) % machines, IdentityHash(machines)
    how = src, dst, first, fanout, asker
    found, owner = asked_edge_cut(owners, *how), owners.of(torch.arange(6))
    loop = asked_by_loop(owner.tolist(), *how, machines, by_edge=False)
    assert {name: getattr(found, name) for name in loop} == loop
    assert loop["targets"] == 2 * (len(pairs) - first)
    for by in CUTS:
        kept = edge_machines(by, 6, src, dst, machines)
        assert assignment_check(kept, len(pairs), machines, filled=False).passed
        found = asked_vertex_cut(kept, machines, *how)
        loop = asked_by_loop(kept.tolist(), *how, machines, by_edge=True)
        assert {name: getattr(found, name) for name in loop} == loop


def test_roots_are_dealt_side_by_side_and_rows_counted_as_a_trainer_asks() -> None:
    assert root_ranks(5, 2, sides=2).tolist() == [0, 0, 0, 1, 1] * 2
    assert root_ranks(1, 3).tolist() == [0, 0, 0]
    assert variation(torch.tensor([1, 3])) == pytest.approx(0.5)
    draw = torch.Generator().manual_seed(2)
    src = torch.randint(0, 60, (4000,), generator=draw)
    dst = (src * 7 + torch.randint(0, 5, (4000,), generator=draw)) % 60
    events, graph = EventStream.build(src, dst, range(4000), num_nodes=60), BY_NAME["gdelt"]
    task = workload(graph, "tgat", "smoke", batch=10, chunks=1, node_dim=2, edge_dim=2)
    data = stream_data(events, task)
    counts = fig15.count_rows(graph, "tgat", data, batches=2, size=30)
    plain = NearbyStream(workload(graph, "tgat", "paper", chunks=1), data)
    plain.insert(0, len(events))
    caches = {"node": LoopedCache(2, "lru", LAMBDA), "edge": LoopedCache(12, "lru", LAMBDA)}
    for turn, part in enumerate(torch.arange(3940, 4000).split(30)):
        nodes = torch.cat([src[part], dst[part], negatives_of(task, data, part)])
        hops = plain.sample(nodes, events.t[part].repeat(3), draw=turn)[0]
        eids = torch.cat([hop.eids for hop in hops]).tolist()
        ids = {"node": torch.cat([hops[-1].nodes, hops[-1].neighbours]).tolist(), "edge": eids}
        for kind, cache in caches.items():
            cache.counts = dict.fromkeys(cache.counts, 0)
            cache.fetch(ids[kind])
    for kind, cache in caches.items():
        assert counts.asked[kind] == cache.counts["requests"]
        assert counts.missed[kind] == cache.counts["unique"] - cache.counts["unique_hits"]
    assert (counts.records, counts.ends) == (len(eids), nodes[:60].unique().numel())


ONE = Iteration(
    compute_s=4.0, sample_s=1.2, on_gpu=True, fetched=24e6, read=0.0, written=5e6, gradient=1e6
)


def test_a_step_is_its_parts_and_exchanges_grow_with_machines() -> None:
    steps = {ranks: project(ONE, ranks, speed=40.0) for ranks in (1, 8, 16, 32)}
    alone, exchanges = steps[1], [step.exchange_s for step in steps.values()]
    assert (alone.exchange_s, alone.compute_s) == (0, pytest.approx(0.1))
    assert alone.sample_s == pytest.approx(0.03)
    assert alone.seconds == pytest.approx(0.13 + alone.fetch_s)
    assert exchanges == sorted(exchanges)
    # Within a machine gradients alone travel, over ports of the GPUs; beyond it memories as well.
    assert steps[8].exchange_s < 1e-3
    assert steps[16].exchange_s > 8 * ONE.written / 12.5e9
    on_cpu = Iteration(4.0, 1.2, False, 24e6, 0.0, 5e6, 1e6)
    assert project(on_cpu, 1, 40.0).sample_s == pytest.approx(0.1)
    topology = g4dn(PER_MACHINE + 1)
    assert [len(topology.routes[0, other]) for other in (1, 8)] == [2, 4]
    machine = ClusterMachine(bytes_per_s=32e9, flops=81e9)
    assert [machine.speed(by) for by in ("bandwidth", "arithmetic")] == pytest.approx([10, 100])
