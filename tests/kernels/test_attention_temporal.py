"""Attention to sampled neighbours: a loop over targets in float64 says what is right."""

from __future__ import annotations

import itertools
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dgbench.kernels_cuda.attention import temporal_attention
from dgbench.runtime.errors import InvalidInputError

NAMES = ("query", "neighbours", "weight", "bias")


def problem(
    counts: list[int], heads: int, nodes: int, edges: int, time: int, span: float = 1.0
) -> dict[str, Tensor | None]:
    draw = torch.Generator().manual_seed(sum(counts) + 7 * heads + nodes)
    targets, entries = len(counts), sum(counts)

    def rows(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw)

    return {
        "offsets": torch.tensor([0, *counts]).cumsum(0),
        "times": span * (1 + torch.rand(targets, generator=draw).double()),
        "edge_times": span * torch.rand(entries, generator=draw).double(),
        "query": rows(heads, targets, nodes + edges + time) / math.sqrt(nodes + edges + time),
        "neighbours": rows(entries, nodes),
        "edges": rows(entries, edges) if edges else None,
        "weight": 10.0 ** -torch.linspace(0, 4, time).unsqueeze(1) if time else None,
        "bias": rows(time) if time else None,
    }


def plain(given: dict[str, Tensor | None]) -> Tensor:
    """One target after the other, in the precision of the arguments."""
    query, neighbours, offsets = given["query"], given["neighbours"], given["offsets"].tolist()
    out = []
    for target, (first, stop) in enumerate(itertools.pairwise(offsets)):
        z = [neighbours[first:stop]]
        if given["edges"] is not None:
            z.append(given["edges"][first:stop])
        if given["weight"] is not None:
            age = (given["times"][target] - given["edge_times"][first:stop]).to(query)
            z.append(torch.cos(age.unsqueeze(1) * given["weight"].t() + given["bias"]))
        z = torch.cat(z, dim=1)
        out.append(torch.softmax(query[:, target] @ z.t(), dim=1) @ z)
    return torch.stack(out, dim=1)


def derived(run, given: dict[str, Tensor | None], grad: Tensor) -> list[Tensor]:
    """The result, and its derivatives along `grad`."""
    given = dict(given)
    leaves = [name for name in NAMES if given[name] is not None]
    for name in leaves:
        given[name] = given[name].detach().clone().requires_grad_()
    out = run(given)
    out.backward(grad.to(out))
    return [out.detach(), *(given[name].grad for name in leaves)]


def compiled(given: dict[str, Tensor | None]) -> Tensor:
    return temporal_attention(**given)


def in_float64(given: dict[str, Tensor | None]) -> dict[str, Tensor | None]:
    return {
        name: array.double() if array is not None and array.dtype == torch.float32 else array
        for name, array in given.items()
    }


def compare(given: dict[str, Tensor | None], tolerance: float) -> None:
    grad = torch.randn(given["query"].shape, generator=torch.Generator().manual_seed(1))
    found = derived(compiled, given, grad)
    expected = derived(plain, in_float64(given), grad)
    for mine, right in zip(found, expected, strict=True):
        scale = max(1.0, float(right.abs().max())) if right.numel() else 1.0
        assert torch.allclose(mine.double(), right, rtol=0, atol=tolerance * scale)


@settings(deadline=None, max_examples=60)
@given(
    counts=st.lists(st.integers(0, 6), min_size=1, max_size=40),
    heads=st.integers(1, 5),
    nodes=st.integers(0, 40),
    edges=st.sampled_from((0, 1, 16, 35)),
    time=st.sampled_from((0, 1, 8, 16, 37)),
)
def test_result_and_derivatives_are_those_of_a_loop(counts, heads, nodes, edges, time) -> None:
    if nodes + edges + time:
        compare(problem(counts, heads, nodes, edges, time), 2e-6)


@pytest.mark.parametrize("counts", [[0], [0, 0, 0], [1], [300, 0, 1]])
def test_few_targets_and_many_neighbours(counts) -> None:
    compare(problem(counts, 2, 20, 5, 7), 2e-6)


def test_the_first_target_that_a_thread_meets_may_have_no_neighbours() -> None:
    """Without an encoding of ages its place to work in has no floats at all, which is no lack."""
    with ThreadPoolExecutor(1) as of_its_own:
        of_its_own.submit(compare, problem([0, 0, 3], 2, 20, 5, 0), 2e-6).result()


def test_no_targets() -> None:
    given = problem([], 2, 20, 5, 7)
    out, *grads = derived(compiled, given, torch.zeros(2, 0, 32))
    assert out.shape == (2, 0, 32)
    assert not any(bool(grad.any()) for grad in grads)


def test_a_target_without_neighbours_has_zeros_and_passes_nothing_back() -> None:
    given = problem([2, 0, 3], 2, 4, 3, 5)
    out, to_query, *_ = derived(compiled, given, torch.ones(given["query"].shape))
    assert not out[:, 1].any()
    assert not to_query[:, 1].any()


@pytest.mark.parametrize("span", [1e3, 1e6, 1e8])
def test_long_ages_are_encoded_as_in_float64(span) -> None:
    given = problem([3, 0, 2] * 10, 2, 4, 3, 33, span)
    assert torch.allclose(compiled(given).double(), plain(in_float64(given)), rtol=0, atol=2e-6)


def test_equal_neighbours_share_equally() -> None:
    given = problem([4], 1, 3, 2, 2)
    for name in ("neighbours", "edges"):
        given[name][:] = given[name][0]
    given["edge_times"][:] = given["edge_times"][0]
    alone = {**given, "offsets": torch.tensor([0, 1])}
    alone |= {name: given[name][:1] for name in ("neighbours", "edges", "edge_times")}
    assert torch.allclose(compiled(given), compiled(alone), atol=1e-6)


def test_the_number_of_threads_does_not_show() -> None:
    given = problem([3, 0, 9, 1, 5] * 80, 3, 18, 21, 19)
    grad = torch.randn(given["query"].shape)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append(derived(compiled, given, grad))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


def test_layouts_that_are_not_dense_are_taken() -> None:
    given = problem([3, 2, 4], 2, 6, 4, 5)
    apart = dict(given)
    apart["query"] = given["query"].transpose(0, 1).contiguous().transpose(0, 1)
    apart["neighbours"] = torch.cat([given["neighbours"]] * 2, dim=1)[:, :6]
    assert torch.equal(compiled(apart), compiled(given))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"query": torch.zeros(2, 3, 16)}, "query has shape"),
        ({"query": torch.zeros(2, 3, 15).double()}, "query is torch.float64"),
        ({"query": torch.zeros(0, 3, 15)}, "at least one head"),
        ({"neighbours": torch.zeros(8, 6)}, "edge_times has 9 elements"),
        ({"edges": torch.zeros(8, 4)}, "edges has 8 rows"),
        ({"edges": torch.zeros(9, 4).double()}, "edges is torch.float64"),
        ({"weight": torch.zeros(4, 1)}, "weight has shape"),
        ({"bias": None}, "belong together"),
        ({"times": torch.zeros(3)}, "times is torch.float32"),
        ({"offsets": torch.tensor([0, 3, 5])}, "offsets has 3 elements"),
        ({"offsets": torch.tensor([0, 5, 3, 9])}, "offsets must start at 0, never fall"),
        ({"offsets": torch.tensor([0, 3, 5, 8])}, "end at 9"),
    ],
)
def test_refusals_name_what_was_found(change, words) -> None:
    given = problem([3, 2, 4], 2, 6, 4, 5)
    with pytest.raises(InvalidInputError, match=words):
        compiled({**given, **change})
