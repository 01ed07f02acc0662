"""Cost of partitioning the work before any epoch (sections 4.1 and 4.2)."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, ClassVar, Final

import torch

from dgbench.kernels_cuda.csr import Csr
from dgbench.lab.charts import sweep
from dgbench.lab.compare import Ratio, observe_control, observe_speedup, ratio_of
from dgbench.lab.result_checks import ResultCheck
from dgbench.lab.table import Table, number, rows_of
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.timeline import load_timeline
from dgbench.systems.base.turns import turn_rounds
from dgbench.systems.esdg.experiments.recount import OVER_EDGES, agree, partition_check
from dgbench.systems.esdg.experiments.settings import BY_NAME, workload
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
TITLES: Final = {
    "snapshots": "snapshots",
    "ranges": "vertices by ranges",
    "pymetis": "vertices by METIS",
    "kahypar": "vertices by KaHyPar",
}
KAHYPAR_TURNS: Final = 1
"""It takes from a quarter of a minute to minutes."""


class Preparation(Experiment):
    paper = "esdg"
    name = "preparation"
    title = "Section 4.1: what partitioning costs"
    device = "cpu"
    question = "How long does it take to deal the work out, by snapshots and by vertices?"
    reading = (
        "Seconds on one core until each rank knows what is its own and what it has to send: shares "
        "of the steps and of the vertices for the snapshot partition; parts of the vertices and "
        "the lists of rows for the vertex partition. KaHyPar parts the hypergraph that the paper "
        "gives to PaToH, METIS a graph in place of it, and ranges search for nothing."
    )
    claims = ("esdg-s41-preprocessing",)
    control: ClassVar = {"dataset": SAMPLES[0], "method": "ranges"}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        found = []
        for dataset in (SAMPLES[0],) if preset in ("smoke", "quick") else (SAMPLES[0], OTHER):
            for ranks in RANKS[preset]:
                for method in METHODS if preset in ("full", "paper") else METHODS[:2]:
                    if method == "kahypar" and ranks != RANKS[preset][0]:
                        continue  # it takes minutes, and each cell has several processes
                    lacking = method != "ranges" and importlib.util.find_spec(method) is None
                    found.append(
                        self.cell_of(
                            {"dataset": dataset, "ranks": ranks, "method": method},
                            f"{dataset}/{ranks}",
                            timeout_s=1800 if method == "kahypar" else 120,
                            unavailable=f"pip install {method}" if lacking else "",
                            repeats=turn_rounds(preset),
                            interleaved=True,
                        )
                    )
        return found

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        dataset, method = str(cell.params["dataset"]), str(cell.params["method"])
        ranks = int(cell.params["ranks"])  # type: ignore[arg-type]
        fields: dict[str, Any] = {**CUTS["dense"], "snapshots": None}
        task = workload(BY_NAME[dataset], "tm_gcn", context.preset, **fields)
        data = load_timeline(task)
        steps = [data.topology[t] for t in range(len(data))]
        made: list[VertexParts] = []
        shares: list[BlockShares] = []
        received: list[int] = []

        def by_snapshots() -> None:
            shares[:] = [BlockShares(range(len(steps)), data.num_nodes, ranks)]

        def by_vertices() -> float:
            """Parts and lists; seconds of the parts alone."""
            start = time.perf_counter()
            parts = split_vertices(steps, ranks, method)  # type: ignore[arg-type]
            taken = time.perf_counter() - start
            # Every rank makes its own lists, at the same time as the others.
            listed = [StepPlan.build(*coordinates(csr), parts, 0) for csr in steps]
            received[:] = [sum(sum(plan.receive) for plan in listed)]
            made.append(parts)
            return taken

        torch.set_num_threads(1)
        slow, fast, search, again = [], [], [], []
        for _ in range(KAHYPAR_TURNS if method == "kahypar" else TURNS[context.preset]):
            fast.append(_seconds(by_snapshots))
            start = time.perf_counter()
            search.append(by_vertices())
            slow.append(time.perf_counter() - start)
            if self.controls(cell):
                again.append(_seconds(by_vertices, times=1))
        found = _sizes(len(steps), data.num_nodes, ranks, received[0])
        for setting, seconds in (("snapshots", fast), ("vertices", slow), ("parts", search)):
            found.observe("preparation_time", median(seconds), setting=setting)
        observe_speedup(found, slow, fast, setting="snapshots", baseline="vertices")
        if again:
            observe_control(found, slow, again, setting="vertices")
        found.data = describe(data)
        found.checks = _checks(steps, shares[0], made[-1], found)
        found.deviation = {"output": 0.0}  # nothing is computed
        return found

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("preparation", "Seconds to deal the work out", points, xlabel="",
                ylabel="seconds"),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        found = prepared(rows)
        if not found:
            return ""
        worst = max(found, key=lambda row: seconds_of(row, "vertices"))
        return (
            f"Shares of the snapshots are there after {seconds_of(worst, 'snapshots') * 1e6:.0f} "
            f"microseconds; {TITLES[worst.params['method']]} and their lists take "
            f"{seconds_of(worst, 'vertices'):.2g} s on {BY_NAME[worst.params['dataset']].title} "
            f"({worst.params['ranks']} ranks)."
        )


def _sizes(steps: int, vertices: int, ranks: int, received: int) -> Measurement:
    """Observe the partitioned sizes, and the rows that rank 0 receives."""
    found = Measurement()
    found.observe("snapshots", steps)
    found.observe("vertices", vertices)
    found.observe("processes", ranks)
    found.observe("remote_reads", received, of="first_rank")
    return found


def _checks(
    steps: Sequence[Csr], shares: BlockShares, parts: VertexParts, own: Measurement
) -> list[ResultCheck]:
    """Everything has one owner, and rank 0 receives what its vertices read of others'."""
    received = 0
    for csr in steps:
        rows = torch.arange(csr.num_rows).repeat_interleave(csr.indptr.diff())
        mine = csr.indices.long()[parts.owner[rows] == 0]
        received += int((parts.owner[mine.unique()] != 0).sum())
    nodes = len(parts.owner)
    wanted = _sizes(len(steps), steps[0].indptr.numel() - 1, parts.size, received)
    return [
        partition_check([s for held in shares.steps for s in held], len(steps), "steps"),
        partition_check(shares.vertices, nodes, "vertices of shares"),
        partition_check([parts.vertices(p) for p in range(parts.size)], nodes, "vertices of parts"),
        agree(own, wanted, against=OVER_EDGES),
    ]


def _seconds(function: Callable[[], object], times: int = 20) -> float:
    """Mean seconds of a call, of several since it takes microseconds."""
    start = time.perf_counter()
    for _ in range(times):
        function()
    return (time.perf_counter() - start) / times


def prepared(rows: Sequence[Any], **params: Any) -> list[Any]:
    """Rows of this experiment."""
    return rows_of(rows, experiment="preparation", **params)


def slowdowns(rows: Sequence[Any], method: str) -> dict[tuple[str, int], Ratio]:
    """Seconds by vertices over seconds by snapshots by dataset and ranks."""
    found = Table.of(prepared(rows, method=method)).where("speedup").by("dataset", "ranks")
    ratios = {key: ratio_of(table) for key, table in found.items()}
    return {key: ratio for key, ratio in ratios.items() if ratio is not None}


def seconds_of(row: Any, setting: str) -> float:
    """Median seconds to deal out by `snapshots` or by `vertices`."""
    return number(row, "preparation_time", setting=setting)


def points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """A dot per way to deal out, one row per graph and number of ranks."""
    found = []
    for row in rows:
        if row.experiment != "preparation" or row.instrumented:
            continue
        title = BY_NAME[row.params["dataset"]].title
        point = {
            "x": f"{title}, {row.params['ranks']} ranks",
            "series": TITLES[row.params["method"]],
            "row_ids": [row.id],
        }
        if row.status != "ok":
            found.append({**point, "failed": f"{row.status}: {row.reason}"})
            continue
        if row.params["method"] == "ranges":
            found.append(
                {**point, "series": TITLES["snapshots"], "y": seconds_of(row, "snapshots")}
            )
        found.append({**point, "y": seconds_of(row, "vertices")})
    return found
