"""Dispatch, features and samples over several ranks against one process that has all."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from dgc_ranks import as_ranks
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.runtime.collectives import Communicator, LocalCommunicator
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.plain_sampler import PlainGraph, plain_hops
from dgbench.systems.gnnflow.dispatch import Dispatcher, records_of
from dgbench.systems.gnnflow.feature_store import EdgeRows, Fetcher, VertexRows, WholeTableRows
from dgbench.systems.gnnflow.local_graph import GRAPHS, open_graph
from dgbench.systems.gnnflow.owners import SCHEDULES, AssignedOwners, IdentityHash, MachineLayout
from dgbench.systems.gnnflow.remote_sampling import RemoteSampler
from dgbench.systems.gnnflow.serving import root_ranks, served

N, E = 23, 300
LAYOUTS = (MachineLayout(1, 2), MachineLayout(2, 1), MachineLayout(3, 1), MachineLayout(2, 2))


def events(seed: int = 1) -> tuple[torch.Tensor, ...]:
    """src, dst, t, eid: with self edges, repeated pairs and equal times; vertex N - 1 is alone."""
    draw = torch.Generator().manual_seed(seed)
    src = torch.randint(0, N - 1, (E,), generator=draw)
    dst = torch.where(torch.rand(E, generator=draw) < 0.05, src, (src * 3 + 1) % (N - 1))
    t = torch.randint(0, E // 3, (E,), generator=draw).sort().values.double()
    return src, dst, t, torch.arange(E)


def features(rows: int, dim: int) -> torch.Tensor:
    return torch.arange(rows * dim, dtype=torch.float32).view(rows, dim)


@settings(max_examples=40)
@given(st.lists(st.integers(0, 30), max_size=30, unique=True), st.integers(0, 5))
def test_edge_rows_find_what_was_appended(ids: list[int], pieces: int) -> None:
    every = torch.tensor(sorted(ids), dtype=torch.int64)
    table = features(31, 3)
    rows = EdgeRows(3)
    for part in every.tensor_split(pieces + 1):
        twice = part.repeat_interleave(2)  # as an undirected edge with both ends here
        rows.append(twice, table[twice])
    assert rows.num_rows == len(ids)
    wanted = torch.tensor(ids, dtype=torch.int64)
    assert torch.equal(rows.gather(wanted), table[wanted])
    for missing in {0, 15, 30} - set(ids):
        with pytest.raises(InvalidInputError, match="edge"):
            rows.gather(torch.tensor([missing]))


def test_bad_input_is_named() -> None:
    one, two = torch.zeros(1, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)
    comm, rows = LocalCommunicator(), EdgeRows(1)
    rows.append(torch.tensor([3, 5]), torch.ones(2, 1))
    for name, call in (
        ("dst", lambda: records_of(one, two, one, one, undirected=True)),
        ("ids", lambda: rows.append(torch.tensor([5]), torch.zeros(1, 1))),
        ("ids", lambda: rows.append(torch.tensor([7, 6]), torch.zeros(2, 1))),
        ("shape", lambda: rows.append(torch.tensor([9]), torch.zeros(1, 2))),
        ("layout", lambda: Dispatcher(comm, MachineLayout(2), IdentityHash(2), undirected=True)),
        ("machines", lambda: Fetcher(comm, MachineLayout(1), IdentityHash(3))),
    ):
        with pytest.raises(InvalidInputError, match=name):
            call()
    assert rows.gather(torch.tensor([5, 3])).tolist() == [[1.0], [1.0]]  # as it was


# Several ranks.


def run_rank(
    comm: Communicator, layout: MachineLayout, schedule: str, by: str
) -> dict[str, object]:
    """Dispatch in three batches, then sample and fetch a share of a batch."""
    owners = IdentityHash(layout.machines)
    if by == "table":
        owners = AssignedOwners(torch.arange(N) * 7 // 5 % layout.machines, layout.machines)
    src, dst, t, eid = events()
    found: dict[str, object] = {}
    edge_table, vertex_table = features(E, 2), features(N, 3)
    dispatcher = Dispatcher(comm, layout, owners, undirected=True)
    machine = layout.machine(comm.rank)
    edges = EdgeRows(2) if layout.machines > 1 else WholeTableRows(edge_table)
    vertices = VertexRows.of(owners, machine, vertex_table)
    graphs = {kind: open_graph(kind, N, tau=4, origin=0.0) for kind in GRAPHS}
    for first in range(0, E, 100):
        cut = slice(first, first + 100)
        records = dispatcher.dispatch(src[cut], dst[cut], t[cut], eid[cut], edge_table[cut])
        for graph in graphs.values():
            graph.insert(records)
        if layout.machines > 1:
            edges.append(records.eid, records.feature)
    fetcher = Fetcher(comm, layout, owners, schedule=schedule)
    nodes, times, rank_of = roots()
    mine = (rank_of(layout.ranks) == comm.rank).nonzero().flatten()
    for kind, graph in graphs.items():
        for policy in ("recent", "uniform"):

            def hop(nodes, times, policy=policy, graph=graph, **how):
                return graph.sample(nodes, times, policy=policy, window=40.0, seed=5, **how)

            sampler = RemoteSampler(
                comm, layout, owners, hop, (3, 2), snapshots=2, window=40.0, schedule=schedule
            )
            found[f"{kind} {policy}"] = sampler.sample(
                nodes[mine], times[mine], draw=9, positions=mine
            )
            known, homes = sampler.homes.known()
            assert torch.equal(fetcher.fetch("edge", edges, known, homes), edge_table[known])
    some = torch.arange(comm.rank, N, 2)
    if comm.rank == 1:
        some = some[:0]
    assert torch.equal(fetcher.fetch("node", vertices, some, owners.of(some)), vertex_table[some])
    found["counts"] = dict(comm.meter.counters)
    return found


def roots() -> tuple[torch.Tensor, torch.Tensor, object]:
    draw = torch.Generator().manual_seed(8)
    nodes = torch.randint(0, N, (39,), generator=draw)
    times = torch.randint(0, E // 3 + 9, (39,), generator=draw).double()
    return nodes, times, lambda ranks: root_ranks(13, ranks)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda x: f"{x.machines}x{x.per_machine}")
@pytest.mark.parametrize("by", ["hash", "table"])
def test_ranks_together_are_one_process(layout: MachineLayout, by: str) -> None:
    """And did the work that a count of their requests says."""
    schedule = SCHEDULES[(layout.ranks + (by == "table")) % 3]
    found = as_ranks(layout.ranks, run_rank, layout, schedule, by)
    graph = PlainGraph(N, undirected=True)
    graph.insert(*events())
    nodes, times, rank_of = roots()
    asker = rank_of(layout.ranks)
    targets, records = torch.zeros(2, layout.ranks, dtype=torch.int64)
    for policy in ("recent", "uniform"):
        expected = plain_hops(
            graph, nodes, times, (3, 2), policy=policy, window=40.0, snapshots=2, seed=5, draw=9
        )
        if by == "hash":
            work = served(layout, IdentityHash(layout.machines), expected, asker, schedule)
            targets, records = targets + 2 * work.targets, records + 2 * work.records
        for kind in GRAPHS:
            for s, hops in enumerate(expected):
                who = asker
                for h, whole in enumerate(hops):
                    counts = whole.offsets.diff()
                    for rank, told in enumerate(found):
                        mine = told[f"{kind} {policy}"][s][h]
                        same_share(mine, whole, who == rank, counts)
                    who = torch.cat([who, who.repeat_interleave(counts)])
    if by == "hash":
        counts = [Counter(told["counts"]) for told in found]
        assert [c["targets_own"] + c["targets_served"] for c in counts] == targets.tolist()
        assert [c["records_sampled"] for c in counts] == records.tolist()


def same_share(mine, whole, is_mine: torch.Tensor, counts: torch.Tensor) -> None:
    """A rank's sample is what it asked for of the whole batch's, bit for bit."""
    kept = is_mine.repeat_interleave(counts)
    assert torch.equal(mine.nodes, whole.nodes[is_mine])
    assert torch.equal(mine.times, whole.times[is_mine])
    assert torch.equal(mine.positions, whole.positions[is_mine])
    assert torch.equal(mine.offsets.diff(), counts[is_mine])
    for name in ("neighbours", "eids", "edge_times"):
        assert torch.equal(getattr(mine, name), getattr(whole, name)[kept]), name
