"""Table 1: the graphs, their degrees, and what sampling leaves of these (section 6.1)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np
import psutil
import torch

from dgbench import datasets
from dgbench.datasets.sources import find_form
from dgbench.kernels_cuda.edge_table import EdgeTable, keep_share
from dgbench.lab.grid import Grid
from dgbench.lab.laws import DECIDED
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.lab.table import Observation, Table, observation, rows_of
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.tgcn.common import (
    failed,
    failures,
    graph_title,
    open_graph,
    origin_data,
    panel,
)
from dgbench.systems.tgcn.degrees import (
    GRID,
    rescaled_gap,
    shares_above,
    tail_of,
)
from dgbench.systems.tgcn.recounts import EDGES, check_kept
from dgbench.systems.tgcn.settings import BY_NAME, GRAPHS, HELD_NAMES, SHARE, TWIN_NAMES, Graph

NAME: Final = "table1"
MACHINE: Final = "machine"
SHOWN: Final = {
    "smoke": ("lastfm", "college-msg"),
    "quick": (*TWIN_NAMES, *HELD_NAMES),
    "full": (*TWIN_NAMES, *HELD_NAMES),
    "paper": (*TWIN_NAMES, *HELD_NAMES),
}
SIZES: Final = {"vertices": "nodes", "edges": "edges"}
"""Metric of a size -> what a dataset's card calls it."""
SIDES: Final = ("all", "sources", "destinations")
WHOLE, HALF = "whole", "half"
DEFINITIONS: Final = {"E/V": 1, "2 E/V": 2}
"""What a mean degree may be: edges over vertices, or ends of edges over vertices."""

Rows = Sequence[Any]


class Table1(Grid):
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
    group = ""
    timeout_s: ClassVar = {"smoke": 60, "quick": 90, "full": 600, "paper": 7200}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        machine = self.cell({"part": MACHINE}, preset, group=MACHINE, timeout_s=60.0)
        return [machine, *(self.cell({"dataset": n}, preset, group=n) for n in SHOWN[preset])]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        if "dataset" not in cell.params:
            found = [*machine(), *sizes()]
            return Measurement(
                observations=found,
                data={"dataset": "none", "twin": False, "scale": 1.0, "note": "this machine"},
                notes=[f"{g.title}: no files here, sizes as published" for g in GRAPHS if far(g)],
                checks=checked_sizes(found),
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
        found = Table.of(rows, experiment=NAME)
        gaps = found.where("distribution_gap", method="halved").values
        if not gaps:
            return ""
        near = sum(z > DECIDED for z in found.where("likelihood_z", setting=WHOLE).values)
        return (
            f"A power law is nearer than an exponential one to the tail of {near} of {len(gaps)} "
            f"distributions. Halving neighbourhoods moves degrees over their mean by up to "
            f"{100 * max(gaps):.0f} % of the vertices."
        )


def far(graph: Graph) -> bool:
    """Whether the publisher's files of a graph are not here."""
    return find_form(datasets.card(graph.name)) is None


def machine() -> list[Observation]:
    """Numbers that section 6.1.1 prints of its machine, of this one."""
    there = torch.cuda.device_count()
    one = torch.cuda.get_device_properties(0) if there else None
    return [
        observation("devices", there),
        observation("memory", one.total_memory if one else 0, of="device"),
        observation("processors", one.multi_processor_count if one else 0, of="device"),
        observation("processors", os.cpu_count() or 1, of="host"),
        observation("memory", psutil.virtual_memory().total, of="host"),
    ]


def sizes() -> list[Observation]:
    """Vertices and edges of the paper's graphs, as their publishers state them and as counted."""
    found: list[Observation] = []
    for graph in GRAPHS:
        card = datasets.card(graph.name)
        for metric, size in SIZES.items():
            stated = getattr(card.published, size, None) if card.published else None
            if stated:
                found.append(observation(metric, int(stated), dataset=graph.name, method="stated"))
        if not far(graph):
            events = datasets.open_events(graph.name, source="real")
            width = 0 if events.edge_feat is None else events.edge_feat.shape[1]
            counted = {"vertices": events.num_nodes, "edges": len(events), "feature_width": width}
            found += [
                observation(metric, count, dataset=graph.name, method="counted")
                for metric, count in counted.items()
            ]
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
    found.observe("vertices", events.num_nodes)
    found.observe("vertices", met, of="met")
    found.observe("edges", len(events))
    found.observe("edges", int(kept.sum()), of="sampled")
    for word, ends in DEFINITIONS.items():
        found.observe("degree", ends * len(events) / max(1, met), method=word)
    found.checks = [
        *check_kept(events.src, kept.nonzero().squeeze(1), SHARE),
        recounted(events, kept, before, after),
    ]
    for side in before:
        describe(found, side, before[side], after[side])
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
            above = [sum(counts > x * counts.sum() / len(counts)) / len(counts) for x in GRID[::4]]
            own[f"{name} shares"] = np.round(shares_above(table)[::4], 9)
            wanted[f"{name} shares"] = np.round(np.array(above, dtype=np.float64), 9)
    return equal("degrees", own, wanted, against=EDGES)


def checked_sizes(found: list[Observation]) -> list[ResultCheck]:
    """Checks of this machine against its system calls, and of graphs whose files are here."""
    host = {one.metric: one.value for one in found if one.dims.get("of") == "host"}
    counted = {
        (one.metric, one.dims["dataset"]): one.value
        for one in found
        if one.dims.get("method") == "counted"
    }
    own: dict[str, Any] = {name: host[name] for name in ("memory", "processors")}
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    wanted = {"memory": pages, "processors": os.sysconf("SC_NPROCESSORS_ONLN")}
    for graph in GRAPHS:
        if ("edges", graph.name) in counted:
            events = datasets.open_events(graph.name, source="real")
            own[graph.name] = counted["edges", graph.name]
            wanted[graph.name] = events.src.numel()
            named = torch.cat([events.src, events.dst]).max()
            own[f"{graph.name} vertices"] = counted["vertices", graph.name] > int(named)
            wanted[f"{graph.name} vertices"] = True
    return [equal("counters", own, wanted, against="system calls and edges")]


def describe(found: Measurement, side: str, before: np.ndarray, after: np.ndarray) -> None:
    """Observe one side: its tail, that of the halved graph, and how far they are apart."""
    found.observe("vertices", int((before > 0).sum()), of=side)
    found.observe("degree", int(before.max(initial=0)), of=side, method="largest")
    tail = tail_of(before)
    tails = {WHOLE: tail}
    if tail is not None:  # the same vertices, as far as a degree tells
        tails[HALF] = tail_of(after, max(1, round(SHARE * tail.least)))
    for setting, one in tails.items():
        if one is not None:
            about: dict[str, Any] = {"of": side, "setting": setting}
            found.observe("tail_exponent", one.laws.exponent, **about)
            found.observe("degree", float(one.least), method="tail", **about)
            found.observe("likelihood_z", float(one.laws.z), **about)
            found.observe("distribution_gap", one.laws.power_gap, method="law", **about)
            found.observe("portion", one.share, method="tail", **about)
    start = tail.least if tail else 1
    for method, least in (("halved", 1), ("halved tail", start)):
        gap = rescaled_gap(before, after, least)
        found.observe("distribution_gap", gap, of=side, method=method)
    for setting, degrees in ((WHOLE, before), (HALF, after)):
        for k, share in enumerate(shares_above(degrees)):
            found.observe("portion", share, of=side, setting=setting, bin=k)


def sides_of(row: Any) -> list[str]:
    """`all`, or both sides of a graph with two kinds of vertices."""
    found = Table.of([row]).where("distribution_gap", method="halved").by("of")
    return [side for side in SIDES if side in found]


def graph_rows(rows: Rows) -> list[Any]:
    """Usable rows of one graph each."""
    return rows_of(rows, experiment=NAME, dataset=lambda name: name is not None)


def machine_row(rows: Rows) -> Any | None:
    """The row of this machine and of the graphs' published sizes."""
    found = rows_of(rows, experiment=NAME, part=MACHINE)
    return found[-1] if found else None


def size_of(row: Any, name: str, size: str) -> tuple[int, bool] | None:
    """A size and whether it was counted here; None where nobody states it."""
    known = Table.of([row]).where(size, dataset=name).numbers("method")
    for word in ("counted", "stated"):
        if word in known:
            return known[word], word == "counted"  # type: ignore[return-value]
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
            shares = Table.of([row]).where("portion", of=side, bin=lambda k: k is not None)
            points += [
                {
                    "panel": panel(row) + words,
                    "series": "whole graph" if one["setting"] == WHOLE else "half",
                    "x": GRID[one["bin"]],
                    "y": 100 * one.value,
                    "counted": True,
                    "twin": bool(row.data.get("twin")),
                    "row_ids": [row.id],
                }
                for one in shares
                if one.value > 0
            ]
    for bad in failures(rows, NAME):
        if "dataset" in bad.params:
            points.append(
                {"panel": graph_title(bad.params["dataset"]), "series": "whole graph", "x": 1.0,
                 "failed": failed(bad), "row_ids": [bad.id]}
            )  # fmt: skip
    return points
