"""DyGNN and JODIE as baselines: memory is planned, and JODIE learns who returns."""

from __future__ import annotations

import pytest
import torch
from interactions_tiny import tiny_data, tiny_task

from dgbench.datasets import EventStream, Origin
from dgbench.runtime.errors import UnknownKeyError, UnsupportedError
from dgbench.systems.base import Workload, get_system
from dgbench.systems.base.interaction_baseline import SAVED
from dgbench.systems.base.interactions import interaction_data
from dgbench.systems.dygnn import DygnnSystem
from dgbench.systems.jodie import JodieSystem


@pytest.mark.parametrize("system", [DygnnSystem(), JodieSystem()], ids=lambda s: s.name)
def test_what_a_step_keeps_is_within_the_plan(system):
    task = tiny_task(hidden_dim=32, batch=300)
    data = tiny_data(task, events=600, nodes=400)
    trainer = system.open(task, data=data, switches={"padding": True})
    groups = trainer.groups(0, data.train_end)
    trainer.train_group(groups[0])
    kept: dict[int, int] = {}

    def pack(x: torch.Tensor) -> torch.Tensor:
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    planned = trainer.planned_bytes
    assert system.open(task, data=data, memory_bytes=planned).planned_bytes == planned
    with pytest.raises(UnsupportedError):
        system.open(task, data=data, memory_bytes=planned - 1)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        trainer.run_step(groups[1][0], scale=1.0)
    rows = trainer.pad * 3
    vectors = sum(kept.values()) / (rows * 32 * 4)
    assert 1 < vectors <= SAVED[system.model]


def test_systems_as_plugins():
    system = get_system("dygnn")
    assert system.switches() == {"padding": True, "sequential": False, "propagation": True}
    assert system.unsupported(Workload(dataset="any", model="tgcn_model"), "cpu")
    with pytest.raises(UnknownKeyError, match="pading"):
        system.open(tiny_task(), switches={"pading": True})
    task = tiny_task(model="dygnn")
    padded, compact = (
        system.open(task, data=tiny_data(task), switches={"padding": on}).report()
        for on in (True, False)
    )
    assert padded["padded_share"] > compact["padded_share"] == 1
    assert padded["planned_bytes"] > compact["planned_bytes"]
    trainer = get_system("jodie").open(task, data=tiny_data(task))
    assert (trainer.workload.model, trainer.workload.propagation) == ("jodie", False)
    before = trainer.vertices.code.clone()
    trainer.train_epoch()
    assert torch.equal(trainer.vertices.code, before)


@pytest.mark.parametrize("bipartite", [False, True])
def test_jodie_learns_who_returns_to_what(bipartite):
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
