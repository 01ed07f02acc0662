"""Requests, transactions, lanes and balance of aggregation kernels (Figures 5, 11a, 12; 5.3).

Counted from the topology by `kernels_cuda.variants.memory_model`, which says what each kernel loads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.datasets import SnapshotSequence
from dgbench.kernels_cuda.slices import slice_csr
from dgbench.kernels_cuda.variants import memory_model as model
from dgbench.lab.compare import select
from dgbench.lab.result_checks import equal
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.pipad.experiments.common import data_of, names, open_graph
from dgbench.systems.pipad.experiments.settings import BY_NAME
from dgbench.systems.pipad.partitions import Partitions, split
from dgbench.systems.pipad.recounts import edges_of, recount_loads

KNEE_LENGTHS = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
THREAD_DIMS = (2, 6)
GROUPS = 3


class MemoryTraffic(Experiment):
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
    question = "How many memory requests and transactions does PiPAD save against GE-SpMM?"
    reading = (
        "Loads are counted from the topology, not read from a profiler: a request is one load of "
        "a warp, a transaction one 32-byte sector; caches are not modelled. PiPAD runs with its "
        "largest allowed partition (8 snapshots on small graphs, 2 on large ones, section 5.2) and "
        "without values, as the factored normalisation allows."
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        graphs = [
            Cell(
                paper=self.paper,
                experiment=self.name,
                params={"dataset": name},
                group=name,
                timeout_s=300,
            )
            for name in names(preset)
        ]
        knees = Cell(
            paper=self.paper, experiment=self.name, params={"part": "knees"}, group="knees"
        )
        return [knees, *graphs]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        if cell.params.get("part") == "knees":
            return _knees()
        graph = BY_NAME[str(cell.params["dataset"])]
        data = open_graph(graph, context.preset)
        s_per = 8 if graph.small else 2
        partitions = Partitions(data, norm="sym")
        counters = dict.fromkeys(
            ("gespmm_requests", "gespmm_transactions", "pipad_requests", "pipad_transactions",
             "empty_rows", "rows"), 0,
        )  # fmt: skip
        groups = [g for g in split(range(len(data)), s_per) if len(g) == s_per][:GROUPS]
        for group in groups:
            parts = partitions.partition(group).parts
            loads = model.partition_loads(parts, graph.feature_dim)
            counters["pipad_requests"] += loads.requests
            counters["pipad_transactions"] += loads.transactions
            for t in group:
                csr = data.topology[t]
                loads = model.gespmm_loads(csr, graph.feature_dim)
                counters["gespmm_requests"] += loads.requests
                counters["gespmm_transactions"] += loads.transactions
                counters["rows"] += csr.num_rows
                counters["empty_rows"] += int((csr.indptr.diff() == 0).sum())
        last = data.topology[groups[-1][-1]]
        sliced = slice_csr(last)
        values = {
            "imbalance_rows": model.imbalance(model.row_work(last)),
            "imbalance_slices": model.imbalance(
                model.slice_work(sliced, graph.feature_dim * s_per)
            ),
            "empty_row_share": counters["empty_rows"] / max(1, counters["rows"]),
        }
        for key in ("requests", "transactions"):
            saved = 1 - counters[f"pipad_{key}"] / max(1, counters[f"gespmm_{key}"])
            values[f"saved_{key}_percent"] = 100 * saved
        return Measurement(
            values=values,
            units={f"saved_{key}_percent": "%" for key in ("requests", "transactions")},
            counters=counters,
            checks=[
                *recount_loads(last, graph.feature_dim),
                *recount_loads(last, graph.feature_dim * s_per),
                equal(
                    "counters",
                    [counters["rows"], counters["empty_rows"]],
                    _rows(data, groups),
                    against="lists of destinations",
                ),
            ],
            data=data_of(data),
        )

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="sweep",
                name="fig5",
                title="Requests and transactions of one neighbour row",
                points=knee_points,
                options={"xlabel": "feature length (floats)", "ylabel": "loads", "base": 2},
            ),
            FigureSpec(
                kind="sweep",
                name="fig11a_memory",
                title="Loads of PiPAD's kernel as a share of GE-SpMM's",
                points=saving_points,
                options={
                    "xlabel": "graph",
                    "ylabel": "share of GE-SpMM's loads",
                    "ylog": False,
                    "hline": 1.0,
                    "hline_label": "GE-SpMM",
                },
            ),
        ]

    def answer(self, rows: Sequence[Any]) -> str:
        found = _graphs(rows)
        if not found:
            return ""
        means = [
            sum(r.values[f"saved_{key}_percent"] for r in found) / len(found)
            for key in ("requests", "transactions")
        ]
        return (
            f"Counted on {len(found)} graphs, PiPAD's kernel issues {means[0]:.0f} % fewer memory "
            f"requests and {means[1]:.0f} % fewer transactions than GE-SpMM on average."
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
    counters = {}
    for d in KNEE_LENGTHS:
        counters[f"requests_{d}"] = model.row_requests(d)
        counters[f"transactions_{d}"] = model.row_transactions(d)
    counters |= {
        # two snapshots of 2 floats, and four of 16: one by one, and coalescent
        "dim2_bytes": 2 * 2 * 4,
        "dim2_gespmm_transactions": 2 * model.row_transactions(2),
        "dim2_pipad_transactions": model.row_transactions(2 * 2),
        "dim16_gespmm_requests": model.row_requests(16),
        "dim16_gespmm_transactions": model.row_transactions(16),
        "dim16_pipad_requests": model.row_requests(4 * 16, model.vector_width(4 * 16)),
        "dim16_pipad_transactions": model.row_transactions(4 * 16),
        "coalesced_slices_at_2": model.thread_groups(2),
        "most_coalesced_slices": max(model.thread_groups(d) for d in range(1, 129)),
    }
    for width in model.VECTOR_WIDTHS:
        counters[f"floats_per_request_v{width}"] = model.WARP * width
    values = {}
    for d in THREAD_DIMS:
        values[f"lanes_gespmm_{d}"] = model.lane_occupancy(d, coalesce=False)
        values[f"lanes_pipad_{d}"] = model.lane_occupancy(d * 2)
    lanes = {d: -(-d // model.WARP) for d in KNEE_LENGTHS}
    sectors = {d: len({word // model.SECTOR_WORDS for word in range(d)}) for d in KNEE_LENGTHS}
    wanted = {f"requests_{d}": count for d, count in lanes.items()}
    wanted |= {f"transactions_{d}": count for d, count in sectors.items()}
    found = {name: counters[name] for name in wanted}
    checks = [equal("counters", found, wanted, against="words of a row, one by one")]
    return Measurement(counters=counters, values=values, checks=checks)


def _graphs(rows: Sequence[Any]) -> list[Any]:
    return [r for r in select(rows, experiment="memory") if "dataset" in r.params]


def knee_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Requests and transactions of one row, by feature length."""
    return [
        {
            "series": key,
            "x": d,
            "y": row.counters[f"{key}_{d}"],
            "counted": True,
            "row_ids": [row.id],
        }
        for row in select(rows, experiment="memory", part="knees")
        for key in ("requests", "transactions")
        for d in KNEE_LENGTHS
    ]


def saving_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """PiPAD's loads over GE-SpMM's, by graph."""
    return [
        {
            "series": key,
            "x": BY_NAME[row.params["dataset"]].title + (" (twin)" if row.data.get("twin") else ""),
            "y": row.counters[f"pipad_{key}"] / max(1, row.counters[f"gespmm_{key}"]),
            "counted": True,
            "row_ids": [row.id],
        }
        for key in ("requests", "transactions")
        for row in _graphs(rows)
    ]
