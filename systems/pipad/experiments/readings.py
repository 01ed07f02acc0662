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
from dgbench.lab.compare import select
from dgbench.lab.result_checks import ResultCheck, at_most, equal
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.race import TOLERANCE, relative
from dgbench.systems.pipad.experiments.common import QUICK, SMOKE, data_of, open_graph
from dgbench.systems.pipad.experiments.settings import ALL, BY_NAME
from dgbench.systems.pipad.partitions import on_device, split
from dgbench.systems.pipad.recounts import edges_of, plain_aggregation

READINGS: Final[dict[Granularity, str]] = {"edge": "edges (a)", "slice": "whole slices (b)"}
S_OPTIONS = (2, 4, 8)
MOST_GROUPS = 6
TURNS = 7


class Readings(Experiment):
    paper = "pipad"
    name = "readings"
    title = "Section 4.1: two readings of slice-grained extraction"
    question = "How much of the overlap is left when only whole slices count as shared?"
    reading = (
        "The paper calls extraction slice-grained without saying what is compared. We compare "
        "edges (a) and keep whole slices (b) for comparison. Words are counted without values; "
        "extraction is timed on the CPU, aggregation forward over one partition of four."
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            Cell(
                paper=self.paper,
                experiment=self.name,
                params={"dataset": name},
                group=name,
                timeout_s=300,
            )
            for name in _graphs(preset)
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        data = open_graph(graph, context.preset)
        values: dict[str, float] = {}
        counters: dict[str, int] = {}
        gap, checks = 0.0, []
        for size in S_OPTIONS:
            groups = [g for g in split(range(len(data)), size) if len(g) == size]
            groups = groups[:: max(1, len(groups) // MOST_GROUPS)]
            csrs = [[data.topology[t] for t in group] for group in groups]
            whole = sum(slice_csr(c).words(with_values=False) for group in csrs for c in group)
            counters |= {f"words_whole_{size}": whole, f"groups_{size}": len(groups)}
            for kind in READINGS:
                parts = [PartTopology.build(group, granularity=kind) for group in csrs]
                key = f"{kind}_{size}"
                counters[f"words_{key}"] = sum(p.words(with_values=False) for p in parts)
                values[f"rate_{key}"] = sum(p.overlap_rate() for p in parts) / len(parts)
            if size == 4:
                last = csrs[-1]
                values |= _seconds("extract", _extractions(last))
                found, gap = _aggregations(last, graph.feature_dim, context.device)
                checks = _recount(last, gap, graph.feature_dim)
                values |= _seconds("aggregate", found)
        return Measurement(
            values=values,
            units={key: "s" for key in values if key.endswith("_s")},
            counters=counters,
            deviation={"output": gap},
            checks=checks,
            data=data_of(data),
        )

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="sweep",
                name="readings",
                title="Overlap by edges and by whole slices",
                points=points,
                options={
                    "xlabel": "graph",
                    "ylabel": "share of words; time of (b) over (a)",
                    "ylog": False,
                    "hline": 1.0,
                    "hline_label": "whole snapshots; equally long",
                },
            )
        ]

    def answer(self, rows: Sequence[Any]) -> str:
        found = select(rows, experiment="readings")
        if not found:
            return ""
        shares = {k: [_share(r, k, 4) for r in found] for k in READINGS}
        more = sum(b > a for a, b in zip(shares["edge"], shares["slice"], strict=True))
        return (
            f"Partitions of four take {100 * min(shares['edge']):.2g} to "
            f"{100 * max(shares['edge']):.3g} % of whole snapshots' words by edges and "
            f"{100 * min(shares['slice']):.2g} to {100 * max(shares['slice']):.3g} % by whole "
            f"slices, which takes more words on {more} of {len(found)} graphs."
        )


def _graphs(preset: Preset) -> list[str]:
    if preset in ("smoke", "quick"):
        return list(SMOKE[:2] if preset == "smoke" else QUICK)
    return [graph.name for graph in ALL]


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


def _seconds(what: str, contenders: dict[str, Callable[[], Any]]) -> dict[str, float]:
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
    return {f"{what}_{name}_s": median(taken) for name, taken in found.items()}


def _share(row: Any, kind: str, size: int) -> float:
    return row.counters[f"words_{kind}_{size}"] / max(1, row.counters[f"words_whole_{size}"])


def _title(row: Any) -> str:
    return BY_NAME[row.params["dataset"]].title + (" (twin)" if row.data.get("twin") else "")


def points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Words by either reading, and how long (b) takes against (a)."""
    mine = select(rows, experiment="readings")
    found = [
        {
            "panel": f"words of partitions of {size} (counted)",
            "series": title,
            "x": _title(row),
            "y": _share(row, kind, size),
            "counted": True,
            "row_ids": [row.id],
        }
        for size in S_OPTIONS
        for kind, title in READINGS.items()
        for row in mine
    ]
    for what, title in (("extract", "extraction"), ("aggregate", "aggregation")):
        for row in mine:
            seconds = [row.values[f"{what}_{kind}_s"] for kind in READINGS]
            found.append(
                {
                    "panel": "time of (b) over (a), partitions of 4",
                    "series": title,
                    "x": _title(row),
                    "y": seconds[1] / seconds[0],
                    "row_ids": [row.id],
                }
            )
    bad = [r for r in rows if r.experiment == "readings" and r.status != "ok"]
    return found + [
        {
            "panel": f"words of partitions of {S_OPTIONS[0]} (counted)",
            "series": READINGS["edge"],
            "x": BY_NAME[row.params["dataset"]].title,
            "failed": f"{row.status}: {row.reason}",
        }
        for row in bad
    ]
