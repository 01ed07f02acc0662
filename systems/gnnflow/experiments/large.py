"""Section 6.4: graphs that are too large for one machine, counted at a smaller size or on paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np
import torch

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.estimates import EvaluationContext, gaps_of_failures
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.grid import by_preset
from dgbench.lab.printed import ledger
from dgbench.lab.quantities import MeasuredQuantity, observed
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.lab.study import FormExperiment
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.stream_memory import VertexMemory
from dgbench.systems.gnnflow.block_counts import BlockCounts
from dgbench.systems.gnnflow.experiments.sample_checks import by_subject, records_check
from dgbench.systems.gnnflow.experiments.settings import (
    BY_NAME,
    FORMS,
    LEDGER,
    SETTINGS,
    filled_store,
    workload,
)

OURS: Final = "GNNFlow"
SIZES, MEMORY, TRAIN = "sizes", "memory", "train"
HOST: Final = 384e9
"""Bytes of memory of a g4dn.metal (section 6)."""
MACHINES: Final = {"mag": 4, "ldbc": 8}
INGEST: Final = 100_000_000
"""Edges of an incremental batch of LDBC at full size (section 6.4)."""
TAUS: Final = (16, 64, 128, 256, 512, 1024, 4096)
SLOT, BLOCK = 20, 64
"""Bytes of a slot and of a block as Table 6 counts them; section 4.1 describes 21 and 72."""
FITTING: Final = 256
"""Threshold at which edges take most nearly what is printed."""
HALF: Final = ", half precision"
PRINTED: Final = {"edge": "s64-ldbc-edge-memory", "metadata": "s64-ldbc-metadata"}
GPUS: Final = 64
BATCH: Final = {"smoke": 100, "quick": 1000, None: 4000}
"""Events of a batch of one rank."""

GB: Final = 1e-9
BYTES: Final = "bytes of a twin, multiplied up"
STORED: Final = {
    of: GB * observed("estimate", per="tau", kind=MEMORY, of=of).keep(gaps_of_failures)
    for of in PRINTED
}
"""GB of edge data and of block records of LDBC at full size, by threshold."""


def memory(of: str, kind: str = MEMORY, **where: Any) -> MeasuredQuantity:
    """GB by printed sizes."""
    return GB * observed("memory", kind=kind, of=of, **where)


ON_EACH: Final = (STORED["edge"] + STORED["metadata"] + memory("memories")).joined_over(max, "tau")
ON_EACH_OF_8: Final = ON_EACH.map(lambda size: size / MACHINES["ldbc"])
"""Edges, blocks and TGN's memories on each machine, at the dearest threshold."""
TOTAL: Final = memory("total", SIZES, dataset="mag")


def by_threshold(of: str) -> outcomes.Rule:
    """Memory of LDBC under every threshold that was counted, as none is printed for it."""
    return combine.interpretations(
        "the threshold of the blocks is not printed",
        {
            f"threshold {tau}": combine.by_model(rules.near_claim(STORED[of].where(tau=tau)), BYTES)
            for tau in TAUS
        },
    )


def throughput_below(context: EvaluationContext) -> outcomes.RuleOutcome:
    """Rule: the printed throughput lies between the projections, which are upper ends, as nothing
    waits in them: a printed number below them is neither for nor against."""
    numbers = observed("projected_throughput", per="scaled_by", kind=TRAIN).estimates(context)
    if not numbers:
        return outcomes.RuleOutcome(lacking="the experiment 'large' did not train LDBC")
    ends, printed = [one.value / 1e3 for one in numbers.values()], float(context.claim.value)
    side = 0 if printed < min(ends) else 1 if printed <= max(ends) else -1
    return replace(
        outcomes.outcome(context, numbers, "samples/s"), sides=(("printed throughput", side),)
    )


class Large(FormExperiment):
    forms, name = FORMS, "large"
    device = "cpu"
    headline, unit = STORED["edge"], "GB"
    figure_forms = (
        Sweep(
            "large", "Memory of LDBC by the threshold of block sizes, from a twin",
            {
                "edge data": STORED["edge"], "metadata": STORED["metadata"],
                **{
                    f"{of}, printed": one.printed(  # at the threshold that fits its edge data
                        lambda at, of=of: float(ledger(LEDGER)[PRINTED[of]])
                        if at["tau"] == FITTING else None
                    )
                    for of, one in STORED.items()
                },
            },
            series="of", x="tau", gaps={"series": "edge data", "x": TAUS[0]},
            more=lambda context, dims, one: {"projected": one.kind != "printed"},
            xlabel="threshold tau", ylabel="GB", base=2,
        ),
    )  # fmt: skip
    claims = {
        "gnnflow-s64-mag-too-large": combine.shown_beside(
            rules.all_above(TOTAL, GB * HOST, unit="GB"),
            {"in half precision": TOTAL.where(dtype="float16")}, "GB",
        ),
        "gnnflow-s64-ldbc-edge-memory": by_threshold("edge"),
        "gnnflow-s64-ldbc-metadata": by_threshold("metadata"),
        "gnnflow-s64-ldbc-throughput": combine.by_model(throughput_below, "alpha-beta model"),
        # Sorted rows and the events that they are rebuilt from would not fit one machine.
        "gnnflow-s1-five-billion-edges": combine.by_model(
            combine.or_direction(
                combine.both(
                    rules.all_below(ON_EACH_OF_8, GB * HOST, unit="GB on each of 8 machines"),
                    rules.all_above(
                        memory("rebuild") + memory("memories"), GB * HOST, unit="GB on one"
                    ),
                ),
                rules.all_below(ON_EACH_OF_8, GB * HOST),
            ), BYTES,
        ),
    }  # fmt: skip
    group = "{kind}/{dataset}"
    timeout_s: ClassVar[Any] = {"smoke": 90, "quick": 90, None: 3600}

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        for kind, name in ((SIZES, "mag"), (MEMORY, "ldbc"), (TRAIN, "ldbc")):
            yield {"kind": kind, "dataset": name}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        work = {SIZES: _sizes, MEMORY: _memory, TRAIN: _train}[str(cell.params["kind"])]
        with one_thread():
            return work(BY_NAME[str(cell.params["dataset"])], context.preset)


def _sizes(graph: Any, preset: Preset) -> Measurement:
    """Memory of a graph at the sizes that the paper prints."""
    found = Measurement(
        checks=[_bytes_check()],
        data={"dataset": graph.name, "twin": False, "scale": 1.0, "note": "printed sizes alone"},
    )
    _observe_printed(found, graph)
    return found


def _observe_printed(found: Measurement, graph: Any) -> None:
    for name, size in _printed_bytes(graph.printed).items():
        of, half, _ = name.partition(HALF)
        found.observe("memory", size, of=of, **({"dtype": "float16"} if half else {}))


def _bytes_check(nodes: int = 31, edges: int = 257, dims: tuple[int, int] = (7, 5)) -> ResultCheck:
    """A check of `_printed_bytes` against tensors of a small graph, byte by byte."""
    sizes = {"nodes": nodes, "edges": edges, "node_dim": dims[0], "edge_dim": dims[1]}
    wide, half = torch.float32, torch.float16
    ends, times = torch.empty(2, edges, dtype=torch.int64), torch.empty(edges, dtype=torch.float64)
    table = {
        dtype: sum(
            torch.empty(count, dim, dtype=dtype).nbytes
            for count, dim in zip((nodes, edges), dims, strict=True)
        )
        for dtype in (wide, half)
    }
    # Table 6 has 20 bytes a slot: vertex and edge of eight bytes, a time of four.
    slots = torch.empty(2, edges, dtype=torch.int64).nbytes + torch.empty(edges).nbytes
    memory = VertexMemory(nodes, 100, 200)
    rows = memory.state()
    wanted = {
        "features": table[wide],
        f"features{HALF}": table[half],
        "edges": slots,
        "memories": sum(getattr(rows, name).nbytes for name in rows.__slots__),
        "rebuild": 2 * (ends.nbytes + times.nbytes) + torch.empty(nodes, dtype=torch.int64).nbytes,
        "total": table[wide] + slots,
        f"total{HALF}": table[half] + slots,
    }
    return equal("counters", _printed_bytes(sizes), wanted, against="bytes of tensors")


def _printed_bytes(printed: Mapping[str, int]) -> dict[str, int]:
    """Bytes of a graph with these `nodes`, `edges`, `node_dim` and `edge_dim`."""
    nodes, edges = printed["nodes"], printed["edges"]
    counters = {
        "features": 4 * nodes * printed["node_dim"] + 4 * edges * printed["edge_dim"],
        f"features{HALF}": 2 * (nodes * printed["node_dim"] + edges * printed["edge_dim"]),
        "edges": SLOT * edges,
        # TGN's memory, a message of two memories and an edge, two times of eight bytes.
        "memories": nodes * (4 * 300 + 16),
        # What a rebuild holds at once: sorted rows, and the events that they are made from.
        "rebuild": 2 * 3 * 8 * edges + 8 * nodes,
    }
    counters["total"] = counters["features"] + counters["edges"]
    counters[f"total{HALF}"] = counters[f"features{HALF}"] + counters["edges"]
    return counters


def _memory(graph: Any, preset: Preset) -> Measurement:
    """Slots and blocks of LDBC by threshold, multiplied up to its printed edges."""
    from dgbench import datasets
    from dgbench.kernels_cuda.temporal_store import BlockPolicy

    events = datasets.open_events(graph.name, "auto", graph.scale(preset), 1)
    factor = graph.printed["edges"] / len(events)
    step = max(1, round(INGEST / factor))
    told = Measurement(data=describe(events))
    _observe_printed(told, graph)
    checks = [_bytes_check()]

    batches = [
        np.unique(part.numpy(), return_counts=True) for part in events.src.split(step)
    ]  # fmt: skip
    for tau in TAUS:
        policy = BlockPolicy("adaptive", tau)
        store = filled_store(events, step, policy=policy, undirected=False, origin=events.span[0])
        memory, counts = store.memory(), BlockCounts(events.num_nodes, policy)
        for batch in batches:
            counts.add(*batch)
        own = {"slots": memory.slots, "blocks": store.list_lengths().long()}
        exact = {"slots": counts.slots, "blocks": counts.blocks}
        checks.append(equal("counters", own, exact, against="blocks counted without records"))
        checks.append(records_check(store.neighbours, events, False, part=f"tau {tau}"))
        for of, size in zip(PRINTED, memory.paper_bytes(SLOT, BLOCK), strict=True):
            told.observe("estimate", size * factor, of=of, tau=tau)
    told.checks = by_subject(checks)
    return told


def _train(graph: Any, preset: Preset) -> Measurement:
    """TGN on two machines, and what that makes of 64 T4 on eight."""
    from dgbench.systems.base.stream import load_stream
    from dgbench.systems.gnnflow.cluster import (
        ASSUMED,
        NETWORK,
        PER_MACHINE,
        READINGS,
        Iteration,
        measure_machine,
        project,
    )
    from dgbench.systems.gnnflow.experiments.trainer_checks import checked_race
    from dgbench.systems.gnnflow.owners import MachineLayout
    from dgbench.systems.gnnflow.ranked import GraphPlacement
    from dgbench.systems.gnnflow.remote_access import GraphRankSettings

    layout, batch = MachineLayout(2), by_preset(BATCH, preset)
    task = workload(graph, "tgn", preset, batch=layout.ranks * batch, chunks=1, undirected=False)
    data = load_stream(task)
    last = len(data.events)
    contender = GraphPlacement(GraphRankSettings(layout, tau=256))
    runs, checks = checked_race(
        task, {OURS: contender}, data, first=max(0, last - 4 * task.batch), clocks=True
    )
    run = runs[OURS]
    turns = len(run.seconds)
    seconds = [
        max(phases.get(part, 0.0) for phases in run.phases) / turns
        for part in ("compute", "memory", "update")
    ]
    # The paper's batch; of what leaves a machine here, half of all, 7 of 8 would leave it there.
    larger = SETTINGS["tgn"].batch / batch
    rows = run.traffic.matrix("bytes", operation="all_to_all").sum(1).max() / turns
    remote = float(rows) * larger * (1 - 1 / MACHINES["ldbc"]) / (1 - 1 / layout.machines)
    one = Iteration(
        compute_s=larger * sum(seconds),
        sample_s=larger * max(sum(rank) for rank in run.sample_s) / turns,
        on_gpu=True,
        fetched=0.0,
        read=16 * larger * run.counters[0]["records_sampled"] / turns,
        written=0.0,
        gradient=4.0 * sum(value.numel() for value in run.state.values()),
    )
    told = Measurement(data=data.describe(), notes=[ASSUMED], checks=checks)
    told.observe("throughput", run.own_throughput, clock="processor")
    told.observe("turns", turns)
    machine = measure_machine()
    for reading in READINGS:
        step = project(one, GPUS, machine.speed(reading))
        whole = step.seconds + PER_MACHINE * remote / NETWORK
        rate = GPUS * SETTINGS["tgn"].batch / whole
        told.observe("projected_throughput", rate, scaled_by=reading)
    return told
