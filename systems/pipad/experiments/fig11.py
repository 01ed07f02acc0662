"""Figure 11: one graph layer, reuse off (section 5.3): PyG's layer, a CSR product, and PiPAD's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from dgbench.datasets.transforms import factors
from dgbench.kernels_cuda.aggregate import aggregate_parts, spmm
from dgbench.kernels_cuda.csr import Csr
from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.estimates import EvaluationContext
from dgbench.lab.figure_forms import CopyShare, SpeedupBars, Sweep
from dgbench.lab.grid import by_preset
from dgbench.lab.quantities import MeasuredQuantity, observed, speedup
from dgbench.lab.result_checks import at_most
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Entry
from dgbench.runtime.steady import measure_steady
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.race import TOLERANCE, relative
from dgbench.systems.base.training import coordinates
from dgbench.systems.pipad.engine import merging_pays
from dgbench.systems.pipad.experiments.settings import (
    ALL,
    BY_NAME,
    EXTRAS,
    FORMS,
    QUICK,
    SMOKE,
    open_graph,
)
from dgbench.systems.pipad.ladders import BARE, PUBLISHED
from dgbench.systems.pipad.paper_kernel import operand_of
from dgbench.systems.pipad.partitions import Partitions, on_device

CAP: Final = 32
"""Entries of a slice at most, the paper's."""
Layer = Callable[[], list[Tensor]]
"""The forward pass of a layer: aggregation and update of each snapshot."""


def pyg_layer(csrs: Sequence[Csr], x: Tensor, weight: Tensor) -> Layer:
    """PyG's released GCNConv, one snapshot after another; it normalises in every call."""
    from torch_geometric.nn import GCNConv

    conv = GCNConv(weight.shape[0], weight.shape[1], bias=False)
    conv.lin.weight = torch.nn.Parameter(weight.t().contiguous())
    conv = conv.to(x.device).requires_grad_(False)
    edges = [torch.stack(coordinates(csr)).to(x.device) for csr in csrs]
    return lambda: [conv(x[i], edge) for i, edge in enumerate(edges)]


def csr_layer(csrs: Sequence[Csr], x: Tensor, weight: Tensor) -> Layer:
    """A product with the normalised adjacency in CSR per snapshot (GE-SpMM's place).

    On the CPU torch's CSR product (MKL where torch has it), on CUDA our GE-SpMM-style kernel.
    """
    if x.device.type != "cuda":
        return torch_layer(csrs, x, weight)
    from dgbench.kernels_cuda.variants import spmm_gespmm

    matrices = [on_device(_normalised(csr), x.device) for csr in csrs]
    return lambda: [spmm_gespmm(m, x[i]) @ weight for i, m in enumerate(matrices)]


def torch_layer(csrs: Sequence[Csr], x: Tensor, weight: Tensor) -> Layer:
    """torch's CSR product per snapshot with 32-bit ids: cuSPARSE on CUDA, else MKL or torch."""
    matrices = [on_device(_normalised(csr), x.device) for csr in csrs]
    shape = (csrs[0].num_rows, csrs[0].num_cols)
    sparse = [
        torch.sparse_csr_tensor(m.indptr.to(torch.int32), m.indices, m.values, shape)
        for m in matrices
    ]
    return lambda: [(matrix @ x[i]) @ weight for i, matrix in enumerate(sparse)]


def published_layer(partitions: Partitions, times: range, x: Tensor, weight: Tensor) -> Layer:
    """Aggregation of the merged partition by Algorithm 1, then one stacked product (4.1, 4.2)."""
    part = partitions.partition(times)
    operand = operand_of(
        part.parts, part.row_scale, part.col_scale, cap=CAP, vector=True, back=False
    )
    coalesced = x.transpose(0, 1).contiguous()  # [N, S, F]; stored so, as the paper does
    y = torch.empty_like(coalesced)

    def merged() -> list[Tensor]:
        operand.forward(coalesced, y)
        return list((y @ weight).unbind(1))

    return merged


def pipad_layer(partitions: Partitions, times: range, x: Tensor, weight: Tensor) -> Layer:
    """Aggregation by a product of ours, merged where caches ask for it, and one stacked product."""
    if merging_pays(*x.shape):
        part = partitions.partition(times)
        coalesced = x.transpose(0, 1).contiguous()  # [N, S, F]; stored so, as the paper does

        def merged() -> list[Tensor]:
            y = aggregate_parts(
                part.parts, coalesced, part.row_scale, part.col_scale, self_loop=True
            )
            return list((y @ weight).unbind(1))

        return merged
    single = [partitions.snapshot(t) for t in times]

    def one_by_one() -> list[Tensor]:
        rows = [
            spmm(csr, x[i], row_scale=row, col_scale=col, self_loop=True)
            for i, (csr, row, col) in enumerate(single)
        ]
        return list((torch.stack(rows) @ weight).unbind(0))

    return one_by_one


def single_layer(partitions: Partitions, times: range, x: Tensor, weight: Tensor) -> Layer:
    """Our engine without techniques: aggregation and update of one snapshot after another."""
    single = [partitions.snapshot(t) for t in times]
    return lambda: [
        spmm(csr, x[i], row_scale=row, col_scale=col, self_loop=True) @ weight
        for i, (csr, row, col) in enumerate(single)
    ]


def _normalised(csr: Csr) -> Csr:
    """A-hat with its loops and coefficients written out, rows ascending."""
    scale, _ = factors(csr, "sym")
    source, target = coordinates(csr)
    loops = torch.arange(csr.num_rows)
    source, target = torch.cat([source, loops]), torch.cat([target, loops])
    order = torch.argsort(target * csr.num_cols + source)
    source, target = source[order], target[order]
    indptr = torch.zeros(csr.num_rows + 1, dtype=torch.int64)
    indptr[1:] = torch.bincount(target, minlength=csr.num_rows).cumsum(0)
    return Csr(indptr, source.to(torch.int32), csr.num_cols, scale[source] * scale[target])


def layer_deviation(
    found: Sequence[Tensor], csrs: Sequence[Csr], x: Tensor, weight: Tensor
) -> float:
    """Largest relative deviation from A-hat x W in float64."""
    worst = 0.0
    for i, csr in enumerate(csrs):
        a = _normalised(csr)
        source, target = coordinates(a)
        rows = x[i].double().cpu()
        y = torch.zeros_like(rows).index_add_(0, target, rows[source] * a.values.double()[:, None])
        worst = max(worst, relative(found[i].cpu(), y @ weight.double().cpu()))
    return worst


METHODS = ("pygt", "pygt-g", BARE, PUBLISHED, "pipad")
CUSPARSE = "cuSPARSE"
"""Not in the paper: torch's CSR product on a CUDA device, which is cuSPARSE."""
S_PER = 8
OURS = {graph.name for graph in EXTRAS}
"""Graphs that no claim counts."""
GRAPHS = {
    "smoke": [name for name in SMOKE if name not in OURS],
    "quick": [name for name in QUICK if name != "flickr"],  # no verdict turns without it
    None: [graph.name for graph in ALL],
}
DIMS = {"smoke": (2, 16), "quick": (2, 32), None: (2, 4, 8, 16, 32, 64)}
WIDTHS_OF = "covid19-england"
"""Graph that `quick` has at several feature lengths."""


def at_printed_length(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
    """Entries at the feature length that the paper has for a graph."""
    return [one for one in entries if one["dim"] == BY_NAME[one["dataset"]].feature_dim]


def of_the_paper(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
    """Entries on graphs of the paper."""
    return [one for one in entries if BY_NAME[one["dataset"]].printed]


def layer(slow: str, fast: str, *per: str, **where: Any) -> MeasuredQuantity:
    """Time of one layer over that of another."""
    return speedup(observed("operation_time", per=per, **where), slow, fast)


def printed_layer(slow: str, fast: str, *per: str) -> MeasuredQuantity:
    """Time of one layer over that of another, at the paper's feature lengths."""
    return layer(slow, fast, *per).keep(at_printed_length)


OVER_ENGINE = printed_layer(BARE, PUBLISHED)
"""PiPAD's layer as published against one snapshot at a time on our engine."""
SMALL_LAYERS = layer(BARE, PUBLISHED, "dataset", "dim", size="small")


def over_engine(slow: str, named: str) -> outcomes.Rule:
    """The average gain over our engine's layer, with the factor over a released one beside it."""
    return combine.shown_beside(
        rules.near_claim(OVER_ENGINE, above=1.0),
        {f"over {named}": printed_layer(slow, PUBLISHED),
         "of which re-implementation": printed_layer(slow, BARE)},
    )  # fmt: skip


class Fig11(FormExperiment):
    forms, name = FORMS, "fig11"
    group = "{dataset}/{dim}"
    repeats = {"smoke": 1, "quick": 5, None: 7}
    timeout_s = 120
    headline, unit = printed_layer("pygt", PUBLISHED, "dataset"), "x"
    figure_forms = (
        SpeedupBars(
            "fig11a", "One graph layer: speed-up over PyGT",
            {name: printed_layer("pygt", name, "dataset") for name in (*METHODS[1:], CUSPARSE)},
            row="{dataset}", system="of", baseline="pygt", baseline_label="PyGT (PyG GCNConv)",
            xlabel="speed-up over PyGT",
        ),
        Sweep(
            "fig11b", "One graph layer over feature length",
            layer("pygt", PUBLISHED, "dataset", "dim", size="small").keep(of_the_paper),
            series="{dataset}", x="dim", xlabel="feature length (floats)",
            ylabel="speed-up over PyGT", base=2, hline=1.0, hline_label="PyGT",
        ),
        CopyShare(
            "fig11_limit", "One graph layer: rate of memory traffic against copying",
            observed("bandwidth", per="dataset", system=PUBLISHED).keep(at_printed_length),
            row="{dataset}", system=PUBLISHED,
        ),
    )  # fmt: skip
    claims = {
        "pipad-fig11a-gnn-speedup-pygt": over_engine("pygt", "PyG's layer"),
        "pipad-fig11a-gnn-speedup-pygtg": over_engine("pygt-g", "torch's CSR product"),
        "pipad-fig11a-denser-better": rules.clearly_larger(
            printed_layer(BARE, PUBLISHED, "density"), {"density": "denser"}
        ),
        "pipad-fig11b-dim-sensitivity": combine.shown_beside(
            rules.near_claim(
                SMALL_LAYERS.joined_over(min, "dataset", "dim"), above=1.0, entry="low",
                needs_interval=True,
            ),
            {"over PyG's layer": layer("pygt", PUBLISHED, size="small")},
        ),
        "pipad-fig11b-small-dim-better": rules.rising(SMALL_LAYERS, "dim", falling=True),
    }  # fmt: skip

    def points(self, preset: Preset, device: str) -> list[dict[str, Any]]:
        graphs = [BY_NAME[name] for name in by_preset(GRAPHS, preset)]
        raced = (*METHODS, CUSPARSE) if device == "cuda" else METHODS
        found = [(graph.name, graph.feature_dim, raced) for graph in graphs]
        found += [
            (graph.name, dim, ("pygt", BARE, PUBLISHED, "pipad"))
            for dim in by_preset(DIMS, preset)
            for graph in graphs
            if graph.small and graph.printed and dim != graph.feature_dim
            if preset != "quick" or graph.name == WIDTHS_OF
        ]
        return [
            {"dataset": name, "dim": dim, "system": system}
            for name, dim, systems in found
            for system in systems
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        dim = int(cell.params["dim"])  # type: ignore[arg-type]
        data = open_graph(graph, context.preset, feature_dim=dim)
        times = range(len(data) - S_PER, len(data))
        csrs = [data.topology[t] for t in times]
        x = data.features[times.start : times.stop].to(context.device).contiguous()
        draw = torch.Generator().manual_seed(1)
        weight = torch.randn(dim, graph.hidden_dim, generator=draw).to(context.device)
        partitions = Partitions(data, norm="sym", device=context.device)
        layers: dict[str, Callable[[], Layer]] = {
            "pygt": lambda: pyg_layer(csrs, x, weight),
            "pygt-g": lambda: csr_layer(csrs, x, weight),
            CUSPARSE: lambda: torch_layer(csrs, x, weight),
            BARE: lambda: single_layer(partitions, times, x, weight),
            PUBLISHED: lambda: published_layer(partitions, times, x, weight),
            "pipad": lambda: pipad_layer(partitions, times, x, weight),
        }
        layer = layers[str(cell.params["system"])]()
        with torch.no_grad():
            gaps, found = {}, layer()
            if context.round == 1:
                gaps["before timing"] = layer_deviation(found, csrs, x, weight)
            sync = torch.cuda.synchronize if context.device == "cuda" else None
            steady = measure_steady(layer, budget_s=context.budget_s, sync=sync)
            gaps["after timing"] = layer_deviation(layer(), csrs, x, weight)
        # Every neighbour's row and index counted as traffic, features and results once.
        moved = sum(csr.nnz for csr in csrs) * (4 * dim + 4)
        moved += 4 * data.num_nodes * S_PER * (dim + graph.hidden_dim)
        count = S_PER * data.num_nodes * graph.hidden_dim
        checks = [
            at_most("outputs", gap, TOLERANCE, against="float64 layer", compared=count, part=when)
            for when, gap in gaps.items()
        ]
        measured = Measurement(
            warmup=steady.warmup,
            deviation={"output": max(gaps.values())},
            checks=checks,
            data=describe(data),
        )
        measured.observe("operation_time", steady.time, samples=steady.samples)
        measured.observe("bandwidth", moved / steady.time)
        return measured
