"""Every race of a site, from the points of its speed-up figures, whichever way it went."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from dgbench.harness.claims.shown import digits
from dgbench.harness.figures.style import side, with_interval
from dgbench.harness.report.run import FAILED, STATUS_MEANING, RunData
from dgbench.harness.report.site import SiteData
from dgbench.harness.report.subjects import Side, Systems
from dgbench.harness.utilisation import IDLE
from dgbench.lab.charts import failure_of, marked

OUTCOMES: Final = (
    "faster",
    "slower",
    "same",
    "undecided",
    "failed",
    "other failed",
    "not run",
    "smoke",
    "projected",
)
FLIPPED: Final = {"faster": "slower", "slower": "faster"}
MARKS: Final = {"faster": "fast", "slower": "slow", "same": "same", "undecided": "ambg"}


@dataclass(frozen=True, slots=True)
class RacePoint:
    """One point of a speed-up figure, as one of its two sides sees it.

    Attributes:
        run: where it was measured. paper, experiment, figure, title: where it is shown.
        workload: its row and panel, with "(twin)" where the data were synthetic.
        system, against: its two sides.
        own: the side that sees it, a system's name. other: the other side's, "" where it is no
            system of its own.
        baseline: whether `own` is the baseline of it.
        outcome: of `OUTCOMES`, for `own`. point: as drawn; `value` is always baseline / system.
    """

    run: RunData
    paper: str
    experiment: str
    figure: str
    title: str
    workload: str
    system: Side
    against: Side
    own: str
    other: str
    baseline: bool
    outcome: str
    point: dict[str, Any]

    @property
    def factor(self) -> str:
        """`2.1x [1.9, 2.3]`, as the figure says it; "" without a value."""
        if self.point.get("failed"):
            return ""
        p = self.point
        text = with_interval(p["value"], p.get("low"), p.get("high"))
        stamped = f"{text}, {IDLE}" if p.get("idle") else text
        return f"would be {text}" if p.get("projected") else stamped

    @property
    def reason(self) -> str:
        """Why there is no value, and whose fault it is; "" where there is one."""
        if not self.point.get("failed"):
            return ""
        failure, who = failure_of(self.point), str(self.point.get("failed_system") or "")
        text = failure.words(STATUS_MEANING)
        return f"{who}: {text}" if who else text

    @property
    def mark(self) -> str:
        """CSS class of the outcome's glyph."""
        return MARKS.get(self.outcome, "")

    @property
    def row(self) -> str:
        """The first row that it rests on, or ""."""
        return next(iter(self.point.get("row_ids") or ()), "")


def all_races(site: SiteData, systems: Systems) -> list[RacePoint]:
    """Races of all figures, once for each of its sides that is a system."""
    found = []
    for paper in site.papers:
        for run, section in paper.sections:
            named = {row.system for row in run.rows if row.paper == paper.name} - {""}
            for part in section.sections:
                for drawn in part.figures:
                    if drawn.kind == "speedup":
                        sketch = part.sketch(drawn.name)
                        contenders = sketch.contenders if sketch is not None else {}
                        read = partial(systems.side, contenders=contenders, settings=named)
                        for point in drawn.points:
                            found += _sides(point, (run, paper, part.name, drawn), read)
    return found


def _sides(point: dict[str, Any], where: tuple, read: Callable[[str], Side]) -> list[RacePoint]:
    run, paper, experiment, drawn = where
    if point.get("rest"):  # a mean over workloads is no race
        return []
    system, against = (read(str(point[key])) for key in ("system", "baseline"))
    # A system's side that is no system is a setting of the paper's own.
    own, other = system.name or paper.paper.system, against.name
    failed = str(point.get("failed_system") or "")
    made = []
    for mine, yours, baseline in ((own, other, False), (other, own, True)):
        if not mine or (baseline and own == other):
            continue
        at_fault = failed in ("", str(point["baseline" if baseline else "system"]))
        at_fault = at_fault or read(failed).name == mine
        made.append(
            RacePoint(
                run=run,
                paper=paper.name,
                experiment=experiment,
                figure=drawn.name,
                title=drawn.title,
                workload=_workload(point),
                system=system,
                against=against,
                own=mine,
                other=yours,
                baseline=baseline,
                outcome=_outcome(
                    point, run, run.floor(paper.paper, experiment), at_fault, baseline
                ),
                point=point,
            )
        )
    return made


def _workload(point: dict[str, Any]) -> str:
    row, panel = (str(point.get(key) or "") for key in ("row", "panel"))
    row = marked(row, point.get("twin"), panel)
    return f"{row}, {panel}" if panel else row


def _outcome(
    point: dict[str, Any], run: RunData, floor: float | None, at_fault: bool, baseline: bool
) -> str:
    """Of a side. floor: noise floor of the race. at_fault: whether a failure is its own."""
    if point.get("failed"):
        if failure_of(point).status not in FAILED:
            return "not run"
        return "failed" if at_fault else "other failed"
    if point.get("projected"):
        return "projected"
    if run.smoke:
        return "smoke"
    found = side(point, floor)
    return FLIPPED.get(found, found) if baseline else found


def tally(races: Iterable[RacePoint]) -> dict[str, int]:
    """Races by outcome, all of `OUTCOMES`; they sum to their number."""
    counts = dict.fromkeys(OUTCOMES, 0)
    for race in races:
        counts[race.outcome] += 1
    return counts


def sentence(title: str, races: Sequence[RacePoint], installed: Iterable[str]) -> str:
    """A heading that could be false; what failed or did not run is in its denominator.

    It speaks of races against other installed systems, where there are any.
    """
    against = set(installed)
    systems = [r for r in races if r.other in against and r.outcome not in ("projected", "smoke")]
    counts = tally(systems or races)
    if systems:
        races, title = systems, f"{title} against other systems"
    tried = len(races) - counts["projected"] - counts["smoke"]
    if not tried:
        more = counts["projected"]
        return f"{title}: {f'{more} projected races, none measured' if more else 'in no race here'}"
    of = f"{tried} race" if tried == 1 else f"{tried} races"
    if counts["faster"] == counts["slower"] == 0:
        return f"{title}: shown faster or slower in none of {of}"
    return f"{title}: faster in {counts['faster']} of {of}, slower in {counts['slower']}"


def rest_words(counts: dict[str, int]) -> str:
    """Describe the races that are neither faster nor slower, in words; "" for none."""
    words = {
        "same": "{} the same inside the noise floor",
        "undecided": "{} undecided (no interval leaves 1x out)",
        "failed": "{} failed here",
        "other failed": "in {} the other side failed",
        "not run": "{} not run",
        "smoke": "{} of smoke runs, which measure nothing",
        "projected": "{} projected by a model",
    }
    return "; ".join(w.format(counts[k]) for k, w in words.items() if counts[k])


def by_figure(races: Sequence[RacePoint]) -> list[dict[str, Any]]:
    """One line per figure, run and side: counts, and the lowest and highest factor."""
    groups: dict[tuple, list[RacePoint]] = {}
    for race in races:
        key = (race.paper, race.experiment, race.figure, race.run.slug, race.baseline)
        groups.setdefault(key, []).append(race)
    return [_line(group) for group in groups.values()]


def _line(group: list[RacePoint]) -> dict[str, Any]:
    valued = sorted((r for r in group if r.factor), key=lambda r: r.point["value"])
    return {
        "first": group[0],
        "total": len(group),
        "counts": tally(group),
        "against": list(
            dict.fromkeys((r.system if r.baseline else r.against).described for r in group)
        ),
        "low": valued[0] if valued else None,
        "high": valued[-1] if len(valued) > 1 else None,
    }


def short(race: RacePoint) -> str:
    """`2.1x`."""
    text = f"{digits(race.point['value'])}x"
    return f"would be {text}" if race.point.get("projected") else text
