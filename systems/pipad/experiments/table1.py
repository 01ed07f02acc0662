"""Table 1: sizes of the seven graphs, raw and smoothed (section 5.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dgbench import datasets
from dgbench.datasets import SnapshotSequence
from dgbench.datasets.transforms import equal_windows
from dgbench.kernels_cuda.snapshots import edge_snapshots
from dgbench.lab.charts import chart
from dgbench.lab.grid import Grid
from dgbench.lab.printed import same_printed
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.lab.table import Table, rows_of
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.pipad.experiments.common import COUNTED, data_of, open_graph
from dgbench.systems.pipad.experiments.settings import BY_NAME, EPOCHS, FRAME, GRAPHS, FrameGraph
from dgbench.systems.pipad.recounts import drawn, edges_of

SIZES = {
    "N": ("vertices", None),
    "E": ("edges", "raw"),
    "E_smoothed": ("edges", "smoothed"),
    "T": ("snapshots", None),
    "D": ("length", "input"),
}
"""Column of the table -> metric, and what it is of."""


def size_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Printed and counted sizes of the graphs that are real here."""
    return [
        {
            "claim": f"{graph.title} {key}",
            "paper": graph.printed[key],
            "measured": size(row, key),
            "evidence": "counted",
            "unit": "count",
            "row_ids": [row.id],
        }
        for row in rows_of(rows, experiment="table1")
        if not row.data.get("twin")
        for graph in [BY_NAME[row.params["dataset"]]]
        for key in ("N", "E", "E_smoothed", "T")
    ]


class Table1(Grid):
    paper = "pipad"
    name = "table1"
    title = "Table 1: the graphs"
    claims = (
        "pipad-tab1-flickr",
        "pipad-tab1-youtube",
        "pipad-tab1-automotive",
        "pipad-tab1-epinions",
        "pipad-tab1-hepth",
        "pipad-tab1-pems08",
        "pipad-tab1-covid",
        "pipad-s51-feature-dims",
    )
    device = "cpu"
    own_data = "it compares graphs with the sizes that the paper prints of them"
    question = "Are the graphs the ones that the paper describes?"
    reading = (
        "Self edges count where the source has them. A number counts as equal when it rounds to "
        "the printed digits. Sizes of twins are inputs of their generator and decide nothing."
    )
    axes = {
        "dataset": {
            preset: [name for name in names if BY_NAME[name].printed]
            for preset, names in COUNTED.items()
        }
    }
    timeout_s = 300
    charts = (
        chart(
            "paper_vs_measured",
            "table1",
            "Sizes of the real graphs, printed and counted",
            size_points,
        ),
    )

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        data = open_graph(graph, context.preset, whole=True)
        measured = Measurement(data=data_of(data))
        measured.observe("vertices", data.num_nodes)
        measured.observe("snapshots", len(data))
        measured.observe("length", data.features.shape[2], of="input")
        measured.observe("length", graph.hidden_dim, of="hidden")
        measured.observe("snapshots", FRAME, of="frame")
        measured.observe("epochs", EPOCHS)
        if data.topology[0] is data.topology[-1]:
            # One topology for all snapshots: smoothing unites it with itself.
            links = data.topology[0].nnz
            edges = {"raw": links * len(data), "smoothed": links * len(data), "snapshot": links}
        else:
            edges = _edges(graph.name, graph.scale(context.preset), graph.edge_life, len(data))
        for of, count in edges.items():
            measured.observe("edges", count, of=of)
        measured.checks = _recount(graph, context.preset, data, edges["raw"])
        return measured

    def answer(self, rows: Sequence[Any]) -> str:
        real = [r for r in rows_of(rows, experiment="table1") if not r.data.get("twin")]
        same = [r for r in real if all(agrees(r).values())]
        return (
            f"{len(real)} of {len(GRAPHS)} graphs are held as real data; all printed sizes hold "
            f"for {len(same)} of these. The others are twins, fitted to published sizes."
        )


def _edges(name: str, scale: float, edge_life: int, snapshots: int) -> dict[str, int]:
    """Distinct edges summed over raw and over smoothed snapshots, self edges included."""
    events = datasets.open_events(name, scale=scale)
    bins, _ = equal_windows(events.t, snapshots)
    counted = {}
    for key, life in (("raw", 1), ("smoothed", edge_life)):
        found = edge_snapshots(
            events.src,
            events.dst,
            bins.long(),
            snapshots,
            events.num_nodes,
            edge_life=life,
            drop_self_loops=False,
        )
        counted[key] = sum(csr.nnz for csr in found)
    return counted


def _recount(
    graph: FrameGraph, preset: Preset, data: SnapshotSequence, edges_found: int
) -> list[ResultCheck]:
    """Checks of one drawn snapshot, raw and smoothed, against the distinct events of its window."""
    shape = [*data.features.shape[:2], data.topology[0].num_rows]
    checks = [
        equal("counters", shape, [len(data), data.num_nodes, data.num_nodes], against="arrays")
    ]
    if data.topology[0] is data.topology[-1]:
        entries = data.topology[0].nnz
        found = len(edges_of(data.topology[0]))
        return [*checks, equal("counters", entries, found, against="set of edges")]
    events = datasets.open_events(graph.name, scale=graph.scale(preset))
    bins, edges = equal_windows(events.t, len(data))
    inside = (events.t >= edges[bins]) & (events.t <= edges[bins + 1])
    keys = events.dst.numpy().astype(np.int64) * events.num_nodes + events.src.numpy()
    window = bins.numpy()
    raw = np.unique(np.stack([window, keys]), axis=1)
    checks += [
        equal("windows", inside, torch.ones_like(inside), against="edges of the windows"),
        equal("counters", edges_found, raw.shape[1], against="distinct events of all windows"),
    ]
    for life in dict.fromkeys((1, graph.edge_life)):
        t = drawn(len(data), 1)[0]
        wanted = np.unique(keys[(window <= t) & (window > t - life)])
        found = edge_snapshots(
            events.src, events.dst, bins, len(data), events.num_nodes,
            edge_life=life, drop_self_loops=False,
        )[t]  # fmt: skip
        checks.append(
            equal("edges", edges_of(found), wanted, against="distinct events of a window")
        )
    return checks


def size(row: Any, key: str) -> int:
    """A size of a graph, by its column in Table 1."""
    metric, of = SIZES[key]
    return int(Table.of([row]).where(metric, of=of).one().value)


def agrees(row: Any) -> dict[str, bool]:
    """Compare a counted row with the printed numbers of Table 1."""
    printed = BY_NAME[row.params["dataset"]].printed
    return {key: same_printed(size(row, key), printed[key]) for key in SIZES if key in printed}
