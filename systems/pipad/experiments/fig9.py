"""Figure 9: what a partition of S snapshots gains in the graph kernels (section 4.4)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.lab.compare import Ratio, select
from dgbench.lab.result_checks import at_most
from dgbench.runtime.statistics import pooled_ratio
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.race import TOLERANCE, relative
from dgbench.systems.pipad.experiments.common import data_of, open_graph
from dgbench.systems.pipad.experiments.settings import BY_NAME
from dgbench.systems.pipad.groups import SNAPSHOTS, aggregation, made_group, race, sequence_of
from dgbench.systems.pipad.partitions import Partitions
from dgbench.systems.pipad.recounts import plain_aggregation, recount_partition

SIZES = (2, 4, 8)
DATASETS = {"smoke": ("hepth",), "quick": ("hepth", "covid19-england")}
ALL = ("flickr", "hepth", "covid19-england")
RATES = {"smoke": (0.1, 0.9), "quick": (0.1, 0.9)}
ALL_RATES = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
DIMS = {"smoke": (16,), "quick": (2, 16, 64)}
ALL_DIMS = (2, 4, 8, 16, 32, 64)
ROUNDS = {"smoke": 1, "quick": 5, "full": 7, "paper": 7}
AT_DIM = 16
"""Floats per vertex where the overlap rate varies."""
AT_RATE = 0.9
"""Overlap rate where the dimension varies: neighbouring snapshots change by about a tenth."""


class Fig9(Experiment):
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
        "inside one process. Everything is merged here, also where the engine would not merge."
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        rates, dims = RATES.get(preset, ALL_RATES), DIMS.get(preset, ALL_DIMS)
        cells = []
        for name in DATASETS.get(preset, ALL):
            points = [(rate, AT_DIM) for rate in rates] + [(AT_RATE, dim) for dim in dims]
            cells += [
                Cell(
                    paper=self.paper,
                    experiment=self.name,
                    params={"dataset": name, "overlap_rate": rate, "dim": dim},
                    group=name,
                    repeats=ROUNDS[preset],
                    timeout_s=120,
                )
                for rate, dim in dict.fromkeys(points)
            ]
        return cells

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        rate = float(cell.params["overlap_rate"])  # type: ignore[arg-type]
        dim = int(cell.params["dim"])  # type: ignore[arg-type]
        data = open_graph(graph, context.preset)
        group = made_group(data.topology[len(data) - 1], rate)
        partitions = Partitions(sequence_of(group), norm="sym", device=context.device)
        gap = _deviation(group, partitions, dim, context.device)
        found = race(group, dim, SIZES, device=context.device, budget_s=context.budget_s)
        values = {f"seconds_{size}": median(seconds) for size, seconds in found.items()}
        rates = {f"rate_{s}": _rate(partitions, s) for s in SIZES}
        return Measurement(
            values={**values, **rates},
            units=dict.fromkeys(values, "s"),
            counters={
                "vertices": data.num_nodes,
                "edges": sum(csr.nnz for csr in group),
                "snapshots": SNAPSHOTS,
                "turns": len(found[1]),
            },
            samples=found[1],
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

    def figures(self) -> list[FigureSpec]:
        options = {"ylabel": "speed-up over one snapshot", "hline": 1.0, "hline_label": "one"}
        return [
            FigureSpec(
                kind="sweep",
                name="fig9a",
                title="Gain of a partition over its overlap rate",
                points=rate_points,
                options={**options, "xlabel": "overlap rate", "xlog": False},
            ),
            FigureSpec(
                kind="sweep",
                name="fig9b",
                title="Gain of a partition over feature length",
                points=dim_points,
                options={**options, "xlabel": "feature length (floats)", "base": 2},
            ),
        ]

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


def _rate(partitions: Partitions, size: int) -> float:
    return partitions.partition(range(size)).parts.overlap_rate()


def _deviation(group: Sequence[Csr], partitions: Partitions, dim: int, device: str) -> float:
    """Largest relative gap of output and gradient to edge lists in float64, for any size."""
    times = range(SNAPSHOTS)
    shape = (SNAPSHOTS, partitions.sequence.num_nodes, dim)
    draw = torch.Generator().manual_seed(dim)
    x = torch.randn(shape, generator=draw).to(device).requires_grad_()
    grad = torch.randn(shape, generator=draw).to(device)

    def both(size: int) -> tuple[Tensor, Tensor]:
        y = aggregation(partitions, times, size)(x)
        return y.detach(), torch.autograd.grad(y, x, grad)[0]

    plain = x.detach().cpu().double().requires_grad_()
    y = torch.stack([plain_aggregation(csr, plain[t]) for t, csr in enumerate(group)])
    wanted = y.detach(), torch.autograd.grad(y, plain, grad.cpu().double())[0]
    return max(
        relative(a.cpu().reshape(b.shape), b)
        for size in (1, *SIZES)
        for a, b in zip(both(size), wanted, strict=True)
    )


Key = tuple[str, float, int, int]
"""Dataset, overlap rate, dimension, S_per."""


def ratios(rows: Sequence[Any]) -> dict[Key, Ratio]:
    """Gain over one snapshot at a time; the pairs are the processes of a cell."""
    cells: dict[tuple[str, float, int], list[Any]] = {}
    for row in select(rows, experiment="fig9"):
        where = row.params["dataset"], row.params["overlap_rate"], row.params["dim"]
        cells.setdefault(where, []).append(row)
    found = {}
    for where, mine in cells.items():
        for size in SIZES:
            single = [row.values["seconds_1"] for row in mine]
            ratio = pooled_ratio([(single, [row.values[f"seconds_{size}"] for row in mine])])
            found[(*where, size)] = Ratio(
                value=ratio.value,
                low=ratio.low,
                high=ratio.high,
                n=ratio.n,
                rows=[row.id for row in mine],
                deviation=max(row.deviation["output"] for row in mine),
                twin=any(bool(row.data.get("twin")) for row in mine),
            )
    return found


def rate_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of Figure 9a: by overlap rate, at AT_DIM floats."""
    return _points(rows, lambda key: key[1] if key[2] == AT_DIM else None)


def dim_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of Figure 9b: by feature length, at overlap rate AT_RATE."""
    return _points(rows, lambda key: key[2] if key[1] == AT_RATE else None)


def _points(rows: Sequence[Any], x_of: Any) -> list[dict[str, Any]]:
    """Points where `x_of` gives an x; cells that failed stay visible."""
    points = []
    found = ratios(rows)
    mine = [r for r in rows if r.experiment == "fig9" and "control" not in r.params]
    keys = [(r.params["dataset"], r.params["overlap_rate"], r.params["dim"]) for r in mine]
    for where in dict.fromkeys(keys):
        for size in SIZES:
            key = (*where, size)
            x, ratio = x_of(key), found.get(key)
            if x is None:
                continue
            twin = any(bool(r.data.get("twin")) for r in mine if r.params["dataset"] == where[0])
            point = {
                "panel": BY_NAME[where[0]].title + (" (twin)" if twin else ""),
                "series": f"S_per {size}",
                "x": x,
            }
            if ratio is None:
                bad = mine[keys.index(where)]
                points.append({**point, "failed": f"{bad.status}: {bad.reason}"})
                continue
            points.append(
                {
                    **point,
                    "y": ratio.value,
                    "low": ratio.low,
                    "high": ratio.high,
                    "row_ids": ratio.rows,
                    "deviation": ratio.deviation,
                }
            )
    return points
