"""Figure 13: where the graph lies, and how fast it is sampled there (section 6.2)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, product
from typing import TYPE_CHECKING, Any, ClassVar, Final

import torch
from torch import Tensor

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.estimates import EvaluationContext, gaps_of_failures
from dgbench.lab.figure_forms import SpeedupBars, Sweep
from dgbench.lab.quantities import MeasuredQuantity, observed, speedup
from dgbench.lab.result_checks import equal
from dgbench.lab.study import FormExperiment
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.gnnflow.experiments import sample_checks, table6
from dgbench.systems.gnnflow.experiments.sample_checks import (
    by_subject,
    records_check,
    samples_check,
    sampling_task,
)
from dgbench.systems.gnnflow.experiments.settings import (
    BY_NAME,
    FORMS,
    NEEDS_CUDA,
    SETTINGS,
    StreamGraph,
    filled_store,
)

if TYPE_CHECKING:
    from dgbench.datasets import EventStream
    from dgbench.kernels_cuda.temporal_sample import Sample

CPU: Final = "cpu"
TITLES: Final = {
    "cuda": "everything in GPU memory",
    "hybrid": "hybrid (GNNFlow)",
    "uva": "everything in host memory",
    "unified": "unified memory",
    "guided": "hybrid with a guide (ours)",
}
"""The paper's placements, and ours: every eighth record's time is on the GPU, too."""
PLACEMENT_TITLES: Final = {
    CPU: "GNNFlow's sampler on the CPU",
    **{name: f"GNNFlow, {title}" for name, title in TITLES.items()},
}
"""Titles of placements where rows name them like a system."""
GRAPHS: Final = ("reddit", "gdelt", "netflix")
"""The captions say Reddit and Netflix, the text Reddit and GDELT."""
LIMIT: Final = 4 << 30
"""Bytes of GPU memory that the graph may take (section 6.2)."""
RECORD: Final = {"paper, 20 bytes a record": 20, "ours, packed": 16, "ours, compact": 12}
"""Bytes of a record by layout; 20 fits Table 6."""
INSERTED: Final = 100_000
"""Edges of a batch by which the graph is built (section 6.2)."""
REPEATS: Final = {"smoke": 1, "quick": 5, "full": 7, "paper": 10}
"""Rounds where there is something to compare with."""
BUDGETS_S: Final = {"smoke": 0.05, "quick": 0.3, "full": 2.0, "paper": 10.0}
BATCHES: Final = 8
CHECKED: Final = ("offsets", "neighbours", "eids", "edge_times")
NEEDS: Final = "a placement is of a GPU's memory; no CUDA device was asked for"
ENFORCED: Final = 1 << 30
"""Limits below this are too small to be kept by taking the rest of a device's memory."""
OVERSUBSCRIBE: Final = "DGBENCH_OVERSUBSCRIBE"
"""Set to 1, unified memory is limited like the others, by taking the rest of the device's memory.

A device whose memory is full can hang for all who use it, so nobody gets that without asking."""

FAR: Final = 2.0
"""Times as slow as all else from which something is far slower."""
VERTICES: Final = {"gdelt": 16_682, "netflix": 497_959}
"""Vertices that Table 6 implies."""


def over(slow: str, fast: str, **where: Any) -> MeasuredQuantity:
    """Throughput of one placement over that of another by graph."""
    times = observed("step_time", per="dataset", **where)
    return speedup(times, slow, fast).keep(gaps_of_failures)


def in_order(*pairs: tuple[str, str], graphs: Sequence[str]) -> outcomes.Rule:
    """The second placement of each pair is faster than the first, on each of these graphs."""
    every = (
        rules.all_above(over(*pair, dataset=(graph,)), 1.0, unit=f"x ({pair[1]} over {pair[0]})")
        for pair, graph in product(pairs, graphs)
    )
    return combine.needs_gpu(combine.both(*every), NEEDS_CUDA)


RECORDS: Final = observed("records", per="dataset", of="published", system=CPU)


def whole_graph(name: str) -> outcomes.Rule:
    """All of a graph at its published size takes more than the limit.

    Empty slots and lists are those of adaptive blocks on the twin: lists get longer with the graph.
    """
    column = partial(table6.column, dataset=(name,))
    packed = column("edge MB", "Static") / column("edge MB", "Adaptive")
    blocks = -VERTICES[name] * table6.BLOCK * column("average", "Adaptive")
    whole = (1 / LIMIT) * (20 * RECORDS.where(dataset=(name,))).over(packed).less(blocks)
    return combine.by_model(rules.all_above(whole, 1.0), table6.FORMULA)


def thrashes(context: EvaluationContext) -> outcomes.RuleOutcome:
    """Rule: unified memory under a limit is far slower than all others on the large graph."""
    others = [over("unified", name, dataset="gdelt") for name in ("hybrid", "uva", CPU)]
    found = combine.both(*(rules.all_above(one, 1.0, unit="x") for one in others))(context)
    if found.lacking:
        return replace(found, lacking=NEEDS_CUDA)
    memory = observed("memory", dataset="gdelt").pooled("min")
    ballast, limit = (
        max((one.value for one in of.estimates(context).values()), default=0)
        for of in (memory.where(of="ballast", system="unified"), memory.where(of="limit"))
    )
    if not ballast or limit < ENFORCED:
        return outcomes.RuleOutcome(
            lacking=f"unified memory had no limit that is kept: needs {OVERSUBSCRIBE}=1, which "
            "holds the rest of the device's memory, and the preset 'paper', whose limit is large"
        )
    least = min(one.value for one in found.estimates)
    far = () if least >= FAR or found.side < 1 else ((f"{FAR}x as slow", -1),)
    return replace(found, sides=(*found.sides, *far))


class Fig13(FormExperiment):
    forms, name = replace(FORMS, labels={**FORMS.labels, "of": TITLES}), "fig13"
    headline, unit = RECORDS.map(lambda count: 100 * 20 * count / LIMIT), "%"
    figure_forms = (
        SpeedupBars(
            "fig13", "Sampling on a GPU by placement of the graph, over the CPU",
            {name: over(CPU, name) for name in TITLES}, panel="{dataset}", row="{of}", system="of",
            baseline=CPU, baseline_label="our sampler on this machine's CPU",
            xlabel="throughput over that of the CPU",
        ),
        Sweep(
            "fig13_bytes", "Bytes of all records at the published size, and the limit",
            {
                **{name: size * RECORDS for name, size in RECORD.items()},
                "paper, Table 6": RECORDS.printed(lambda at: printed_bytes(at["dataset"]) or None),
            },
            series="of", x="{dataset}", ylabel="bytes", hline=float(LIMIT), hline_label="4 GB",
            sort=False,
        ),
    )  # fmt: skip
    claims = {
        "gnnflow-fig13-small-graph-best": in_order(
            ("hybrid", "cuda"), ("hybrid", "unified"), ("uva", "hybrid"), (CPU, "uva"),
            graphs=("reddit",),
        ),
        "gnnflow-fig13-hybrid-over-uva": in_order(("uva", "hybrid"), graphs=("reddit", "gdelt")),
        "gnnflow-fig13-cuda-only-oom": combine.interpretations(
            "the text calls GDELT the large graph, the captions Netflix",
            {
                "GDELT, by the text": whole_graph("gdelt"),
                "Netflix, by the captions": whole_graph("netflix"),
            },
        ),
        "gnnflow-fig13-uva-below-cpu": combine.shown_beside(
            in_order(("uva", CPU), graphs=("gdelt",)),
            {"Netflix": over("uva", CPU, dataset="netflix")},
        ),
        "gnnflow-fig13-um-thrash": thrashes,
    }  # fmt: skip

    timeout_s: ClassVar[Any] = {"smoke": 60, "quick": 90, "full": 600, "paper": 7200}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            self.cell(
                {"dataset": name, "system": system},
                preset,
                repeats=REPEATS[preset] if device == "cuda" else 1,
                device="cpu" if system == CPU else "",
                unavailable="" if system == CPU or device == "cuda" else NEEDS,
            )
            for name in GRAPHS
            for system in (CPU, *TITLES)
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        return measure(graph, str(cell.params["system"]), context)


def printed_bytes(name: str) -> int:
    """Edge data and block records of adaptive blocks in Table 6; 0 where it has no such graph."""
    if name not in table6.TWINS:
        return 0
    adaptive = table6.printed_table(name)["Adaptive"]
    return round(adaptive["edge MB"] + adaptive["metadata MB"]) << 20


def batches_of(events: EventStream, batch: int) -> list[tuple[Tensor, Tensor]]:
    """Roots and times of batches spread over the stream: both ends of each event and a vertex
    drawn at random."""
    random = torch.Generator().manual_seed(1)
    batch = min(batch, len(events))
    found = []
    for k in range(BATCHES):
        first = (len(events) - batch) * (k + 1) // BATCHES
        cut = slice(first, first + batch)
        other = torch.randint(events.num_nodes, (batch,), generator=random)
        nodes = torch.cat([events.src[cut], events.dst[cut], other])
        found.append((nodes, events.t[cut].double().repeat(3)))
    return found


def measure(graph: StreamGraph, system: str, context: RunContext) -> Measurement:
    """Sample batches from one placement; MemoryError where the graph does not fit the limit."""
    from dgbench import datasets
    from dgbench.kernels_cuda.temporal_sample import sample_hops
    from dgbench.kernels_cuda.temporal_store import BlockPolicy
    from dgbench.runtime.steady import measure_steady

    scale = graph.scale(context.preset)
    events = datasets.open_events(graph.name, scale=scale)
    store = filled_store(  # the paper's largest block brought to the twin's size, as its batches
        events, max(1, round(INSERTED * scale)), undirected=graph.undirected,
        policy=BlockPolicy("adaptive", max(1, round(graph.tau * scale**0.5))),
        origin=float(events.t[0]),
    )  # fmt: skip
    task = SETTINGS["tgat"]
    batches = batches_of(events, task.batch)
    published = round(len(events) / scale) * (2 if graph.undirected else 1)
    memory = store.memory()
    # The limit stands to this store as 4 GB stand to the paper's graph.
    limit = max(1, round(memory.total * LIMIT / (printed_bytes(graph.name) or 20 * published)))
    how: dict[str, Any] = {"policy": task.sampling, "seed": 1}
    fanouts = list(task.fanouts)

    def on_cpu(nodes: Tensor, times: Tensor, draw: int) -> list[list[Sample]]:
        return sample_hops(store, nodes, times, fanouts, draw=draw, **how)

    notes: list[str] = []
    told = Measurement(notes=notes)
    told.observe("records", published, of="published")
    told.observe("memory", limit, of="limit")
    sample: Callable[..., list[list[Sample]]] = on_cpu
    if system != CPU:
        from dgbench.kernels_cuda.temporal_sample.hops import bring_home
        from dgbench.kernels_cuda.temporal_store.device import DeviceStore

        fills = system == "unified" and os.environ.get(OVERSUBSCRIBE) == "1"
        there = DeviceStore(
            store,
            system,  # type: ignore[arg-type]
            limit,
            device=context.device,
            oversubscribe=fills,
        )
        told.observe("memory", there.device_bytes, of="device")
        if system == "unified":
            told.observe("memory", there.ballast_bytes, of="ballast")
            if not fills:
                notes.append(
                    f"unified memory had no limit: {OVERSUBSCRIBE}=1 takes the rest of the device's"
                )
            elif limit < ENFORCED:
                notes.append("the limit is too small to be kept with unified memory")

        def sample(nodes: Tensor, times: Tensor, draw: int) -> list[list[Sample]]:
            return bring_home(there.sample_hops(nodes, times, fanouts, draw=draw, **how))

    draws = count()

    def step() -> None:
        draw = next(draws)
        sample(*batches[draw % BATCHES], draw)

    steady = measure_steady(step, budget_s=BUDGETS_S[context.preset])
    task_of = sampling_task(fanouts, task.sampling, undirected=graph.undirected, seed=1)
    checks = [records_check(store.neighbours, events, graph.undirected)]
    for batch in sample_checks.drawn(BATCHES, 2).tolist():
        nodes, times = batches[batch]
        found = sample(nodes, times, batch)
        checks.append(
            samples_check(task_of, events, nodes, times, batch, found, part=f"batch {batch}")
        )
        if system != CPU:
            own, wanted = (
                {f"{name} of hop {depth}": getattr(hop, name)
                 for depth, hop in enumerate(hops[0], 1) for name in CHECKED}
                for hops in (found, on_cpu(nodes, times, batch))
            )  # fmt: skip
            checks.append(equal("samples", own, wanted, against="the CPU's sampler"))
    records = len(events) * (2 if graph.undirected else 1)
    own = {"records": memory.records, "published": published}
    exact = {"records": records, "published": round(records / scale)}
    checks.append(equal("counters", own, exact, against="events of the stream"))
    apart = max(check.gap for check in checks if check.of == "samples")
    told.observe("step_time", steady.time, samples=steady.samples)
    told.warmup, told.deviation = steady.warmup, {"output": apart}
    told.checks = by_subject(checks)
    told.data = {**describe(events), "edges": len(events), "nodes": events.num_nodes}
    return told
