"""Figure 9: what a partition of S snapshots gains in the graph kernels (section 4.4)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.grid import by_preset
from dgbench.lab.quantities import MeasuredQuantity, observed, speedup
from dgbench.lab.result_checks import at_most
from dgbench.lab.study import FormExperiment
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.race import TOLERANCE, relative
from dgbench.systems.base.registry import get_system
from dgbench.systems.pipad.experiments.settings import BY_NAME, FORMS, open_graph
from dgbench.systems.pipad.groups import SNAPSHOTS, aggregation, made_group, race
from dgbench.systems.pipad.kernels import ArrivedKernel, PlacedKernel, arrived_kernel, placed_kernel
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

POINT = ("dataset", "overlap_rate", "dim")


def gain(over: int | None, size: int, *per: str, **where: Any) -> MeasuredQuantity:
    """Time with partitions of one size over that with partitions of another."""
    times = observed("operation_time", per=per, **where)
    return speedup(times, over, size, "snapshots_together")


def size_order(**where: Any) -> outcomes.Rule:
    """8 > 4 > 2 at every point, by neighbouring sizes in the same processes.

    The average over all points in that order says the direction.
    """
    pairs = list(pairwise(SIZES))
    return combine.or_direction(
        combine.both(*(rules.all_above(gain(*pair, *POINT).where(**where), 1.0) for pair in pairs)),
        combine.both(*(rules.all_above(gain(*pair).where(**where), 1.0) for pair in pairs)),
    )


def rises_with_rate(*per: str) -> outcomes.Rule:
    """The gain of every size at the highest overlap rate above that at the lowest."""
    return combine.both(*(
        rules.rising(gain(None, size, "overlap_rate", *per, dim=AT_DIM), "overlap_rate")
        for size in SIZES
    ))  # fmt: skip


GAINS = {f"S_per {size}": gain(None, size, *POINT) for size in SIZES}


def gains(**where: Any) -> dict[str, MeasuredQuantity]:
    """Gain of each size over one snapshot at a time."""
    return {name: one.where(**where) for name, one in GAINS.items()}


OPTIONS = {"ylabel": "speed-up over one snapshot", "hline": 1.0, "hline_label": "one"}


class Fig9(FormExperiment):
    forms, name = FORMS, "fig9"
    fixed = {"system": PUBLISHED}
    repeats = {"smoke": 1, "quick": 5, None: 7}
    timeout_s = 120
    headline, unit = GAINS[f"S_per {SIZES[-1]}"], "x"
    figure_forms = (
        Sweep(
            "fig9a", "Gain of a partition over its overlap rate", gains(dim=AT_DIM),
            panel="{dataset}", series="of", x="overlap_rate", **OPTIONS, xlabel="overlap rate",
            xlog=False,
        ),
        Sweep(
            "fig9b", "Gain of a partition over feature length", gains(overlap_rate=AT_RATE),
            panel="{dataset}", series="of", x="dim", **OPTIONS, xlabel="feature length (floats)",
            base=2,
        ),
    )  # fmt: skip
    claims = {
        "pipad-fig9a-sper-order-vs-or": size_order(dim=AT_DIM),
        "pipad-fig9b-sper-order-vs-dim": size_order(overlap_rate=AT_RATE),
        "pipad-s44-low-or-penalty": combine.or_direction(
            rises_with_rate("dataset"), rises_with_rate(), settles=True
        ),
    }

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
        device, on = context.device, get_system("pipad").switches(stage(PUBLISHED))
        kernel = arrived_kernel(on) if device == "cuda" else placed_kernel(on)
        gap = _deviation(group, kernel, dim, device)
        found = race(group, dim, SIZES, kernel, device=device, budget_s=context.budget_s)
        count = len(SIZES) * SNAPSHOTS * data.num_nodes * dim
        measured = Measurement(
            deviation={"output": gap},
            checks=[
                at_most("outputs", gap, TOLERANCE, against="float64 edge lists", compared=count),
                *recount_partition(group, PartTopology.build(group)),
            ],
            data=describe(data),
            notes=["groups were made from the last snapshot, see the experiment's reading"],
        )
        measured.observe("operation_time", median(found[1]), samples=found[1])
        for size in SIZES:
            measured.observe("operation_time", median(found[size]), snapshots_together=size)
        measured.observe("turns", len(found[1]))
        return measured


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
