"""Tables of edges and samplers of them, against slow obvious ones and distributions.

Over 500 lines: samplers of the CPU, the emulator and a device.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from itertools import pairwise, permutations, product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_checks import order_probabilities, refuses
from scipy import stats
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
from dgbench.kernels_cuda.weighted import METHODS
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.runtime.meter import Meter
from dgbench.systems.base.interactions import InteractionWorkload
from dgbench.systems.tgcn import program as programs
from dgbench.systems.tgcn.recounts import check_kept
from dgbench.systems.tgcn.system import TgcnSystem

EXACT = tuple(m for m in METHODS if m != "brs_literal")
WEIGHED = tuple(m for m in EXACT if m != "reservoir")
SHARES = [0.1, 0.2, 0.3, 0.25, 0.15]
ENOUGH = 1e-4
"""Smallest p-value that passes: seeds are fixed, so a test that passes always does."""


def stream(seed: int, vertices: int, edges: int, last: int = 12) -> tuple[Tensor, Tensor, Tensor]:
    """Edges with ties in time, duplicates and self edges, in time order."""
    rng = np.random.default_rng(seed)
    ends = torch.from_numpy(rng.integers(0, vertices, (2, edges)))
    times = np.sort(rng.integers(0, last, edges)).astype(np.float64)
    return ends[0].contiguous(), ends[1].contiguous(), torch.from_numpy(times)


def star(leaves: int) -> EdgeTable:
    """Vertex 0 and an edge to each leaf, the oldest to vertex 1."""
    src = torch.zeros(leaves, dtype=torch.int64)
    return EdgeTable.build(src, torch.arange(leaves) + 1, src.double(), leaves + 1)


def candidates(table: EdgeTable, bounds: dict[int, float]) -> list[tuple[int, int, int, float]]:
    """(source, neighbour, eid, time) of every edge of some vertices before their bounds."""
    found = []
    for v, bound in bounds.items():
        for r in range(int(table.indptr[v]), int(table.indptr[v + 1])):
            if float(table.t[r]) < bound:
                found.append((v, int(table.dst[r]), int(table.eid[r]), float(table.t[r])))
    return found


def follow(
    table: EdgeTable, roots: dict[int, float], sample, at: int, shape: str, wanted,
    weighs=lambda edge: True,
) -> None:  # fmt: skip
    """Check one root's (or pool's) sample layer by layer against all that could be drawn.

    `wanted(layer, count)` of `count` candidates are, or those that have weight; they are drawn for
    each vertex by itself, of the union of their edges, or of their distinct neighbours (`shape`).
    """
    bounds, reached = roots, list(roots)
    for number, layer in enumerate(sample.layers):
        mine = slice(int(layer.offsets[at]), int(layer.offsets[at + 1]))
        columns = layer.sources, layer.neighbours, layer.eids
        found = list(zip(*(x[mine].tolist() for x in columns), strict=True))
        there = candidates(table, bounds)
        good = [edge for edge in there if weighs(edge)]

        def size(count: int, positive: int, number: int = number) -> int:
            return min(wanted(number, count), positive)

        if shape == "vertices":
            pool, positive = ({edge[1] for edge in edges} for edges in (there, good))
            drawn = {edge[1] for edge in found}
            assert int(sample.pools[at, number]) == len(pool)
            assert len(drawn) == size(len(pool), len(positive))
            assert found == [edge[:3] for edge in there if edge[1] in drawn]
        else:
            left = [edge[:3] for edge in good]
            for edge in found:  # none twice, unless it stands there twice
                left.remove(edge)
            assert int(sample.pools[at, number]) == len(there)
            for part in [bounds] if shape == "union" else [[v] for v in bounds]:
                sizes = (sum(edge[0] in part for edge in edges) for edges in (there, good))
                assert sum(edge[0] in part for edge in found) == size(*sizes)
        times = {edge[:3]: edge[3] for edge in there}
        bounds = {}
        for edge in found:
            bounds[edge[1]] = max(bounds.get(edge[1], -np.inf), times[edge])
        if all(bound == np.inf for bound in roots.values()):
            bounds = dict.fromkeys(bounds, np.inf)
        reached += [v for v in bounds if v not in reached]
    nodes = sample.nodes[int(sample.node_offsets[at]) : int(sample.node_offsets[at + 1])]
    assert nodes.tolist() == reached


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6), vertices=st.integers(1, 8), edges=st.integers(0, 50),
    undirected=st.booleans(), timed=st.booleans(),
    shape=st.sampled_from(["vertex", "union", "edges", "vertices"]),
    method=st.sampled_from(METHODS), sizes=st.sampled_from([None, (2, 3), (0, 4), (1, 1, 5)]),
    share=st.sampled_from([0.0, 0.3, 0.5, 1.0]), threads=st.sampled_from([1, 3]),
)  # fmt: skip
def test_samples_are_what_could_be_drawn(
    seed, vertices, edges, undirected, timed, shape, method, sizes, share, threads
) -> None:
    src, dst, t = stream(seed, vertices, edges)
    table = EdgeTable.build(src, dst, t, vertices, undirected)
    rng = np.random.default_rng(seed)
    roots = torch.from_numpy(rng.integers(0, vertices, 7))
    before = torch.from_numpy(rng.integers(-1, 14, 7).astype(np.float64)) if timed else None
    how = {"method": method, "before": before, "share": share, "seed": seed, "call": 3}
    how |= {"threads": threads}

    def wanted(layer: int, there: int) -> int:
        return int(share * there + 0.5) if sizes is None else min(sizes[layer], there)

    times = [np.inf] * 7 if before is None else before.tolist()
    if shape in ("vertex", "union"):
        sample = sample_nodewise(table, roots, sizes, union=shape == "union", **how)
        for r in range(7):
            follow(table, {int(roots[r]): times[r]}, sample, r, shape, wanted)
    else:
        sample = sample_layerwise(table, roots, sizes, batch=3, items=shape, **how)
        for pool in range(3):
            bounds: dict[int, float] = {}
            for r in range(3 * pool, min(7, 3 * pool + 3)):
                v = int(roots[r])
                bounds[v] = max(bounds.get(v, -np.inf), times[r])
            follow(table, bounds, sample, pool, "union" if shape == "edges" else shape, wanted)
    assert sorted(set(torch.cat(sample.eids).tolist())) == sample.edges().tolist()


@pytest.mark.parametrize("union", [False, True])
@pytest.mark.parametrize("method", EXACT)
def test_every_method_has_the_same_distribution(method: str, union: bool) -> None:
    roots = 6000
    table = star(5)
    for weights in (None, torch.tensor(SHARES).double()):
        if method == "reservoir" and weights is not None:
            continue
        sample = sample_nodewise(
            table, torch.zeros(roots, dtype=torch.int64), (2,), union=union, method=method,
            weights=weights, seed=17,
        )  # fmt: skip
        wanted: Counter[tuple[int, ...]] = Counter()
        for order, p in order_probabilities([0.2] * 5 if weights is None else SHARES, 2).items():
            wanted[tuple(sorted(order))] += roots * p
        pairs = (sample.layers[0].neighbours - 1).view(roots, 2).sort(1).values
        counts = Counter(map(tuple, pairs.tolist()))
        assert set(counts) <= set(wanted)
        found = [counts[one] for one in wanted]
        assert stats.chisquare(found, list(wanted.values())).pvalue > ENOUGH, method


# --- Subgraphs -----------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6), vertices=st.integers(1, 8), edges=st.integers(0, 40),
    undirected=st.booleans(), frontier=st.sampled_from([1, 3, 20]),
    draws=st.sampled_from([0, 1, 6]), count=st.sampled_from([0, 1, 6]),
    method=st.sampled_from(METHODS),
)  # fmt: skip
def test_subgraphs_hold_their_edges(
    seed, vertices, edges, undirected, frontier, draws, count, method
) -> None:
    src, dst, t = stream(seed, vertices, edges)
    table = EdgeTable.build(src, dst, t, vertices, undirected)
    replacement = True if frontier == 3 else None
    weights = None if method == "reservoir" else "degree"
    sample = sample_subgraph(
        table, frontier if frontier > 1 else 1, draws, count=count, method=method, seed=seed,
        replacement=replacement, weights=weights,
    )  # fmt: skip
    assert sample.offsets.numel() == sample.edge_offsets.numel() == count + 1
    for s in range(count):
        mine = sample.vertices[int(sample.offsets[s]) : int(sample.offsets[s + 1])].tolist()
        assert mine == sorted(set(mine))
        assert len(mine) <= draws
        assert all(int(table.degrees[v]) > 0 for v in mine)
        assert bool(mine) == (draws > 0 and edges > 0)
        found = sample.eids[int(sample.edge_offsets[s]) : int(sample.edge_offsets[s + 1])].tolist()
        wanted = [e for e in range(edges) if int(src[e]) in mine and int(dst[e]) in mine]
        assert sorted(found) == wanted
    assert sample.stats.draws == (draws * count if edges else 0)


@pytest.mark.parametrize("method", WEIGHED)
def test_a_frontier_moves_as_it_should(method: str) -> None:
    """Two slots, two draws: the subgraphs' probabilities by enumeration."""
    src = torch.tensor([0, 0, 0, 1, 2, 2])
    dst = torch.tensor([1, 1, 2, 0, 0, 1])
    table = EdgeTable.build(src, dst, torch.zeros(6).double(), 3)
    row = {0: [1, 1, 2], 1: [0], 2: [0, 1]}
    wanted: dict[tuple[int, ...], float] = {}
    for a, b in permutations(range(3), 2):  # the first frontier, without replacement
        for first in (0, 1):
            slots = [a, b]
            p_first = len(row[slots[first]]) / (len(row[a]) + len(row[b]))
            for to in row[slots[first]]:
                moved = list(slots)
                moved[first] = to
                total = sum(len(row[v]) for v in moved)
                for second in (0, 1):
                    p = p_first / len(row[slots[first]]) * len(row[moved[second]]) / total / 6
                    key = tuple(sorted({slots[first], moved[second]}))
                    wanted[key] = wanted.get(key, 0) + p
    count = 6000
    sample = sample_subgraph(table, 2, 2, count=count, method=method, seed=23, induced=False)
    found = dict.fromkeys(wanted, 0)
    for s in range(count):
        found[tuple(sample.vertices[sample.offsets[s] : sample.offsets[s + 1]].tolist())] += 1
    expected = [count * p for p in wanted.values()]
    assert stats.chisquare(list(found.values()), expected).pvalue > ENOUGH
    assert sample.eids.numel() == 0


def test_wrong_arguments_are_named() -> None:
    table, root = star(3), torch.zeros(1, dtype=torch.int64)
    refuses(
        lambda **given: sample_nodewise(table, **given), {"roots": root},
        ("method", "its"), ("roots", root + 4), ("before", torch.full((1,), torch.nan).double()),
        ("weights", -torch.ones(3).double()), ("arity", 3),
    )  # fmt: skip
    with pytest.raises(InvalidInputError, match="weights"):
        sample_layerwise(table, root, items="vertices", weights=torch.ones(3).double())
    with pytest.raises(InvalidInputError, match="reservoir"):
        sample_nodewise(table, root, weights="degree", method="reservoir")
    with pytest.raises(InvalidInputError, match="frontier"):
        sample_subgraph(table, 5, 1, replacement=False)
    with pytest.raises(UnknownKeyError, match="rebuild"):
        sample_subgraph(table, 2, 1, rebuild="all")  # type: ignore[arg-type]
    for method in set(METHODS) - {"reservoir"}:  # weights that it would round away
        wrong = np.array([1e-50, 1e-50, 1.0] if method == "keys" else [1e308] * 3)
        with pytest.raises(InvalidInputError, match="weights"):
            sample_nodewise(table, root, (1,), method=method, weights=torch.from_numpy(wrong))


# --- Tables of edges ----------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6), vertices=st.integers(1, 9), edges=st.integers(0, 60),
    undirected=st.booleans(), threads=st.sampled_from([1, 3]),
)  # fmt: skip
def test_rows_are_in_order_of_time_and_arrival(seed, vertices, edges, undirected, threads) -> None:
    src, dst, t = stream(seed, vertices, edges)
    t = t[torch.randperm(edges, generator=torch.Generator().manual_seed(seed))]  # in no order
    table = EdgeTable.build(src, dst, t, vertices, undirected, threads=threads)
    wanted: list[list[tuple[int, int, float]]] = [[] for _ in range(vertices)]
    for e in sorted(range(edges), key=lambda e: float(t[e])):
        ends = int(src[e]), int(dst[e])
        for here, there in (ends, ends[::-1])[: 1 + undirected]:
            wanted[here].append((there, e, float(t[e])))
    columns = table.dst.tolist(), table.eid.tolist(), table.t.tolist()
    found = list(zip(*columns, strict=True))
    assert [found[a:b] for a, b in pairwise(table.indptr.tolist())] == wanted
    assert table.num_edges == edges
    assert table.num_nodes == vertices


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 2 / 3, 1.0])
@pytest.mark.parametrize("threads", [1, 3])
def test_every_row_keeps_its_share(share: float, threads: int) -> None:
    src, dst, t = stream(2, 300, 20_000)
    table = EdgeTable.build(src, dst, t, 300)
    keep = keep_share(table, share, seed=5, threads=threads)
    kept = torch.bincount(src[keep], minlength=300)
    assert torch.equal(kept, share_of(table.degrees, share))
    assert torch.equal(keep, keep_share(table, share, seed=5, threads=1))
    if 0 < share < 1:
        assert not torch.equal(keep, keep_share(table, share, seed=6))


def test_random_rounding_keeps_the_share_of_the_whole() -> None:
    rows = 20_000  # of one edge each: to the nearest, all or nothing would stay
    src = torch.arange(rows)
    table = EdgeTable.build(src, src, torch.zeros(rows).double(), rows)
    kept = int(keep_share(table, 0.3, seed=1, rounding="random").sum())
    assert stats.binomtest(kept, rows, 0.3).pvalue > 1e-3
    assert int(keep_share(table, 0.3, seed=1).sum()) == 0


def test_wrong_tables_and_shares_are_named() -> None:
    ids, t = torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.float64)
    refuses(
        EdgeTable.build, {"src": ids, "dst": ids, "t": t, "num_nodes": 1}, ("num_nodes", -1),
        ("dst", ids + 1), ("t", t / 0),
    )  # fmt: skip
    table = EdgeTable.build(ids, ids, torch.tensor([1_600_000_000.1, 0.5], dtype=torch.float64), 1)
    assert table.t.tolist() == [0.5, 1_600_000_000.1]
    refuses(keep_share, {"table": table}, ("share", 1.5), ("rounding", "up"))
    with pytest.raises(InvalidInputError, match="undirected"):
        keep_share(EdgeTable.build(ids, ids, t, 1, undirected=True))
    with pytest.raises(ValueError, match="dst"):  # a table that does not fit together
        _ = EdgeTable(table.indptr, table.dst + 1, table.eid, table.t, 2).rows
    assert share_of(torch.tensor([0, 1, 2, 3, 5, 7]), 0.5).tolist() == [0, 1, 1, 2, 3, 4]


# --- A device's -----------------------------------------------------------------------------------


TABLES = [  # vertices, edges, undirected, power of the skew
    (1, 0, False, 1), (1, 5, True, 1), (40, 30, False, 1), (60, 800, False, 3), (50, 400, True, 2),
    (300, 9000, False, 6),
]  # fmt: skip


def table_of(case, seed: int = 0) -> EdgeTable:
    """Half of the vertices have no edge of their own; times repeat; there are self edges."""
    vertices, edges, undirected, power = case
    random = np.random.default_rng([seed, vertices, edges])
    src = (max(1, vertices // 2) * random.random(edges) ** power).astype(np.int64)
    dst = random.integers(0, vertices, edges)
    t = np.sort(random.integers(0, max(1, edges // 3), edges)).astype(np.float64)
    return EdgeTable.build(*map(torch.from_numpy, (src, dst, t)), vertices, undirected)


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
    (1, 0, 1, False, True), (1, 7, 2, True, True), (4, 30, 2, True, False), (5, 40, 3, True, True),
    (30, 90, 2, False, True), (70, 150, 2, True, True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("case", "walk", "memory"),
    [
        (case, walk, ("shared", "tree", "device", "wide")[(c + w) % 4])
        for (c, case), (w, walk) in product(enumerate(TABLES), enumerate(WALKS))
        if walk[3] or walk[0] <= case[0]  # without replacement a frontier is at most the graph
    ],
    ids=str,
)
def test_subgraphs_are_those_of_the_cpu(native, case, walk, memory, monkeypatch):
    frontier, draws, count, replacement, by_degree = walk
    table = table_of(case)
    if memory == "wide":
        monkeypatch.setattr(device_subgraphs, "WIDTHS", (True,))
    else:
        walked = partial(device_subgraphs.members_of, memory=memory)
        monkeypatch.setattr(device_edge_sampling, "members_of", walked)
    how = {"count": count, "replacement": replacement, "seed": 11, "call": 2, "first": 5}
    right = sample_subgraph(table, frontier, draws, weights="degree" if by_degree else None, **how)
    found = device_edge_sampling.sample_subgraph(
        table_on(table, native.device), frontier, draws, method="sis", by_degree=by_degree,
        induced=True, native=native.module, **how,
    )  # fmt: skip
    for name in ("offsets", "vertices", "edge_offsets", "eids"):
        assert torch.equal(getattr(found, name).cpu(), getattr(right, name)), name
    assert found.reseeded == right.reseeded


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


def same(one, other) -> bool:
    names = ("offsets", "eids", "sources", "neighbours")
    columns = (
        [getattr(layer, name).cpu() for layer in sample.layers for name in names]
        for sample in (one, other)
    )
    return all(map(torch.equal, *columns))


SPACES = [("vertex", {"union": False}), ("edges", {"union": True}), ("vertices", None)]


@pytest.mark.parametrize("case", TABLES, ids=str)
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


@pytest.mark.parametrize("case", [(40, 30, False, 1), (50, 200, True, 2)])
@pytest.mark.parametrize(
    ("space", "weights", "method"),
    [(space, weights, method) for (space, _), weights, method in product(
        SPACES, (None, "degree", "edge"), ("keys", "sis"))
     if weights != "edge" or (space != "vertices" and method == "keys")],
)  # fmt: skip
@pytest.mark.parametrize("sizes", [[], [3, 5]], ids=str)
def test_a_sample_is_of_its_size_and_of_its_candidates(native, case, space, weights, method, sizes):
    table, edge_weights = table_of(case), torch.ones(case[1], dtype=torch.float64)
    roots, edge_weights[::3] = roots_of(table, 13), 0
    how = {"sizes": sizes, "weights": edge_weights if weights == "edge" else weights}
    found, again, other = (
        on_device(native, table, roots, torch.arange(14), space, method=method, seed=seed, **how)
        for seed in (3, 3, 4)
    )
    assert same(found, again)
    assert case[1] < 100 or not same(found, other)

    def wanted(layer: int, count: int) -> int:
        return min(sizes[layer], count) if sizes else math.floor(0.5 * count + 0.5)

    def weighs(edge: tuple[int, int, int, float]) -> bool:
        if weights is None:
            return True
        return bool(edge_weights[edge[2]] if weights == "edge" else table.degrees[edge[1]])

    shape = "union" if space == "edges" else space
    for at, root in enumerate(roots.tolist()):
        follow(table, {root: math.inf}, found, at, shape, wanted, weighs)


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


@pytest.mark.parametrize("case", [c for c in TABLES if not c[2]], ids=str)
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
