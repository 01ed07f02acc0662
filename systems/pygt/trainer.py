"""Training with the released cells, one snapshot at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgbench.runtime.meter import Meter
from dgbench.runtime.transfer import open_link
from dgbench.systems.base.training import FrameTrainer, coordinates
from dgbench.systems.base.workload import Workload
from dgbench.systems.pygt.cells import ADAPTERS
from dgbench.systems.pygt.convolution import TwoWayCsr, normalised_two_way, spmm
from dgbench.systems.pygt.phases import LayerPhases
from dgbench.systems.pygt.released import cell_classes, evolvegcn_check
from dgbench.systems.pygt.transfer import Mover, Packet

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence


@dataclass(frozen=True, slots=True)
class Variant:
    """Additions of a member of the family to the released code (PiPAD section 5.1).

    Attributes:
        asynchronous: copies from pinned memory, one snapshot ahead (PyGT-A).
        reuse: first-layer aggregation is kept in host memory across frames (PyGT-R).
        csr: aggregation by a CSR product with CSR and CSC stored (PyGT-G).
    """

    asynchronous: bool = False
    reuse: bool = False
    csr: bool = False


class PyGTTrainer(FrameTrainer):
    """A released cell on a sequence of snapshots.

    Counters: those of the link (`bytes_h2d_counted`, `transfers`, where it copies
    `bytes_h2d_moved`), `adjacency_bytes_counted` (the topology among these bytes), `aggregations`
    and `edges_aggregated` (forward launches and the edges they read, loops included). Instrumented
    runs divide the time of a step, forward and backward, into the phases `gnn`, `rnn`, `transfer`,
    `update` and, for what is left, `compute`.

    Args:
        workload, data: what is trained.
        variant: which member of the family this is.
        arena: on the CPU, copy what a device would be sent into memory apart.
    """

    def __init__(
        self,
        workload: Workload,
        data: SnapshotSequence,
        variant: Variant,
        *,
        device: str = "cpu",
        meter: Meter | None = None,
        arena: bool = False,
    ) -> None:
        super().__init__(workload, data, device=device, meter=meter)
        self.variant = variant
        classes = cell_classes()
        with torch.random.fork_rng(devices=[]):  # the cells draw parameters that are replaced
            cell = ADAPTERS[workload.model](
                workload,
                data.num_nodes,
                classes,
                given=variant.reuse,
                blocks=variant.csr,
                meter=self.meter,
            )
        cell.load(self.model.cpu())
        self.model.to(self.device)
        self.cell = cell.to(self.device)
        link = open_link(
            self.device,
            self.meter,
            asynchronous=variant.asynchronous,
            arena=arena,
            slots=workload.frame,
        )
        self._mover = Mover(link, self.meter, ahead=variant.asynchronous)
        self._phases: LayerPhases | None = None
        if self.meter.timing:
            self._phases = LayerPhases(self.meter)
            for layer in self.cell.layers():
                self._phases.cover(*layer)
        self._edges: dict[int, tuple[Tensor, Tensor | None]] = {}
        self._adjacency: dict[int, TwoWayCsr] = {}
        self._kept: dict[tuple[int, bool], Packet] = {}  # by snapshot, and whether it comes first
        self._store: Tensor | None = None  # A-hat X of all snapshots, float32[T, N, F], host
        self.notes += self._remarks(classes.origin, arena)

    def prepare(self) -> None:
        """Lay out the edges on the host; with reuse also aggregate every snapshot once."""
        for t in range(len(self.data)):
            if self.variant.csr:
                self._two_way(t)
            else:
                self._coordinates(t)
        if not self.variant.reuse or self._store is not None:
            return
        store = torch.empty(self.data.features.shape)
        for t in range(len(self.data)):
            store[t] = self._aggregated(t).cpu()
        self._store = self._mover.stage(store)

    def outputs(self, times: range) -> Sequence[Tensor]:
        if self.variant.reuse and self._store is None:
            self.prepare()
        if self._phases is not None:
            self._phases.clear()
        return self.cell.frame(self._mover.stream(self._packets(times)))

    def trained(self) -> dict[str, Tensor]:
        head = {f"head.{name}": p for name, p in self.model.head.named_parameters()}
        return {name: leaf for name, (leaf, _) in self.cell.leaves().items()} | head

    def shared(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: value if name.startswith("head.") else self.cell.shared(name, value)
            for name, value in tensors.items()
        }

    def close(self) -> None:
        super().close()
        self._mover.close()
        self._kept.clear()
        self._edges.clear()
        self._adjacency.clear()
        self._store = None

    def _loss(self, frame: int) -> Tensor:
        loss = super()._loss(frame)
        if self._phases is not None:
            self._phases.mark(loss)
        return loss

    def _packets(self, times: range) -> Iterator[Packet]:
        for step, t in enumerate(times):
            key = t, step == 0
            if key not in self._kept:
                self._kept[key] = self._packet(t, first=step == 0)
            yield self._kept[key]

    def _packet(self, t: int, *, first: bool) -> Packet:
        variant, two = self.variant, self.cell.two_layers
        x = aggregated = edges = weights = adjacency = None
        if not variant.reuse:
            x = self._mover.stage(self.data.features[t])
        else:
            aggregated = self._store[t]
            if self.workload.model == "mpnn_lstm":  # its skip columns read raw features
                raw = self.data.features[t]
                x = self._mover.stage(raw if first else raw[:, -1:])
        if variant.csr and two:
            adjacency = self._two_way(t)
        elif two or not variant.reuse:
            edges, weights = self._coordinates(t)
        return Packet(x, aggregated, edges, weights, adjacency)

    def _coordinates(self, t: int) -> tuple[Tensor, Tensor | None]:
        csr = self.data.topology[t]
        key = id(csr)
        if key not in self._edges:
            weight = None if csr.values is None else self._mover.stage(csr.values)
            self._edges[key] = self._mover.stage(torch.stack(coordinates(csr))), weight
        return self._edges[key]

    def _two_way(self, t: int) -> TwoWayCsr:
        csr = self.data.topology[t]
        key = id(csr)
        if key not in self._adjacency:
            found = normalised_two_way(csr)
            self._adjacency[key] = TwoWayCsr(*(self._mover.stage(x) for x in found.tensors()))
        return self._adjacency[key]

    def _aggregated(self, t: int) -> Tensor:
        x = self.data.features[t].to(self.device)
        if self.variant.csr:
            adjacency = self._two_way(t)
            self._count(adjacency.nnz)
            return spmm(TwoWayCsr(*(a.to(self.device) for a in adjacency.tensors())), x)
        from torch_geometric.nn.conv.gcn_conv import gcn_norm

        edges, weight = (a if a is None else a.to(self.device) for a in self._coordinates(t))
        edges, scale = gcn_norm(edges, weight, x.shape[0])
        self._count(edges.shape[1])
        return torch.zeros_like(x).index_add(0, edges[1], x[edges[0]] * scale[:, None])

    def _count(self, edges: int) -> None:
        self.meter.count("aggregations")
        self.meter.count("edges_aggregated", edges)

    def _remarks(self, origin: str, arena: bool) -> list[str]:
        found = [f"Cells: {origin}."]
        model, variant = self.workload.model, self.variant
        if model == "evolvegcn":
            found.append(
                "Two layers put together from the released fixed-weight convolution and a GRU, "
                "as the released EvolveGCNO has one square layer; weights restart every frame."
            )
            found.append(evolvegcn_check())
        if variant.reuse:
            found.append("First-layer aggregation comes from host memory, computed once.")
        if variant.csr:
            product = (
                "MKL's CSR product, in the place of GE-SpMM's kernel"
                if self.device.type == "cpu"
                else "a kernel in the manner of GE-SpMM"
            )
            found.append(
                f"Aggregation by {product}, over normalised matrices made once, CSR forward and "
                "CSC backward."
            )
        if arena:
            who = "a thread beside the compute" if variant.asynchronous else "the caller"
            found.append(f"What a device would be sent is copied into memory apart, by {who}.")
        elif variant.asynchronous and self.device.type == "cpu":
            found.append("Asynchronous transfer has no effect on the CPU: nothing is copied.")
        return found
