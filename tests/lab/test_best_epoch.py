"""Parameters of the best epoch, and the end of a training."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from dgbench.lab.quality_study import BestEpoch, QualitySize


@given(
    st.lists(st.floats(-1, 1) | st.just(math.nan), min_size=1, max_size=12),
    st.integers(1, 4),
    st.booleans(),
)
def test_the_first_of_the_best_epochs_is_kept_and_patience_ends_a_training(scores, patience, less):
    model = torch.nn.Linear(1, 1, bias=False)
    best = BestEpoch(model, patience, less=less)
    sign, record, since, kept = -1 if less else 1, -math.inf, 0, None
    for epoch, score in enumerate(scores):
        with torch.no_grad():
            model.weight.fill_(epoch)
        best.add(score)
        since += 1
        if sign * score > record:
            record, since, kept = sign * score, 0, epoch
        assert best.over == (since >= patience)
    best.restore()
    assert model.weight.item() == (len(scores) - 1 if kept is None else kept)


def test_trainings_follow_each_other_by_model_and_the_largest_come_last():
    size = QualitySize(
        ("a", "b", "c", "d"), {"m": 1, "n": 1}, only={"n": ("a", "c")}, late=("c", "b")
    )
    assert ["".join(pair) for pair in size.trainings] == ["ma", "md", "na", "mc", "nc", "mb"]
    assert QualitySize(("a",)).trainings == []
