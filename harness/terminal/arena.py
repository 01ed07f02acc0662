"""The race table of the arena as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dgbench.harness.arena_quality import quality_text
from dgbench.harness.figures.race_words import (
    addition_text,
    gain_text,
    headline,
    quotable,
    race_title,
    ratio_text,
    reason_text,
    shown_rate,
)
from dgbench.harness.terminal.text import NARROW, WIDTH, wrapped
from dgbench.lab.arena import ArenaRace, Division, RaceEntry
from dgbench.lab.arena_quality import trained_quality
from dgbench.lab.noise import NoisePairs

NAME_WIDTH = 30
"""Columns of a contender's name."""


def arena_races(
    papers: Iterable[Any],
    rows: Sequence[Any],
    *,
    with_ours: bool = False,
    division: Division = "base",
) -> list[ArenaRace]:
    """Every race of the arena's tasks that rows have, with the noise floor of the run.

    Args:
        with_ours: whether contenders with additions of dgbench rank, too.
        division: whose rows count.
    """
    pairs = NoisePairs.of(rows)
    found = []
    for paper in papers:
        for experiment in paper.experiments:
            if experiment.arena_task is not None:
                floor = pairs.floor(paper, [experiment.name]) or 0.0
                found += experiment.races(rows, floor, with_ours=with_ours, division=division)
    return found


def race_table(
    races: Sequence[ArenaRace], width: int = WIDTH, trained: Sequence[Any] = (), where: str = ""
) -> str:
    """A block for each task, in it one for each dataset: contenders by speed, then a sentence.

    Args:
        races: to show. width: of the terminal.
        trained: rows of whole trainings, which say how well the models predict.
        where: machine in words, for the sentence on all races in the end; "" leaves it out.
    """
    blocks: list[str] = []
    by_task: dict[str, list[ArenaRace]] = {}
    for race in races:
        by_task.setdefault(race.task.label, []).append(race)
    for label, mine in by_task.items():
        head = f"{label}: {mine[0].task.unit}/s, and time over that of the fastest"
        lines = [wrapped(head, "", width)]
        timed = [race for race in mine if race.timed]
        for race in timed:
            lines += [
                wrapped(race_title(race), "  ", width),
                *(_line(one, width) for one in race.timed),
                *(_addition(one, width) for one in race.additions),
            ]
            if judged := trained_quality(race, trained):
                lines += [wrapped(quality_text(race, judged), "    ", width)]
        lines += _absent(mine, width)
        lines += _provenance(mine, width)
        lines += [wrapped(quotable(timed or mine), "  ", width)]
        lines += [
            wrapped(f"{race_title(race)}: {gain_text(race)}", "  ", width)
            for race in timed
            if gain_text(race)
        ]
        blocks.append("\n".join(line for line in lines if line))
    if where and len(races) > 1:
        blocks.append(wrapped(f"{headline(races, where)}.", "", width))
    return "\n\n".join(blocks)


def tuned_hint(races: Sequence[ArenaRace], width: int = WIDTH) -> str:
    """Sentence on where races of the tuned division are shown; "" without any."""
    entered = sum(one.rate is not None for race in races for one in race.entries)
    if not entered:
        return ""
    return wrapped(
        f"Tuned division, apart from the table: {entered} times of contenders with settings of "
        "their own. See them under 'Tuned' on the report's page papers/arena.html, or in a table "
        "with division=tuned: dgbench export tuned.csv --paper arena",
        "", width,
    )  # fmt: skip


def _line(one: RaceEntry, width: int) -> str:
    """A contender: its name, rate, and how many times the fastest one's time it takes."""
    name, rate = one.entrant.title, shown_rate(one.rate or 0.0)
    if width < NARROW:
        return wrapped(f"{name}: {rate}, {ratio_text(one)}", "    ", width)
    return f"    {_cut(name, NAME_WIDTH):{NAME_WIDTH}}  {rate:>7}  {ratio_text(one)}"


def _addition(one: RaceEntry, width: int) -> str:
    """A contender with additions of dgbench, which does not rank: what they make of it."""
    name, rate = f"({one.entrant.title})", shown_rate(one.rate or 0.0)
    if width < NARROW:
        return wrapped(f"{name}: {rate}, {addition_text(one)}", "    ", width)
    return f"    {_cut(name, NAME_WIDTH):{NAME_WIDTH}}  {rate:>7}  {addition_text(one)}"


def _cut(text: str, width: int) -> str:
    """A name that fits its column."""
    return text if len(text) <= width else text[: width - 3] + "..."


def _absent(races: Sequence[ArenaRace], width: int) -> list[str]:
    """Contenders without a time in any race of a task, with the reason."""
    timed = {one.name for race in races for one in (*race.timed, *race.additions)}
    reasons: dict[str, list[str]] = {}
    for race in races:
        for one in race.entries:
            if one.name not in timed:
                names = reasons.setdefault(reason_text(one), [])
                if one.entrant.title not in names:
                    names.append(one.entrant.title)
    return [wrapped(f"{', '.join(names)}: {why}", "    ", width) for why, names in reasons.items()]


def _provenance(races: Sequence[ArenaRace], width: int) -> list[str]:
    """Provenance of each timed contender: a release, or what it was re-implemented from."""
    titles: dict[str, list[str]] = {}
    timed = {one.name: one for race in races for one in (*race.timed, *race.additions)}
    for one in timed.values():
        if one.entrant.provenance:
            titles.setdefault(one.entrant.provenance, []).append(one.entrant.title)
    return [wrapped(f"{', '.join(names)}: {what}", "    ", width) for what, names in titles.items()]
