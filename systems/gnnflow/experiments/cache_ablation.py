"""Ablation of the cache: policy, admission, reuse, restoration, and batches (4.3)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import torch

from dgbench.lab.charts import failed, failures, mark, ratio_mark
from dgbench.lab.compare import (
    AGAIN,
    ROUND_INTERVAL,
    Ratio,
    observe_speedup,
    ratio_of,
    take_control,
)
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.lab.table import Table, number, rows_of
from dgbench.runtime.statistics import median
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.turns import turn_rounds
from dgbench.systems.gnnflow.cache import CacheCounts, FeatureCache, FeatureTable
from dgbench.systems.gnnflow.experiments import cache_play as play
from dgbench.systems.gnnflow.experiments.accesses import Accesses
from dgbench.systems.gnnflow.experiments.cache_checks import (
    BATCHES,
    IDS,
    counts_check,
    few,
    listed_check,
    looped_check,
    looped_dynamic,
    requests_check,
)
from dgbench.systems.gnnflow.experiments.cache_times import random_rows
from dgbench.systems.gnnflow.experiments.sample_checks import by_subject
from dgbench.systems.gnnflow.experiments.settings import BY_NAME, LAMBDA, model_title, panel
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
TITLES: Final = {
    START: "LRU",
    "lfu": "LFU",
    "fifo": "FIFO",
    "neither": "no reuse, no restoration",
}
EVENTS: Final = {"smoke": 100, "quick": 1_500, "full": 4_000, "paper": 4_000}
"""Of a batch whose edges are fetched against the clock."""
TURNS: Final = {"smoke": 3, "quick": 6, "full": 21, "paper": 21}
WAYS: Final = ("batched", "list", "torch")
WAY_TITLES: Final = {
    "batched": "whole batches, compiled",
    "list": "list and lock, compiled",
    "torch": "whole batches, torch's operators",
}
TABLE: Final = "rows of the table"
NEEDS: Final = "its cache lies on a GPU: needs a CUDA device"
WHOLEGRAPH: Final = "WholeGraph, on the device"
"""Raced with our cache on the device, where it is installed."""


class CacheAblation(Experiment):
    paper = "gnnflow"
    name = "cache_ablation"
    title = "Section 4.3: what each part of the cache brings"
    device = "cpu"
    question = "What do policy, limited admission, reuse, restoration and batching bring?"
    reading = (
        "Hits of all requests over rounds, as in Figure 14, for one of eight GPUs and for one "
        "alone, whose rounds are eight times as long beside its cache. Each setting differs in "
        "one thing from LRU with reuse, restoration and lambda 0.2. A miss is admitted if it is "
        "asked for most often in its batch. Against the clock a cache works on whole batches, "
        "compiled and in torch's operators, or one id at a time on a linked list behind a lock, "
        "compiled, on all threads we have; the list admits every miss. On a CUDA device our cache "
        "is raced with pylibwholegraph's, both over rows in host memory."
    )
    claims = (
        "gnnflow-s62-lru-best-dynamic",
        "gnnflow-s43-lambda-stabilises",
        "gnnflow-s43-vectorised-faster",
        "gnnflow-fig14cd-rr-gain",
    )

    control: ClassVar[Any] = {"part": "speed"}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        parts = [("hits", *one) for one in WORKLOADS[preset]]
        parts += [("speed", *SPEED), ("device", *SPEED)]
        lacking = NEEDS if device != "cuda" else WholeGraphCache.absent()
        return [
            self.cell_of(
                {"part": part, "dataset": dataset, "model": model},
                f"{part} {dataset} {model}",
                timeout_s=3600 if preset == "paper" else 600,
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
            if cell.params["part"] == "device":
                return race_on_device(accesses, context)
            return race_on_host(accesses, context, control=self.controls(cell))
        found = Measurement()
        for gpus in GPUS:
            played = play.record(
                graph, model, preset, ROUNDS[preset], MAX_BATCHES[preset][model], gpus=gpus
            )
            some = few(played)
            found.checks += played.accesses.checks()
            for kind in play.KINDS:
                capacity = played.accesses.capacity(kind)
                for name, setting in SETTINGS.items():
                    counts = hits(played, kind, **setting)
                    part = f"{gpus} {kind} {name}"
                    how = {"admission": LAMBDA, **setting}
                    loop = looped_dynamic(some, kind, capacity, play.WARM, **how)
                    found.checks += [
                        counts_check(hits(some, kind, **setting), loop, part),
                        requests_check(counts.requests, played.counted(), kind, part),
                    ]
                    play.observe_counts(found, counts, ranks=gpus, of=kind, setting=name)
                found.observe("requests", counts.requests, ranks=gpus, of=kind)
            found.data = played.accesses.describe()
        found.checks = by_subject(found.checks)
        return found

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="sweep",
                name=f"cache_ablation_{kind}",
                title=f"Hit rate of {kind} features by setting of the cache",
                points=lambda rows, kind=kind: points(rows, kind),
                options={"ylabel": "requests that hit, %", "ylog": False, "sort": False},
            )
            for kind in play.KINDS
        ] + [
            FigureSpec(
                kind="speedup",
                name="cache_speed",
                title="Fetching with a cache of whole batches, against other ways",
                points=speed_points,
                options={"interval": ROUND_INTERVAL,
                         "xlabel": "time of the other way / time of compiled batches"},
            )
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        found = rows_of(rows, experiment=self.name, part="hits")
        if not found:
            return ""
        best = {policy: average(found, policy) for policy in (START, "lfu", "fifo")}
        words = ", ".join(f"{TITLES[p]} {value:.1f} %" for p, value in best.items())
        change = average(found, START) - average(found, "neither")
        return (
            f"On average over {len(found)} workloads {words} of requests hit; reuse and "
            f"restoration together change LRU's by {change:+.1f} points."
        )


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


def average(
    rows: Sequence[Any], name: str, gpus: int = play.GPUS, kinds: Sequence[str] = play.KINDS
) -> float:
    """Mean hit rate of a setting over rows and kinds, in percent."""
    rates = [hit_rate(row, gpus, kind, name) for row in rows for kind in kinds]
    return sum(rates) / len(rates)


def hit_rate(row: Any, gpus: int, kind: str, name: str) -> float:
    """Requests that hit, in percent."""
    which = {"ranks": gpus, "of": kind, "setting": name}
    return 100 * number(row, "hit_rate", statistic=None, **which)


def speedup(rows: Sequence[Any], way: str) -> Ratio:
    """Time of another way to keep a cache over that of whole batches."""
    return ratio_of(Table.of(rows).where("speedup", baseline=way))


def race_on_host(accesses: Accesses, context: RunContext, *, control: bool) -> Measurement:
    """Seconds of a fetch in each way to keep a cache in host memory."""
    table = random_rows(accesses, "edge")
    slots = accesses.capacity("edge", 10.0)
    ways: dict[str, Any] = {
        "batched": FeatureCache(FeatureTable(table), slots),
        "list": ListedCache(table, slots, threads=torch.get_num_threads()),
        "torch": TorchCache(table, slots),
    }
    again = {AGAIN: FeatureCache(FeatureTable(table), slots)} if control else {}
    found, asked = race(accesses, context, table, {**ways, **again})
    ids = list(accesses.last.edges.split(IDS)[:BATCHES])
    found.checks += [
        listed_check(lambda slots: ListedCache(table, slots), table, ids),
        looped_check(lambda slots: FeatureCache(FeatureTable(table), slots), table, ids),
        equal(
            "counters", {name: way.requests for name, way in ways.items()},
            dict.fromkeys(ways, asked), against="ids of all batches",
        ),
    ]  # fmt: skip
    for name, way in ways.items():
        found.observe("hit_rate", way.hits / way.requests, setting=name)
    found.observe("slots", slots)
    return found


def race_on_device(accesses: Accesses, context: RunContext) -> Measurement:
    """Seconds of a fetch with our cache on the device and with WholeGraph's, ids on the device."""
    table = random_rows(accesses, "edge")
    slots = accesses.capacity("edge", 10.0)
    ways: dict[str, Any] = {
        "batched": FeatureCache(FeatureTable(table), slots, device=context.device),
        WHOLEGRAPH: WholeGraphCache(table, slots),
    }
    found, _ = race(accesses, context, table, ways)
    found.observe("slots", slots)
    return found


def race(
    accesses: Accesses, context: RunContext, table: torch.Tensor, ways: Mapping[str, Any]
) -> tuple[Measurement, int]:
    """Seconds of a fetch in each way, in turns on the same batches of edges, and their ids."""
    on_device = context.device == "cuda" and WHOLEGRAPH in ways
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
    found = Measurement(data=accesses.describe(), deviation={"output": apart}, warmup=3)
    found.checks = [*by_subject(checks), *accesses.checks()]
    take_control(found, seconds)
    for name in seconds:
        if name != "batched":
            which = {"setting": "batched", "baseline": name}
            observe_speedup(found, seconds[name], seconds["batched"], **which)
    found.observe("operation_time", median(seconds["batched"]), samples=seconds["batched"])
    asked = sum(ids.numel() for ids in batches)
    found.observe("requests", asked)
    return found, asked


def points(rows: Sequence[Any], kind: str) -> list[dict[str, Any]]:
    """Hit rates by setting, for one of eight GPUs and for one alone."""
    made = [
        mark(
            row, panel=f"{model_title(row)}, {panel(row)}", x=TITLES.get(name, name), counted=True,
            series="one of eight GPUs" if gpus == play.GPUS else "one GPU alone",
            y=hit_rate(row, gpus, kind, name),
        )
        for row in rows_of(rows, experiment="cache_ablation", part="hits")
        for gpus in GPUS
        for name in SETTINGS
    ]  # fmt: skip
    return made + [
        {"panel": panel(row), "series": "one GPU alone", "x": "LRU", "failed": failed(row)}
        for row in failures(rows, "cache_ablation")
        if row.params["part"] == "hits"
    ]


def speed_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Time of the other ways over that of compiled batches."""
    parts = {
        part: rows_of(rows, experiment="cache_ablation", part=part) for part in ("speed", "device")
    }
    raced = [(name, parts["speed"]) for name in WAYS[1:]] + [(WHOLEGRAPH, parts["device"])]
    made = []
    for name, mine in raced:
        if mine:
            title = WAY_TITLES.get(name, name)
            sides = {"row": title, "system": "gnnflow", "baseline": title}
            made.append(ratio_mark(speedup(mine, name), **sides))
    for row in failures(rows, "cache_ablation"):
        if row.params["part"] != "hits":
            title = WHOLEGRAPH if row.params["part"] == "device" else WAY_TITLES["list"]
            made.append({"row": title, "system": "gnnflow", "baseline": title,
                         "failed": failed(row)})  # fmt: skip
    return made
