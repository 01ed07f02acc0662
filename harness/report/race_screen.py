"""The race table as a picture: a line for each race, contenders as dots on one shared log axis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from dgbench.harness.arena_quality import (
    quality_text,
    race_trainings,
    seconds_to_quality,
    steps_to_quality,
)
from dgbench.harness.figures.palette import BASELINES, SYSTEMS
from dgbench.harness.figures.race_words import (
    addition_text,
    gain_text,
    headline,
    lead_text,
    race_title,
    ratio_text,
    shown_rate,
)
from dgbench.harness.figures.words import factor, seconds_text
from dgbench.harness.report.run import RunData
from dgbench.harness.report.site import PaperOnSite, SiteData
from dgbench.harness.trainings import whole_trainings
from dgbench.harness.utilisation import gpu_idle
from dgbench.lab.arena import ArenaRace, RaceEntry
from dgbench.lab.arena_quality import TrainedQuality, trained_quality
from dgbench.lab.quality import TITLES, initials
from dgbench.systems.base.registry import get_system

LINES: Final = 18
"""Races on the first screen; what does not fit stands on the arena's page."""
FURTHER_LINES: Final = 6
"""Races of each further machine."""
TICKS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000)
FASTER_TICKS: Final = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.001)
"""Of contenders that are faster than the fastest that ranks: those with additions of dgbench."""
EDGE: Final = 1.5
"""Percent of the axis that stays free at either end."""


@dataclass(frozen=True, slots=True)
class Dot:
    """A contender on the axis.

    Attributes:
        label: all that its place says, in words. href: its row.
        at, low, high: percent of the axis; low and high are equal without an interval.
        colour: of its system. kind: `released`, `approximate`, `ours` for one with additions of
            dgbench, or "" for one that was re-implemented or is a part of dgbench.
    """

    label: str
    href: str
    at: float
    low: float
    high: float
    colour: str
    kind: str


@dataclass(frozen=True, slots=True)
class Badge:
    """A word on how far a line can be trusted, with what it means."""

    word: str
    meaning: str
    warns: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A race.

    Attributes:
        title: its workload. task: title of its task, where that begins; else "".
        unit: what rates count, and the noise floor of the task's races.
        anchor: of its task on the arena's page.
        winner: who leads, in words. rate: its rate. lead: over whom and by how much.
        parts: (factor, name) of the lead, where it is taken apart.
        gain: of whom over whom, in full.
        additions: each contender with additions of dgbench, and what they make of it.
        quality: of the model, in a few words. judged: in full; "" where nothing is trained.
    """

    title: str
    task: str
    unit: str
    anchor: str
    dots: list[Dot]
    winner: str
    rate: str
    lead: str
    parts: list[tuple[str, str]]
    gain: str
    additions: list[str]
    badges: list[Badge]
    quality: str
    judged: str


@dataclass(frozen=True, slots=True)
class Screen:
    """The race table of a run.

    Attributes:
        sentence: above it. alt: what is seen. races: those of its lines. lines: as they are
            drawn. ticks: (percent, word) of the axis.
        run: whose rows. left: races that are not here. smoke: whether the run is no measurement.
    """

    sentence: str
    alt: str
    races: list[ArenaRace]
    lines: list[Line]
    ticks: list[tuple[float, str]]
    run: RunData
    left: int
    smoke: bool


@dataclass(frozen=True, slots=True)
class MachineTab:
    """Races of one machine.

    Attributes:
        slug: names it on the page. name: in words. measured: day and commit of its run.
        screen: its race table; None where the arena was not run there.
        papers: main races of papers there, each with its heading; for machines without a table.
    """

    slug: str
    name: str
    measured: str
    screen: Screen | None
    papers: list[tuple[PaperOnSite, str]]


def race_tabs(site: SiteData) -> list[MachineTab]:
    """A tab for each machine that has races, the one whose arena raced most first.

    Ratios are never formed over runs: each machine has its own table, by the run that raced most,
    the newest of equal ones. Machines without a run of the arena come last.
    """
    arenas: dict[tuple[str, str], list[_Arena]] = {}
    mains: dict[tuple[str, str], list[tuple[PaperOnSite, str]]] = {}
    newest: dict[tuple[str, str], RunData] = {}
    for paper in site.papers:
        for place, (run, section) in enumerate(paper.sections):
            key = run.machine_slug, run.device
            if section.arena:
                newest.setdefault(key, run)
                arenas.setdefault(key, []).append(
                    _Arena(len(section.arena), -place, run, paper, section.arena)
                )
            elif any(race["row"] for race in section.fastest):
                newest.setdefault(key, run)
                mains.setdefault(key, []).append((paper, section.headline))
    best = {key: max(ran, key=lambda one: one[:2]) for key, ran in arenas.items()}
    first = sorted(best, key=lambda key: best[key][:2], reverse=True)
    keys = [*first, *(key for key in mains if key not in best)]
    tabs = []
    for number, key in enumerate(keys):
        lines = LINES if number == 0 else FURTHER_LINES
        screen, shown = None, newest[key]
        if key in best:
            _, _, shown, owner, races = best[key]
            screen = _screen(site, shown, owner, races, lines)
        slug = key[0] if sum(other[0] == key[0] for other in keys) == 1 else "-".join(key)
        others = [] if screen else mains[key]
        tabs.append(MachineTab(slug, shown.machine_name, shown.measured, screen, others))
    return tabs


def race_screen(site: SiteData) -> Screen | None:
    """The first race table of `race_tabs`; None where the arena was run nowhere."""
    return next((tab.screen for tab in race_tabs(site) if tab.screen is not None), None)


class _Arena(NamedTuple):
    """A run of the arena: ordered by how many races it has, the newest of equal ones last."""

    races_count: int
    newness: int
    run: RunData
    paper: PaperOnSite
    races: Sequence[ArenaRace]


def _screen(
    site: SiteData, run: RunData, paper: PaperOnSite, races: Sequence[ArenaRace], most_lines: int
) -> Screen:
    shown = _chosen([race for race in races if len(race.timed) > 1], most_lines)
    trained = site_trainings(site, shown)
    axis = _axis(shown)
    rows = {row.id: row for row in run.everything}
    lines, before = [], ""
    for race in shown:
        task = race.task.title if race.task.label != before else ""
        before = race.task.label
        judged = trained_quality(race, trained)
        lines.append(_line(race, task, paper.name, run, axis, rows, judged))
    words = headline(races, run.machine_name)
    return Screen(
        sentence=words,
        alt=f"Time of {sum(len(line.dots) for line in lines)} contenders in {len(lines)} races "
        f"over that of the fastest, on one log axis from {factor(axis.low)} to "
        f"{factor(axis.high)}. {_leaders(shown)}",
        races=shown,
        lines=lines,
        ticks=axis.ticks(),
        run=run,
        left=len(races) - len(shown),
        smoke=run.smoke,
    )


def lead_points(screen: Screen) -> list[dict[str, Any]]:
    """Points of a figure of speed-ups: how far each clear leader is before the next.

    A form that was not published has its own title there, not that of its system.
    """
    points = []
    for race in screen.races:
        if race.lead is None or not race.decided:
            continue
        leader, title = race.timed[0].family, race.timed[0].entrant.title
        published = leader in SYSTEMS and title == get_system(leader).title
        points.append({
            "row": f"{race.task.name.replace('-', ' ')}: {race_title(race)}",
            "twin": race.twin,
            "system": leader if published else title,
            "baseline": "the next system",
            "value": race.lead.value,
            "low": race.lead.low,
            "high": race.lead.high,
            "row_ids": list(race.timed[0].rows),
        })  # fmt: skip
    return points


def site_trainings(site: SiteData, races: Sequence[ArenaRace]) -> list[Any]:
    """Rows of whole trainings of a site's runs; a run's report takes those that are kept here."""
    found = [row for run in site.runs for row in whole_trainings(run.everything)]
    return found if site.merged else [*race_trainings(races), *found]


def _chosen(races: Sequence[ArenaRace], most: int) -> list[ArenaRace]:
    """At most so many races, the first ones of each task in turns, in the order they came in."""
    by_task: dict[str, list[ArenaRace]] = {}
    for race in races:
        by_task.setdefault(race.task.label, []).append(race)
    kept: set[int] = set()
    for number in range(len(races)):
        for mine in by_task.values():
            if number < len(mine) and len(kept) < most:
                kept.add(id(mine[number]))
    return [race for race in races if id(race) in kept]


class _Axis(NamedTuple):
    """A log axis of ratios from `low`, at most 1, to `high`."""

    low: float
    high: float

    def place(self, ratio: float) -> float:
        """Percent of the axis."""
        inside = min(max(ratio, self.low), self.high)
        share = math.log(inside / self.low) / math.log(self.high / self.low)
        return round(EDGE + (100 - 2 * EDGE) * share, 2)

    def ticks(self) -> list[tuple[float, str]]:
        """(percent, word) of the ticks on it."""
        all_ticks = (*reversed(FASTER_TICKS), *TICKS)
        return [(self.place(one), f"{one:g}x") for one in all_ticks if self.low <= one <= self.high]


def _axis(races: Sequence[ArenaRace]) -> _Axis:
    """The axis that holds all ratios of races and the ends of their intervals."""
    ratios = [
        one.ratio
        for race in races
        for one in (*race.timed, *race.additions)
        if one.ratio is not None
    ]
    most = max((max(one.value, one.high or 0.0) for one in ratios), default=2.0)
    least = min((min(one.value, one.low or one.value) for one in ratios), default=1.0)
    high = next((tick for tick in TICKS if tick >= most), most)
    low = next((tick for tick in (1, *FASTER_TICKS) if tick <= least), least)
    return _Axis(low, max(high, 2))


def _leaders(races: Iterable[ArenaRace]) -> str:
    names: dict[str, int] = {}
    tied = False
    for race in races:
        tied |= not race.decided
        if race.decided:
            names[race.timed[0].entrant.title] = names.get(race.timed[0].entrant.title, 0) + 1
    if not names:
        return "In none of them are the first ones told apart."
    said = [f"{name} leads {n}" for name, n in sorted(names.items(), key=lambda one: -one[1])]
    rest = "; in the rest the first ones are not told apart" if tied else ""
    return f"{', '.join(said)}{rest}."


def _line(
    race: ArenaRace,
    task: str,
    paper: str,
    run: RunData,
    axis: _Axis,
    rows: Mapping[str, Any],
    judged: TrainedQuality | None,
) -> Line:
    first, next_one = race.timed[0], race.rival or race.timed[1]
    steps = steps_to_quality(race, judged)
    if race.lead is None:
        lead = f"before {next_one.entrant.title}, no interval"
    elif race.decided:
        lead = f"{lead_text(race)} over {next_one.entrant.title}"
    else:
        others = race.leaders[1:]
        lead = f"same: {others[0].entrant.title if len(others) == 1 else f'{len(others)} others'}"
    words = quality_text(race, judged)
    seconds = seconds_to_quality(race, first, steps)
    if seconds is not None:
        words += f"; as good after {steps:,} steps, {seconds_text(seconds)} at this rate"
    return Line(
        title=race_title(race),
        task=task,
        unit=_unit(race),
        anchor=f"papers/{paper}.html#exp-{race.task.name}",
        dots=[
            _dot(race, one, run, axis, steps) for one in (*reversed(race.timed), *race.additions)
        ],
        winner=first.entrant.title,
        rate=shown_rate(first.rate or 0.0),
        lead=lead,
        parts=_parts(race, next_one),
        gain=gain_text(race),
        additions=[f"{one.entrant.title}: {addition_text(one)}" for one in race.additions],
        badges=_badges(race, first, judged, [rows[one] for one in first.rows if one in rows]),
        quality=short_quality(judged, seconds),
        judged=words,
    )


def _parts(race: ArenaRace, rival: RaceEntry) -> list[tuple[str, str]]:
    """Factors of the lead; none where the task takes the gain of another pair apart."""
    whole, first = race.breakdown, race.timed[0]
    if whole is None or (whole.fast, whole.slow) != (first.name, rival.name):
        return []
    return [(factor(one.value), name) for name, one in whole.parts.items()]


def _unit(race: ArenaRace) -> str:
    """`events/s`, with the noise floor that the race is judged by where one was measured."""
    floor = max((one.ratio.floor for one in race.timed if one.ratio is not None), default=0.0)
    return f"{race.task.unit}/s" + (f", noise floor ±{100 * floor:.1f} %" if floor else "")


def short_quality(judged: TrainedQuality | None, seconds: float | None) -> str:
    """Quality in as few words as a line has room for."""
    if judged is None:
        return ""
    if judged.quality is None:
        best = (
            f"{TITLES[judged.method]} {initials(judged.metric)} {judged.method_score:.3f}"
            if judged.method
            else ""
        )
        return f"not trained whole; {best or judged.reason}"
    after = f" after {seconds_text(seconds)}" if seconds is not None else ""
    return f"{judged.quality.scores_short}{after}"


def _dot(race: ArenaRace, one: RaceEntry, run: RunData, axis: _Axis, steps: int | None) -> Dot:
    ratio = one.ratio
    at = 1.0 if ratio is None else ratio.value
    low, high = (at, at) if ratio is None or ratio.low is None else (ratio.low, ratio.high or at)
    seconds = seconds_to_quality(race, one, steps)
    words = [
        f"{one.entrant.title}: {shown_rate(one.rate or 0.0)} {race.task.unit}/s, {ratio_text(one)}",
        "same mathematics" if one.entrant.exact else "approximate",
        one.entrant.provenance,
        f"{seconds_text(seconds)} to its model's quality" if seconds is not None else "",
        addition_text(one) if one in race.additions else "",
    ]
    mark = SYSTEMS.get(one.family, BASELINES[1])
    kind = "released" if one.entrant.code == "released" else ""
    if one in race.additions:
        kind = "ours"
    elif not one.entrant.exact:
        kind = "approximate"
    return Dot(
        label="; ".join(word for word in words if word),
        href=run.row_href(one.rows[0]) if one.rows else "",
        at=axis.place(at),
        low=axis.place(low),
        high=axis.place(high),
        colour=mark.colour,
        kind=kind,
    )


def _badges(
    race: ArenaRace, first: RaceEntry, judged: TrainedQuality | None, rows: Sequence[Any]
) -> list[Badge]:
    """Badges of the leader: mathematics or quality, data, code, and what the device did."""
    idle = gpu_idle(rows)
    below = judged is not None and judged.below
    if below:
        mathematics = Badge("below dictionary", quality_text(race, judged), warns=True)
    elif first.entrant.exact:
        mathematics = Badge("same maths", f"compared: {race.task.quality}")
    else:
        mathematics = Badge("approximate", "its results are not those of the others", warns=True)
    code = "re-impl." if first.entrant.code == "re-implemented" else first.entrant.code
    if race.device != "cuda":
        device = Badge("CPU", "no device was used")
    elif idle is not None:
        device = Badge("GPU idle", idle.words, warns=True)
    else:
        device = Badge("GPU", "the device was not idle, or told nothing of its use")
    return [
        mathematics,
        Badge("twin", "synthetic data", warns=True) if race.twin else Badge("real", "real data"),
        Badge(code, first.entrant.provenance or "no origin is stated"),
        device,
    ]
