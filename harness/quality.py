"""Quality of the models whose speed is measured: what readers of main races find in rows."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dgbench.lab.main_race import RaceComparison
from dgbench.lab.quality import NOT_MEASURED, Quality

log = logging.getLogger(__name__)


def quality_of(
    comparison: RaceComparison, rows: Sequence[Any], workload: Mapping[str, str]
) -> Quality | None:
    """Quality of the subject's model on a workload; None where no reader finds one."""
    if comparison.quality is None:
        return None
    try:
        return comparison.quality(rows, workload)
    except Exception as error:  # plugin code: verdicts and pages must still be formed
        log.warning("quality of %s on %s: %s", comparison.subject, dict(workload), error)
        return None


Judged = dict[tuple[str, str], Quality | None]
"""Quality by experiment and workload in words."""


def race_quality(
    paper: Any, used: Iterable[Any], rows: Sequence[Any], known: Judged | None = None
) -> dict[str, Quality | None]:
    """Quality of the subject's model on workloads of main races, None where it was not measured.

    Args:
        paper: says which races have a reader of quality. used: rows that a speed rests on.
        rows: all rows of the paper, among which scores are.
        known: what calls with the same `paper` and `rows` have judged; this one adds to it.

    Returns:
        Workload in words -> quality; empty where no row is one of a main race.
    """
    found: dict[str, Quality | None] = {}
    used = list(used)
    known = {} if known is None else known
    for experiment in paper.experiments:
        race = experiment.main_race
        params = [row.params for row in used if race and row.experiment == experiment.name]
        for workload in (one for each in params for one in race.workloads(each)):
            words = " ".join(workload.values())
            if words in found:
                continue
            key = experiment.name, words
            if key not in known:
                judged = (quality_of(one, rows, workload) for one in race.comparisons)
                known[key] = next((one for one in judged if one is not None), None)
            found[words] = known[key]
    return found


def below_dictionary(
    paper: Any, used: Iterable[Any], rows: Sequence[Any], known: Judged | None = None
) -> dict[str, str]:
    """Scores in words by workload of main races whose model predicts worse than a dictionary.

    Args:
        paper, used, rows, known: see `race_quality`.
    """
    judged = race_quality(paper, used, rows, known)
    return {words: one.detail for words, one in judged.items() if one is not None and one.below}


def mark_quality(
    points: Iterable[dict[str, Any]], paper: Any, rows: Sequence[Any]
) -> list[dict[str, Any]]:
    """Points of a race with what the model of each speed has learned.

    Args:
        points: with `row_ids`. paper, rows: see `race_quality`.

    Returns:
        Points of main races with `quality`, scores in words or `NOT_MEASURED`; with `below` where a
        predictor that trains nothing is better; with the time to the reference's quality where one
        was trained beside it. Others as they are.
    """
    by_id = {row.id: row for row in rows}
    marked = []
    known: Judged = {}
    for point in points:
        used = [by_id[name] for name in point.get("row_ids") or [] if name in by_id]
        judged = {} if point.get("failed") else race_quality(paper, used, rows, known)
        if judged:
            measured = [one for one in judged.values() if one is not None]
            whole = len(measured) == len(judged)
            words = "; ".join(_in_words(one) for one in measured) if whole else NOT_MEASURED
            point = {**point, "quality": words}
            if below := "; ".join(one.detail for one in measured if one.below):
                point["below"] = below
        marked.append(point)
    return marked


def _in_words(quality: Quality) -> str:
    """Scores, and the time until they are those of the reference where it was measured."""
    return f"{quality.scores}, {quality.time}" if quality.time else quality.scores
