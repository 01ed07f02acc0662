"""The released cells, filled with the shared model's parameters and run over a frame.

What is trained are the released cells' own parameters; `leaves` says which shared parameter each
one is, and how it is laid out. A GCNConv keeps its weight as [out, in], the shared models as
[in, out].
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

import torch
from torch import Tensor, nn

from dgbench.models import FrameModel
from dgbench.runtime.meter import Meter
from dgbench.systems.base.workload import Workload
from dgbench.systems.pygt.convolution import BlockSpmm, GivenAggregation, spmm
from dgbench.systems.pygt.phases import GRAPH, RECURRENT
from dgbench.systems.pygt.released import CellClasses
from dgbench.systems.pygt.transfer import Packet

SAME: Final = "same"
TRANSPOSED: Final = "transposed"
BATCHED: Final = "batched"  # the released tensor has a leading dimension of 1

_TO_SHARED: Final = {
    SAME: lambda x: x,
    TRANSPOSED: lambda x: x.t().contiguous(),
    BATCHED: lambda x: x.squeeze(0),
}
_TO_RELEASED: Final = {
    SAME: lambda x: x,
    TRANSPOSED: lambda x: x.t(),
    BATCHED: lambda x: x.unsqueeze(0),
}


class CellAdapter(nn.Module, ABC):
    """A released model of one kind.

    Args:
        workload: sizes.
        nodes: N.
        classes: the released classes or their stand-ins.
        given: whether first-layer aggregation is handed in (variants R and G).
        blocks: whether the second layer is a CSR product (variant G).
        meter: counts `aggregations` and `edges_aggregated`, times the phase `compute`.
    """

    two_layers = True

    def __init__(
        self,
        workload: Workload,
        nodes: int,
        classes: CellClasses,
        *,
        given: bool,
        blocks: bool,
        meter: Meter,
    ) -> None:
        super().__init__()
        self.given, self.blocks = given, blocks
        self._meter = meter
        self._nodes = nodes
        self._make(workload, classes)

    @abstractmethod
    def _make(self, workload: Workload, classes: CellClasses) -> None:
        """Create the released modules."""

    @abstractmethod
    def leaves(self) -> dict[str, tuple[nn.Parameter, str]]:
        """Shared name -> (released parameter, layout)."""

    @abstractmethod
    def layers(self) -> list[tuple[object, str, str]]:
        """(object, name of its method, `gnn` or `rnn`): what is a graph or a recurrent layer."""

    @abstractmethod
    def frame(self, packets: Iterable[Packet]) -> list[Tensor]:
        """Hidden outputs [N, D] of a frame, one snapshot after the other; the last one last."""

    @torch.no_grad()
    def load(self, model: FrameModel) -> None:
        """Take over the shared model's parameters."""
        shared = dict(model.named_parameters())
        for name, (leaf, layout) in self.leaves().items():
            leaf.copy_(_TO_RELEASED[layout](shared[name]))

    def shared(self, name: str, value: Tensor) -> Tensor:
        """A released value or gradient in the shared layout."""
        return _TO_SHARED[self.leaves()[name][1]](value)

    def _count(self, packet: Packet, launches: int = 1) -> None:
        """Note `launches` aggregations over the packet's edges and N loops."""
        edges = packet.adjacency.nnz if self.blocks else packet.edge_index.shape[1] + self._nodes
        self._meter.count("aggregations", launches)
        self._meter.count("edges_aggregated", launches * edges)


class TgcnAdapter(CellAdapter):
    """The released `TGCN`, three convolutions per snapshot."""

    two_layers = False

    def _make(self, workload: Workload, classes: CellClasses) -> None:
        self.cell = classes.tgcn(workload.feature_dim, workload.hidden_dim)
        if self.given:
            for gate in "zrh":
                conv = getattr(self.cell, f"conv_{gate}")
                setattr(self.cell, f"conv_{gate}", GivenAggregation(conv))

    def leaves(self) -> dict[str, tuple[nn.Parameter, str]]:
        found = {}
        for gate in "zrh":
            conv, linear = getattr(self.cell, f"conv_{gate}"), getattr(self.cell, f"linear_{gate}")
            found[f"conv_{gate}.weight"] = conv.lin.weight, TRANSPOSED
            found[f"conv_{gate}.bias"] = conv.bias, SAME
            found[f"linear_{gate}.weight"] = linear.weight, SAME
            found[f"linear_{gate}.bias"] = linear.bias, SAME
        return found

    def layers(self) -> list[tuple[object, str, str]]:
        gates = [getattr(self.cell, f"conv_{gate}") for gate in "zrh"]
        return [(self.cell, "forward", RECURRENT)] + [(g, "forward", GRAPH) for g in gates]

    def frame(self, packets: Iterable[Packet]) -> list[Tensor]:
        outputs: list[Tensor] = []
        state = None
        for packet in packets:
            with self._meter.phase("compute"):
                if self.given:
                    state = self.cell(packet.aggregated, None, None, state)
                else:
                    self._count(packet, launches=3)
                    state = self.cell(packet.x, packet.edge_index, packet.edge_weight, state)
            outputs.append(state)
        return outputs


class EvolveAdapter(CellAdapter):
    """Two layers of the released parts of `EvolveGCNO`: its fixed-weight convolution and a GRU.

    `EvolveGCNO` itself has one square layer, so it cannot go from F to H. The parts are put
    together as it does: the weight is input and state of the GRU, its rows the batch. The weight
    starts again at every frame (`reinitialize_weight`).
    """

    def _make(self, workload: Workload, classes: CellClasses) -> None:
        widths = (workload.feature_dim, workload.hidden_dim, workload.hidden_dim)
        self.initial = nn.ParameterList()
        self.recurrent_layers, self.conv_layers = nn.ModuleList(), nn.ModuleList()
        for inputs, outputs in pairwise(widths):
            self.initial.append(nn.Parameter(torch.empty(1, inputs, outputs)))
            self.recurrent_layers.append(nn.GRU(outputs, outputs))
            self.conv_layers.append(classes.fixed_w(inputs, outputs))

    def leaves(self) -> dict[str, tuple[nn.Parameter, str]]:
        found = {}
        for i, gru in enumerate(self.recurrent_layers):
            found[f"layer_{i + 1}.initial"] = self.initial[i], BATCHED
            for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                found[f"layer_{i + 1}.cell.{kind}"] = getattr(gru, f"{kind}_l0"), SAME
        return found

    def layers(self) -> list[tuple[object, str, str]]:
        grus = [(gru, "forward", RECURRENT) for gru in self.recurrent_layers]
        return [*grus, (self, "_first", GRAPH), (self, "_second", GRAPH)]

    def frame(self, packets: Iterable[Packet]) -> list[Tensor]:
        outputs: list[Tensor] = []
        weights = list(self.initial)
        for packet in packets:
            with self._meter.phase("compute"):
                for i, gru in enumerate(self.recurrent_layers):
                    _, weights[i] = gru(weights[i], weights[i])
                outputs.append(self._second(packet, self._first(packet, weights[0]), weights[1]))
        return outputs

    def _first(self, packet: Packet, weight: Tensor) -> Tensor:
        if self.given:
            return torch.relu(packet.aggregated @ weight.squeeze(0))
        self._count(packet)
        conv = self.conv_layers[0]
        return conv(weight.squeeze(0), packet.x, packet.edge_index, packet.edge_weight).relu()

    def _second(self, packet: Packet, hidden: Tensor, weight: Tensor) -> Tensor:
        if self.blocks:
            self._count(packet)
            return spmm(packet.adjacency, hidden @ weight.squeeze(0))
        self._count(packet)
        conv = self.conv_layers[1]
        return conv(weight.squeeze(0), hidden, packet.edge_index, packet.edge_weight)


class MpnnAdapter(CellAdapter):
    """The released `MPNNLSTM` on a window as one block-diagonal graph, as the class wants it.

    It returns the last snapshot's output only. Dropout is 0, as randomness would hide errors; its
    batch norms stay in training mode, so that a frame is normalised by its own statistics.
    """

    def _make(self, workload: Workload, classes: CellClasses) -> None:
        self.cell = classes.mpnn_lstm(
            workload.feature_dim, workload.hidden_dim, self._nodes, workload.frame, 0.0
        )
        if self.given:
            self.cell._convolution_1 = GivenAggregation(self.cell._convolution_1)
        if self.blocks:
            self.cell._convolution_2 = BlockSpmm(self.cell._convolution_2)

    def leaves(self) -> dict[str, tuple[nn.Parameter, str]]:
        found = {}
        for i in (1, 2):
            conv = getattr(self.cell, f"_convolution_{i}")
            norm = getattr(self.cell, f"_batch_norm_{i}")
            lstm = getattr(self.cell, f"_recurrent_{i}")
            found[f"conv_{i}.weight"] = conv.lin.weight, TRANSPOSED
            found[f"conv_{i}.bias"] = conv.bias, SAME
            found[f"norm_{i}.weight"] = norm.weight, SAME
            found[f"norm_{i}.bias"] = norm.bias, SAME
            for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                found[f"lstm_{i}.{kind}_l0"] = getattr(lstm, f"{kind}_l0"), SAME
        return found

    def layers(self) -> list[tuple[object, str, str]]:
        """Batch norm, ReLU and the skip columns between them are neither."""
        named = (("_convolution_", GRAPH), ("_recurrent_", RECURRENT))
        return [
            (getattr(self.cell, f"{name}{i}"), "forward", phase)
            for name, phase in named
            for i in (1, 2)
        ]

    def frame(self, packets: Iterable[Packet]) -> list[Tensor]:
        window = list(packets)
        with self._meter.phase("compute"):
            edges = weights = None
            if self.given:
                self.cell._convolution_1.rows = torch.cat([p.aggregated for p in window])
            if self.blocks:
                self.cell._convolution_2.blocks = [p.adjacency for p in window]
            else:
                edges, weights = self._block_diagonal(window)
            self._count_window(window)
            width = self.cell.in_channels
            x = torch.cat([p.x.expand(self._nodes, width) for p in window])  # [W * N, F]
            return [self.cell(x, edges, weights)]

    def _count_window(self, window: list[Packet]) -> None:
        """A block-diagonal aggregation is one launch over all edges of the window."""
        if self.blocks:
            for packet in window:
                self._count(packet)
            return
        launches = 1 if self.given else 2
        edges = sum(packet.edge_index.shape[1] + self._nodes for packet in window)
        self._meter.count("aggregations", launches)
        self._meter.count("edges_aggregated", launches * edges)

    def _block_diagonal(self, window: list[Packet]) -> tuple[Tensor, Tensor | None]:
        edges = torch.cat(
            [p.edge_index + step * self._nodes for step, p in enumerate(window)], dim=1
        )
        if window[0].edge_weight is None:
            return edges, None
        return edges, torch.cat([p.edge_weight for p in window])


ADAPTERS: Final = {
    "tgcn_model": TgcnAdapter,
    "evolvegcn": EvolveAdapter,
    "mpnn_lstm": MpnnAdapter,
}
