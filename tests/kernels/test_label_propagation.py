"""Label propagation against a slow model of the same rules, in Python integers and dictionaries."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from csr_cases import csr_of
from device_cases import to_device
from device_fixtures import Native
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_checks import refuses

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.label_propagation import op, propagate_labels, sweep_salt

Weighted = tuple[Csr, torch.Tensor, torch.Tensor]


def slow_hash(vertex: int, salt: int) -> int:
    x = vertex ^ salt
    x ^= x >> 16
    x = x * 0x85EBCA6B & 0xFFFFFFFF
    x ^= x >> 13
    x = x * 0xC2B2AE35 & 0xFFFFFFFF
    return x ^ x >> 16


def slow_wish(row, v, labels, loads, weight, cap):
    """(label, gain) that vertex v wishes for, or None where it stays."""
    votes: dict[int, int] = {labels[v]: 0}
    for u, w in row:
        if u != v:
            votes[labels[u]] = votes.get(labels[u], 0) + w
    home = votes.pop(labels[v])
    open_votes = [
        (-w, label) for label, w in votes.items() if w > home and loads[label] + weight[v] <= cap
    ]
    if not open_votes:
        return None
    best, label = min(open_votes)
    return label, -best - home


def slow_run(csr, edges, weights, *, cap, sweeps, seed, active_only, share, rounds, block, start):
    """The documented rules, one after another."""
    count = csr.num_rows
    rows = []
    for v in range(count):
        span = range(int(csr.indptr[v]), int(csr.indptr[v + 1]))
        rows.append([(int(csr.indices[e]), int(edges[e])) for e in span])
    weight = weights.tolist()
    labels = list(range(count)) if start is None else start.tolist()
    loads = [0] * count
    for v in range(count):
        loads[labels[v]] += weight[v]
    active = [True] * count
    moved, looked = [], []
    while len(moved) < sweeps and count:
        changes = reads = 0
        for first in range(0, count, block):
            for r in range(rounds):
                wishes: dict[int, list[tuple[int, int]]] = {}
                for v in range(first, min(count, first + block)):
                    if slow_hash(v, sweep_salt(seed, len(moved))) % rounds != r:
                        continue
                    if active_only and not active[v]:
                        continue
                    active[v] = False
                    reads += 1
                    wish = slow_wish(rows[v], v, labels, loads, weight, cap)
                    if wish is not None:
                        wishes.setdefault(wish[0], []).append((-wish[1], v))
                granted = []
                for label, group in wishes.items():
                    load = loads[label]
                    group.sort()
                    if load + sum(weight[v] for _, v in group) <= cap:
                        granted += [(v, label) for _, v in group]
                        continue
                    for i, (_, v) in enumerate(group):
                        if load + weight[v] > cap:
                            for _, turned_away in group[i:]:
                                active[turned_away] = True
                            break
                        load += weight[v]
                        granted.append((v, label))
                for v, label in granted:
                    loads[labels[v]] -= weight[v]
                    loads[label] += weight[v]
                    labels[v] = label
                for v, _ in granted:
                    for u, _ in rows[v]:
                        active[u] = True
                changes += len(granted)
        moved.append(changes)
        looked.append(reads)
        if changes == 0 or changes < share * count:
            break
    return labels, moved, looked


def random_graph(
    seed: int, vertices: int, degree: int, hub: bool, most: tuple[int, int], least: int
) -> Weighted:
    """Symmetric, with loops, doubled and isolated vertices; weights of edges and of vertices.

    Args:
        most: largest weights. least: smallest one, 1 or 0.
    """
    random = np.random.default_rng(seed)
    pairs = random.integers(0, max(1, vertices * 9 // 10), (vertices * degree // 2, 2))
    if hub:
        spokes = np.arange(0, vertices, 1 if vertices > 1000 else 3)
        pairs = np.concatenate([pairs, np.stack([np.full_like(spokes, vertices // 2), spokes], 1)])
    pairs = np.concatenate([pairs, pairs[:, ::-1]])
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    indptr = np.searchsorted(pairs[:, 0], np.arange(vertices + 1))
    indices = torch.from_numpy(pairs[:, 1].astype(np.int32)).contiguous()
    csr = Csr(torch.from_numpy(indptr).long(), indices, vertices)
    edge, vertex = (
        torch.from_numpy(random.integers(least, high, size, endpoint=True).astype(np.int32))
        for high, size in zip(most, (csr.nnz, vertices), strict=True)
    )
    return csr, edge, vertex


@settings(deadline=None, max_examples=50)
@given(
    graph=st.builds(
        random_graph, st.integers(0, 2**16), st.integers(0, 40), st.integers(0, 6), st.booleans(),
        st.tuples(st.sampled_from([1, 3, 2**31 - 1]), st.sampled_from([1, 4])),
        st.sampled_from([0, 1]),
    ),
    cap=st.sampled_from([1, 2, 3, 8, 1000]), seed=st.integers(0, 2**32 - 1),
    rounds=st.sampled_from([1, 2, 4]), block=st.sampled_from([1, 3, 16, 1000]),
    active_only=st.booleans(), share=st.sampled_from([0.0, 0.2]), started=st.booleans(),
    threads=st.integers(1, 2),
)  # fmt: skip
def test_the_same_as_the_slow_model(
    graph, cap, seed, rounds, block, active_only, share, started, threads
):
    csr, edges, weights = graph
    start = torch.arange(csr.num_rows, dtype=torch.int32) // 3 if started else None
    settled = {
        "cap": cap, "sweeps": 6, "seed": seed, "active_only": active_only, "share": share,
        "rounds": rounds, "block": block, "start": start,
    }  # fmt: skip
    run = propagate_labels(csr, edges, weights, threads=threads, **settled)
    labels, moved, looked = slow_run(csr, edges, weights, **settled)
    assert run.labels.tolist() == labels
    assert run.labels.dtype == torch.int32
    assert list(run.moved) == moved
    assert list(run.looked) == looked
    assert run.sweeps == len(moved)


def test_chunks_are_the_labels_in_order_and_a_run_can_be_stopped():
    csr = csr_of([[], [3], [], [1]], 4)
    numbers, count = propagate_labels(csr, cap=2).chunks()
    assert (count, numbers.tolist()) == (3, [0, 2, 1, 2])
    assert propagate_labels(csr, cap=2, share=0.0, stop=lambda: True).sweeps == 1


def test_refusals():
    pair, ones = csr_of([[1], [0]], 2), torch.ones(2, dtype=torch.int32)
    refuses(
        propagate_labels, {"csr": pair, "cap": 2},
        ("edge_weight", torch.tensor([1, -1], dtype=torch.int32)), ("edge_weight", torch.ones(2)),
        ("edge_weight", ones[:1]), ("vertex_weight", torch.tensor([-2, 1], dtype=torch.int32)),
        ("vertex_weight", ones.long()), ("cap", 0), ("sweeps", -1), ("seed", -1), ("seed", 2**32),
        ("rounds", 3), ("rounds", 128), ("block", 0), ("share", 1.5), ("threads", 0),
        ("start", ones + 1), ("start", ones.long()), ("csr|2 x 3", csr_of([[2], []], 3)),
    )  # fmt: skip


CASES = [  # vertices, degree, hub, cap, rounds, block, weighted, active only
    (1, 0, False, 1, 1, 1, False, False), (60, 4, False, 7, 2, 16, True, False),
    (300, 6, True, 20, 2, 64, False, True), (300, 30, False, 15, 4, 300, True, True),
    (700, 5, True, 3, 2, 1000, True, False), (90, 8, False, 1, 2, 32, True, True),
    (5200, 1, True, 400, 1, 1 << 20, False, False),  # more labels at a hub than its table holds
    # All but a few want the hub's label with the same gain: several runs are sorted and merged.
    (3000, 0, True, 40, 1, 3000, False, False), (3000, 0, True, 2999, 1, 1 << 20, True, False),
    (4000, 1, True, 700, 1, 2500, True, True),
]  # fmt: skip


@pytest.fixture
def place(anywhere, monkeypatch) -> Native:
    """Where labels are propagated: with room for what a device notes where they are a device's."""
    native = anywhere(op)

    def sweep_on(device: torch.device, count: int, block: int) -> Callable[..., list[int]]:
        most, arrivals = min(block, count), torch.zeros(count, dtype=torch.int64)
        ids = torch.full((4 * most,), -7, dtype=torch.int32)
        room = ids[:most], ids[most : 2 * most], ids[:most].long(), ids[2 * most :], arrivals

        def sweep(*given: Any) -> list[int]:
            counts = torch.zeros(3, dtype=torch.int64)
            native.call("label_sweep", *given[:-1], *room, counts)
            assert not arrivals.any()
            return counts[:2].tolist()

        return sweep

    if native.device == "cpu" and not native.own:
        monkeypatch.setattr(op, "_sweep_on", sweep_on)
    return native


@cache
def slow_case(case) -> tuple[Weighted, dict[str, Any], tuple[list[int], ...]]:
    """A graph of that kind, how labels are to be propagated, and what the slow model gives."""
    vertices, degree, hub, cap, rounds, block, weighted, active_only = case
    most = (3, 2) if weighted else (1, 1)
    graph = random_graph(vertices + degree, vertices, degree, hub, most, 0 if weighted else 1)
    settled = {"cap": cap, "sweeps": 4, "seed": 5, "active_only": active_only, "share": 0.0}
    settled |= {"rounds": rounds, "block": block}
    return graph, settled, slow_run(*graph, **settled, start=None)


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
def test_hubs_and_many_vertices(place, case):
    (csr, *given), settled, (labels, moved, looked) = slow_case(case)
    weights = [place.put(one) if case[6] else None for one in given]
    run = propagate_labels(to_device(csr, place.device), *weights, **settled)
    assert run.labels.tolist() == labels
    assert (list(run.moved), list(run.looked)) == (moved, looked)
    assert sum(moved) > 0 or csr.num_rows == 1
