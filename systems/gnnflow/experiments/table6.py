"""Table 6: lists and memory of five ways to size blocks (section 6.2)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from dgbench import datasets
from dgbench.datasets import twins
from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore
from dgbench.lab.charts import failures, gap, sweep
from dgbench.lab.grid import Grid
from dgbench.lab.printed import ledger, plain
from dgbench.lab.result_checks import ResultCheck, at_most, close, equal, of_contender
from dgbench.lab.table import Table, number, rows_of
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.gnnflow.block_counts import BlockCounts
from dgbench.systems.gnnflow.experiments.block_checks import PlainBlocks, plain_blocks
from dgbench.systems.gnnflow.experiments.sample_checks import by_subject
from dgbench.systems.gnnflow.experiments.settings import (
    BY_NAME,
    LEDGER,
    PRESETS,
    StreamGraph,
    graph_title,
)

INJECTED = 100_000
"""Edges of a batch (section 6.2)."""
SCALES = {"gdelt": (1 / 2048, 1 / 128, 1 / 8, 1.0), "netflix": (1 / 1024, 1 / 64, 1 / 8, 1.0)}
"""Size of the twins by preset. Below these Netflix' threshold becomes that of the list of four."""
TWINS = tuple(SCALES)
HELD = {"smoke": ("wikipedia",)}
ALL_HELD = ("wikipedia", "sx-mathoverflow", "college-msg", "enron")
HELD_BATCH = 1000
"""Edges of a batch on the smaller graphs that are held."""
CONSTRUCTED = "constructed"
"""No dataset: a graph on which every vertex gets one record per batch, and the hubs of Table 6."""
MIB = float(1 << 20)
SLOT, BLOCK = 20, 64
"""Bytes of a slot and of a block that fit Table 6."""

COLUMNS = {
    "average": "avg-list", "longest": "max-list", "edge MB": "edge-mb", "metadata MB": "meta-mb"
}  # fmt: skip
"""Average and longest list, megabytes of edge data and of block records, by the ledger's names."""
PAPERS = ("Adj. List", "Strawman", "Fixed-size", "Adaptive", "Static")
LITERAL = "Adaptive as printed"
LIST_OF_ONE = "List of single edges"
LAYOUTS = (*PAPERS, LITERAL, LIST_OF_ONE)


def printed_table(graph: str) -> dict[str, dict[str, float]]:
    """A graph's rows of Table 6: layout -> column -> number."""
    columns = {name: ledger(LEDGER)[f"tab6-{graph}-{word}"] for name, word in COLUMNS.items()}
    return {
        layout: {
            name: int(plain(said[layout])) if isinstance(said[layout], str) else said[layout]
            for name, said in columns.items()
        }
        for layout in PAPERS
    }


def policies(tau: int, fixed: int) -> dict[str, BlockPolicy]:
    """The layouts of Table 6 and two more by our reading, by their names there."""
    return {
        "Adj. List": BlockPolicy("fixed", 4),
        "Strawman": BlockPolicy("strawman"),
        "Fixed-size": BlockPolicy("fixed", fixed),
        "Adaptive": BlockPolicy("adaptive", tau),
        "Static": BlockPolicy("static"),
        LITERAL: BlockPolicy("adaptive_literal", tau),
        LIST_OF_ONE: BlockPolicy("fixed", 1),
    }


class Table6(Grid):
    paper = "gnnflow"
    name = "table6"
    sources: ClassVar[Any] = {"portion": "counted"}
    title = "Table 6: how large a block should be"
    claims = (
        "gnnflow-s22-tegra-snapshots",
        "gnnflow-s41-edge-block-size",
        "gnnflow-s41-append-no-resort",
        "gnnflow-s41-adaptive-size-rule",
        "gnnflow-s41-waste-bound",
        "gnnflow-s42-metadata-much-smaller",
        "gnnflow-s62-edge-memory-overhead",
        "gnnflow-tab6-gdelt-avg-list",
        "gnnflow-tab6-gdelt-max-list",
        "gnnflow-tab6-gdelt-edge-mb",
        "gnnflow-tab6-gdelt-meta-mb",
        "gnnflow-tab6-netflix-avg-list",
        "gnnflow-tab6-netflix-max-list",
        "gnnflow-tab6-netflix-edge-mb",
        "gnnflow-tab6-netflix-meta-mb",
        "gnnflow-s62-list-reduction",
        "gnnflow-s62-extra-edge-memory",
        "gnnflow-s62-metadata-reduced",
    )
    device = "cpu"
    question = "What do lists and memory come to under five ways to size a block?"
    reading = (
        "The printed rule, min(degree, threshold) slots for a new block, cannot give the printed "
        "longest lists; max(records left over, min(degree, threshold)) does, and is called "
        "Adaptive here. A list element of the row Adj. List holds four edges, and edge data and "
        "block records fit 20 bytes a slot and 64 bytes a block in MiB, without the vertex table. "
        "On a twin of scale f, batches and thresholds are those of the paper times the root of f, "
        "as are the degrees. Only at scale 1 are the numbers comparable."
    )

    timeout_s: ClassVar[Any] = {"paper": 3600, None: 300}

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        for name, scales in SCALES.items():
            yield {"dataset": name, "scale": scales[PRESETS.index(preset)]}
        for name in (*HELD.get(preset, ALL_HELD), CONSTRUCTED):
            yield {"dataset": name, "scale": 1.0}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        name, scale = str(cell.params["dataset"]), float(cell.params["scale"] or 1.0)
        if name == CONSTRUCTED:
            return _constructed()
        graph = BY_NAME[name]
        source = _twin(graph, scale) if name in TWINS else _held(graph)
        return _measured(source)

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("table6", "Blocks of a vertex, by how blocks are sized", list_points, xlabel="",
                ylabel="average list", xlog=False, sort=False, names=False),
            sweep("table6_memory", "Edge data above one full block per vertex, percent",
                memory_points, xlabel="", ylabel="% above static", xlog=False, ylog=False,
                sort=False, names=False),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        words = []
        for row in _graph_rows(rows):
            found = table(row)
            shorter = found["Strawman"]["average"] / found["Adaptive"]["average"]
            more = found["Adaptive"]["edge MB"] / found["Static"]["edge MB"] - 1
            words.append(f"{graph_title(row.params['dataset'])} {shorter:.1f}x, {more:.1%}")
        return (
            "Adaptive blocks shorten the average list against the strawman, and cost edge memory "
            f"beyond the static layout, by: {'; '.join(words)}."
            if words
            else ""
        )


class _Source:
    """Edges in batches, what to size blocks by, and where it all comes from."""

    def __init__(
        self,
        chunks: Iterator[tuple[np.ndarray, np.ndarray]],
        vertices: int,
        graph: StreamGraph,
        sizes: tuple[int, int, int],
        data: dict[str, Any],
        stamps: int | None = None,
    ) -> None:
        self.chunks, self.vertices, self.graph, self.data = chunks, vertices, graph, data
        self.batch, self.tau, self.fixed = sizes
        self.stamps = stamps


def _twin(graph: StreamGraph, scale: float) -> _Source:
    root = math.sqrt(scale)
    sizes = tuple(max(1, round(one * root)) for one in (INJECTED, graph.tau, graph.fixed))
    about = twins.describe(graph.name, scale)
    data = {
        "dataset": graph.name,
        "twin": True,
        "scale": scale,
        "note": "; ".join(about["notes"]),
    }
    chunks = twins.stream(graph.name, scale, chunk=sizes[0])
    return _Source(chunks, about["vertices"], graph, sizes, data)


def _held(graph: StreamGraph) -> _Source:
    events = datasets.open_events(graph.name)
    ends = events.src.numpy(), events.dst.numpy()
    chunks = (
        (ends[0][i : i + HELD_BATCH], ends[1][i : i + HELD_BATCH])
        for i in range(0, len(ends[0]), HELD_BATCH)
    )
    sizes = (HELD_BATCH, graph.tau, graph.fixed)
    stamps = int(events.t.unique().numel())
    return _Source(chunks, events.num_nodes, graph, sizes, describe(events), stamps)


def _measured(source: _Source) -> Measurement:
    """Counts for every layout, and the store itself beside those of Adaptive."""
    counts = {
        name: BlockCounts(source.vertices, policy)
        for name, policy in policies(source.tau, source.fixed).items()
    }
    adaptive = counts["Adaptive"].policy
    undirected = source.graph.undirected
    stores = {
        layout: TemporalStore(
            source.vertices, policy=adaptive, layout=layout, undirected=undirected
        )
        for layout in ("packed", "compact")
    }
    plain = PlainBlocks(source.vertices)
    events = batches = merged = 0
    for src, dst in source.chunks:
        owners = np.concatenate([src, dst]) if undirected else src
        found = np.bincount(owners, minlength=source.vertices)
        vertices = np.flatnonzero(found)
        for one in counts.values():
            one.add(vertices, found[vertices])
        plain.add(owners)
        ends = torch.from_numpy(src.astype(np.int64)), torch.from_numpy(dst.astype(np.int64))
        now = torch.arange(events, events + len(src), dtype=torch.float64)
        merged += sum(store.insert(*ends, now).merged for store in stores.values())
        events, batches = events + len(src), batches + 1
    told = Measurement(data=source.data)
    told.observe("events", events)
    told.observe("batches", batches)
    told.observe("batch_size", source.batch)
    told.observe("vertices", source.vertices)
    told.observe("slots", source.tau, statistic="tau")
    told.observe("slots", source.fixed, statistic="fixed")
    told.observe("records", counts["Static"].records)
    held = stores["packed"].memory()
    told.observe("memory", held.held["blocks"] // max(1, held.blocks), of="block")
    told.observe("vertices", merged, of="merged")
    told.observe("vertices", _out_of_order(stores["packed"]), of="out of order")
    if source.stamps is not None:
        told.observe("events", source.stamps, of="time stamps")
    told.observe("portion", counts["Adaptive"].waste, of="empty slots", setting="Adaptive")
    for name, one in counts.items():
        told.observe("list_blocks", int(one.blocks.sum()), setting=name)
        longest = int(one.blocks.max(initial=0))
        told.observe("list_blocks", longest, setting=name, statistic="longest")
        told.observe("slots", one.slots, setting=name)
    checks = []
    for layout, store in stores.items():
        checks += _agreement(store, counts["Adaptive"])
        total = store.memory().total
        told.observe("memory", total, format=layout)
        told.observe("estimate", total / max(1, store.num_records), of="record", format=layout)
    for name, one in counts.items():
        own = plain.checks(one.policy, torch.from_numpy(one.blocks), name)
        checks += of_contender(name, own)
    told.deviation = {"blocks": max(check.gap for check in checks)}
    told.checks = by_subject(checks)
    return told


def _agreement(store: TemporalStore, counted: BlockCounts) -> list[ResultCheck]:
    """Checks of a store's blocks against counting, and of its bytes against its records."""
    memory = store.memory()
    own = {"slots": memory.slots, "records": memory.records, "blocks": memory.blocks,
           "lists": store.list_lengths().long()}  # fmt: skip
    wanted = {"slots": counted.slots, "records": counted.records, "blocks": counted.blocks.sum(),
              "lists": counted.blocks}  # fmt: skip
    record = {"packed": 16, "compact": 12}[store.layout]
    short = memory.total < record * counted.slots  # all slots are there, and more
    return [
        equal("counters", own, wanted, against="blocks counted without records"),
        at_most("bytes", float(short), 0.0, against="slots of a record's bytes",
                compared=max(1, counted.slots)),
    ]  # fmt: skip


def _out_of_order(store: TemporalStore, most: int = 2000) -> int:
    """Vertices, of up to `most` spread over all, whose records are not in the order of time."""
    step = max(1, store.num_vertices // most)
    times = (store.neighbours(v)[2] for v in range(0, store.num_vertices, step))
    return sum(bool((one.diff() < 0).any()) for one in times)


def _constructed(vertices: int = 16, batches: int = 1025) -> Measurement:
    """Waste where no threshold binds, and the longest lists by both readings of the rule."""
    store = TemporalStore(vertices, policy=BlockPolicy("adaptive_literal", 1 << 20))
    ids = torch.arange(vertices)
    of_records = of_slots = 0.0
    for now in range(batches):
        store.insert(ids, ids, torch.full((vertices,), float(now), dtype=torch.float64))
        memory = store.memory()
        of_records = max(of_records, memory.slots / memory.records - 1)
        of_slots = max(of_slots, 1 - memory.records / memory.slots)
    told = Measurement(
        data={"dataset": CONSTRUCTED, "twin": False, "scale": 1.0, "note": "constructed"}
    )
    told.observe("vertices", vertices)
    told.observe("batches", batches)
    hubs = {name: _hub(BY_NAME[name]) for name in TWINS}
    for name, lengths in hubs.items():
        for rule, length in lengths.items():
            told.observe("list_blocks", length, dataset=name, setting=rule, statistic="longest")
    # One record a batch: where no slot is free, a block of as many slots as there are records.
    wanted, slots, free = {"edges": 0.0, "slots": 0.0}, 0, 0
    for records in range(1, batches + 1):
        made = 0 if free else records
        slots, free = slots + made, free + made - 1
        waste = slots / records
        wanted["edges"] = max(wanted["edges"], waste - 1)
        wanted["slots"] = max(wanted["slots"], 1 - 1 / waste)
    waste = {"edges": of_records, "slots": of_slots}
    for over, share in waste.items():
        told.observe("portion", share, of="empty slots", baseline=over)
    looped = {name: _hub_by_loop(BY_NAME[name]) for name in TWINS}
    own, exact = (
        {f"{name} {rule}": length for name, of in each.items() for rule, length in of.items()}
        for each in (hubs, looped)
    )
    told.checks = [
        close("counters", waste, wanted, 1e-9, against="rule applied by hand"),
        equal("counters", own, exact, against="rule applied by hand"),
    ]
    return told


def _hub_by_loop(graph: StreamGraph) -> dict[str, int]:
    """The same lengths as `_hub`, block by block."""
    arrivals = _arrivals(graph)
    return {
        rule: len(plain_blocks(arrivals, BlockPolicy(name, graph.tau)))
        for rule, name in (("completed", "adaptive"), ("printed", "adaptive_literal"))
    }


def _hub(graph: StreamGraph) -> dict[str, int]:
    """Longest lists of the vertex of largest degree, spread evenly over the batches that have it.

    Both numbers are in Table 6: its degree is the longest list of Fixed-size times the slots of a
    block, and the strawman's longest list counts its batches. How many records a batch brings is
    drawn from a Poisson distribution with seed 1.
    """
    arrivals = _arrivals(graph)
    lists = {
        "completed": BlockCounts(1, BlockPolicy("adaptive", graph.tau)),
        "printed": BlockCounts(1, BlockPolicy("adaptive_literal", graph.tau)),
    }
    for count in arrivals[arrivals > 0]:
        for one in lists.values():
            one.add(np.zeros(1, np.int64), np.array([count]))
    return {rule: int(one.blocks[0]) for rule, one in lists.items()}


def _arrivals(graph: StreamGraph) -> np.ndarray:
    """Records that each batch brings to the vertex of largest degree."""
    printed = printed_table(graph.name)
    degree = printed["Fixed-size"]["longest"] * graph.fixed
    batches = printed["Strawman"]["longest"]
    return np.random.default_rng(1).poisson(degree / batches, int(batches))


def _graph_rows(rows: Sequence[Any]) -> list[Any]:
    """The last row of each graph that was counted."""
    found = rows_of(rows, experiment="table6", dataset=lambda name: name != CONSTRUCTED)
    return list({r.params["dataset"]: r for r in found}.values())


def graph_rows(rows: Sequence[Any], *names: str) -> list[Any]:
    """The last row of each of these graphs, or of all."""
    return [r for r in _graph_rows(rows) if not names or r.params["dataset"] in names]


def table(row: Any) -> dict[str, dict[str, float]]:
    """Table 6 of one row: layout -> column -> number."""
    found, vertices = Table.of([row]), number(row, "vertices", of=None)
    blocks = found.where("list_blocks", statistic=None).numbers("setting")
    longest = found.where("list_blocks", statistic="longest").numbers("setting")
    slots = found.where("slots", statistic=None).numbers("setting")
    return {
        name: {
            "average": blocks[name] / vertices,
            "longest": longest[name],
            "edge MB": slots[name] * SLOT / MIB,
            "metadata MB": blocks[name] * BLOCK / MIB,
        }
        for name in LAYOUTS
    }


def list_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of `sweep`: average list by layout, printed ones as ticks where the scale is 1."""
    return _points(rows, lambda found, name: found[name]["average"], paper=0)


def memory_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of `sweep`: percent of edge data above the static layout."""
    return _points(
        rows,
        lambda found, name: 100 * (found[name]["edge MB"] / found["Static"]["edge MB"] - 1),
        paper=2,
    )


def _points(rows: Sequence[Any], value: Any, paper: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for row in _graph_rows(rows):
        numbers, graph = table(row), row.params["dataset"]
        panel = graph_title(graph)
        if row.data.get("twin"):
            panel += f" (twin, scale {row.params['scale']:.3g})"
        for name in LAYOUTS:
            point = {"panel": panel, "series": "blocks", "x": name, "counted": True}
            found.append({**point, "y": value(numbers, name), "row_ids": [row.id]})
        if row.params["scale"] == 1 and graph in TWINS:
            printed = printed_table(graph)
            for name in printed:
                point = {"panel": panel, "series": "blocks, paper", "x": name, "paper": True}
                found.append({**point, "y": value(printed, name), "row_ids": []})
    for row in failures(rows, "table6"):
        point = {"panel": graph_title(row.params["dataset"]), "series": "blocks"}
        found.append(gap(row, **point, x="-"))
    return found
