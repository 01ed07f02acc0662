"""Samples of edges on the device: shares and subgraphs as on the CPU, samples by their rules."""

from __future__ import annotations

import math
from functools import partial
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from dgbench.kernels_cuda.edge_sampling import (
    EdgeTable,
    device_subgraphs,
    induced_edges,
    keep_share,
    sample_layerwise,
    sample_nodewise,
    sample_subgraph,
    share_of,
)
from dgbench.kernels_cuda.edge_sampling import device as device_edge_sampling
from dgbench.kernels_cuda.edge_sampling.device import table_on
from dgbench.runtime.meter import Meter
from dgbench.systems.base.interactions import InteractionWorkload
from dgbench.systems.tgcn import program as programs
from dgbench.systems.tgcn.recounts import check_kept
from dgbench.systems.tgcn.system import TgcnSystem

TABLES = [  # vertices, edges, undirected, power of the skew
    (1, 0, False, 1),
    (1, 5, True, 1),
    (40, 30, False, 1),
    (60, 800, False, 3),
    (50, 400, True, 2),
    (300, 9000, False, 6),
]


def table_of(case, seed: int = 0) -> EdgeTable:
    """Half of the vertices have no edge of their own; times repeat; there are self edges."""
    vertices, edges, undirected, power = case
    random = np.random.default_rng([seed, vertices, edges])
    src = (max(1, vertices // 2) * random.random(edges) ** power).astype(np.int64)
    dst = random.integers(0, vertices, edges)
    t = np.sort(random.integers(0, max(1, edges // 3), edges)).astype(np.float64)
    return EdgeTable.build(*map(torch.from_numpy, (src, dst, t)), vertices, undirected)


def ids(case) -> str:
    return "-".join(map(str, case))


@pytest.mark.parametrize("rounding", ["nearest", "random"])
def test_the_share_that_is_kept_is_that_of_the_cpu(native, rounding):
    edges = (1 << 16) + 70  # a row that draws long numbers
    zeros = torch.zeros(edges, dtype=torch.int64)
    long = EdgeTable.build(zeros, zeros, torch.arange(edges).double(), 2)
    for table in (*(table_of(case) for case in TABLES if not case[2]), long):
        for share in (0.4,) if table is long else (0.0, 0.5, 0.3, 1.0):
            how = {"seed": 2**40 + 3, "rounding": rounding}
            right = keep_share(table, share, **how)
            there = table_on(table, native.device)
            found = device_edge_sampling.keep_share(there, share, native=native.module, **how)
            assert torch.equal(found.cpu(), right)


WALKS = [  # frontier, draws, subgraphs, replacement, by degree
    (1, 0, 1, False, True),
    (1, 7, 2, True, True),
    (4, 30, 2, True, False),
    (5, 40, 3, True, True),
    (30, 90, 2, False, True),
    (70, 150, 2, True, True),
]


@pytest.mark.parametrize(
    ("case", "walk"),
    [
        (case, walk)
        for case, walk in product(TABLES, WALKS)
        if walk[3] or walk[0] <= case[0]  # without replacement a frontier is at most the graph
    ],
    ids=ids,
)
@pytest.mark.parametrize("memory", ["shared", "tree", "device", "wide"])
def test_subgraphs_are_those_of_the_cpu(native, case, walk, memory, monkeypatch):
    frontier, draws, count, replacement, by_degree = walk
    table = table_of(case)
    if memory == "device":
        monkeypatch.setenv("EMULATED_ORDER", "reverse")
    weights = "degree" if by_degree else None
    right = sample_subgraph(
        table, frontier, draws, count=count, replacement=replacement, weights=weights, seed=11,
        call=2, first=5,
    )  # fmt: skip
    there = table_on(table, native.device)
    if memory == "wide":
        monkeypatch.setattr(device_subgraphs, "WIDTHS", (True,))
    members, reseeded = device_subgraphs.members_of(
        there, frontier, draws, count, replacement, by_degree, 11, 3 << 60 | 2 << 40 | 5,
        native.module, None if memory == "wide" else memory,
    )  # fmt: skip
    offsets, vertices = device_subgraphs.vertices_of(members, table.num_nodes)
    assert torch.equal(offsets.cpu(), right.offsets)
    assert torch.equal(vertices.cpu(), right.vertices)
    assert reseeded == right.reseeded
    edge_offsets, eids = device_subgraphs.induced_edges(there, offsets, vertices)
    assert torch.equal(edge_offsets.cpu(), right.edge_offsets)
    assert torch.equal(eids.cpu(), right.eids)
    whole = device_edge_sampling.sample_subgraph(
        there, frontier, draws, count=count, method="sis", replacement=replacement,
        by_degree=by_degree, induced=True, seed=11, call=2, first=5, native=native.module,
    )  # fmt: skip
    assert torch.equal(whole.vertices.cpu(), right.vertices)
    assert torch.equal(whole.eids.cpu(), right.eids)


def test_sums_that_do_not_fit_are_walked_again(native):
    """Degrees that 32 bits hold, and their sum does not."""
    degree, vertices = 2**31 - 2, 3
    # What stands in the rows is never read before the tree is found too small: no draws.
    indptr = torch.arange(vertices + 1) * degree
    table = EdgeTable(
        native.put(indptr), native.put(torch.zeros(1, dtype=torch.int32)),
        native.put(torch.zeros(1, dtype=torch.int32)), native.put(torch.zeros(1).double()), 1,
    )  # fmt: skip
    members, reseeded = device_subgraphs.members_of(
        table, 3, 0, 2, True, True, 1, 0, native.module, "shared"
    )
    assert reseeded == 0
    assert not members.any()


def roots_of(table: EdgeTable, count: int) -> Tensor:
    random = torch.Generator().manual_seed(count)
    return torch.randint(table.num_nodes, (count,), generator=random)


def on_device(native, table, roots, starts, space, **how):
    how = {"sizes": [], "share": 0.5, "layers": 2, "method": "keys", "weights": None,
           "before": None, "seed": 3, "call": 1, "first": 0, **how}  # fmt: skip
    move = {k: v.to(native.device) for k, v in how.items() if isinstance(v, Tensor)}
    return device_edge_sampling.sample_roots(
        table_on(table, native.device), roots.to(native.device), starts, space, **{**how, **move},
        native=native.module,
    )  # fmt: skip


def rows(sample) -> list[tuple[Tensor, ...]]:
    names = ("offsets", "eids", "sources", "neighbours")
    return [tuple(getattr(layer, name).cpu() for name in names) for layer in sample.layers]


def same(one, other) -> bool:
    return all(map(torch.equal, sum(rows(one), ()), sum(rows(other), ())))


SPACES = [("vertex", {"union": False}), ("edges", {"union": True}), ("vertices", None)]


@pytest.mark.parametrize("case", TABLES, ids=ids)
@pytest.mark.parametrize(("space", "how"), SPACES, ids=lambda x: str(x)[:8])
@pytest.mark.parametrize("timed", [False, True])
def test_a_sample_of_everything_is_that_of_the_cpu(native, case, space, how, timed):
    table = table_of(case)
    roots = roots_of(table, 13)
    before = torch.linspace(0, float(table.t.max()) + 1 if case[1] else 1, 13).double()
    before = before if timed else None
    if how is None:
        batch, starts = 4, torch.tensor([0, 4, 8, 12, 13])
        right = sample_layerwise(table, roots, share=1.0, layers=3, batch=batch, items="vertices",
                                 before=before)  # fmt: skip
    else:
        starts = torch.arange(14)
        right = sample_nodewise(table, roots, share=1.0, layers=3, before=before, **how)
    found = on_device(native, table, roots, starts, space, share=1.0, layers=3, before=before)
    assert same(found, right)
    for name in ("node_offsets", "nodes", "pools"):
        assert torch.equal(getattr(found, name).cpu(), getattr(right, name)), name


@pytest.mark.parametrize("case", [(40, 30, False, 1), (60, 300, False, 3), (50, 200, True, 2)])
@pytest.mark.parametrize(
    ("space", "weights"),
    [
        (space, weights)
        for (space, _), weights in product(SPACES, (None, "degree", "edge"))
        if space != "vertices" or weights != "edge"  # which do not say what a vertex weighs
    ],
)
@pytest.mark.parametrize("sizes", [[], [3, 5]], ids=str)
def test_a_sample_is_of_its_size_and_of_its_candidates(native, case, space, weights, sizes):
    table = table_of(case)
    roots, groups = roots_of(table, 13), 13
    starts = torch.arange(groups + 1)
    edge_weights = torch.ones(table.num_edges, dtype=torch.float64)
    edge_weights[::3] = 0
    given = edge_weights if weights == "edge" else weights
    found = on_device(native, table, roots, starts, space, sizes=sizes, weights=given)
    again = on_device(native, table, roots, starts, space, sizes=sizes, weights=given)
    other = on_device(native, table, roots, starts, space, sizes=sizes, weights=given, seed=4)
    assert same(found, again)
    if case[1] > 100:
        assert not same(found, other)
    everything = on_device(native, table, roots, starts, space, share=1.0, layers=1)
    for group in range(groups):
        frontier = {int(roots[group])}
        for layer, (offsets, eids, sources, neighbours) in enumerate(rows(found)):
            mine = slice(int(offsets[group]), int(offsets[group + 1]))
            taken = list(zip(sources[mine].tolist(), eids[mine].tolist(), strict=True))
            there = candidates(table, frontier, edge_weights if weights == "edge" else None)
            assert {pair for v in there for pair in there[v]} >= set(taken)
            check_sizes(table, space, sizes, layer, frontier, taken, neighbours[mine], weights,
                        there)  # fmt: skip
            frontier = set(neighbours[mine].tolist())
    assert everything.layers[0].eids.numel() >= found.layers[0].eids.numel()


def candidates(table, frontier, edge_weights) -> dict[int, list[tuple[int, int]]]:
    found = {}
    for v in frontier:
        eids = table.eid[int(table.indptr[v]) : int(table.indptr[v + 1])].tolist()
        found[v] = [(v, e) for e in eids if edge_weights is None or edge_weights[e] > 0]
    return found


def check_sizes(table, space, sizes, layer, frontier, taken, neighbours, weights, there) -> None:
    """As many as were asked for, or as there are with weight."""
    degree = table.degrees

    def wanted(count: int, positive: int) -> int:
        most = min(sizes[layer], count) if sizes else math.floor(0.5 * count + 0.5)
        return min(most, positive)

    def has_weight(v: int, e: int) -> bool:
        if weights != "degree":
            return True
        row = slice(int(table.indptr[v]), int(table.indptr[v + 1]))
        at = table.eid[row].tolist().index(e)
        return int(degree[int(table.dst[row][at])]) > 0

    if space == "vertices":
        pool = {int(u) for v in frontier for u in table.dst[int(table.indptr[v]) :
                int(table.indptr[v + 1])]}  # fmt: skip
        positive = [u for u in pool if weights != "degree" or int(degree[u]) > 0]
        assert len(set(neighbours.tolist())) == wanted(len(pool), len(positive))
    elif not table.undirected:  # there an edge stands twice in the row of its only end
        assert len(set(taken)) == len(taken)
        good = {v: [p for p in there[v] if has_weight(*p)] for v in frontier}
        if space == "vertex":
            right = sum(wanted(int(degree[v]), len(good[v])) for v in frontier)
        else:
            right = wanted(sum(int(degree[v]) for v in frontier), sum(map(len, good.values())))
        assert len(taken) == right


def test_candidates_are_drawn_in_proportion_to_their_weights(native):
    """One draw out of edges of weight 1, 2, 3 and 6, by many roots at one vertex."""
    weights = torch.tensor([1.0, 2.0, 3.0, 6.0], dtype=torch.float64)
    src = torch.zeros(4, dtype=torch.int64)
    table = EdgeTable.build(src, torch.arange(4), torch.arange(4).double(), 5)
    count = 1500
    roots, starts = torch.zeros(count, dtype=torch.int64), torch.arange(count + 1)
    found = on_device(native, table, roots, starts, "vertex", sizes=[1], layers=1, weights=weights)
    seen = torch.bincount(found.layers[0].eids.cpu(), minlength=4).double() / count
    share = weights / 12
    assert bool(((seen - share).abs() < 4.5 * (share * (1 - share) / count).sqrt()).all())


@pytest.mark.cuda
@pytest.mark.usefixtures("usable_device")
def test_public_functions_on_a_device():
    table = table_of((20_000, 300_000, False, 5))
    there = table_on(table, "cuda")
    assert torch.equal(keep_share(there, seed=1).cpu(), keep_share(table, seed=1))
    right = sample_subgraph(table, 1000, 5000, count=3, seed=4)
    found = sample_subgraph(there, 1000, 5000, count=3, seed=4)
    assert torch.equal(found.vertices.cpu(), right.vertices)
    assert torch.equal(found.eids.cpu(), right.eids)
    edges = induced_edges(there, found.offsets, found.vertices)
    assert torch.equal(edges[1].cpu(), right.eids)
    roots = roots_of(table, 500)
    for union in (True, False):
        one = sample_nodewise(there, roots.cuda(), union=union, seed=2, method="keys")
        other = sample_nodewise(table, roots, union=union, seed=2, method="keys")
        assert torch.equal(one.pools[:, 0].cpu(), other.pools[:, 0])
        assert torch.equal(one.layers[0].offsets.cpu(), other.layers[0].offsets)
    one = sample_layerwise(there, roots.cuda(), share=1.0, batch=100)
    other = sample_layerwise(table, roots, share=1.0, batch=100)
    assert torch.equal(one.layers[1].eids.cpu(), other.layers[1].eids)


def rows_on(native, table, share, **how):
    return device_edge_sampling.sample_rows(
        table, share, device=native.device, native=native.module, **{"seed": 7, **how}
    )


@pytest.mark.parametrize("case", [c for c in TABLES if not c[2]], ids=ids)
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_rows_are_drawn_from_by_segment_its_search(native, case, share):
    table = table_of(case)
    found = rows_on(native, table, share)
    assert torch.equal(found, found.unique())
    row = torch.empty(table.num_edges, dtype=torch.int64)
    row[table.eid.long()] = torch.repeat_interleave(table.degrees)
    kept = torch.bincount(row[found], minlength=table.num_nodes)
    assert torch.equal(kept, share_of(table.degrees, share))
    for at_once in (37, 1000) if table.num_nodes > 100 else (1, 37):
        assert torch.equal(rows_on(native, table, share, at_once=at_once), found)
    if 0 < share < 1 and case[1] > 100:
        assert not torch.equal(rows_on(native, table, share, seed=8), found)


def test_every_choice_of_a_row_is_as_likely_as_any_other(native):
    """Two out of four edges, by many vertices: six choices."""
    count = 3000
    src = torch.arange(count).repeat_interleave(4)
    table = EdgeTable.build(src, torch.zeros_like(src), torch.arange(4 * count).double(), count)
    choice = 2 ** (rows_on(native, table, 0.5).view(count, 2) % 4)
    seen = torch.bincount(choice.sum(1))
    seen = seen[seen > 0].double()
    assert seen.numel() == 6
    assert float(((seen - count / 6) ** 2 / (count / 6)).sum()) < 25  # 5 degrees: 1.4e-4


@pytest.mark.parametrize("case", TABLES, ids=ids)
@pytest.mark.parametrize("space", [space for space, _ in SPACES])
@pytest.mark.parametrize("weights", [None, "degree"])
def test_the_tree_draws_as_many_as_keys_do(native, case, space, weights):
    table = table_of(case)
    roots = roots_of(table, 13)
    starts = torch.arange(14) if space != "vertices" else torch.tensor([0, 6, 13])
    one, other = (
        on_device(native, table, roots, starts, space, layers=1, method=method, weights=weights)
        for method in ("sis", "keys")
    )
    assert torch.equal(one.pools.cpu(), other.pools.cpu())
    if space != "vertices":
        assert torch.equal(one.layers[0].offsets.cpu(), other.layers[0].offsets.cpu())
    assert torch.equal(one.edges().cpu(), torch.unique(one.layers[0].eids).cpu())


def test_training_on_a_device_draws_there(native, monkeypatch):
    """The program of a trainer on a device asks it for its sample, where the switches say so."""
    asked: list[str] = []

    def rows(table, share, *, seed, device):
        asked.append(torch.device(device).type)
        return rows_on(native, table, share, seed=seed)

    monkeypatch.setattr(programs, "sample_rows", rows)
    random = np.random.default_rng(2)
    src, dst = (torch.from_numpy(random.integers(0, 30, 500)) for _ in range(2))
    edges = programs.Edges(src, dst, src[:0], torch.arange(500).double(), torch.arange(500), 30)
    make = partial(SimpleNamespace, workload=InteractionWorkload(dataset="tiny"), meter=Meter())
    for device, off, expected in [
        ("cuda", {}, ["cuda"]), ("cuda", {"device_sampling": False}, []),
        ("cuda", {"sis": False}, []), ("cuda", {"sampling": False}, []), ("cpu", {}, []),
    ]:  # fmt: skip
        asked.clear()
        program = programs.Program()
        program.bind(make(on=TgcnSystem().switches(off), device=torch.device(device)))
        kept = program.sampling(edges)
        assert asked == expected
        assert torch.equal(kept, kept.unique())
        if off != {"sampling": False}:
            assert all(check.passed for check in check_kept(src, kept, 0.5))
