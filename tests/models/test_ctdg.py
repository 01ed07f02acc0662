"""Networks over streams: against loops over targets that project every neighbour."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from dgbench.models.ctdg import build_stream_model
from dgbench.models.ctdg.attention import TemporalAttention
from dgbench.models.ctdg.base import Neighbourhood, Spread
from dgbench.models.ctdg.static import GatLayer, SageLayer
from dgbench.runtime.errors import UnknownKeyError
from dgbench.systems.base.stream_data import StreamWorkload

DOUBLE = torch.float64
COUNTS = st.lists(st.integers(0, 3), min_size=1, max_size=5)


def hop_of(counts, fanout=3, seed=1, nodes=9):
    """A hop with so many neighbours of each target; times such that ages differ."""
    draw = torch.Generator().manual_seed(seed)
    rows, total = len(counts), sum(counts)
    times = 10 + torch.arange(rows, dtype=DOUBLE)
    return SimpleNamespace(
        nodes=torch.randint(0, nodes, (rows,), generator=draw),
        times=times,
        offsets=torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()]),
        neighbours=torch.randint(0, nodes, (total,), generator=draw),
        eids=torch.arange(total),
        edge_times=torch.rand(total, generator=draw, dtype=DOUBLE) * 9,
        fanout=fanout,
        uncounted=False,
    )


def around_of(hop):
    return Neighbourhood(hop, torch.device("cpu"))


def ranges(hop):
    return [range(a, b) for a, b in zip(hop.offsets[:-1], hop.offsets[1:], strict=True)]


def rows_of(count, width, seed=3):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(count, width, generator=draw, dtype=DOUBLE)


@settings(max_examples=20, deadline=None)
@given(COUNTS)
def test_a_neighbourhood_puts_neighbours_first_and_takes_them_back(counts) -> None:
    hop = hop_of(counts)
    around, rows = around_of(hop), rows_of(sum(counts), 2)
    dense, ages = around.spread(rows), around.ages()
    assert torch.equal(around.gather(dense), rows)
    for target, mine in enumerate(ranges(hop)):
        assert torch.equal(dense[target, : len(mine)], rows[mine.start : mine.stop])
        assert not dense[target, len(mine) :].any()
        assert not ages[target, len(mine) :].any()
        for place, entry in enumerate(mine):
            assert ages[target, place] == hop.times[target] - hop.edge_times[entry]
    leaf = rows.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: Spread.apply(around, x), leaf)


@settings(max_examples=20, deadline=None)
@given(COUNTS, st.sampled_from([1, 2]), st.booleans(), st.booleans())
def test_attention_equals_projecting_every_neighbour(counts, heads, with_edges, with_time) -> None:
    torch.manual_seed(5)
    node_dim, edge_dim, time_dim, hidden = 3, 2 * with_edges, 4 * with_time, 6
    layer = TemporalAttention(node_dim, edge_dim, time_dim, hidden, heads).double()
    if layer.time is not None:
        layer.time.bias.data.normal_()
    hop, total = hop_of(counts), sum(counts)
    targets, neighbours = rows_of(len(counts), node_dim, 7), rows_of(total, node_dim, 8)
    edges = rows_of(total, edge_dim, 9) if with_edges else None
    found = layer(around_of(hop), targets, neighbours, edges)
    for target, mine in enumerate(ranges(hop)):
        asking, out = targets[target], torch.zeros(hidden, dtype=DOUBLE)
        if with_time:
            asking = torch.cat([asking, layer.time(torch.zeros((), dtype=DOUBLE))])
        q = layer.query(asking).view(heads, -1)
        if len(mine):
            seen = []
            for entry in mine:
                parts = [neighbours[entry]]
                parts += [edges[entry]] if with_edges else []
                if with_time:
                    parts.append(layer.time(hop.times[target] - hop.edge_times[entry]))
                seen.append(torch.cat(parts))
            z = torch.stack(seen)
            k, v = (part(z).view(len(mine), heads, -1) for part in (layer.key, layer.value))
            share = (torch.einsum("hd,nhd->hn", q, k) / math.sqrt(q.shape[1])).softmax(1)
            out = torch.einsum("hn,nhd->hd", share, v).flatten()
        expected = layer.merge(torch.cat([out, targets[target]]))
        torch.testing.assert_close(found[target], expected, rtol=1e-9, atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(COUNTS)
def test_static_layers_equal_loops(counts) -> None:
    torch.manual_seed(6)
    hop, total = hop_of(counts), sum(counts)
    targets, neighbours = rows_of(len(counts), 3, 7), rows_of(total, 3, 8)
    sage, gat = SageLayer(3, 4).double(), GatLayer(3, 4, 2, last=False).double()
    by_sage = sage(around_of(hop), targets, neighbours, None)
    by_gat = gat(around_of(hop), targets, neighbours, None)
    for target, mine in enumerate(ranges(hop)):
        rows = neighbours[mine.start : mine.stop]
        mean = rows.mean(0) if len(mine) else torch.zeros(3, dtype=DOUBLE)
        expected = torch.relu(sage.own(targets[target]) + sage.others(mean))
        torch.testing.assert_close(by_sage[target], expected)
        whole = torch.cat([targets[target : target + 1], rows])
        heads = []
        for head in range(2):
            w = whole @ gat.weight[head].t()
            score = w @ gat.source[head, 0] + w[0] @ gat.target[head, 0]
            heads.append(functional.leaky_relu(score, 0.2).softmax(0) @ w)
        expected = functional.elu(torch.cat(heads) + gat.bias)
        torch.testing.assert_close(by_gat[target], expected)


def task(model, **fields):
    sizes = dict.fromkeys(("node_dim", "edge_dim", "hidden_dim", "time_dim", "memory_dim"), 4)
    return StreamWorkload(**{"dataset": "none", "model": model, **sizes, **fields})


def test_building_is_seeded_and_leaves_other_draws_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    first, second = (build_stream_model(task("tgn", seed=9)).state_dict() for _ in range(2))
    assert torch.equal(torch.rand(2), expected)
    assert all(torch.equal(first[name], second[name]) for name in first)
    other = build_stream_model(task("tgn", seed=8)).state_dict()
    assert not torch.equal(first["update.weight_ih"], other["update.weight_ih"])
    with pytest.raises(UnknownKeyError, match="tgnn"):
        build_stream_model(task("tgnn"))
