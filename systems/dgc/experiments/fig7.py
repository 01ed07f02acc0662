"""Figure 7: chunks with equally many vertices take unequal times (section 4.2)."""

from __future__ import annotations

from typing import ClassVar

import torch

from dgbench.lab import outcomes
from dgbench.lab.compare import observe_ratio
from dgbench.lab.estimates import EvaluationContext, prefer, real_data
from dgbench.lab.evidence import from_ratio
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.quantities import observed
from dgbench.lab.result_checks import summarised
from dgbench.lab.study import FormExperiment
from dgbench.runtime.statistics import median
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.sequences import load_sequences, vertex_steps
from dgbench.systems.dgc.chunk_oracle import check_chunk
from dgbench.systems.dgc.chunk_samples import GraphChunks
from dgbench.systems.dgc.chunk_times import ChunkTimer, model_named
from dgbench.systems.dgc.experiments.settings import BY_NAME, FORMS, GRAPHS, HELD, MODELS, workload
from dgbench.systems.dgc.recount import EdgeRecount, check_cut, drawn
from dgbench.systems.dgc.supergraph import ChunkStatistics, chunk_cap, make_chunks

WORKERS = 4
CHOSEN = ("fewest edges", "most edges", "fewest padded rows", "most padded rows")
"""Selection of the four chunks of full size that are timed."""
PARTS = ("structure", "time", "padded")
FULL_SIZE = 0.95
"""Vertex-steps, as a share of the cap, from which on a chunk counts as of full size."""
PER_WORKER = {"quick": 64}
TURNS = {"smoke": 3, "quick": 7, "full": 15, "paper": 15}


SPREAD = observed("divergence", per=("model", "dataset"))
"""Slowest over fastest of the four chunks."""
TIMES = observed("operation_time", per=("model", "dataset", "of"))


def time_gap(context: EvaluationContext) -> outcomes.RuleOutcome:
    """Rule: slowest over fastest with sequences padded, as unfused; the paper names neither the
    graph, the model nor the size, so that each of ours is an interpretation."""
    numbers = SPREAD.where(format="padded").keep(prefer(real_data)).estimates(context)
    if not numbers:
        return outcomes.RuleOutcome(lacking="no chunks of equal size were timed in this run")
    found = {
        " on ".join(context.forms.label(dim, value) for dim, value in at): from_ratio(
            one.ratio, target=float(context.claim.value), reason="sequences padded"
        )
        for at, one in numbers.items()
    }
    return outcomes.RuleOutcome(interpretations=found)


class Fig7(FormExperiment):
    forms, name = FORMS, "fig7"
    headline, unit = SPREAD.where(format="packed"), "x"
    figure_forms = (
        Sweep(
            "fig7", "Chunks of equally many vertices",
            TIMES.where(phase="structure") + TIMES.where(phase=("time", "padded")), scale=1e3,
            panel="{dataset}", series="{model}{phase}", x="of",
            gaps={"series": "all", "x": CHOSEN[0]}, xlabel="", ylabel="milliseconds",
        ),
    )  # fmt: skip
    claims = {"dgc-fig7-chunk-time-gap": time_gap}

    axes: ClassVar = {
        "dataset": {
            "smoke": ("email-eu-core",),
            "quick": ("sx-mathoverflow",),
            None: tuple(graph.name for graph in (*HELD, *GRAPHS)),
        }
    }
    timeout_s: ClassVar = {"full": 900, "paper": 900, None: 60}

    @one_thread()
    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        snapshots = {"snapshots": None} if context.preset != "smoke" else {}
        task = workload(graph, MODELS[0], context.preset, **snapshots)
        data = load_sequences(task)
        steps = vertex_steps(data, task)
        made = make_chunks(steps, chunk_cap(steps, WORKERS, PER_WORKER.get(context.preset, 16)))
        cut = GraphChunks(steps, made.chunk, made.count, graph.name)
        places = four(cut.statistics, made.cap)
        chunks = [cut[place] for place in places]
        found = Measurement(data=describe(data))
        checks = [*check_cut(EdgeRecount(data), cut, set(places), made.cap)]
        for model in MODELS[:2] if context.preset == "quick" else MODELS:
            net = model_named(model, task.feature_dim, task.hidden_dim)
            timers = [
                ChunkTimer(net, device=context.device, least=1, most=1, packed=packed)
                for packed in (True, False)
            ]
            turns = []
            for _ in range(TURNS[context.preset]):
                packed = timers[0].measure(chunks, passes=1)
                padded = [timers[1].once(chunk, "time") for chunk in chunks]
                turns.append(torch.cat([packed, torch.tensor(padded).double()[:, None]], 1))
            _observe(found, model, torch.stack(turns))
            (place,) = drawn(places, 1)
            checks += check_chunk(timers[0], cut[place], "structure")
            for timer in timers:
                checks += check_chunk(timer, cut[place], "time")
        found.checks = summarised(checks)
        return found


def four(sizes: ChunkStatistics, cap: int) -> list[int]:
    """The numbers of four chunks of about equally many vertices, in the order of CHOSEN.

    Where fewer than four chunks are of full size, the four largest stand in. The same chunk may be
    chosen twice.
    """
    full = (sizes.vertices >= FULL_SIZE * cap).nonzero().squeeze(1)
    if full.numel() < 4:
        full = sizes.vertices.argsort(descending=True, stable=True)[:4]
    edges, padded = sizes.edges[full], sizes.padded[full]
    picked = (edges.argmin(), edges.argmax(), padded.argmin(), padded.argmax())
    return [int(full[place]) for place in picked]


def _observe(found: Measurement, model: str, turns: torch.Tensor) -> None:
    """Median times of the four chunks, and slowest over fastest with its interval.

    `turns` is float64[turns, 4, 3], seconds: structure, time, time with padded sequences.
    """
    for i, name in enumerate(CHOSEN):
        for j, part in enumerate(PARTS):
            seconds = median(turns[:, i, j].tolist())
            found.observe("operation_time", seconds, model=model, of=name, phase=part)
    for kind, last in (("packed", 1), ("padded", 2)):
        total = turns[:, :, 0] + turns[:, :, last]
        middle = [median(total[:, i].tolist()) for i in range(len(CHOSEN))]
        slow, fast = middle.index(max(middle)), middle.index(min(middle))
        ends = (total[:, chunk].tolist() for chunk in (slow, fast))
        observe_ratio(found, "divergence", *ends, model=model, format=kind)
