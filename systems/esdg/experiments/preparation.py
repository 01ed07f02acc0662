"""Cost of partitioning the work before any epoch (sections 4.1 and 4.2)."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any, Final

import torch

from dgbench.lab import rule_combinations as combine
from dgbench.lab import rules
from dgbench.lab.compare import observe_control, observe_speedup
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.quantities import observed
from dgbench.lab.study import FormExperiment
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.timeline import load_timeline
from dgbench.systems.base.turns import turn_rounds
from dgbench.systems.esdg.experiments.recount import partition_check
from dgbench.systems.esdg.experiments.settings import BY_NAME, FORMS, workload
from dgbench.systems.esdg.experiments.table2_runs import CUTS, SAMPLES
from dgbench.systems.esdg.partition import BlockShares
from dgbench.systems.esdg.vertex_parts import VertexParts, split_vertices
from dgbench.systems.esdg.vertex_plan import StepPlan, coordinates

OTHER: Final = "sx-mathoverflow"
"""A real graph of another kind, cut into as many snapshots."""

RANKS: Final = {"smoke": (4,), "quick": (4,), "full": (4, 16, 64), "paper": (4, 16, 64)}
TURNS: Final = {"smoke": 1, "quick": 1, "full": 2, "paper": 2}
"""Turns of a process; a cell has several processes."""
METHODS: Final = ("ranges", "pymetis", "kahypar")
KAHYPAR_TURNS: Final = 1
"""It takes from a quarter of a minute to minutes."""


MUCH: Final = 10.0
"""From how many times as long on preparation `costs much`."""
SLOWER = observed("speedup", per=("dataset", "ranks"), setting="snapshots", baseline="vertices")
"""Seconds by vertices over seconds by snapshots."""
SECONDS = observed("preparation_time", per=("dataset", "ranks", "round"))
WAYS = {
    "snapshots": SECONDS.where(setting="snapshots", method="ranges"),
    "vertices by ranges": SECONDS.where(setting="vertices", method="ranges"),
    "vertices by METIS": SECONDS.where(setting="vertices", method="pymetis"),
    "vertices by KaHyPar": SECONDS.where(setting="vertices", method="kahypar"),
}


class Preparation(FormExperiment):
    forms, name = FORMS, "preparation"
    device = "cpu"
    control = {"dataset": SAMPLES[0], "method": "ranges"}
    group = "{dataset}/{ranks}"
    headline, unit = SLOWER.per("method"), "x"
    figure_forms = (
        Sweep("preparation", "Seconds to deal the work out", WAYS, series="of",
              x="{dataset}, {ranks} ranks", xlabel="", ylabel="seconds"),
    )  # fmt: skip
    claims = {
        "esdg-s41-preprocessing": combine.first_found(
            rules.all_above(SLOWER.where(method="kahypar"), MUCH, unit="x"),
            combine.as_proxy(
                rules.all_above(SLOWER.where(method="pymetis"), MUCH, unit="x"),
                "METIS in place of a hypergraph partitioner",
            ),
        )
    }

    def points(self, preset: Preset, device: str) -> list[dict[str, Any]]:
        long = preset in ("full", "paper")
        return [
            {"dataset": dataset, "ranks": ranks, "method": method}
            for dataset in ((SAMPLES[0], OTHER) if long else SAMPLES[:1])
            for ranks in RANKS[preset]
            for method in (METHODS if long else METHODS[:2])
            # It takes minutes, and each cell has several processes.
            if method != "kahypar" or ranks == RANKS[preset][0]
        ]

    def cell(self, params: Mapping[str, Any], preset: Preset, **fields: Any) -> Cell:
        method = params["method"]
        lacking = method != "ranges" and importlib.util.find_spec(method) is None
        return super().cell(
            params, preset, **fields, timeout_s=1800 if method == "kahypar" else 120,
            unavailable=f"pip install {method}" if lacking else "",
            repeats=turn_rounds(preset), interleaved=True,
        )  # fmt: skip

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        dataset, method = str(cell.params["dataset"]), str(cell.params["method"])
        ranks = int(cell.params["ranks"])  # type: ignore[arg-type]
        fields: dict[str, Any] = {**CUTS["dense"], "snapshots": None}
        task = workload(BY_NAME[dataset], "tm_gcn", context.preset, **fields)
        data = load_timeline(task)
        steps = [data.topology[t] for t in range(len(data))]
        made: list[VertexParts] = []
        shares: list[BlockShares] = []

        def by_snapshots() -> None:
            shares[:] = [BlockShares(range(len(steps)), data.num_nodes, ranks)]

        def by_vertices() -> None:
            parts = split_vertices(steps, ranks, method)  # type: ignore[arg-type]
            for csr in steps:  # every rank makes its own lists, at the same time as the others
                StepPlan.build(*coordinates(csr), parts, 0)
            made.append(parts)

        torch.set_num_threads(1)
        slow, fast, again = [], [], []
        for _ in range(KAHYPAR_TURNS if method == "kahypar" else TURNS[context.preset]):
            fast.append(_seconds(by_snapshots))
            slow.append(_seconds(by_vertices, times=1))
            if self.controls(cell):
                again.append(_seconds(by_vertices, times=1))
        found = Measurement(data=describe(data))
        for setting, seconds in (("snapshots", fast), ("vertices", slow)):
            found.observe("preparation_time", median(seconds), setting=setting)
        observe_speedup(found, slow, fast, setting="snapshots", baseline="vertices")
        if again:
            observe_control(found, slow, again, setting="vertices")
        lists = {
            "steps": [block for held in shares[0].steps for block in held],
            "vertices of shares": shares[0].vertices,
            "vertices of parts": [made[-1].vertices(part) for part in range(ranks)],
        }
        found.checks = [
            partition_check(held, len(steps) if name == "steps" else data.num_nodes, name)
            for name, held in lists.items()
        ]
        found.deviation = {"output": 0.0}  # nothing is computed
        return found


def _seconds(function: Callable[[], object], times: int = 20) -> float:
    """Mean seconds of a call, of several since it takes microseconds."""
    start = time.perf_counter()
    for _ in range(times):
        function()
    return (time.perf_counter() - start) / times
