"""Networks with a state per vertex: cells, refreshing, what waits, and the builder."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from torch.nn import functional

from dgbench.kernels_cuda.interact import local_rows
from dgbench.models.streaming import (
    DECAYS,
    Dygnn,
    IntervalEdges,
    Jodie,
    TimeLstm,
    build_interaction_model,
)
from dgbench.runtime.errors import UnknownKeyError
from dgbench.systems.base.interactions import InteractionWorkload

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(1)


def edges_of(src: list[int], dst: list[int], neg: list[int], count: int) -> IntervalEdges:
    """Edges over their vertices, a second apart."""
    columns = [torch.tensor(c, dtype=torch.int64) for c in (src, dst, neg)]
    rows = local_rows(*columns, torch.full((count,), -1, dtype=torch.int32))
    return IntervalEdges.of(rows, torch.arange(len(src)).double(), torch.arange(len(src)))


@pytest.mark.parametrize("decay", DECAYS)
def test_short_term_memory_fades_with_age(decay):
    cell = TimeLstm(4, 4, decay)
    weight = cell.weight(torch.tensor([0.0, 1.0, 10.0, 1e6]))
    assert weight[0].item() == pytest.approx(1.0)
    assert bool((weight.diff() < 0).all())
    assert bool((weight > 0).all()) or decay == "exp"


def fused(a: float, b: float, c: float) -> float:
    """a b + c, rounded once."""
    return float(Fraction(a) * Fraction(b) + Fraction(c))


def unfused(a: float, b: float, c: float) -> float:
    """a b + c, rounded twice."""
    return a * b + c


@pytest.mark.parametrize("multiply_add", [fused, unfused])
@pytest.mark.parametrize("decay", DECAYS)
def test_a_decay_is_right_at_any_age(decay, multiply_add):
    work = InteractionWorkload(dataset="tiny", model="dygnn", hidden_dim=4, decay=decay)
    network = build_interaction_model(work)
    cell = network.update_s
    rate = float(functional.softplus(cell.rate.detach().double()))
    # Ages of 1e-3 to 1e9 units; those that `exp` does not round to nothing.
    ages = [k * 10.0**power for power in range(-3, 10) for k in (1.0, 1 / 3, 0.7)]
    ages = [age for age in ages if decay != "exp" or age < 80]
    exact = {
        "log": lambda age: 1 / math.log(multiply_add(rate, age, math.e)),
        "exp": lambda age: math.exp(multiply_add(-rate, age, 0.0)),
        "inverse": lambda age: 1 / multiply_add(rate, age, 1.0),
    }[decay]
    found = cell.weight(torch.tensor(ages, dtype=torch.float64)).detach()
    wanted = torch.tensor([exact(age) for age in ages], dtype=torch.float64)
    assert ((found.double() / wanted - 1).abs() < 2.0**-22).all()
    # A cell takes ages as they are: the network does not round them first.
    c, h, x = torch.randn(3, len(ages), 4)
    c_found, _ = cell(c, h, torch.tensor(ages, dtype=torch.float64), x)
    assert c_found.dtype == torch.float32


@pytest.mark.parametrize("multiply_add", [fused, unfused])
@pytest.mark.parametrize("unit", [1e-9, 1.0, 86_400.0, 31_557_600.0])
def test_a_drift_of_jodie_is_right_at_any_age(unit, multiply_add):
    """1 + W log1p(age), ages of 1e-3 to 1e9 units, at times as large as a stream has them."""
    network = Jodie(4, unit=unit)
    age = torch.tensor([k * 10.0**power for power in range(-3, 10) for k in (1.0, 0.7)]) * unit
    sources, _ = network.new_state(age.numel(), seed=1)
    targets, _ = network.new_state(1, seed=2)
    sources.user.fill_(1.0)
    time = 1.7e9 if unit >= 1 else 1.7
    sources.last_s.copy_(time - age.double())
    with torch.no_grad():
        network.predict.weight.zero_()
        network.predict.weight[0, 0] = 1  # the first number of what drifted
        network.predict.bias.zero_()
        found = -network.pairs(sources, targets, time)[:, 0]
    weight, item = float(network.drift.weight[0, 0]), torch.cat([targets.item, targets.code], 1)[0]
    for row, last in zip(found.tolist(), sources.last_s.tolist(), strict=True):
        drifted = multiply_add(weight, math.log1p((time - last) / unit), 1.0)
        wanted = (drifted - float(item[0])) ** 2 + float(item[1:].double().square().sum())
        assert row == pytest.approx(wanted, rel=2.0**-20)


def test_without_age_the_cell_is_a_plain_lstm():
    cell, plain = TimeLstm(3, 4), torch.nn.LSTMCell(3, 4)
    with torch.no_grad():
        plain.weight_ih.copy_(cell.gates.weight[:, :3])
        plain.weight_hh.copy_(cell.gates.weight[:, 3:])
        plain.bias_ih.copy_(cell.gates.bias)
        plain.bias_hh.zero_()
    c, h, x = torch.randn(5, 4), torch.randn(5, 4), torch.randn(5, 3)
    h_want, c_want = plain(x, (h, c))
    c_found, h_found = cell(c, h, torch.zeros(5), x)
    torch.testing.assert_close(c_found, c_want)
    torch.testing.assert_close(h_found, h_want)


def test_infinite_age_forgets_the_short_term_part_alone():
    cell = TimeLstm(3, 4, "inverse").double()
    c, h, x = (torch.randn(2, n, dtype=torch.float64) for n in (4, 4, 3))
    found, _ = cell(c, h, torch.full((2,), 1e18, dtype=torch.float64), x)
    rest = c - torch.tanh(cell.short(c))
    want, _ = cell(rest, h, torch.zeros(2, dtype=torch.float64), x)
    # With nothing left to decay but its own short-term part, compare the input of the gates.
    i, f, g, _ = cell.gates(torch.cat([x, h], dim=1)).chunk(4, dim=1)
    torch.testing.assert_close(found, f.sigmoid() * rest + i.sigmoid() * g.tanh())
    assert want.shape == found.shape


def test_gradients_of_the_cell():
    cell = TimeLstm(2, 3, "log").double()
    inputs = [torch.randn(2, n, dtype=torch.float64, requires_grad=True) for n in (3, 3, 2)]
    age = torch.tensor([0.0, 3.0], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda c, h, x: cell(c, h, age, x), inputs)


@pytest.mark.parametrize("kind", [Dygnn, Jodie])
def test_nothing_that_waits_changes_nothing(kind):
    model = kind(4)
    state, pending = model.new_state(3)
    for name, column in model.refresh(state, pending).columns().items():
        assert torch.equal(column, getattr(state, name))


@pytest.mark.parametrize("kind", [Dygnn, Jodie])
def test_a_refreshed_row_does_not_see_the_others(kind):
    model = kind(4).double()
    state, pending = model.new_state(6, dtype=torch.float64)
    edges = edges_of([0, 1, 2], [3, 4, 0], [5, 5, 5], 6)
    waiting = model.pend(model.refresh(state[edges.ids], pending[edges.ids]), edges)
    rows = state[edges.ids[: edges.ends]]
    whole = model.refresh(rows, waiting).embedding
    for row in range(edges.ends):
        one = torch.tensor([row])
        torch.testing.assert_close(model.refresh(rows[one], waiting[one]).embedding[0], whole[row])


def test_what_waits_is_the_partners_by_role():
    model = Dygnn(4)
    state, pending = model.new_state(5)
    edges = edges_of([0, 0, 1], [1, 2, 0], [4, 4, 4], 5)
    e = state.embedding
    found = model.pend(model.refresh(state[edges.ids], pending[edges.ids]), edges)
    at = {int(v): row for row, v in enumerate(edges.ids[: edges.ends])}
    torch.testing.assert_close(found.sum_s[at[0]], e[1] + e[2])
    torch.testing.assert_close(found.sum_g[at[0]], e[1])
    assert (found.count_s[at[0]], found.count_g[at[0]], found.count_s[at[2]]) == (2, 1, 0)
    assert (float(found.time_s[at[0]]), float(found.time_g[at[0]])) == (1.0, 2.0)
    last = model.pend(model.refresh(state[edges.ids], pending[edges.ids]), edges, "last")
    torch.testing.assert_close(last.sum_s[at[0]], e[2])
    assert int(last.count_s[at[0]]) == 1


def test_link_scores_are_those_of_the_head_pair_by_pair():
    model = Dygnn(4).double()
    state, pending = model.new_state(6, dtype=torch.float64)
    edges = edges_of([0, 5, 0], [1, 5, 2], [3, 0, 4], 6)
    now = model.refresh(state[edges.ids], pending[edges.ids])
    found = model.link(now, state[edges.ids], edges)
    e = now.embedding
    positives, negatives = (
        model.head(e[edges.src], e[edges.dst]),
        model.head(e[edges.src], e[edges.neg]),
    )
    torch.testing.assert_close(found.positives, positives)
    torch.testing.assert_close(found.negatives, negatives)
    torch.testing.assert_close(
        found.loss, (functional.softplus(-positives) + functional.softplus(negatives)).sum()
    )


def test_jodie_scores_are_distances_to_a_prediction_in_time():
    model = Jodie(3, unit=2.0).double()
    with torch.no_grad():
        model.drift.weight.fill_(0.5)
    state, pending = model.new_state(4, dtype=torch.float64)
    first = edges_of([0], [1], [2], 4)
    now = model.refresh(state[first.ids], pending[first.ids])
    ends = first.ids[: first.ends]
    state.write(ends, now[: first.ends])
    pending.write(ends, model.pend(now, first))
    later = edges_of([0], [3], [1], 4)
    later.t = torch.tensor([6.0], dtype=torch.float64)
    now = model.refresh(state[later.ids], pending[later.ids])
    found = model.link(now, state[later.ids], later)
    row = {int(v): k for k, v in enumerate(later.ids)}
    zero = torch.zeros(3).double()
    user = torch.sigmoid(model.user(torch.cat([zero, zero, zero[:1]])))
    torch.testing.assert_close(now.user[row[0]], user)
    drifted = user * (1 + 0.5 * math.log1p(6.0 / 2.0))
    seen = torch.cat([zero, state.code[1]])
    want = model.predict(torch.cat([drifted, state.code[0], seen]))
    far = (want - torch.cat([zero, state.code[3]])).square().sum()
    torch.testing.assert_close(found.positives[0], -far)
    torch.testing.assert_close(found.loss, far + user.square().sum())


def test_the_builder_is_seeded_and_speaks():
    task = InteractionWorkload(dataset="any", hidden_dim=4)
    one, two = build_interaction_model(task), build_interaction_model(task)
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(UnknownKeyError, match="jodi"):
        InteractionWorkload(dataset="any", model="jodi").check()  # type: ignore[arg-type]
    with pytest.raises(UnknownKeyError, match="decay"):
        Dygnn(4, decay="linear")
    with pytest.raises(UnknownKeyError, match="activation"):
        Dygnn(4, activation="relu")


def test_first_embeddings_differ_and_repeat():
    state, _ = Dygnn(8).new_state(5, seed=3)
    again, _ = Dygnn(8).new_state(5, seed=3)
    other, _ = Dygnn(8).new_state(5, seed=4)
    assert torch.equal(state.embedding, again.embedding)
    assert not torch.equal(state.embedding, other.embedding)
    assert torch.unique(state.embedding, dim=0).shape[0] == 5


@pytest.mark.parametrize("rows", [1, 15, 16, 2**16 + 3, 2**17 + 16])
def test_rows_of_some_vertices_are_those_of_all(rows):
    model = Dygnn(16)
    whole, _ = model.new_state(rows, seed=3)
    for kept in (torch.arange(1, rows, 3), torch.arange(rows)):
        some, waiting = model.new_state(rows, kept, seed=3)
        assert len(waiting) == kept.numel()
        for name, column in whole.columns().items():
            assert torch.equal(getattr(some, name), column[kept]), name
