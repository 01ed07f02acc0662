"""Requests, transactions, lanes and balance of aggregation kernels (Figures 5, 11a, 12; 5.3).

Counted from the topology by `kernels_cuda.variants.memory_model`, which says what each kernel
loads.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from dgbench.datasets import SnapshotSequence
from dgbench.kernels_cuda.slices import slice_csr
from dgbench.kernels_cuda.variants import memory_model as model
from dgbench.lab.charts import chart
from dgbench.lab.grid import Grid
from dgbench.lab.result_checks import equal
from dgbench.lab.table import Table
from dgbench.lab.verbs import observed
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.pipad.experiments.common import COUNTED, data_of, open_graph
from dgbench.systems.pipad.experiments.settings import BY_NAME, panel
from dgbench.systems.pipad.partitions import Partitions, split
from dgbench.systems.pipad.recounts import edges_of, recount_loads

LOADS = ("requests", "transactions")
KNEE_LENGTHS = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
THREAD_DIMS = (2, 6)
GROUPS = 3
KNEES = observed("memory", part="knees")
"""Loads of single rows."""
ROW_LOADS = observed("memory", LOADS, part="knees", method=None)
"""Loads of one neighbour row by feature length."""
GRAPH_LOADS = observed("memory", LOADS, part=None)


def knee_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Requests and transactions of one row, by feature length."""
    return [
        {
            "series": name,
            "x": one["dim"],
            "y": one.value,
            "counted": True,
            "row_ids": [one.row.id],
        }
        for name in LOADS
        for one in ROW_LOADS(rows).where(name)
    ]


def saving_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """PiPAD's loads over GE-SpMM's, by graph."""
    points = []
    for name in LOADS:
        for row in GRAPH_LOADS(rows).rows:
            loads = Table.of([row]).where(name).numbers("method")
            y = loads["pipad"] / max(1, loads["gespmm"])
            point = {"series": name, "x": panel(row), "y": y, "counted": True}
            points.append({**point, "row_ids": [row.id]})
    return points


class MemoryTraffic(Grid):
    paper = "pipad"
    name = "memory"
    title = "Figures 5 and 11a: memory requests and transactions"
    claims = (
        "pipad-s32-access-granularity",
        "pipad-fig5-request-transaction-knees",
        "pipad-s42-coalesce-num",
        "pipad-s42-vector-widths",
        "pipad-fig11a-requests",
        "pipad-fig11a-transactions",
        "pipad-fig11a-youtube-memory",
        "pipad-s53-example-dim2",
        "pipad-s53-example-dim16",
        "pipad-s53-thread-util",
    )
    device = "cpu"
    sources = {"saving": "counted", "utilisation": "counted"}  # by the model of loads and lanes
    question = "How many memory requests and transactions does PiPAD save against GE-SpMM?"
    reading = (
        "Loads are counted from the topology, not read from a profiler: a request is one load of "
        "a warp, a transaction one 32-byte sector; caches are not modelled. PiPAD runs with its "
        "largest allowed partition (8 snapshots on small graphs, 2 on large ones, section 5.2) and "
        "without values, as the factored normalisation allows."
    )
    axes = {"dataset": COUNTED}
    timeout_s = 300
    charts = (
        chart(
            "sweep",
            "fig5",
            "Requests and transactions of one neighbour row",
            knee_points,
            xlabel="feature length (floats)",
            ylabel="loads",
            base=2,
        ),
        chart(
            "sweep",
            "fig11a_memory",
            "Loads of PiPAD's kernel as a share of GE-SpMM's",
            saving_points,
            xlabel="graph",
            ylabel="share of GE-SpMM's loads",
            ylog=False,
            hline=1.0,
            hline_label="GE-SpMM",
        ),
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        knees = self.cell({"part": "knees"}, preset, group="knees", timeout_s=60.0)
        return [knees, *super().cells(preset, device)]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        if cell.params.get("part") == "knees":
            return _knees()
        graph = BY_NAME[str(cell.params["dataset"])]
        data = open_graph(graph, context.preset)
        s_per = 8 if graph.small else 2
        partitions = Partitions(data, norm="sym")
        loads = {method: dict.fromkeys(LOADS, 0) for method in ("gespmm", "pipad")}
        rows = empty = 0

        def add(method: str, found: model.LoadCounts) -> None:
            loads[method]["requests"] += found.requests
            loads[method]["transactions"] += found.transactions

        groups = [g for g in split(range(len(data)), s_per) if len(g) == s_per][:GROUPS]
        for group in groups:
            parts = partitions.partition(group).parts
            add("pipad", model.partition_loads(parts, graph.feature_dim))
            for t in group:
                csr = data.topology[t]
                add("gespmm", model.gespmm_loads(csr, graph.feature_dim))
                rows += csr.num_rows
                empty += int((csr.indptr.diff() == 0).sum())
        last = data.topology[groups[-1][-1]]
        slices = model.slice_work(slice_csr(last), graph.feature_dim * s_per)
        measured = Measurement(
            checks=[
                *recount_loads(last, graph.feature_dim),
                *recount_loads(last, graph.feature_dim * s_per),
                equal(
                    "counters", [rows, empty], _rows(data, groups), against="lists of destinations"
                ),
            ],
            data=data_of(data),
        )
        for name in LOADS:
            for method, counts in loads.items():
                measured.observe(name, counts[name], method=method)
            saved = 1 - loads["pipad"][name] / max(1, loads["gespmm"][name])
            measured.observe("saving", saved, of=name)
        measured.observe("rows", rows)
        measured.observe("rows", empty, of="empty")
        measured.observe("empty_share", empty / max(1, rows))
        measured.observe("imbalance", model.imbalance(model.row_work(last)), of="rows")
        measured.observe("imbalance", model.imbalance(slices), of="slices")
        return measured

    def answer(self, rows: Sequence[Any]) -> str:
        saved = observed("memory", "saving")(rows).by("of")
        if not saved:
            return ""
        requests, transactions = (100 * fmean(saved[name].values) for name in LOADS)
        return (
            f"Counted on {len(saved['requests'])} graphs, PiPAD's kernel issues {requests:.0f} % "
            f"fewer memory requests and {transactions:.0f} % fewer transactions than GE-SpMM on "
            "average."
        )


def _rows(data: SnapshotSequence, groups: Sequence[range]) -> list[int]:
    """Rows of the snapshots of these groups, and how many are nobody's destination."""
    rows = empty = 0
    for t in (t for group in groups for t in group):
        edges = edges_of(data.topology[t])
        rows += data.num_nodes
        empty += data.num_nodes - len(set((edges // data.num_nodes).tolist()))
    return [rows, empty]


def _knees() -> Measurement:
    """Loads of one row by feature length, and the worked examples of section 5.3."""
    measured = Measurement()
    found: dict[str, list[int]] = {name: [] for name in LOADS}
    for dim in KNEE_LENGTHS:
        for name, count in zip(
            LOADS, (model.row_requests(dim), model.row_transactions(dim)), strict=True
        ):
            found[name].append(count)
            measured.observe(name, count, dim=dim)
    # Two snapshots of 2 floats, and four of 16: one by one, and coalescent.
    pair = {"dim": 2, "snapshots_together": 2}
    measured.observe("memory", 2 * 2 * 4, **pair)
    measured.observe("transactions", 2 * model.row_transactions(2), method="gespmm", **pair)
    measured.observe("transactions", model.row_transactions(2 * 2), method="pipad", **pair)
    four, single = 4 * 16, {"method": "gespmm", "dim": 16, "snapshots_together": 1}
    together = {"method": "pipad", "dim": 16, "snapshots_together": 4}
    measured.observe("requests", model.row_requests(16), **single)
    measured.observe("transactions", model.row_transactions(16), **single)
    measured.observe("requests", model.row_requests(four, model.vector_width(four)), **together)
    measured.observe("transactions", model.row_transactions(four), **together)
    most = max(model.thread_groups(dim) for dim in range(1, 129))
    measured.observe("slices", model.thread_groups(2), of="coalesced", dim=2)
    measured.observe("slices", most, of="coalesced")
    for width in model.VECTOR_WIDTHS:
        measured.observe("length", model.WARP * width, of="request", size=width)
    for dim in THREAD_DIMS:
        alone = model.lane_occupancy(dim, coalesce=False)
        measured.observe("utilisation", alone, method="gespmm", dim=dim)
        measured.observe("utilisation", model.lane_occupancy(dim * 2), method="pipad", dim=dim)
    sectors = [len({word // model.SECTOR_WORDS for word in range(d)}) for d in KNEE_LENGTHS]
    wanted = {"requests": [-(-d // model.WARP) for d in KNEE_LENGTHS], "transactions": sectors}
    measured.checks = [equal("counters", found, wanted, against="words of a row, one by one")]
    return measured
