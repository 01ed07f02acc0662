"""Ranking tasks of the held streams and rows of whole trainings on them, alike for all systems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from dgbench.lab.experiment import Measurement

if TYPE_CHECKING:
    from dgbench.datasets import EventStream
    from dgbench.systems.base.link_ranking import RankingTask, RankScores

SHARES: Final = (0.7, 0.85)
"""Ends of training and of validation, as shares of the events."""
SEED_OF_NEGATIVES: Final = 1
HOUR: Final = 3600.0
BATCH: Final = 200
"""Events of a batch, as in TGB's examples."""
VALIDATED: Final = 8
"""Every so many-th window of validation is ranked after an epoch."""


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
PROTOCOL: Final = (
    "70 % of the events are trained on, the parameters of the epoch with the best mean reciprocal "
    f"rank in every {VALIDATED}th window of the next 15 % are kept, and the last 15 % are ranked: "
    "in fixed windows of time, each predicted from the events before it opens, among all "
    "destinations of the stream (sx-mathoverflow: 20 seeded negatives, half of them of the "
    "source's past). Other destinations of the source at the same time are left out; ties count by "
    "the mean rank."
)
"""Sentences on the task, for the page of an experiment."""


def ends_of(events: int) -> tuple[int, int]:
    """First event of validation and of the test."""
    first, last = (round(share * events) for share in SHARES)
    return first, last


def ranking_task(events: EventStream, dataset: str, *, validation: bool = False) -> RankingTask:
    """The test events of a stream, or those of validation, with windows and candidates."""
    from dgbench.systems.base.link_ranking import RankingTask, seeded_negatives, time_windows

    stream = STREAMS[dataset]
    first, last = ends_of(len(events))[1], len(events)
    if validation:
        first, last = ends_of(len(events))
    negatives = None
    if stream.negatives is not None:
        negatives = seeded_negatives(
            events, first, last, count=stream.negatives, seed=SEED_OF_NEGATIVES
        )
    windows = time_windows(events.t, first, last, stream.window)
    return RankingTask(events, windows, negatives, VALIDATED if validation else 1)


def observe_ranks(found: Measurement, scores: RankScores, **dims: Any) -> None:
    """Observe mean reciprocal ranks and shares of hits."""
    found.observe("mrr", scores.mrr, **dims)
    found.observe("mrr", scores.optimistic, statistic="optimistic", **dims)
    found.observe("mrr", scores.pessimistic, statistic="pessimistic", **dims)
    for top, share in scores.hits.items():
        found.observe("accuracy", share, top=top, **dims)


def observe_task(found: Measurement, ranking: RankingTask) -> None:
    """Observe how many events are scored, and the age of what predictions see."""
    stale = ranking.staleness
    found.observe("estimate", stale.events, of="unseen events")
    found.observe("events", stale.most_events, of="unseen", statistic="largest")
    if stale.seconds == stale.seconds:
        found.observe("staleness", stale.seconds)
        found.observe("staleness", stale.most_seconds, statistic="largest")
    found.observe("events", ranking.last - ranking.first, of="scored")


def score_baselines(found: Measurement, ranking: RankingTask, drawn: Tensor) -> None:
    """Observe ranks and average precisions of predictors that train nothing, with their check.

    Args:
        drawn: int64[n], a negative of each scored event for the average precision.
    """
    from dgbench.systems.base.link_baseline_checks import baseline_check
    from dgbench.systems.base.link_baselines import link_baselines, recent_span
    from dgbench.systems.base.link_ranking import RankingTask, rank_scores
    from dgbench.systems.base.scores import average_precision

    events = ranking.events
    baselines = link_baselines(events, ranking.first)
    pairs = RankingTask(events, ranking.windows, drawn.unsqueeze(1))
    for name, baseline in baselines.items():
        observe_ranks(found, rank_scores(ranking, baseline), method=name)
        scores = torch.cat([baseline(block) for block in pairs.blocks()])
        label = torch.tensor([1, 0]).expand_as(scores)
        ap = average_precision(scores.flatten(), label.flatten())
        found.observe("average_precision", ap, method=name)
    check = baseline_check(ranking, baselines, recent_span(events.t, ranking.first))
    found.checks.append(check)
    found.deviation["ranks"] = check.gap
    observe_task(found, ranking)
