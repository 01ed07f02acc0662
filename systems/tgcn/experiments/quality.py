"""T-GCN's relaxed order and its sampled edges: whole trainings ranked beside the strict order."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from dgbench.lab.quality_study import UNTRAINED, BestEpoch, QualitySize, QualityStudy
from dgbench.runtime.threads import threads
from dgbench.systems.base import Cell, Measurement, Preset, RunContext, get_system
from dgbench.systems.base.link_study import (
    BATCH,
    PROTOCOL,
    STREAMS,
    ends_of,
    observe_ranks,
    observe_task,
    ranking_task,
    score_baselines,
)
from dgbench.systems.tgcn.settings import BY_NAME, graph_title, workload

if TYPE_CHECKING:
    from dgbench.systems.base.interactions import InteractionData, InteractionWorkload

NAME: Final = "quality"
LR: Final = 3e-3
OURS, RELAXED, STRICT, JODIE = "tgcn", "tgcn_all", "dygnn", "jodie"
TITLES: Final = {
    OURS: "T-GCN",
    RELAXED: "T-GCN on all edges",
    STRICT: "DyGNN without propagation, in strict order",
    JODIE: "JODIE",
}
CONTENDERS: Final[Mapping[str, tuple[str, dict[str, bool], dict[str, Any]]]] = {
    OURS: ("tgcn", {}, {"scoring": "t-batches"}),
    RELAXED: ("tgcn", {"sampling": False}, {"scoring": "t-batches"}),
    STRICT: ("dygnn", {"padding": False, "propagation": False}, {}),
    JODIE: ("jodie", {"padding": False}, {}),
}
"""System, switches and options of each; all but JODIE train the same network."""
SECONDS_AN_EVENT: Final = {OURS: 1e-5, RELAXED: 1e-5, STRICT: 1.1e-3, JODIE: 7e-4}
"""Processor seconds of a training event and epoch, measured on the first events of CollegeMsg."""
SCORED_EVENT: Final = 7e-4
"""Processor seconds of an event that changes the state while it is scored."""
WHOLE: Final = QualitySize(("college-msg", "enron"), dict.fromkeys(CONTENDERS, 3), width=64)
SIZES: Final[Mapping[Preset, QualitySize]] = {
    "smoke": QualitySize(
        ("college-msg",), dict.fromkeys(CONTENDERS, 1), seeds=1, events=400, width=8
    ),
    "quick": QualitySize(("college-msg",)),
    "full": QualitySize(("college-msg",), {OURS: 1, RELAXED: 1, STRICT: 1}, width=64),
    "paper": WHOLE,
    "quality": WHOLE,
}
"""A quarter of an hour in `full`, about two hours in `quality`, on one core."""


class InteractionQuality(QualityStudy):
    paper = "tgcn"
    name = NAME
    title = "Quality of relaxed order and of sampling"
    metric = "mrr"
    measure = "mean reciprocal rank"
    heading = "Mean reciprocal rank by order of training, and of dictionaries"
    own_data = "its scoring windows are chosen for the streams that it names"
    question = "What do a relaxed order and half of the edges cost in prediction?"
    reading = (
        f"{PROTOCOL} T-GCN and DyGNN train the same network: T-GCN in intervals of "
        f"{BATCH} edges before sampling, DyGNN edge by edge with an optimiser step every {BATCH}, "
        "both without the propagation that T-GCN lacks. Before the test all states are built anew "
        "from all events in strict order, so that only what was learned differs."
    )
    sizes = SIZES
    references = dict.fromkeys((OURS, RELAXED), STRICT)

    def seconds(self, preset: Preset, params: Mapping[str, Any]) -> float:
        size, dataset = SIZES[preset], params["dataset"]
        events = min(STREAMS[dataset].events, size.events or STREAMS[dataset].events)
        if params["part"] == UNTRAINED:
            return 10.0 + 2e-4 * events
        first, last = ends_of(events)
        model = params["model"]
        epoch = SECONDS_AN_EVENT[model] * first + SCORED_EVENT * (last - first)
        return 10.0 + size.epochs[model] * epoch + SCORED_EVENT * 1.5 * events

    def dataset_title(self, name: str) -> str:
        return graph_title(name)

    def model_title(self, name: str) -> str:
        return TITLES[name]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        found, size = Measurement(), SIZES[context.preset]
        dataset = str(cell.params["dataset"])
        model, seed = str(cell.params.get("model", STRICT)), int(cell.params.get("seed", 1))
        with threads(1):  # at these widths a second thread costs more than it does
            task, data = _data(dataset, model, seed, size)
            if cell.params["part"] == UNTRAINED:
                ranking = ranking_task(data.events, dataset)
                score_baselines(found, ranking, data.negative[ranking.first :])
            else:
                _train(model, dataset, task, data, size.epochs[model], context, found)
            found.data.update(data.describe())
        return found


def _data(
    dataset: str, model: str, seed: int, size: QualitySize
) -> tuple[InteractionWorkload, InteractionData]:
    """The task of a contender and its events, split as in the ranking task."""
    from msgspec.structs import replace as changed

    from dgbench.systems.base.interactions import load_interactions, time_unit

    task = workload(
        BY_NAME[dataset], "full", model="jodie" if model == JODIE else "dygnn", seed=seed,
        events=size.events, hidden_dim=size.width, batch=BATCH, lr=LR,
    )  # fmt: skip
    data = load_interactions(task)
    first, last = ends_of(len(data.events))
    unit = time_unit(data.events.select(0, first))
    data = replace(data, train_end=first, validate_end=last, unit=unit)
    return changed(task, intervals=max(1, round(first / BATCH))), data


def _train(
    model: str,
    dataset: str,
    task: InteractionWorkload,
    data: InteractionData,
    epochs: int,
    context: RunContext,
    found: Measurement,
) -> None:
    from dgbench.systems.base.interaction_checks import check_now
    from dgbench.systems.base.interaction_ranking import InteractionRanker, rank_interactions
    from dgbench.systems.base.link_ranking import rank_scores

    system, switches, options = CONTENDERS[model]
    trainer = get_system(system).open(
        task, device=context.device, data=data, switches=switches, **options
    )
    trainer.prepare()
    validation = ranking_task(data.events, dataset, validation=True)
    best = BestEpoch(trainer.model, SIZES[context.preset].patience)
    for epoch in range(epochs):
        trainer.reset_state()
        began = time.perf_counter()
        loss = trainer.train(0, validation.first, epoch=epoch)
        found.observe("epoch_time", time.perf_counter() - began, epoch=epoch)
        found.observe("loss", loss, epoch=epoch)
        mrr = rank_scores(validation, InteractionRanker(trainer, validation)).mrr
        found.observe("mrr", mrr, epoch=epoch, of="validation")
        best.add(mrr)
        if best.over:
            break
    name = "" if system == "tgcn" else system
    found.checks += check_now(trainer, f"{TITLES[model]} after training", system=name, last=False)
    found.deviation["loss"] = max(one.gap for one in found.checks if one.of == "losses")
    best.restore()
    ranking = ranking_task(data.events, dataset)
    observe_ranks(found, rank_interactions(trainer, ranking))
    observe_task(found, ranking)
    found.observe("batch_size", BATCH)
    trainer.close()
