"""Quality of a trained model beside a reference and beside predictors that train nothing.

A speed of a model that ranks worse than a dictionary is the speed of nothing. Scores are paired by
seed: contenders that were trained from one seed are compared with each other, and the seed is the
unit of every interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from dgbench.lab.table import Table
from dgbench.lab.time_to_quality import MIN_SEEDS, TimeToQuality, curves_by_seed, time_to_quality
from dgbench.runtime.statistics import t_quantile

Word = Literal["same", "better", "worse", "below the dictionary"]
_WORDS: Final[tuple[Word, Word, Word]] = ("same", "better", "worse")
"""Words of a difference by its side: 0, 1, -1."""
BELOW: Final = "below the dictionary"
NOT_MEASURED: Final = "not measured"
"""Words in place of scores of a model of which no five seeds were scored."""
TITLES: Final[Mapping[str, str]] = {
    "edgebank": "EdgeBank",
    "edgebank_window": "EdgeBank with a time window",
    "local_recency": "most recent partners",
    "global_recency": "most recent destinations",
    "popularity": "popularity",
    "poptrack": "PopTrack",
    "pair_then_popularity": "pairs seen before, then popularity",
    "last_value": "last value",
    "historical_mean": "historical mean",
}
"""Predictors that train nothing, by the dimension `method` of their scores."""
SHORT: Final[Mapping[str, str]] = {"mean_squared_error": "MSE", "mean_absolute_error": "MAE"}
"""Metrics by the initials that everybody knows."""
ERRORS: Final = ("mean_squared_error", "mean_absolute_error")
"""Metrics of which less is better."""


def initials(metric: str) -> str:
    """A metric by the initials that everybody knows: `MRR`."""
    return SHORT.get(metric, metric.upper())


@dataclass(frozen=True, slots=True)
class SeedDifference:
    """Mean difference of two scores over seeds, with its 95 % t interval.

    Attributes:
        value, low, high: by how much the first is better than the second. n: seeds.
    """

    value: float
    low: float
    high: float
    n: int

    @property
    def side(self) -> int:
        """1 or -1 where the whole interval lies above or below 0, else 0."""
        return 1 if self.low > 0 else -1 if self.high < 0 else 0


def seed_difference(
    first: Mapping[Any, float], second: Mapping[Any, float], sign: int = 1
) -> SeedDifference | None:
    """Difference of scores by seed over the seeds that both have; None for fewer than `MIN_SEEDS`.

    Scores that are no number leave their seed out.

    Args:
        first, second: scores by seed. sign: -1 for scores of which less is better.
    """
    shared = [seed for seed in first if seed in second]
    gaps = [sign * (first[seed] - second[seed]) for seed in shared]
    gaps = [gap for gap in gaps if math.isfinite(gap)]
    if len(gaps) < MIN_SEEDS:
        return None
    mean = sum(gaps) / len(gaps)
    variance = sum((gap - mean) ** 2 for gap in gaps) / (len(gaps) - 1)
    half = t_quantile(len(gaps) - 1, 0.95) * math.sqrt(variance / len(gaps))
    return SeedDifference(mean, mean - half, mean + half, len(gaps))


@dataclass(frozen=True, slots=True)
class Quality:
    """Quality of a contender.

    Attributes:
        metric: of the scores.
        score: mean over the seeds that are compared.
        reference: difference from the reference; None for a contender without one.
        dictionary: difference from the best predictor that trains nothing; None where none ran.
        method, method_score: that predictor.
        time: seconds until it is as good as the reference; None where that was not measured.
        spread: the score with its interval over seeds; None for fewer than `MIN_SEEDS`.
    """

    metric: str
    score: float
    reference: SeedDifference | None = None
    dictionary: SeedDifference | None = None
    method: str = ""
    method_score: float = math.nan
    time: TimeToQuality | None = None
    spread: SeedDifference | None = None

    @property
    def less(self) -> bool:
        """True if less of the metric is better."""
        return self.metric in ERRORS

    @property
    def below(self) -> bool:
        """True if a predictor that trains nothing is better by its whole interval."""
        return self.dictionary is not None and self.dictionary.side < 0

    @property
    def word(self) -> Word | None:
        """The verdict; None where there is no reference and the dictionary is not better."""
        if self.below:
            return BELOW
        if self.reference is None:
            return None
        return _WORDS[self.reference.side]

    @property
    def scores(self) -> str:
        """The score beside the dictionary's: "MRR 0.042 against 0.366 of most recent partners"."""
        name = self.metric.upper() if len(self.metric) < 4 else self.metric.replace("_", " ")
        own = f"{name} {self.score:.3f}"
        against = f" against {self.method_score:.3f} of {self._method_title}"
        return own if self.dictionary is None else own + against

    @property
    def scores_short(self) -> str:
        """The same in fewer words: "MRR 0.042 ±0.004 (most recent partners 0.366)"."""
        own = f"{initials(self.metric)} {self.score:.3f}{self._margin}"
        beside = f" ({self._method_title} {self.method_score:.3f})"
        return own if self.dictionary is None else own + beside

    @property
    def whole(self) -> str:
        """All of it: "MRR 0.042 ±0.004 over 5 seeds, most recent partners 0.366"."""
        own = f"{initials(self.metric)} {self.score:.3f}{self._margin}"
        if self.spread is not None:
            own += f" over {self.spread.n} seeds"
        beside = f", {self._method_title} {self.method_score:.3f}"
        return own if self.dictionary is None else own + beside

    @property
    def _method_title(self) -> str:
        return TITLES.get(self.method, self.method)

    @property
    def _margin(self) -> str:
        """Half of the interval over seeds, " ±0.004"; "" without one."""
        if self.spread is None:
            return ""
        half = (self.spread.high - self.spread.low) / 2
        return f" ±{half:.3f}" if half >= 0.0005 else f" ±{half:.1g}"

    @property
    def against_reference(self) -> str:
        """Difference in words: "worse by 0.021 [0.010, 0.032]"; "" without a reference."""
        return "" if self.reference is None else f"{_WORDS[self.reference.side]} {self._difference}"

    @property
    def _difference(self) -> str:
        gap = self.reference
        if gap is None:
            return ""
        if gap.side == 0:
            return f"[{gap.low:+.3f}, {gap.high:+.3f}]"
        low, high = sorted((abs(gap.low), abs(gap.high)))
        return f"by {abs(gap.value):.3f} [{low:.3f}, {high:.3f}]"

    @property
    def detail(self) -> str:
        """Numbers behind the verdict: "by 0.021 [0.010, 0.032]"; "" without a verdict."""
        return self.scores if self.below else self._difference

    def __str__(self) -> str:
        if self.word is None:
            return ""
        return f"{self.word}{':' if self.below else ''} {self.detail}"


QualityReader = Callable[[Sequence[Any], Mapping[str, str]], "Quality | None"]
"""(rows of a run, a workload) -> quality of the subject; None where it was not measured."""


def quality(
    metric: str,
    contender: Mapping[Any, float],
    reference: Mapping[Any, float] | None = None,
    dictionaries: Mapping[str, Mapping[Any, float]] | None = None,
) -> Quality | None:
    """Quality of a contender from scores by seed.

    Args:
        metric: of the scores; less is better where it is one of `ERRORS`.
        contender, reference: scores by seed.
        dictionaries: scores by seed of predictors that train nothing. A single score stands for
            all seeds: what neither trains nor draws has none.

    Returns:
        None where fewer than `MIN_SEEDS` seeds pair with the reference or, without a reference,
        with the best dictionary.
    """
    sign = -1 if metric in ERRORS else 1
    against = None if reference is None else seed_difference(contender, reference, sign)
    means = {
        name: sum(scores.values()) / len(scores)
        for name, scores in (dictionaries or {}).items()
        if scores and all(map(math.isfinite, scores.values()))
    }
    best = max(means, key=lambda name: sign * means[name], default="")
    floor = None
    if best:
        scores = (dictionaries or {})[best]
        if len(scores) == 1:
            scores = dict.fromkeys(contender, means[best])
        floor = seed_difference(contender, scores, sign)
    if against is None and (reference is not None or floor is None):
        return None
    whole = {seed: score for seed, score in contender.items() if math.isfinite(score)}
    mean = sum(whole.values()) / len(whole)
    return Quality(
        metric, mean, against, floor, best, means.get(best, math.nan), spread=score_spread(whole)
    )


def score_spread(scores: Mapping[Any, float]) -> SeedDifference | None:
    """Mean of scores by seed with its interval; None for fewer than `MIN_SEEDS`."""
    return seed_difference(scores, dict.fromkeys(scores, 0.0))


def scores_by_seed(found: Table) -> dict[Any, float]:
    """Mean score of each seed of a table; the key is None where a score has no seed."""
    return {seed: sum(part.values) / len(part) for seed, part in found.by("seed").items()}


def observed_quality(
    metric: str = "mrr",
    *,
    contender: Mapping[str, Any],
    reference: Mapping[str, Any] | None = None,
    where: Callable[[Mapping[str, str]], Mapping[str, Any]] = lambda workload: dict(workload),
    experiment: str = "quality",
    validation: str = "",
) -> QualityReader:
    """Reader of a quality from observations of a run.

    Args:
        metric: observed; less is better where it is one of `ERRORS`.
        contender, reference: dimensions that tell their scores apart; where the reference has no
            scores, dictionaries alone decide.
        where: workload -> dimensions that its scores have; those of a predictor that trains
            nothing lack a model and have a `method`.
        experiment: that observes the scores.
        validation: metric that is observed after each epoch; "" for `metric`.
    """

    def read(rows: Sequence[Any], workload: Mapping[str, str]) -> Quality | None:
        here = where(workload)
        own_rows = [row for row in rows if row.experiment == experiment]
        mine = Table.of(own_rows).where(metric, statistic=None, of=None)
        scored = mine.where(metric, method=None, **here)
        own = scores_by_seed(scored.where(metric, **contender))
        other = None if reference is None else scores_by_seed(scored.where(metric, **reference))
        trained = Table.of(own_rows).where(None, **here)
        curves = [
            curves_by_seed(trained.where(None, **who), validation or metric, less=metric in ERRORS)
            for who in (contender, reference or {})
        ]
        untrained = {name: value for name, value in here.items() if name != "model"}
        by_method = mine.where(metric, method=tuple(TITLES), **untrained).by("method")
        dictionaries = {name: scores_by_seed(part) for name, part in by_method.items()}
        found = quality(metric, own, other or None, dictionaries) if own else None
        if found is None or reference is None:
            return found
        return replace(found, time=time_to_quality(*curves))

    return read
