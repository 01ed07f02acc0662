"""Time that trainings take until they are as good as a reference becomes.

The target is the worse end of the reference's band: of its best scores on validation, that of the
worst seed, so that each of its own trainings reaches it. A contender that does not get there has no
speed-up, however many epochs it runs in a second (MLPerf's rule).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dgbench.lab.table import Table

MIN_SEEDS: Final = 5
"""Seeds below which nothing is said about quality."""
VALIDATION: Final = "validation"
PROCESSOR: Final = "processor"
"""Clock of the epochs: what else a machine does during hours of training leaves it alone."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One training: seconds of each epoch, and the score on validation after it.

    Attributes:
        seconds, scores: by epoch, equally long; of the processor.
        sign: -1 for scores of which less is better.
    """

    seconds: tuple[float, ...]
    scores: tuple[float, ...]
    sign: int = 1

    @property
    def best(self) -> float:
        """The best score; NaN where no epoch has a number."""
        finite = [self.sign * score for score in self.scores if math.isfinite(score)]
        return self.sign * max(finite) if finite else math.nan

    def seconds_to(self, target: float) -> float | None:
        """Seconds until a score is at least as good as the target; None if none is."""
        for number, score in enumerate(self.scores, 1):
            if self.sign * score >= self.sign * target:
                return math.fsum(self.seconds[:number])
        return None


def target_of(reference: Mapping[Any, Curve]) -> float | None:
    """Worse end of the band of the reference's best scores; None for fewer than five seeds."""
    best = [curve.best for curve in reference.values() if math.isfinite(curve.best)]
    if len(best) < MIN_SEEDS:
        return None
    sign = next(iter(reference.values())).sign
    return min(best, key=lambda score: sign * score)


@dataclass(frozen=True, slots=True)
class TimeToQuality:
    """Trainings of a contender beside those of its reference, both to the reference's band.

    Attributes:
        target: score to reach.
        reached, seeds: trainings that reach it, and all.
        seconds, reference: medians over seeds; infinite where most do not reach it.
    """

    target: float
    reached: int
    seeds: int
    seconds: float
    reference: float

    def __str__(self) -> str:
        """In words: "reaches 0.142 in 12 s against 30 s (5 of 5 seeds)"."""
        count = f"{self.reached} of {self.seeds} seeds"
        if not math.isfinite(self.seconds):
            return f"does not reach {self.target:.3f} ({count})"
        against = f" against {self.reference:.0f} s" if math.isfinite(self.reference) else ""
        return f"reaches {self.target:.3f} in {self.seconds:.0f} s{against} ({count})"


def time_to_quality(
    contender: Mapping[Any, Curve], reference: Mapping[Any, Curve]
) -> TimeToQuality | None:
    """Time to the reference's quality; None for fewer than five seeds on either side."""
    target = target_of(reference)
    if target is None or len(contender) < MIN_SEEDS:
        return None
    mine = [curve.seconds_to(target) for curve in contender.values()]
    other = [curve.seconds_to(target) for curve in reference.values()]
    reached = sum(one is not None for one in mine)
    return TimeToQuality(target, reached, len(mine), _median(mine), _median(other))


def _median(seconds: Sequence[float | None]) -> float:
    """The middle one, the upper of two; infinite where most do not get there."""
    return sorted(math.inf if one is None else one for one in seconds)[len(seconds) // 2]


def curves_by_seed(found: Table, metric: str, *, less: bool = False) -> dict[Any, Curve]:
    """Curves of the trainings in a table by seed, of those that scored each of their epochs.

    Args:
        metric: that is observed `of` validation by epoch, beside `epoch_time`.
        less: True if less of it is better.
    """
    sign = -1 if less else 1
    curves: dict[Any, Curve] = {}
    for seed, part in found.by("seed").items():
        times = part.where("epoch_time", clock=PROCESSOR).numbers("epoch")
        scores = part.where(metric, of=VALIDATION).numbers("epoch")
        epochs = [epoch for epoch in sorted(scores) if epoch in times]
        if epochs and len(epochs) == len(times):
            curves[seed] = Curve(
                tuple(float(times[epoch]) for epoch in epochs),
                tuple(float(scores[epoch]) for epoch in epochs),
                sign,
            )
    return curves
