"""Sizes and degrees of the graphs, before and after sampling, and the machine."""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np
import psutil
import torch

from dgbench import datasets
from dgbench.datasets.sources import find_form
from dgbench.kernels_cuda.edge_sampling import EdgeTable, keep_share
from dgbench.lab.metrics import STATED
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.lab.table import Observation, observation
from dgbench.systems.base import Measurement, RunContext
from dgbench.systems.base.data import describe as describe_events
from dgbench.systems.tgcn.degrees import (
    GRID,
    rescaled_gap,
    shares_above,
    tail_of,
)
from dgbench.systems.tgcn.recounts import EDGES, check_kept
from dgbench.systems.tgcn.settings import GRAPHS, SHARE, GridGraph, open_graph

SIZES: Final = {"vertices": "nodes", "edges": "edges"}
"""Metric of a size -> what a dataset's card calls it."""
WHOLE, HALF = "whole", "half"
DEFINITIONS: Final = {"E/V": 1, "2 E/V": 2}
"""Definitions of a mean degree: edges over vertices, or ends of edges over vertices."""


def far(graph: GridGraph) -> bool:
    """Return True if the publisher's files of a graph are not available here."""
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
                found.append(observation(metric, int(stated), dataset=graph.name, method=STATED))
        if not far(graph):
            events = datasets.open_events(graph.name, source="real")
            width = 0 if events.edge_feat is None else events.edge_feat.shape[1]
            about = {"dataset": graph.name, "method": "counted"}
            found += [
                observation("vertices", events.num_nodes, **about),
                observation("edges", len(events), **about),
                observation("columns", width, of="edge features", **about),
            ]
    return found


def measure_graph(graph: GridGraph, context: RunContext) -> Measurement:
    """Counts, tails and halved degrees of one graph."""
    events = open_graph(graph.name, context.preset)
    table = EdgeTable.build(events.src, events.dst, events.t, events.num_nodes)
    kept = keep_share(table, SHARE, seed=1)
    found = Measurement(data=describe_events(events))
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
