"""Figure 11: one graph layer, reuse off (section 5.3): PyG's layer, a CSR product, and PiPAD's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor

from dgbench.datasets.transforms import factors
from dgbench.kernels_cuda.aggregate import aggregate_parts, spmm
from dgbench.kernels_cuda.csr import Csr
from dgbench.lab.compare import paired, select
from dgbench.lab.result_checks import at_most
from dgbench.runtime.steady import measure_steady
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.race import TOLERANCE, relative
from dgbench.systems.base.training import coordinates
from dgbench.systems.pipad.engine import merging_pays
from dgbench.systems.pipad.experiments.common import QUICK, SMOKE, data_of, open_graph
from dgbench.systems.pipad.experiments.settings import ALL, BY_NAME, EXTRAS
from dgbench.systems.pipad.partitions import Partitions, on_device

METHODS = ("pygt", "pygt-g", "pipad")
CUSPARSE = "cuSPARSE"
"""Not in the paper: torch's CSR product on a CUDA device, which is cuSPARSE."""
S_PER = 8
ROUNDS = {"smoke": 2, "quick": 5, "full": 7, "paper": 7}
DIMS = {
    "smoke": (2, 16),
    "quick": (2, 32),
    "full": (2, 4, 8, 16, 32, 64),
    "paper": (2, 4, 8, 16, 32, 64),
}
Layer = Callable[[], list[Tensor]]


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


def pipad_layer(partitions: Partitions, times: range, x: Tensor, weight: Tensor) -> Layer:
    """Partition-wise aggregation, dimension-aware, then one stacked product."""
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


class Fig11(Experiment):
    paper = "pipad"
    name = "fig11"
    title = "Figure 11: one graph layer"
    claims = (
        "pipad-fig11a-gnn-speedup-pygt",
        "pipad-fig11a-gnn-speedup-pygtg",
        "pipad-fig11a-denser-better",
        "pipad-fig11b-dim-sensitivity",
        "pipad-fig11b-small-dim-better",
    )
    question = "How much faster is PiPAD's parallel graph layer, and for which feature lengths?"
    reading = (
        "The forward pass of one layer (aggregation and update) over eight snapshots, reuse off. "
        "On a CPU the GE-SpMM kernel has no counterpart; the place of PyGT-G is taken by torch's "
        "CSR product with coefficients computed beforehand. On a CUDA device that product is "
        "cuSPARSE's, and a contender of its own beside the paper's three."
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        raced = (*METHODS, CUSPARSE) if device == "cuda" else METHODS
        points = [(name, BY_NAME[name].feature_dim, raced) for name in self._graphs(preset)]
        small = [n for n in self._graphs(preset) if BY_NAME[n].small and BY_NAME[n].printed]
        for dim in DIMS[preset]:
            for name in small:
                if dim != BY_NAME[name].feature_dim:
                    points.append((name, dim, ("pygt", "pipad")))
        return [
            Cell(
                paper=self.paper,
                experiment=self.name,
                params={"dataset": name, "dim": dim, "system": system},
                group=f"{name}/{dim}",
                repeats=ROUNDS[preset],
                timeout_s=120,
            )
            for name, dim, methods in points
            for system in methods
        ]

    def _graphs(self, preset: Preset) -> list[str]:
        if preset in ("smoke", "quick"):
            extras = {graph.name for graph in EXTRAS}  # no claim counts them
            return [n for n in (SMOKE if preset == "smoke" else QUICK) if n not in extras]
        return [graph.name for graph in ALL]

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
            "pipad": lambda: pipad_layer(partitions, times, x, weight),
        }
        layer = layers[str(cell.params["system"])]()
        with torch.no_grad():
            found = layer()
            gap = _deviation(found, csrs, x, weight)
            sync = torch.cuda.synchronize if context.device == "cuda" else None
            steady = measure_steady(layer, budget_s=context.budget_s, sync=sync)
            last = _deviation(layer(), csrs, x, weight) if context.round == 1 else gap
        nnz = sum(csr.nnz for csr in csrs)
        # Every neighbour's row and index counted as traffic, features and results once.
        moved = nnz * (4 * dim + 4) + 4 * data.num_nodes * S_PER * (dim + graph.hidden_dim)
        count = S_PER * data.num_nodes * graph.hidden_dim
        checks = [
            at_most("outputs", g, TOLERANCE, against="float64 layer", compared=count, part=when)
            for when, g in (("before timing", gap), ("after timing", last))
        ]
        return Measurement(
            values={"edges_per_s": nnz / steady.time, "gb_per_s": moved / steady.time / 1e9},
            units={"edges_per_s": "1/s", "gb_per_s": "GB/s"},
            counters={"edges": nnz, "vertices": data.num_nodes, "snapshots": S_PER},
            samples=steady.samples,
            warmup=steady.warmup,
            deviation={"output": gap},
            checks=checks,
            data=data_of(data),
        )

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="speedup",
                name="fig11a",
                title="One graph layer: speed-up over PyGT",
                points=layer_points,
                options={"baseline_label": "PyGT (PyG GCNConv)", "xlabel": "speed-up over PyGT"},
            ),
            FigureSpec(
                kind="sweep",
                name="fig11b",
                title="One graph layer over feature length",
                points=dim_points,
                options={
                    "xlabel": "feature length (floats)",
                    "ylabel": "speed-up over PyGT",
                    "base": 2,
                    "hline": 1.0,
                    "hline_label": "PyGT",
                },
            ),
            FigureSpec(
                kind="limit_share",
                name="fig11_limit",
                title="One graph layer: rate of memory traffic against copying",
                points=limit_points,
            ),
        ]

    def answer(self, rows: Sequence[Any]) -> str:
        found = [p for p in layer_points(rows) if p["system"] == "pipad" and not p.get("failed")]
        if not found:
            return ""
        low, high = (pick(found, key=lambda p: p["value"]) for pick in (min, max))
        return (
            f"PiPAD's graph layer is {low['value']:.2g}x ({low['row']}) to {high['value']:.3g}x "
            f"({high['row']}) as fast as PyGT's on {len(found)} graphs."
        )


def _deviation(found: Sequence[Tensor], csrs: Sequence[Csr], x: Tensor, weight: Tensor) -> float:
    """Largest relative deviation from A-hat x W in float64."""
    worst = 0.0
    for i, csr in enumerate(csrs):
        a = _normalised(csr)
        source, target = coordinates(a)
        rows = x[i].double().cpu()
        y = torch.zeros_like(rows).index_add_(0, target, rows[source] * a.values.double()[:, None])
        worst = max(worst, relative(found[i].cpu(), y @ weight.double().cpu()))
    return worst


def layer_ratio(rows: Sequence[Any], dataset: str, slow: str, fast: str, dim: int) -> Any:
    """Time of `slow` over that of `fast` for one graph and feature length, or None."""
    where = {"dataset": dataset, "dim": dim}
    mine = [r for r in rows if r.experiment == "fig11"]
    return paired(mine, {"system": slow, **where}, {"system": fast, **where})


def layer_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of Figure 11a: each graph at the paper's feature length."""
    mine = [r for r in rows if r.experiment == "fig11"]
    present = {r.params["dataset"] for r in mine}
    raced = [*METHODS[1:], *({CUSPARSE} & {r.params["system"] for r in mine})]
    points = []
    for graph in BY_NAME.among(present):
        for system in raced:
            points.append(_ratio_point(rows, graph.name, system, graph.feature_dim))
    return points


def _ratio_point(rows: Sequence[Any], dataset: str, system: str, dim: int) -> dict[str, Any]:
    graph = BY_NAME[dataset]
    point: dict[str, Any] = {"row": graph.title, "system": system, "baseline": "pygt"}
    ratio = layer_ratio(rows, dataset, "pygt", system, dim)
    if ratio is None:
        mine = [r for r in rows if r.experiment == "fig11" and r.params["dataset"] == dataset]
        bad = [r for r in mine if r.status != "ok" and r.params["system"] in (system, "pygt")]
        reason = f"{bad[0].status}: {bad[0].reason}" if bad else "skipped: not run"
        who = bad[0].params["system"] if bad else system
        return {**point, "failed": reason, "failed_system": who}
    return {
        **point,
        "value": ratio.value,
        "low": ratio.low,
        "high": ratio.high,
        "n": ratio.n,
        "twin": ratio.twin,
        "row_ids": ratio.rows,
        "deviation": ratio.deviation,
    }


def limit_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Traffic of PiPAD's layer over the copy bandwidth that this run measured."""
    machine = [r for r in rows if r.paper == "-" and "copy_gbs_all" in r.values]
    if not machine:
        return []
    on_gpu = "device_copy_gbs" in machine[-1].values
    limit = machine[-1].values["device_copy_gbs" if on_gpu else "copy_gbs_all"]
    points = []
    for graph in BY_NAME.among({r.params["dataset"] for r in select(rows, experiment="fig11")}):
        mine = select(
            rows, experiment="fig11", dataset=graph.name, dim=graph.feature_dim, system="pipad"
        )
        if mine:
            points.append(
                {
                    "row": graph.title,
                    "system": "pipad",
                    "value": median(r.values["gb_per_s"] for r in mine),
                    "limit": limit,
                    "limit_name": "copy bandwidth",
                    "unit": "GB/s",
                    "twin": any(r.data.get("twin") for r in mine),
                    "row_ids": [r.id for r in mine],
                }
            )
    return points


def dim_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of Figure 11b: PiPAD over PyGT on the small graphs, by feature length."""
    mine = select(rows, experiment="fig11", system="pipad")
    keys = sorted({(r.params["dataset"], r.params["dim"]) for r in mine})
    points = []
    for dataset, dim in keys:
        if not (BY_NAME[dataset].small and BY_NAME[dataset].printed):
            continue
        ratio = layer_ratio(rows, dataset, "pygt", "pipad", dim)
        if ratio is None:
            continue
        points.append(
            {
                "series": BY_NAME[dataset].title + (" (twin)" if ratio.twin else ""),
                "x": dim,
                "y": ratio.value,
                "low": ratio.low,
                "high": ratio.high,
                "row_ids": ratio.rows,
            }
        )
    return points
