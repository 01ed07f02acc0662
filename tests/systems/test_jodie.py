"""JODIE as a baseline: it learns what a user turns to next, also where graphs are not bipartite."""

from __future__ import annotations

import pytest
import torch
from interactions_tiny import tiny_data, tiny_task

from dgbench.datasets import EventStream, Origin
from dgbench.systems.base import get_system
from dgbench.systems.base.interactions import interaction_data
from dgbench.systems.jodie import JodieSystem


def test_as_a_plugin_that_brings_its_own_model():
    system = get_system("jodie")
    assert isinstance(system, JodieSystem)
    task = tiny_task(model="dygnn")
    trainer = system.open(task, data=tiny_data(task))
    assert trainer.workload.model == "jodie"
    assert not trainer.workload.propagation


@pytest.mark.parametrize("bipartite", [False, True])
def test_it_learns_who_returns_to_what(bipartite):
    draw = torch.Generator().manual_seed(1)
    src = torch.randint(0, 10, (400,), generator=draw)
    events = EventStream.build(
        src, 10 + (src * 3) % 10, torch.arange(400), num_nodes=20,
        num_src=10 if bipartite else None, origin=Origin("returning"),
    )  # fmt: skip
    task = tiny_task(hidden_dim=16, batch=20, lr=1e-2)
    trainer = JodieSystem().open(task, data=interaction_data(events, task))
    for _ in range(3):
        trainer.train_epoch()
    assert trainer.evaluate_range(320, 400).ap > 0.9


def test_static_codes_are_never_changed():
    task = tiny_task()
    trainer = JodieSystem().open(task, data=tiny_data(task))
    before = trainer.vertices.code.clone()
    trainer.train_epoch()
    assert torch.equal(trainer.vertices.code, before)
