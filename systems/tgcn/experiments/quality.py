"""T-GCN's relaxed order and its sampled edges: whole trainings ranked beside the strict order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from msgspec.structs import replace as changed

from dgbench.lab.quality_study import (
    CONTINUED,
    UNTRAINED,
    BestEpoch,
    EpochClock,
    QualitySize,
    QualityStudy,
)
from dgbench.runtime.threads import threads
from dgbench.systems.base import Cell, Measurement, Preset, RunContext, get_system
from dgbench.systems.base.interaction_checks import check_now
from dgbench.systems.base.interaction_ranking import InteractionRanker, rank_interactions
from dgbench.systems.base.interactions import (
    InteractionData,
    InteractionWorkload,
    load_interactions,
    time_unit,
)
from dgbench.systems.base.link_ranking import rank_scores
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

NAME: Final = "quality"
LR: Final = 3e-3
OURS, RELAXED, STRICT, JODIE = "tgcn", "tgcn_all", "dygnn", "jodie"


@dataclass(frozen=True, slots=True)
class Contender:
    """A way of training that is scored.

    Attributes:
        system: that trains. title: the name shown.
        seconds: of a processor, for a training event and epoch; measured on the first events of
            CollegeMsg.
        switches, options: of the system.
        share: of the edges that a system that samples trains on.
    """

    system: str
    title: str
    seconds: float
    switches: Mapping[str, bool] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    share: float = 0.5


def _sampled(title: str, share: float = 0.5, **switches: bool) -> Contender:
    return Contender("tgcn", title, 3e-5, switches, {"scoring": "t-batches"}, share)


PERCENT: Final = (10, 25, 75)
"""Edges that are trained on beside the half of the paper."""
CONTENDERS: Final[Mapping[str, Contender]] = {
    OURS: _sampled("T-GCN"),
    RELAXED: _sampled("T-GCN on all edges", sampling=False),
    STRICT: Contender(
        "dygnn", "DyGNN without propagation, in strict order", 6e-4,
        {"padding": False, "propagation": False},
    ),
    JODIE: Contender("jodie", "JODIE", 4e-4, {"padding": False}),
    **{f"tgcn_{n}": _sampled(f"T-GCN on {n} % of the edges", n / 100) for n in PERCENT},
}  # fmt: skip
"""All but JODIE train the same network."""
RATES: Final = tuple(f"tgcn_{n}" for n in PERCENT)
SCORED_EVENT: Final = 3.5e-4
"""Processor seconds of an event that changes the state while it is scored."""
WHOLE: Final = QualitySize(
    ("college-msg", "enron"),
    dict.fromkeys(CONTENDERS, 5),
    width=64,
    only=dict.fromkeys(RATES, ("college-msg",)),
    late=("enron",),
)
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
    # Dictionaries alone decide nothing, and quick has no time to train beside them.
    presets = ("smoke", "full", "paper", "quality")
    metric = "mrr"
    measure = "mean reciprocal rank"
    heading = "Mean reciprocal rank by order of training, and of dictionaries"
    own_data = "its scoring windows are chosen for the streams that it names"
    question = "What do a relaxed order and half of the edges cost in prediction?"
    reading = (
        f"{PROTOCOL} T-GCN and DyGNN train the same network: T-GCN in intervals of "
        f"{BATCH} edges before sampling, DyGNN edge by edge with an optimiser step every {BATCH}, "
        "both without the propagation that T-GCN lacks. Before the test all states are built anew "
        "from all events in strict order, so that only what was learned differs; beside it stands "
        "a test that goes on from the states that training left."
    )
    sizes = SIZES
    references = dict.fromkeys((OURS, RELAXED, *RATES), STRICT)

    def seconds(self, preset: Preset, params: Mapping[str, Any]) -> float:
        size, dataset = SIZES[preset], params["dataset"]
        events = min(STREAMS[dataset].events, size.events or STREAMS[dataset].events)
        if params["part"] == UNTRAINED:
            return 10.0 + 2e-4 * events
        first, last = ends_of(events)
        model = params["model"]
        epoch = CONTENDERS[model].seconds * first + SCORED_EVENT * (last - first)
        return 10.0 + size.epochs[model] * epoch + SCORED_EVENT * 1.8 * events

    def dataset_title(self, name: str) -> str:
        return graph_title(name)

    def epoch_work(self, dataset: str) -> int:
        return ends_of(STREAMS[dataset].events)[0]

    def model_title(self, name: str) -> str:
        return CONTENDERS[name].title

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
    task = workload(
        BY_NAME[dataset], "full", model="jodie" if model == JODIE else "dygnn", seed=seed,
        events=size.events, hidden_dim=size.width, batch=BATCH, lr=LR,
        share=CONTENDERS[model].share,
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
    one = CONTENDERS[model]
    trainer = get_system(one.system).open(
        task, device=context.device, data=data, switches=dict(one.switches), **one.options
    )
    trainer.prepare()
    validation = ranking_task(data.events, dataset, validation=True)
    best, left = BestEpoch(trainer.model, SIZES[context.preset].patience), None
    for epoch in range(epochs):
        trainer.reset_state()
        clock = EpochClock()
        loss = trainer.train(0, validation.first, epoch=epoch)
        clock.observe(found, epoch=epoch)
        found.observe("loss", loss, epoch=epoch)
        ranker = InteractionRanker(trainer, validation)
        mrr = rank_scores(validation, ranker).mrr
        found.observe("mrr", mrr, epoch=epoch, of="validation")
        if best.add(mrr):
            left = trainer.memory_state(), ranker.taken
        if best.over:
            break
    name = "" if one.system == "tgcn" else one.system
    found.checks += check_now(trainer, f"{one.title} after training", system=name, last=False)
    found.deviation["loss"] = max(one.gap for one in found.checks if one.of == "losses")
    best.restore()
    ranking = ranking_task(data.events, dataset)
    if left is not None:
        state, taken = left
        trainer.restore_memory(state)
        observe_ranks(found, rank_interactions(trainer, ranking, taken=taken), of=CONTINUED)
    observe_ranks(found, rank_interactions(trainer, ranking))
    observe_task(found, ranking)
    found.observe("batch_size", BATCH)
    trainer.close()
