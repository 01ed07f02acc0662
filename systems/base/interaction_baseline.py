"""Training of T-GCN's baselines: all edges in order, everything on one device, padded tensors.

The paper runs DyGNN and JODIE so (sections 2.4 and 6.1): all state on the device, t-batches padded
to the largest of them, and no copy beside a computation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import torch

from dgbench.kernels_cuda.interact import local_rows
from dgbench.models.streaming import IntervalEdges, build_interaction_model
from dgbench.runtime.errors import UnsupportedError
from dgbench.runtime.meter import Meter
from dgbench.systems.base.interaction_layout import Group
from dgbench.systems.base.interaction_push import NEIGHBOUR_BYTES
from dgbench.systems.base.interaction_trainer import InteractionTrainer
from dgbench.systems.base.interactions import (
    InteractionData,
    InteractionWorkload,
    load_interactions,
)
from dgbench.systems.base.system import System, Technique

SAVED: Final = {"dygnn": 44, "jodie": 24}
"""Vectors of H floats per row of a step that the forward pass keeps for the backward pass and that
the backward pass makes; `tests/systems/test_interactions.py` holds that they are enough."""

PADDING: Final = Technique(
    "padding",
    "Every t-batch is padded to the largest, so that tensors are regular; off: as long as it is.",
    exact=True,
    source="T-GCN, section 2.4",
)
SEQUENTIAL: Final = Technique(
    "sequential",
    "Edge by edge instead of in t-batches that amount to the same.",
    exact=True,
    source="DyGNN (SIGIR 2020), section 3",
    default=False,
)


class BaselineTrainer(InteractionTrainer):
    """t-batches of all edges, in order, on one device.

    Attributes:
        pad: edges of the largest t-batch, to which all are padded; 0 without padding.
        planned_bytes: of device memory: state, parameters with what Adam keeps, and the largest
            step.
    """

    def __init__(
        self,
        workload: InteractionWorkload,
        data: InteractionData,
        switches: Mapping[str, bool],
        *,
        device: str = "cpu",
        meter: Meter | None = None,
        dtype: torch.dtype = torch.float32,
        memory_bytes: int | None = None,
    ) -> None:
        """Plan the memory, then take it.

        Args:
            workload, data: of `load_interactions`.
            switches: `padding` and `sequential`.
            device: where everything lies.
            meter, dtype: as of every trainer.
            memory_bytes: that may be taken on the device; None for as much as there is.

        Raises:
            UnsupportedError: more would be taken.
        """
        self._padded = switches["padding"]
        super().__init__(
            workload,
            data,
            device=device,
            meter=meter,
            dtype=dtype,
            order="events" if switches["sequential"] else "t-batches",
            spare_rows=1 if self._padded else 0,
        )
        sizes = [
            events.numel()
            for first, last in ((0, data.train_end), (data.train_end, len(data.events)))
            for group in self.groups(first, last)
            for events in group
        ]
        largest = max(sizes, default=0)
        self.pad = largest if self._padded else 0
        self.padded_edges = len(sizes) * largest if self._padded else sum(sizes)
        self.planned_bytes = planned_bytes(self, largest)
        if memory_bytes is not None and self.planned_bytes > memory_bytes:
            raise UnsupportedError(
                f"out of memory: {self.planned_bytes / 2**20:.0f} MiB are needed for "
                f"{data.events.num_nodes} vertices and t-batches of {largest} edges, "
                f"{memory_bytes / 2**20:.0f} MiB may be taken",
                hint="T-GCN streams its state through regions: open the system tgcn",
            )

    def _fresh(self) -> tuple[Any, Any]:
        state, pending = super()._fresh()
        self._pad_waits(pending)
        return state, pending

    def reset_state(self) -> None:
        super().reset_state()
        self._pad_waits(self.pending)

    def _pad_waits(self, pending: Any) -> None:
        if self._padded:
            # Something always waits for the row of padding, so that it costs what an edge costs.
            pending.count_s[-1] = pending.count_g[-1] = 1

    def edges(self, events: torch.Tensor) -> IntervalEdges:
        """The edges of a step, padded: sources, destinations and negatives one behind the other."""
        if not self._padded:
            return super().edges(events)
        stream, count, size = self.data.events, events.numel(), max(self.pad, events.numel())
        columns = [stream.src[events], stream.dst[events]]
        if torch.cat(columns).unique().numel() < 2 * count:
            return self._merged(events, size)
        if self.workload.task == "link":
            columns.append(self.data.negative[events])
        ids = torch.full((len(columns), size), stream.num_nodes, dtype=torch.int64)
        ids[:, :count] = torch.stack(columns)
        t = torch.zeros(size, dtype=torch.float64)
        t[:count] = stream.t[events]
        rows = torch.arange(ids.numel()).view_as(ids)
        return IntervalEdges(
            ids.flatten(),
            rows[0],
            rows[1],
            rows[2] if len(columns) > 2 else rows.new_empty(0),
            t,
            sources=size,
            targets=size,
            ends=2 * size,
            events=events,
            real=count,
            written=rows[:2, :count].flatten(),
        )

    def _merged(self, events: torch.Tensor, size: int) -> IntervalEdges:
        """`edges` of a step that names a vertex several times: every end has one row, and the
        padding the row behind them."""
        stream, count = self.data.events, events.numel()
        found = local_rows(stream.src[events], stream.dst[events], None, self._scratch)
        ends, link = found.ids.numel(), self.workload.task == "link"
        ids = torch.full(((3 if link else 2) * size,), stream.num_nodes, dtype=torch.int64)
        ids[:ends] = found.ids
        rows = torch.full((2, size), min(ends, 2 * size - 1), dtype=torch.int64)
        rows[0, :count], rows[1, :count] = found.src, found.dst
        neg = torch.arange(2 * size, ids.numel())
        if link:
            ids[2 * size : 2 * size + count] = self.data.negative[events]
        t = torch.zeros(size, dtype=torch.float64)
        t[:count] = stream.t[events]
        src, dst = rows
        return IntervalEdges(
            ids,
            src,
            dst,
            neg,
            t,
            sources=2 * size,
            targets=0,
            ends=2 * size,
            events=events,
            real=count,
            written=torch.arange(ends),
        )

    def group_loss(self, group: Group) -> torch.Tensor:
        try:
            return super().group_loss(group)
        except torch.cuda.OutOfMemoryError as error:
            raise UnsupportedError(
                f"out of memory on {self.device}: {self.planned_bytes / 2**20:.0f} MiB were planned"
            ) from error

    def report(self) -> dict[str, float]:
        return {
            "planned_bytes": float(self.planned_bytes),
            "state_bytes": float(self.state_bytes),
            "padded_share": self.padded_edges / max(1, len(self.data.events)),
        }


def planned_bytes(trainer: InteractionTrainer, largest: int) -> int:
    """Bytes on the device: state, neighbours, four times the parameters, the largest step.

    Args:
        trainer: has its state.
        largest: edges of the largest step.
    """
    item = torch.empty(0, dtype=trainer.dtype).element_size()
    parameters = sum(p.numel() for p in trainer.model.parameters())
    rows = largest * (3 if trainer.workload.task == "link" else 2)
    step = rows * trainer.workload.hidden_dim * SAVED[trainer.workload.model] * item
    neighbours = 0 if trainer._push is None else trainer._push.nbytes
    return trainer.state_bytes + neighbours + 4 * parameters * item + step + largest * 8 * 8


def vertex_bytes(model: str, hidden_dim: int, *, propagation: bool = False) -> int:
    """Bytes that a vertex takes on the device: its state, what waits for it, its neighbours.

    Args:
        model: `dygnn` or `jodie`.
        hidden_dim: floats of a vector.
        propagation: whether neighbours are kept.
    """
    task = InteractionWorkload(
        dataset="none", model=model, hidden_dim=hidden_dim, propagation=propagation
    )  # type: ignore[arg-type]
    rows = sum(part.nbytes for part in build_interaction_model(task).new_state(1))
    return rows + (NEIGHBOUR_BYTES if propagation else 0)


class BaselineSystem(System):
    """Base class of the two baselines; a subclass names its model and its switches."""

    kind = "baseline"
    model: str
    trains = (InteractionWorkload, "trains on interactions")

    def open(
        self,
        workload: Any,
        *,
        device: str = "cpu",
        switches: Mapping[str, bool] | None = None,
        meter: Meter | None = None,
        data: InteractionData | None = None,
        dtype: torch.dtype = torch.float32,
        memory_bytes: int | None = None,
    ) -> BaselineTrainer:
        """As `System.open`; the workload's model is this system's, `intervals` and `share` unread.

        Args:
            data: the workload's, where it is loaded already.
            dtype, memory_bytes: of `BaselineTrainer`.

        Raises:
            UnsupportedError: what cannot run, or does not fit.
        """
        on = self.switches(switches)
        if reasons := self.unsupported(workload, device):
            raise UnsupportedError(f"{self.name}: {'; '.join(reasons)}")
        workload = msgspec.structs.replace(
            workload, model=self.model, propagation=on.get("propagation", False)
        )
        data = load_interactions(workload) if data is None else data
        return BaselineTrainer(
            workload, data, on, device=device, meter=meter, dtype=dtype, memory_bytes=memory_bytes
        )
