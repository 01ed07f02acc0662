"""The supergraph and its chunks against dictionaries."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from csr_cases import csr_of, entries, random_csr
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_checks import refuses

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.supergraph import build_supergraph, chunk_sequences, chunk_traffic
from dgbench.runtime.errors import InvalidInputError

PRESENCE = ["edges", "span", "tail"]


def pairs(csr: Csr) -> list[tuple[int, int]]:
    """(source, destination) without self loops."""
    return [(u, v) for v, u in entries(csr) if u != v]


def slow(csrs, spatial, temporal, per_length, presence):
    """({(entity, step)} in order, {(one, other): weight}) by the words of the paper."""
    present = {(v, t) for t, csr in enumerate(csrs) for pair in pairs(csr) for v in pair}
    if presence != "edges":
        for v in {v for v, _ in present}:
            steps = [t for u, t in present if u == v]
            last = max(steps) if presence == "span" else len(csrs) - 1
            present |= {(v, t) for t in range(min(steps), last + 1)}
    weight: Counter = Counter()
    for t, csr in enumerate(csrs):
        for u, v in pairs(csr):
            weight[(u, t), (v, t)] += spatial
            weight[(v, t), (u, t)] += spatial
    for v in {v for v, _ in present}:
        steps = sorted(t for u, t in present if u == v)
        along = temporal * (len(steps) - 1 if per_length else 1)
        for one, other in pairwise(steps):
            weight[(v, one), (v, other)] += along
            weight[(v, other), (v, one)] += along
    return sorted(present), weight


@st.composite
def sequences(draw: st.DrawFn) -> list[Csr]:
    count = draw(st.sampled_from([0, 1, 2, 7, 12]))
    steps = draw(st.sampled_from([1, 2, 5, 63, 64, 65, 130]))
    density = draw(st.sampled_from([0.0, 0.02, 0.3]))
    seed = draw(st.integers(0, 2**16))
    made = [random_csr(seed + t, count, count, density) for t in range(steps)]
    if draw(st.booleans()):
        made = [made[0 if t % 3 else t] for t in range(steps)]  # objects that repeat
    return made


@settings(deadline=None, max_examples=30)
@given(
    csrs=sequences(), presence=st.sampled_from(PRESENCE), per_length=st.booleans(),
    spatial=st.integers(0, 3), threads=st.sampled_from([1, 2]),
)  # fmt: skip
def test_vertices_edges_and_weights(csrs, presence, per_length, spatial, threads):
    present, weight = slow(csrs, spatial, 5, per_length, presence)
    graph = build_supergraph(
        csrs, spatial=spatial, temporal=5, per_length=per_length, presence=presence, threads=threads
    )
    names = list(zip(graph.entity.tolist(), graph.step.tolist(), strict=True))
    assert names == present
    ends = entries(graph.csr)
    assert ends == sorted(set(ends))
    weights = zip(ends, graph.edge_weight.tolist(), strict=True)
    assert {(names[i], names[j]): w for (i, j), w in weights} == dict(weight)
    between = sum(a[1] != b[1] for a, b in weight)
    assert graph.temporal_edges == between // 2
    for v in range(csrs[0].num_rows):
        ids = range(int(graph.start[v]), int(graph.start[v + 1]))
        assert [graph.entity[i] for i in ids] == [v] * len(ids)


@settings(deadline=None, max_examples=25)
@given(csrs=sequences(), chunks=st.sampled_from([1, 3, 9]), seed=st.integers(0, 99))
def test_sequences_and_traffic_of_chunks(csrs, chunks, seed):
    graph = build_supergraph(csrs, spatial=2, temporal=3)
    generator = np.random.default_rng(seed)
    numbers = generator.integers(0, chunks, graph.num_vertices)
    chunk = torch.from_numpy(numbers).to(torch.int32)
    counts = Counter(zip(numbers.tolist(), graph.entity.tolist(), strict=True))
    many, longest = [0] * chunks, [0] * chunks
    for (c, _), length in counts.items():
        many[c] += 1
        longest[c] = max(longest[c], length)
    found = chunk_sequences(graph, chunk, chunks)
    assert (found[0].tolist(), found[1].tolist()) == (many, longest)

    expected: Counter = Counter()
    for (i, j), w in zip(entries(graph.csr), graph.edge_weight.tolist(), strict=True):
        if numbers[i] != numbers[j]:
            expected[int(numbers[i]), int(numbers[j])] += w
    between, weight = chunk_traffic(graph, chunk, chunks)
    assert entries(between) == sorted(expected)
    assert dict(zip(entries(between), weight.tolist(), strict=True)) == dict(expected)


def test_refusals():
    pair, single = csr_of([[1], []], 2), csr_of([[]], 1)
    refuses(
        build_supergraph, {"csrs": [pair] * 4, "spatial": 1, "temporal": 1}, ("csrs", []),
        ("csrs", [pair, single]), ("presence", "sometimes"), ("spatial", -1),
        ("csrs|ascending", [csr_of([[1, 0], []], 2)]),
    )  # fmt: skip
    with pytest.raises(InvalidInputError, match="per_length"):
        build_supergraph([pair] * 4, temporal=2**30 - 1, per_length=True)
    graph = build_supergraph([pair])
    right = {"graph": graph, "chunk": torch.tensor([0, 1], dtype=torch.int32), "count": 2}
    for call in (chunk_traffic, chunk_sequences):
        wrong = [torch.tensor(chunk, dtype=torch.int32) for chunk in ([0, 2], [0], [0, -1])]
        refuses(
            lambda graph, chunk, count, call=call: call(graph, chunk, count), right,
            *(("chunk", chunk) for chunk in (*wrong, torch.tensor([0, 1]))),
        )  # fmt: skip
