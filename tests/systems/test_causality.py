"""Nothing that is predicted at a time rests on what happens then or later.

Plain trainers are asked, which all systems are compared with, and some systems of another order.

Streams have few time values, one of them longer than a batch. Every event at or after a time is
altered but one, which is asked for at that time itself: its embeddings, and those of all events
before it, must not move. Of snapshots all from one on are altered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import dgc_tiny
import pytest
import torch
from interactions_tiny import tiny_task as interactions_of
from stream_tiny import tiny_task
from test_interaction_witness import OPENED as INTERACTION_SYSTEMS
from test_stream_witness import OPENED as STREAM_SYSTEMS
from tiny_data import TinySequence, serve, tiny_sequence, tiny_workload
from torch import Tensor

from dgbench.datasets import EventStream, SnapshotSequence
from dgbench.models import FRAME_MODELS, SEQUENCE_MODELS, TIMELINE_MODELS
from dgbench.models.ctdg import STREAM_MODELS
from dgbench.systems.base import find_system, timeline
from dgbench.systems.base.interaction_trainer import InteractionTrainer
from dgbench.systems.base.interactions import interaction_data
from dgbench.systems.base.plain_sequences import PlainSequences
from dgbench.systems.base.stream import StreamData, StreamWorkload, stream_data
from dgbench.systems.base.timeline import PlainTimeline, TimelineWorkload

VERTICES, EVENTS, BATCH = 9, 66, 8
ASKED = (13, 44, 58)
"""Events asked for: early, inside of the long time value, and behind it."""
Open = Callable[[Any, Any], Any]


def events(seed: int) -> EventStream:
    """Times in about every third event's place, and from 25 to 49 a single one."""
    draw = torch.Generator().manual_seed(seed)
    src, dst = torch.randint(0, VERTICES, (2, EVENTS), generator=draw)
    t = torch.randint(0, EVENTS // 3, (EVENTS,), generator=draw).sort().values.double()
    t[25:50] = t[25]
    t[50:] = t[50:].clamp(min=float(t[25]) + 1)
    return EventStream.build(src, dst, t, num_nodes=VERTICES)


def altered(stream: EventStream, asked: int) -> tuple[EventStream, Tensor]:
    """Other ends of every event at or after the asked one's time but itself, and which they are."""
    other = stream.t >= stream.t[asked]
    other[asked] = False
    src = torch.where(other, (stream.dst + 1) % VERTICES, stream.src)
    dst = torch.where(other, (stream.src + 4) % VERTICES, stream.dst)
    return replace(stream, src=src, dst=dst), other


def up_to(stream: EventStream, asked: int) -> Tensor:
    """Events before an asked one's time, and itself."""
    kept = stream.t < stream.t[asked]
    kept[asked] = True
    return kept


# --- streams: sampled neighbourhoods and TGN's memory ---------------------------------------------


def stream_task(model: str, **fields: Any) -> StreamWorkload:
    shape = {"batch": BATCH, "lr": 0.1, "fanouts": (4,) if model == "tgn" else (4, 3)}
    shape |= {"window": 6.0} if model == "dysat" else {}
    return tiny_task(model, **(shape | fields))


def changed(kind: str, data: StreamData, asked: int) -> StreamData:
    """The data with the events at or after one's time changed, but itself."""
    stream, other = altered(data.events, asked)
    if kind == "endpoints":
        return replace(data, events=stream)
    if kind == "features":
        feat = torch.where(other.unsqueeze(1), data.edge_feat + 1, data.edge_feat)
        return replace(data, edge_feat=feat)
    return replace(data, events=stream.select(0, asked + 1), edge_feat=data.edge_feat[: asked + 1])


@cache
def of_asked(task: StreamWorkload, asked: int) -> StreamData:
    return stream_data(events(asked), task)


def embedded(build: Open, task: StreamWorkload, data: StreamData, train: int) -> Tensor:
    """[E - train, 3, H] of the roots of events after those trained on, memories moving on."""
    trainer, seen = build(task, data), list[Tensor]()
    trainer.prepare()
    if train:
        trainer.train(0, train)

    def note(_: Any, given: tuple[Tensor]) -> None:
        seen.append(given[0].view(3, -1, given[0].shape[1]).transpose(0, 1))

    trainer.model.head.register_forward_pre_hook(note)
    trainer.evaluate_range(train, len(data.events), remember=True)
    return torch.cat(seen)


@cache
def unchanged(build: Open, task: StreamWorkload, asked: int, train: int) -> Tensor:
    return embedded(build, task, of_asked(task, asked), train)


def moved(build: Open, task: StreamWorkload, kind: str, train: bool = False) -> Iterator[float]:
    """For each asked event how far embeddings up to it move, once other events are changed."""
    for asked in ASKED:
        data = of_asked(task, asked)
        first = int((data.events.t < data.events.t[asked]).sum()) if train else 0
        other = embedded(build, task, changed(kind, data, asked), first)
        one = unchanged(build, task, asked, first)[: len(other)]
        kept = up_to(data.events, asked)[first : len(other) + first]
        yield float((one - other)[kept].abs().max())


KINDS = [("plain", "endpoints", model) for model in STREAM_MODELS]
KINDS += [
    ("plain", kind, model)
    for kind in ("features", "dropped", "trained")
    for model in ("tgn", "tgat")
]
KINDS += [(system, "endpoints", "tgat") for system in ("gnnflow", "tgl")]


@pytest.mark.parametrize(("system", "kind", "model"), KINDS)
def test_streams(system, model, kind) -> None:
    """As they are, and after training on what came before."""
    fields: dict[str, Any] = {}
    if kind == "dropped":  # all there is: draws go by a root's place in its batch
        fields = {"fanouts": (200,) if model == "tgn" else (200, 200), "sampling": "recent"}
    task = stream_task(model, **fields)
    change = "endpoints" if kind == "trained" else kind
    assert max(moved(STREAM_SYSTEMS[system], task, change, kind == "trained")) < 1e-9


@pytest.mark.parametrize(
    ("kind", "model", "fields"),
    [("endpoints", "tgn", {"strict_time": False}), ("features", "tgn", {"strict_time": False}),
     ("endpoints", "tgat", {"closed": True})],
)  # fmt: skip
def test_switches_that_leak_events_of_the_same_time_do(kind, model, fields) -> None:
    """Purpose of the switches, and proof that these tests would detect a leak."""
    task = stream_task(model, sampling="recent", **fields)
    assert any(x > 1e-4 for x in moved(STREAM_SYSTEMS["plain"], task, kind))


# --- interactions: a state of every vertex --------------------------------------------------------


def scores(trainer: InteractionTrainer) -> Tensor:
    """[2] of every event in its place: scores of it and of its negative, states moving on."""
    found = torch.full((len(trainer.data.events), 2), torch.nan, dtype=torch.float64)
    run = trainer.run_step

    def noted(part: Tensor, *, scale: float | None) -> Any:
        result = run(part, scale=scale)
        found[part] = torch.stack([result.positives, result.negatives], dim=1).double()
        return result

    trainer.run_step = noted  # type: ignore[method-assign]
    trainer.evaluate_range(0, len(trainer.data.events), remember=True)
    return found


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    ("system", "model"),
    [("events", "dygnn"), ("intervals", "dygnn"), ("tgcn", "dygnn"), ("padded", "jodie")],
)
def test_interactions(system, model, strict) -> None:
    """The order of the file leaks events of the same time: these tests would detect a leak."""
    build = INTERACTION_SYSTEMS[system]
    task = interactions_of(model=model, batch=BATCH, intervals=9, share=1.0, strict_time=strict)
    moves = []
    for asked in ASKED:
        data = interaction_data(events(asked), task)
        other = replace(data, events=altered(data.events, asked)[0])
        one, two = (scores(build(task, given)) for given in (data, other))
        assert not one.isnan().any()
        moves.append(float((one - two)[up_to(data.events, asked)].abs().max()))
    assert max(moves) < 1e-9 if strict else any(move > 1e-4 for move in moves)


# --- snapshots ------------------------------------------------------------------------------------

FIRST = 6
"""First snapshot that is altered."""


def both(data: Any) -> tuple[Any, Any]:
    """A sequence, and one with other snapshots from `FIRST` on."""
    other = tiny_sequence(data.num_nodes, len(data), 40, data.features.shape[2], seed=5)
    features, targets = data.features.clone(), data.targets.clone()
    features[FIRST:], targets[FIRST:] = other.features[FIRST:], other.targets[FIRST:]
    topology = [*list(data.topology)[:FIRST], *other.topology[FIRST:]]
    if isinstance(data, TinySequence):
        return data, TinySequence(topology, features, targets, data.num_nodes)
    return data, SnapshotSequence(topology, features, targets, data.num_nodes, data.origin)


@pytest.mark.parametrize("model", FRAME_MODELS)
def test_frames(monkeypatch, model) -> None:
    task, found = tiny_workload(model=model), []
    for given in both(tiny_sequence(snapshots=11)):
        serve(monkeypatch, given)
        trainer = find_system("reference").open(task, device="cpu")
        found.append([trainer.evaluate(frame) for frame in range(trainer.num_frames)])
    before = FIRST - task.frame + 1
    for one, other in zip(*(outputs[:before] for outputs in found), strict=True):
        assert (one - other).abs().max() < 1e-6
    assert not torch.allclose(found[0][-1], found[1][-1])


@pytest.mark.parametrize("model", TIMELINE_MODELS)
def test_timelines(model) -> None:
    task = TimelineWorkload(dataset="tiny", model=model, task="link", window=3)
    found = [
        [out.detach() for out in PlainTimeline(task, given).outputs()]
        for given in both(tiny_sequence(snapshots=11, features=task.feature_dim))
    ]
    pairs = list(zip(*found, strict=True))
    assert all((a - b).abs().max() < 1e-6 for a, b in pairs[:FIRST])
    assert any(not torch.allclose(a, b) for a, b in pairs[FIRST:])


@pytest.mark.parametrize("smoothing", timeline.SMOOTHINGS)
def test_smoothing_looks_back_only(smoothing) -> None:
    task = TimelineWorkload(dataset="tiny", model="cd_gcn", smoothing=smoothing, edge_life=3)
    tiny = tiny_sequence(snapshots=11)
    data = SnapshotSequence(tiny.topology, tiny.features, tiny.targets, 12, tiny.origin)
    one, other = (timeline.smooth(given, task) for given in both(data))
    for a, b in zip(one.topology[:FIRST], other.topology[:FIRST], strict=True):
        for x, y in ((a.indptr, b.indptr), (a.indices, b.indices), (a.values, b.values)):
            assert (x is None and y is None) or torch.equal(x, y)


@pytest.mark.parametrize(
    ("model", "causal"), [*((model, True) for model in SEQUENCE_MODELS), ("dysat", False)]
)
def test_vertex_steps(model, causal) -> None:
    """A vertex-step exists where a later edge of its vertex does; what it holds is of the past.

    DySAT's attention to all steps sees later ones: these tests would detect a leak.
    """
    task, found = dgc_tiny.tiny_workload(model, causal=causal), []
    for given in both(dgc_tiny.random_sequence(12, 11, 30, seed=2)):
        trainer = PlainSequences(task, given)
        outputs, graph = trainer.evaluate(), trainer.graph
        keys = zip(graph.entity.tolist(), graph.step.tolist(), strict=True)
        found.append({key: row for key, row in zip(keys, outputs, strict=True) if key[1] < FIRST})
    common = found[0].keys() & found[1].keys()
    assert len(common) > 20
    move = max(float((found[0][key] - found[1][key]).abs().max()) for key in common)
    assert move < 1e-6 if causal else move > 1e-4
