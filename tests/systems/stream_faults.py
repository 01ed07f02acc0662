"""Faults planted in what trainers and oracles of streams share.

Each takes a `MonkeyPatch` and is registered by the words of its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dgbench.models.ctdg import MemoryRows, Tgn, attend, attention
from dgbench.models.ctdg.link import LinkPredictor
from dgbench.systems.base import plain_sampler, stream
from dgbench.systems.base.plain_sampler import PlainGraph
from dgbench.systems.base.plain_stream import PlainStream
from dgbench.systems.base.stream import StreamTrainer, StreamWorkload

LAST = 61
"""Events of the streams that they are planted on."""
Plant = Callable[[pytest.MonkeyPatch], None]
FAULTS: dict[str, Plant] = {}
"""By what they do; each is planted in what trainers and oracles of streams share."""
DRAW_FAULTS: dict[str, Plant] = {}
"""Of samplers that draw from windows."""


def fault(plant: Plant, into: dict[str, Plant] = FAULTS) -> Plant:
    """Register a fault by the words of its name."""
    into[plant.__name__.replace("_", " ")] = plant
    return plant


def draw_fault(plant: Plant) -> Plant:
    """Register a fault of draws."""
    return fault(plant, DRAW_FAULTS)


def replace(patch: pytest.MonkeyPatch, owner: Any, name: str, change: Callable[..., Any]) -> None:
    """Let `change` answer, which gets what was there before its arguments."""
    was = getattr(owner, name)
    patch.setattr(owner, name, lambda *given, **named: change(was, *given, **named))


def other_batches(patch: pytest.MonkeyPatch, change: Callable[[Any], Any]) -> None:
    """Let trainers cut events into other batches."""
    replace(patch, stream, "batches", lambda was, *given: change(was(*given)))


@fault
def half_of_each_batch_is_trained_on(patch) -> None:
    replace(
        patch,
        StreamTrainer,
        "enqueue_batch",
        lambda was, self, events, epoch: was(self, events[: -(-len(events) // 2)], epoch),
    )


@fault
def every_second_event_is_trained_on(patch) -> None:
    replace(
        patch,
        StreamTrainer,
        "train_on",
        lambda was, self, events, epoch=0: was(self, events[::2], epoch=epoch),
    )


@fault
def every_second_batch_is_left_out(patch) -> None:
    other_batches(patch, lambda parts: parts[::2])


@fault
def the_last_batch_is_left_out(patch) -> None:
    other_batches(patch, lambda parts: parts[:-1] or parts)


@fault
def batches_come_in_another_order(patch) -> None:
    other_batches(patch, lambda parts: (*parts[:1], *reversed(parts[1:])))


@fault
def events_of_a_batch_come_backwards(patch) -> None:
    other_batches(patch, lambda parts: tuple(part.flip(0) for part in parts))


@fault
def borders_of_batches_never_move(patch) -> None:
    replace(
        patch,
        stream,
        "batches",
        lambda was, task, events, times, epoch=0: was(task, events, times, None),
    )


@fault
def batches_part_events_of_a_time(patch) -> None:
    patch.setattr(StreamWorkload, "ends_with_time", property(lambda self: False))


@fault
def memories_are_never_written(patch) -> None:
    patch.setattr(stream.VertexMemory, "write", lambda *_: None)


@fault
def memories_of_sources_alone_are_written(patch) -> None:
    def kept(was, self, batch, ids, events, rows):
        some = torch.isin(ids, self.data.events.src[batch.events])
        was(self, batch, ids[some], events[some], rows[some])

    replace(patch, StreamTrainer, "_write", kept)


@fault
def memories_are_written_a_batch_late(patch) -> None:
    def late(was, self, *given):
        self.late, given = given, getattr(self, "late", None)
        if given is not None:
            was(self, *given)

    replace(patch, StreamTrainer, "_write", late)


@fault
def memories_are_written_before_a_time_is_over(patch) -> None:
    patch.setattr(StreamTrainer, "begin_batch", lambda *_: None)


@fault
def memories_are_not_forgotten(patch) -> None:
    patch.setattr(StreamTrainer, "reset_memory", lambda _: None)


@fault
def scoring_changes_memories(patch) -> None:
    patch.setattr(StreamTrainer, "restore_memory", lambda *_: None)


@fault
def the_first_message_stands_for_the_last(patch) -> None:
    def first(was, recalled, events, times, edges):
        count = events.numel()
        ends = recalled.place[: 2 * count].view(2, -1).flip(1).flatten()
        place = torch.cat([ends, recalled.place[2 * count :]])
        turned = stream.Recalled(recalled.vertices, place, recalled.rows, recalled.memories)
        edges = None if edges is None else edges.flip(0)
        return was(turned, events.flip(0), times[:count].flip(0), edges)

    replace(patch, stream, "last_messages", first)


def other_rows(patch: pytest.MonkeyPatch, change: Callable[[MemoryRows, Any], MemoryRows]) -> None:
    """Let a batch leave other rows."""

    def left(was, recalled, *given):
        ids, events, rows = was(recalled, *given)
        return ids, events, change(rows, recalled.rows[torch.searchsorted(recalled.vertices, ids)])

    replace(patch, stream, "last_messages", left)


@fault
def times_of_update_are_a_batch_late(patch) -> None:
    other_rows(patch, lambda new, old: MemoryRows(new.memory, old.updated, new.mail, new.mail_time))


@fault
def times_of_update_are_a_batch_early(patch) -> None:
    other_rows(
        patch, lambda new, old: MemoryRows(new.memory, new.mail_time, new.mail, new.mail_time)
    )


@fault
def a_memory_is_left_as_it_was_before_its_message(patch) -> None:
    other_rows(patch, lambda new, old: MemoryRows(old.memory, new.updated, new.mail, new.mail_time))


@fault
def messages_swap_their_ends(patch) -> None:
    def swapped(new: MemoryRows, old: MemoryRows) -> MemoryRows:
        own, other, edge = new.mail.split([4, 4, 2], dim=1)
        mail = torch.cat([other, own, edge], dim=1)
        return MemoryRows(new.memory, new.updated, mail, new.mail_time)

    other_rows(patch, swapped)


@fault
def messages_are_never_taken_in(patch) -> None:
    patch.setattr(Tgn, "remember", lambda self, rows: rows.memory)


@fault
def messages_reach_no_gradient(patch) -> None:
    replace(patch, Tgn, "remember", lambda was, self, rows: was(self, rows).detach())


@fault
def an_old_message_replaces_a_newer_one(patch) -> None:
    def always(was, recalled, *given):
        rows = recalled.rows
        waiting = rows.mail_time.isfinite()
        last = torch.where(waiting, rows.mail_time, rows.updated)
        never = torch.full_like(last, -torch.inf)
        empty = MemoryRows(rows.memory, last, rows.mail, never)
        return was(
            stream.Recalled(recalled.vertices, recalled.place, empty, recalled.memories), *given
        )

    replace(patch, stream, "last_messages", always)


def other_negatives(patch: pytest.MonkeyPatch, change: Callable[..., Tensor]) -> None:
    """Let trainers take other negatives: `change` gets the right ones, the data and the events."""
    replace(
        patch,
        stream,
        "negatives_of",
        lambda was, task, data, events: change(was(task, data, events), data, events),
    )


@fault
def negatives_are_one_vertex(patch) -> None:
    other_negatives(patch, lambda right, data, events: torch.full_like(right, 3))


@fault
def negatives_are_the_destinations(patch) -> None:
    other_negatives(patch, lambda right, data, events: data.events.dst[events])


@fault
def negatives_are_the_sources(patch) -> None:
    other_negatives(patch, lambda right, data, events: data.events.src[events])


@fault
def negatives_are_the_next_destinations(patch) -> None:
    other_negatives(
        patch, lambda right, data, events: data.events.dst[(events + 1).clamp(max=LAST - 1)]
    )


@fault
def negatives_of_a_batch_are_alike(patch) -> None:
    other_negatives(patch, lambda right, data, events: right[:1].expand_as(right))


@fault
def one_negative_in_ten_is_the_destination(patch) -> None:
    other_negatives(
        patch, lambda right, data, events: right.where(events % 10 != 0, data.events.dst[events])
    )


def other_times(patch: pytest.MonkeyPatch, change: Callable[[Tensor], Tensor]) -> None:
    """Let samplers look from other times."""
    replace(
        patch,
        PlainStream,
        "sample",
        lambda was, self, nodes, times, **how: was(self, nodes, change(times), **how),
    )


@fault
def neighbours_are_from_a_little_later(patch) -> None:
    other_times(patch, lambda times: times + 0.05)


@fault
def neighbours_are_from_a_little_earlier(patch) -> None:
    other_times(patch, lambda times: times - 0.05)


@fault
def neighbours_are_from_the_end_of_the_batch(patch) -> None:
    other_times(patch, lambda times: torch.full_like(times, float(times.max())))


@fault
def neighbours_are_the_oldest(patch) -> None:
    replace(
        patch,
        PlainGraph,
        "neighbours",
        lambda was, self, vertex: tuple(part[:2] for part in was(self, vertex)),
    )


@fault
def neighbours_of_one_time_come_backwards(patch) -> None:
    def sort(was, self):
        columns = self._src, self._dst, self._eid, self._t
        self._src, self._dst, self._eid, self._t = (column[::-1] for column in columns)
        was(self)
        self._src, self._dst, self._eid, self._t = columns

    replace(patch, PlainGraph, "_sort", sort)


@fault
def a_graph_takes_in_all_but_one_event(patch) -> None:
    replace(
        patch,
        PlainStream,
        "insert",
        lambda was, self, first, last: was(self, first + (first > 0), last),
    )


@fault
def features_are_those_of_the_next_edge(patch) -> None:
    replace(
        patch,
        PlainStream,
        "edge_features",
        lambda was, self, eids: was(self, (eids + 1).clamp(max=LAST - 1)),
    )


@fault
def ages_count_from_the_first_event(patch) -> None:
    replace(
        patch, attend, "cosines", lambda was, age, *given, **how: was(age - 1e-9, *given, **how)
    )


@fault
def attention_has_no_scale(patch) -> None:
    patch.setattr(attention.math, "sqrt", lambda _: 1.0)


@fault
def the_loss_counts_edges_alone(patch) -> None:
    def one_sided(self, hidden):
        return torch.nn.functional.softplus(-self(hidden)[0]).sum() * 2

    patch.setattr(LinkPredictor, "loss_sum", one_sided)


@fault
def the_loss_is_a_sum(patch) -> None:
    replace(patch, StreamTrainer, "_loss",
            lambda was, self, batch, hidden: was(self, batch, hidden) * batch.count)  # fmt: skip


@fault
def gradients_add_up_over_batches(patch) -> None:
    patch.setattr(torch.optim.Adam, "zero_grad", lambda *_, **__: None)


def other_updates(patch: pytest.MonkeyPatch, change: Callable[..., Any]) -> None:
    """Let Adam step otherwise: `change` gets the step and the optimiser."""
    replace(patch, torch.optim.Adam, "step", change)


@fault
def parameters_are_updated_in_every_second_batch(patch) -> None:
    count = iter(range(10**9))
    other_updates(patch, lambda was, self: was(self) if next(count) % 2 == 0 else None)


@fault
def parameters_are_never_updated(patch) -> None:
    other_updates(patch, lambda was, self: None)


@fault
def the_rate_of_learning_is_another(patch) -> None:
    def step(was, self):
        self.param_groups[0]["lr"] = 1.01e-2
        was(self)

    other_updates(patch, step)


@fault
def the_head_alone_is_trained(patch) -> None:
    def step(was, self):
        for leaf in self.param_groups[0]["params"][:-5]:
            leaf.grad.zero_()
        was(self)

    other_updates(patch, step)


@fault
def scores_leave_out_half_of_the_pairs(patch) -> None:
    replace(
        patch,
        stream,
        "average_precision",
        lambda was, scores, label: was(scores[::2].contiguous(), label[::2]),
    )


@fault
def scores_take_equal_ones_for_hits(patch) -> None:
    replace(
        patch,
        stream,
        "average_precision",
        lambda was, scores, label: was(scores + 1e-9 * label, label),
    )


@draw_fault
def draws_repeat_a_neighbour(patch) -> None:
    replace(
        patch,
        plain_sampler,
        "plain_between",
        lambda was, *given, **how: was(*given, **how | {"replace": True}),
    )


@draw_fault
def draws_leave_out_the_end_of_a_window(patch) -> None:
    replace(
        patch,
        plain_sampler,
        "plain_between",
        lambda was, graph, nodes, begins, *given, **how: was(
            graph, nodes, begins + 1, *given, **how
        ),
    )


@draw_fault
def draws_reach_behind_a_window(patch) -> None:
    replace(
        patch,
        plain_sampler,
        "plain_between",
        lambda was, graph, nodes, begins, *given, **how: was(
            graph, nodes, begins - 25, *given, **how
        ),
    )


@draw_fault
def draws_take_the_newest_alone(patch) -> None:
    replace(
        patch,
        plain_sampler,
        "plain_between",
        lambda was, *given, **how: was(*given, **how | {"fanout": 1}),
    )


@draw_fault
def hops_ask_at_the_time_of_the_root(patch) -> None:
    patch.setattr(StreamWorkload, "root_times", property(lambda self: True))


for both in (neighbours_are_from_a_little_later, neighbours_are_from_a_little_earlier):
    draw_fault(both)
