"""Figure 9: what a partition of S snapshots gains in the graph kernels (section 4.4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.lab.charts import chart, failed, interval, titled
from dgbench.lab.compare import Ratio
from dgbench.lab.contests import Race
from dgbench.lab.grid import Grid, by_preset
from dgbench.lab.result_checks import at_most
from dgbench.lab.table import rows_of
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.race import TOLERANCE, relative
from dgbench.systems.base.registry import get_system
from dgbench.systems.pipad.experiments.common import data_of, open_graph
from dgbench.systems.pipad.experiments.settings import BY_NAME
from dgbench.systems.pipad.groups import SNAPSHOTS, aggregation, made_group, race
from dgbench.systems.pipad.kernels import (
    ArrivedKernel,
    PlacedKernel,
    arrived_kernel,
    placed_kernel,
)
from dgbench.systems.pipad.ladders import PUBLISHED, stage
from dgbench.systems.pipad.recounts import plain_aggregation, recount_partition

SIZES = (2, 4, 8)
GRAPHS = {
    "smoke": ("hepth",),
    "quick": ("covid19-england",),
    None: ("flickr", "hepth", "covid19-england"),
}
RATES = {"smoke": (0.1, 0.9), "quick": (0.1, 0.9), None: (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)}
DIMS = {"smoke": (16,), "quick": (2, 16, 64), None: (2, 4, 8, 16, 32, 64)}
AT_DIM = 16
"""Floats per vertex where the overlap rate varies."""
AT_RATE = 0.9
"""Overlap rate where the dimension varies: neighbouring snapshots change by about a tenth."""

RACE = Race(
    "fig9",
    by=("dataset", "overlap_rate", "dim"),
    metric="operation_time",
    none="the experiment 'fig9' did not run",
    contender="snapshots_together",
)
Key = tuple[str, float, int, int]
"""Dataset, overlap rate, dimension, S_per."""


def ratios(rows: Sequence[Any]) -> dict[Key, Ratio]:
    """Gain over one snapshot at a time; the pairs are the processes of a cell."""
    ran = rows_of(rows, experiment="fig9")
    each = {size: RACE(None, size).each(ran) for size in SIZES}
    return {(*key, size): each[size][key] for key in each[SIZES[0]] for size in SIZES}


def over(x_of: Callable[[Any], Any]) -> Callable[[Sequence[Any]], list[dict[str, Any]]]:
    """Points where `x_of` gives an x of a cell's params; cells that failed stay visible."""

    def points(rows: Sequence[Any]) -> list[dict[str, Any]]:
        found, mine, made = ratios(rows), RACE.timed(rows), []
        for where in RACE.workloads(rows):
            dataset, x = where["dataset"], x_of(where)
            if x is None:
                continue
            here = [row for row in mine if row.params["dataset"] == dataset]
            panel = titled(BY_NAME[dataset].title, here)
            for size in SIZES:
                point = {"panel": panel, "series": f"S_per {size}", "x": x}
                if ratio := found.get((*where.values(), size)):
                    made.append({**point, **interval(ratio), "deviation": ratio.deviation})
                    continue
                bad = next(r for r in here if where.items() <= r.params.items())
                made.append({**point, "failed": failed(bad)})
        return made

    return points


rate_points = over(lambda where: where["overlap_rate"] if where["dim"] == AT_DIM else None)
"""Points of Figure 9a: by overlap rate, at AT_DIM floats."""
dim_points = over(lambda where: where["dim"] if where["overlap_rate"] == AT_RATE else None)
"""Points of Figure 9b: by feature length, at overlap rate AT_RATE."""
OPTIONS = {"ylabel": "speed-up over one snapshot", "hline": 1.0, "hline_label": "one"}


class Fig9(Grid):
    paper = "pipad"
    name = "fig9"
    title = "Figure 9: gain of a partition by overlap rate and dimension"
    claims = (
        "pipad-fig9a-sper-order-vs-or",
        "pipad-fig9b-sper-order-vs-dim",
        "pipad-s44-low-or-penalty",
    )
    question = "Do more snapshots in a partition speed the graph kernels up, and when?"
    reading = (
        "Each group has the size and degrees of a graph's last snapshot; its snapshots share the "
        "wanted part of their entries and draw the rest anew, so all sizes see one overlap rate. "
        "Forward and backward of the aggregation alone, against one snapshot at a time, in turns "
        "inside one process, by the kernel of PiPAD as published: Algorithm 1 over slices."
    )
    fixed = {"system": PUBLISHED}
    repeats = {"smoke": 1, "quick": 5, None: 7}
    timeout_s = 120
    charts = (
        chart(
            "sweep",
            "fig9a",
            "Gain of a partition over its overlap rate",
            rate_points,
            **OPTIONS,
            xlabel="overlap rate",
            xlog=False,
        ),
        chart(
            "sweep",
            "fig9b",
            "Gain of a partition over feature length",
            dim_points,
            **OPTIONS,
            xlabel="feature length (floats)",
            base=2,
        ),
    )

    def points(self, preset: Preset, device: str) -> list[dict[str, Any]]:
        pairs = [(rate, AT_DIM) for rate in by_preset(RATES, preset)]
        pairs += [(AT_RATE, dim) for dim in by_preset(DIMS, preset)]
        return [
            {"dataset": name, "overlap_rate": rate, "dim": dim}
            for name in by_preset(GRAPHS, preset)
            for rate, dim in dict.fromkeys(pairs)
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        rate = float(cell.params["overlap_rate"])  # type: ignore[arg-type]
        dim = int(cell.params["dim"])  # type: ignore[arg-type]
        data = open_graph(graph, context.preset)
        group = made_group(data.topology[len(data) - 1], rate)
        kernel, device = published_kernel(context.device), context.device
        gap = _deviation(group, kernel, dim, device)
        found = race(group, dim, SIZES, kernel, device=device, budget_s=context.budget_s)
        measured = Measurement(
            deviation={"output": gap},
            checks=[
                at_most(
                    "outputs",
                    gap,
                    TOLERANCE,
                    against="float64 edge lists",
                    compared=len(SIZES) * SNAPSHOTS * data.num_nodes * dim,
                ),
                *recount_partition(group, PartTopology.build(group)),
            ],
            data=data_of(data),
            notes=["groups were made from the last snapshot, see the experiment's reading"],
        )
        measured.observe("operation_time", median(found[1]), samples=found[1])
        for size in SIZES:
            seconds, parts = median(found[size]), PartTopology.build(group[:size])
            measured.observe("operation_time", seconds, snapshots_together=size)
            measured.observe("overlap", parts.overlap_rate(), snapshots_together=size)
        measured.observe("vertices", data.num_nodes)
        measured.observe("edges", sum(csr.nnz for csr in group))
        measured.observe("snapshots", SNAPSHOTS)
        measured.observe("turns", len(found[1]))
        return measured

    def answer(self, rows: Sequence[Any]) -> str:
        found = ratios(rows)
        if not found:
            return ""
        best = max(found, key=lambda key: found[key].value)
        faster = sum(ratio.value > 1 for ratio in found.values())
        name, rate, dim, size = best
        return (
            f"Partitions are faster than single snapshots at {faster} of {len(found)} points; the "
            f"most, {found[best].value:.2g}x, is S_per {size} at overlap rate {rate:g} and length "
            f"{dim} on {BY_NAME[name].title}."
        )


def published_kernel(device: str) -> PlacedKernel | ArrivedKernel:
    """Return the kernel of PiPAD as published on a device."""
    on = get_system("pipad").switches(stage(PUBLISHED))
    return arrived_kernel(on) if torch.device(device).type == "cuda" else placed_kernel(on)


def _deviation(
    group: Sequence[Csr], kernel: PlacedKernel | ArrivedKernel, dim: int, device: str
) -> float:
    """Largest relative gap of output and gradient to edge lists in float64, for any size."""
    shape = (SNAPSHOTS, group[0].num_rows, dim)
    draw = torch.Generator().manual_seed(dim)
    x = torch.randn(shape, generator=draw).to(device).requires_grad_()
    grad = torch.randn(shape, generator=draw).to(device)

    def both(size: int) -> tuple[Tensor, Tensor]:
        y = aggregation(kernel, group, size, device)(x)
        return y.detach(), torch.autograd.grad(y, x, grad)[0]

    plain = x.detach().cpu().double().requires_grad_()
    y = torch.stack([plain_aggregation(csr, plain[t]) for t, csr in enumerate(group)])
    wanted = y.detach(), torch.autograd.grad(y, plain, grad.cpu().double())[0]
    return max(
        relative(a.cpu().reshape(b.shape), b)
        for size in (1, *SIZES)
        for a, b in zip(both(size), wanted, strict=True)
    )
