"""Training on a stream of events: what a system must offer, and the trainer over it.

A system says how a graph takes in events, how neighbours are found in it and how features are had
(`GraphAccess`). All else is here, once: batches, negatives, models, TGN's memory, loss and scores.
`plain_stream.PlainStream` is the access that others are compared with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from dgbench.models.ctdg import MemoryRows, SampledHop, Tgn, build_stream_model
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.meter import Meter
from dgbench.systems.base.adam import AdamTrainer
from dgbench.systems.base.scores import average_precision
from dgbench.systems.base.stream_access import GraphAccess
from dgbench.systems.base.stream_batches import Batch, batch_draw, batches
from dgbench.systems.base.stream_data import (
    StreamData,
    StreamWorkload,
    load_stream,
    negatives,
    negatives_of,
    stream_data,
)
from dgbench.systems.base.stream_memory import (
    HeldWrites,
    MemoryState,
    Recalled,
    VertexMemory,
    last_messages,
)
from dgbench.systems.base.system import FrameResult
from dgbench.systems.base.training import check_device

__all__ = [
    "Batch",
    "BatchWatch",
    "GraphAccess",
    "Recalled",
    "Scores",
    "StreamData",
    "StreamTrainer",
    "StreamWorkload",
    "batch_draw",
    "batches",
    "load_stream",
    "negatives",
    "negatives_of",
    "stream_data",
]


@dataclass(frozen=True, slots=True)
class Scores:
    """Ranking quality of some events against random negatives.

    Attributes:
        ap: average precision over all of them at once.
        loss: mean cross entropy of the pairs.
        n: events scored.
    """

    ap: float
    loss: float
    n: int


class BatchWatch(Protocol):
    """Observer of every batch that is trained on, see `stream_audit.BatchAudit`."""

    def before(self, events: Tensor) -> None:
        """A batch of events int64[b] is about to be trained on."""

    def after(self, loss: Tensor | None) -> None:
        """It was; its loss, a scalar, or None where there is none of it alone."""


class StreamTrainer(AdamTrainer):
    """Trains a network over a stream through a `GraphAccess`.

    A frame is a batch of all events of the data, of epoch 0. A trainer that computes only a share
    of every batch beside others overrides `share`, `agree` and `gathered`, and replaces `memory`.

    Attributes:
        model: with its head, on the device.
        memory: of every vertex, or None for a network without.
        inserted: events that the graph has taken in.
        notes: sentences that a row of this trainer should carry.
        recorded: whether a device plays steps back, so that `access` is asked for nothing.
    """

    recorded = False

    def __init__(
        self,
        workload: StreamWorkload,
        data: StreamData,
        access: GraphAccess,
        *,
        device: str = "cpu",
        meter: Meter | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Build the model; insert nothing yet.

        Args:
            workload, data: of `load_stream`.
            access: to the graph and its features.
            device: of the model.
            meter: gets the phases insert, sample, fetch, compute, memory, update, and counters.
            dtype: float32 or float64.
        """
        self.workload = workload.check()
        self.data = data
        self.access = access
        self.device = check_device(device)
        self.dtype = dtype
        self.meter = meter if meter is not None else Meter(device=device)
        self.model = build_stream_model(workload).to(self.device, dtype)
        self.memory: VertexMemory | None = None
        if isinstance(self.model, Tgn):
            self.memory = VertexMemory(
                data.events.num_nodes,
                self.model.memory_dim,
                self.model.mail_dim,
                begin=data.events.span[0],
                dtype=dtype,
                device=self.device,
            )
        # Where the access takes ids: on the host unless it says otherwise.
        self._ids_device = getattr(access, "device", torch.device("cpu"))
        self.notes: list[str] = list(data.notes)
        self.inserted = 0
        self._held = HeldWrites()
        self._frames = batches(workload, torch.arange(len(data.events)), data.events.t)
        self.num_frames = len(self._frames)

    # --- what a worker among others overrides -----------------------------------------------------

    def share(self, count: int) -> Tensor | None:
        """int64: places in a batch of `count` events that are computed here; None: all of them."""
        return None

    def agree(self) -> None:
        """Called between the backward pass and the update: add up gradients of all workers."""

    def gathered(self, rows: Tensor, count: int | None = None) -> Tensor:
        """Rows of all workers, in any order that is the same for each of them.

        Args:
            rows: of this worker.
            count: events of the whole batch, of which rows are this worker's share; None: every
                worker has one row.
        """
        return rows

    # --- the graph and the memory -----------------------------------------------------------------

    def insert(self, last: int) -> None:
        """Let the graph take in all events before `last` that it has not taken in yet."""
        if last > self.inserted:
            with self.meter.phase("insert"):
                self.access.insert(self.inserted, last)
            self.inserted = last

    def prepare(self) -> None:
        """Insert all events: training looks back in time only, so later ones are not seen."""
        self.insert(len(self.data.events))

    def reset_memory(self) -> None:
        """Forget what vertices remember; nothing for a network without memory."""
        self._held = HeldWrites()
        if self.memory is not None:
            self.memory.reset()

    def memory_state(self) -> MemoryState | None:
        """A copy of what vertices remember."""
        if self.memory is None:
            return None
        return MemoryState(self.memory.state(), self._held.copy())

    def mark_memory(self) -> MemoryState | None:
        """This moment of what vertices remember, for `restore_memory` of this trainer alone."""
        if self.memory is None:
            return None
        return MemoryState(self.memory.mark(), self._held.copy())

    def restore_memory(self, state: MemoryState | None) -> None:
        """Let vertices remember what they did at `memory_state` or `mark_memory`."""
        if self.memory is not None and state is not None:
            self.memory.restore(state.rows)
            self._held = state.held.copy()

    def copy_from(self, other: StreamTrainer) -> None:
        """Go on from where another trainer of the same task is, with a new optimiser."""
        self.model.load_state_dict(other.model.state_dict())
        self.restore_memory(other.memory_state())
        self._optimiser = None

    # --- training and scoring ---------------------------------------------------------------------

    def train(self, first: int, last: int, *, epoch: int = 0) -> float:
        """Train on events first .. last - 1, batch by batch in the order of time.

        Args:
            first, last: the graph has to have taken in what comes before.
            epoch: moves batches and changes samples; memories are left as they are.

        Returns:
            Mean loss of the events before the update of their batch; 0 without events.
        """
        self._check_range(first, last)
        return self.train_on(torch.arange(first, last), epoch=epoch)

    def train_on(self, events: Tensor, *, epoch: int = 0, watch: BatchWatch | None = None) -> float:
        """`train` on any events, int64[n] ascending: new ones, and old ones that are replayed.

        A message older than the one that waits at a vertex is dropped. `watch` is told of every
        batch before and after it.
        """
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for part in batches(self.workload, events, self.data.events.t[events], epoch):
            if watch is not None:
                watch.before(part)
            loss = self.enqueue_batch(part, epoch)
            if watch is not None:
                watch.after(loss)
            total += loss.to(torch.float64) * part.numel()
        return self._read(total) / max(1, events.numel())

    def evaluate_range(self, first: int, last: int, *, remember: bool = False) -> Scores:
        """Score events first .. last - 1 without training on them.

        Args:
            first, last: events; memories take them in batch by batch while scoring.
            remember: keep what memories took in, instead of going back.
        """
        self._check_range(first, last)
        before, scores = None if remember else self.mark_memory(), []
        times = self.data.events.t[first:last]
        for part in batches(self.workload, torch.arange(first, last), times, None):
            batch = self._batch(part, batch_draw(self.workload, int(part[0]), 0, scored=True))
            with self._inference():
                hidden, recalled = self._hidden(batch)
                rows = torch.stack(self.model.head(hidden), dim=1)
                scores.append(self.gathered(rows, batch.count).cpu())
                self._memorise(batch, recalled)
        self.restore_memory(before)
        found = torch.cat([torch.zeros(0, 2), *scores])
        label = torch.tensor([1, 0]).expand_as(found)
        loss = functional.softplus(found[:, 0].neg()) + functional.softplus(found[:, 1])
        return Scores(
            ap=average_precision(found.flatten(), label.flatten()),
            loss=float(loss.sum()) / max(1, found.numel()),
            n=found.shape[0],
        )

    def embed(self, nodes: Tensor, time: float, *, draw: int) -> Tensor:
        """Embeddings of vertices at a time, [n, H] on the device, from what was before it.

        Args:
            nodes: int64[n]; where neighbours are drawn, those of a vertex depend on `draw` alone.
            time: that is asked at. Memories are read as they are and not changed.
            draw: number of the sampling call.
        """
        times = torch.full((nodes.numel(),), time, dtype=torch.float64)
        batch = Batch(nodes[:0], nodes, times, None, nodes, nodes.numel(), draw)
        with self._inference():
            return self._hidden(batch)[0]

    # --- the interface of every trainer -----------------------------------------------------------

    def step(self, frame: int) -> float:
        return self._read(self.enqueue_batch(self._frame(frame), 0))

    def evaluate(self, frame: int) -> Tensor:
        """Embeddings of a frame's roots, [3 b, H] on the CPU; memories stay as they are."""
        with self._asking(), self._inference():
            return self._hidden(self._batch_of(frame))[0].cpu()

    def loss(self, frame: int) -> float:
        """Loss of a frame without training on it."""
        with self._asking(), self._inference():
            batch = self._batch_of(frame)
            return float(self._loss(batch, self._hidden(batch)[0]))

    def gradients(self, frame: int) -> dict[str, Tensor]:
        leaves = dict(self.model.named_parameters())
        with self._asking():
            batch = self._batch_of(frame)
            loss = self._loss(batch, self._hidden(batch)[0])
        found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        return {
            name: (torch.zeros_like(leaf) if grad is None else grad).detach().cpu()
            for (name, leaf), grad in zip(leaves.items(), found, strict=True)
        }

    def result(self, frame: int) -> FrameResult:
        """Output, gradients and loss of a frame, without an update."""
        return FrameResult(self.evaluate(frame), self.gradients(frame), self.loss(frame))

    @contextmanager
    def frames_replaced(self, frames: Mapping[int, Tensor]) -> Iterator[None]:
        """Let frames be these events, int64 by the number of a frame; others are empty."""
        before, count = self._frames, self.num_frames
        empty = torch.empty(0, dtype=torch.int64)
        self._frames = tuple(frames.get(number, empty) for number in range(max(frames) + 1))
        self.num_frames = len(self._frames)
        try:
            yield
        finally:
            self._frames, self.num_frames = before, count

    # --- one batch --------------------------------------------------------------------------------

    def _frame(self, frame: int) -> Tensor:
        if not 0 <= frame < self.num_frames:
            raise InvalidInputError(f"frame is {frame}, there are 0 .. {self.num_frames - 1}")
        return self._frames[frame]

    def _batch_of(self, frame: int) -> Batch:
        events = self._frame(frame)
        return self._batch(events, batch_draw(self.workload, int(events[0]), 0))

    def _check_range(self, first: int, last: int) -> None:
        if not 0 <= first <= last <= len(self.data.events):
            raise InvalidInputError(
                f"events [{first}, {last}) asked for; 0 <= first <= last <= "
                f"{len(self.data.events)} is allowed"
            )

    def begin_batch(self, events: Tensor) -> float | None:
        """Write what batches of a time that is over have left.

        Returns:
            The time that the batch's own writes wait for the end of; None where they do not.
        """
        if not self.workload.ends_with_time:
            return None
        times = self.data.events.t
        if self._held.time != float(times[events[0]]):
            self._write_held()
        last = int(events[-1])
        follows = last + 1 < len(times) and bool(times[last + 1] == times[last])
        return float(times[last]) if follows else None

    @property
    def holds_writes(self) -> bool:
        """True if writes of batches wait until a time is over."""
        return bool(self._held.writes)

    def _batch(self, events: Tensor, draw: int) -> Batch:
        count, stream = events.numel(), self.data.events
        holds = self.begin_batch(events)
        mine = self.share(count)
        positions = None
        if mine is not None:
            events = events[mine]
            positions = torch.cat([mine, mine + count, mine + 2 * count])
        negatives = negatives_of(self.workload, self.data, events)
        nodes = torch.cat([stream.src[events], stream.dst[events], negatives])
        times = stream.t[events].repeat(3)
        return Batch(events, nodes, times, holds, positions, count, draw)

    def _read(self, loss: Tensor) -> float:
        """A loss on the host, once all that its steps have begun is done."""
        value = float(loss)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return value

    def enqueue_batch(self, events: Tensor, epoch: int) -> Tensor:
        """Step on a batch; its loss before the update, a scalar that nobody has waited for."""
        batch = self._batch(events, batch_draw(self.workload, int(events[0]), epoch))
        self.optimiser.zero_grad(set_to_none=True)
        with self._dropping(batch.draw):
            hidden, recalled = self._hidden(batch)
        with self.meter.phase("compute"):
            loss = self._loss(batch, hidden)
            loss.backward()
        self.agree()
        with self.meter.phase("update"):
            self.optimiser.step()
        self._memorise(batch, recalled)
        return self.gathered(loss.detach().unsqueeze(0)).sum()

    def _loss(self, batch: Batch, hidden: Tensor) -> Tensor:
        """This worker's part of the mean over the batch."""
        return self.model.head.loss_sum(hidden) / (2 * batch.count)

    def _hidden(self, batch: Batch) -> tuple[Tensor, Recalled | None]:
        """Embeddings of a batch's roots, [3 b, H], and the memories they rest on."""
        with self.meter.phase("sample"):
            samples = self.access.sample(
                batch.nodes, batch.times, draw=batch.draw, positions=batch.positions
            )
        self.meter.count("roots", batch.nodes.numel())
        self.meter.count("sampled_edges", sum(hop.eids.numel() for one in samples for hop in one))
        edges = self._edges if self.workload.edge_dim else None
        with self.meter.phase("compute"):
            if self.memory is None:
                return self.model(samples, self._nodes, edges), None
            recalled = self._recall(samples[0][-1])
            states = self.model.states(recalled.memories, self._nodes(recalled.vertices))
            # One row per vertex in memory, and its gradients added up there in a fixed order.
            hidden = self.model(
                samples, lambda _: functional.embedding(recalled.place, states), edges
            )
            return hidden, recalled

    def _nodes(self, ids: Tensor) -> Tensor:
        if not self.workload.node_dim:
            return torch.zeros(ids.numel(), 0, device=self.device, dtype=self.dtype)
        with self.meter.phase("fetch"):
            self.meter.count("node_rows", ids.numel())
            found = self.access.node_features(ids.to(self._ids_device))
            return found.to(self.device, self.dtype)

    def _edges(self, eids: Tensor) -> Tensor:
        with self.meter.phase("fetch"):
            self.meter.count("edge_rows", eids.numel())
            found = self.access.edge_features(eids.to(self._ids_device))
            return found.to(self.device, self.dtype)

    def _recall(self, last: SampledHop) -> Recalled:
        """Memories of all that the farthest hop names, each vertex read once."""
        with self.meter.phase("memory"):
            named = torch.cat([last.nodes, last.neighbours]).to(self.device)
            vertices, place = torch.unique(named, return_inverse=True)
            rows = self.memory.read(vertices)
            self.meter.count("memory_rows", vertices.numel())
        memories = self.model.remember(rows)
        return Recalled(vertices, place, rows, memories)

    def _memorise(self, batch: Batch, recalled: Recalled | None) -> None:
        """Keep memories of a batch's ends, and leave each the message of its last event."""
        if recalled is None or not batch.events.numel():
            return
        edges = self._edges(batch.events) if self.workload.edge_dim else None
        with self.meter.phase("memory"), torch.no_grad():
            self._write(batch, *last_messages(recalled, batch.events, batch.times, edges))

    def _write(self, batch: Batch, ids: Tensor, events: Tensor, rows: MemoryRows) -> None:
        """Write what a batch leaves in memory, or hold it until its last time is over."""
        if batch.holds is not None:
            self._held.add(batch.holds, ids, events, rows)
            return
        self._write_held()
        self.memory.write(ids, events, rows)

    def _write_held(self) -> None:
        """Write what batches of a time that is over have left."""
        for ids, events, rows in self._held.writes:
            self.memory.write(ids, events, rows)
        self._held = HeldWrites()

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Take back what was held and is written meanwhile."""
        held = self._held
        before = [(ids, events, self.memory.read(ids)) for ids, events, _ in held.writes]
        try:
            yield
        finally:
            if self._held is not held:
                for ids, events, rows in before:
                    self.memory.write(ids, events, rows)
                self._held = held

    @contextmanager
    def _inference(self) -> Iterator[None]:
        self.model.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            self.model.train()

    @contextmanager
    def _dropping(self, draw: int) -> Iterator[None]:
        """Seed dropout, so that the dropped entries depend on the batch alone."""
        if not self.workload.dropout:
            yield
            return
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(draw)
            yield
