"""Quality of the models whose speed is measured: what readers of main races find in rows."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dgbench.lab.main_race import RaceComparison
from dgbench.lab.quality import Quality

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


def below_dictionary(paper: Any, used: Iterable[Any], rows: Sequence[Any]) -> dict[str, str]:
    """Workloads of main races in these rows whose model predicts worse than a dictionary.

    Args:
        paper: says which races have a reader of quality. used: rows that a speed rests on.
        rows: all rows of the paper, among which scores are.

    Returns:
        Workload in words -> scores in words; empty where quality was not measured.
    """
    found: dict[str, str] = {}
    used = list(used)
    for experiment in paper.experiments:
        race = experiment.main_race
        judged = [one for one in race.comparisons if one.quality] if race else []
        params = [row.params for row in used if judged and row.experiment == experiment.name]
        for workload in (one for each in params for one in race.workloads(each)):
            words = " ".join(workload.values())
            if words in found:
                continue
            for quality in (quality_of(one, rows, workload) for one in judged):
                if quality is not None and quality.below:
                    found[words] = quality.detail
    return found


def mark_quality(
    points: Iterable[dict[str, Any]], paper: Any, rows: Sequence[Any]
) -> list[dict[str, Any]]:
    """Points of a race with `below`: that the model of a speed predicts worse than a dictionary.

    Args:
        points: with `row_ids`. paper, rows: see `below_dictionary`.
    """
    by_id = {row.id: row for row in rows}
    marked = []
    for point in points:
        used = [by_id[name] for name in point.get("row_ids") or [] if name in by_id]
        below = {} if point.get("failed") else below_dictionary(paper, used, rows)
        marked.append({**point, "below": "; ".join(below.values())} if below else point)
    return marked
