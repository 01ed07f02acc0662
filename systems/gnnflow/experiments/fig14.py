"""Figure 14: the dynamic cache against static ones chosen by sampling ahead, hits and times."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np
import torch
from torch import Tensor

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.compare import ROUND_INTERVAL, observe_speedup, take_control, with_control
from dgbench.lab.estimates import EvaluationContext
from dgbench.lab.figure_forms import FigureForm, SpeedupBars, Sweep
from dgbench.lab.printed import ledger
from dgbench.lab.quantities import MeasuredQuantity, observed
from dgbench.lab.result_checks import equal, of_contender
from dgbench.lab.study import FormExperiment
from dgbench.runtime.statistics import median
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.turns import turn_rounds
from dgbench.systems.gnnflow.cache import CacheCounts, FeatureCache, FeatureTable
from dgbench.systems.gnnflow.experiments import cache_play as play
from dgbench.systems.gnnflow.experiments.accesses import PRESAMPLING, Access, Accesses
from dgbench.systems.gnnflow.experiments.sample_checks import by_subject
from dgbench.systems.gnnflow.experiments.settings import (
    BY_NAME,
    EPOCHS,
    FORMS,
    LAMBDA,
    LEDGER,
    StreamGraph,
)
from dgbench.systems.gnnflow.rounds import Round
from dgbench.systems.gnnflow.static_cache import PRESAMPLED_EPOCHS, Visits

NETFLIX: Final = ("netflix", "tgn")
"""The workload of panels b to d."""
HITS: Final = {
    "smoke": (NETFLIX, ("college-msg", "tgn")),
    "quick": (NETFLIX, ("wikipedia", "tgn"), ("sx-mathoverflow", "tgn"), ("wikipedia", "tgat")),
    "full": (
        NETFLIX, ("gdelt", "tgn"), ("netflix", "tgat"), ("gdelt", "tgat"),
        ("wikipedia", "tgn"), ("sx-mathoverflow", "tgn"), ("enron", "tgn"), ("college-msg", "tgn"),
        ("email-eu-core", "tgn"), ("wikipedia", "tgat"), ("sx-mathoverflow", "tgat"),
    ),
    "paper": (NETFLIX, ("gdelt", "tgn"), ("netflix", "tgat"), ("gdelt", "tgat")),
}  # fmt: skip
TIMES: Final = {
    "smoke": (NETFLIX,),
    "quick": (NETFLIX, ("wikipedia", "tgat")),
    "full": (NETFLIX, ("gdelt", "tgn"), ("wikipedia", "tgn"), ("wikipedia", "tgat")),
    "paper": (NETFLIX, ("gdelt", "tgn")),
}
SIZES: Final = (0.25, 1.0, 4.0)
"""Capacities in multiples of the paper's 3 % of the nodes and 3 per mille of the edges."""
ROUNDS: Final = {"smoke": 2, "quick": 8, "full": 40, "paper": 40}
MAX_ROUND_EVENTS: Final = {"smoke": 400, "quick": 400, "full": 40_000, "paper": 10**9}
"""Events of a round at most, the first ones."""
CONTENDERS: Final = {"dynamic": 0, "static": 1, "static with reuse": 2}
"""Interval in rounds at which each contender chooses its contents ahead; 0 is never."""
TIMED_ROUNDS: Final = {"smoke": 3, "quick": 4, "full": 16, "paper": 40}
TIMED_BATCHES: Final = 4
"""Of a round, as a GPU of the paper's eight has with TGN on Netflix."""
TIMED_BATCH: Final = {
    "smoke": {"tgn": 50, "tgat": 10, "dysat": 10},
    "quick": {"tgn": 100, "tgat": 15, "dysat": 15},
    "full": {"tgn": 1000, "tgat": 150, "dysat": 150},
    "paper": {"tgn": 4000, "tgat": 600, "dysat": 600},
}
VARIANTS: Final = ("dynamic", "dynamic without RR", "static", "static with reuse", "static stale")
"""RR: reuse from round to round, and restoration for every epoch."""
GNNLAB: Final = {"static": "GNNLab", "static with reuse": "GNNLab with reuse"}
"""Names that the paper has for these."""
NEAR_ZERO: Final = 10.0
"""A hit rate below this, in percent, is nearly zero."""
POINTS: Final = 10.0
"""Tolerance of a share of time against a printed one, in points."""
ON: Final = ("model", "dataset")


def hit_rate(setting: str | tuple[str, ...], *per: str, **where: Any) -> MeasuredQuantity:
    """Percent of the requests of a workload that hit in one of `VARIANTS`."""
    return 100 * observed("hit_rate", per=(*ON, *per), part="hits", setting=setting, **where)


def edge_hits(setting: str) -> MeasuredQuantity:
    """The same of edges at the paper's capacity."""
    return hit_rate(setting, of="edge", capacity=1.0)


GAIN: Final = observed("speedup", per=ON, part="times", setting="dynamic", baseline="static")
"""Time of a round's fetching with GNNLab's cache over that with GNNFlow's."""
CHOOSING: Final = 100 * observed(
    "time_share", per=(*ON, "setting"), part="times", phase="init", setting=tuple(CONTENDERS)
)
"""Choosing and filling in percent of all fetching."""


def printed_share(at: Mapping[str, Any]) -> float | None:
    """Printed numbers of a variant on Netflix, of Figure 14b."""
    if (at["dataset"], at["model"]) != NETFLIX:
        return None
    return ledger(LEDGER)["fig14b-init-share"].get(GNNLAB.get(at["setting"]))


def share_as_printed(*settings: str) -> outcomes.Rule:
    """Choosing takes the printed shares of fetching on Netflix, to some points."""
    share = CHOOSING.where(setting=settings, dataset=NETFLIX[:1], model=NETFLIX[1:])
    off = share.less(share.printed(printed_share))
    return combine.shown_beside(
        rules.all_within(off, -POINTS, POINTS, unit="points"),
        {GNNLAB[name]: CHOOSING.where(setting=name, dataset=NETFLIX[0], model=NETFLIX[1])
         for name in settings}, "%",
    )  # fmt: skip


def fetching_gains(context: EvaluationContext) -> outcomes.RuleOutcome:
    """Rule: fetching gains on all workloads, as those of the printed factors are not named."""
    found = rules.all_above(GAIN, 1.0, unit="x")(context)
    return replace(found, sides=(), direction=found.side, remarks=tuple(found.against()))


def drawn_hits(name: str, of: str) -> FigureForm:
    """Hit rates by capacity, a panel for each workload."""
    return Sweep(
        name, f"Hit rate of {of} features (Figure {name[3:]})",
        hit_rate(VARIANTS, "capacity", of=of), panel="{model}, {dataset}",
        series="{setting}", x="capacity", gaps={"series": "GNNFlow", "x": 1.0},
        xlabel="capacity, in the paper's shares", ylabel="requests that hit, %", ylog=False,
        names=False,
    )  # fmt: skip


class Fig14(FormExperiment):
    forms, name = FORMS, "fig14"
    device = "cpu"
    headline = hit_rate("dynamic", "of", capacity=1.0) - hit_rate("static", "of", capacity=1.0)
    unit = "points"
    figure_forms = (
        SpeedupBars(
            "fig14a", "Fetching of a round against GNNLab's cache (Figure 14a)", GAIN,
            row="{model}, {dataset}", system="gnnflow", baseline="GNNLab's cache",
            xlabel="time with GNNLab's cache / time with GNNFlow's", interval=ROUND_INTERVAL,
            baseline_label="GNNLab's cache",
        ),
        Sweep(
            "fig14b", "Choosing what to cache, in percent of the fetching (Figure 14b)",
            {"measured": CHOOSING, "printed": CHOOSING.printed(printed_share)},
            panel="{model}, {dataset}", series="of", x="{setting}", gaps={"x": "GNNLab"},
            ylabel="choosing, % of all fetching", ylog=False, sort=False,
        ),
        drawn_hits("fig14c", "node"),
        drawn_hits("fig14d", "edge"),
    )  # fmt: skip
    claims = {
        "gnnflow-fig14a-fetch-vs-gnnlab": fetching_gains,
        "gnnflow-fig14b-init-share": share_as_printed("static", "static with reuse"),
        "gnnflow-s22-cache-init-share": share_as_printed("static"),
        "gnnflow-fig14cd-rr-gain": rules.all_above(
            (
                hit_rate("dynamic", "of", "capacity")
                - hit_rate("dynamic without RR", "of", "capacity")
            ).joined_over(min, "of", "capacity"),
            0.0, unit="points",
        ),
        "gnnflow-fig14d-static-edge-zero": rules.all_below(
            edge_hits("static stale"), NEAR_ZERO, unit="%"
        ),
        "gnnflow-fig14d-static-edge-below-dynamic": combine.both(*(
            rules.all_above(edge_hits(more) - edge_hits(less), 0.0, unit=f"points above {less}")
            for more, less in (("dynamic", "static"), ("static", "static with reuse"))
        )),
    }  # fmt: skip
    control: ClassVar[Any] = {"part": "times", "dataset": NETFLIX[0], "model": NETFLIX[1]}
    group = "{part} {dataset} {model}"
    timeout_s: ClassVar[Any] = {"paper": 3600, None: 600}

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        for part, workloads in (("hits", HITS[preset]), ("times", TIMES[preset])):
            for dataset, model in workloads:
                yield {"part": part, "dataset": dataset, "model": model}

    def cell(self, params: Mapping[str, Any], preset: Preset, **fields: Any) -> Cell:
        if params["part"] == "times":
            fields |= {"repeats": turn_rounds(preset), "interleaved": True}
        return super().cell(params, preset, **fields)

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        model = str(cell.params["model"])
        if cell.params["part"] == "times":
            return time_rounds(graph, model, context, control=self.controls(cell))
        preset = context.preset
        played = play.record(graph, model, preset, ROUNDS[preset], MAX_ROUND_EVENTS[preset])
        found = Measurement(data=played.accesses.data.describe())
        found.checks += played.accesses.checks()
        for kind in play.KINDS:
            for times in SIZES:
                for variant, counts in hits(played, kind, times).items():
                    name = f"{kind} {variant} {times:g}"
                    if variant != "static stale":
                        asked = counts.requests
                        check = play.requests_check(asked, played.counted(), kind, name)
                        found.checks += of_contender(variant, [check], of=kind)
                    found.observe(
                        "hit_rate", counts.hit_rate, of=kind, setting=variant, capacity=times
                    )
        found.checks = by_subject(found.checks)
        return found


def hits(played: play.Played, kind: str, times: float) -> dict[str, CacheCounts]:
    """Hits of each of `VARIANTS` over the counted rounds."""
    found: dict[str, CacheCounts] = {}
    for name, on in (("dynamic", True), ("dynamic without RR", False)):
        cache = play.narrow(played, kind, times)
        found[name] = play.dynamic(played, cache, kind, reuse=on, restoration=on)
    cache = play.narrow(played, kind, times, "static")
    found["static"], _ = play.static(played, cache, kind)
    cache = play.narrow(played, kind, times, "static")
    found["static with reuse"], found["static stale"] = play.static(played, cache, kind, every=2)
    return found


def time_rounds(
    graph: StreamGraph, model: str, context: RunContext, *, control: bool = False
) -> Measurement:
    """Seconds of fetching and of choosing by round, for all contenders in turns.

    Every contender serves the same batches. For a static cache the time to sample two epochs
    ahead, to count visits and to load rows belongs to its fetching (section 6.2).
    """
    preset = context.preset
    batch = TIMED_BATCH[preset][model]
    accesses = Accesses(graph, model, preset, batch=batch, chunks=1)
    last, size = accesses.count("edge"), TIMED_BATCHES * batch
    count = min(TIMED_ROUNDS[preset], last // (2 * size))
    rounds = [Round(i, last - (count - i) * size, last - (count - i - 1) * size)
              for i in range(count)]  # fmt: skip
    tables = {kind: FeatureTable(random_rows(accesses, kind)) for kind in play.KINDS}
    contenders = with_control(CONTENDERS, on=control)
    caches = {
        name: {
            kind: FeatureCache(table, accesses.capacity(kind), policy="static" if every else "lru",
                               admission=LAMBDA)
            for kind, table in tables.items()
        }
        for name, every in contenders.items()
    }  # fmt: skip
    init: dict[str, list[float]] = {name: [] for name in contenders}
    fetch: dict[str, list[float]] = {name: [] for name in contenders}
    unique = dict.fromkeys(play.KINDS, 0)
    for one in (rounds[0], *rounds):  # the first one twice: it warms up
        epochs = [list(accesses.epoch(one, e)) for e in range(EPOCHS)]
        for name in contenders if one.number % 2 == 0 else reversed(contenders):
            every = contenders[name]
            began = time.perf_counter()
            if every and one.number % every == 0:
                choose(accesses, one, caches[name])
            chose = time.perf_counter()
            serve(caches[name], epochs, restoration=not every)
            init[name].append(chose - began)
            fetch[name].append(time.perf_counter() - chose)
        for kind in play.KINDS:  # each id once a batch
            unique[kind] += sum(
                np.unique(access.of(kind).numpy()).size for batches in epochs for access in batches
            )
    counts = {f"{n} {k}": caches[n][k].counts for n in CONTENDERS for k in play.KINDS}
    checks = [
        equal(
            "counters",
            {key: one.unique for key, one in counts.items()},
            {key: unique[key.split()[-1]] for key in counts},
            against="ids sorted by numpy",
        ),
        *accesses.checks(),
    ]
    checks += [
        equal(
            "rows", {f"{kind}s, {name}": cache.fetch(access.of(kind), update=False)},
            {f"{kind}s, {name}": tables[kind].table[access.of(kind)]},
            against="rows of the table", system=name,
        )
        for name in CONTENDERS
        for kind, cache in caches[name].items()
        for access in (epochs[-1][-1], epochs[0][0])
    ]  # fmt: skip
    apart = max(check.gap for check in checks if check.of == "rows")
    found = Measurement(data=accesses.data.describe(), deviation={"output": apart})
    found.checks = by_subject(checks)
    for name in CONTENDERS:
        chosen, fetched = sum(init[name][1:]), sum(fetch[name][1:])
        found.observe("time_share", chosen / (chosen + fetched), setting=name, phase="init")
    totals = {n: [a + b for a, b in zip(init[n][1:], fetch[n][1:], strict=True)] for n in init}
    take_control(found, totals)
    ours = totals["dynamic"]
    for baseline in ("static", "static with reuse"):
        observe_speedup(found, totals[baseline], ours, setting="dynamic", baseline=baseline)
    found.observe("round_time", median(ours), samples=ours)
    found.warmup = 1
    found.notes.append(f"rounds of {TIMED_BATCHES} batches of {batch} events; features are random")
    return found


def random_rows(accesses: Accesses, kind: str) -> Tensor:
    """float32[count, dim], random: what a row holds changes no time."""
    dim = accesses.graph.node_dim if kind == "node" else accesses.graph.edge_dim
    made = torch.empty(accesses.count(kind), dim)
    return made.uniform_(generator=torch.Generator().manual_seed(accesses.task.seed))


def choose(accesses: Accesses, one: Round, caches: dict[str, FeatureCache]) -> None:
    """GNNLab's initialisation: sample the round ahead, count visits, load the rows."""
    visits = {kind: Visits(accesses.count(kind)) for kind in play.KINDS}
    for epoch in range(PRESAMPLED_EPOCHS):
        for access in accesses.epoch(one, PRESAMPLING + epoch):
            for kind in play.KINDS:
                visits[kind].add(access.of(kind))
    for kind, cache in caches.items():
        cache.fill(visits[kind].top(cache.capacity))


def serve(
    caches: dict[str, FeatureCache], epochs: Sequence[Sequence[Access]], *, restoration: bool
) -> None:
    """All epochs of a round; with `restoration` each begins with what the round began with."""
    starts = {k: cache.snapshot() for k, cache in caches.items()} if restoration else {}
    for number, batches in enumerate(epochs):
        if number:
            for kind, start in starts.items():
                caches[kind].restore(start)
        for access in batches:
            for kind, cache in caches.items():
                cache.fetch(access.of(kind), update=restoration)
