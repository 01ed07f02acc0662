"""Faults planted in what trainers and oracles of streams share: one table of them, by what they do.

Each takes a `MonkeyPatch`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
import torch
from torch import Tensor
from torch.optim import Adam

from dgbench.models.ctdg import MemoryRows, Tgn, attend, attention
from dgbench.models.ctdg.link import LinkPredictor
from dgbench.systems.base import plain_sampler, stream
from dgbench.systems.base.plain_sampler import PlainGraph
from dgbench.systems.base.plain_stream import PlainStream
from dgbench.systems.base.stream import Recalled, StreamTrainer, StreamWorkload

LAST: Final = 61
"""Events of the streams that they are planted on."""
Plant = Callable[[pytest.MonkeyPatch], None]


def instead(owner: Any, name: str, value: Any) -> Plant:
    """Fault that puts something else in a place."""
    return lambda patch: patch.setattr(owner, name, value)


def around(owner: Any, name: str, change: Callable[..., Any]) -> Plant:
    """Fault that lets `change` answer, which gets what was there before its arguments."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        was = getattr(owner, name)
        patch.setattr(owner, name, lambda *given, **named: change(was, *given, **named))

    return plant


def changed(owner: Any, name: str, change: Callable[[Any], Any]) -> Plant:
    """Fault by which a function returns something else."""
    return around(owner, name, lambda was, *given, **named: change(was(*given, **named)))


def every_second(owner: Any, name: str) -> Plant:
    """Fault that leaves out every second call."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        count = iter(range(10**9))
        around(owner, name, lambda was, self: was(self) if next(count) % 2 == 0 else None)(patch)

    return plant


def before_step(change: Callable[[Any], None]) -> Plant:
    """Fault that changes an optimiser before each of its steps."""

    def step(was: Any, self: Any) -> None:
        change(self.param_groups[0])
        was(self)

    return around(Adam, "step", step)


def batches(change: Callable[[Any], Any]) -> Plant:
    """Fault by which events are cut into other batches."""
    return around(stream, "batches", lambda was, *given: change(was(*given)))


def negatives(change: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]) -> Plant:
    """Fault of negatives: `change` gets the right ones, sources, destinations and events."""

    def changed(was: Any, task: Any, data: Any, events: Tensor) -> Tensor:
        return change(was(task, data, events), data.events.src, data.events.dst, events)

    return around(stream, "negatives_of", changed)


def times(change: Callable[[Tensor], Tensor]) -> Plant:
    """Fault by which samplers look from other times."""
    return around(
        PlainStream, "sample",
        lambda was, self, nodes, times, **how: was(self, nodes, change(times), **how),
    )  # fmt: skip


def rows(change: Callable[[MemoryRows, MemoryRows], tuple[Tensor, ...]]) -> Plant:
    """Fault by which a batch leaves other rows, made of the right ones and those before it."""

    def left(was: Any, recalled: Recalled, *given: Any) -> Any:
        ids, events, new = was(recalled, *given)
        old = recalled.rows[torch.searchsorted(recalled.vertices, ids)]
        return ids, events, MemoryRows(*change(new, old))

    return around(stream, "last_messages", left)


def draws(change: Callable[..., Any]) -> Plant:
    """Fault of draws from windows."""
    return around(plain_sampler, "plain_between", change)


def _sources_alone(was: Any, self: Any, batch: Any, ids: Any, events: Any, rows: Any) -> None:
    some = torch.isin(ids, self.data.events.src[batch.events])
    was(self, batch, ids[some], events[some], rows[some])


def _late(was: Any, self: Any, *given: Any) -> None:
    self.late, given = given, getattr(self, "late", None)
    if given is not None:
        was(self, *given)


def _backwards(was: Any, self: Any) -> None:
    columns = self._src, self._dst, self._eid, self._t
    self._src, self._dst, self._eid, self._t = (column[::-1] for column in columns)
    was(self)
    self._src, self._dst, self._eid, self._t = columns


def _head_alone(group: Any) -> None:
    for leaf in group["params"][:-5]:
        leaf.grad.zero_()


def _edges_alone(self: Any, hidden: Tensor) -> Tensor:
    return torch.nn.functional.softplus(-self(hidden)[0]).sum() * 2


LATER, EARLIER = times(lambda t: t + 0.05), times(lambda t: t - 0.05)
FAULTS: Final[dict[str, Plant]] = {
    # Batches.
    "half of each batch is trained on": around(
        StreamTrainer, "enqueue_batch",
        lambda was, self, events, epoch: was(self, events[: -(-len(events) // 2)], epoch)),
    "every second event is trained on": around(
        StreamTrainer, "train_on",
        lambda was, self, events, epoch=0: was(self, events[::2], epoch=epoch)),
    "every second batch is left out": batches(lambda parts: parts[::2]),
    "the last batch is left out": batches(lambda parts: parts[:-1] or parts),
    "batches come in another order": batches(lambda parts: (*parts[:1], *reversed(parts[1:]))),
    "events of a batch come backwards": batches(lambda parts: tuple(p.flip(0) for p in parts)),
    "borders of batches never move": around(
        stream, "batches", lambda was, task, events, t, epoch=0: was(task, events, t, None)),
    "batches part events of a time": instead(
        StreamWorkload, "ends_with_time", property(lambda self: False)),
    # Memories and messages.
    "memories are never written": instead(stream.VertexMemory, "write", lambda *_: None),
    "memories of sources alone are written": around(StreamTrainer, "_write", _sources_alone),
    "memories are written a batch late": around(StreamTrainer, "_write", _late),
    "memories are written before a time is over": instead(
        StreamTrainer, "begin_batch", lambda *_: None),
    "memories are not forgotten": instead(StreamTrainer, "reset_memory", lambda _: None),
    "scoring changes memories": instead(StreamTrainer, "restore_memory", lambda *_: None),
    "times of update are a batch late": rows(
        lambda new, old: (new.memory, old.updated, new.mail, new.mail_time)),
    "times of update are a batch early": rows(
        lambda new, old: (new.memory, new.mail_time, new.mail, new.mail_time)),
    "a memory is left as it was before its message": rows(
        lambda new, old: (old.memory, new.updated, new.mail, new.mail_time)),
    "messages are never taken in": instead(Tgn, "remember", lambda self, rows: rows.memory),
    "messages reach no gradient": around(
        Tgn, "remember", lambda was, self, rows: was(self, rows).detach()),
    # Negatives.
    "negatives are one vertex": negatives(lambda right, *_: torch.full_like(right, 3)),
    "negatives are the destinations": negatives(lambda right, src, dst, events: dst[events]),
    "negatives are the sources": negatives(lambda right, src, dst, events: src[events]),
    "negatives are the next destinations": negatives(
        lambda right, src, dst, events: dst[(events + 1).clamp(max=LAST - 1)]),
    "negatives of a batch are alike": negatives(lambda right, *_: right[:1].expand_as(right)),
    "one negative in ten is the destination": negatives(
        lambda right, src, dst, events: right.where(events % 10 != 0, dst[events])),
    # Neighbours, features and ages.
    "neighbours are from a little later": LATER,
    "neighbours are from a little earlier": EARLIER,
    "neighbours are from the end of the batch": times(
        lambda t: torch.full_like(t, float(t.max()))),
    "neighbours are the oldest": around(
        PlainGraph, "neighbours",
        lambda was, self, vertex: tuple(part[:2] for part in was(self, vertex))),
    "neighbours of one time come backwards": around(PlainGraph, "_sort", _backwards),
    "a graph takes in all but one event": around(
        PlainStream, "insert", lambda was, self, first, last: was(self, first + (first > 0), last)),
    "features are those of the next edge": around(
        PlainStream, "edge_features",
        lambda was, self, eids: was(self, (eids + 1).clamp(max=LAST - 1))),
    "ages count from the first event": around(
        attend, "cosines", lambda was, age, *given, **how: was(age - 1e-9, *given, **how)),
    "attention has no scale": instead(attention.math, "sqrt", lambda _: 1.0),
    # Losses, updates and scores.
    "the loss counts edges alone": instead(LinkPredictor, "loss_sum", _edges_alone),
    "the loss is a sum": around(
        StreamTrainer, "_loss",
        lambda was, self, batch, hidden: was(self, batch, hidden) * batch.count),
    "gradients add up over batches": instead(Adam, "zero_grad", lambda *_, **__: None),
    "parameters are updated in every second batch": every_second(Adam, "step"),
    "parameters are never updated": instead(Adam, "step", lambda self: None),
    "the rate of learning is another": before_step(lambda group: group.update(lr=1.01e-2)),
    "the head alone is trained": before_step(_head_alone),
    "scores leave out half of the pairs": around(
        stream, "average_precision",
        lambda was, scores, label: was(scores[::2].contiguous(), label[::2])),
    "scores take equal ones for hits": around(
        stream, "average_precision", lambda was, scores, label: was(scores + 1e-9 * label, label)),
}  # fmt: skip
DRAW_FAULTS: Final[dict[str, Plant]] = {
    "draws repeat a neighbour": draws(lambda was, *a, **how: was(*a, **how | {"replace": True})),
    "draws leave out the end of a window": draws(
        lambda was, graph, nodes, begins, *a, **how: was(graph, nodes, begins + 1, *a, **how)),
    "draws reach behind a window": draws(
        lambda was, graph, nodes, begins, *a, **how: was(graph, nodes, begins - 25, *a, **how)),
    "draws take the newest alone": draws(lambda was, *a, **how: was(*a, **how | {"fanout": 1})),
    "hops ask at the time of the root": instead(
        StreamWorkload, "root_times", property(lambda self: True)),
    "neighbours are from a little later": LATER,
    "neighbours are from a little earlier": EARLIER,
}  # fmt: skip
"""Of samplers that draw from windows."""
