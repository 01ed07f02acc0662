"""Ablation of the CPU sampler, and cost of finding a window (section 4.2)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, ClassVar, Final

import torch

from dgbench.kernels_cuda.temporal_sample import count_walk, sample_between, sample_neighbours
from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore
from dgbench.lab.charts import chart, failures, gap, ratio_mark, sweep
from dgbench.lab.compare import ROUND_INTERVAL, Ratio, observe_speedup, ratio_of, rounds_of
from dgbench.lab.grid import Grid
from dgbench.lab.result_checks import ResultCheck, at_most, equal
from dgbench.lab.table import Table, rows_of
from dgbench.runtime.errors import UnsupportedError
from dgbench.runtime.statistics import median
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.turns import turn_rounds
from dgbench.systems.gnnflow.contenders import ContenderEvents
from dgbench.systems.gnnflow.contenders.stream import batch_roots
from dgbench.systems.gnnflow.experiments.contenders import SYNTHETIC, open_stream
from dgbench.systems.gnnflow.experiments.fig12 import BUDGET_S, agreement, in_turns
from dgbench.systems.gnnflow.experiments.sample_checks import by_subject
from dgbench.systems.gnnflow.experiments.settings import PRESETS, graph_title

NAME: Final = "sampling_ablation"
STREAMS: Final = {"smoke": ("college-msg",), "quick": ("sx-mathoverflow",)}
ALL: Final = (SYNTHETIC, "sx-mathoverflow", "wikipedia")
SIZES: Final = ((1000, 20_000), (10_000, 500_000), (200_000, 10_000_000), (200_000, 10_000_000))
"""Vertices and edges of the synthetic stream, by preset."""
LOOKUP: Final = "constructed"
"""One vertex with a list of growing length: what finding a window costs."""
LENGTHS: Final = {"smoke": 12, "quick": 18, "full": 22, "paper": 22}
"""Powers of two up to which a block, or a list, grows."""
INJECTED: Final = 10_000
BATCH: Final = 4000
FANOUT: Final = 10
TURNS: Final = {"smoke": 2, "quick": 7, "full": 15, "paper": 31}
OURS: Final = "as it is"
VARIANTS: Final[dict[str, dict[str, Any]]] = {
    OURS: {},
    "one root at a time": {"grouped": False},
    "along the list": {"search": "linear"},
    "records of 12 bytes": {"layout": "compact"},
    "records of 24 bytes": {"layout": "wide"},
    "two threads": {"threads": 2},
}
"""Each differs from the first in one thing."""
POLICIES: Final = ("recent", "uniform")

Rows = Sequence[Any]


class SamplingAblation(Grid):
    paper = "gnnflow"
    name = NAME
    title = "Parts of the sampler"
    device = "cpu"
    question = "What do groups, fences and layouts bring, and what does finding a window cost?"
    reading = (
        "All variants return the same samples. Inside a block a window is found by binary search, "
        "as section 4.1 says; the walk along the list (Algorithm 1) still looks at every block "
        "that is newer than the window's begin, so its cost grows with the list. Fences, one "
        "entry per block in an array, are searched as well."
    )
    claims = ("gnnflow-s41-search-log-time",)

    timeout_s: ClassVar[Any] = {"smoke": 60, "quick": 90, "full": 600, "paper": 1200}

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        return ({"dataset": name} for name in (LOOKUP, *STREAMS.get(preset, ALL)))

    def cell(self, params: Mapping[str, Any], preset: Preset, **fields: Any) -> Cell:
        repeats = 1 if params["dataset"] == LOOKUP else turn_rounds(preset)
        return super().cell(params, preset, repeats=repeats, interleaved=True, **fields)

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        name = str(cell.params["dataset"])
        return lookups(context) if name == LOOKUP else variants(name, context)

    def figures(self) -> list[FigureSpec]:
        return [
            chart("speedup", NAME, "The sampler over itself with one part changed", variant_points,
                baseline_label="the sampler with the change of the row",
                xlabel="time with the change / time as it is", interval=ROUND_INTERVAL),
            sweep("sampling_lookup", "Times compared to find a window", lookup_points,
                xlabel="records of the vertex", ylabel="times and blocks looked at", ylog=True),
        ]  # fmt: skip

    def answer(self, rows: Rows) -> str:
        words = [
            f"{name} {change(mine, name, policy).value:.2f}x ({policy}, "
            f"{graph_title(mine[-1].params['dataset'])})"
            for mine in _variant_rows(rows)
            for name, policy in product(list(VARIANTS)[1:4], POLICIES)
        ]
        return f"Time with a change over time as it is: {', '.join(words)}." if words else ""


def lookup_rows(rows: Rows) -> list[Any]:
    """Usable rows that counted what a lookup costs."""
    return rows_of(rows, experiment=NAME, dataset=LOOKUP)


def _variant_rows(rows: Rows) -> list[list[Any]]:
    """Of each stream the rounds of its last cell."""
    last = {r.params["dataset"]: r for r in rows_of(rows, experiment=NAME)}
    return [rounds_of(row, rows) for name, row in last.items() if name != LOOKUP]


def lookups(context: RunContext) -> Measurement:
    """Comparisons and blocks of one window: in one block of n records, and in n / 4 blocks of 4."""
    found = Measurement(
        data={"dataset": LOOKUP, "twin": False, "scale": 1.0, "note": "constructed"},
        notes=["a window begins a sixteenth of the list before it ends; the worst of 256 windows"],
    )
    checks: list[ResultCheck] = []
    for power in range(2, LENGTHS[context.preset] + 1, 2):
        length = 1 << power
        times = torch.arange(length, dtype=torch.float64)
        zeros = torch.zeros(length, dtype=torch.int64)
        one = TemporalStore.static(1, zeros, zeros, times)
        many = TemporalStore(1, policy=BlockPolicy("fixed", 4))
        many.insert(zeros, zeros, times)
        asked = min(length, 256)
        ends = (torch.arange(asked, dtype=torch.float64) + 0.5) * (length / asked)
        begins = ends - max(1.0, length / 16)
        nodes = zeros[:asked]
        _, compared = count_walk(one, nodes, begins, ends)
        blocks, _ = count_walk(many, nodes, begins, ends)
        found.observe("comparisons", int(compared.max()), size=length)
        found.observe("list_blocks", int(blocks.max()), size=length)
        calls = {
            "one": lambda s=one, a=(nodes, begins, ends): sample_between(
                s, *a, fanout=1, threads=1
            ),
            "fences": lambda s=many, a=(nodes, begins, ends): sample_between(
                s, *a, fanout=1, threads=1
            ),
            "list": lambda s=many, a=(nodes, begins, ends): sample_between(
                s, *a, fanout=1, search="linear", threads=1
            ),
        }
        for name, spent in in_turns(calls, 3).items():
            found.observe("operation_time", median(spent) / asked, method=name, size=length)
        # Records are at times 0, 1, ...: what a window holds follows from its borders.
        low, high = begins.ceil().clamp(min=0).long(), ends.ceil().long()
        newest = {"neighbours": zeros[:asked], "eids": high - 1, "times": (high - 1).double()}
        for call in calls.values():
            one = call()
            own = {"neighbours": one.neighbours, "eids": one.eids, "times": one.edge_times}
            checks.append(equal("samples", own, newest, against="records by their times"))
        walked = (length - 1) // 4 - low // 4 + 1  # blocks from the newest to that of the begin
        halvings = 2 * (math.log2(length) + 2)  # both borders by binary search
        checks += [
            at_most("counters", float(((blocks - walked).abs() > 1).double().mean()), 0.0,
                    against="blocks up to a window's begin", compared=asked),
            at_most("counters", float((compared > halvings).double().mean()), 0.0,
                    against="halvings of the list", compared=asked),
        ]  # fmt: skip
    found.deviation = {"output": max(check.gap for check in checks)}
    found.checks = by_subject(checks)
    return found


def variants(name: str, context: RunContext) -> Measurement:
    """Every variant in turns on one stream."""
    events, data = open_stream(name, *SIZES[PRESETS.index(context.preset)])
    layouts = ("packed", "compact", "wide")
    stores = {layout: _store(events, layout) for layout in layouts}
    nodes, times = batch_roots(events, len(events) // 2, min(BATCH, len(events) // 4))
    found = Measurement(data=data)
    checks: list[ResultCheck] = []
    for policy in POLICIES:
        calls = {}
        for variant, change in VARIANTS.items():
            how = {"threads": 1, **change}
            store = stores[how.pop("layout", "packed")]
            calls[variant] = lambda s=store, h=how, p=policy: sample_neighbours(
                s, nodes, times, fanout=FANOUT, policy=p, seed=1, **h
            )
        samples = {variant: call() for variant, call in calls.items()}
        checks += agreement(samples, events, nodes, times, policy)
        seconds = in_turns(calls, TURNS[context.preset], BUDGET_S[context.preset])
        for variant, spent in seconds.items():
            rate = nodes.numel() / median(spent)
            found.observe("throughput", rate, setting=variant, policy=policy)
            if variant != OURS:
                which = {"setting": OURS, "baseline": variant, "policy": policy}
                observe_speedup(found, spent, seconds[OURS], **which)
    found.observe("targets", nodes.numel())
    found.observe("events", len(events))
    found.observe("vertices", events.num_vertices)
    found.deviation = {"output": max(check.gap for check in checks)}
    found.checks = by_subject(checks)
    return found


def change(rows: Rows, variant: str, policy: str) -> Ratio:
    """Time with a change over time as it is."""
    return ratio_of(Table.of(rows).where("speedup", baseline=variant, policy=policy))


def _store(events: ContenderEvents, layout: str) -> TemporalStore:
    origin = float(events.t[0])
    after = events.t - origin
    if layout == "compact" and bool(((after != after.floor()) | (after >= 2**32)).any()):
        raise UnsupportedError(
            "layout compact holds times that are whole numbers below 2^32 after the first one",
            hint="give the stream times in a finer unit, such as whole milliseconds",
        )
    store = TemporalStore(events.num_vertices, layout=layout, undirected=True, origin=origin)  # type: ignore[arg-type]
    for first in range(0, len(events), INJECTED):
        part = slice(first, first + INJECTED)
        store.insert(events.src[part], events.dst[part], events.t[part])
    return store


def variant_points(rows: Rows) -> list[dict[str, Any]]:
    """Points of `speedup`: each change over the sampler as it is."""
    sides = {"system": "gnnflow", "baseline": "gnnflow"}
    found = [
        ratio_mark(
            change(mine, variant, policy), panel=policy, **sides,
            row=f"{variant}, {graph_title(mine[-1].params['dataset'])}",
        )
        for mine in _variant_rows(rows)
        for policy, variant in product(POLICIES, list(VARIANTS)[1:])
    ]  # fmt: skip
    return found + [
        gap(
            row, panel=POLICIES[0], row=graph_title(row.params["dataset"]), **sides,
            failed_system="gnnflow",
        )
        for row in failures(rows, NAME)
    ]  # fmt: skip


def lookup_points(rows: Rows) -> list[dict[str, Any]]:
    """Points of `sweep`: comparisons inside one block, blocks walked on a list, by length."""
    names = {
        "comparisons": "times compared in one block",
        "list_blocks": "blocks of 4 walked on a list",
    }
    return [
        {
            "series": names[one.of.metric],
            "x": one["size"],
            "y": one.value,
            "counted": True,
            "row_ids": [one.row.id],
        }
        for one in Table.of(lookup_rows(rows)).where(tuple(names))
    ]
