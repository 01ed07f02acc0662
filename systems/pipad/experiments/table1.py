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
from dgbench.lab.compare import select
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.pipad.experiments.common import data_of, names, open_graph
from dgbench.systems.pipad.experiments.settings import BY_NAME, EPOCHS, FRAME, GRAPHS, Graph
from dgbench.systems.pipad.recounts import drawn, edges_of


class Table1(Experiment):
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

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            Cell(
                paper=self.paper,
                experiment=self.name,
                params={"dataset": name},
                group=name,
                timeout_s=300,
            )
            for name in names(preset)
            if BY_NAME[name].printed
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        data = open_graph(graph, context.preset, whole=True)
        counters = {
            "N": data.num_nodes,
            "T": len(data),
            "D": data.features.shape[2],
            "H": graph.hidden_dim,
            "frame": FRAME,
            "epochs": EPOCHS,
        }
        if data.topology[0] is data.topology[-1]:
            # One topology for all snapshots: smoothing unites it with itself.
            edges = data.topology[0].nnz
            counters |= {"E": edges * len(data), "E_smoothed": edges * len(data)}
            counters["E_per_snapshot"] = edges
        else:
            counters |= _edges(graph.name, graph.scale(context.preset), graph.edge_life, len(data))
        return Measurement(
            counters=counters,
            checks=_recount(graph, context.preset, data, counters),
            data=data_of(data),
        )

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="paper_vs_measured",
                name="table1",
                title="Sizes of the real graphs, printed and counted",
                points=size_points,
            )
        ]

    def answer(self, rows: Sequence[Any]) -> str:
        found = select(rows, experiment="table1")
        real = [r for r in found if not r.data.get("twin")]
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
    for key, life in (("E", 1), ("E_smoothed", edge_life)):
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
    graph: Graph, preset: Preset, data: SnapshotSequence, counters: dict[str, int]
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
        equal("counters", counters["E"], raw.shape[1], against="distinct events of all windows"),
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


def same_printed(counted: int, printed: int) -> bool:
    """Whether a count rounds to the printed number at the printed number of digits (at least 2)."""
    digits = max(2, len(str(printed).rstrip("0")))
    unit = 10 ** max(0, len(str(printed)) - digits)
    # The paper cuts as often as it rounds (82,529 is printed as 82 K), so a whole unit is allowed.
    return abs(counted - printed) < unit if unit > 1 else counted == printed


def agrees(row: Any) -> dict[str, bool]:
    """Which printed numbers of Table 1 a counted row has."""
    printed = BY_NAME[row.params["dataset"]].printed
    return {
        key: same_printed(row.counters[key], printed[key])
        for key in ("N", "E", "E_smoothed", "T", "D")
        if key in printed
    }


def size_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Printed and counted sizes of the graphs that are real here."""
    points = []
    for row in select(rows, experiment="table1"):
        if row.data.get("twin"):
            continue
        graph = BY_NAME[row.params["dataset"]]
        for key in ("N", "E", "E_smoothed", "T"):
            points.append(
                {
                    "claim": f"{graph.title} {key}",
                    "paper": graph.printed[key],
                    "measured": row.counters[key],
                    "evidence": "counted",
                    "unit": "count",
                    "row_ids": [row.id],
                }
            )
    return points
