"""Figure 9: sampling and fetching of a round's training, GNNFlow against TGL (section 6.1)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from dgbench.lab.compare import TURN_INTERVAL, observe_speedup
from dgbench.lab.figure_forms import SpeedupBars
from dgbench.lab.result_checks import ResultCheck, equal, of_contender
from dgbench.lab.study import FormExperiment
from dgbench.systems.base import Cell, Measurement, RunContext
from dgbench.systems.gnnflow.experiments.round_race import (
    GNNFLOW,
    GRAPH_AT,
    PUBLISHED,
    TGL,
    largest_of_a_model,
    model_range,
    open_contender,
    over,
    with_locked_tables,
)
from dgbench.systems.gnnflow.experiments.sample_checks import by_subject, drawn, samples_check
from dgbench.systems.gnnflow.experiments.settings import (
    BY_NAME,
    EPOCHS,
    FORMS,
    MODELS,
    turn_count,
    workload,
)

GRAPHS: Final = {
    "smoke": ("gdelt",),
    "quick": ("gdelt",),
    None: ("gdelt", "sx-mathoverflow", "wikipedia", "enron"),
}
SCALES: Final = {"smoke": 1 / 4096, "quick": 1 / 1024, "full": 1 / 64, "paper": 1.0}
"""Of GDELT."""
TURNS: Final = {"smoke": 1, "quick": 6, "full": 30, "paper": 100}
"""Batches that are timed; two more warm up."""
MAX_BATCH_EDGES: Final = {"smoke": 60, "quick": 150}
"""Edges of a batch at most where there is little time, but for TGN, whose batches are cheap."""
PARTS: Final = ("sampling", "fetching")

FASTER: Final = over(TGL, PUBLISHED, phase=PARTS)
SAMPLING, FETCHING = (FASTER.where(dataset="gdelt", phase=part) for part in PARTS)


class Fig9(FormExperiment):
    forms, name = FORMS, "fig9"
    axes = {"dataset": GRAPHS, "model": MODELS}
    group = "{dataset}/{model}"
    timeout_s = {"smoke": 60, "quick": 120, "full": 900, "paper": 36000}
    headline, unit = FASTER, "x"
    figure_forms = (
        SpeedupBars(
            "fig9", "Sampling and fetching of a batch, GNNFlow over TGL",
            FASTER.where(setting=(PUBLISHED, GNNFLOW)), panel="{phase}",
            row="{dataset}, {model}", system="{setting}", baseline=TGL, more=turn_count,
            gaps={"system": "gnnflow"}, baseline_label="TGL, re-implemented",
            xlabel="speed-up", interval=TURN_INTERVAL,
        ),
    )  # fmt: skip
    claims = {
        "gnnflow-fig9-sampling": model_range(SAMPLING),
        "gnnflow-fig9-feature-fetch": largest_of_a_model(FETCHING),
    }

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        """Sample and fetch the same batches by all contenders, in turns."""
        from dgbench.systems.base.stream import batch_draw, batches, load_stream, negatives_of

        preset, device = context.preset, context.device
        graph, model = BY_NAME[str(cell.params["dataset"])], str(cell.params["model"])
        fields: dict[str, Any] = {"scale": SCALES[preset] if graph.name == "gdelt" else 1.0}
        if preset in MAX_BATCH_EDGES and model != "tgn":
            fields["batch"] = MAX_BATCH_EDGES[preset]
        task = workload(graph, model, preset, chunks=1, **fields)
        data = with_locked_tables(load_stream(task), device)
        stream, first = data.events, round(GRAPH_AT * len(data.events))
        trainers = {key: open_contender(key, task, data, graph, device)
                    for key in (TGL, PUBLISHED, GNNFLOW)}  # fmt: skip
        for trainer in trainers.values():
            trainer.prepare()
        parts = batches(task, torch.arange(first, len(stream)), stream.t[first:])
        seconds: dict[str, dict[str, list[float]]]
        seconds = {key: {part: [] for part in PARTS} for key in trainers}
        tables = (lambda ids: data.node_feat[ids]), (lambda ids: data.edge_feat[ids])
        checks: list[ResultCheck] = []
        chosen = set((drawn(TURNS[preset], 2) + 2).tolist())  # compared with the data, too
        for turn in range(TURNS[preset] + 2):
            at, epoch = divmod(turn, EPOCHS)
            part = parts[at % len(parts)]
            nodes = torch.cat([stream.src[part], stream.dst[part], negatives_of(task, data, part)])
            times = stream.t[part].repeat(3)
            draw = batch_draw(task, int(part[0]), epoch)
            answers = {}
            for key in trainers if turn % 2 == 0 else reversed(trainers):
                access = trainers[key].access
                sampling, found = timed(access.sample, nodes, times, draw=draw)
                own_tables = access.node_features, access.edge_features
                fetching, rows = timed(features, found, task, *own_tables)
                answers[key] = (found, rows)
                if turn >= 2:
                    seconds[key]["sampling"].append(sampling)
                    seconds[key]["fetching"].append(fetching)
            for key in (PUBLISHED, GNNFLOW):
                checks += of_contender(key, alike(answers[key], answers[TGL]))
            for key, (found, rows) in answers.items() if turn in chosen else ():
                own = [
                    samples_check(task, stream, nodes, times, draw, found,
                                  part=f"{key}, batch {at % len(parts)}"),
                    equal("features", rows, features(found, task, *tables),
                          against="rows of the tables"),
                ]  # fmt: skip
                checks += of_contender(key, own)
        told = Measurement(deviation={"samples": 0.0, "features": 0.0}, data=data.describe(),
                           checks=by_subject(checks))  # fmt: skip
        for key, of in seconds.items():
            for part, took in of.items():
                if key != TGL:
                    which = {"setting": key, "baseline": TGL, "phase": part}
                    observe_speedup(told, seconds[TGL][part], took, **which)
        told.observe("turns", TURNS[preset])
        return told


def features(
    samples: Any, task: Any, of_nodes: Callable[[Tensor], Tensor],
    of_edges: Callable[[Tensor], Tensor],
) -> list[Tensor]:  # fmt: skip
    """Features that a network asks for: of the farthest hop's vertices and of all edges."""
    rows = []
    for hops in samples:
        if task.node_dim:
            ids = torch.cat([hops[-1].nodes, hops[-1].neighbours])
            # TGN reads each vertex once, with its memory.
            rows.append(of_nodes(ids.unique() if task.model == "tgn" else ids))
        if task.edge_dim:
            rows += [of_edges(hop.eids) for hop in hops]
    return rows


def timed(call: Callable[..., Any], *given: Any, **named: Any) -> tuple[float, Any]:
    """Seconds of a call, and its result."""
    start = time.perf_counter()
    found = call(*given, **named)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start, found


def alike(own: tuple[Any, list[Tensor]], other: tuple[Any, list[Tensor]]) -> list[ResultCheck]:
    """Checks that GNNFlow found the neighbours and features that TGL did."""
    fields = [
        {
            f"{name} of hop {number}": getattr(hop, name)
            for number, hop in enumerate(hop for snapshot in samples for hop in snapshot)
            for name in ("offsets", "neighbours", "eids", "edge_times")
        }
        for samples, _ in (own, other)
    ]
    return [
        equal("samples", *fields, against=TGL),
        equal("features", own[1], other[1], against=TGL),
    ]
