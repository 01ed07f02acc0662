"""Training on interactions: groups, states, classes and data, and checks of a trainer of today.

What they compute is compared with a second implementation in `test_interaction_witness`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from interactions_tiny import tiny_data, tiny_interactions, tiny_task
from stream_faults import around

from dgbench import datasets
from dgbench.datasets import EventStream, Origin
from dgbench.runtime.errors import InvalidInputError, UnsupportedError
from dgbench.systems.base import get_system, interaction_checks
from dgbench.systems.base.interaction_checks import EVENTS, check_now
from dgbench.systems.base.interaction_layout import edge_groups, interval_groups, t_batch_groups
from dgbench.systems.base.interaction_trainer import InteractionTrainer
from dgbench.systems.base.interactions import interaction_data, load_interactions


@pytest.mark.parametrize("times", [[0.0] * 38 + [1.0, 2.0], [0.0, 1.0]])
def test_a_stream_with_an_empty_part_is_not_supported(times, monkeypatch):
    """Begun by a bulk load, or too short."""
    ends = torch.arange(len(times))
    events = EventStream.build(ends % 3, 3 + ends % 2, times, num_nodes=5, origin=Origin("tiny"))
    monkeypatch.setattr(datasets, "open_events", lambda *_: events)
    with pytest.raises(UnsupportedError):
        load_interactions(tiny_task(dataset="wikipedia"))


def test_layouts_cover_every_event_once_and_in_time():
    task = tiny_task()
    data = tiny_data(task, events=57)
    t = data.events.t
    for lay_out in (t_batch_groups, edge_groups, interval_groups):
        for strict in (False, True):
            groups = lay_out(data, 3, 57, 10, strict=strict)
            sets = [torch.cat(group).sort().values for group in groups]
            assert torch.equal(torch.cat(sets), torch.arange(3, 57))
            if strict:
                step_of = {}
                for number, part in enumerate(part for group in groups for part in group):
                    for time in t[part].tolist():
                        assert step_of.setdefault(time, number) == number
                assert all(part.numel() >= 10 for part in sets[:-1])
                assert all((t[part] < t[part[-1]]).sum() < 10 for part in sets)
            else:
                assert [part.numel() for part in sets] == [10, 10, 10, 10, 10, 4]
        assert lay_out(data, 5, 5, 10) == []


def test_an_event_is_scored_before_it_changes_anything():
    task = tiny_task(intervals=4)
    data = tiny_data(task)
    trainer = InteractionTrainer(task, data, order="intervals", dtype=torch.float64)
    trainer.train_epoch()
    part = torch.arange(data.train_end, data.train_end + 4)
    fork = trainer.vertices.clone(), trainer.pending.clone()
    alone = [trainer.run_step(part[:2], scale=None).positives]
    trainer.vertices.copy_(fork[0])
    trainer.pending.copy_(fork[1])
    both = trainer.run_step(part, scale=None).positives
    # What comes with or after an event is not seen; products of more rows round differently.
    torch.testing.assert_close(alone[0], both[:2], rtol=0, atol=1e-12)


def test_scoring_goes_back_unless_it_is_to_remember():
    task = tiny_task()
    data = tiny_data(task)
    trainer = InteractionTrainer(task, data)
    trainer.train_epoch()
    trainer.gradients(1)
    assert trainer.evaluate(1).shape[1] == task.hidden_dim
    before = trainer.vertices.clone()
    first = trainer.evaluate_range(data.train_end, 60)
    assert torch.equal(before.embedding, trainer.vertices.embedding)
    assert trainer.evaluate_range(data.train_end, 60) == first
    trainer.evaluate_range(data.train_end, 60, remember=True)
    assert not torch.equal(before.embedding, trainer.vertices.embedding)
    assert trainer.evaluate_range(60, 60).n == 0


def test_classes_are_never_taught_of_vertices_held_out():
    task = tiny_task(task="classify", intervals=4)
    data = tiny_data(task, nodes=60)
    assert bool(data.held_out.any())
    trainer = InteractionTrainer(task, data, order="intervals", dtype=torch.float64)
    trainer.reset_state()
    group = trainer.groups(0, data.train_end)[0]
    hit = [v for v in data.held_out.nonzero().flatten().tolist() if data.classes[v] >= 0]
    want = trainer.gradients(0)
    for v in hit:
        data.classes[v] = (data.classes[v] + 1) % 4
    other = InteractionTrainer(task, data, order="intervals", dtype=torch.float64)
    for name, gradient in other.gradients(0).items():
        assert torch.equal(gradient, want[name])
    assert group


def test_accuracy_counts_every_end_that_is_held_out():
    task = tiny_task(task="classify")
    data = tiny_data(task, nodes=60)
    asked = data.held_out & (data.classes >= 0)
    ends = torch.cat([data.events.src[data.train_end :], data.events.dst[data.train_end :]])
    for order in ("t-batches", "intervals"):
        trainer = InteractionTrainer(task, data, order=order)
        found = trainer.evaluate_range(data.train_end, 60)
        assert math.isnan(found.ap)
        count = int(asked[ends].sum())
        assert count > 0
        assert found.accuracy * count == pytest.approx(round(found.accuracy * count))


def test_splits_negatives_and_units():
    task = tiny_task()
    data = tiny_data(task, events=100, bipartite=True)
    assert 75 <= data.train_end <= 80 <= data.validate_end <= 90
    known = data.events.select(0, data.train_end)
    assert data.unit == pytest.approx(
        (known.span[1] - known.span[0])
        * torch.unique(torch.cat([known.src, known.dst])).numel() / (2 * data.train_end)
    )  # fmt: skip
    assert bool((data.negative >= data.events.num_src).all())
    assert torch.equal(
        data.negative[:50], tiny_data(task, events=100, bipartite=True).negative[:50]
    )


@pytest.mark.parametrize("bipartite", [False, True])
def test_negatives_of_a_prefix_are_destinations_that_occur_in_it(bipartite):
    whole = tiny_interactions(100, bipartite=bipartite)
    few = replace(whole, dst=torch.where(torch.arange(100) < 40, 6, whole.dst))
    assert set(interaction_data(few, tiny_task(events=40)).negative.tolist()) == {6}
    assert len(set(interaction_data(few, tiny_task(events=100)).negative.tolist())) > 3


def test_bad_input_is_named():
    for fields in (
        {"batch": 0}, {"share": 0.0}, {"lr": -1.0}, {"intervals": 0}, {"hidden_dim": True}
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match=next(iter(fields))):
            tiny_task(**fields).check()
    task = tiny_task()
    trainer = InteractionTrainer(task, tiny_data(task))
    with pytest.raises(InvalidInputError, match="events"):
        trainer.train(5, 61)
    with pytest.raises(InvalidInputError, match="frame"):
        trainer.step(99)


# --- checks where many events have one time, which none of them may change ------------------------


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
    for first in range(0, trainer.data.train_end - EVENTS):
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
