"""Training on interactions, shared by all systems with a state per vertex.

A system says how edges are laid out (`groups`), and may replace how a step reads and writes the
state. What is scored, learned and remembered is here and in the network, so that a difference
between systems can only come from the layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.weak import WeakTensorKeyDictionary

from dgbench.kernels_cuda.interact import local_rows
from dgbench.models.streaming import EdgeBlock, IntervalEdges, build_interaction_model
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.meter import Meter
from dgbench.runtime.readback import Readback
from dgbench.systems.base.adam import AdamTrainer
from dgbench.systems.base.interaction_layout import (
    Group,
    edge_groups,
    interval_groups,
    t_batch_groups,
)
from dgbench.systems.base.interaction_push import Propagation
from dgbench.systems.base.interaction_scores import InteractionScores, StepResult, scores_of
from dgbench.systems.base.interactions import InteractionData, InteractionWorkload
from dgbench.systems.base.training import check_device

__all__ = ["InteractionScores", "InteractionTrainer", "StepResult", "scores_of"]

Order = Literal["t-batches", "events", "intervals"]
LAYOUTS: Final = {
    "t-batches": t_batch_groups,
    "events": edge_groups,
    "intervals": interval_groups,
}


class InteractionState(NamedTuple):
    """A copy of a trainer's state: rows of vertices, rows that wait, what is passed on, and events
    that are held until their time is over."""

    vertices: Any
    pending: Any
    ring: Any
    held: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class VertexLabels:
    """Classes of vertices, by row.

    Attributes:
        taught: int64[n], -1 where nothing is taught. classes: int64[n]. asked: bool[n].
    """

    taught: Tensor
    classes: Tensor
    asked: Tensor

    def __getitem__(self, rows: slice | Tensor) -> VertexLabels:
        """Those rows; of a slice as views."""
        return VertexLabels(self.taught[rows], self.classes[rows], self.asked[rows])

    def to(self, device: torch.device) -> VertexLabels:
        """The same on a device."""
        return VertexLabels(*(x.to(device) for x in (self.taught, self.classes, self.asked)))


class GroupWatch(Protocol):
    """Observer of every optimiser step, see `interaction_audit.GroupAudit`."""

    def before(self, group: Group) -> None:
        """A group is about to be trained on."""

    def after(self, loss: Tensor | float) -> None:
        """It was; its loss per event, before the update."""


class InteractionTrainer(AdamTrainer):
    """Trains a network over interactions; a frame is an optimiser step of epoch 0.

    Frames are trained on in order, as the state moves on with them. A trainer that keeps the state
    elsewhere overrides `read` and `commit`, or `run_step` as a whole.

    Attributes:
        model: with its head, on the device.
        vertices, pending: the state of every vertex and what waits for it, there.
        notes: sentences that a row of this trainer should carry.
    """

    def __init__(
        self,
        workload: InteractionWorkload,
        data: InteractionData,
        *,
        device: str = "cpu",
        meter: Meter | None = None,
        dtype: torch.dtype = torch.float32,
        order: Order = "t-batches",
        spare_rows: int = 0,
    ) -> None:
        """Build the model and a state to which nothing has happened.

        Args:
            workload, data: of `load_interactions`.
            device: of model and state.
            meter: gets the phases io, refresh, score, backward, interact, update, and counters.
            dtype: float32 or float64.
            order: how `groups` lays edges out: in `intervals` of equal numbers of edges, edge by
                edge (`events`), or in `t-batches` that amount to that.
            spare_rows: rows of state beyond those of the vertices.
        """
        self.workload = workload.check()
        self.data = data
        self.device = check_device(device)
        self.dtype = dtype
        self.meter = meter if meter is not None else Meter(device=device)
        self.order = order
        # Steps of t-batches are short: what a device computes for nothing costs less than a wait.
        self._dense = self.device.type == "cuda" and order != "intervals"
        self.model = build_interaction_model(workload, classes=data.num_classes, unit=data.unit).to(
            self.device, dtype
        )
        self._spare = spare_rows
        self.vertices, self.pending = self._fresh()
        self.notes: list[str] = list(data.notes)
        self._held: list[Tensor] = []
        self._laid: dict[tuple[int, int], list[Group]] = {}
        self._blocks: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self._arrived: dict[int, IntervalEdges] = {}
        self._push = None
        if workload.propagation:
            self._push = Propagation(self.model, data, self.device, spare=spare_rows)
        self._labels_here = self._send_labels()
        self._begin: list[dict[str, Tensor | float]] | None = None

    @cached_property
    def _scratch(self) -> Tensor:
        """Room of `local_rows`."""
        return torch.full((self.data.events.num_nodes,), -1, dtype=torch.int32)

    @property
    def labels(self) -> VertexLabels | None:
        """Classes of all vertices and of rows of padding, in host memory; None without classes."""
        if self.data.classes is None:
            return None
        classes = functional.pad(self.data.classes, (0, self._spare), value=-1)
        held_out = functional.pad(self.data.held_out, (0, self._spare))
        taught = torch.where(held_out, -1, classes)
        return VertexLabels(taught, classes, held_out & (classes >= 0))

    def _send_labels(self) -> VertexLabels | None:
        """`labels` on the device, before the first step."""
        labels = self.labels
        return None if labels is None else labels.to(self.device)

    def _fresh(self) -> tuple[Any, Any]:
        found = self.model.new_state(
            self.data.events.num_nodes,
            seed=self.workload.seed,
            dtype=self.dtype,
            device=self.device,
        )
        return tuple(rows.extended(self._spare) for rows in found)

    # --- what a system replaces -------------------------------------------------------------------

    def groups(self, first: int, last: int, epoch: int = 0) -> list[Group]:
        """Steps of each optimiser step on events first .. last - 1, in order.

        Args:
            first, last: ordinals of events.
            epoch: for layouts that change; here they do not.
        """
        key = (first, last)
        if key not in self._laid:
            lay_out, size = LAYOUTS[self.order], self.workload.batch
            size = self.width if self.order == "intervals" else size
            strict = self.workload.strict_time
            self._laid[key] = lay_out(self.data, first, last, size, strict=strict)
        return self._laid[key]

    @property
    def width(self) -> int:
        """Events of an interval, where edges are laid out in intervals."""
        intervals = self.workload.intervals
        if intervals is None:
            return self.workload.batch
        return max(1, -(-self.data.train_end // intervals))

    def scoring_groups(self, first: int, last: int) -> list[Group]:
        """As `groups`, for events that are scored and not trained on."""
        return self.groups(first, last)

    def edges(self, events: Tensor) -> IntervalEdges:
        """The edges of a step over rows, in host memory."""
        stream = self.data.events
        negative = self.data.negative[events] if self.workload.task == "link" else None
        rows = local_rows(stream.src[events], stream.dst[events], negative, self._scratch)
        return IntervalEdges.of(rows, stream.t[events], events)

    def bring(self, group: Group) -> None:
        """Send the edges of a group's steps to the device, by one copy that nobody waits for.

        They are laid out once and kept as long as the group is.
        """
        if not group:
            return
        with self.meter.phase("io"):
            block = self._blocks.get(group[0])
            if block is None or not block.holds(group):
                block = EdgeBlock([self.edges(events) for events in group], self.device)
                self._blocks[group[0]] = block
            self._arrived = {id(edges.events): edges for edges in block.bring(group)}

    def _edges_here(self, events: Tensor) -> IntervalEdges:
        """The edges of a step on the device: those that were brought, or sent now."""
        edges = self._arrived.pop(id(events), None)
        if edges is not None and edges.events is events:
            return edges
        return self._sent(self.edges(events))

    def _sent(self, edges: IntervalEdges) -> IntervalEdges:
        """The edges of one step, on the device."""
        return EdgeBlock([edges], self.device).bring([edges.events])[0]

    def owned(self, vertices: Tensor) -> Tensor:
        """Those of vertices int64[n] whose state is in this process."""
        return vertices

    def rows_of(self, vertices: Tensor) -> Tensor:
        """int64[n]: rows of `vertices` and `pending` that hold vertices int64[n]."""
        return vertices

    def read(self, ids: Tensor) -> tuple[Any, Any]:
        """State of vertices int64[n], ids on the device, and what waits for them."""
        return self.vertices[ids], self.pending[ids]

    def commit(self, edges: IntervalEdges, now: Any) -> None:
        """Keep the state of a step's ends, and let its interactions wait for them."""
        rows = slice(0, edges.ends) if edges.written is None else edges.written
        ends = edges.ids[rows]
        pushes = None if self._push is None else self._push.find(edges, now, self.vertices)
        waiting = self.model.pend(now, edges, self.workload.aggregate)
        self.vertices.write(ends, now[rows])
        self.pending.write(ends, waiting if edges.written is None else waiting[rows])
        if self._push is not None:
            self._push.apply(pushes, edges, self.pending)

    # --- one step ---------------------------------------------------------------------------------

    def run_step(self, events: Tensor, *, scale: float | None) -> StepResult:
        """Score the events of a step, then let them change the state.

        Args:
            events: int64[B] ordinals, ascending.
            scale: of the loss whose gradients are added up; None to train nothing.
        """
        if self._held and not self._same_time(self._held[0][0], events[0]):
            self._write_held()
        with self.meter.phase("io"):
            edges = self._edges_here(events)
        self.meter.count("edges", edges.real)
        self.meter.count("rows", edges.ids.numel())
        with torch.set_grad_enabled(scale is not None):
            with self.meter.phase("refresh"):
                old, waiting = self.read(edges.ids)
                now = self.model.refresh(old, waiting, dense=self._dense)
            with self.meter.phase("score"):
                found = self.score(now, old, edges)
            if scale is not None and found.loss.requires_grad:
                with self.meter.phase("backward"):
                    (found.loss * scale).backward()
        if self._goes_on(events):
            self._held.append(events)
        elif self._held:
            self._held.append(events)
            self._write_held()
        else:
            with torch.no_grad(), self.meter.phase("interact"):
                self.commit(edges, now)
        found.loss = found.loss.detach()
        return found

    def _same_time(self, one: Tensor | int, other: Tensor | int) -> bool:
        t = self.data.events.t
        return bool(t[one] == t[other])

    def _goes_on(self, events: Tensor) -> bool:
        """Return True if more events of a step's last time follow, so that it must not be visible
        yet."""
        last = int(events[-1])
        strict = self.workload.strict_time and last + 1 < len(self.data.events)
        return strict and self._same_time(last, last + 1)

    def _write_held(self) -> None:
        """Let events that were held until their time was over change the state, all at once."""
        with torch.no_grad(), self.meter.phase("interact"):
            edges = self._sent(InteractionTrainer.edges(self, torch.cat(self._held)))
            now = self.model.refresh(*self.read(edges.ids), dense=self._dense)
            InteractionTrainer.commit(self, edges, now)
        self._held = []

    def score(self, now: Any, old: Any, edges: IntervalEdges) -> StepResult:
        """Loss and scores of a step's edges from refreshed rows."""
        none = now.columns()["last_s"].new_zeros(())
        labels = self._labels_here
        if labels is None:
            link = self.model.link(now, old, edges)
            return StepResult(
                link.loss, link.positives.detach(), link.negatives.detach(), none, none
            )
        logits = self.model.classify(now[: edges.ends])
        ids = edges.ids[: edges.ends]
        # Each end of each event counts, so that numbers do not depend on how edges are laid out.
        ends = torch.cat([edges.src[: edges.real], edges.dst[: edges.real]])
        weight = logits.new_zeros(edges.ends).index_add_(0, ends, logits.new_ones(ends.numel()))
        each = functional.cross_entropy(
            logits, labels.taught[ids], ignore_index=-1, reduction="none"
        )
        asked = weight * labels.asked[ids]
        hit = logits.argmax(1) == labels.classes[ids]
        empty = logits.new_zeros(0)
        loss = (each * weight).sum()
        return StepResult(loss, empty, empty, (asked * hit).sum(), asked.sum())

    # --- training and scoring ---------------------------------------------------------------------

    def train_group(self, group: Group) -> float:
        """One optimiser step on a group; the loss per event before it."""
        return float(self.group_loss(group))

    def group_loss(self, group: Group) -> Tensor:
        """`train_group` that does not wait for the device: float64 scalar, there."""
        # Zeros, not None, where a step does not reach: padding reaches everything, and Adam moves
        # on with a zero but not with None.
        for leaf in self.model.parameters():
            leaf.grad = torch.zeros_like(leaf)
        size = sum(events.numel() for events in group)
        self.bring(group)
        losses = [self.run_step(events, scale=1 / max(1, size)).loss for events in group]
        self.agree()
        with self.meter.phase("update"):
            self.optimiser.step()
        total = torch.stack(losses).sum() if losses else torch.zeros(())
        return total.double() / max(1, size)

    def agree(self) -> None:
        """Called between the backward pass and the update: add up gradients of all workers."""

    def reset_state(self) -> None:
        """Forget what happened to vertices, as before every epoch."""
        # A second state on the device for the time of a copy would double what it has to hold.
        self._held = []
        if self._begin is None:
            self._begin = self._beginning()
        count = self.data.events.num_nodes
        for table, values in zip((self.vertices, self.pending), self._begin, strict=True):
            for name, column in table.columns().items():
                value = values[name]
                if isinstance(value, Tensor):
                    column[:count].copy_(value)
                else:
                    column[:count].fill_(value)
                column[count:].zero_()
        if self._push is not None:
            self._push.reset()

    def _beginning(self) -> list[dict[str, Tensor | float]]:
        """Initial values of the state's columns: a number, or, where it is drawn, a tensor in host
        memory."""
        tables = self.model.new_state(
            self.data.events.num_nodes, seed=self.workload.seed, dtype=self.dtype
        )
        found: list[dict[str, Tensor | float]] = []
        for table in tables:
            columns: dict[str, Tensor | float] = {}
            for name, column in table.columns().items():
                first = column.flatten()[:1]
                alike = bool((column == first).all()) if first.numel() else True
                columns[name] = float(first.sum()) if alike else column
            found.append(columns)
        return found

    def train(
        self, first: int, last: int, *, epoch: int = 0, watch: GroupWatch | None = None
    ) -> float:
        """Train on events first .. last - 1 in order; the mean loss of an event.

        `watch` is told of every optimiser step before and after it.
        """
        self._check_range(first, last)
        total: Tensor | float = 0.0
        events = 0
        for group in self.groups(first, last, epoch):
            size = sum(part.numel() for part in group)
            if watch is not None:
                watch.before(group)
            loss = self.group_loss(group)
            if watch is not None:
                watch.after(loss)
            total = total + loss * size
            events += size
        return float(total) / max(1, events)

    def train_epoch(self, watch: GroupWatch | None = None) -> float:
        """Forget the state and train on all events of the training part once."""
        self.reset_state()
        return self.train(0, self.data.train_end, watch=watch)

    def evaluate_range(self, first: int, last: int, *, remember: bool = False) -> InteractionScores:
        """Score events first .. last - 1 without training; the state moves on while scoring.

        Every event is scored before it changes anything.

        Args:
            first, last: the state has to have seen what comes before.
            remember: keep the state that scoring leads to, instead of going back.
        """
        self._check_range(first, last)
        with self._passing(remember):
            found = []
            for group in self.scoring_groups(first, last):
                self.bring(group)
                found += [self.run_step(events, scale=None) for events in group]
        return scores_of(found, last - first, self.data.num_classes > 0)

    # --- the interface of every trainer -----------------------------------------------------------

    @property
    def num_frames(self) -> int:  # type: ignore[override]
        """Optimiser steps of an epoch."""
        return len(self.groups(0, self.data.train_end))

    def step(self, frame: int) -> float:
        return self.enqueue(frame).value()

    def enqueue(self, frame: int) -> Readback:
        if frame == 0:
            self.reset_state()
        return Readback(self.group_loss(self._frame(frame)))

    def evaluate(self, frame: int) -> Tensor:
        """Embeddings of the ends of a frame's last step, [ends, H] on the CPU."""
        with self._passing(False):
            *before, last = self._frame(frame)
            for events in before:
                self.run_step(events, scale=None)
            with torch.no_grad():
                edges = self._edges_here(last)
                now = self.model.refresh(*self.read(edges.ids))
        return now.embedding[: edges.ends].cpu()

    def gradients(self, frame: int) -> dict[str, Tensor]:
        leaves = dict(self.model.named_parameters())
        kept = {name: leaf.grad for name, leaf in leaves.items()}
        for leaf in leaves.values():
            leaf.grad = None
        group = self._frame(frame)
        size = sum(events.numel() for events in group)
        with self._passing(False):
            for events in group:
                self.run_step(events, scale=1 / size)
        found = {
            name: (torch.zeros_like(leaf) if leaf.grad is None else leaf.grad).cpu()
            for name, leaf in leaves.items()
        }
        for name, leaf in leaves.items():
            leaf.grad = kept[name]
        return found

    @property
    def state_bytes(self) -> int:
        """Bytes of the state of all vertices and of what waits for them."""
        return self.vertices.nbytes + self.pending.nbytes

    def _frame(self, frame: int) -> Group:
        groups = self.groups(0, self.data.train_end)
        if not 0 <= frame < len(groups):
            raise InvalidInputError(f"frame is {frame}, there are 0 .. {len(groups) - 1}")
        return groups[frame]

    def _check_range(self, first: int, last: int) -> None:
        if not 0 <= first <= last <= len(self.data.events):
            raise InvalidInputError(
                f"events [{first}, {last}) asked for; 0 <= first <= last <= "
                f"{len(self.data.events)} is allowed"
            )

    def memory_state(self) -> InteractionState:
        """A copy of what vertices remember and of what waits for them."""
        ring = None if self._push is None else self._push.clone()
        return InteractionState(
            self.vertices.clone(), self.pending.clone(), ring, tuple(self._held)
        )

    def restore_memory(self, state: InteractionState) -> None:
        """Back to a copy that this trainer made."""
        self._held = list(state.held)
        self.vertices.copy_(state.vertices)
        self.pending.copy_(state.pending)
        if self._push is not None:
            self._push.restore(state.ring)

    @contextmanager
    def _passing(self, remember: bool) -> Iterator[None]:
        """Go back to the state of now afterwards, unless asked to remember."""
        before = None if remember else self.memory_state()
        try:
            yield
        finally:
            if before is not None:
                self.restore_memory(before)
