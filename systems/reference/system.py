"""The oracle that every exact system is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from dgbench.runtime.meter import Meter
from dgbench.systems.base import System, Trainer, Workload
from dgbench.systems.base import data as workload_data
from dgbench.systems.base.training import FrameTrainer, coordinates

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence


class EdgeListAggregator:
    """A-hat as an edge list with one coefficient per edge, loops included.

    `sym` coefficients are torch-geometric's own `gcn_norm`, so that the factored scales of the
    datasets floor are checked against an outside source.
    """

    def __init__(
        self,
        data: SnapshotSequence,
        norm: str,
        *,
        device: torch.device,
        dtype: torch.dtype,
        meter: Meter,
    ) -> None:
        self._data = data
        self._norm = norm
        self._device = device
        self._dtype = dtype
        self._meter = meter
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}

    def raw(self, t: int) -> Tensor:
        return torch.as_tensor(self._data.features[t]).to(self._device, self._dtype)

    def first(self, t: int) -> Tensor:
        return self.apply(t, self.raw(t))

    def apply(self, t: int, h: Tensor) -> Tensor:
        if t in self._kept:
            edges, coefficient = self._kept[t]
        else:
            edges, coefficient = self.normalised(t)
            if self._dtype == torch.float64:  # the oracle, which nobody times
                self._kept[t] = edges, coefficient
        self._meter.count("aggregations")
        self._meter.count("edges_aggregated", edges.shape[1])
        message = h.index_select(0, edges[0]) * coefficient[:, None]
        return torch.zeros_like(h).index_add(0, edges[1], message)

    def normalised(self, t: int) -> tuple[Tensor, Tensor]:
        """Edges int64[2, E + N] (source, destination) and their coefficients [E + N]."""
        csr = self._data.topology[t]
        edges = torch.stack(coordinates(csr)).to(self._device)
        nodes = csr.num_rows
        weight = None if csr.values is None else csr.values.to(self._device, self._dtype)
        if self._norm == "sym":
            from torch_geometric.nn.conv.gcn_conv import gcn_norm

            return gcn_norm(edges, weight, nodes, dtype=self._dtype)
        loops = torch.arange(nodes, device=self._device).expand(2, nodes)
        if weight is None:
            weight = torch.ones(edges.shape[1], dtype=self._dtype, device=self._device)
        weight = torch.cat([weight, weight.new_ones(nodes)])
        edges = torch.cat([edges, loops], dim=1)
        total = weight.new_zeros(nodes).index_add(0, edges[1], weight)
        return edges, weight / total[edges[1]]


class ReferenceTrainer(FrameTrainer):
    """Runs the model's own `forward_frame`, snapshot by snapshot."""

    def __init__(self, workload: Workload, data: SnapshotSequence, **options: object) -> None:
        super().__init__(workload, data, **options)
        self.aggregator = EdgeListAggregator(
            data, workload.norm, device=self.device, dtype=self.dtype, meter=self.meter
        )

    def outputs(self, times: range) -> Sequence[Tensor]:
        with self.meter.phase("compute"):
            return self.model.forward_frame(self.aggregator, times)


class ReferenceSystem(System):
    """Plain PyTorch with nothing clever, in float32 or float64."""

    name = "reference"
    title = "Reference (plain PyTorch)"
    kind = "reference"
    about = (
        "One snapshot at a time, edges gathered and scattered, normalisation from "
        "torch-geometric. Slow and plain; every exact system must match it."
    )
    provenance = "part of dgbench"
    code = "dgbench"
    enters = ("snapshot-training@1",)
    trainer: ClassVar[type[Trainer]] = ReferenceTrainer
    """Class of the trainers that it opens."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype

    def open(
        self,
        workload: Workload,
        *,
        device: str = "cpu",
        switches: Mapping[str, bool] | None = None,
        meter: Meter | None = None,
    ) -> Trainer:
        self.switches(switches)
        data = workload_data.load(workload)
        return self.trainer(workload, data, device=device, meter=meter, dtype=self.dtype)
