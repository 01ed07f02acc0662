"""Ranks of true columns against a plain ranker, with the rank bugs of TGB's evaluator as cases."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.kernels_cuda.ranking import Ranks, rank_columns
from dgbench.runtime.errors import InvalidInputError


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


@settings(deadline=None, max_examples=60)
@given(data=st.data(), rows=st.integers(0, 6), width=st.integers(1, 9), double=st.booleans())
def test_ranks_are_those_of_a_sort(data, rows, width, double):
    # Few values, so that most rows have ties.
    line = st.lists(st.integers(-2, 2), min_size=width, max_size=width)
    scores = [data.draw(line) for _ in range(rows)]
    column = [data.draw(st.integers(0, width - 1)) for _ in range(rows)]
    skipped = [data.draw(st.sets(st.integers(0, width - 1))) - {true} for true in column]
    given_scores = torch.tensor(scores, dtype=torch.float64 if double else torch.float32)
    found = rank_columns(
        given_scores.view(rows, width), torch.tensor(column, dtype=torch.int64), *lists(skipped)
    )
    assert triples(found) == plain_ranks(scores, column, skipped)


def test_many_rows_on_several_threads():
    draw = torch.Generator().manual_seed(1)
    scores = torch.randint(0, 50, (900, 200), generator=draw).float()
    column = torch.randint(0, 200, (900,), generator=draw)
    found = rank_columns(scores, column)
    true = scores.gather(1, column[:, None])
    assert torch.equal(found.above, (scores > true).sum(1))
    assert torch.equal(found.equal, (scores == true).sum(1) - 1)


def test_rows_are_ranked_one_by_one():
    # TGB #55, #59: without an axis, numpy's sum gave every row of a batch the rank of all of them.
    scores = torch.tensor([[0.9, 0.1, 0.2], [0.1, 0.9, 0.8]])
    ranks = rank_columns(scores, torch.tensor([0, 0]))
    assert ranks.mean.tolist() == [1.0, 3.0]


def test_all_scores_equal_is_the_mean_rank():
    # TGB #61 and #81: a constant scorer is first of 101 for an optimist and last for a pessimist.
    ranks = rank_columns(torch.zeros(1, 101), torch.tensor([7]))
    assert triples(ranks) == [(1.0, 101.0, 51.0)]


def test_saturated_scores_are_ties_and_no_hits():
    # TGB #62: a sigmoid before the evaluator rounds large logits to the same float.
    logits = torch.tensor([[20.0, 30.0, 40.0, -5.0]])
    assert rank_columns(logits, torch.tensor([0])).mean.tolist() == [3.0]
    assert rank_columns(logits.sigmoid(), torch.tensor([0])).mean.tolist() == [2.0]
    assert rank_columns(logits.sigmoid(), torch.tensor([0])).pessimistic.tolist() == [3.0]


@pytest.mark.parametrize(
    ("scores", "column", "skip", "match"),
    [
        (torch.tensor([[0.0, float("nan")]]), [0], None, "not finite"),
        (torch.tensor([[0.0, float("inf")]]), [0], None, "not finite"),
        (torch.zeros(1, 2, dtype=torch.int64), [0], None, "float32"),
        (torch.zeros(2), [0], None, "float32"),
        (torch.zeros(1, 2), [2], None, "column"),
        (torch.zeros(1, 2), [-1], None, "column"),
        (torch.zeros(1, 0), [0], None, "column"),
        (torch.zeros(2, 2), [0], None, "elements"),
        (torch.zeros(1, 3), [0], ([0, 1], [0]), "true column"),
        (torch.zeros(1, 3), [0], ([0, 2], [2, 2]), "ascending"),
        (torch.zeros(1, 3), [0], ([0, 2], [2, 1]), "ascending"),
        (torch.zeros(1, 3), [0], ([0, 1], [3]), "skip"),
        (torch.zeros(1, 3), [0], ([0, 2], [1]), "rise"),
        (torch.zeros(1, 3), [0], ([1, 1], [1]), "rise"),
    ],
)
def test_bad_input_is_refused(scores, column, skip, match):
    lists_given = () if skip is None else tuple(map(torch.tensor, skip))
    with pytest.raises(InvalidInputError, match=match):
        rank_columns(scores, torch.tensor(column), *lists_given)


def test_one_list_alone_is_refused():
    with pytest.raises(InvalidInputError, match="together"):
        rank_columns(torch.zeros(1, 2), torch.tensor([0]), skip=torch.tensor([1]))


def test_tgb_evaluator_agrees():
    evaluate = pytest.importorskip("tgb.linkproppred.evaluate", reason="py-tgb is not installed")
    draw = torch.Generator().manual_seed(3)
    scores = torch.randint(0, 20, (50, 30), generator=draw).float()
    ranks = rank_columns(scores, torch.zeros(50, dtype=torch.int64)).mean
    judge = evaluate.Evaluator(name="tgbl-wiki")
    theirs = [
        judge.eval(
            {"y_pred_pos": row[:1].numpy(), "y_pred_neg": row[1:].numpy(), "eval_metric": ["mrr"]}
        )["mrr"]
        for row in scores
    ]
    assert float(ranks.reciprocal().mean()) == pytest.approx(sum(theirs) / len(theirs), abs=1e-6)
