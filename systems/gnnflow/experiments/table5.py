"""Table 5: sizes of the five graphs, and the machine that this run is on (sections 6 and 6.1)."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import psutil
import torch

from dgbench import datasets
from dgbench.datasets.sources import find_form
from dgbench.lab.charts import failed, failures, sweep
from dgbench.lab.grid import Grid
from dgbench.lab.metrics import STATED
from dgbench.lab.printed import same_printed
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.lab.table import Table, rows_of
from dgbench.systems.base import Cell, FigureSpec, Measurement, RunContext
from dgbench.systems.gnnflow.experiments.settings import GRAPHS

SIZES: Final = ("nodes", "edges")
METRICS: Final = {"nodes": "vertices", "edges": "edges"}


class Table5(Grid):
    paper = "gnnflow"
    name = "table5"
    title = "Table 5: the graphs"
    device = "cpu"
    question = "Are the graphs the ones that the paper prints?"
    reading = (
        "Counts are of the publisher's files where these are here, else those that the publisher "
        "states. A twin was fitted to them, so none is opened for this. LDBC is generated, its "
        "size hangs on a scale factor that the paper does not print."
    )
    claims = (
        "gnnflow-tab5-nodes",
        "gnnflow-tab5-edges",
        "gnnflow-tab5-node-dim",
        "gnnflow-tab5-edge-dim",
        "gnnflow-tab5-span",
        "gnnflow-tab5-granularity",
        "gnnflow-s6-testbed",
    )

    axes: ClassVar[Any] = {"what": ("sizes",)}
    group = "{what}"
    timeout_s: ClassVar[Any] = {"paper": 3600, None: 120}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        here = machine()
        found = Measurement(
            data={"dataset": "publishers' counts", "twin": False, "scale": 1.0, "note": ""}
        )
        found.observe("devices", here["gpus"])
        found.observe("memory", here["gpu memory"], of="gpu")
        found.observe("processors", here["processors"])
        found.observe("memory", here["host memory"], of="host")
        stated: dict[tuple[str, str], int] = {}
        for graph in GRAPHS:
            card = datasets.card(graph.name)
            for size in SIZES:
                one = getattr(card.published, size, None) if card.published else None
                if one:
                    stated[graph.name, size] = int(one)
                    found.observe(METRICS[size], int(one), dataset=graph.name, setting=STATED)
            if find_form(card) is None:
                known = (graph.name, "edges") in stated
                said = "sizes as its publisher states them" if known else "nobody states its sizes"
                found.notes.append(f"{graph.title}: no files here, {said}")
                continue
            counts, spans = counted(graph.name), times(graph.name)
            for size in SIZES:
                found.observe(METRICS[size], counts[size], dataset=graph.name, setting="counted")
            for kind in ("node", "edge"):
                found.observe("columns", counts[f"{kind}_dim"], dataset=graph.name, of=kind)
            for what, seconds in spans.items():
                found.observe("window", seconds, dataset=graph.name, of=what)
            found.checks.append(counted_check(graph.name, counts, spans))
        found.checks = size_checks(here, stated) + found.checks
        return found

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("table5", "Sizes of the graphs, as printed and as published", size_points,
                xlabel="", ylabel="", sort=False),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        found = rows_of(rows, experiment=self.name)
        if not found:
            return ""
        apart = [
            f"{graph.title} has {size_of(found[-1], graph.name, size)[0]:,} {size}, printed are "
            f"{graph.printed[size]:,}"
            for graph in GRAPHS
            for size in SIZES
            if (known := size_of(found[-1], graph.name, size))
            and not same_printed(known[0], graph.printed[size])
        ]
        said = f"All but one: {apart[0]}" if len(apart) == 1 else "; ".join(apart)
        return f"{said or 'All sizes that are known round to the printed ones'}."


def machine() -> dict[str, int]:
    """Properties of this machine that section 6 prints for its own."""
    there = torch.cuda.device_count()
    memory = torch.cuda.get_device_properties(0).total_memory if there else 0
    return {
        "gpus": there,
        "gpu memory": memory,
        "processors": os.cpu_count() or 1,
        "host memory": psutil.virtual_memory().total,
    }


def size_checks(here: dict[str, int], stated: dict[tuple[str, str], int]) -> list[ResultCheck]:
    """Checks of stated sizes by the text of the cards, and of the machine's by what its kernel
    tells."""
    cards = resources.files("dgbench.datasets").joinpath("cards")
    text = "\n".join(f.read_text() for f in cards.iterdir() if f.name.endswith(".yaml"))
    written = {}
    for name, size in stated:
        entry = re.search(rf"^- name: {name}$(.*?)(?=^- name: |\Z)", text, re.M | re.S)
        number = re.search(rf"\b{size}: *([\d_]+)", entry[1]) if entry else None
        written[name, size] = int(number[1]) if number else -1
    found = [equal("counters", stated, written, against="text of the cards")] if stated else []
    told = {}
    memory = Path("/proc/meminfo")
    if memory.exists():
        kib = next(row for row in memory.read_text().splitlines() if row.startswith("MemTotal"))
        told["host memory"] = 1024 * int(kib.split()[1])
        online = Path("/sys/devices/system/cpu/online").read_text().strip()
        ranges = [part.split("-") for part in online.split(",")]
        told["processors"] = sum(int(ends[-1]) - int(ends[0]) + 1 for ends in ranges)
        own = {key: here[key] for key in told}
        found.append(equal("counters", own, told, against="the kernel's own account"))
    return found


def counted_check(name: str, counts: dict[str, int], spans: dict[str, float]) -> ResultCheck:
    """A check of counted sizes by the events themselves."""
    events = datasets.open_events(name, source="real")
    ends = torch.cat([events.src, events.dst])
    wanted = {"nodes": int(ends.max()) + 1, "edges": ends.numel() // 2}
    own = {"nodes": counts["nodes"], "edges": counts["edges"]}
    if "stream" in spans:
        unit = datasets.card(name).unit_s or math.nan
        wanted["stream"] = float(events.t.max() - events.t.min()) * unit
        own["stream"] = spans["stream"]
    return equal("counters", own, wanted, against="events of the files")


def counted(name: str) -> dict[str, int]:
    """Vertices, edges and widths of features in the publisher's files."""
    events = datasets.open_events(name, source="real")
    found = {"nodes": events.num_nodes, "edges": len(events)}
    for key, table in (("node_dim", events.node_feat), ("edge_dim", events.edge_feat)):
        found[key] = 0 if table is None else table.shape[1]
    return found


def times(name: str) -> dict[str, float]:
    """Seconds that the publisher's files span, and those between different times of events.

    Nothing where the unit of the times has no length.
    """
    t, unit = datasets.open_events(name, source="real").t.numpy(), datasets.card(name).unit_s
    if unit is None:
        return {}
    steps = np.diff(np.unique(t))
    found = {"stream": float(t[-1] - t[0]) * unit if t.size else 0.0}
    if steps.size:
        found["step"] = float(np.median(steps)) * unit
    return found


def size_of(row: Any, name: str, size: str) -> tuple[int, bool] | None:
    """A size and whether it was counted here; None where nobody states it."""
    known = Table.of([row]).where(METRICS[size], dataset=name).by("setting")
    return next(
        ((known[s][-1].value, s == "counted") for s in ("counted", STATED) if s in known), None
    )


def size_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of `sweep`: published and printed sizes of each graph, a panel for each size."""
    points: list[dict[str, Any]] = []
    for row in rows_of(rows, experiment="table5"):
        for size in SIZES:
            for graph in GRAPHS:
                common = {"panel": size, "x": graph.title, "counted": True, "row_ids": [row.id]}
                known = size_of(row, graph.name, size)
                if known:
                    points.append({"series": "published", "y": known[0], **common})
                points.append(
                    {"series": "Table 5", "y": graph.printed[size], "paper": True, **common}
                )
    points += [
        {"panel": "nodes", "series": "published", "x": GRAPHS[0].title, "failed": failed(row)}
        for row in failures(rows, "table5")
    ]
    return points
