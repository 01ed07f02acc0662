"""Training on interactions, against a reference that goes edge by edge and vertex by vertex."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from interactions_tiny import tiny_data, tiny_interactions, tiny_task

from dgbench import datasets
from dgbench.datasets import EventStream, Origin
from dgbench.runtime.errors import InvalidInputError, UnsupportedError
from dgbench.systems.base.interaction_layout import edge_groups, interval_groups, t_batch_groups
from dgbench.systems.base.interaction_trainer import InteractionTrainer
from dgbench.systems.base.interactions import interaction_data, load_interactions
from dgbench.systems.base.plain_interactions import PlainInteractions
from dgbench.systems.base.scores import average_precision

EXACT = 1e-9


def compare(task, data, order: str, steps) -> None:
    """Train one epoch on both paths; losses, parameters, embeddings and scores must agree."""
    ours = InteractionTrainer(task, data, order=order, dtype=torch.float64)
    other = InteractionTrainer(task, data, order=order, dtype=torch.float64)
    plain = PlainInteractions(task, data, other.model, ours.vertices.embedding.clone())
    optimiser = torch.optim.Adam(other.model.parameters(), lr=task.lr)
    for group in ours.groups(0, data.train_end):
        size = sum(part.numel() for part in group)
        for leaf in other.model.parameters():
            leaf.grad = torch.zeros_like(leaf)
        want = sum(plain.run(part, scale=1 / size)[0] for part in steps(group)) / size
        optimiser.step()
        assert ours.train_group(group) == pytest.approx(want, abs=EXACT)
    for a, b in zip(ours.model.parameters(), other.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=EXACT)
    for v, vertex in enumerate(plain.vertices):
        torch.testing.assert_close(ours.vertices.embedding[v], vertex.embedding, rtol=0, atol=EXACT)
        torch.testing.assert_close(ours.vertices.cg[v], vertex.c["g"], rtol=0, atol=EXACT)
    first, last = data.train_end, len(data.events)
    found = ours.evaluate_range(first, last)
    parts = [p for group in ours.groups(first, last) for p in steps(group)]
    loss, scores = zip(*(plain.run(part) for part in parts), strict=True)
    both = torch.cat(scores)
    assert found.loss == pytest.approx(sum(loss) / (last - first), abs=EXACT)
    label = torch.tensor([1, 0]).expand_as(both)
    assert found.ap == pytest.approx(average_precision(both.flatten(), label.flatten()), abs=1e-6)


@pytest.mark.parametrize("times", [[0.0] * 38 + [1.0, 2.0], [0.0, 1.0]])
def test_a_stream_with_an_empty_part_is_not_supported(times, monkeypatch):
    """Begun by a bulk load, or too short."""
    ends = torch.arange(len(times))
    events = EventStream.build(ends % 3, 3 + ends % 2, times, num_nodes=5, origin=Origin("tiny"))
    monkeypatch.setattr(datasets, "open_events", lambda *_: events)
    with pytest.raises(UnsupportedError):
        load_interactions(tiny_task(dataset="wikipedia"))


@settings(deadline=None, max_examples=4)
@given(
    seed=st.integers(0, 99), bipartite=st.booleans(),
    decay=st.sampled_from(["log", "exp", "inverse"]),
    activation=st.sampled_from(["tanh", "sigmoid"]), strict=st.booleans(), many=st.booleans(),
)  # fmt: skip
def test_t_batches_are_training_edge_by_edge(seed, bipartite, decay, activation, strict, many):
    """Or, strictly, time value by time value, one of which fills several batches."""
    task = tiny_task(seed=seed, decay=decay, activation=activation, strict_time=strict, batch=4)
    data = tiny_data(task, events=25, bipartite=bipartite, seed=seed)
    if many:
        data.events.t[6:17] = data.events.t[16].clone()

    def steps(group):
        events = torch.cat(group).sort().values
        t = data.events.t[events]
        return events.split(t.unique_consecutive(return_counts=True)[1].tolist() if strict else 1)

    compare(task, data, "t-batches", steps)


@settings(deadline=None, max_examples=4)
@given(
    seed=st.integers(0, 99), aggregate=st.sampled_from(["mean", "last"]), width=st.integers(2, 9)
)
def test_intervals_are_those_of_the_reference(seed, aggregate, width):
    task = tiny_task(seed=seed, aggregate=aggregate, intervals=width)
    data = tiny_data(task, events=25, seed=seed)
    compare(task, data, "intervals", lambda group: group)


@pytest.mark.parametrize("strict", [True, False])
def test_edge_by_edge_is_in_t_batches(strict):
    task = tiny_task(strict_time=strict)
    data = tiny_data(task)
    found = [
        InteractionTrainer(task, data, order=order, dtype=torch.float64)
        for order in ("events", "t-batches")
    ]
    losses = [trainer.train_epoch() for trainer in found]
    assert losses[0] == pytest.approx(losses[1], abs=EXACT)


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
    before = trainer.vertices.clone()
    first = trainer.evaluate_range(data.train_end, 60)
    assert torch.equal(before.embedding, trainer.vertices.embedding)
    assert trainer.evaluate_range(data.train_end, 60) == first
    trainer.evaluate_range(data.train_end, 60, remember=True)
    assert not torch.equal(before.embedding, trainer.vertices.embedding)
    assert trainer.evaluate_range(60, 60).n == 0


def test_epochs_begin_anew_and_learning_lowers_the_loss():
    task = tiny_task(intervals=6, lr=2e-2)
    trainer = InteractionTrainer(task, tiny_data(task), order="intervals")
    losses = [trainer.train_epoch() for _ in range(12)]
    assert losses[-1] < losses[0] - 0.1


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


def test_gradients_and_outputs_leave_the_trainer_as_it_was():
    task = tiny_task()
    data = tiny_data(task)
    one, two = (InteractionTrainer(task, data, dtype=torch.float64) for _ in range(2))
    one.step(0)
    two.step(0)
    one.gradients(1)
    assert one.evaluate(1).shape[1] == task.hidden_dim
    assert one.step(1) == two.step(1)


@pytest.mark.parametrize(
    "fields", [{"batch": 0}, {"share": 0.0}, {"lr": -1.0}, {"intervals": 0}, {"hidden_dim": True}]
)
def test_fields_out_of_range(fields):
    with pytest.raises(InvalidInputError, match=next(iter(fields))):
        tiny_task(**fields).check()


def test_ranges_and_frames_out_of_range():
    task = tiny_task()
    trainer = InteractionTrainer(task, tiny_data(task))
    with pytest.raises(InvalidInputError, match=r"\[5, 61\)"):
        trainer.train(5, 61)
    with pytest.raises(InvalidInputError, match="frame is 99"):
        trainer.step(99)
