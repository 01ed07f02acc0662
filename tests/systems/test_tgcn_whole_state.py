"""Edges that give no loss still change states: against a network that goes through all of them."""

from __future__ import annotations

import pytest
import torch
from tgcn_tiny import losses, opened, task

from dgbench.systems.tgcn.program import Program
from dgbench.systems.tgcn.whole_state import WholeState

STILL = 1e-300
"""A learning rate by which no parameter moves."""


class Cut(Program):
    """All edges of a range, cut where it is told."""

    def __init__(self, bounds: list[int]) -> None:
        super().__init__()
        self.bounds = bounds

    def sampling(self, edges):
        return torch.arange(self.bounds[0], self.bounds[-1])

    def cuts(self, edges):
        return torch.tensor(self.bounds) - self.bounds[0]


def columns(trainer):
    return trainer.vertices.columns() | trainer.pending.columns()


@pytest.mark.parametrize("kind", ["link", "classify"])
@pytest.mark.parametrize("aggregate", ["mean", "last"])
def test_states_are_those_of_all_edges(kind, aggregate):
    work = task(lr=STILL, task=kind, aggregate=aggregate, intervals=7)
    whole = opened(work, program=WholeState())
    whole.train_epoch()
    loads = whole.loads(0, whole.data.train_end)
    bounds = [int(one.events[0]) for one in loads] + [int(loads[-1].events[-1]) + 1]
    every = opened(work, program=Cut(bounds))
    every.train_epoch()
    for name, column in columns(whole).items():
        assert torch.allclose(column, columns(every)[name], atol=1e-12), name
    own = opened(work)
    own.train_epoch()
    assert not torch.equal(own.vertices.embedding, whole.vertices.embedding)


@pytest.mark.parametrize(
    "options", [{"devices": 3}, {"devices": 2, "parts": 4, "resident": False}, {"resident": False}]
)
def test_devices_and_placement_change_nothing(options):
    one, many = opened(program=WholeState()), opened(program=WholeState(), **options)
    assert losses(one, 2) == pytest.approx(losses(many, 2), abs=1e-9)


def test_the_first_loss_is_that_of_the_own_program():
    """Training data are the same; only the basis of states differs."""
    one, two = opened(program=WholeState()), opened()
    first = [trainer.loads(0, trainer.data.train_end)[0] for trainer in (one, two)]
    assert torch.equal(one.kept[0], two.kept[0])
    found = [float(t.program.train(load, 1)) for t, load in zip((one, two), first, strict=True)]
    assert found[0] == pytest.approx(found[1], abs=1e-12)
