"""Table 5: sizes of the five graphs, and the machine that this run is on (sections 6 and 6.1)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
import torch

from dgbench import datasets
from dgbench.datasets.sources import find_form
from dgbench.lab.compare import select
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.gnnflow.experiments.common import failed, failures
from dgbench.systems.gnnflow.experiments.settings import GRAPHS

SIZES: Final = ("nodes", "edges")
DAYS: Final = {"s": 86_400.0, "day": 1.0}
"""Units of time in a day."""


class Table5(Experiment):
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

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            Cell(
                paper=self.paper,
                experiment=self.name,
                params={"what": "sizes"},
                group="sizes",
                timeout_s=120 if preset != "paper" else 3600,
            )
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        counters: dict[str, int] = machine()
        values: dict[str, float] = {}
        notes: list[str] = []
        for graph in GRAPHS:
            card = datasets.card(graph.name)
            for size in SIZES:
                stated = getattr(card.published, size, None) if card.published else None
                if stated:
                    counters[f"{graph.name} stated {size}"] = int(stated)
            if find_form(card) is None:
                known = f"{graph.name} stated edges" in counters
                said = "sizes as its publisher states them" if known else "nobody states its sizes"
                notes.append(f"{graph.title}: no files here, {said}")
                continue
            counters |= {f"{graph.name} counted {k}": v for k, v in counted(graph.name).items()}
            values |= {f"{graph.name} {k}": v for k, v in times(graph.name).items()}
        return Measurement(
            values=values,
            counters=counters,
            data={"dataset": "publishers' counts", "twin": False, "scale": 1.0, "note": ""},
            notes=notes,
            checks=size_checks(counters, values),
        )

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="sweep",
                name="table5",
                title="Sizes of the graphs, as printed and as published",
                points=size_points,
                options={"xlabel": "", "ylabel": "", "sort": False},
            )
        ]

    def answer(self, rows: Sequence[Any]) -> str:
        found = select(rows, experiment=self.name)
        if not found:
            return ""
        apart = [
            f"{graph.title} has {size_of(found[-1], graph.name, size)[0]:,} {size}, printed are "
            f"{graph.printed[size]:,}"
            for graph in GRAPHS
            for size in SIZES
            if (known := size_of(found[-1], graph.name, size))
            and not rounds_to(known[0], graph.printed[size])
        ]
        said = f"All but one: {apart[0]}" if len(apart) == 1 else "; ".join(apart)
        return f"{said or 'All sizes that are known round to the printed ones'}."


def machine() -> dict[str, int]:
    """What section 6 prints of its machine, of this one."""
    there = torch.cuda.device_count()
    memory = torch.cuda.get_device_properties(0).total_memory if there else 0
    return {
        "gpus": there,
        "gpu memory bytes": memory,
        "processors": os.cpu_count() or 1,
        "memory bytes": psutil.virtual_memory().total,
    }


def size_checks(counters: dict[str, int], values: dict[str, float]) -> list[ResultCheck]:
    """Checks of sizes: those stated by the text of the cards, counted ones by the events
    themselves, and the machine's by what its kernel tells."""
    stated = {key: count for key, count in counters.items() if " stated " in key}
    cards = resources.files("dgbench.datasets").joinpath("cards")
    text = "\n".join(f.read_text() for f in cards.iterdir() if f.name.endswith(".yaml"))
    written = {}
    for key in stated:
        name, _, size = key.split()
        entry = re.search(rf"^- name: {name}$(.*?)(?=^- name: |\Z)", text, re.M | re.S)
        number = re.search(rf"\b{size}: *([\d_]+)", entry[1]) if entry else None
        written[key] = int(number[1]) if number else -1
    found = [equal("counters", stated, written, against="text of the cards")] if stated else []
    told = {}
    memory = Path("/proc/meminfo")
    if memory.exists():
        kib = next(row for row in memory.read_text().splitlines() if row.startswith("MemTotal"))
        told["memory bytes"] = 1024 * int(kib.split()[1])
        online = Path("/sys/devices/system/cpu/online").read_text().strip()
        ranges = [part.split("-") for part in online.split(",")]
        told["processors"] = sum(int(ends[-1]) - int(ends[0]) + 1 for ends in ranges)
        own = {key: counters[key] for key in told}
        found.append(equal("counters", own, told, against="the kernel's own account"))
    for name in {key.split()[0] for key in counters if " counted " in key}:
        events = datasets.open_events(name, source="real")
        ends = torch.cat([events.src, events.dst])
        span = float(events.t.max() - events.t.min()) / DAYS.get(
            datasets.card(name).time_unit or "s", 86_400.0
        )
        wanted = {"nodes": int(ends.max()) + 1, "edges": ends.numel() // 2, "days": span}
        own = {
            "nodes": counters[f"{name} counted nodes"], "edges": counters[f"{name} counted edges"],
            "days": values[f"{name} days"],
        }  # fmt: skip
        found.append(equal("counters", own, wanted, against="events of the files"))
    return found


def counted(name: str) -> dict[str, int]:
    """Vertices, edges and widths of features in the publisher's files."""
    events = datasets.open_events(name, source="real")
    found = {"nodes": events.num_nodes, "edges": len(events)}
    for key, table in (("node_dim", events.node_feat), ("edge_dim", events.edge_feat)):
        found[key] = 0 if table is None else table.shape[1]
    return found


def times(name: str) -> dict[str, float]:
    """Days that the publisher's files span, and seconds between different times of events."""
    t = datasets.open_events(name, source="real").t.numpy()
    day = DAYS.get(datasets.card(name).time_unit or "s", 86_400.0)
    steps = np.diff(np.unique(t))
    found = {"days": float(t[-1] - t[0]) / day if t.size else 0.0}
    if steps.size:
        found["step_s"] = float(np.median(steps)) * 86_400.0 / day
    return found


def size_of(row: Any, name: str, size: str) -> tuple[int, bool] | None:
    """A size and whether it was counted here; None where nobody states it."""
    for word in ("counted", "stated"):
        if f"{name} {word} {size}" in row.counters:
            return row.counters[f"{name} {word} {size}"], word == "counted"
    return None


def rounds_to(number: int, printed: int) -> bool:
    """Whether a number is rounded or cut to the printed one, at its digits (at least two)."""
    digits = max(2, len(str(printed).rstrip("0")))
    unit = 10 ** max(0, len(str(printed)) - digits)
    return -unit <= 2 * (number - printed) < 2 * unit if unit > 1 else number == printed


def size_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of `sweep`: published and printed sizes of each graph, a panel for each size."""
    points: list[dict[str, Any]] = []
    for row in select(rows, experiment="table5"):
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
