"""Table 1: the graphs, their degrees, and what sampling leaves of these (section 6.1)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import psutil
import torch

from dgbench import datasets
from dgbench.datasets.sources import find_form
from dgbench.kernels_cuda.edge_sampling import EdgeTable, keep_share
from dgbench.lab.compare import select
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.tgcn.experiments.common import (
    failed,
    failures,
    graph_title,
    open_graph,
    origin_data,
    panel,
)
from dgbench.systems.tgcn.experiments.degrees import (
    GRID,
    rescaled_gap,
    shares_above,
    tail_of,
)
from dgbench.systems.tgcn.experiments.settings import (
    BY_NAME,
    GRAPHS,
    HELD_NAMES,
    SHARE,
    TWIN_NAMES,
    Graph,
)
from dgbench.systems.tgcn.recounts import EDGES, check_kept

NAME: Final = "table1"
MACHINE: Final = "machine"
SHOWN: Final = {
    "smoke": ("lastfm", "college-msg"),
    "quick": (*TWIN_NAMES, *HELD_NAMES),
    "full": (*TWIN_NAMES, *HELD_NAMES),
    "paper": (*TWIN_NAMES, *HELD_NAMES),
}
SIZES: Final = ("nodes", "edges")
DEFINITIONS: Final = {"E/V": 1, "2 E/V": 2}
"""What a mean degree may be: edges over vertices, or ends of edges over vertices."""

Rows = Sequence[Any]


class Table1(Experiment):
    paper = "tgcn"
    name = NAME
    title = "Table 1: the graphs and their degrees"
    device = "cpu"
    question = "Are the graphs as printed, and what does sampling half of them do to degrees?"
    reading = (
        "Sizes are the publishers', counted where their files are here: a twin was fitted to them. "
        "Both meanings of a mean degree stand beside the printed one. The tail of a distribution "
        "begins where a power law fits it best, and is held against an exponential law; graphs "
        "with two kinds of vertices are judged on each side. Sampling halves the mean degree, so "
        "only the shape can stay: we compare exponents, and degrees over their mean."
    )
    claims = (
        "tgcn-tab1-vertices",
        "tgcn-tab1-edges",
        "tgcn-tab1-avg-degree",
        "tgcn-tab1-feature",
        "tgcn-s1-twitter-edge-count",
        "tgcn-s61-power-law",
        "tgcn-s61-sampling-keeps-degree-dist",
        "tgcn-s61-testbed",
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        limit = {"smoke": 60, "quick": 90, "full": 600, "paper": 7200}[preset]
        first = Cell(
            paper=self.paper, experiment=NAME, params={"part": MACHINE}, group=MACHINE
        )  # fmt: skip
        return [first] + [
            Cell(
                paper=self.paper,
                experiment=NAME,
                params={"dataset": name},
                group=name,
                timeout_s=limit,
            )
            for name in SHOWN[preset]
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        if "dataset" not in cell.params:
            return Measurement(
                counters=machine() | sizes(),
                data={"dataset": "none", "twin": False, "scale": 1.0, "note": "this machine"},
                notes=[f"{g.title}: no files here, sizes as published" for g in GRAPHS if far(g)],
                checks=checked_sizes(machine() | sizes()),
            )
        graph = BY_NAME[str(cell.params["dataset"])]
        return measure(graph, context)

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="sweep",
                name="table1",
                title="Mean degrees by either definition, and as printed (Table 1)",
                points=degree_points,
                options={"xlabel": "", "ylabel": "mean degree", "sort": False},
            ),
            FigureSpec(
                kind="sweep",
                name="table1_half",
                title="Degrees before and after half of every neighbourhood is sampled",
                points=half_points,
                options={
                    "xlabel": "degree over the mean degree",
                    "ylabel": "share of vertices with more, %",
                    "base": 2,
                    "marks": "few",
                    "names": False,
                },
            ),
        ]

    def answer(self, rows: Rows) -> str:
        found = graph_rows(rows)
        if not found:
            return ""
        sides = [(row, side) for row in found for side in sides_of(row)]
        near = sum(row.values.get(f"{side} z", 0) > 2 for row, side in sides)
        gaps = [row.values[f"{side} gap"] for row, side in sides if f"{side} gap" in row.values]
        return (
            f"A power law is nearer than an exponential one to the tail of {near} of {len(sides)} "
            f"distributions. Halving neighbourhoods moves degrees over their mean by up to "
            f"{100 * max(gaps):.0f} % of the vertices."
        )


def far(graph: Graph) -> bool:
    """Whether the publisher's files of a graph are not here."""
    return find_form(datasets.card(graph.name)) is None


def machine() -> dict[str, int]:
    """What section 6.1.1 prints of its machine, of this one."""
    there = torch.cuda.device_count()
    one = torch.cuda.get_device_properties(0) if there else None
    return {
        "gpus": there,
        "gpu memory bytes": one.total_memory if one else 0,
        "multiprocessors": one.multi_processor_count if one else 0,
        "processors": os.cpu_count() or 1,
        "memory bytes": psutil.virtual_memory().total,
    }


def sizes() -> dict[str, int]:
    """Vertices and edges of the paper's graphs: `<name> stated ...`, and counted where held."""
    found: dict[str, int] = {}
    for graph in GRAPHS:
        card = datasets.card(graph.name)
        for size in SIZES:
            stated = getattr(card.published, size, None) if card.published else None
            if stated:
                found[f"{graph.name} stated {size}"] = int(stated)
        if not far(graph):
            events = datasets.open_events(graph.name, source="real")
            found[f"{graph.name} counted nodes"] = events.num_nodes
            found[f"{graph.name} counted edges"] = len(events)
            width = 0 if events.edge_feat is None else events.edge_feat.shape[1]
            found[f"{graph.name} counted feature"] = width
    return found


def measure(graph: Graph, context: RunContext) -> Measurement:
    """Counts, tails and halved degrees of one graph."""
    events = open_graph(graph.name, context.preset)
    table = EdgeTable.build(events.src, events.dst, events.t, events.num_nodes)
    kept = keep_share(table, SHARE, seed=1)
    found = Measurement(data=origin_data(events.origin))
    before = degrees_of(events, torch.ones(len(events), dtype=torch.bool))
    after = degrees_of(events, kept)
    met = sum(int((side > 0).sum()) for side in before.values())
    found.counters = {
        "vertices": events.num_nodes,
        "met": met,
        "edges": len(events),
        "kept": int(kept.sum()),
    }
    for word, ends in DEFINITIONS.items():
        found.values[word] = ends * len(events) / max(1, met)
    found.checks = [
        *check_kept(events.src, kept.nonzero().squeeze(1), SHARE),
        recounted(events, kept, before, after),
    ]
    for side in before:
        found.counters[f"{side} vertices"] = int((before[side] > 0).sum())
        found.counters[f"{side} largest"] = int(before[side].max(initial=0))
        found.values |= described(side, before[side], after[side])
    return found


def degrees_of(events: Any, kept: torch.Tensor) -> dict[str, np.ndarray]:
    """int64[vertices] by side: `sources` and `destinations` where kinds differ, else `all`."""
    n = events.num_nodes
    out = torch.bincount(events.src[kept], minlength=n).numpy()
    into = torch.bincount(events.dst[kept], minlength=n).numpy()
    if events.num_src is None:
        return {"all": out + into}
    return {"sources": out[: events.num_src], "destinations": into[events.num_src :]}


def recounted(events: Any, kept: torch.Tensor, before: Any, after: Any) -> ResultCheck:
    """Check of degrees and of the shares of vertices above multiples of their mean."""
    own: dict[str, Any] = {}
    wanted: dict[str, Any] = {}
    for when, degrees, mask in (("before", before, slice(None)), ("after", after, kept)):
        sources, targets = events.src[mask].numpy(), events.dst[mask].numpy()
        ends = {"sources": sources, "destinations": targets}
        ends["all"] = np.concatenate([sources, targets])
        for side, table in degrees.items():
            counts = np.sort(np.unique(ends[side], return_counts=True)[1])
            name = f"{side} {when}"
            own[name], wanted[name] = np.sort(table[table > 0]), counts
            above = [100 * sum(counts > x * counts.sum() / len(counts)) / len(counts)
                     for x in GRID[::4]]  # fmt: skip
            own[f"{name} shares"] = np.round(shares_above(table)[::4], 9)
            wanted[f"{name} shares"] = np.round(np.array(above, dtype=np.float64), 9)
    return equal("degrees", own, wanted, against=EDGES)


def checked_sizes(found: dict[str, int]) -> list[ResultCheck]:
    """Checks of this machine against its system calls, and of graphs whose files are here."""
    own = {"memory": found["memory bytes"], "processors": found["processors"]}
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    wanted = {"memory": pages, "processors": os.sysconf("SC_NPROCESSORS_ONLN")}
    for graph in GRAPHS:
        if f"{graph.name} counted edges" in found:
            events = datasets.open_events(graph.name, source="real")
            own[graph.name] = found[f"{graph.name} counted edges"]
            wanted[graph.name] = events.src.numel()
            named = torch.cat([events.src, events.dst]).max()
            own[f"{graph.name} vertices"] = found[f"{graph.name} counted nodes"] > int(named)
            wanted[f"{graph.name} vertices"] = True
    return [equal("counters", own, wanted, against="system calls and edges")]


def described(side: str, before: np.ndarray, after: np.ndarray) -> dict[str, float]:
    """Values of one side: its tail, that of the halved graph, and how far they are apart."""
    found: dict[str, float] = {}
    tail = tail_of(before)
    tails = {"": tail}
    if tail is not None:  # the same vertices, as far as a degree tells
        tails[" after"] = tail_of(after, max(1, round(SHARE * tail.least)))
    for when, one in tails.items():
        if one is not None:
            found[f"{side} exponent{when}"] = one.laws.exponent
            found[f"{side} tail{when}"] = float(one.least)
            found[f"{side} z{when}"] = float(one.laws.z)
            found[f"{side} distance{when}"] = one.laws.power_gap
            found[f"{side} tail share{when}"] = one.share
    start = tail.least if tail else 1
    found[f"{side} gap"] = rescaled_gap(before, after)
    found[f"{side} tail gap"] = rescaled_gap(before, after, start)
    for when, degrees in (("before", before), ("after", after)):
        for k, share in enumerate(shares_above(degrees)):
            found[f"{side} {when} {k}"] = share
    return found


def sides_of(row: Any) -> list[str]:
    """`all`, or both sides of a graph with two kinds of vertices."""
    return [side for side in ("all", "sources", "destinations") if f"{side} gap" in row.values]


def graph_rows(rows: Rows) -> list[Any]:
    """Usable rows of one graph each."""
    return [row for row in select(rows, experiment=NAME) if "dataset" in row.params]


def machine_row(rows: Rows) -> Any | None:
    """The row of this machine and of the graphs' published sizes."""
    found = select(rows, experiment=NAME, part=MACHINE)
    return found[-1] if found else None


def size_of(row: Any, name: str, size: str) -> tuple[int, bool] | None:
    """A size and whether it was counted here; None where nobody states it."""
    for word in ("counted", "stated"):
        if f"{name} {word} {size}" in row.counters:
            return row.counters[f"{name} {word} {size}"], word == "counted"
    return None


def mean_degree(row: Any, name: str, ends: int) -> float | None:
    """Mean degree of a graph of the paper at its published size."""
    both = [size_of(row, name, size) for size in SIZES]
    if None in both:
        return None
    return ends * both[1][0] / both[0][0]  # type: ignore[index]


def rounds_to(number: float, printed: float, digits: int = 2) -> bool:
    """Whether a number is rounded or cut to the printed one, at its digits (at least so many)."""
    if printed == int(printed):
        shown = max(digits, len(str(int(printed)).rstrip("0")))
        unit = 10.0 ** (len(str(int(printed))) - shown)
    else:
        unit = 10.0 ** -len(str(printed).partition(".")[2])
    return -unit <= 2 * (number - printed) < 2 * unit


def degree_points(rows: Rows) -> list[dict[str, Any]]:
    """Points of `sweep`: mean degrees of the paper's graphs at their published sizes."""
    row = machine_row(rows)
    points: list[dict[str, Any]] = []
    for graph in GRAPHS if row is not None else ():
        assert graph.printed is not None
        common = {"x": graph.title, "counted": True, "row_ids": [row.id]}
        for word, ends in DEFINITIONS.items():
            degree = mean_degree(row, graph.name, ends)
            if degree is not None:
                points.append({"series": word, "y": degree, **common})
        points.append({"series": "printed", "y": graph.printed.degree, "paper": True, **common})
    return points + [
        {"series": "E/V", "x": GRAPHS[0].title, "failed": failed(bad), "row_ids": [bad.id]}
        for bad in failures(rows, NAME)
        if "dataset" not in bad.params
    ]


def half_points(rows: Rows) -> list[dict[str, Any]]:
    """Points of `sweep`: how many vertices have more than so many mean degrees."""
    points: list[dict[str, Any]] = []
    found = graph_rows(rows)
    real = [row for row in found if not row.data.get("twin")]
    for row in real or found:  # a twin draws its degrees from a law
        for side in sides_of(row):
            words = "" if side == "all" else f", {side}"
            for when in ("before", "after"):
                points += [
                    {
                        "panel": panel(row) + words,
                        "series": "whole graph" if when == "before" else "half",
                        "x": x,
                        "y": share,
                        "counted": True,
                        "twin": bool(row.data.get("twin")),
                        "row_ids": [row.id],
                    }
                    for k, x in enumerate(GRID)
                    if (share := row.values[f"{side} {when} {k}"]) > 0
                ]
    for bad in failures(rows, NAME):
        if "dataset" in bad.params:
            points.append(
                {"panel": graph_title(bad.params["dataset"]), "series": "whole graph", "x": 1.0,
                 "failed": failed(bad), "row_ids": [bad.id]}
            )  # fmt: skip
    return points
