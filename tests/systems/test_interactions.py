"""Training on interactions: what is refused, and what checks say of a trainer of today.

Groups, states, classes, scores and data are compared with a second implementation in
`test_interaction_witness`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from interactions_tiny import tiny_data, tiny_interactions, tiny_task
from stream_faults import around

from dgbench import datasets
from dgbench.datasets import EventStream, Origin
from dgbench.runtime.errors import InvalidInputError, UnsupportedError
from dgbench.systems.base import get_system, interaction_checks
from dgbench.systems.base.interaction_baseline import SAVED
from dgbench.systems.base.interaction_checks import EVENTS, check_now
from dgbench.systems.base.interaction_trainer import InteractionTrainer
from dgbench.systems.base.interactions import interaction_data, load_interactions
from dgbench.systems.dygnn import DygnnSystem
from dgbench.systems.jodie import JodieSystem


@pytest.mark.parametrize("times", [[0.0] * 38 + [1.0, 2.0], [0.0, 1.0]])
def test_a_stream_with_an_empty_part_is_not_supported(times, monkeypatch):
    """Begun by a bulk load, or too short."""
    ends = torch.arange(len(times))
    events = EventStream.build(ends % 3, 3 + ends % 2, times, num_nodes=5, origin=Origin("tiny"))
    monkeypatch.setattr(datasets, "open_events", lambda *_: events)
    with pytest.raises(UnsupportedError):
        load_interactions(tiny_task(dataset="wikipedia"))


def test_bad_input_is_named():
    for name, value in (
        ("batch", 0), ("share", 0.0), ("lr", -1.0), ("intervals", 0), ("hidden_dim", True)
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match=name):
            tiny_task(**{name: value}).check()
    trainer = InteractionTrainer(tiny_task(), tiny_data(tiny_task()))
    for name, call in (
        ("events", lambda: trainer.train(5, 61)),
        ("frame", lambda: trainer.step(99)),
    ):
        with pytest.raises(InvalidInputError, match=name):
            call()


@pytest.fixture(params=[1, 3, 60], ids=lambda each: f"{each} of a time")
def tied(request):
    stream = tiny_interactions()
    places = torch.arange(len(stream)).div(request.param, rounding_mode="floor")
    return replace(stream, t=100.0 + places.double())


def trained(events, dtype=torch.float64, **fields):
    task = tiny_task(model="dygnn", intervals=4, propagation=False, **fields)
    data = interaction_data(events, task)
    trainer = get_system("tgcn").open(task, data=data, dtype=dtype, scoring="t-batches")
    trainer.prepare()
    trainer.reset_state()
    trainer.train(0, 30)
    return trainer


@pytest.mark.parametrize("strict", [True, False])
def test_a_sound_trainer_passes_at_every_place(tied, strict, monkeypatch):
    trainer = trained(tied, strict_time=strict)
    draw = interaction_checks.random.SystemRandom
    for first in range(0, trainer.data.train_end - EVENTS, 7):
        monkeypatch.setattr(draw, "randint", lambda *_, at=first: at)
        assert all(check.passed for check in check_now(trainer, "here", last=False))


@pytest.mark.parametrize(
    ("dtype", "share", "passes"),
    [(torch.float64, 0.5, False), (torch.float32, 0, True), (torch.float32, 1e-2, False)],
)
def test_a_state_that_forgets_fails_and_one_that_rounds_does_not(
    tied, dtype, share, passes, monkeypatch
):
    """Where terms cancel the usual tolerance is too narrow; here it is for every float32 result."""
    trainer = trained(tied, dtype)
    if dtype == torch.float32:
        monkeypatch.setattr(interaction_checks, "ROUNDING", 1e-12)
    around(
        type(trainer.model), "refresh",
        lambda was, self, state, waiting: was(
            self, state, replace(waiting, sum_s=(1 - share) * waiting.sum_s)
        ),
    )(monkeypatch)  # fmt: skip
    checks = {check.of: check for check in check_now(trainer, "here", last=False)}
    if dtype == torch.float64:
        assert not all(check.passed for check in checks.values())
        return
    assert [checks[of].passed for of in ("outputs", "gradients")] == [passes] * 2
    assert all(checks[of].tolerance <= 1e-3 for of in ("outputs", "gradients"))


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
