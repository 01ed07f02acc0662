"""Vertex-steps as a task: what is scored, and the oracle against loops over single vertices."""

from __future__ import annotations

import pytest
import torch
from dgc_tiny import random_sequence, sequence_of, tiny_workload
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.base import sequences
from dgbench.systems.base.plain_sequences import PlainSequences
from dgbench.systems.base.sequences import (
    ScoredOutputs,
    SequenceTask,
    find_vertex_steps,
    untrained_accuracy,
    vertex_steps,
)


def present(data, t, presence="edges"):
    """Vertices with an edge in a snapshot."""
    csr = data.topology[t]
    rows = {v for v in range(data.num_nodes) if csr.indptr[v + 1] > csr.indptr[v]}
    return rows | set(csr.indices.tolist())


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 9), st.integers(2, 6), st.integers(0, 15), st.integers(0, 999))
def test_as_many_active_vertex_steps_as_others_are_scored(nodes, steps, most, seed):
    data = random_sequence(nodes, steps, most, seed)
    work = tiny_workload(held_out=0.25, seed=seed)
    graph = vertex_steps(data, work)
    task = SequenceTask(data, work, graph)
    scored = task.scored
    assert scored.places.unique().numel() == scored.places.numel()
    for t in range(steps - 1):
        here = graph.step[scored.places] == t
        label = scored.label[here]
        active = present(data, t + 1)
        entities = graph.entity[scored.places[here]].tolist()
        assert [int(e in active) for e in entities] == label.tolist()
        there = graph.entity[graph.step == t].tolist()
        yes = sum(e in active for e in there)
        assert label.sum() == (1 - label).sum() == min(yes, len(there) - yes)
    assert task.tested == int(0.25 * scored.label.numel())
    assert task.count == max(1, scored.label.numel() - task.tested)
    again = SequenceTask(data, work, graph).scored
    assert torch.equal(again.places, scored.places)
    assert torch.equal(again.test, scored.test)


def test_pairs_name_absent_vertices():
    # Vertex 3 appears in the target snapshot only.
    data = sequence_of([[(0, 1), (1, 2)], [(0, 1)], [(3, 0), (0, 3), (1, 3)]], 4)
    work = tiny_workload(task="link", theta=1.0, held_out=0.0)
    graph = vertex_steps(data, work)
    task = SequenceTask(data, work, graph)
    positive = task.scored.places[:, task.scored.label == 1].t().tolist()
    of = find_vertex_steps(graph, torch.tensor([0, 1]), torch.tensor([1, 1])).tolist()
    absent = graph.num_vertices
    found = {tuple(pair) for pair in positive if absent in pair}
    assert found == {(of[0], absent), (absent, of[0]), (absent, of[1])}
    worker = torch.arange(graph.num_vertices, dtype=torch.int32)
    for (a, b), owner in zip(task.scored.places.t().tolist(), task.owners(worker), strict=True):
        assert owner == (a if a < absent else b if b < absent else 0)


@pytest.mark.parametrize("kind", ["active", "link"])
def test_losses_of_parts_add_up(kind):
    data = random_sequence(9, 6, 14, 3)
    work = tiny_workload(task=kind, held_out=0.5)
    trainer = PlainSequences(work, data, dtype=torch.float64)
    hidden, task, head = trainer.outputs(), trainer.task, trainer.model.head
    whole = task.loss_sum(head, hidden, task.scored).detach()
    some = torch.rand(task.scored.label.numel()) < 0.4
    parts = [
        ScoredOutputs(task.scored.places[..., m], task.scored.label[m], task.scored.test[m])
        for m in (some, ~some)
    ]
    total = sum(task.loss_sum(head, hidden, part).detach() for part in parts)
    assert float(total) == pytest.approx(float(whole), rel=1e-12)
    hits = [task.hits(head, hidden, part) for part in (*parts, task.scored)]
    assert tuple(a + b for a, b in zip(*hits[:2], strict=True)) == hits[2]
    assert hits[2][1] == task.tested
    before = trainer.accuracy()
    assert before == hits[2][0] / hits[2][1]


def test_what_cannot_be_trained_is_refused(monkeypatch):
    for fields in ({"held_out": 1.0}, {"theta": 0.0}, {"hidden_dim": 0}, {"snapshots": 0}):
        with pytest.raises(InvalidInputError, match=next(iter(fields))):
            tiny_workload(**fields).check()
    for fields in ({"task": "node"}, {"presence": "always"}, {"norm": "max"}, {"model": "tgcn"}):
        with pytest.raises(UnknownKeyError, match=next(iter(fields))):
            tiny_workload(**({"model": "dysat"} | fields)).check()
    one = random_sequence(4, 1, 5, 0)
    with pytest.raises(InvalidInputError):
        PlainSequences(tiny_workload(), one)
    with pytest.raises(InvalidInputError, match="feature_dim"):
        PlainSequences(tiny_workload(feature_dim=3), random_sequence(4, 3, 5, 0))
    trainer = PlainSequences(tiny_workload(), random_sequence(4, 3, 5, 0))
    with pytest.raises(InvalidInputError, match="frame"):
        trainer.step(1)
    data = random_sequence(6, 9, 8, 1)
    monkeypatch.setattr("dgbench.datasets.open_snapshots", lambda spec: data)
    loaded = sequences.load_sequences(tiny_workload(snapshots=4))
    assert len(loaded) == 5
    assert loaded.topology[-1] is data.topology[-1]


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 9), st.integers(3, 6), st.integers(1, 15), st.integers(0, 999))
def test_predictors_that_train_nothing_look_at_the_past_alone(nodes, steps, most, seed):
    data = random_sequence(nodes, steps, most, seed)
    work = tiny_workload(held_out=0.5, seed=seed, presence="span")
    graph = vertex_steps(data, work)
    task = SequenceTask(data, work, graph)
    found = untrained_accuracy(data, task, graph)
    scored, hits = task.scored, {"last_value": [], "historical_mean": []}
    for place, label, test in zip(scored.places, scored.label, scored.test, strict=True):
        if test:
            vertex, t = int(graph.entity[place]), int(graph.step[place])
            past = [vertex in present(data, s) for s in range(t + 1)]
            hits["last_value"].append(past[-1] == bool(label))
            hits["historical_mean"].append((2 * sum(past) >= len(past)) == bool(label))
    if not task.tested:
        assert found == {}
        return
    assert found == {name: pytest.approx(sum(h) / len(h)) for name, h in hits.items()}
