"""Whole trainings beside the arena's rates: quality in words, and steps until it is reached."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dgbench.harness.plugins import Broken, find_paper
from dgbench.harness.trainings import kept_trainings
from dgbench.lab.arena import ArenaRace, RaceEntry
from dgbench.lab.arena_quality import WHOLE, TrainedQuality
from dgbench.lab.quality import TITLES, initials
from dgbench.lab.quality_study import QualityStudy
from dgbench.runtime.errors import DgbenchError


def race_trainings(races: Iterable[ArenaRace]) -> list[Any]:
    """Rows of the whole trainings that races name, in kept runs."""
    papers = {race.task.trained.paper for race in races if race.task.trained is not None}
    return [row for paper in sorted(papers) for row in kept_trainings(paper)]


def quality_text(race: ArenaRace, judged: TrainedQuality | None) -> str:
    """Quality of a race's model in words: its scores over seeds beside the dictionary's, or why
    there are none; "" for a task that trains nothing."""
    if judged is None:
        return ""
    if judged.quality is None:
        return f"model not trained whole: {judged.reason}{dictionary_text(judged)}"
    words = f": {judged.quality.word}" if judged.below else ""
    return f"model trained whole (preset {WHOLE}): {judged.quality.whole}{words} (run {judged.run})"


def dictionary_text(judged: TrainedQuality) -> str:
    """Score of the best predictor that trains nothing, behind a semicolon; "" where none ran."""
    if not judged.method:
        return ""
    reached = f"{initials(judged.metric)} {judged.method_score:.3f}"
    return f"; what trains nothing reaches {reached} ({TITLES[judged.method]})"


def steps_to_quality(race: ArenaRace, judged: TrainedQuality | None) -> int | None:
    """Steps of training until a model is as good as it becomes; None where nothing says so."""
    source = race.task.trained
    if judged is None or judged.epochs is None or source is None or race.task.time != "step_time":
        return None
    try:
        paper = find_paper(source.paper)
    except DgbenchError:
        return None
    if isinstance(paper, Broken):
        return None
    studies = [
        one
        for one in paper.experiments
        if one.name == source.experiment and isinstance(one, QualityStudy)
    ]
    return judged.epochs * studies[0].epoch_work(race.case.settings["dataset"]) if studies else None


def seconds_to_quality(race: ArenaRace, one: RaceEntry, steps: int | None) -> float | None:
    """Seconds of so many steps at a contender's rate; None without either."""
    if steps is None or one.time is None:
        return None
    return steps * one.time
