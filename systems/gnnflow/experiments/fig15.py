"""Figure 15: training throughput on more and more GPUs, the graph on every one (section 6.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Final

import torch

from dgbench.lab.charts import chart, failed, failures, mark, sweep
from dgbench.lab.compare import observe_speedup
from dgbench.lab.grid import Grid
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.lab.table import Table, number, rows_of
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, FigureSpec, Measurement, RunContext
from dgbench.systems.base.stream import negatives_of
from dgbench.systems.gnnflow.experiments.cache_checks import LoopedCache
from dgbench.systems.gnnflow.experiments.partition import first_events
from dgbench.systems.gnnflow.experiments.sample_checks import NearbyStream
from dgbench.systems.gnnflow.experiments.settings import (
    BY_NAME,
    LAMBDA,
    MODEL_TITLES,
    SETTINGS,
    workload,
)

NAME: Final = "fig15"
DATASET: Final = "gdelt"
MODELS: Final = ("tgn", "tgat")
OURS, CACHED, TGL = "GNNFlow", "TGL with cache", "TGL"
CONTENDERS: Final = (OURS, CACHED, TGL)
BATCH: Final[dict[str, dict[str, int]]] = {
    "smoke": {"tgn": 60, "tgat": 12},
    "quick": {"tgn": 160, "tgat": 12},
    "full": {"tgn": SETTINGS["tgn"].batch, "tgat": SETTINGS["tgat"].batch},
}
"""Events of a batch of one rank; beyond `full` as in `full`, the paper's."""
RANKS: Final[dict[str, tuple[int, ...]]] = {"smoke": (1, 2), "quick": (1, 2), "full": (1, 2, 4)}
TURNS: Final = {"smoke": 2, "quick": 6, "full": 13}
"""Batches of each contender; the first one warms up."""
FIRST: Final = {"smoke": 40_000, "quick": 50_000, "full": 1_000_000}
"""Events of the stream."""
COUNTED: Final = {"smoke": 2, "quick": 5, "full": 20}
"""Batches of the paper's size whose rows are counted, the first half to warm up the caches."""
SHORT: Final = 30
"""Events of a batch whose rows are counted one by one to check the counting."""
PROJECTED: Final = (1, 2, 4, 8, 16, 32)

Rows = Sequence[Any]


class Fig15(Grid):
    paper = "gnnflow"
    name = NAME
    title = "Figure 15: throughput on more and more GPUs"
    device = "cpu"
    own_data = "it projects from the first events of GDELT at full size"
    question = "How does training scale with ranks, and is GNNFlow ahead at every number of them?"
    reading = (
        "Every rank has the whole graph and a batch of its own, the batches before the last event "
        "of the stream, the first events of a twin of GDELT at full size. TGL keeps sorted rows, "
        "with or without the cache, and differs in nothing else: its rebuild is not part of this "
        "figure. Ranks here are processes of one CPU. Their throughput is by processor time, as if "
        "each had a core; a cache before the same memory has little to save. 1 to 32 T4 with the "
        "paper's batches are projected: computing scaled by a T4's bandwidth or arithmetic over "
        "those of one thread, rows counted (TGL sends a row each time that it is asked for)."
    )
    claims = (
        "gnnflow-fig15-best-throughput",
        "gnnflow-fig15-near-linear",
        "gnnflow-fig15-32gpu-efficiency",
        "gnnflow-s44-sampling-cv",
    )

    axes: ClassVar[Any] = {
        "dataset": (DATASET,), "model": MODELS, "ranks": {**RANKS, None: RANKS["full"]}
    }  # fmt: skip
    group = "{model}"
    timeout_s: ClassVar[Any] = {"smoke": 90, "quick": 90, None: 1800}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        from dgbench.systems.base.stream import stream_data
        from dgbench.systems.gnnflow.cluster import ASSUMED
        from dgbench.systems.gnnflow.experiments.trainer_checks import checked_race

        model, ranks = str(cell.params["model"]), int(cell.params["ranks"])
        preset = context.preset
        graph = BY_NAME[DATASET]
        batch = BATCH.get(preset, BATCH["full"])[model]
        turns = TURNS.get(preset, TURNS["full"])
        task = workload(graph, model, preset, batch=batch * ranks, chunks=1)
        with one_thread():
            data = stream_data(first_events(DATASET, FIRST.get(preset, FIRST["full"])), task)
            last = len(data.events)
            runs, checks = checked_race(
                task,
                _contenders(graph, ranks),
                data,
                first=max(0, last - turns * batch * ranks),
                first_process=context.round == 1,
                clocks=True,
                timeout_s=cell.timeout_s,
            )
            found = _measured(runs)
            if ranks == 1:
                count = COUNTED.get(preset, COUNTED["full"])
                rows = count_rows(graph, model, data, count)
                checks.append(rows_check(graph, model, data))
                _project(found, runs, task, rows, batch)
        found.observe("batch_size", batch)
        found.observe("turns", len(runs[OURS].seconds))
        found.data, found.checks = data.describe(), found.checks + checks
        found.notes.append(ASSUMED)
        return found

    def figures(self) -> list[FigureSpec]:
        return [
            chart("scaling", "fig15",
                "Training throughput of TGN and TGAT on GDELT, projected to T4 (Figure 15)",
                scaled_points, xlabel="ranks or GPUs", ylabel="events/s over TGL's on one",
                topology="g4dn.metal, 8 T4 a machine over PCIe, 100 Gb/s between machines",
                most=PROJECTED[-1], band="from a T4 by its bandwidth to a T4 by its arithmetic",
                here="processes of one CPU by processor time, one run"),
            sweep("fig15_ranks", "Throughput by processor time, ranks of one CPU", measured_points,
                xlabel="model and ranks", ylabel="events/s"),
        ]  # fmt: skip

    def answer(self, rows: Rows) -> str:
        found = rows_of(rows, experiment=NAME, ranks=1)
        if not found:
            return ""
        words = []
        for row in found:
            low, high = sorted(100 * efficiency(row, 32, reading) for reading in READINGS)
            words.append(f"{MODEL_TITLES[row.params['model']]} {low:.0f} to {high:.0f} %")
        return f"Projected to 32 T4, GNNFlow keeps of linear scaling: {', '.join(words)}."


READINGS: Final = ("bandwidth", "arithmetic")


def _contenders(graph: Any, ranks: int) -> dict[str, Any]:
    from dgbench.systems.gnnflow.owners import MachineLayout
    from dgbench.systems.gnnflow.ranked import GraphPlacement
    from dgbench.systems.gnnflow.remote_access import NO_CACHES, GraphRankSettings

    layout = MachineLayout(1, ranks)
    cache = {"node_cache": graph.node_cache, "edge_cache": graph.edge_cache}
    plain = {"reuse": False, "restoration": False}  # GNNFlow's; one epoch has no use for them
    return {
        OURS: GraphPlacement(GraphRankSettings(layout, tau=graph.tau, **cache)),
        CACHED: GraphPlacement(GraphRankSettings(layout, graph="rows", **cache, **plain)),
        TGL: GraphPlacement(GraphRankSettings(layout, graph="rows", **NO_CACHES)),
    }


def _measured(runs: dict[str, Any]) -> Measurement:
    """Throughput, gains over TGL, hit rates and how far losses are apart."""
    from dgbench.systems.gnnflow.owners import variation_of

    losses = runs[TGL].losses
    apart = max(
        abs(a - b) / abs(b)
        for run in runs.values()
        for a, b in zip(run.losses, losses, strict=True)
    )
    found = Measurement(deviation={"loss": apart})
    for name, run in runs.items():
        found.observe("throughput", run.throughput, setting=name, clock="wall")
        found.observe("throughput", run.own_throughput, setting=name, clock="processor")
        found.observe("variation", variation_of(run.sample_s), setting=name)
        for part in ("sample", "fetch", "compute", "memory", "communicate", "update"):
            seconds = [phases.get(part, 0.0) for phases in run.phases]
            slowest = max(seconds) / max(1, len(run.seconds))
            found.observe("phase_time", slowest, setting=name, phase=part)
        for kind in ("node", "edge"):
            asked = sum(c.get(f"{kind}_requests", 0) for c in run.counters)
            if asked:
                hits = sum(c.get(f"{kind}_hits", 0) for c in run.counters)
                found.observe("hit_rate", hits / asked, setting=name, of=kind)
        if name != OURS:
            times = (_slowest(one) for one in (run, runs[OURS]))
            observe_speedup(found, *times, setting=OURS, baseline=name)
    return found


def _slowest(run: Any) -> list[float]:
    """Processor seconds of each batch, of the rank with most."""
    return [max(batch) for batch in zip(*run.work_s, strict=True)]


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Rows of a batch of the paper's size, by kind `node` and `edge`.

    Attributes:
        asked: every time that a row is asked for. missed: those that the cache has to fetch.
        records: neighbours that are sampled. ends: vertices whose memory is written.
    """

    asked: dict[str, float]
    missed: dict[str, float]
    records: float
    ends: float


def rows_check(graph: Any, model: str, data: Any) -> ResultCheck:
    """A check of `count_rows` over two short batches, the second counted one by one."""
    found = count_rows(graph, model, data, 2, SHORT)
    events, task = data.events, workload(graph, model, "paper", chunks=1)
    plain = NearbyStream(task, data)
    plain.insert(0, len(events))
    caches = {
        kind: LoopedCache(max(1, round(share * size)), "lru", LAMBDA)
        for kind, size, share in (
            ("node", events.num_nodes, graph.node_cache),
            ("edge", len(events), graph.edge_cache),
        )
    }
    for turn in range(2):
        first = len(events) - (2 - turn) * SHORT
        part = torch.arange(first, first + SHORT)
        nodes = torch.cat([events.src[part], events.dst[part], negatives_of(task, data, part)])
        hops = plain.sample(nodes, events.t[part].repeat(3), draw=turn)[0]
        eids = [eid for hop in hops for eid in hop.eids.tolist()]
        ids = {"node": hops[-1].nodes.tolist() + hops[-1].neighbours.tolist(), "edge": eids}
        for kind, cache in caches.items():
            cache.counts = dict.fromkeys(cache.counts, 0)
            cache.fetch(ids[kind])
    counts = {kind: cache.counts for kind, cache in caches.items()}
    wanted = {f"{kind}s asked for": of["requests"] for kind, of in counts.items()}
    wanted |= {f"{kind}s missed": of["unique"] - of["unique_hits"] for kind, of in counts.items()}
    wanted |= {"records": len(eids), "ends": len(set(nodes[: 2 * SHORT].tolist()))}
    own = {f"{kind}s asked for": count for kind, count in found.asked.items()}
    own |= {f"{kind}s missed": count for kind, count in found.missed.items()}
    own |= {"records": found.records, "ends": found.ends}
    return equal("counters", own, wanted, against="plain sampler and cache")


def count_rows(
    graph: Any, model: str, data: Any, batches: int, size: int | None = None
) -> RowCounts:
    """Sample the last batches of a stream and count what they fetch; nothing is trained.

    Args:
        graph, model, data: what is trained.
        batches: how many; the first half only fills caches.
        size: events of a batch; None: the paper's.
    """
    from dgbench.kernels_cuda.temporal_sample import sample_hops
    from dgbench.kernels_cuda.temporal_store import TemporalStore
    from dgbench.systems.gnnflow.cache import FeatureCache, FeatureTable

    events, task = data.events, workload(graph, model, "paper", chunks=1)
    store = TemporalStore(events.num_nodes, undirected=task.undirected, origin=events.span[0])
    store.insert(events.src, events.dst, events.t)
    caches = {
        kind: FeatureCache(FeatureTable(torch.zeros(count, 1)), max(1, round(share * count)))
        for kind, count, share in (
            ("node", events.num_nodes, graph.node_cache),
            ("edge", len(events), graph.edge_cache),
        )
    }
    asked, missed = dict.fromkeys(caches, 0), dict.fromkeys(caches, 0)
    records = ends = counted = 0
    size = task.batch if size is None else size
    first = max(0, len(events) - batches * size)
    for turn, part in enumerate(torch.arange(first, len(events)).split(size)):
        nodes = torch.cat([events.src[part], events.dst[part], negatives_of(task, data, part)])
        hops = sample_hops(
            store, nodes, events.t[part].repeat(3), task.fanouts, policy=task.sampling,
            seed=task.seed, draw=turn,
        )[0]  # fmt: skip
        last = hops[-1]
        ids = {
            "node": torch.cat([last.nodes, last.neighbours]),
            "edge": torch.cat([hop.eids for hop in hops]),
        }
        warm = turn < batches // 2
        for kind, cache in caches.items():
            before = cache.counts.unique_misses
            cache.fetch(ids[kind])
            if not warm:
                asked[kind] += ids[kind].numel()
                missed[kind] += cache.counts.unique_misses - before
        if not warm:
            counted += 1
            records += sum(hop.eids.numel() for hop in hops)
            ends += torch.unique(nodes[: 2 * part.numel()]).numel()
    return RowCounts(
        {kind: count / counted for kind, count in asked.items()},
        {kind: count / counted for kind, count in missed.items()},
        records / counted,
        ends / counted,
    )


def _project(
    found: Measurement, runs: dict[str, Any], task: Any, rows: RowCounts, batch: int
) -> None:
    """Events per second on 1 to 32 T4 with the paper's batches, from a run of one rank."""
    from dgbench.systems.gnnflow.cluster import Iteration, measure_machine, project

    machine = measure_machine()
    whole = SETTINGS[task.model].batch
    larger = whole / batch
    width = {"node": 4 * task.node_dim, "edge": 4 * task.edge_dim}
    memory = 4 * (3 * task.memory_dim + task.edge_dim) + 16 if task.model == "tgn" else 0
    for name, run in runs.items():
        turns, phases = len(run.seconds), run.phases[0]
        sent = rows.asked if name == TGL else rows.missed
        one = Iteration(
            compute_s=larger * _computing(phases) * sum(run.work_s[0]) / turns,
            sample_s=larger * sum(run.sample_s[0]) / turns,
            on_gpu=name == OURS,
            fetched=sum(sent[kind] * width[kind] for kind in width),
            read=16 * rows.records if name == OURS else 0,
            written=memory * rows.ends,
            gradient=4.0 * sum(value.numel() for value in run.state.values()),
        )
        found.observe("estimate", one.fetched, setting=name, of="fetched")
        found.observe("estimate", one.written, setting=name, of="written")
        for reading in READINGS:
            for ranks in PROJECTED:
                step = project(one, ranks, machine.speed(reading))
                which = {"setting": name, "scaled_by": reading, "ranks": ranks}
                found.observe("projected_throughput", ranks * whole / step.seconds, **which)
            for part in ("compute", "sample", "fetch", "exchange"):
                found.observe("phase_time", getattr(step, f"{part}_s"), phase=part, **which)
    for reading in READINGS:
        found.observe("scale_factor", machine.speed(reading), scaled_by=reading)


def _computing(phases: dict[str, float]) -> float:
    """Share of the clocked time in which a rank computes."""
    return sum(phases.get(p, 0.0) for p in ("compute", "memory", "update")) / sum(phases.values())


def efficiency(row: Any, ranks: int, reading: str, name: str = OURS) -> float:
    """Projected throughput of so many GPUs over that of one, by the number of GPUs."""
    of = projected(row, reading)
    return of[name, ranks] / (ranks * of[name, 1])


def projected(row: Any, reading: str) -> dict[tuple[str, int], float]:
    """Projected events per second by contender and number of GPUs."""
    found = Table.of([row]).where("projected_throughput", scaled_by=reading)
    return found.numbers("setting", "ranks")


def own_throughput(row: Any, name: str) -> float:
    """Events per second of processor time."""
    return number(row, "throughput", setting=name, clock="processor")


def scaling(rows: Rows, model: str, name: str = OURS) -> dict[int, float]:
    """By ranks: throughput by processor time over that of one rank, by their number."""
    found = {r.params["ranks"]: r for r in rows_of(rows, experiment=NAME, model=model)}
    if 1 not in found:
        return {}
    one = own_throughput(found[1], name)
    return {
        ranks: own_throughput(row, name) / (ranks * one) for ranks, row in sorted(found.items())
    }


SERIES: Final = {OURS: "gnnflow", CACHED: "tgl, with cache", TGL: "tgl"}


def scaled_points(rows: Rows) -> list[dict[str, Any]]:
    """Points of `scaling`, a panel for each model: throughput of ranks here over TGL's on one rank,
    and of projected GPUs over TGL's on one of them."""
    points: list[dict[str, Any]] = []
    found = rows_of(rows, experiment=NAME)
    base = {r.params["model"]: r for r in found if r.params["ranks"] == 1}
    for row in [row for row in found if row.params["model"] in base]:
        one = own_throughput(base[row.params["model"]], TGL)
        common = {"panel": _panel(row), "row_ids": [row.id], "x": row.params["ranks"]}
        for name, series in SERIES.items():
            each = own_throughput(row, name)
            points.append({**common, "series": series, "y": each / one, "events_per_s": each})
    for row in base.values():
        common = {"panel": _panel(row), "row_ids": [row.id], "projected": True}
        by = {reading: projected(row, reading) for reading in READINGS}
        for (name, series), ranks in product(SERIES.items(), PROJECTED):
            ends = [by[k][name, ranks] / by[k][TGL, 1] for k in READINGS]
            interval = {"y": ends[0], "low": min(ends), "high": max(ends)}
            rate = by[READINGS[0]][name, ranks]
            points.append(
                {**common, "series": series, "x": ranks, **interval, "events_per_s": rate}
            )
    return points + [
        {"panel": _panel(r), "series": SERIES[OURS], "x": r.params["ranks"], "failed": failed(r)}
        for r in failures(rows, NAME)
    ]


def _panel(row: Any) -> str:
    return f"{MODEL_TITLES[row.params['model']]}, GDELT (twin)"


def measured_points(rows: Rows) -> list[dict[str, Any]]:
    """Throughput by processor time."""
    points = [
        mark(row, series=name, x=_title(row), y=own_throughput(row, name))
        for row in rows_of(rows, experiment=NAME)
        for name in CONTENDERS
    ]
    return points + [
        {"series": OURS, "x": _title(row), "failed": failed(row)} for row in failures(rows, NAME)
    ]


def _title(row: Any) -> str:
    return f"{MODEL_TITLES[row.params['model']]}, {row.params['ranks']}"
