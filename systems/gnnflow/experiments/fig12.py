"""Figure 12: how fast a graph is sampled under five ways to size blocks (section 6.2)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, ClassVar, Final

import torch
from torch import Tensor

from dgbench.kernels_cuda.temporal_sample import Sample, count_walk, sample_neighbours
from dgbench.kernels_cuda.temporal_store import TemporalStore
from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.compare import observe_speedup, take_control, with_control
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.grid import by_preset
from dgbench.lab.quantities import MeasuredQuantity, observed
from dgbench.lab.result_checks import ResultCheck, equal, of_contender
from dgbench.lab.study import FormExperiment
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.turns import turn_rounds
from dgbench.systems.gnnflow.experiments.sample_checks import (
    by_subject,
    samples_check,
    sampling_task,
)
from dgbench.systems.gnnflow.experiments.settings import (
    BY_NAME,
    FORMS,
    PRESETS,
    TWIN_NAMES,
    StreamGraph,
    filled_store,
)
from dgbench.systems.gnnflow.experiments.table6 import INJECTED, policies

STATIC: Final = "Static"
LAYOUTS: Final = ("Adj. List", "Fixed-size", "Strawman", "Adaptive", STATIC)
"""In the order of the paper's bars."""
SCALES: Final = {
    "gdelt": (1 / 4096, 1 / 512, 1 / 32, 1.0),
    "netflix": (1 / 4096, 1 / 64, 1 / 32, 1.0),
}
"""Size of the twins by preset; below, blocks of fixed size for Netflix get as small as a list's."""
SLOW: Final = "netflix"
"""Twin that takes three times as long as the other; quick has one of them."""
HELD: Final = {"smoke": (), "quick": (), None: ("wikipedia", "sx-mathoverflow")}
"""Graphs that are not the paper's, which no claim counts."""
HELD_BATCH: Final = 1000
"""Edges of an injected batch on the smaller graphs that are held."""
BATCH: Final = 600
"""Edges whose ends and random negatives are the roots."""
FANOUT: Final = 10
POLICIES: Final = ("uniform", "recent")
SEARCHES: Final = {"list": "linear", "fences": "binary"}
"""Ways to find a window, by the names that rows have for them."""
PAPERS: Final = ("list", "uniform")
"""Stand-in for the paper's sampler: its walk along the list over the whole past."""
PAIRS: Final = (("Strawman", "Fixed-size"), ("Adaptive", "Strawman"), ("Adaptive", "Fixed-size"),
                ("Adaptive", "Adj. List"), ("Static", "Adaptive"))  # fmt: skip
"""Pairs of layouts: the paper finds the first faster than the second."""
TURNS: Final = {"smoke": 2, "quick": 5, "full": 15, "paper": 31}
MAX_ROUNDS: Final = 201
"""Turns at most."""
BUDGET_S: Final = {"smoke": 0.0, "quick": 0.05, "full": 2.0, "paper": 10.0}
"""Seconds of turns for each way to sample."""
HARDLY: Final = 0.1
"""Share of the static layout's throughput up to which a bar of Figure 12 is almost nothing."""
VISITS: Final = {"smoke": 200_000, "quick": 2_000_000, "full": 20_000_000, "paper": 200_000_000}
"""Blocks of an adjacency list that the roots of a call may have in all; fewer roots if they do."""

SPEED: Final = observed("speedup", per="dataset")
"""Throughput of a layout over that of another."""
NEAREST: Final = SPEED.where(dataset=TWIN_NAMES, method=PAPERS[0])
"""The same on the paper's graphs along the list."""
LONGEST: Final = {
    f"longest walk, {name}": observed("list_blocks", setting=name, statistic="longest")
    .where(dataset=TWIN_NAMES) for name in LAYOUTS
}  # fmt: skip


def by_policy(rule: Callable[[MeasuredQuantity], outcomes.Rule]) -> outcomes.Rule:
    """The claim under both rules of sampling, along the list as in Algorithm 1."""
    return combine.shown_beside(combine.interpretations(
        "the paper does not say which neighbours are sampled",
        {
            name: rule(NEAREST.where(policy=policy))
            for name, policy in (("uniform over the past", "uniform"), ("newest", "recent"))
        },
    ), LONGEST, "")  # fmt: skip


def in_order(pairs: Sequence[tuple[str, str]]) -> outcomes.Rule:
    """The first layout of every pair is faster than the second, on every graph."""
    return by_policy(lambda speed: combine.both(*(
        rules.all_above(speed.where(setting=fast, baseline=slow).per("setting", "baseline"), 1.0,
                        unit="x")
        for fast, slow in pairs
    )))  # fmt: skip


class Fig12(FormExperiment):
    forms, name = FORMS, "fig12"
    device = "cpu"
    headline = SPEED.where(
        method=PAPERS[0], policy=PAPERS[1], setting=LAYOUTS[:-1], baseline=STATIC
    )
    unit = "x"
    figure_forms = (
        Sweep(
            "fig12", "Sampling throughput over that of the static layout",
            SPEED.where(setting=LAYOUTS[:-1], baseline=STATIC).per("policy", "method"),
            panel="{dataset}", series="{policy}, {method}", x="{setting}",
            gaps={"series": "uniform, along the list", "x": "-"}, xlabel="",
            ylabel="throughput / static", xlog=False, sort=False, names=False,
        ),
    )  # fmt: skip
    claims = {
        "gnnflow-fig12-adjlist-zero": by_policy(
            lambda speed: rules.all_within(
                speed.where(setting="Adj. List", baseline=STATIC), 0.0, HARDLY
            )
        ),
        "gnnflow-fig12-fixed-below-strawman": in_order(PAIRS[:1]),
        "gnnflow-fig12-adaptive-best-dynamic": in_order(PAIRS[1:]),
    }
    control: ClassVar[Any] = {"dataset": "gdelt"}
    repeats: ClassVar[Any] = {preset: turn_rounds(preset) for preset in PRESETS}
    timeout_s: ClassVar[Any] = {"smoke": 60, "quick": 90, "full": 900, "paper": 7200}

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        for name, scales in SCALES.items():
            if preset != "quick" or name != SLOW:
                yield {"dataset": name, "scale": scales[PRESETS.index(preset)]}
        for name in by_preset(HELD, preset):
            yield {"dataset": name, "scale": 1.0}

    def cell(self, params: Mapping[str, Any], preset: Preset, **fields: Any) -> Cell:
        return super().cell(params, preset, interleaved=True, **fields)

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        scale = float(cell.params["scale"] or 1.0)
        return measure(graph, scale, context, control=self.controls(cell))


def stores_of(graph: StreamGraph, scale: float) -> tuple[dict[str, TemporalStore], Any]:
    """The graph under every layout, injected batch by batch as the paper does, and its events."""
    from dgbench import datasets

    events = datasets.open_events(graph.name, scale=scale)
    root = math.sqrt(scale) if not graph.real else 1.0
    tau, fixed = (max(1, round(size * root)) for size in (graph.tau, graph.fixed))
    batch = HELD_BATCH if graph.real else max(1, round(INJECTED * root))
    policy_of = policies(tau, fixed)
    stores = {
        name: filled_store(events, batch, policy=policy_of[name], undirected=graph.undirected)
        for name in LAYOUTS[:-1]
    }
    stores[STATIC] = TemporalStore.static(
        events.num_nodes, events.src, events.dst, events.t, undirected=graph.undirected
    )
    return stores, events


def roots_of(events: Any, lists: Tensor, visits: int) -> tuple[Tensor, Tensor]:
    """Ends of the newest edges and random vertices, int64[R], and their times, float64[R]; as many
    edges as have at most `visits` blocks on the lists of their roots, given int32[N] of lengths."""
    count = min(BATCH, len(events))
    negatives = torch.randint(
        events.num_nodes, (count,), generator=torch.Generator().manual_seed(1)
    )
    by_edge = torch.stack([events.src[-count:], events.dst[-count:], negatives], 1)  # [count, 3]
    upto = lists[by_edge].sum(1).cumsum(0)
    kept = max(1, int((upto <= visits).sum()))
    return by_edge[:kept].flatten(), events.t[-count:][:kept].repeat_interleave(3)


def measure(
    graph: StreamGraph, scale: float, context: RunContext, *, control: bool = False
) -> Measurement:
    """Sample the same roots from all layouts in turns."""
    stores, events = stores_of(graph, scale)
    longest = stores["Adj. List"].list_lengths()
    nodes, times = roots_of(events, longest, VISITS[context.preset])
    found = Measurement(data=describe(events))
    checks: list[ResultCheck] = []
    for walk, policy in product(SEARCHES, POLICIES):
        calls = {
            name: partial(sample_neighbours, store, nodes, times, fanout=FANOUT, policy=policy,
                          search=SEARCHES[walk], seed=1, threads=1)
            for name, store in stores.items()
        }  # fmt: skip
        checks += agreement(
            {name: call() for name, call in calls.items()}, events, nodes, times, policy,
            undirected=graph.undirected,
        )  # fmt: skip
        sides = with_control(calls, on=control and (walk, policy) == PAPERS)
        seconds = in_turns(sides, TURNS[context.preset], BUDGET_S[context.preset])
        how = {"method": walk, "policy": policy}
        take_control(found, seconds, **how)
        for fast, slow in (*((name, STATIC) for name in LAYOUTS[:-1]), *PAIRS):
            observe_speedup(found, seconds[slow], seconds[fast], setting=fast, baseline=slow, **how)
    past = torch.full_like(times, -torch.inf)
    for name, store in stores.items():
        blocks, _ = count_walk(store, nodes, past, times)
        found.observe("list_blocks", int(blocks.max()), setting=name, statistic="longest")
    found.deviation = {"output": max(check.gap for check in checks if check.of == "samples")}
    found.checks = by_subject(checks)
    return found


def agreement(
    samples: dict[str, Sample],
    events: Any,
    nodes: Tensor,
    times: Tensor,
    policy: str,
    *,
    undirected: bool = True,
) -> list[ResultCheck]:
    """Checks of samples of the same roots by several samplers, seed 1 and draw 0: drawn roots of
    the first by the plain sampler, and all roots of the others by the first."""
    task = sampling_task((FANOUT,), policy, undirected=undirected, seed=1)
    columns = {
        name: {key: getattr(one, key) for key in ("offsets", "neighbours", "eids", "edge_times")}
        for name, one in samples.items()
    }
    first, *others = samples
    found: list[ResultCheck] = []
    for name, one in samples.items():
        check = samples_check(task, events, nodes, times, 0, [[one]], most=6, part=name)
        found += of_contender(name, [check])
    return found + [
        equal("samples", columns[name], columns[first], against="first sampler", system=name)
        for name in others
    ]


def in_turns(
    calls: dict[str, Callable[[], Any]], least: int, budget_s: float = 0.0
) -> dict[str, list[float]]:
    """Seconds of each call turn by turn, every second one backwards, after one that warms up.

    At least `least` turns, and for `budget_s` seconds up to `MAX_ROUNDS`.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    begin, turn = time.perf_counter(), 0
    while turn <= least or (turn <= MAX_ROUNDS and time.perf_counter() - begin < budget_s):
        for name in calls if turn % 2 else reversed(calls):
            start = time.perf_counter()
            calls[name]()
            if turn:
                seconds[name].append(time.perf_counter() - start)
        turn += 1
    return seconds
