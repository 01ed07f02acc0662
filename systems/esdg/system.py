"""ESDG on one process as a plugin: its switches and its trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import torch
from torch import Tensor

from dgbench.kernels_cuda.difference import INDEX_TYPES, count_changes
from dgbench.models import TimelineState
from dgbench.models.aggregation import Aggregator
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.memory import available_memory
from dgbench.runtime.meter import Meter
from dgbench.runtime.transfer import open_link
from dgbench.systems.base.system import System
from dgbench.systems.base.timeline import TimelineTrainer, TimelineWorkload, load_timeline
from dgbench.systems.esdg.checkpoint import BlockRunner
from dgbench.systems.esdg.forward import (
    forward_block,
    fused_temporal,
    kept_rows,
    lean_state,
    plain_temporal,
    scored_block,
)
from dgbench.systems.esdg.memory import MemoryTally
from dgbench.systems.esdg.plan import (
    border_at,
    border_bytes,
    device_cost,
    fewest_blocks,
    paper_cost,
    peak_bytes,
    split_blocks,
)
from dgbench.systems.esdg.techniques import TECHNIQUES
from dgbench.systems.esdg.transfer import Delivery, TransferFormat, slots_for

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence
    from dgbench.lab.experiment import Measurement, RunContext
    from dgbench.systems.base.rank_training import RankTraining

MEMORY_SHARE: Final = 0.8
"""Of the device's free memory, what blocks may take where no budget is given."""


class EsdgTrainer(TimelineTrainer):
    """Trains a timeline in blocks: gradient checkpoint, graph difference, aggregated first layer.

    Losses and gradients are those of `PlainTimeline` under every switch, up to rounding.

    Args:
        workload, data: the task and its snapshots, from `load_timeline`.
        switches: a truth value for each of `EsdgSystem.techniques`.
        nb: number of blocks; None lets the budget decide.
        memory_bytes: budget of the device for what `plan` counts; None takes a share of what is
            free. Ignored where `nb` is given.
        device, meter, dtype: as in `TimelineTrainer`.

    Attributes:
        blocks: ranges of snapshots.
        prefetching: whether the next block's inputs travel while one computes.
        interleaving: whether outputs are scored while the last layer makes them: as switched, and
            where a budget gets by with fewer blocks that way.

    Raises:
        InvalidInputError: an `nb` that is no number of blocks, or a budget that nothing fits into.
    """

    def __init__(
        self,
        workload: TimelineWorkload,
        data: SnapshotSequence,
        switches: Mapping[str, bool],
        *,
        nb: int | None = None,
        memory_bytes: int | None = None,
        device: str = "cpu",
        meter: Meter | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(workload, data, device=device, meter=meter, dtype=dtype)
        self.on = dict(switches)
        self.form = TransferFormat(
            difference=self.on["difference"],
            index="int32" if self.on["int32"] else "int64",
            ship_loops=self.on["ship_loops"],
            ship_values=not self.on["recompute_values"],
            fallback=self.on["fallback"],
            precompute=self.on["precompute"],
            coordinates=self.on["paper_layout"],
        )
        on_cpu = self.device.type == "cpu"
        self._weighted = any(csr.values is not None for csr in data.topology)
        self._copies = not on_cpu or self.on["arena"]
        self._cost = partial(
            device_cost,
            self.model,
            values=self._values,
            scales=not self.form.normalised,
            precompute=self.form.precompute,
            fused=self.on["fused_scan"],
            coordinates=self.form.coordinates,
            pairs=2 * workload.theta if workload.task == "link" else 0.0,
            scored={"link": 0, "node": 1, "class": workload.classes}[workload.task],
            itemsize=dtype.itemsize,
        )
        loops = data.num_nodes if self.form.ship_loops else 0
        self._entries = [data.topology[t].nnz + loops for t in range(self.task.steps)]
        self._border = border_at(self.model, data.num_nodes, dtype.itemsize)
        self._changes: list[tuple[int, int]] | None = None
        self.interleaving = self.on["interleave"]
        self.blocks, self.prefetching = self._plan(nb, memory_bytes)
        longest = max(map(len, self.blocks))
        opened = partial(
            open_link,
            self.device,
            self.meter,
            asynchronous=self.on["asynchronous"],
            arena=self.on["arena"] and on_cpu,
        )
        lean = self.on["lean"] and self.on["checkpoint"]
        rows = kept_rows(self.model, self.blocks[0])
        early = len(rows or ()) if lean and self.form.precompute and len(self.blocks) > 1 else 0
        self.delivery = Delivery(
            data,
            range(self.task.steps),
            self.form,
            workload.norm,
            opened(slots=2 * longest if self.prefetching else slots_for(longest)),
            self.meter,
            dtype=dtype,
            apart=opened(slots=1) if self.prefetching else None,
            early=opened(slots=early) if early else None,
        )
        self._temporal = fused_temporal if self.on["fused_scan"] else plain_temporal
        lean_by: Callable[[range, TimelineState | None], TimelineState] | Literal["whole"] | None
        lean_by = "whole" if lean else None
        if lean and rows is not None and (not rows or self.form.precompute):
            lean_by = self._lean
        self.runner = BlockRunner(
            self.model,
            self.delivery.load,
            self._block_loss,
            self.meter,
            recompute=self.on["checkpoint"],
            keep_last=self.on["keep_last"],
            forward=partial(forward_block, self.model, temporal=self._temporal),
            record=self._record if self.interleaving else None,
            lean=lean_by,
            ahead=self.delivery.expect if self.prefetching else None,
        )
        self._ready = False
        self._note()

    def prepare(self) -> None:
        """Find, encode and stage all differences, and aggregate the first layer, once."""
        if not self._ready:
            self.delivery.prepare(self.blocks)
            self._ready = True

    def accumulate(self) -> float:
        self.prepare()
        return self.runner.gradients(self.blocks)

    def outputs(self) -> Sequence[Tensor]:
        self.prepare()
        return self.runner.outputs(self.blocks)

    def planned_bytes(self) -> float:
        """The plan's peak for these blocks: bsize * m_step + nb * m_ckpt, and what is on its way.

        With `prefetch` that is all that travels for the next block, beside this one.
        """
        return self._peak(self.blocks, prefetch=self.prefetching)

    def bytes_with(self, nb: int) -> float:
        """The least that another number of blocks is planned to take.

        Nothing is on its way ahead of time, and outputs are scored while they are made.
        """
        return self._peak(split_blocks(self.task.steps, nb), prefetch=False, interleave=True)

    def paper_bytes(self) -> float:
        """The same by the paper's figures: m_step = 20 nnz + 4 N (widths), nothing on its way."""
        nodes = self.data.num_nodes
        border = border_bytes(self.model, nodes)
        return peak_bytes(self._entries, nodes, self.blocks, paper_cost(self.model), border)

    def epoch_bytes(self) -> int:
        """Bytes that one epoch brings to the device.

        All inputs once for the pass that is recorded, and again for the first pass: all of them, or
        with `lean` what the borders need.
        """
        self.prepare()
        delivery, again = self.delivery, self._first_pass()
        total = delivery.topology_bytes(self.blocks) + delivery.feature_bytes(self.blocks)
        if callable(self.runner.lean):
            rows = [kept_rows(self.model, block) or block[:0] for block in again]
            return total + delivery.feature_bytes(rows)
        return total + delivery.topology_bytes(again) + delivery.feature_bytes(again)

    def _first_pass(self) -> list[range]:
        """Blocks that are run before any is recorded."""
        if not self.on["checkpoint"]:
            return []
        return self.blocks[:-1] if self.on["lean"] or self.on["keep_last"] else [*self.blocks]

    def measure_peak(self) -> int:
        """Bytes of all tensors of one pass forward and back, at their peak; trains nothing.

        On CUDA the allocator's own number, elsewhere every operation is watched, which is slow.
        """
        self.prepare()
        self.model.zero_grad(set_to_none=True)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            before = torch.cuda.memory_allocated(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
            self.accumulate()
            found = torch.cuda.max_memory_allocated(self.device) - before
        else:
            with MemoryTally() as tally:
                self.accumulate()
            found = tally.peak
        self.model.zero_grad(set_to_none=True)
        return found

    def report(self) -> dict[str, float]:
        found: dict[str, float] = {
            "blocks": len(self.blocks),
            "planned_peak_bytes": self.planned_bytes(),
            "paper_peak_bytes": self.paper_bytes(),
        }
        if self._ready:
            plain = [self.delivery.difference(t) for t in range(self.task.steps)]
            found["plain_snapshots"] = sum(d.plain for d in plain)
            found["topology_epoch_bytes"] = self.delivery.topology_bytes(self.blocks)
            found["feature_epoch_bytes"] = self.delivery.feature_bytes(self.blocks)
        return found

    def close(self) -> None:
        super().close()
        self.delivery.close()
        self._ready = False

    def _plan(self, nb: int | None, memory_bytes: int | None) -> tuple[list[range], bool]:
        """Blocks, and whether the next one's inputs travel while one computes."""
        steps = self.task.steps
        if not self.on["checkpoint"]:
            if nb not in (None, 1):
                raise InvalidInputError(
                    f"nb is {nb}, but the switch 'checkpoint' is off, which records all at once",
                    hint="give no nb, or switch checkpoint on",
                )
            return split_blocks(steps, 1), False
        if nb is not None:
            return split_blocks(steps, nb), self.on["prefetch"] and nb > 1
        budget = memory_bytes
        if budget is None:
            budget = int(MEMORY_SHARE * free_memory(self.device))
        blocks = fewest_blocks(steps, partial(self._peak, prefetch=False, interleave=True), budget)
        # It costs time, and fewer blocks save more of it.
        self.interleaving |= self._peak(blocks, prefetch=False) > budget
        if not self.on["prefetch"] or len(blocks) == 1:
            return blocks, False
        # Fewer blocks come first: they keep fewer borders and gain more from differences.
        need = self._peak(blocks, prefetch=True)
        if need <= budget:
            return blocks, True
        self.notes.append(
            f"prefetch is off: two blocks at a time need {need / 2**20:.1f} MiB, the budget is "
            f"{budget / 2**20:.1f} MiB"
        )
        return blocks, False

    @property
    def _values(self) -> bool:
        """True if values are transferred."""
        return self.form.ship_values or self._weighted

    @property
    def _arrival(self) -> int:
        """Bytes per entry of the indices of one plain snapshot on its way."""
        return 2 * INDEX_TYPES[self.form.index].itemsize if self._copies else 0

    def _peak(
        self, blocks: Sequence[range], *, prefetch: bool, interleave: bool | None = None
    ) -> float:
        nodes = self.data.num_nodes
        early = 0
        if self.on["lean"] and self.form.precompute and len(blocks) > 1 and self._copies:
            rows = kept_rows(self.model, blocks[0])
            early = len(rows or ()) * self._feature_bytes
        ahead = prefetch and self._copies
        found = peak_bytes(
            self._entries,
            nodes,
            blocks,
            self._cost(interleave=self.interleaving if interleave is None else interleave),
            self._border,
            0 if ahead else self._arrival,
            twice=self.on["checkpoint"] and not (self.on["lean"] or self.on["keep_last"]),
        )
        if not ahead:
            return found + early
        value = 4 if self._values else 0
        kept = max(
            sum(value * self._entries[t] + self._feature_bytes for t in block) for block in blocks
        )
        return found + early + kept + max(map(self._change_bytes, blocks))

    @property
    def _feature_bytes(self) -> int:
        """Of one snapshot."""
        return self.dtype.itemsize * self.data.num_nodes * self.workload.feature_dim

    def _change_bytes(self, block: range) -> int:
        """Bytes of the changes of a block's snapshots, its first one plain."""
        if self._changes is None:
            self._changes = [(0, 0)]
            for t in range(1, self.task.steps):
                before, now = self.data.topology[t - 1], self.data.topology[t]
                self._changes.append((0, 0) if before is now else count_changes(before, now))
        total = 0
        for t in block:
            entries = sum(self._changes[t])
            if t == block.start or not self.form.difference:
                entries = self._entries[t]
            elif self.form.fallback:
                entries = min(entries, self._entries[t])
            total += entries
        return total * 2 * INDEX_TYPES[self.form.index].itemsize

    def _record(
        self, inputs: Aggregator, block: range, state: TimelineState | None
    ) -> tuple[Tensor, TimelineState]:
        score = partial(self.task.loss_sum, self.model.head)
        total, after = scored_block(
            self.model, inputs, block, state, score, temporal=self._temporal
        )
        return total / self.task.count, after

    def _lean(self, block: range, state: TimelineState | None) -> TimelineState:
        with self.delivery.rows(kept_rows(self.model, block) or ()) as rows:
            return lean_state(self.model, rows, block, state)

    def _block_loss(self, block: range, hidden: Sequence[Tensor]) -> Tensor:
        head = self.model.head
        sums = [self.task.loss_sum(head, t, h) for t, h in zip(block, hidden, strict=True)]
        return torch.stack(sums).sum() / self.task.count

    def _note(self) -> None:
        if self._weighted and not self.form.ship_values:
            self.notes.append("the graph is weighted, so weights travel: degrees cannot make them")
        if self.device.type != "cpu" and self.on["arena"]:
            self.notes.append("the switch 'arena' has no effect on a device, where copies are real")


class EsdgSystem(System):
    """ESDG: full-batch training of a whole timeline, in blocks of snapshots."""

    name = "esdg"
    title = "ESDG"
    kind = "paper"
    about = (
        "Full batch over the whole timeline: gradient checkpoint over blocks of snapshots, "
        "snapshots sent as differences, first aggregation made once."
    )
    provenance = "re-implemented from the paper (SC 2021); no code was released"
    techniques = TECHNIQUES
    trains = (TimelineWorkload, "trains a whole timeline, not frames")
    enters = ("timeline-training@1",)

    def race_ranks(
        self, workload: Any, ranks: int, context: RunContext, *, least: int, timeout_s: float
    ) -> Measurement:
        from dgbench.systems.esdg.rank_race import race_ranks

        return race_ranks(workload, ranks, context, least=least, timeout_s=timeout_s)

    def rank_training(self) -> RankTraining:
        from dgbench.systems.esdg.ranked import TimelineRanks

        return TimelineRanks()

    def open(
        self,
        workload: TimelineWorkload,
        *,
        device: str = "cpu",
        switches: Mapping[str, bool] | None = None,
        meter: Meter | None = None,
        **settings: Any,
    ) -> EsdgTrainer:
        """As `System.open`; `settings` are `nb`, `memory_bytes` and others of `EsdgTrainer`."""
        on = self.switches(switches)
        data = load_timeline(workload)
        return EsdgTrainer(workload, data, on, device=device, meter=meter, **settings)


def free_memory(device: torch.device) -> int:
    """Bytes that could be taken now: of the CUDA device, else of the machine."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return available_memory()
