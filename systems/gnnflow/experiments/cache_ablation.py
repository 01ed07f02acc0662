"""Ablation of the cache: policy, admission, reuse, restoration, and batches (4.3)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

import torch

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.compare import AGAIN, ROUND_INTERVAL, observe_speedup, take_control
from dgbench.lab.estimates import EvaluationContext, real_data
from dgbench.lab.figure_forms import FigureForm, SpeedupBars, Sweep
from dgbench.lab.quantities import MeasuredQuantity, observed
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.lab.study import FormExperiment
from dgbench.runtime.statistics import median
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.turns import turn_rounds
from dgbench.systems.gnnflow.cache import CacheCounts, FeatureCache, FeatureTable
from dgbench.systems.gnnflow.experiments import cache_play as play
from dgbench.systems.gnnflow.experiments.accesses import Accesses
from dgbench.systems.gnnflow.experiments.fig14 import random_rows
from dgbench.systems.gnnflow.experiments.sample_checks import by_subject
from dgbench.systems.gnnflow.experiments.settings import BY_NAME, FORMS, LAMBDA
from dgbench.systems.gnnflow.plain_cache import ListedCache, TorchCache
from dgbench.systems.gnnflow.rounds import Round
from dgbench.systems.gnnflow.wholegraph_cache import WholeGraphCache

WORKLOADS: Final = {
    "smoke": (("college-msg", "tgn"),),
    "quick": (("wikipedia", "tgn"), ("sx-mathoverflow", "tgn"), ("college-msg", "tgn")),
    "full": (("netflix", "tgn"), ("gdelt", "tgn"), ("netflix", "tgat"), ("wikipedia", "tgn"),
             ("sx-mathoverflow", "tgn"), ("enron", "tgn"), ("college-msg", "tgn"),
             ("email-eu-core", "tgn"), ("wikipedia", "tgat"), ("sx-mathoverflow", "tgat")),
    "paper": (("netflix", "tgn"), ("gdelt", "tgn"), ("netflix", "tgat"), ("gdelt", "tgat")),
}  # fmt: skip
SPEED: Final = ("wikipedia", "tgn")
"""Whose edges the ways to keep a cache are timed on."""
GPUS: Final = (play.GPUS, 1)
"""With one GPU a round is eight times as long beside its cache."""
ROUNDS: Final = {"smoke": 2, "quick": 5, "full": 20, "paper": 40}
MAX_BATCHES: Final = {
    "smoke": {"tgn": 100, "tgat": 40},
    "quick": {"tgn": 250, "tgat": 32},
    "full": {"tgn": 10_000, "tgat": 1_000},
    "paper": {"tgn": 10**9, "tgat": 10**9},
}
"""Events of a round at most: with small batches, TGAT has many of them."""
START: Final = "lru"
SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    START: {},
    "lfu": {"policy": "lfu"},
    "fifo": {"policy": "fifo"},
    "lambda 0.05": {"admission": 0.05},
    "lambda 0.5": {"admission": 0.5},
    "lambda 1": {"admission": 1.0},
    "no restoration": {"restoration": False},
    "no reuse": {"reuse": False},
    "neither": {"reuse": False, "restoration": False},
}
"""Each differs in this from LRU with reuse, restoration and lambda 0.2, the paper's cache."""
EVENTS: Final = {"smoke": 100, "quick": 1_500, "full": 4_000, "paper": 4_000}
"""Of a batch whose edges are fetched against the clock."""
TURNS: Final = {"smoke": 3, "quick": 6, "full": 21, "paper": 21}
TABLE: Final = "rows of the table"
NEEDS: Final = "its cache lies on a GPU: needs a CUDA device"
WHOLEGRAPH: Final = "WholeGraph, on the device"
"""Raced with our cache on the device, where it is installed."""


FEWEST: Final = 3
"""Workloads below which a mean over them says nothing of what is best on average."""
TELLING: Final = 0.1
"""Points between two mean hit rates below which neither is told to be better."""


def hit_rate(setting: str | tuple[str, ...], ranks: int = play.GPUS) -> MeasuredQuantity:
    """Percent of the requests of a workload that hit."""
    return 100 * observed(
        "hit_rate", per=("model", "dataset", "of"), part="hits", setting=setting, ranks=ranks
    )


def average(found: MeasuredQuantity) -> MeasuredQuantity:
    """Mean over workloads, nodes and edges."""
    return found.mean_over("model", "dataset", "of")


def best_on_average(*others: str) -> outcomes.Rule:
    """LRU with lambda 0.2 hits more than other settings, in the mean over real workloads: hit rates
    of a twin follow its own memory."""

    def lead(other: str, ranks: int = play.GPUS) -> MeasuredQuantity:
        return average(hit_rate(START, ranks) - hit_rate(other, ranks))

    rule = combine.both(*(
        rules.all_above(lead(one).keep(real_data), 0.0, near=TELLING, unit=f"points over {one}")
        for one in others
    ))  # fmt: skip

    def judged(context: EvaluationContext) -> outcomes.RuleOutcome:
        found = rule(context)
        few = len({(row.params["model"], row.params["dataset"]) for row in found.rows}) < FEWEST
        return replace(found, sides=(("too few workloads", 0),)) if few else found

    return combine.shown_beside(judged, {f"points over {o} alone": lead(o, 1) for o in others}, "")


def time_over(*ways: str, part: str = "speed") -> MeasuredQuantity:
    """Time of other ways to keep a cache over that of whole batches."""
    return observed("speedup", part=part, setting="batched", baseline=ways)


def drawn_hits(of: str) -> FigureForm:
    """Hit rates by setting, for one of eight GPUs and for one alone."""
    return Sweep(
        f"cache_ablation_{of}", f"Hit rate of {of} features by setting of the cache",
        hit_rate(tuple(SETTINGS)).where(of=of, ranks=GPUS), panel="{model}, {dataset}",
        series="{ranks}", x="{setting}", gaps={"series": "one GPU alone", "x": "LRU"},
        ylabel="requests that hit, %", ylog=False, sort=False,
    )  # fmt: skip


class CacheAblation(FormExperiment):
    forms, name = FORMS, "cache_ablation"
    device = "cpu"
    headline, unit = average(hit_rate((START, "lfu", "fifo", "neither"))), "%"
    figure_forms = (
        *map(drawn_hits, play.KINDS),
        SpeedupBars(
            "cache_speed", "Fetching with a cache of whole batches, against other ways",
            {
                "host": time_over("list", "torch"),
                "device": time_over(WHOLEGRAPH, part="device"),
            },
            row="{baseline}", system="gnnflow", baseline="{baseline}",
            interval=ROUND_INTERVAL, xlabel="time of the other way / time of compiled batches",
        ),
    )  # fmt: skip
    claims = {
        "gnnflow-s62-lru-best-dynamic": best_on_average("lfu", "fifo"),
        "gnnflow-s43-lambda-stabilises": best_on_average("lambda 1"),
        "gnnflow-s43-vectorised-faster": combine.shown_beside(
            rules.all_above(time_over("list"), 1.0, report=rules.largest),
            {"torch's operators over ours": time_over("torch")},
        ),
    }
    control: ClassVar[Any] = {"part": "speed"}
    group = "{part} {dataset} {model}"
    timeout_s: ClassVar[Any] = {"paper": 3600, None: 600}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        parts = [("hits", *one) for one in WORKLOADS[preset]]
        parts += [("speed", *SPEED), ("device", *SPEED)]
        lacking = NEEDS if device != "cuda" else WholeGraphCache.absent()
        return [
            self.cell(
                {"part": part, "dataset": dataset, "model": model},
                preset,
                repeats=turn_rounds(preset) if part == "speed" else 1,
                interleaved=part == "speed",
                unavailable=lacking if part == "device" else "",
            )
            for part, dataset, model in parts
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        model, preset = str(cell.params["model"]), context.preset
        if cell.params["part"] != "hits":
            accesses = Accesses(graph, model, preset, batch=EVENTS[preset], chunks=1)
            on_device = cell.params["part"] == "device"
            return race(accesses, context, on_device=on_device, control=self.controls(cell))
        found = Measurement()
        for gpus in GPUS:
            played = play.record(
                graph, model, preset, ROUNDS[preset], MAX_BATCHES[preset][model], gpus=gpus
            )
            found.checks += played.accesses.checks()
            for kind in play.KINDS:
                for name, setting in SETTINGS.items():
                    counts = hits(played, kind, **setting)
                    check = play.requests_check(
                        counts.requests, played.counted(), kind, f"{gpus} {kind} {name}"
                    )
                    found.checks.append(check)
                    found.observe("hit_rate", counts.hit_rate, ranks=gpus, of=kind, setting=name)
            found.data = played.accesses.data.describe()
        found.checks = by_subject(found.checks)
        return found


def hits(
    played: play.Played,
    kind: str,
    *,
    policy: str = "lru",
    admission: float = LAMBDA,
    reuse: bool = True,
    restoration: bool = True,
) -> CacheCounts:
    """Hits of a cache of the paper's size with these settings."""
    cache = play.narrow(played, kind, 1.0, policy, admission)  # type: ignore[arg-type]
    return play.dynamic(played, cache, kind, reuse=reuse, restoration=restoration)


def race(accesses: Accesses, context: RunContext, *, on_device: bool, control: bool) -> Measurement:
    """Seconds of a fetch in each way to keep a cache, in turns on the same batches of edges."""
    table, slots = random_rows(accesses, "edge"), accesses.capacity("edge", 10.0)
    ours = FeatureTable(table)
    ways: dict[str, Any] = {
        "batched": FeatureCache(ours, slots, device=context.device if on_device else "cpu")
    }
    if on_device:
        ways[WHOLEGRAPH] = WholeGraphCache(table, slots)
    else:
        ways["list"] = ListedCache(table, slots, threads=torch.get_num_threads())
        ways["torch"] = TorchCache(table, slots)
    if control:
        ways[AGAIN] = FeatureCache(ours, slots)
    turns, size = TURNS[context.preset], accesses.task.batch
    last = accesses.count("edge")
    span = Round(0, last - (turns + 3) * size, last)
    batches = [access.edges for access in accesses.epoch(span)]
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    checks: list[ResultCheck] = []
    for turn, ids in enumerate(batches, -3):  # three fill the caches
        given = ids.to(context.device) if on_device else ids
        for name in ways if turn % 2 else reversed(ways):
            began = time.perf_counter()
            rows = ways[name].fetch(given)
            if on_device:
                torch.cuda.synchronize()
            if turn >= 0:
                seconds[name].append(time.perf_counter() - began)
            if turn in (-1, turns - 1):
                pair = {name: rows}, {name: table[ids]}
                checks.append(equal("rows", *pair, against=TABLE, system=name))
    apart = max(check.gap for check in checks)
    found = Measurement(data=accesses.data.describe(), deviation={"output": apart}, warmup=3)
    found.checks = [*by_subject(checks), *accesses.checks()]
    take_control(found, seconds)
    for name in seconds:
        if name != "batched":
            which = {"setting": "batched", "baseline": name}
            observe_speedup(found, seconds[name], seconds["batched"], **which)
    found.observe("operation_time", median(seconds["batched"]), samples=seconds["batched"])
    if not on_device:
        own = {name: way.requests for name, way in ways.items()}
        exact = dict.fromkeys(ways, sum(ids.numel() for ids in batches))
        found.checks.append(equal("counters", own, exact, against="ids of all batches"))
        for name, way in ways.items():
            if name != AGAIN:
                found.observe("hit_rate", way.hits / way.requests, setting=name)
    return found
