"""The two readings of slice-grained extraction (section 4.1; ours): edges, or whole slices.

(a) compares the edges of a row, slices only bound a piece of work. (b) calls shared only what lies
in identical slices; one edge more moves all later slices of its row, and these are shared no more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Final

import numpy as np
import torch

from dgbench.kernels_cuda.aggregate import aggregate_parts
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import Granularity, PartTopology
from dgbench.kernels_cuda.slices import slice_csr
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.quantities import MeasuredQuantity, observed
from dgbench.lab.result_checks import ResultCheck, at_most, equal
from dgbench.lab.study import FormExperiment
from dgbench.systems.base import Cell, Measurement, RunContext
from dgbench.systems.base.race import TOLERANCE, relative
from dgbench.systems.pipad.experiments.common import FEW, data_of, open_graph
from dgbench.systems.pipad.experiments.settings import BY_NAME, FORMS
from dgbench.systems.pipad.partitions import on_device, split
from dgbench.systems.pipad.recounts import edges_of, plain_aggregation

READINGS: Final[tuple[Granularity, ...]] = ("edge", "slice")
S_OPTIONS = (2, 4, 8)
MAX_GROUPS = 6
TURNS = 7


def share(size: int) -> MeasuredQuantity:
    """Words of partitions of a size over those of whole snapshots, by reading."""
    words = observed("words", per="dataset", snapshots_together=size)
    return words.where(format="partition", method=READINGS) / words.where(format="whole")


SPENT = observed("operation_time", per=("dataset", "phase"))
COST = SPENT.where(method="slice") / SPENT.where(method="edge")
"""Time of (b) over (a)."""


class Readings(FormExperiment):
    forms, name = FORMS, "readings"
    axes = {"dataset": FEW}
    timeout_s = 300
    headline = share(4)
    figure_forms = (
        Sweep(
            "readings", "Overlap by edges and by whole slices",
            {
                **{f"words of partitions of {size} (counted)": share(size) for size in S_OPTIONS},
                "time of (b) over (a), partitions of 4": COST,
            },
            panel="of", series="{method}{phase}", x="{dataset}", xlabel="graph",
            ylabel="share of words; time of (b) over (a)", ylog=False, hline=1.0,
            hline_label="whole snapshots; equally long",
        ),
    )  # fmt: skip

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        data = open_graph(graph, context.preset)
        measured = Measurement(data=data_of(data))
        for size in S_OPTIONS:
            groups = [g for g in split(range(len(data)), size) if len(g) == size]
            groups = groups[:: max(1, len(groups) // MAX_GROUPS)]
            csrs = [[data.topology[t] for t in group] for group in groups]
            whole = sum(slice_csr(c).words(with_values=False) for group in csrs for c in group)
            together = {"snapshots_together": size}
            measured.observe("words", whole, format="whole", **together)
            measured.observe("groups", len(groups), **together)
            for kind in READINGS:
                parts = [PartTopology.build(group, granularity=kind) for group in csrs]
                words = sum(p.words(with_values=False) for p in parts)
                rate = sum(p.overlap_rate() for p in parts) / len(parts)
                measured.observe("words", words, format="partition", method=kind, **together)
                measured.observe("overlap", rate, method=kind, **together)
            if size == 4:
                last = csrs[-1]
                found, gap = _aggregations(last, graph.feature_dim, context.device)
                measured.deviation = {"output": gap}
                measured.checks = _recount(last, gap, graph.feature_dim)
                for phase, calls in (("extraction", _extractions(last)), ("aggregation", found)):
                    for kind, seconds in _seconds(calls).items():
                        measured.observe("operation_time", seconds, phase=phase, method=kind)
        return measured


def _extractions(csrs: Sequence[Any]) -> dict[str, Callable[[], Any]]:
    return {k: lambda k=k: PartTopology.build(csrs, granularity=k) for k in READINGS}


def _aggregations(
    csrs: Sequence[Any], dim: int, device: str
) -> tuple[dict[str, Callable[[], Any]], float]:
    """Merged aggregation by either reading, and the gap between their results."""
    csrs = [on_device(csr, torch.device(device)) for csr in csrs] if device == "cuda" else csrs
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(csrs[0].num_cols, len(csrs), dim, generator=draw).to(device)
    ones = torch.ones(csrs[0].num_rows, len(csrs), device=device)
    parts = {k: PartTopology.build(csrs, granularity=k) for k in READINGS}
    found = {
        k: lambda p=p: aggregate_parts(p, x, ones, ones, self_loop=True) for k, p in parts.items()
    }
    wanted = torch.stack(
        [plain_aggregation(csr, x[:, i], norm=False) for i, csr in enumerate(csrs)], dim=1
    )
    return found, max(relative(found[kind]().cpu(), wanted) for kind in READINGS)


def _recount(csrs: Sequence[Csr], gap: float, dim: int) -> list[ResultCheck]:
    """Checks of a group: both readings' aggregation, and every snapshot's edges in its parts."""
    count = csrs[0].num_rows * len(csrs) * dim
    checks = [at_most("outputs", gap, TOLERANCE, against="float64 edge lists", compared=count)]
    for kind in READINGS:
        parts = PartTopology.build(csrs, granularity=kind)
        shared = edges_of(parts.over)
        for t, csr in enumerate(csrs):
            both = np.concatenate([shared, edges_of(parts.exclusive[t])])
            name = f"edges of the {kind} reading"
            checks.append(equal(name, np.sort(both), edges_of(csr), against="snapshot"))
    return checks


def _seconds(contenders: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Median seconds of each contender, in turns; the first turn warms up."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    sync = torch.cuda.synchronize if torch.cuda.is_available() else None
    names = list(contenders)
    for turn in range(TURNS + 1):
        for name in names if turn % 2 else reversed(names):
            start = time.perf_counter()
            contenders[name]()
            if sync:
                sync()
            if turn:
                found[name].append(time.perf_counter() - start)
    return {name: median(taken) for name, taken in found.items()}
