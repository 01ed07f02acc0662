"""Compiled attention over rows, packed steps and sampled neighbours, against float64."""

from __future__ import annotations

import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from device_fixtures import ONE_PLACE, PLACES, Native
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from kernel_checks import close, refuses, same_bits
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from dgbench.kernels_cuda import attention
from dgbench.kernels_cuda.attention import op, temporal_attention
from dgbench.models import attention as models


def normal(seed: int, *shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def run(function, floats: list[Tensor], grad: Tensor, *more, **named) -> list[Tensor]:
    """The output, and the gradients of all floats along `grad`."""
    leaves = [x.detach().requires_grad_() for x in floats]
    out = function(leaves, *more, **named)
    return [out.detach(), *torch.autograd.grad(out, leaves, grad)]


def doubles(tensors: list[Tensor]) -> list[Tensor]:
    return [x.double() for x in tensors]


# --- Rows of a matrix ----------------------------------------------------------------------------


def random_rows(
    rows: int, columns: int, degree: float, seed: int, *, hub: int = 0
) -> tuple[Tensor, Tensor]:
    """A matrix without loops whose degrees vary: many rows are empty, some long, one a hub."""
    generator = torch.Generator().manual_seed(seed)
    rates = degree * torch.rand(rows, generator=generator) ** 3 * 4
    counts = torch.poisson(rates, generator=generator).long() if columns > 1 else rates.long() * 0
    if hub:
        counts[3] = hub
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    owner = torch.repeat_interleave(torch.arange(rows), counts)
    indices = torch.randint(0, max(1, columns - 1), (int(indptr[-1]),), generator=generator)
    return indptr, (indices + (indices >= owner)).int()


@pytest.fixture
def place(anywhere) -> Native:
    def with_stats(*given: Any) -> tuple[Any, ...]:
        *first, stats, to_q, to_k, to_v = given
        assert stats is None  # of each wanted step and head, where a device notes them
        return *first, to_q.new_empty(first[2].numel(), first[6], 3), to_q, to_k, to_v

    return anywhere(op, packed_attention_backward=with_stats)


@given(
    rows=st.integers(0, 40), others=st.integers(0, 20),
    degree=st.sampled_from([0.0, 0.3, 2.0, 12.0, 90.0]), heads=st.integers(1, 5),
    width=st.sampled_from([1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 40, 64, 70, 100, 130]),
    slope=st.sampled_from([0.2, 0.0, 1.0, -0.5]), scale=st.sampled_from([1.0, 0.0, 30.0]),
    seed=st.integers(0, 2**20), dense=st.booleans(),
)  # fmt: skip
@settings(max_examples=25, deadline=None, suppress_health_check=ONE_PLACE)
def test_rows_equal_plain_torch(
    place, rows, others, degree, heads, width, slope, scale, seed, dense
):
    assume(place.own or width <= op.CUDA_WIDTHS["attend_rows"])
    columns = rows + others
    # What a model shows: values and scores side by side, so the rows of both lie apart.
    shown, target, grad = normal(
        seed, (columns, heads * (width + 1)), (rows, heads), (rows, heads, width)
    )
    values = shown[:, : heads * width].reshape(columns, heads, width)
    source = shown[:, heads * width :] * (scale if seed % 2 else 1)
    floats = [values, source, target * scale]
    hub = 1300 if degree == 2 and rows > 20 else 0  # shared out among the groups of a block
    matrix = random_rows(rows, columns, degree, seed, hub=hub)
    exact = run(
        lambda x: models.plain_attend_rows(*matrix, *x, slope), doubles(floats), grad.double()
    )
    there = [place.put(x.contiguous() if dense else x) for x in floats]
    lists = [place.put(x.clone()) for x in matrix]

    def compiled(leaves: list[Tensor]) -> Tensor:
        return attention.attend_rows(*lists, *leaves, slope)

    close([x.cpu() for x in run(compiled, there, place.put(grad))], exact, 2e-5)
    with torch.no_grad():
        close([compiled(there).cpu()], exact[:1], 2e-5)


def test_a_hub_of_alike_neighbours_keeps_most_digits():
    """Its shares add up in float64; rows are added one after the other."""
    n = 10**5
    indptr = torch.cat([torch.zeros(1), torch.full((n,), n - 1.0)]).long()
    values, scores = torch.full((n, 1, 8), 0.1), torch.zeros(n, 1)
    ids = torch.arange(1, n, dtype=torch.int32)
    out = attention.attend_rows(indptr, ids, values, scores, scores)
    assert (out[0].double() / 0.1 - 1).abs().max() < n * 2.0**-24


def test_scores_of_any_size_doubled_entries_and_rows_that_do_not_matter():
    """Only differences of scores count, and a row that nobody reads spreads nothing."""
    indptr, indices = torch.tensor([0, 2, 2, 3, 6]), torch.tensor([1, 3, 0, 2, 2, 5]).int()
    values = torch.eye(6).unsqueeze(1)
    values[4] = torch.nan
    source = torch.tensor([1e30, 1e30, 0.0, -1e30, torch.nan, 0.0]).unsqueeze(1)
    out = attention.attend_rows(indptr, indices, values, source, torch.zeros(4, 1))
    expected = torch.tensor([[0.5, 0.5, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]])
    assert torch.equal(out[:3, 0], expected)
    torch.testing.assert_close(out[3, 0], torch.tensor([0, 0, 2 / 3, 0, 0, 1 / 3]))


def test_wrong_rows_are_named():
    right = {"indptr": torch.tensor([0, 1]), "indices": torch.tensor([1], dtype=torch.int32)}
    values = torch.zeros(2, 1, 3)
    right |= {"values": values, "source": torch.zeros(2, 1), "target": torch.zeros(1, 1)}
    refuses(
        attention.attend_rows, right, ("values", values.double()), ("values", values[0]),
        ("values|source", values[:0]), ("source", torch.zeros(1, 1)),
        ("target", torch.zeros(2, 1)), ("indices", torch.tensor([2], dtype=torch.int32)),
        ("indptr", torch.tensor([0, 2])),
    )  # fmt: skip


# --- Packed steps --------------------------------------------------------------------------------


def packed(steps: int, rows: int, longest: int, gaps: bool, seed: int) -> Tensor:
    """int64[T, N]: sequences of 1 .. longest steps, with steps of nothing behind some."""
    random = np.random.default_rng(seed)
    out, number = np.full((rows, steps), -1), 0
    for row in out:
        at = 0
        while at < steps:
            end = min(steps, at + int(random.integers(1, longest + 1)))
            row[at:end] = number
            number += 1
            at = end + int(random.integers(0, 3) if gaps else 0)
    return torch.from_numpy(out.T.copy())


def both_packed(
    place: Native, steps: list[Tensor], grad: Tensor, sequence: Tensor | None, **options
) -> None:
    """Compare both forms, without what the plain one writes where there is nothing."""
    real = torch.ones_like(grad[..., :1]) if sequence is None else (sequence >= 0).unsqueeze(-1)
    options["sequence"], own = sequence, options.get("own")
    there = {n: place.put(x) if isinstance(x, Tensor) else x for n, x in options.items()}
    floats, up = [place.put(x) for x in steps], place.put(grad)
    ours = [t.cpu() for t in run(lambda x: attention.packed_attention(*x, **there), floats, up)]
    exact = run(
        lambda x: models.plain_packed_attention(*x, **options), doubles(steps), grad.double() * real
    )
    close(ours, [exact[0] * real, *exact[1:]], 2e-5)
    assert own is None or not any(t[~own].any() for t in ours[:2])


@given(
    steps=st.sampled_from([1, 2, 5, 16, 17, 40, 130]), rows=st.integers(1, 6) | st.just(70),
    longest=st.sampled_from([1, 2, 3, 16, 35, 200]), gaps=st.booleans(), heads=st.integers(1, 4),
    width=st.sampled_from([1, 3, 4, 8, 16, 21, 32, 33, 48, 63, 64]), causal=st.booleans(),
    chosen=st.sampled_from([None, 0.0, 0.4, 1.0]), scale=st.sampled_from([1.0, 0.0, 20.0]),
    seed=st.integers(0, 2**20),
)  # fmt: skip
@example(2000, 1, 1, False, 1, 8, True, 0.1, 1.0, 5)  # more scores than are kept at a time
@example(2000, 1, 1, False, 1, 8, False, 0.1, 1.0, 5)
@settings(max_examples=25, deadline=None, suppress_health_check=ONE_PLACE)
def test_steps_equal_plain_torch(
    place, steps, rows, longest, gaps, heads, width, causal, chosen, scale, seed
):
    assume(place.own or steps * rows < 600)
    sequence = packed(steps, rows, longest, gaps, seed) if seed % 5 else None
    *floats, grad, share = normal(seed, *[(steps, rows, heads * width)] * 4, (steps, rows))
    floats[0] = floats[0] * scale
    if seed % 2:  # one product for all three, or rows before steps: no copies
        floats = list(torch.cat(floats, dim=-1).split(heads * width, dim=-1))
        grad = grad.transpose(0, 1).contiguous().transpose(0, 1)
    own = None if chosen is None else share.sigmoid() < chosen
    both_packed(place, floats, grad, sequence, heads=heads, causal=causal, own=own)


def rows_of_lengths(*rows: list[int]) -> Tensor:
    """Sequences of these lengths one behind the other in each row."""
    numbers = [torch.arange(len(row)).repeat_interleave(torch.tensor(row)) for row in rows]
    return pad_sequence(numbers, padding_value=-1)


@pytest.mark.parametrize("anywhere", PLACES, indirect=True)
@pytest.mark.parametrize(("scale", "shift"), [(30.0, 0.0), (1.0, 50.0)])
def test_packed_scores_that_grow_and_pulls_that_cancel(place, scale, shift):
    """A device takes off the mean pull, which is some hundred times what is left."""
    q, k, v, grad = normal(4, *[(64, 2, 32)] * 4)
    sequence = rows_of_lengths([64], [9, 40])
    both_packed(place, [q * scale, k + shift / 10, v + shift], grad, sequence)


def test_packed_shares_of_one(place):
    k = torch.arange(9.0).view(9, 1, 1).expand(9, 1, 64) * 1e3
    q, v = torch.ones(9, 1, 64), torch.arange(9.0).view(9, 1, 1) + torch.zeros(9, 1, 64)
    for keys, last in ((k, 8.0), (k.flip(0), 0.0)):
        out = attention.packed_attention(*map(place.put, (q, keys.contiguous(), v)))
        assert (out == last).all()


def test_nothing_leaks_between_packed_sequences(place):
    sequence = place.put(rows_of_lengths([3, 5, 2], [1, 20]))
    clean, results = normal(3, *[(*sequence.shape, 20)] * 4), []
    for value in (None, math.nan, math.inf):
        *floats, grad = (place.put(x.clone()) for x in clean)
        if value is not None:
            for x in (*floats, grad):
                x[3:8, 0] = value  # the second sequence of the first row
                x[10:, 0] = value  # no sequence
        outputs = run(
            lambda x: attention.packed_attention(*x, sequence=sequence, heads=2), floats, grad
        )
        for x in outputs:
            x[3:8, 0] = 0.0
            assert not x[10:, 0].any()
        results.append(outputs)
    same_bits(results)


def test_wrong_steps_are_named():
    x = torch.zeros(4, 2, 6)
    sequence = torch.zeros(4, 2, dtype=torch.int64)
    assert attention.packed_attention(x[:0], x[:0], x[:0]).shape == (0, 2, 6)
    refuses(
        attention.packed_attention, {"q": x, "k": x, "v": x, "sequence": sequence},
        ("q", x.double()), ("k", x[:3]), ("v", x[0]), ("sequence", sequence.int()),
        ("sequence", sequence[:2]), ("own", sequence), ("heads", 4), ("heads", 0),
    )  # fmt: skip


# --- Sampled neighbours --------------------------------------------------------------------------

NAMES = ("query", "neighbours", "weight", "bias")
Given = dict[str, Tensor | None]


def problem(
    counts: list[int], heads: int, nodes: int, edges: int, time: int, span: float = 1.0
) -> Given:
    draw = torch.Generator().manual_seed(sum(counts) + 7 * heads + nodes)
    targets, entries, width = len(counts), sum(counts), nodes + edges + time

    def rows(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw)

    return {
        "offsets": torch.tensor([0, *counts]).cumsum(0),
        "times": span * (1 + torch.rand(targets, generator=draw).double()),
        "edge_times": span * torch.rand(entries, generator=draw).double(),
        "query": rows(heads, targets, width) / math.sqrt(width),
        "neighbours": rows(entries, nodes),
        "edges": rows(entries, edges) if edges else None,
        "weight": 10.0 ** -torch.linspace(0, 4, time).unsqueeze(1) if time else None,
        "bias": rows(time) if time else None,
    }


def plain(given: Given) -> Tensor:
    """One target after the other, in the precision of the arguments."""
    query, offsets, out = given["query"], given["offsets"].tolist(), []
    for target, (first, stop) in enumerate(itertools.pairwise(offsets)):
        z = [given["neighbours"][first:stop]]
        if given["edges"] is not None:
            z.append(given["edges"][first:stop])
        if given["weight"] is not None:
            age = (given["times"][target] - given["edge_times"][first:stop]).to(query)
            z.append(torch.cos(age.unsqueeze(1) * given["weight"].t() + given["bias"]))
        z = torch.cat(z, dim=1)
        out.append(torch.softmax(query[:, target] @ z.t(), dim=1) @ z)
    return torch.stack(out, dim=1)


def compare(given: Given, tolerance: float = 2e-6) -> list[Tensor]:
    """Compare results and derivatives; return those of the operator."""
    (grad,) = normal(1, given["query"].shape)
    leaves = [name for name in NAMES if given[name] is not None]
    exact = {
        name: x.double() if x is not None and x.dtype == torch.float32 else x
        for name, x in given.items()
    }
    ours, right = (
        run(
            lambda x, form=form, base=base: form({**base, **dict(zip(leaves, x, strict=True))}),
            [base[name] for name in leaves],
            grad.to(base["query"]),
        )
        for form, base in ((lambda all_: temporal_attention(**all_), given), (plain, exact))
    )
    close(ours, right, tolerance)
    return ours


@settings(deadline=None, max_examples=25)
@given(
    counts=st.lists(st.integers(0, 6), min_size=1, max_size=40), heads=st.integers(1, 5),
    nodes=st.integers(0, 40), edges=st.sampled_from((0, 1, 16, 35)),
    time=st.sampled_from((0, 1, 8, 16, 37)),
)  # fmt: skip
def test_neighbours_equal_a_loop(counts, heads, nodes, edges, time) -> None:
    if nodes + edges + time:
        compare(problem(counts, heads, nodes, edges, time))


@pytest.mark.parametrize("counts", [[0], [300, 0, 1]])
def test_targets_without_neighbours_and_with_many(counts) -> None:
    out, to_query, *_ = compare(problem(counts, 2, 20, 5, 7))
    nobody = torch.tensor(counts) == 0
    assert not out[:, nobody].any()
    assert not to_query[:, nobody].any()
    assert temporal_attention(**problem([], 2, 20, 5, 7)).shape == (2, 0, 32)


def test_the_first_target_that_a_thread_meets_may_have_no_neighbours() -> None:
    """Without an encoding of ages its place to work in has no floats at all, which is no lack."""
    with ThreadPoolExecutor(1) as of_its_own:
        of_its_own.submit(compare, problem([0, 0, 3], 2, 20, 5, 0)).result()


@pytest.mark.parametrize("span", [1e3, 1e8])
def test_long_ages_are_encoded_as_in_float64(span) -> None:
    given = problem([3, 0, 2] * 10, 2, 4, 3, 33, span)
    exact = {n: x.double() if n in (*NAMES, "edges") else x for n, x in given.items()}
    close([temporal_attention(**given)], [plain(exact)], 2e-6)


def test_wrong_neighbours_are_named() -> None:
    right = problem([3, 2, 4], 2, 6, 4, 5)
    apart = {**right, "query": right["query"].transpose(0, 1).contiguous().transpose(0, 1)}
    apart["neighbours"] = torch.cat([right["neighbours"]] * 2, dim=1)[:, :6]
    assert torch.equal(temporal_attention(**apart), temporal_attention(**right))
    refuses(
        temporal_attention, right, ("query", torch.zeros(2, 3, 16)),
        ("query", torch.zeros(2, 3, 15).double()), ("query|head", torch.zeros(0, 3, 15)),
        ("neighbours|edge_times", torch.zeros(8, 6)), ("edges", torch.zeros(8, 4)),
        ("edges", torch.zeros(9, 4).double()), ("weight", torch.zeros(4, 1)), ("bias", None),
        ("times", torch.zeros(3)), ("offsets", torch.tensor([0, 3, 5])),
        ("offsets", torch.tensor([0, 5, 3, 9])), ("offsets", torch.tensor([0, 3, 5, 8])),
    )  # fmt: skip
