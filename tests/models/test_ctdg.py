"""Networks over streams: against loops over targets that project every neighbour."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from dgbench.models.ctdg import MemoryRows, Tgn, build_stream_model
from dgbench.models.ctdg.attend import attend
from dgbench.models.ctdg.attention import TemporalAttention
from dgbench.models.ctdg.base import Neighbourhood, Spread
from dgbench.models.ctdg.link import LinkPredictor
from dgbench.models.ctdg.static import GatLayer, SageLayer
from dgbench.models.ctdg.time_encoding import TimeEncoding
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


@given(COUNTS)
def test_what_is_uncounted_is_read_up_to_the_last_neighbour(counts) -> None:
    hop, total, more = hop_of(counts), sum(counts), 2
    most = (len(counts) + more) * hop.fanout
    roomy = SimpleNamespace(**{**vars(hop), "uncounted": True})
    junk = torch.full((most - total,), 7)
    roomy.times = torch.cat([hop.times, torch.full((more,), torch.nan, dtype=DOUBLE)])
    roomy.offsets = torch.cat([hop.offsets, torch.full((more,), total)])
    roomy.neighbours, roomy.eids = (torch.cat([x, junk]) for x in (hop.neighbours, hop.eids))
    roomy.edge_times = torch.cat([hop.edge_times, junk * torch.nan])
    around, tight = around_of(roomy), around_of(hop)
    rows = torch.cat([rows_of(total, 2), torch.full((most - total, 2), torch.nan).double()])
    dense = around.spread(rows)
    assert torch.equal(dense[: len(counts)], tight.spread(rows[:total]))
    assert torch.equal(around.ages()[: len(counts)], tight.ages())
    assert not dense[len(counts) :].any()
    assert not around.ages()[len(counts) :].any()
    back = around.gather(dense)
    assert torch.equal(back[:total], rows[:total])
    assert not back[total:].any()


@pytest.mark.parametrize("edge_dim", [0, 2])
@pytest.mark.parametrize("time_dim", [0, 3])
@pytest.mark.parametrize("counts", [[3, 3], [0, 2, 3], [0], [0, 0]])
def test_attend_has_the_gradients_of_finite_differences(edge_dim, time_dim, counts) -> None:
    around = around_of(hop_of(counts))
    total = sum(counts)
    edges = rows_of(total, edge_dim) if edge_dim else None
    query = rows_of(2 * len(counts), 2 + edge_dim + time_dim).view(len(counts), 2, -1)
    leaves = [query.clone().requires_grad_(), rows_of(total, 2).requires_grad_()]
    if time_dim:
        leaves += [rows_of(time_dim, 1).requires_grad_(), torch.rand(time_dim).double()]
        leaves[-1].requires_grad_()

    def run(query, rows, *encoding):
        return attend(around, query, rows, edges, *(encoding or (None, None)))

    assert torch.autograd.gradcheck(run, leaves)


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


def test_time_encoding_is_a_cosine_and_knows_now() -> None:
    encoding = TimeEncoding(5).double()
    encoding.bias.data.normal_()
    age = torch.tensor([[0.0, 3.5]], dtype=DOUBLE)
    expected = torch.cos(age.unsqueeze(-1) * encoding.weight[:, 0] + encoding.bias)
    torch.testing.assert_close(encoding(age), expected)
    torch.testing.assert_close(encoding.now(2), expected[0, :1].expand(2, 5))
    assert encoding.weight[0] == 1
    assert abs(encoding.weight[-1].item() - 1e-9) < 1e-15


def test_links_are_scored_pair_by_pair() -> None:
    head = LinkPredictor(4).double()
    hidden = rows_of(9, 4)

    def score(u, v):
        return head.score(torch.relu(head.source(u) + head.target(v)))

    positive, negative = head(hidden)
    for i in range(3):
        torch.testing.assert_close(positive[i], score(hidden[i], hidden[3 + i])[0])
        torch.testing.assert_close(negative[i], score(hidden[i], hidden[6 + i])[0])
    logits, label = torch.cat([positive, negative]), torch.tensor([1.0] * 3 + [0.0] * 3).double()
    expected = functional.binary_cross_entropy_with_logits(logits, label, reduction="sum")
    torch.testing.assert_close(head.loss_sum(hidden), expected)
    assert head.loss_sum(hidden[:0]) == 0


def task(model, **fields):
    sizes = dict.fromkeys(("node_dim", "edge_dim", "hidden_dim", "time_dim", "memory_dim"), 4)
    return StreamWorkload(**{"dataset": "none", "model": model, **sizes, **fields})


def test_a_memory_takes_in_its_message_and_keeps_still_without() -> None:
    model = build_stream_model(task("tgn")).double()
    assert isinstance(model, Tgn)
    rows = MemoryRows(
        rows_of(3, 4, 1),
        torch.tensor([1.0, 2.0, 3.0], dtype=DOUBLE),
        rows_of(3, 12, 2),
        torch.tensor([5.0, -torch.inf, 3.0], dtype=DOUBLE),
    )
    found = model.remember(rows)
    assert torch.equal(found[1], rows.memory[1])
    for row, age in ((0, 4.0), (2, 0.0)):
        message = torch.cat([rows.mail[row], model.time(torch.tensor(age, dtype=DOUBLE))])
        torch.testing.assert_close(found[row], model.update(message, rows.memory[row]))
    features = rows_of(3, 4, 5)
    torch.testing.assert_close(model.states(found, features), found + model.project(features))
    found.sum().backward()
    assert all(p.grad.isfinite().all() for p in model.update.parameters())


def test_dysat_reads_windows_from_the_oldest_on() -> None:
    model = build_stream_model(task("dysat", window=1.0, snapshots=2)).double()
    newest, oldest = hop_of([2, 1], seed=1), hop_of([1, 3], seed=2)
    table, edge_table = rows_of(9, 4), rows_of(9, 4, 4)
    found = model([[newest], [oldest]], table.__getitem__, edge_table.__getitem__)
    seen = [
        model.embed([hop], table.__getitem__, edge_table.__getitem__, layers)
        for hop, layers in zip((oldest, newest), model.windows, strict=True)
    ]
    assert not torch.equal(*(layers[0].query.weight for layers in model.windows))
    hidden = torch.zeros_like(seen[0])
    for one in seen:
        hidden = torch.tanh(
            functional.linear(one, model.combine.weight_ih_l0, model.combine.bias_ih_l0)
            + functional.linear(hidden, model.combine.weight_hh_l0, model.combine.bias_hh_l0)
        )
    torch.testing.assert_close(found, hidden)


@pytest.mark.parametrize("model", ["tgat", "graphsage", "gat"])
def test_hops_are_read_from_the_farthest_on(model) -> None:
    net = build_stream_model(task(model, fanouts=(3, 3))).double()
    first = hop_of([2, 1])
    second = hop_of([1, 0, 3, 2, 1], seed=2)
    second.nodes = torch.cat([first.nodes, first.neighbours])
    second.times = torch.cat([first.times, first.edge_times])
    table, edge_table = rows_of(9, 4), rows_of(9, 4, 4)
    found = net([[first, second]], table.__getitem__, edge_table.__getitem__)
    inner = net.layers[0](
        around_of(second), table[second.nodes], table[second.neighbours], edge_table[second.eids]
    )
    expected = net.layers[1](around_of(first), inner[:2], inner[2:], edge_table[first.eids])
    torch.testing.assert_close(found, expected)


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
