"""Nothing that is predicted at a time rests on what happens then or later, whatever the system.

Streams have few time values, one of them longer than a batch. Every event at or after a time is
altered but one, which is asked for at that time itself: its embeddings, and those of all events
before it, must not move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from dgbench.datasets import EventStream
from dgbench.models.ctdg import STREAM_MODELS
from dgbench.systems.base.interaction_trainer import InteractionTrainer
from dgbench.systems.base.interactions import (
    InteractionData,
    InteractionWorkload,
    interaction_data,
)
from dgbench.systems.base.plain_stream import PlainStream
from dgbench.systems.base.stream import StreamData, StreamTrainer, StreamWorkload, stream_data
from dgbench.systems.dygnn import DygnnSystem
from dgbench.systems.gnnflow import GnnflowSystem
from dgbench.systems.jodie import JodieSystem
from dgbench.systems.tgcn.system import TgcnSystem
from dgbench.systems.tgl import TglSystem

VERTICES, EVENTS, BATCH = 9, 90, 8
ASKED = (13, 44, 61)
"""Events asked for: early, inside of the long time value, and behind it."""


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


# --- streams: sampled neighbourhoods and TGN's memory ---------------------------------------------


def reference(task: StreamWorkload, data: StreamData) -> StreamTrainer:
    return StreamTrainer(task, data, PlainStream(task, data), dtype=torch.float64)


def of_system(kind: Callable[[], Any]) -> Callable[[StreamWorkload, StreamData], StreamTrainer]:
    return lambda task, data: kind().open(task, data=data, dtype=torch.float64)


STREAM_SYSTEMS = {
    "reference": reference,
    "gnnflow": of_system(GnnflowSystem),
    "tgl": of_system(TglSystem),
}


def stream_task(model: str, sampling: str = "recent", **fields: Any) -> StreamWorkload:
    small = {"node_dim": 3, "edge_dim": 2, "hidden_dim": 4, "time_dim": 4, "memory_dim": 4}
    small |= {"batch": BATCH, "fanouts": (4,) if model == "tgn" else (4, 3), "lr": 0.1}
    if model == "dysat":
        small |= {"window": 6.0, "snapshots": 2}
    return StreamWorkload(dataset="tiny", model=model, sampling=sampling, **(small | fields))  # type: ignore[arg-type]


def embeddings(trainer: StreamTrainer, first: int) -> Tensor:
    """[E - first, 3, H] of the roots of events, memories moving on from the beginning."""
    seen: list[Tensor] = []

    def note(_: Any, given: tuple[Tensor]) -> None:
        seen.append(given[0].view(3, -1, given[0].shape[1]).transpose(0, 1))

    hook = trainer.model.head.register_forward_pre_hook(note)
    trainer.evaluate_range(first, len(trainer.data.events), remember=True)
    hook.remove()
    return torch.cat(seen)


def changes(kind: str, data: StreamData, asked: int) -> StreamData:
    """The data with the events at or after one's time changed, but itself."""
    stream, other = altered(data.events, asked)
    if kind == "endpoints":
        return replace(data, events=stream)
    if kind == "features":
        feat = torch.where(other.unsqueeze(1), data.edge_feat + 1, data.edge_feat)
        return replace(data, edge_feat=feat)
    return replace(data, events=stream.select(0, asked + 1), edge_feat=data.edge_feat[: asked + 1])


@cache
def asked_data(task: StreamWorkload, asked: int, train: bool) -> tuple[StreamData, int]:
    """Unchanged data of an asked event, and where predictions begin."""
    data = stream_data(events(asked), task)
    return data, int((data.events.t < data.events.t[asked]).sum()) if train else 0


@cache
def unchanged(build: Any, task: StreamWorkload, asked: int, train: bool) -> Tensor:
    """Embeddings of the unchanged data, which every kind of change is compared with."""
    return predicted(build, task, *asked_data(task, asked, train), train)


def predicted(
    build: Any, task: StreamWorkload, data: StreamData, first: int, train: bool
) -> Tensor:
    trainer = build(task, data)
    trainer.prepare()
    if train:
        trainer.train(0, first)
    return embeddings(trainer, first)


def moved(build: Any, task: StreamWorkload, kind: str, train: bool) -> Iterator[float]:
    """For each asked event how far embeddings up to it move, once other events are changed."""
    for asked in ASKED:
        data, first = asked_data(task, asked, train)
        changed = changes(kind, data, asked)
        results = [
            unchanged(build, task, asked, train), predicted(build, task, changed, first, train)
        ]  # fmt: skip
        kept = data.events.t < data.events.t[asked]
        kept[asked] = True
        kept = kept[first : results[1].shape[0] + first]
        one, other = (result[: kept.numel()][kept] for result in results)
        yield float((one - other).abs().max())


@pytest.mark.parametrize("kind", ["endpoints", "features", "dropped"])
@pytest.mark.parametrize("model", STREAM_MODELS)
@pytest.mark.parametrize("system", STREAM_SYSTEMS)
def test_streams(system, model, kind) -> None:
    if kind == "dropped":  # uniform draws go by a root's place in its batch; many take all there is
        task = stream_task(model, fanouts=(200,) if model == "tgn" else (200, 200))
    else:
        task = stream_task(model, "recent" if model == "tgn" else "uniform")
    assert max(moved(STREAM_SYSTEMS[system], task, kind, train=False)) < 1e-9


@pytest.mark.parametrize("model", STREAM_MODELS)
@pytest.mark.parametrize("system", STREAM_SYSTEMS)
def test_streams_after_training_on_what_came_before(system, model) -> None:
    task = stream_task(model, "recent" if model == "tgn" else "uniform")
    assert max(moved(STREAM_SYSTEMS[system], task, "endpoints", train=True)) < 1e-9


@pytest.mark.parametrize("system", STREAM_SYSTEMS)
@pytest.mark.parametrize("kind", ["endpoints", "features"])
def test_batches_of_equal_size_leak_events_of_the_same_time(system, kind) -> None:
    """Purpose of the switch, and proof that these tests would detect a leak."""
    task = stream_task("tgn", strict_time=False)
    assert any(x > 1e-4 for x in moved(STREAM_SYSTEMS[system], task, kind, train=False))


@pytest.mark.parametrize("system", STREAM_SYSTEMS)
def test_closed_windows_leak_too(system) -> None:
    task = stream_task("tgat", closed=True)
    assert any(x > 1e-4 for x in moved(STREAM_SYSTEMS[system], task, "endpoints", train=False))


# --- interactions: a state of every vertex --------------------------------------------------------

Open = Callable[[InteractionWorkload, InteractionData], InteractionTrainer]


def base(order: str) -> Open:
    return lambda task, data: InteractionTrainer(task, data, dtype=torch.float64, order=order)  # type: ignore[arg-type]


def baseline(kind: Callable[[], Any], **switches: bool) -> Open:
    return lambda task, data: kind().open(task, data=data, dtype=torch.float64, switches=switches)


def tgcn(**options: Any) -> Open:
    off = {"sampling": False} | options.pop("switches", {})
    return lambda task, data: TgcnSystem().open(
        task, data=data, dtype=torch.float64, switches=off, **options
    )


INTERACTION_SYSTEMS: dict[str, tuple[str, Open]] = {
    **{f"reference {order}": ("dygnn", base(order)) for order in
       ("t-batches", "events", "intervals")},
    "jodie": ("jodie", baseline(JodieSystem)),
    "jodie unpadded": ("jodie", baseline(JodieSystem, padding=False)),
    "jodie sequential": ("jodie", baseline(JodieSystem, sequential=True)),
    "dygnn": ("dygnn", baseline(DygnnSystem)),
    "dygnn unpadded": ("dygnn", baseline(DygnnSystem, padding=False)),
    "tgcn": ("dygnn", tgcn()),
    "tgcn devices": ("dygnn", tgcn(devices=2)),
    "tgcn streamed": ("dygnn", tgcn(parts=2, resident=False)),
    "tgcn unpartitioned": ("dygnn", tgcn(switches={"partition": False})),
    "tgcn t-batches": ("dygnn", tgcn(scoring="t-batches")),
}  # fmt: skip


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


def score_moves(build: Open, task: InteractionWorkload) -> Iterator[float]:
    """For each asked event how far scores up to it move, once other events are changed."""
    for asked in ASKED:
        data = interaction_data(events(asked), task)
        stream, _ = altered(data.events, asked)
        one, other = (scores(build(task, given)) for given in (data, replace(data, events=stream)))
        kept = data.events.t < data.events.t[asked]
        kept[asked] = True
        assert not one.isnan().any()
        yield float((one - other)[kept].abs().max())


def interaction_task(model: str, **fields: Any) -> InteractionWorkload:
    small = {"hidden_dim": 5, "batch": BATCH, "intervals": 9, "share": 1.0}
    return InteractionWorkload(dataset="tiny", model=model, **(small | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("system", INTERACTION_SYSTEMS)
def test_interactions(system) -> None:
    model, build = INTERACTION_SYSTEMS[system]
    assert max(score_moves(build, interaction_task(model))) < 1e-9


@pytest.mark.parametrize("system", INTERACTION_SYSTEMS)
def test_the_order_of_the_file_leaks_events_of_the_same_time(system) -> None:
    """Purpose of the switch, and proof that these tests would detect a leak."""
    model, build = INTERACTION_SYSTEMS[system]
    moves = score_moves(build, interaction_task(model, strict_time=False))
    assert any(x > 1e-4 for x in moves)


@pytest.mark.parametrize("aggregate", ["mean", "last"])
@pytest.mark.parametrize("model", ["dygnn", "jodie"])
def test_the_unit_of_ages_is_that_of_the_training_part(model, aggregate) -> None:
    task = interaction_task(model, aggregate=aggregate)
    stream = events(3)
    data = interaction_data(stream, task)
    later = stream.t + 1000.0 * (torch.arange(EVENTS) >= data.train_end)
    assert interaction_data(replace(stream, t=later), task).unit == data.unit
