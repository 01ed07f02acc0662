"""Whole trainings on streams, ranked beside predictors that train nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from dgbench.lab.quality_study import TRAINED, UNTRAINED, QualityStudy
from dgbench.runtime.threads import threads
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.gnnflow.experiments.quality_checks import baseline_check
from dgbench.systems.gnnflow.experiments.settings import (
    BY_NAME,
    MODEL_TITLES,
    graph_title,
    workload,
)
from dgbench.systems.gnnflow.experiments.trainer_checks import trainer_checks

if TYPE_CHECKING:
    from dgbench.systems.base.link_ranking import RankingTask, RankScores
    from dgbench.systems.base.stream import StreamData, StreamTrainer, StreamWorkload

NAME: Final = "quality"
SHARES: Final = (0.7, 0.85)
"""Ends of training and of validation, as shares of the events."""
SEED_OF_NEGATIVES: Final = 1
HOUR: Final = 3600.0
BATCH: Final = 200
"""Events of a batch, as in TGB's examples."""
LR: Final = 1e-3


@dataclass(frozen=True, slots=True)
class ScoredStream:
    """Stream and windows in which it is scored.

    Attributes:
        window: seconds of a scoring window.
        events: training and scoring events in the data, which say how long a cell takes.
        negatives: seeded negatives of an event; None ranks it among all destinations.
    """

    window: float
    events: int
    negatives: int | None = None


STREAMS: Final = {
    "wikipedia": ScoredStream(HOUR / 6, 157_474),
    "college-msg": ScoredStream(6 * HOUR, 59_835),
    "email-eu-core": ScoredStream(6 * HOUR, 332_334),
    "enron": ScoredStream(24 * HOUR, 125_235),
    "sx-mathoverflow": ScoredStream(24 * HOUR, 506_550, negatives=20),
}
SECONDS_AN_EVENT: Final = {"tgn": 1.6e-4, "tgat": 6.2e-4}
"""Processor seconds of a training event and epoch of these sizes, measured on CollegeMsg in one
epoch on one of two cores that others used, too. For estimates only."""
RANKED: Final = {
    "wikipedia": 1.4, "college-msg": 4.0, "email-eu-core": 0.5, "enron": 0.2,
    "sx-mathoverflow": 0.8,
}  # fmt: skip
"""Epochs of training that ranking takes as long as: measured on CollegeMsg with TGN, elsewhere in
proportion to vertices that are embedded, candidates times windows."""


@dataclass(frozen=True, slots=True)
class QualitySize:
    """Amount of training.

    Attributes:
        streams: names. epochs: of a training, by model. seeds: of a model.
        events: kept of each stream, None for all.
        width: of hidden states, encoded times and memories.
    """

    streams: tuple[str, ...]
    epochs: Mapping[str, int]
    seeds: int = 5
    events: int | None = None
    width: int = 100


SIZES: Final[Mapping[Preset, QualitySize]] = {
    "smoke": QualitySize(("college-msg",), {"tgn": 1, "tgat": 1}, seeds=1, events=400, width=8),
    "quick": QualitySize(("enron",), {}),
    "full": QualitySize(("college-msg", "enron"), {"tgn": 5}),
    "paper": QualitySize(tuple(STREAMS), {"tgn": 10, "tgat": 3}),
}
"""A quarter of an hour in `full`, between five and six hours in `paper`, on one core."""


class StreamQuality(QualityStudy):
    paper = "gnnflow"
    name = NAME
    title = "Quality beside predictors that train nothing"
    metric = "mrr"
    measure = "mean reciprocal rank"
    heading = "Mean reciprocal rank of trained models and of dictionaries"
    own_data = "its scoring windows are chosen for the streams that it names"
    question = "Do the models that GNNFlow trains predict better than a dictionary?"
    reading = (
        "70 % of the events are trained on, the parameters of the epoch with the best average "
        "precision on the next 15 % are kept, and the last 15 % are ranked: in fixed windows of "
        "time, each predicted from the events before it opens, among all destinations of the "
        "stream (sx-mathoverflow: 20 seeded negatives, half of them of the source's past). Other "
        "destinations of the source at the same time are left out; ties count by the mean rank. "
        "Models see ids and times: the data held has no features. TGB ranks in batches of 200 "
        "events instead of windows, which see less."
    )

    def points(self, preset: Preset, device: str) -> Iterator[dict[str, Any]]:
        size = SIZES[preset]
        for dataset in size.streams:
            yield {"dataset": dataset, "part": UNTRAINED}
            for model in size.epochs:
                for seed in range(1, size.seeds + 1):
                    yield {"dataset": dataset, "part": TRAINED, "model": model, "seed": seed}

    def seconds(self, preset: Preset, params: Mapping[str, Any]) -> float:
        return _seconds(SIZES[preset], **params)

    def dataset_title(self, name: str) -> str:
        return graph_title(name)

    def model_title(self, name: str) -> str:
        return MODEL_TITLES[name]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        found = Measurement()
        size = SIZES[context.preset]
        with threads(1):  # at these widths a second thread costs more than it does
            if cell.params["part"] == UNTRAINED:
                _score_baselines(str(cell.params["dataset"]), size, context, found)
            else:
                _train(cell.params, size, context, found)
        return found


def _seconds(
    size: QualitySize, *, dataset: str, part: str, model: str = "", seed: int = 0
) -> float:
    """Estimate of a cell in processor seconds."""
    stream = STREAMS[dataset]
    events = min(stream.events, size.events or stream.events)
    if part == UNTRAINED:
        return 10.0 + 2e-4 * events
    epoch = SECONDS_AN_EVENT[model] * SHARES[0] * events
    return 10.0 + epoch * (1.1 * size.epochs[model] + RANKED[dataset])


def _task(dataset: str, model: str, seed: int, size: QualitySize) -> StreamWorkload:
    width = dict.fromkeys(("hidden_dim", "time_dim", "memory_dim"), size.width)
    return workload(
        BY_NAME[dataset], model, "full", seed=seed, events=size.events, batch=BATCH, chunks=1,
        lr=LR, node_dim=0, edge_dim=0, **width,
    )  # fmt: skip


def _ranking(data: StreamData, dataset: str) -> RankingTask:
    from dgbench.systems.base.link_ranking import RankingTask, seeded_negatives, time_windows

    stream, events = STREAMS[dataset], data.events
    first, last = round(SHARES[1] * len(events)), len(events)
    negatives = None
    if stream.negatives is not None:
        negatives = seeded_negatives(
            events, first, last, count=stream.negatives, seed=SEED_OF_NEGATIVES
        )
    return RankingTask(events, time_windows(events.t, first, last, stream.window), negatives)


def _observe(found: Measurement, scores: RankScores, **dims: Any) -> None:
    found.observe("mrr", scores.mrr, **dims)
    found.observe("mrr", scores.optimistic, statistic="optimistic", **dims)
    found.observe("mrr", scores.pessimistic, statistic="pessimistic", **dims)
    for top, share in scores.hits.items():
        found.observe("accuracy", share, top=top, **dims)


def _observe_task(found: Measurement, ranking: RankingTask, data: StreamData) -> None:
    stale = ranking.staleness
    found.observe("mean_count", stale.events, of="unseen events")
    found.observe("events", stale.most_events, of="unseen", statistic="largest")
    if stale.seconds == stale.seconds:
        found.observe("staleness", stale.seconds)
        found.observe("staleness", stale.most_seconds, statistic="largest")
    found.observe("events", ranking.last - ranking.first, of="scored")
    found.data.update(data.describe())


def _score_baselines(
    dataset: str, size: QualitySize, context: RunContext, found: Measurement
) -> None:
    from dgbench.systems.base.link_baselines import link_baselines, recent_span
    from dgbench.systems.base.link_ranking import RankingTask, rank_scores
    from dgbench.systems.base.scores import average_precision
    from dgbench.systems.base.stream import load_stream, negatives

    task = _task(dataset, "tgn", 1, size)
    data = load_stream(task)
    ranking = _ranking(data, dataset)
    baselines = link_baselines(data.events, ranking.first)
    drawn = negatives(task, data, ranking.first, ranking.last)
    pairs = RankingTask(data.events, ranking.windows, drawn.unsqueeze(1))
    for name, baseline in baselines.items():
        _observe(found, rank_scores(ranking, baseline), method=name)
        scores = torch.cat([baseline(block) for block in pairs.blocks()])
        label = torch.tensor([1, 0]).expand_as(scores)
        ap = average_precision(scores.flatten(), label.flatten())
        found.observe("average_precision", ap, method=name)
    check = baseline_check(ranking, baselines, recent_span(data.events.t, ranking.first))
    found.checks.append(check)
    found.deviation["ranks"] = check.gap
    _observe_task(found, ranking, data)


def _train(
    params: Mapping[str, Any], size: QualitySize, context: RunContext, found: Measurement
) -> None:
    from dgbench.systems.base.stream import load_stream
    from dgbench.systems.base.stream_ranking import rank_stream
    from dgbench.systems.gnnflow.system import GnnflowSystem

    dataset, model = str(params["dataset"]), str(params["model"])
    task = _task(dataset, model, int(params["seed"]), size)
    data = load_stream(task)
    trainer = GnnflowSystem().open(task, device=context.device, data=data)
    trainer.prepare()
    end = len(data.events)
    first, last = (round(share * end) for share in SHARES)
    best, kept = -1.0, trainer.model.state_dict()
    for epoch in range(size.epochs[model]):
        trainer.reset_memory()
        began = time.perf_counter()
        loss = trainer.train(0, first, epoch=epoch)
        found.observe("epoch_time", time.perf_counter() - began, epoch=epoch)
        found.observe("loss", loss, epoch=epoch)
        precision = trainer.evaluate_range(first, last).ap
        found.observe("average_precision", precision, epoch=epoch, of="validation")
        if precision > best:
            best = precision
            kept = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.model.load_state_dict(kept)
    _fill_memory(trainer, last)
    ranking = _ranking(data, dataset)
    _observe(found, rank_stream(trainer, ranking))
    found.observe("average_precision", trainer.evaluate_range(last, end).ap)
    found.observe("batch_size", task.batch)
    _observe_task(found, ranking, data)
    found.checks += trainer_checks({MODEL_TITLES[model]: trainer}, task, data)
    found.deviation["loss"] = max(one.gap for one in found.checks if one.of == "losses")
    trainer.close()


def _fill_memory(trainer: StreamTrainer, last: int) -> None:
    """Let memories hold the events before `last` as the present parameters write them."""
    trainer.reset_memory()
    trainer.evaluate_range(0, last, remember=True)
