"""One worker's trainer: the steps of the plain trainer, dealt out by a placement (section 4.1)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgbench.runtime.collectives import Communicator
from dgbench.runtime.errors import InvalidInputError, UnsupportedError
from dgbench.systems.base.sequences import ScoredOutputs, SequenceTrainer, SequenceWorkload
from dgbench.systems.dgc.exchange import PlainRows, RowExchange
from dgbench.systems.dgc.fusion import fuse_units, shared_rows
from dgbench.systems.dgc.halo_lists import RowLists, halo_lists
from dgbench.systems.dgc.placement import Placement
from dgbench.systems.dgc.plan import (
    Entries,
    Fusion,
    WorkerPlan,
    make_groups,
    plan_worker,
    step_entries,
)
from dgbench.systems.dgc.rows import take_rows, turn
from dgbench.systems.dgc.segments import Temporal
from dgbench.systems.dgc.worker import TIME, Worker

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence
    from dgbench.kernels_cuda.supergraph import Supergraph


class ChunkRankTrainer(SequenceTrainer):
    """Trains on a share of the vertex-steps; every method is called by all workers alike.

    Parameters are replicated and stay equal, for all workers step with the same summed gradient.
    Losses, gradients and outputs that it returns are those of all vertex-steps.

    Attributes:
        comm: this worker's end of the group; its traffic is what was sent.
        placement: who does what.
        plan: this worker's share.
        worker: its forward pass.
        exchange: how rows of others are had.
        unit_bytes: float64[units], what each unit of this worker held in the first epoch, where
            that was measured.
    """

    def __init__(
        self,
        comm: Communicator,
        workload: SequenceWorkload,
        data: SnapshotSequence,
        placement: Placement,
        *,
        fusion: Fusion = "whole",
        temporal: Temporal = "packed",
        precompute: bool = False,
        fused: Tensor | None = None,
        memory_limit: int | None = None,
        exchange: RowExchange | None = None,
        graph: Supergraph | None = None,
        entries: Entries | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Lay the data out for this worker.

        Args:
            comm: of a CPU or of a CUDA device, of as many ranks as the placement has workers.
            workload, data: as of `PlainSequences`; equal on all ranks.
            placement: of the workload's vertex-steps; equal on all ranks.
            fusion, temporal, fused, entries: see `plan_worker`.
            memory_limit: bytes that units which the structure encoder takes together may hold, for
                `fusion` "spatial" without `fused`: the first epoch of training then goes unit by
                unit and measures each, and units are fused after it (section 5.1.1).
            precompute: fetch the input rows of others once, see `Worker`.
            exchange: None: `PlainRows`.
            graph: `vertex_steps` of the workload, where it is known already.
            dtype: float32 or float64.

        Raises:
            InvalidInputError: a placement of another number of workers or of other vertex-steps.
            UnsupportedError: a device of another kind.
        """
        if comm.device.type not in ("cpu", "cuda"):
            raise UnsupportedError(
                f"ranks do not train on '{comm.device}'", hint="device='cpu' or 'cuda'"
            )
        if placement.workers != comm.size:
            raise InvalidInputError(
                f"the placement is for {placement.workers} workers, the group has {comm.size} ranks"
            )
        super().__init__(
            workload, data, device=str(comm.device), meter=comm.meter, dtype=dtype, graph=graph
        )
        self.comm, self.placement = comm, placement
        self.exchange: RowExchange = PlainRows(comm) if exchange is None else exchange
        self.unit_bytes: Tensor | None = None
        self._limit = memory_limit if fusion == "spatial" and fused is None else None
        self.plan: WorkerPlan = plan_worker(
            data,
            self.graph,
            placement,
            comm.rank,
            attention=not self.model.state_dims,
            norm=workload.norm,
            fusion=fusion if self._limit is None else "none",
            temporal=temporal,
            fused=fused,
            entries=step_entries(data, self.graph, workload.norm) if entries is None else entries,
        )
        ids = self.plan.structure.rows
        steps, entities = self.graph.step[ids].long(), self.graph.entity[ids].long()
        features = torch.as_tensor(data.features)[steps, entities]
        self.worker = Worker(
            comm,
            self.model,
            self.plan,
            features,
            self.exchange,
            temporal=temporal,
            precompute=precompute,
            regroups=self._limit is not None,
        )
        self._task_lists: RowLists | None = None
        self._part = self._scored()

    @property
    def stages(self) -> int:
        """Segments that no worker can run before another has ended (1 for attention)."""
        return self.plan.critical_path

    def accumulate(self) -> float:
        with self.meter.phase("update"):
            out = turn(self.worker.forward(), self.meter, TIME)
            hidden = self._hidden(out)
            loss = self.task.loss_sum(self.model.head, hidden, self._part) / self.task.count
            loss.backward()
            return self._summed(loss)

    def train_epoch(self) -> float:
        held = None if self._limit is None else self.worker.measure()
        loss = super().train_epoch()
        self.exchange.end_epoch(loss)
        if held is not None:
            self._fuse(held.bytes, self._limit)
        self._limit = None
        return loss

    def _fuse(self, held: list[int], limit: int) -> None:
        """Take units together from now on, the bytes of each group being known."""
        structure, units = self.plan.structure, self.placement.units
        self.unit_bytes = torch.zeros(units, dtype=torch.float64)
        for group, count in zip(structure.groups, held, strict=True):
            self.unit_bytes[group.units] = float(count)
        unit = self.placement.unit[structure.rows].long()
        reads = shared_rows(structure.csr, unit, units)
        group = fuse_units(reads, memory=self.unit_bytes, limit=limit).group[unit]
        groups = make_groups(structure.csr, structure.loop, group, unit)
        self.plan = replace(self.plan, structure=replace(structure, groups=groups))
        self.worker.regroup(self.plan)

    @torch.no_grad()
    def outputs(self) -> Tensor:
        """[V, D] on every worker."""
        own = self.worker.forward().index_select(0, self.worker.place)
        owner = self.placement.time.long()
        counts = torch.bincount(owner, minlength=self.comm.size).tolist()
        whole = self.comm.all_gather(own, counts)
        order = torch.argsort(owner, stable=True).to(self.device)
        return torch.empty_like(whole).index_copy_(0, order, whole)

    @torch.no_grad()
    def accuracy(self) -> float:
        """Share of right predictions on what is held out; every worker gets the same."""
        hidden = self._hidden(self.worker.forward())
        found = self.task.hits(self.model.head, hidden, self._part)
        right, total = self.comm.all_reduce(
            torch.tensor(found, dtype=torch.float64, device=self.device)
        ).tolist()
        return right / total if total else 0.0

    def _scored(self) -> ScoredOutputs:
        """Scored outputs of this worker, over the rows that `_hidden` gives."""
        scored, rank, time = self.task.scored, self.comm.rank, self.plan.time
        scorer = self.task.owners(self.placement.time)
        mine = scorer == rank
        label, test = scored.label[mine], scored.test[mine]
        place = self.worker.place.cpu()
        places = scored.places[..., mine]
        if self.workload.task == "active":
            self._own = place[torch.searchsorted(time.rows, places)].to(self.device)
            return ScoredOutputs(torch.arange(label.numel()), label, test).to(self.device)
        # Ends of pairs: own rows once each, then those of others, then nothing.
        exists = scored.places < self.task.vertices
        reader = scorer.expand_as(exists)[exists]
        owner = self.placement.time
        read = scored.places[exists]
        idle = not bool((owner[read] != reader).any())
        halo, lists = halo_lists(owner, time.rows, rank, self.comm.size, reader, read, idle=idle)
        self._task_lists = replace(lists, send=place[lists.send]).to(self.device)
        there = places < self.task.vertices
        ends = places[there]
        own, at = torch.unique(ends[owner[ends] == rank], return_inverse=True)
        found = torch.empty_like(ends)
        found[owner[ends] == rank] = at
        order = torch.argsort(halo)
        others = ends[owner[ends] != rank]
        if others.numel():
            found[owner[ends] != rank] = (
                own.numel() + order[torch.searchsorted(halo[order], others)]
            )
        local = torch.full_like(places, own.numel() + halo.numel())
        local[there] = found
        self._own = place[torch.searchsorted(time.rows, own)].to(self.device)
        return ScoredOutputs(local, label, test).to(self.device)

    def _hidden(self, out: Tensor) -> Tensor:
        """The rows that are scored here."""
        own = take_rows(out, self._own)
        if self._task_lists is None:
            return own
        return torch.cat([own, self.exchange.fetch("task", out, self._task_lists)])

    def _summed(self, loss: Tensor) -> float:
        """Sum gradients over the workers, and the loss with them, in one all-reduce."""
        parameters = list(self.model.parameters())
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = torch.cat([*(g.reshape(-1) for g in grads), loss.detach().reshape(1)])
        with self.comm.phase("backward"):
            whole = self.comm.all_reduce(flat)
        sizes = [p.numel() for p in parameters]
        for p, part in zip(parameters, whole[:-1].split(sizes), strict=True):
            p.grad = part.view_as(p).clone()
        return float(whole[-1])
