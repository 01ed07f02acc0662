"""Figure 15: training throughput on more and more GPUs, the graph on every one (section 6.3)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import torch

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.compare import observe_speedup
from dgbench.lab.estimates import Estimate, EvaluationContext, gaps_of_failures
from dgbench.lab.figure_forms import FigureForm, Sweep
from dgbench.lab.grid import by_preset
from dgbench.lab.judging import current_floor
from dgbench.lab.quantities import MeasuredQuantity, observed, of_rows
from dgbench.lab.result_checks import equal
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import number
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, RunContext
from dgbench.systems.base.stream import negatives_of
from dgbench.systems.gnnflow.cluster import READINGS
from dgbench.systems.gnnflow.experiments.partition import first_events
from dgbench.systems.gnnflow.experiments.settings import (
    BY_NAME,
    FORMS,
    MODEL_TITLES,
    SETTINGS,
    workload,
)

DATASET: Final = "gdelt"
MODELS: Final = ("tgn", "tgat")
OURS, CACHED, TGL = "GNNFlow", "TGL with cache", "TGL"
CONTENDERS: Final = (OURS, CACHED, TGL)
BATCH: Final[dict[str | None, dict[str, int]]] = {
    "smoke": {"tgn": 60, "tgat": 12},
    "quick": {"tgn": 160, "tgat": 12},
    None: {"tgn": SETTINGS["tgn"].batch, "tgat": SETTINGS["tgat"].batch},
}
"""Events of a batch of one rank; in the long presets the paper's."""
RANKS: Final = {"smoke": (1, 2), "quick": (1, 2), None: (1, 2, 4)}
TURNS: Final = {"smoke": 2, "quick": 6, None: 13}
"""Batches of each contender; the first one warms up."""
FIRST: Final = {"smoke": 40_000, "quick": 50_000, None: 1_000_000}
"""Events of the stream."""
COUNTED: Final = {"smoke": 2, "quick": 5, None: 20}
"""Batches of the paper's size whose rows are counted, the first half to warm up the caches."""
PROJECTED: Final = (1, 2, 4, 8, 16, 32)

LINEAR: Final = 0.8
"""Share of linear scaling from which it counts as near linear."""
MODEL: Final = "alpha-beta model"
OWN: Final = observed(
    "throughput", per=("model", "ranks", "setting"), setting=CONTENDERS, clock="processor"
).keep(gaps_of_failures)
"""Events per second of processor time on ranks of one CPU."""
OWN_PER_RANK: Final = of_rows(
    lambda row: (
        number(row, "throughput", math.nan, setting=OURS, clock="processor") / row.params["ranks"]
    ),
    per=("model", "ranks"),
)


def projected(setting: str | tuple[str, ...], ranks: int | tuple[int, ...]) -> MeasuredQuantity:
    """Projected events per second by model and by what scales computing."""
    return observed(
        "projected_throughput", per=("model", "scaled_by"), setting=setting, ranks=ranks
    )


EFFICIENCY: Final = 100 / 32 * (projected(OURS, 32) / projected(OURS, 1))
"""Percent of linear scaling that 32 T4 keep, projected."""
LEAD: Final = projected(OURS, PROJECTED) / projected((CACHED, TGL), PROJECTED)
GAIN: Final = (projected(CONTENDERS, PROJECTED) / projected(TGL, 1)).keep(gaps_of_failures)


def scaled_range(
    context: EvaluationContext, dims: Mapping[str, Any], one: Estimate
) -> Mapping[str, Any]:
    """Ends of a projection, by what scales computing."""
    if dims["of"] != "projected":
        return {}
    place = {dim: dims[dim] for dim in ("model", "setting", "ranks")}
    gains = [
        gain.value for at, gain in GAIN.estimates(context).items()
        if place.items() <= dict(at).items()
    ]  # fmt: skip
    return {"low": min(gains), "high": max(gains), "projected": True}


def beyond_floor(lead: Estimate) -> int:
    """Side of 1x: a projected lead has to exceed the noise floor of the rates that it rests on."""
    band = 1 + current_floor()
    return (lead.value > band) - (lead.value < 1 / band)


def printed_in_range(context: EvaluationContext) -> outcomes.RuleOutcome:
    """Rule: printed shares lie between the projections of a model, which are upper ends: no rank
    waits for another.

    The direction is that no printed share lies above them, and that TGN's, whose memories go to
    every machine, is the least.
    """
    numbers, printed = EFFICIENCY.estimates(context), context.claim.value
    if not numbers:
        return outcomes.RuleOutcome(lacking="the experiment 'fig15' did not run on one rank")
    ends: dict[str, list[float]] = {}
    for at, one in numbers.items():
        ends.setdefault(MODEL_TITLES[dict(at)["model"]], []).append(one.value)
    below = all(float(printed[model]) <= max(many) for model, many in ends.items())
    above = all(float(printed[model]) >= min(many) for model, many in ends.items())
    least = max(ends.get("TGN", [0])) <= max(ends.get("TGAT", [100]))
    return replace(
        outcomes.outcome(context, numbers, "%"), met=below and above and len(ends) == len(printed),
        sides=(("upper ends", 1 if below and least else -1),),
    )  # fmt: skip


class Fig15(FormExperiment):
    forms, name = FORMS, "fig15"
    device = "cpu"
    headline, unit = EFFICIENCY, "%"
    figure_forms = (
        FigureForm(
            "scaling", "fig15",
            "Training throughput of TGN and TGAT on GDELT, projected to T4 (Figure 15)",
            {
                "measured": OWN.over(OWN.where(ranks=1, setting=TGL)),
                "projected": GAIN.where(scaled_by=READINGS[0]),
            },
            {"panel": "{model}, GDELT (twin)", "series": "{setting}", "x": "ranks",
             "source": "of"},
            more=scaled_range, gaps={"series": "gnnflow"},
            options={
                "xlabel": "ranks or GPUs", "ylabel": "events/s over TGL's on one",
                "topology": "g4dn.metal, 8 T4 a machine over PCIe, 100 Gb/s between machines",
                "most": PROJECTED[-1],
                "band": "from a T4 by its bandwidth to a T4 by its arithmetic",
                "here": "processes of one CPU by processor time, one run",
            },
        ),
        Sweep(
            "fig15_ranks", "Throughput by processor time, ranks of one CPU", OWN, series="setting",
            x="{model}, {ranks}", gaps={"series": OURS}, xlabel="model and ranks",
            ylabel="events/s",
        ),
    )  # fmt: skip
    claims = {
        # Ranks of a CPU have no link that a cache could spare, nor a GPU to sample on.
        "gnnflow-fig15-best-throughput": combine.by_model(
            rules.compare_all(
                LEAD.joined_over(min, "setting", "ranks"),
                beyond_floor, unit="x",
            ), MODEL,
        ),
        "gnnflow-fig15-near-linear": combine.as_proxy(
            rules.all_above(
                OWN_PER_RANK.where(ranks=lambda count: count > 1).over(OWN_PER_RANK.where(ranks=1)),
                LINEAR,
            ), "ranks of one CPU, by processor time",
        ),
        "gnnflow-fig15-32gpu-efficiency": combine.by_model(printed_in_range, MODEL),
    }  # fmt: skip
    axes: ClassVar[Any] = {"dataset": (DATASET,), "model": MODELS, "ranks": RANKS}
    group = "{model}"
    timeout_s: ClassVar[Any] = {"smoke": 90, "quick": 90, None: 1800}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        from dgbench.systems.base.stream import stream_data
        from dgbench.systems.gnnflow.cluster import ASSUMED
        from dgbench.systems.gnnflow.experiments.trainer_checks import checked_race
        from dgbench.systems.gnnflow.owners import MachineLayout
        from dgbench.systems.gnnflow.ranked import GraphPlacement
        from dgbench.systems.gnnflow.remote_access import NO_CACHES, GraphRankSettings

        model, ranks = str(cell.params["model"]), int(cell.params["ranks"])
        preset = context.preset
        graph = BY_NAME[DATASET]
        batch = by_preset(BATCH, preset)[model]
        turns = by_preset(TURNS, preset)
        task = workload(graph, model, preset, batch=batch * ranks, chunks=1)
        layout = MachineLayout(1, ranks)
        cache = {"node_cache": graph.node_cache, "edge_cache": graph.edge_cache}
        plain = {"reuse": False, "restoration": False}  # GNNFlow's; one epoch has no use for them
        contenders = {
            OURS: GraphPlacement(GraphRankSettings(layout, tau=graph.tau, **cache)),
            CACHED: GraphPlacement(GraphRankSettings(layout, graph="rows", **cache, **plain)),
            TGL: GraphPlacement(GraphRankSettings(layout, graph="rows", **NO_CACHES)),
        }
        with one_thread():
            data = stream_data(first_events(DATASET, by_preset(FIRST, preset)), task)
            last = len(data.events)
            runs, checks = checked_race(
                task,
                contenders,
                data,
                first=max(0, last - turns * batch * ranks),
                first_process=context.round == 1,
                clocks=True,
                timeout_s=cell.timeout_s,
            )
            found = Measurement(data=data.describe(), notes=[ASSUMED])
            observe_race(found, runs, TGL)
            if ranks == 1:
                rows = count_rows(graph, model, data, by_preset(COUNTED, preset))
                own, records = {"edges": rows.asked["edge"]}, {"edges": rows.records}
                checks.append(equal("counters", own, records, against="sampled records"))
                _project(found, runs, task, rows, batch)
        found.observe("turns", len(runs[OURS].seconds))
        found.checks = checks
        return found


def observe_race(found: Measurement, runs: Mapping[str, Any], reference: str) -> None:
    """Observe throughput of ranks, gains of GNNFlow, and how far losses are from a reference's."""
    from dgbench.systems.gnnflow.experiments.trainer_checks import largest_gap

    slowest = {  # processor seconds of each batch, of the rank with most
        name: [max(batch) for batch in zip(*run.work_s, strict=True)] for name, run in runs.items()
    }
    wanted = runs[reference].losses
    found.deviation["loss"] = max(largest_gap(run.losses, wanted) for run in runs.values())
    for name, run in runs.items():
        found.observe("throughput", run.own_throughput, setting=name, clock="processor")
        if name != OURS:
            observe_speedup(found, slowest[name], slowest[OURS], setting=OURS, baseline=name)


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Rows of a batch of the paper's size that are `asked` for and `missed` in the cache, by kind;
    neighbours that are sampled, and `ends`, whose memory is written."""

    asked: dict[str, float]
    missed: dict[str, float]
    records: float
    ends: float


def count_rows(
    graph: Any, model: str, data: Any, batches: int, size: int | None = None
) -> RowCounts:
    """Sample the last batches of a stream and count what they fetch; the first half fills caches.

    `size`: events of a batch, None for the paper's.
    """
    from dgbench.kernels_cuda.temporal_sample import sample_hops
    from dgbench.kernels_cuda.temporal_store import TemporalStore
    from dgbench.systems.gnnflow.cache import FeatureCache, FeatureTable

    events, task = data.events, workload(graph, model, "paper", chunks=1)
    store = TemporalStore(events.num_nodes, undirected=task.undirected, origin=events.span[0])
    store.insert(events.src, events.dst, events.t)
    counts = {"node": (events.num_nodes, graph.node_cache), "edge": (len(events), graph.edge_cache)}
    caches = {
        kind: FeatureCache(FeatureTable(torch.zeros(n, 1)), max(1, round(share * n)))
        for kind, (n, share) in counts.items()
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
    from dgbench.systems.gnnflow.experiments.round_race import NETWORK

    machine = measure_machine()
    whole = SETTINGS[task.model].batch
    larger = whole / batch
    width = {"node": 4 * task.node_dim, "edge": 4 * task.edge_dim}
    memory = 4 * (3 * task.memory_dim + task.edge_dim) + 16 if task.model == "tgn" else 0
    for name, run in runs.items():
        turns, phases = len(run.seconds), run.phases[0]
        # The share of the clocked time in which a rank computes.
        computing = sum(phases.get(p, 0.0) for p in NETWORK) / sum(phases.values())
        sent = rows.asked if name == TGL else rows.missed
        one = Iteration(
            compute_s=larger * computing * sum(run.work_s[0]) / turns,
            sample_s=larger * sum(run.sample_s[0]) / turns,
            on_gpu=name == OURS,
            fetched=sum(sent[kind] * width[kind] for kind in width),
            read=16 * rows.records if name == OURS else 0,
            written=memory * rows.ends,
            gradient=4.0 * sum(value.numel() for value in run.state.values()),
        )
        for reading in READINGS:
            for ranks in PROJECTED:
                step = project(one, ranks, machine.speed(reading))
                found.observe(
                    "projected_throughput", ranks * whole / step.seconds, setting=name,
                    scaled_by=reading, ranks=ranks,
                )  # fmt: skip
