"""Algorithm 1 of DGC against a loop in Python, printed and corrected."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.dgc.assignment import assign_chunks

Pairs = dict[tuple[int, int], int]


def traffic_of(chunks: int, pairs: Pairs) -> tuple[Csr, torch.Tensor]:
    """The symmetric matrix of these weights."""
    both = sorted({**pairs, **{(b, a): w for (a, b), w in pairs.items()}}.items())
    counts = np.bincount([a for (a, _), _ in both], minlength=chunks)
    indptr = torch.from_numpy(np.concatenate([[0], counts.cumsum()]).astype(np.int64))
    columns = torch.tensor([b for (_, b), _ in both], dtype=torch.int32)
    return Csr(indptr, columns, chunks), torch.tensor([w for _, w in both], dtype=torch.int64)


def slow(workload, pairs: Pairs, workers, mean, empty):
    """Equation 3 worker by worker."""
    both = {**pairs, **{(b, a): w for (a, b), w in pairs.items()}}
    target = sum(workload) / (workers if mean == "worker" else max(1, len(workload)))
    given_to: list[list[int]] = [[] for _ in range(workers)]
    load = [0.0] * workers
    for a in sorted(range(len(workload)), key=lambda a: (-workload[a], a)):
        h = [sum(both.get((a, b), 0) for b in queue) for queue in given_to]
        room = [target - x for x in load]
        if empty == "literal":
            score = [r * x for r, x in zip(room, h, strict=True)]
            m = score.index(max(score))
        elif max(room) > 0:
            score = [r * (x + 1.0) for r, x in zip(room, h, strict=True)]
            best = max(score)
            m = min((load[i], i) for i in range(workers) if score[i] == best)[1]
        else:
            m = load.index(min(load))
        given_to[m].append(a)
        load[m] += workload[a]
    where = {a: m for m, queue in enumerate(given_to) for a in queue}
    cut = sum(w for (a, b), w in pairs.items() if where[a] != where[b])
    return [where[a] for a in range(len(workload))], load, cut


@settings(deadline=None, max_examples=120)
@given(
    chunks=st.sampled_from([0, 1, 2, 9, 30]),
    workers=st.sampled_from([1, 2, 3, 8]),
    density=st.sampled_from([0.0, 0.1, 0.6]),
    mean=st.sampled_from(["worker", "chunk"]),
    empty=st.sampled_from(["corrected", "literal"]),
    equal=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_the_same_as_the_slow_loop(chunks, workers, density, mean, empty, equal, seed):
    generator = np.random.default_rng(seed)
    # Halves, so that sums are exact and ties are ties.
    workload = [1.0] * chunks if equal else (generator.integers(0, 40, chunks) / 2).tolist()
    pairs = {
        (a, b): int(generator.integers(1, 9))
        for a in range(chunks)
        for b in range(a + 1, chunks)
        if generator.random() < density
    }
    work = torch.tensor(workload, dtype=torch.float64)
    found = assign_chunks(work, traffic_of(chunks, pairs), workers, mean=mean, empty=empty)
    where, load, cut = slow(workload, pairs, workers, mean, empty)
    assert found.worker.tolist() == where
    assert found.loads.tolist() == load
    assert found.cut == cut


def test_the_printed_score_leaves_workers_empty_and_the_corrected_does_not():
    # One line of chunks: the first worker's traffic beats every empty worker's zero.
    work = torch.ones(12, dtype=torch.float64)
    line = traffic_of(12, {(i, i + 1): 1 for i in range(11)})
    literal = assign_chunks(work, line, 4, empty="literal")
    fixed = assign_chunks(work, line, 4)
    assert int((literal.loads == 0).sum()) > 0
    assert fixed.loads.tolist() == [3.0] * 4
    assert fixed.imbalance == 1.0 < literal.imbalance
    # Four runs of three neighbours would cut 3 of 11; equal loads may cost some more.
    assert fixed.cut <= 8


def test_no_chunks_and_no_work():
    none = assign_chunks(torch.zeros(0, dtype=torch.float64), traffic_of(0, {}), 3)
    assert (none.worker.numel(), none.loads.tolist(), none.cut) == (0, [0.0] * 3, 0)
    idle = assign_chunks(torch.zeros(4, dtype=torch.float64), traffic_of(4, {(0, 1): 1}), 2)
    assert idle.imbalance == 1.0


def test_refusals():
    work, none = torch.ones(2, dtype=torch.float64), traffic_of(2, {})
    for bad in (work.float(), -work, work * float("nan"), torch.ones(3, dtype=torch.float64)):
        with pytest.raises(InvalidInputError, match="workload"):
            assign_chunks(bad, none, 2)
    for workers, epsilon, name in ((0, 1.0, "workers"), (2, 0.0, "epsilon")):
        with pytest.raises(InvalidInputError, match=name):
            assign_chunks(work, none, workers, epsilon=epsilon)
    for name in ("mean", "empty"):
        with pytest.raises(UnknownKeyError, match=name):
            assign_chunks(work, none, 2, **{name: "none"})
