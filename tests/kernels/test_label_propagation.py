"""Label propagation against a slow model of the same rules, in Python integers and dictionaries."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from csr_cases import csr_of
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.kernels_cuda import _cpu
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.label_propagation import propagate_labels, sweep_salt
from dgbench.runtime.errors import InvalidInputError

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


@st.composite
def graphs(draw: st.DrawFn) -> Weighted:
    """Symmetric, weighted, with isolated vertices, self loops and repeated entries."""
    count = draw(st.integers(0, 40))
    edges = draw(st.integers(0, 120)) if count else 0
    generator = np.random.default_rng(draw(st.integers(0, 2**16)))
    # A few hubs, so that rows on both sides of the hash table's limit occur.
    ends = (generator.random((edges, 2)) ** draw(st.sampled_from([1, 3])) * count).astype(int)
    largest = draw(st.sampled_from([1, 3, 2**31 - 1]))
    rows: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for u, v in ends.tolist():
        w = int(generator.integers(0, largest, endpoint=True))
        rows[u].append((v, w))
        rows[v].append((u, w))
    csr = csr_of([[u for u, _ in row] for row in rows], count)
    edge_weight = torch.tensor([w for row in rows for _, w in row], dtype=torch.int32)
    heavy = draw(st.sampled_from([1, 4]))
    vertex_weight = generator.integers(0 if heavy > 1 else 1, heavy, count, endpoint=True)
    return csr, edge_weight, torch.from_numpy(vertex_weight).to(torch.int32)


def loads_of(labels: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return torch.zeros(len(labels), dtype=torch.int64).index_add_(0, labels.long(), weights.long())


@settings(deadline=None, max_examples=150)
@given(
    graph=graphs(),
    cap=st.sampled_from([1, 2, 3, 8, 1000]),
    seed=st.integers(0, 2**32 - 1),
    rounds=st.sampled_from([1, 2, 4]),
    block=st.sampled_from([1, 3, 16, 1000]),
    active_only=st.booleans(),
    share=st.sampled_from([0.0, 0.2]),
    started=st.booleans(),
)
def test_the_same_as_the_slow_model(graph, cap, seed, rounds, block, active_only, share, started):
    csr, edges, weights = graph
    start = None
    if started:
        start = torch.arange(csr.num_rows, dtype=torch.int32) // 3
    settled = {
        "cap": cap,
        "sweeps": 6,
        "seed": seed,
        "active_only": active_only,
        "share": share,
        "rounds": rounds,
    }
    run = propagate_labels(csr, edges, weights, block=block, start=start, threads=1, **settled)
    labels, moved, looked = slow_run(csr, edges, weights, block=block, start=start, **settled)
    assert run.labels.tolist() == labels
    assert run.labels.dtype == torch.int32
    assert list(run.moved) == moved
    assert list(run.looked) == looked
    assert run.sweeps == len(moved)
    before = weights.long() if start is None else loads_of(start, weights)
    assert bool((loads_of(run.labels, weights) <= before.clamp(min=cap)).all())


def random_graph(count: int, edges: int, seed: int) -> Weighted:
    """A power-law graph, symmetric."""
    generator = np.random.default_rng(seed)
    ends = (generator.random((2, edges)) ** 2 * count).astype(np.int64)
    weight = generator.integers(1, 4, edges)
    source, target = np.concatenate(ends), np.concatenate(ends[::-1])
    order = np.lexsort((target, source))
    indptr = np.concatenate([[0], np.bincount(source, minlength=count).cumsum()])
    csr = Csr(
        torch.from_numpy(indptr), torch.from_numpy(target[order].astype(np.int32)), count, None
    )
    both = np.concatenate([weight, weight])[order].astype(np.int32)
    sizes = generator.integers(1, 3, count).astype(np.int32)
    return csr, torch.from_numpy(both), torch.from_numpy(sizes)


@pytest.mark.parametrize("active_only", [False, True])
def test_threads_do_not_show(active_only):
    csr, edges, weights = random_graph(20_000, 60_000, 3)
    runs = [
        propagate_labels(
            csr, edges, weights, cap=50, sweeps=5, seed=9, active_only=active_only, threads=threads
        )
        for threads in (1, 2, 3)
    ]
    for run in runs[1:]:
        assert torch.equal(run.labels, runs[0].labels)
        assert (run.moved, run.looked) == (runs[0].moved, runs[0].looked)
    other = propagate_labels(csr, edges, weights, cap=50, sweeps=5, seed=10, threads=1)
    assert not torch.equal(other.labels, runs[0].labels)
    assert int(loads_of(runs[0].labels, weights).max()) <= 50


def test_weights_none_are_ones():
    csr, _, _ = random_graph(300, 900, 4)
    ones = torch.ones(csr.nnz, dtype=torch.int32), torch.ones(300, dtype=torch.int32)
    plain = propagate_labels(csr, cap=20)
    assert torch.equal(plain.labels, propagate_labels(csr, *ones, cap=20).labels)


def test_no_vertices_no_edges_one_vertex():
    for active_only in (False, True):
        none = propagate_labels(csr_of([], 0), cap=1, active_only=active_only)
        assert (none.labels.tolist(), none.sweeps, none.converged) == ([], 0, True)
        assert none.chunks()[1] == 0
        one = propagate_labels(csr_of([[0, 0]], 1), cap=1, active_only=active_only)
        assert (one.labels.tolist(), one.moved, one.converged) == ([0], (0,), True)
        lonely = propagate_labels(csr_of([[]] * 5, 5), cap=9, active_only=active_only)
        assert lonely.labels.tolist() == [0, 1, 2, 3, 4]
    unswept = propagate_labels(csr_of([[1], [0]], 2), cap=2, sweeps=0)
    assert (unswept.labels.tolist(), unswept.converged) == ([0, 1], False)


def test_self_loops_do_not_vote_and_repeated_entries_add_up():
    # Vertex 0: a heavy self loop, two entries of weight 2 to 1 and one of 3 to 2.
    csr = csr_of([[0, 1, 1, 2], [], []], 3)
    weight = torch.tensor([100, 2, 2, 3], dtype=torch.int32)
    assert propagate_labels(csr, weight, cap=3).labels.tolist() == [1, 1, 2]


def test_ties_keep_the_own_label_and_else_take_the_smallest():
    tie = csr_of([[2, 1], [], []], 3)
    assert propagate_labels(tie, cap=3).labels.tolist() == [1, 1, 2]
    start = torch.tensor([2, 1, 2], dtype=torch.int32)
    assert propagate_labels(tie, cap=3, start=start).labels.tolist() == [2, 1, 2]


def test_a_vertex_over_the_cap_stays_alone():
    csr = csr_of([[1, 2], [0, 2], [0, 1]], 3)
    weights = torch.tensor([7, 1, 1], dtype=torch.int32)
    for active_only in (False, True):
        run = propagate_labels(csr, None, weights, cap=5, active_only=active_only)
        assert run.labels[0] == 0
        assert run.labels[1] == run.labels[2] != 0


def test_synchronous_sweeps_oscillate_where_rounds_settle():
    count = 40  # a complete bipartite graph from a start of one label per side
    half = list(range(20)), list(range(20, 40))
    csr = csr_of([half[1] if v < 20 else half[0] for v in range(count)], count)
    start = torch.tensor([0] * 20 + [20] * 20, dtype=torch.int32)
    swapped = propagate_labels(csr, cap=40, start=start, rounds=1, block=count, sweeps=6)
    assert not swapped.converged
    assert swapped.moved == (40,) * 6
    settled = propagate_labels(csr, cap=40, start=start, sweeps=20)
    assert settled.converged
    assert settled.chunks()[1] == 1


def test_a_star_fills_one_label_to_the_cap():
    leaves = 100_000
    csr = csr_of([list(range(1, leaves + 1))] + [[0]] * leaves, leaves + 1)
    run = propagate_labels(csr, cap=1000, sweeps=4, threads=2, block=leaves)
    assert int(loads_of(run.labels, torch.ones(leaves + 1)).max()) == 1000


def test_active_only_reads_less_and_ends_where_nothing_moves():
    csr, edges, _ = random_graph(3000, 8000, 6)
    every = propagate_labels(csr, edges, cap=3000, sweeps=60, share=0.0)
    some = propagate_labels(csr, edges, cap=3000, sweeps=60, share=0.0, active_only=True)
    # Without a full label the two are the same: who was not woken would not have moved.
    assert torch.equal(every.labels, some.labels)
    assert every.moved == some.moved
    assert sum(some.looked) < sum(every.looked)


def test_chunks_are_the_labels_in_order():
    run = propagate_labels(csr_of([[], [3], [], [1]], 4), cap=2)
    numbers, count = run.chunks()
    assert count == 3
    _, expected = run.labels.unique(return_inverse=True)
    assert numbers.tolist() == expected.tolist()


def test_stop_ends_after_a_sweep():
    csr, _, _ = random_graph(300, 900, 4)
    assert propagate_labels(csr, cap=20, share=0.0, stop=lambda: True).sweeps == 1


PAIR = csr_of([[1], [0]], 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"edge_weight": torch.tensor([1, -1], dtype=torch.int32)}, r"edge_weight\[1\] is -1"),
        ({"vertex_weight": torch.tensor([-2, 1], dtype=torch.int32)}, r"vertex_weight\[0\] is -2"),
        ({"edge_weight": torch.ones(2)}, "float32"),
        ({"edge_weight": torch.ones(3, dtype=torch.int32)}, "3 elements"),
        ({"vertex_weight": torch.ones(2, dtype=torch.int64)}, "int64"),
        ({"cap": 0}, "cap is 0"),
        ({"sweeps": -1}, "sweeps"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**32}, "seed"),
        ({"rounds": 3}, "powers of two"),
        ({"rounds": 128}, "rounds"),
        ({"block": 0}, "block"),
        ({"share": 1.5}, "share"),
        ({"threads": 0}, "threads"),
        ({"start": torch.tensor([0, 2], dtype=torch.int32)}, "start must satisfy"),
        ({"start": torch.tensor([0, 1])}, "start is torch.int64"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        propagate_labels(PAIR, **{"cap": 2, **arguments})


def test_matrices_that_are_refused():
    with pytest.raises(InvalidInputError, match="2 x 3"):
        propagate_labels(csr_of([[2], []], 3), cap=1)
    with pytest.raises(InvalidInputError, match="column < 2"):
        propagate_labels(csr_of([[5], []], 2), cap=1)


def test_a_direct_call_cannot_read_out_of_bounds():
    labels, loads = torch.tensor([0, 7], dtype=torch.int32), torch.ones(2, dtype=torch.int64)
    with pytest.raises(ValueError, match="labels"):
        _cpu.label_sweep(PAIR.indptr, PAIR.indices, None, None, labels, loads, None, 2, 0, 1, 8, 1)
    with pytest.raises(ValueError, match="loads"):
        _cpu.label_sweep(
            PAIR.indptr, PAIR.indices, None, None, labels * 0, loads[:1], None, 2, 0, 1, 8, 1
        )
