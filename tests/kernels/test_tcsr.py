"""Rows rebuilt from all edges, against sorting and scanning one root after the other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dgbench.kernels_cuda.tcsr import Tcsr, build_tcsr, sample_tcsr, sample_tcsr_hops
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.base.plain_sampler import PlainGraph, plain_hops, plain_sample


def ints(*numbers: int) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


def stream(seed: int, vertices: int, edges: int, last: int = 12) -> tuple[Tensor, Tensor, Tensor]:
    """Edges with ties in time, duplicates and self edges, in time order."""
    rng = np.random.default_rng(seed)
    ends = torch.from_numpy(rng.integers(0, vertices, (2, edges)))
    times = np.sort(rng.integers(0, last, edges)).astype(np.float64)
    return ends[0].contiguous(), ends[1].contiguous(), torch.from_numpy(times)


def same(found, wanted) -> None:
    for name in ("nodes", "times", "positions", "offsets", "neighbours", "eids", "edge_times"):
        assert torch.equal(getattr(found, name), getattr(wanted, name)), name
    assert found.fanout == wanted.fanout


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    vertices=st.integers(1, 6),
    edges=st.integers(0, 60),
    undirected=st.booleans(),
    fanout=st.integers(1, 7),
    policy=st.sampled_from(["recent", "uniform"]),
    window=st.sampled_from([None, 0.0, 2.0, 5.0]),
    closed=st.booleans(),
    replace=st.booleans(),
    threads=st.sampled_from([1, 3]),
)
def test_it_answers_as_the_oracle_does(
    seed, vertices, edges, undirected, fanout, policy, window, closed, replace, threads
) -> None:
    src, dst, t = stream(seed, vertices, edges)
    plain = PlainGraph(vertices, undirected=undirected)
    plain.insert(src, dst, t)
    rows = build_tcsr(vertices, src, dst, t, undirected=undirected, threads=threads)
    for v in range(vertices):
        mine = slice(int(rows.indptr[v]), int(rows.indptr[v + 1]))
        for found, wanted in zip(
            (rows.neighbours, rows.eids, rows.times), plain.neighbours(v), strict=True
        ):
            assert found[mine].tolist() == wanted.tolist()
    rng = np.random.default_rng(seed)
    nodes = torch.from_numpy(rng.integers(0, vertices, 40))
    times = torch.from_numpy(rng.integers(-1, 14, 40).astype(np.float64))
    how = {"policy": policy, "window": window, "closed": closed, "replace": replace}
    how |= {"fanout": fanout, "seed": seed << 40, "draw": 2**32 - 1 - seed, "hop": 3, "snapshot": 2}
    positions = torch.from_numpy(rng.integers(0, 2**60, 40))
    for where in (None, positions):
        found = sample_tcsr(rows, nodes, times, positions=where, threads=threads, **how)
        same(found, plain_sample(plain, nodes, times, positions=where, **how))


@pytest.mark.parametrize("window", [None, 3.0])
@pytest.mark.parametrize("prop_time", [False, True])
def test_hops_and_snapshots_as_the_oracle(window: float | None, prop_time: bool) -> None:
    src, dst, t = stream(3, 20, 400, 30)
    plain = PlainGraph(20, undirected=True)
    plain.insert(src, dst, t)
    rows = build_tcsr(20, src, dst, t, undirected=True)
    how = {"policy": "uniform", "window": window, "snapshots": 1 if window is None else 3}
    how |= {"seed": 7, "draw": 5, "positions": torch.arange(100, 120), "prop_time": prop_time}
    nodes, times = torch.arange(20), torch.full((20,), 25.0, dtype=torch.float64)
    found = sample_tcsr_hops(rows, nodes, times, (4, 3), **how)
    wanted = plain_hops(plain, nodes, times, (4, 3), **how)
    assert [len(hops) for hops in found] == [len(hops) for hops in wanted]
    for mine, theirs in zip(found, wanted, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            same(one, other)


def test_edges_out_of_order_are_sorted_and_ties_keep_their_order() -> None:
    rows = build_tcsr(2, ints(0, 0, 0, 0), ints(1, 1, 0, 1), ints(5, 1, 5, 1), ints(9, 8, 7, 6))
    assert rows.eids.tolist() == [8, 6, 9, 7]
    assert rows.times.tolist() == [1, 1, 5, 5]
    assert (rows.num_vertices, rows.num_records, rows.nbytes) == (2, 4, 8 * (3 + 12))


def test_self_edges_stand_twice_where_both_ends_keep_an_edge() -> None:
    rows = build_tcsr(3, ints(1, 1), ints(1, 2), ints(0, 1), undirected=True)
    assert rows.indptr.tolist() == [0, 0, 3, 4]
    assert rows.neighbours.tolist() == [1, 1, 2, 1]


def test_large_ids_and_times_stay_exact() -> None:
    late, big = 2.0**52 + 1, 2**62
    rows = build_tcsr(
        2, ints(0, 0), ints(1, 1), torch.tensor([late, late + 1], dtype=torch.float64),
        ints(big, big + 1),
    )  # fmt: skip
    found = sample_tcsr(rows, ints(0), torch.tensor([late + 1], dtype=torch.float64), fanout=5)
    assert found.eids.tolist() == [big]
    assert found.edge_times.tolist() == [late]


def test_nothing_in_nothing_out() -> None:
    none, no_times = ints(), torch.empty(0, dtype=torch.float64)
    empty = build_tcsr(0, none, none, no_times)
    assert sample_tcsr(empty, none, no_times, fanout=3).offsets.tolist() == [0]
    isolated = build_tcsr(2, none, none, no_times, undirected=True)
    asked = sample_tcsr(isolated, ints(1, 0), torch.tensor([1.0, torch.inf]).double(), fanout=3)
    assert asked.offsets.tolist() == [0, 0, 0]


def test_draws_differ_and_repeat() -> None:
    src, dst, t = stream(1, 3, 3000)
    rows = build_tcsr(3, src, dst, t)
    nodes, times = torch.zeros(50, dtype=torch.int64), torch.full((50,), 99.0).double()
    one, again, other = (
        sample_tcsr(rows, nodes, times, fanout=5, policy="uniform", draw=d).eids for d in (0, 0, 1)
    )
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


BAD_BUILD = {
    "num_vertices": (-1, ints(), ints(), ints()),
    "src": (2, ints(2), ints(0), ints(0)),
    "dst": (2, ints(0), ints(-1), ints(0)),
    "dst has": (2, ints(0), ints(), ints(0)),
    "t has": (2, ints(0), ints(0), ints()),
    "t is": (2, ints(0), ints(0), torch.zeros(1)),
    r"t\[0\]": (2, ints(0), ints(0), torch.tensor([torch.nan]).double()),
    "src is a list": (2, [0], ints(0), ints(0)),
}


@pytest.mark.parametrize("said", BAD_BUILD)
def test_build_says_what_is_wrong(said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        build_tcsr(*BAD_BUILD[said])


BAD_SAMPLE = {
    "nodes": {"nodes": ints(2)},
    "times has": {"times": torch.zeros(2).double()},
    "times is": {"times": torch.zeros(1)},
    "nan": {"times": torch.full((1,), torch.nan).double()},
    "fanout": {"fanout": 0},
    "window": {"window": -1.0},
    "positions": {"positions": ints(0, 1)},
}


@pytest.mark.parametrize("said", BAD_SAMPLE)
def test_sample_says_what_is_wrong(said: str) -> None:
    rows = build_tcsr(2, ints(0), ints(1), ints(0))
    arguments = {"nodes": ints(0), "times": torch.ones(1).double(), "fanout": 2}
    arguments |= BAD_SAMPLE[said]
    with pytest.raises(InvalidInputError, match=said):
        sample_tcsr(rows, arguments.pop("nodes"), arguments.pop("times"), **arguments)


def test_names_of_policies_and_snapshots_without_a_window() -> None:
    rows = build_tcsr(2, ints(0), ints(1), ints(0))
    with pytest.raises(UnknownKeyError, match="recnt"):
        sample_tcsr(rows, ints(0), torch.ones(1).double(), fanout=1, policy="recnt")
    with pytest.raises(InvalidInputError, match="window"):
        sample_tcsr_hops(rows, ints(0), torch.ones(1).double(), (2,), snapshots=2)


def test_a_direct_call_with_rows_that_lie_is_refused() -> None:
    """The compiled part never reads outside of what it was given."""
    rows = build_tcsr(2, ints(0), ints(1), ints(0))
    lying = Tcsr(ints(0, 9, 9), rows.neighbours, rows.eids, rows.times)
    with pytest.raises(InvalidInputError, match="indptr"):
        sample_tcsr(lying, ints(0), torch.ones(1).double(), fanout=1)
