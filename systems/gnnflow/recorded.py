"""Stream training on a device as one CUDA graph a batch: sample, network, update and memory.

A switch of ours (`recorded_steps`), not of the paper, whose trainer starts every operator from the
host and reads the size of each sample back: between batches of some hundred events an H200 stands
idle. Here a batch lies in arrays of one size, filled up with events at no vertices, so that a graph
which was recorded once is launched for every batch; an epoch is read back as one loss and three
counts. The mathematics is that of `StreamTrainer`: sums have another order.

Batches that a graph does not fit are trained on by the trainer, operator by operator: longer ones,
and those whose writes to memory wait until a time is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from dgbench.kernels_cuda.batch_rows import MemoryTables, gather_by_count
from dgbench.kernels_cuda.temporal_store.recorded import RecordedBatch
from dgbench.models.ctdg import MemoryRows
from dgbench.runtime.errors import InvalidInputError, UnsupportedError
from dgbench.runtime.transfer.recorded import GraphRecorder
from dgbench.systems.base.adam import as_lies, make_state
from dgbench.systems.base.stream_access import sampling_of
from dgbench.systems.base.stream_batches import batch_draw
from dgbench.systems.base.stream_data import StreamWorkload, negatives_of
from dgbench.systems.gnnflow.device_access import RESIDENT, DeviceAccess

if TYPE_CHECKING:
    from dgbench.systems.base.stream import BatchWatch
    from dgbench.systems.gnnflow.system import GnnflowTrainer

SPARE: Final = 8
"""A batch may be longer by one in so many events: it ends with a time value."""
AT_ONCE: Final = 256
"""Batches that are brought to the device together; a launch takes the next of them."""
ROOM: Final = 4
"""Features lie on the device if they take at most one in so many of its free bytes."""


def why_not(workload: StreamWorkload, access: Any) -> str:
    """Why batches of a workload cannot be recorded over a graph, or ""."""
    if not isinstance(access, DeviceAccess):
        return "launches of a CUDA device are recorded"
    if access.placement != RESIDENT:
        return f"the graph's placement is '{access.placement}', and needs to be '{RESIDENT}'"
    if access.caches:
        return "what a cache brings in depends on what it holds; switch the caches off"
    if workload.snapshots > 1:
        return f"a batch has {workload.snapshots} snapshots; recorded is one"
    if workload.dropout:
        return f"dropout is {workload.dropout:g}, and recorded draws would repeat"
    return ""


class RecordedBatches:
    """Training steps of one trainer, each one launch of the same graph.

    A graph is good as long as the store's memory is: `fits` says whether it still is.

    Args:
        trainer: over a `DeviceAccess` for which `why_not` finds nothing; it has taken in at least
            one event.
        recorder: makes the graph.

    Raises:
        UnsupportedError: a batch is too large, or could not be captured.
    """

    def __init__(self, trainer: GnnflowTrainer, recorder: GraphRecorder | None = None) -> None:
        task, access = trainer.workload, trainer.access
        self._trainer, self._task, self._store = trainer, task, access.store
        self._device = device = trainer.device
        self._leaves = list(trainer.model.parameters())
        self._optimiser = trainer.optimiser
        self._growths = self._store.growths
        self._most = most = task.batch + task.batch // SPARE
        memory = trainer.memory
        tables = None if memory is None else MemoryTables(*memory.columns)
        how = sampling_of(task)
        del how["snapshots"]
        try:
            self._batch = RecordedBatch(
                self._store, most, task.fanouts, **how,
                search="binary" if access.on["fences"] else "linear",
                features=self._placed(trainer.data.node_feat), memory=tables,
            )  # fmt: skip
        except InvalidInputError as error:
            raise UnsupportedError(f"a batch cannot be recorded: {error}") from error
        self._edge_table = self._placed(trainer.data.edge_feat)
        hops = self._batch.samples
        width = task.edge_dim
        rooms = [hop.eids.numel() for hop in hops if width]
        self._edges = [torch.zeros(n, width, device=device) for n in rooms]
        self._own_edges = torch.zeros(most, width, device=device)
        self._event = torch.arange(most, device=device)
        ids: dict[str, Any] = {"dtype": torch.int64, "device": device}
        self._given = torch.zeros(AT_ONCE, 5, most, **ids)
        self._heads = torch.zeros(AT_ONCE, 2, **ids)  # of each its events and the draw before
        self._number = torch.zeros(1, **ids)  # of the next one
        self._live = torch.zeros(1, **ids)  # events of the batch
        self._names = torch.arange(hops[-1].eids.numel(), device=device)
        self._kinds = torch.arange(3, device=device).unsqueeze(1)
        # Sampled edges, distinct vertices and rows of edges since they were read back.
        self._counted = torch.zeros(3, **ids)
        self._total = torch.zeros(1, dtype=torch.float64, device=device)  # loss, times events
        recorder = recorder or GraphRecorder(device, trainer.meter)
        with recorder.aside():
            self._warm_up()
            try:
                self._launch, _ = recorder.record(lambda _: self._step())
            except Exception as error:
                raise UnsupportedError(
                    "the step could not be captured in a CUDA graph: "
                    f"{type(error).__name__}: {error}",
                    hint="switch 'recorded_steps' off to run it operator by operator",
                ) from error
        self._counted.zero_()
        self._total.zero_()
        for leaf in self._leaves:
            leaf.grad = None

    def fits(self) -> bool:
        """Return True if a launch finds what it found when it was recorded."""
        same = self._trainer.optimiser is self._optimiser
        return same and self._store.growths == self._growths

    def train_on(
        self, parts: Sequence[Tensor], epoch: int, watch: BatchWatch | None = None
    ) -> float:
        """Train on batches, one after the other; mean loss of their events, as of a trainer.

        A launch adds its loss up on the device, so that `watch` is told none of it alone.
        """
        trainer, launched = self._trainer, 0
        for first in range(0, len(parts), AT_ONCE):
            now = parts[first : first + AT_ONCE]
            for part, fits in zip(now, self._bring(now, epoch), strict=True):
                if watch is not None:
                    watch.before(part)
                if not fits or trainer.holds_writes:
                    loss = trainer.enqueue_batch(part, epoch)
                    if watch is not None:
                        watch.after(loss)
                    self._total += loss.to(torch.float64) * part.numel()
                    self._number += 1
                    continue
                with trainer.meter.phase("compute"):
                    self._launch()
                if watch is not None:
                    watch.after(None)
                launched += part.numel()
        return self._read(launched) / sum(part.numel() for part in parts)

    # --- before and after -------------------------------------------------------------------------

    def _bring(self, parts: Sequence[Tensor], epoch: int) -> list[bool]:
        """Bring batches to where launches find them; which of them a graph fits."""
        trainer, data, task, count = self._trainer, self._trainer.data, self._task, len(parts)
        stream, events = data.events, torch.cat(list(parts))
        sizes = torch.tensor([part.numel() for part in parts])
        ends = sizes.cumsum(0)
        number = torch.repeat_interleave(torch.arange(count), sizes)
        place = torch.arange(events.numel()) - (ends - sizes)[number]
        given = torch.full((count, 5, self._most), -1, dtype=torch.int64)
        given[:, 4] = 0  # a time, and no NaN
        columns = (
            stream.src[events], stream.dst[events], negatives_of(task, data, events), events,
            stream.t[events].view(torch.int64),
        )  # fmt: skip
        inside = place < self._most
        given[number[inside], :, place[inside]] = torch.stack(columns, dim=1)[inside]
        draws = [batch_draw(task, first, epoch) for first in events[ends - sizes].tolist()]
        # The first launch of a batch adds 1 to the draw.
        heads = torch.stack([sizes, torch.tensor(draws) - 1], dim=1)
        if trainer.memory is not None:  # launches write its columns
            trainer.memory.keep(torch.cat(columns[:2]).unique())
        self._given[:count].copy_(given)
        self._heads[:count].copy_(heads)
        self._number.zero_()
        fits = sizes <= self._most
        if task.ends_with_time:  # else writes wait until a time is over
            last = events[ends - 1]
            after = stream.t[(last + 1).clamp(max=len(stream) - 1)]
            fits &= (stream.t[last] != after) | (last + 1 == len(stream))
        return fits.tolist()

    def _read(self, launched: int) -> float:
        """The summed loss on the host; the meter is told what the launches have counted."""
        counted = torch.cat([self._total, self._counted.to(torch.float64)]).tolist()
        self._counted.zero_()
        self._total.zero_()
        loss, sampled, distinct, edges = counted
        counts = {"roots": 3 * launched, "sampled_edges": int(sampled)}
        if self._batch.memory is not None:
            counts["memory_rows"] = int(distinct)
        if self._batch.node_rows is not None:
            counts["node_rows"] = int(distinct)
        if self._edge_table is not None:
            counts["edge_rows"] = int(edges)
        for name, amount in counts.items():
            self._trainer.meter.count(name, amount)
        return loss

    def _placed(self, table: Tensor | None) -> Tensor | None:
        """Features where launches read them: on the device, or page-locked where they are large."""
        if table is None or self._device.type != "cuda":
            return table
        free, _ = torch.cuda.mem_get_info(self._device)
        if ROOM * table.nbytes <= free:
            return table.to(self._device)
        return table if table.is_pinned() else table.pin_memory()

    # --- recording --------------------------------------------------------------------------------

    def _warm_up(self) -> None:
        """Load kernels, and make the optimiser's state; nothing is trained or remembered by it."""
        self._given.fill_(-1)
        self._given[:, 4] = 0
        self._heads[:, 0] = 1
        self._gradients()
        make_state(self._optimiser)

    def _step(self) -> Tensor:
        """One batch; returns its loss before the update."""
        loss, gradients, memories = self._gradients()
        for leaf, gradient in zip(self._leaves, gradients, strict=True):
            leaf.grad = as_lies(gradient, leaf)
        self._optimiser.step()
        batch = self._batch
        if memories is not None:
            own = None
            if self._edge_table is not None:
                own = self._rows(batch.given[3], self._live, self._own_edges)
            batch.write(memories.detach(), own)
        self._counted[0] += sum(hop.offsets[-1] for hop in batch.samples)
        self._counted[1] += batch.distinct.count[0]
        self._total += loss.to(torch.float64) * self._live
        self._number += 1
        return loss

    def _gradients(self) -> tuple[Tensor, tuple[Tensor | None, ...], Tensor | None]:
        """Loss of a batch, its gradients, and memories with their messages taken in."""
        model, batch, dtype = self._trainer.model, self._batch, self._trainer.dtype
        hops = batch.samples
        torch.index_select(self._given, 0, self._number, out=batch.given.unsqueeze(0))
        head = self._heads.index_select(0, self._number)[0]
        self._live.copy_(head[:1])
        batch.draws.copy_(head[1:])
        # Draws go by the places of roots in the batch as it is, not as it is filled up.
        places = hops[0].positions.view(3, -1)
        torch.add(self._event, self._kinds * self._live, out=places)
        batch.read(insert=False)
        if batch.node_rows is not None:
            states = batch.node_rows.to(dtype)
        else:
            states = torch.zeros(batch.distinct.ids.numel(), 0, dtype=dtype, device=self._device)
        memories = None
        if batch.memory is not None:
            memories = model.remember(MemoryRows(*batch.memory.rows.all))
            states = model.states(memories, states)
        rooms = {
            hop.eids.data_ptr(): (hop, room) for hop, room in zip(hops, self._edges, strict=False)
        }

        def edges(eids: Tensor) -> Tensor:
            hop, room = rooms[eids.data_ptr()]
            return self._rows(eids, hop.offsets[-1:], room)

        place = self._place()
        hidden = model(
            [hops], lambda _: functional.embedding(place, states), edges if rooms else None
        )
        positive, negative = model.head(hidden)
        live = (self._event < self._live).to(dtype)
        losses = functional.softplus(-positive) * live, functional.softplus(negative) * live
        loss = (losses[0].sum() + losses[1].sum()) / (2 * self._live[0])
        return loss.detach(), torch.autograd.grad(loss, self._leaves, allow_unused=True), memories

    def _place(self) -> Tensor:
        """int64: row of each target of the farthest hop, then of each neighbour.

        Neighbours stand behind as many targets as there are, of which there may be fewer than there
        is room for. What does not hold has any row; nothing is read of it.
        """
        targets = self._batch.samples[-1].nodes.numel()
        found = self._batch.distinct.place
        first = self._batch.named - self._batch.samples[-1].offsets[-1:]
        after = found[(first + self._names).clamp_(max=found.numel() - 1)]
        return torch.cat([found[:targets], after]).clamp_(min=0)

    def _rows(self, eids: Tensor, live: Tensor, room: Tensor) -> Tensor:
        """Features of the first `live` edges, in memory that stays."""
        gather_by_count(eids, live, [self._edge_table], [room])
        self._counted[2] += live[0]
        return room.to(self._trainer.dtype)
