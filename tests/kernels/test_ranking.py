"""Ranks of true columns against a plain ranker."""

from __future__ import annotations

import math

import pytest
import torch
from device_fixtures import ONE_PLACE
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_checks import refuses

from dgbench.kernels_cuda.ranking import Ranks, op, rank_columns
from dgbench.runtime.errors import InvalidInputError

SERVED = (op,)


def plain_ranks(scores, column, skipped) -> list[tuple[int, int, float]]:
    """(optimistic, pessimistic, mean) rank of each row's true column, by sorting."""
    found = []
    for row, true, left_out in zip(scores, column, skipped, strict=True):
        others = [s for c, s in enumerate(row) if c != true and c not in left_out]
        order = sorted([*others, row[true]], reverse=True)
        places = [place for place, s in enumerate(order, 1) if s == row[true]]
        found.append((places[0], places[-1], sum(places) / len(places)))
    return found


def lists(skipped) -> tuple[torch.Tensor, torch.Tensor]:
    lengths = torch.tensor([0, *map(len, skipped)])
    flat = [c for one in skipped for c in sorted(one)]
    return lengths.cumsum(0), torch.tensor(flat, dtype=torch.int64)


def triples(ranks: Ranks) -> list[tuple[float, float, float]]:
    columns = (ranks.optimistic, ranks.pessimistic, ranks.mean)
    return list(zip(*(one.tolist() for one in columns), strict=True))


@settings(deadline=None, max_examples=25, suppress_health_check=ONE_PLACE)
@given(
    data=st.data(), rows=st.integers(0, 6), double=st.booleans(),
    width=st.integers(1, 9) | st.sampled_from([31, 32, 33, 100]),
)  # fmt: skip
def test_ranks_are_those_of_a_sort(place, data, rows, width, double):
    # Few values, so that most rows have ties.
    line = st.lists(st.integers(-2, 2), min_size=width, max_size=width)
    scores = [data.draw(line) for _ in range(rows)]
    column = [data.draw(st.integers(0, width - 1)) for _ in range(rows)]
    skipped = [data.draw(st.sets(st.integers(0, width - 1))) - {true} for true in column]
    given_scores = torch.tensor(scores, dtype=torch.float64 if double else torch.float32)
    asked = given_scores.view(rows, width), torch.tensor(column, dtype=torch.int64)
    found = rank_columns(*map(place.put, (*asked, *lists(skipped))))
    assert triples(found) == plain_ranks(scores, column, skipped)


def test_saturated_scores_are_ties_and_no_hits():
    # TGB #62: a sigmoid before the evaluator rounds large logits to the same float.
    logits = torch.tensor([[20.0, 30.0, 40.0, -5.0]])
    assert rank_columns(logits, torch.tensor([0])).mean.tolist() == [3.0]
    assert rank_columns(logits.sigmoid(), torch.tensor([0])).mean.tolist() == [2.0]
    assert rank_columns(logits.sigmoid(), torch.tensor([0])).pessimistic.tolist() == [3.0]


def test_bad_input_is_refused():
    one, pair = torch.tensor([0]), torch.zeros(1, 2)
    refuses(
        rank_columns, {"scores": pair, "column": one},
        *(("scores", torch.tensor([[0.0, value]])) for value in (math.nan, math.inf)),
        ("scores", pair.long()), ("scores", pair[0]), ("scores|column", pair[:, :0]),
        ("scores|elements", torch.zeros(2, 2)), ("column", one + 2), ("column", one - 1),
        ("skip", one + 1),
    )  # fmt: skip
    for offsets, skip in (
        ([0, 1], [0]), ([0, 2], [2, 2]), ([0, 2], [2, 1]), ([0, 1], [3]), ([0, 2], [1]),
        ([1, 1], [1]),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match="skip"):
            rank_columns(torch.zeros(1, 3), one, torch.tensor(offsets), torch.tensor(skip))
