"""ESDG on one process as a plugin: its switches and its trainer."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from dgbench.kernels_cuda.difference import INDEX_TYPES
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.meter import Meter
from dgbench.runtime.transfer import open_link
from dgbench.systems.base.system import System, Technique
from dgbench.systems.base.timeline import TimelineTrainer, TimelineWorkload, load_timeline
from dgbench.systems.esdg.checkpoint import BlockRunner
from dgbench.systems.esdg.forward import forward_block
from dgbench.systems.esdg.memory import MemoryTally
from dgbench.systems.esdg.plan import (
    border_bytes,
    choose_blocks,
    device_cost,
    paper_cost,
    peak_bytes,
    split_blocks,
)
from dgbench.systems.esdg.transfer import Delivery, Form, slots_for

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence

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
        paper_layout: plan with the paper's layout (20 bytes per entry) instead of this one's.
        device, meter, dtype: as in `TimelineTrainer`.

    Attributes:
        blocks: ranges of snapshots.

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
        paper_layout: bool = False,
        device: str = "cpu",
        meter: Meter | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(workload, data, device=device, meter=meter, dtype=dtype)
        self.on = dict(switches)
        self.form = Form(
            difference=self.on["difference"],
            index="int32" if self.on["int32"] else "int64",
            ship_loops=self.on["ship_loops"],
            ship_values=not self.on["recompute_values"],
            fallback=self.on["fallback"],
            precompute=self.on["precompute"],
        )
        on_cpu = self.device.type == "cpu"
        weighted = any(csr.values is not None for csr in data.topology)
        self._weighted = weighted
        if paper_layout:
            self.cost, self._arrival = paper_cost(self.model), 0
        else:
            self.cost = device_cost(
                self.model,
                values=self.form.ship_values or weighted,
                scales=not self.form.normalised,
                precompute=self.form.precompute,
                fused=self.on["fused_scan"],
                itemsize=dtype.itemsize,
            )
            real = not on_cpu or self.on["arena"]
            self._arrival = 2 * INDEX_TYPES[self.form.index].itemsize if real else 0
        loops = data.num_nodes if self.form.ship_loops else 0
        self._entries = [data.topology[t].nnz + loops for t in range(self.task.steps)]
        self._border = border_bytes(self.model, data.num_nodes, dtype.itemsize)
        self.blocks = self._plan(nb, memory_bytes)
        link = open_link(
            self.device,
            self.meter,
            asynchronous=self.on["asynchronous"],
            arena=self.on["arena"] and on_cpu,
            slots=slots_for(max(map(len, self.blocks))),
        )
        self.delivery = Delivery(
            data, range(self.task.steps), self.form, workload.norm, link, self.meter, dtype=dtype
        )
        self.runner = BlockRunner(
            self.model,
            self.delivery.load,
            self._block_loss,
            self.meter,
            recompute=self.on["checkpoint"],
            keep_last=self.on["keep_last"],
            forward=partial(forward_block, self.model) if self.on["fused_scan"] else None,
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
        """The plan's peak for these blocks: bsize * m_step + nb * m_ckpt."""
        return peak_bytes(
            self._entries,
            self.data.num_nodes,
            self.blocks,
            self.cost,
            self._border,
            self._arrival,
        )

    def epoch_bytes(self) -> int:
        """Bytes that one epoch brings to the device: all inputs once per pass over their block."""
        self.prepare()
        brought = [*self.blocks]
        if self.on["checkpoint"]:
            brought += self.blocks[:-1] if self.on["keep_last"] else self.blocks
        return self.delivery.topology_bytes(brought) + self.delivery.feature_bytes(brought)

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

    def _plan(self, nb: int | None, memory_bytes: int | None) -> list[range]:
        steps = self.task.steps
        if not self.on["checkpoint"]:
            if nb not in (None, 1):
                raise InvalidInputError(
                    f"nb is {nb}, but the switch 'checkpoint' is off, which records all at once",
                    hint="give no nb, or switch checkpoint on",
                )
            return split_blocks(steps, 1)
        if nb is not None:
            return split_blocks(steps, nb)
        budget = memory_bytes
        if budget is None:
            budget = int(MEMORY_SHARE * free_memory(self.device))
        return choose_blocks(
            self._entries, self.data.num_nodes, self.cost, self._border, budget, self._arrival
        )

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
    techniques = (
        Technique(
            "checkpoint",
            "Keep the state at block borders only and run blocks again in the backward pass.",
            exact=True,
            source="ESDG 3.1",
        ),
        Technique(
            "difference",
            "Send a snapshot as what changed since the one before it.",
            exact=True,
            source="ESDG 3.2",
        ),
        Technique(
            "precompute",
            "Aggregate the features of the first layer once, on the host.",
            exact=True,
            source="ESDG 3.3",
        ),
        Technique(
            "fused_scan",
            "Run LSTMs as a compiled scan that records its input only.",
            exact=True,
            source="added: the paper uses torch's LSTM",
        ),
        Technique(
            "fallback",
            "Send a snapshot plain where its difference would be larger.",
            exact=True,
            source="added: the paper sends differences always",
        ),
        Technique(
            "asynchronous",
            "Copy the next snapshot while this one is merged.",
            exact=True,
            source="ESDG 3.2 (pinned memory)",
        ),
        Technique(
            "ship_loops",
            "Send A + I, with entries normalised, instead of adding loops on the device.",
            exact=True,
            source="ESDG 3.2: not said which",
            default=False,
        ),
        Technique(
            "recompute_values",
            "Send no values; the device forms all scales from degrees.",
            exact=True,
            source="added: ablation of ESDG 3.2",
            default=False,
        ),
        Technique(
            "int32",
            "Send indices of four bytes; the paper's gain needs eight.",
            exact=True,
            source="added: ablation of ESDG 3.2",
            default=False,
        ),
        Technique(
            "keep_last",
            "Record the last block's forward pass instead of running it again.",
            exact=True,
            source="added: the paper runs every block again",
            default=False,
        ),
        Technique(
            "arena",
            "On a CPU, copy into memory apart, so that bytes really move.",
            exact=True,
            source="dgbench: stand-in for a device",
            default=False,
        ),
    )

    def unsupported(self, workload: Any, device: str) -> list[str]:
        reasons = []
        if not isinstance(workload, TimelineWorkload):
            reasons.append("ESDG trains a whole timeline, not frames (`TimelineWorkload`)")
        if torch.device(device).type == "cuda" and not torch.cuda.is_available():
            reasons.append("there is no CUDA device here")
        return reasons

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
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
