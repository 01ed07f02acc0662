"""Ablation of the CPU sampler, and cost of finding a window (section 4.2)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, ClassVar, Final

import torch

from dgbench.kernels_cuda.temporal_sample import count_walk, sample_between, sample_neighbours
from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore
from dgbench.lab import rule_combinations as combine
from dgbench.lab import rules
from dgbench.lab.compare import ROUND_INTERVAL, observe_speedup
from dgbench.lab.figure_forms import SpeedupBars, Sweep
from dgbench.lab.quantities import observed
from dgbench.lab.result_checks import ResultCheck, at_most, equal
from dgbench.lab.study import FormExperiment
from dgbench.runtime.errors import UnsupportedError
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.turns import turn_rounds
from dgbench.systems.gnnflow.contenders import ContenderEvents
from dgbench.systems.gnnflow.contenders.stream import batch_roots
from dgbench.systems.gnnflow.experiments.contenders import SYNTHETIC, open_stream
from dgbench.systems.gnnflow.experiments.fig12 import BUDGET_S, agreement, in_turns
from dgbench.systems.gnnflow.experiments.sample_checks import by_subject
from dgbench.systems.gnnflow.experiments.settings import FORMS, PRESETS, filled_store

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

CHANGE: Final = observed(
    "speedup", per=("baseline", "policy", "dataset"), baseline=tuple(VARIANTS)[1:], setting=OURS,
    dataset=lambda name: name != LOOKUP,
)  # fmt: skip
"""Time with a change over time as it is."""
COMPARED, WALKED = (
    observed(metric, per="size", dataset=LOOKUP) for metric in ("comparisons", "list_blocks")
)
"""Times compared inside one block, and blocks of 4 walked on a list, of so many records."""


class SamplingAblation(FormExperiment):
    forms, name = FORMS, "sampling_ablation"
    device = "cpu"
    headline, unit = CHANGE, "x"
    figure_forms = (
        SpeedupBars(
            "sampling_ablation", "The sampler over itself with one part changed", CHANGE,
            panel="{policy}", row="{baseline}, {dataset}", system="gnnflow", baseline="gnnflow",
            gaps={"panel": POLICIES[0], "row": "{dataset}"},
            baseline_label="the sampler with the change of the row",
            xlabel="time with the change / time as it is", interval=ROUND_INTERVAL,
        ),
        Sweep(
            "sampling_lookup", "Times compared to find a window",
            {"times compared in one block": COMPARED, "blocks of 4 walked on a list": WALKED},
            series="of", x="size", gaps={"x": 4}, xlabel="records of the vertex",
            ylabel="times and blocks looked at", ylog=True,
        ),
    )  # fmt: skip
    claims = {
        # Two binary searches find a window inside a block: where it begins and where it ends.
        "gnnflow-s41-search-log-time": combine.shown_beside(
            rules.at_most(
                COMPARED.over(COMPARED.printed(lambda at: 2 * int(at["size"]).bit_length())), 1.0,
                unit="of what two binary searches may compare",
            ),
            {"blocks of 4 walked on the longest list": WALKED.joined_over(max, "size")}, "",
        ),
    }  # fmt: skip
    timeout_s: ClassVar[Any] = {"smoke": 60, "quick": 90, "full": 600, "paper": 1200}

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        return ({"dataset": name} for name in (LOOKUP, *STREAMS.get(preset, ALL)))

    def cell(self, params: Mapping[str, Any], preset: Preset, **fields: Any) -> Cell:
        repeats = 1 if params["dataset"] == LOOKUP else turn_rounds(preset)
        return super().cell(params, preset, repeats=repeats, interleaved=True, **fields)

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        name = str(cell.params["dataset"])
        return lookups(context) if name == LOOKUP else variants(name, context)


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
        # Records are at times 0, 1, ...: what a window holds follows from its borders.
        low, high = begins.ceil().clamp(min=0).long(), ends.ceil().long()
        newest = {"neighbours": zeros[:asked], "eids": high - 1, "times": (high - 1).double()}
        for store, search in ((one, "binary"), (many, "binary"), (many, "linear")):
            hop = sample_between(store, nodes, begins, ends, search=search, fanout=1, threads=1)
            own = {"neighbours": hop.neighbours, "eids": hop.eids, "times": hop.edge_times}
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
            calls[variant] = partial(
                sample_neighbours, store, nodes, times, fanout=FANOUT, policy=policy, seed=1, **how
            )
        samples = {variant: call() for variant, call in calls.items()}
        checks += agreement(samples, events, nodes, times, policy)
        seconds = in_turns(calls, TURNS[context.preset], BUDGET_S[context.preset])
        for variant, spent in seconds.items():
            if variant != OURS:
                which = {"setting": OURS, "baseline": variant, "policy": policy}
                observe_speedup(found, spent, seconds[OURS], **which)
    found.deviation = {"output": max(check.gap for check in checks)}
    found.checks = by_subject(checks)
    return found


def _store(events: ContenderEvents, layout: str) -> TemporalStore:
    origin = float(events.t[0])
    after = events.t - origin
    if layout == "compact" and bool(((after != after.floor()) | (after >= 2**32)).any()):
        raise UnsupportedError(
            "layout compact holds times that are whole numbers below 2^32 after the first one",
            hint="give the stream times in a finer unit, such as whole milliseconds",
        )
    return filled_store(events, INJECTED, layout=layout, undirected=True, origin=origin)
