"""Report of one run on one paper: its experiments, its figures, and the words around them."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dgbench.harness.claims.evaluate import PaperVerdicts, evaluate
from dgbench.harness.claims.shown import digits
from dgbench.harness.claims.verdict import Verdict
from dgbench.harness.figures.draw import DrawnFigure
from dgbench.harness.figures.over_time import summary
from dgbench.harness.figures.race_words import listed, quotable
from dgbench.harness.quality import mark_quality
from dgbench.harness.report.boards import board_points, ratio_points
from dgbench.harness.report.devices import device_sketches, main_race_rows
from dgbench.harness.report.failures import without_result
from dgbench.harness.report.quote import before_you_quote
from dgbench.harness.report.races import fastest, main_race
from dgbench.harness.report.reuse import Sketch
from dgbench.harness.report.run import FAILED, RunData
from dgbench.harness.report.series import over_time_options, over_time_points
from dgbench.harness.report.words import own_dataset
from dgbench.harness.store.standing import void_reasons
from dgbench.harness.terminal.answer import RunFacts, answers
from dgbench.harness.trainings import with_trainings
from dgbench.harness.utilisation import IdleGpu, gpu_idle, mark_idle
from dgbench.lab.arena import ArenaRace
from dgbench.lab.quality import BELOW

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Section:
    """One experiment on a page; its sketches become its figures, in their order, its races of a
    task of the arena a table, and those of the tuned division one under a click."""

    name: str
    title: str
    question: str
    reading: str
    answer: str
    state: str
    command: str
    figures: list[DrawnFigure]
    claims: list[tuple[Any, Verdict]]
    failed: list[dict[str, str]]
    rows: int
    note: str = ""
    races: list[ArenaRace] = field(default_factory=list)
    tuned: list[ArenaRace] = field(default_factory=list)
    sketches: list[Sketch] = field(default_factory=list)

    def sketch(self, name: str) -> Sketch | None:
        """The sketch of a figure; None where it has none of that name."""
        return next((sketch for sketch in self.sketches if sketch.name == name), None)


@dataclass(slots=True)
class PaperSection:
    """One paper in one run.

    Attributes:
        paper, verdicts, sections: the plugin, its claims decided, its experiments.
        board, versus, over_time: figures of the paper as a whole, where there is something to draw.
        fastest: per workload of the main race the fastest correct system.
        quote: what a reader must know before passing a number on.
        found: sentences that say how much faster the paper's system was.
        race: rows of the main race. idle: whether they left their GPU idle.
    """

    paper: Any
    verdicts: PaperVerdicts
    sections: list[Section]
    board: DrawnFigure | None = None
    versus: DrawnFigure | None = None
    over_time: DrawnFigure | None = None
    fastest: list[dict[str, Any]] = field(default_factory=list)
    quote: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    sketches: dict[str, Sketch] = field(default_factory=dict)
    race: list[Any] = field(default_factory=list)
    idle: IdleGpu | None = None

    @property
    def name(self) -> str:
        """The paper's name."""
        return self.paper.name

    @property
    def claims(self) -> list[tuple[Any, Verdict]]:
        """Every claim with its verdict, in ledger order."""
        return list(zip(self.verdicts.claims, self.verdicts.verdicts, strict=True))

    @property
    def main(self) -> tuple[Section, DrawnFigure] | None:
        """The figure that stands on the overview: the main race, else the first figure."""
        drawn = [(e, f) for e in self.sections for f in e.figures if not f.empty]
        race = main_race(self.sections)
        races = [pair for pair in drawn if pair[1] is race]
        return next(iter(races or drawn), None)

    @property
    def arena(self) -> list[ArenaRace]:
        """Races of tasks of the arena in which anything was timed."""
        return [race for one in self.sections for race in one.races if race.timed]

    @property
    def headline(self) -> str:
        """A heading that could be false; models below the dictionary and an idle GPU are named."""
        below = sum(bool(f["own"].get("below")) for f in self.fastest)
        words = [f"the model predicts {BELOW} on {below} of {len(self.fastest)}"] if below else []
        return "; ".join([self._answer, *words, *([self.idle.words] if self.idle else [])])

    @property
    def _answer(self) -> str:
        """On how many workloads the paper's system is faster, and by how much."""
        title, counts = self.paper.title, self.verdicts.counts
        total = len(self.verdicts.verdicts)
        if self.arena:
            return f"{title}: {quotable(self.arena)}".rstrip(".")
        declared = any(one.main_race for one in self.paper.experiments)
        races = [f for f in self.fastest if f["own"]] if declared else []
        if not races:
            return f"{title}: {counts['R']} of {total} claims reproduced"
        faster = [f for f in races if f["faster"]]
        slower = sum(f["slower"] for f in races)
        behind = f", slower on {slower}" if slower else ""
        if not faster:
            return f"{title}: faster on none of {len(races)} workloads{behind}"
        low, high = (pick(f["own"]["value"] for f in faster) for pick in (min, max))
        ends = [f"{digits(value)}x" for value in (low, high)]
        span = f"by {' to '.join(dict.fromkeys(ends))}"
        over = list(dict.fromkeys(f["baseline"] for f in faster))
        rest = [b for b in dict.fromkeys(f["baseline"] for f in races) if b not in over]
        if not rest:
            than = f" than {over[0]}" if len(over) == 1 else ""
            return (
                f"{title}: faster{than} on {len(faster)} of {len(races)} workloads, {span}{behind}"
            )
        # who was not passed says as much as who was
        apart = [[name.replace(", ", " with ") for name in names] for names in (over, rest)]
        said = f"{span} over {listed(apart[0])}; not over {listed(apart[1])}"
        behind = f"; slower in {slower}" if slower else ""
        return f"{title}: faster in {len(faster)} of {len(races)} races, {said}{behind}"


def collect(paper: Any, run: RunData, trained: Sequence[Any] = ()) -> PaperSection:
    """Decide a paper's claims on a run and sketch its figures; nothing is drawn yet.

    Args:
        trained: rows of whole trainings of other runs, for speeds of a run that has none; no
            verdict rests on them.
    """
    verdicts = evaluate(paper, run.everything)
    rows = [r for r in run.rows if r.paper == paper.name]
    by_id = {claim.id: (claim, verdict) for claim, verdict in
             zip(verdicts.claims, verdicts.verdicts, strict=True)}  # fmt: skip
    scored = with_trainings(rows, trained)
    shown = PaperSection(
        paper, verdicts, [_section(paper, e, rows, by_id, run, scored) for e in paper.experiments]
    )
    shown.race = main_race_rows((s for e in shown.sections for s in e.sketches), rows)
    shown.idle = gpu_idle(shown.race)
    shown.sketches["board"] = Sketch(
        "claim_board", "claims", f"Claims of {paper.title}", board_points(verdicts)
    )
    ratios = ratio_points(verdicts)
    if any(not p.get("failed") for p in ratios):
        shown.sketches["versus"] = Sketch(
            "paper_vs_measured", "paper_vs_measured", "Paper against measured", ratios
        )
    if series := _over_time(paper, run):
        shown.sketches["over_time"] = series
    shown.quote = before_you_quote(paper, verdicts, run, rows, scored)
    shown.found = answers([paper], run.everything, RunFacts.of(run.store), trained)
    return shown


def sketches_of(shown: PaperSection) -> Iterator[Sketch]:
    """All sketches of a paper in a fixed order; `put_figures` takes the drawings in this order."""
    for section in shown.sections:
        yield from section.sketches
    yield from shown.sketches.values()


def put_figures(shown: PaperSection, drawings: Sequence[DrawnFigure | str], run: RunData) -> None:
    """Put drawings in the places of their sketches, and say who is fastest."""
    left = iter(drawings)
    for section in shown.sections:
        found = [next(left) for _ in section.sketches]
        section.figures = [_in_strips(f) for f in found if isinstance(f, DrawnFigure)]
        notes = [section.note, *(f for f in found if isinstance(f, str))]
        section.note = "; ".join(n for n in notes if n)
    for name in shown.sketches:
        drawn = next(left)
        setattr(shown, name, _in_strips(drawn) if isinstance(drawn, DrawnFigure) else None)
    if not run.smoke:  # a heading must not rest on times that are no measurement
        raced = main_race(shown.sections)
        owner = next((s.name for s in shown.sections if raced in s.figures), "") if raced else ""
        shown.fastest = fastest(shown.paper, shown.sections, run.context(shown.paper, owner))


def _in_strips(drawn: DrawnFigure) -> DrawnFigure:
    """A figure over time with strips for its table, not a thousand readings; any other as is."""
    if drawn.kind != "over_time":
        return drawn
    return dataclasses.replace(drawn, points=[_strip(line) for line in summary(drawn.points)])


def _strip(line: dict[str, Any]) -> dict[str, Any]:
    """A strip of a figure over time in the keys that tables of values know."""
    unit = f" ({line['unit']})" if line["unit"] else ""
    return {
        "row": f"{line['strip']}{unit}",
        "system": line["system"],
        "low": line["least"],
        "high": line["peak"],
        "limit": line["limit"],
        "failed": line["note"],
        "row_ids": line["row_ids"],
    }


def _section(
    paper: Any,
    experiment: Any,
    rows: Sequence[Any],
    by_id: dict,
    run: RunData,
    scored: Sequence[Any],
) -> Section:
    mine = [r for r in rows if r.experiment == experiment.name]
    command = f"dgbench run {experiment.paper}/{experiment.name}"
    command += own_dataset(mine[0]) if mine else ""
    presets = {r.preset for r in mine if r.preset} or {run.info.get("preset") or "quick"}
    if len(presets) == 1 and presets != {"quick"}:
        command += f" --preset {presets.pop()}"
    # Without numbers of a wrong contender, what needs them cannot be formed.
    notes = list(dict.fromkeys(why for r in mine if r.ok for why in void_reasons(r)))
    lost = notes[0] if notes else ""
    answer, sketches = "", []
    if mine:
        try:
            answer = experiment.answer(mine)
        except Exception as error:  # plugin code: the page must still be written
            said = lost or f"{type(error).__name__}: {error}"
            notes.append(f"its answer cannot be formed: {said}")
        try:
            specs = experiment.figures()
        except Exception as error:
            specs = []
            notes.append(f"its figures cannot be had: {type(error).__name__}: {error}")
        for spec in specs:
            try:
                points = list(spec.points([*mine, *run.machine_rows]))
            except Exception as error:
                log.warning("figure %s/%s: %s", experiment.paper, spec.name, error)
                log.debug("figure failed", exc_info=True)
                notes.append(f"figure '{spec.name}' cannot be drawn: {lost or error}")
                continue
            if spec.kind == "speedup":
                points = mark_quality(mark_idle(points, mine), paper, scored)
            options, contenders = dict(spec.options), {**paper.contenders, **spec.contenders}
            sketches.append(Sketch(spec.kind, spec.name, spec.title, points, options, contenders))
            if spec.kind == "speedup":
                sketches += device_sketches(spec, points, mine, paper)
    ran = any(r.ok for r in mine)
    races, tuned = [], []
    if experiment.arena_task is not None:
        floor = run.floor(paper, experiment.name) or 0.0
        races = experiment.races(mine, floor)
        tuned = experiment.races(mine, floor, division="tuned")
        answer = quotable([race for race in races if race.timed])
    return Section(
        name=experiment.name,
        title=experiment.title,
        question=experiment.question,
        reading=experiment.reading,
        answer=answer,
        state="ran" if ran else "failed" if any(r.status in FAILED for r in mine) else "not run",
        command=command,
        figures=[],
        claims=_claims_of(experiment, mine, by_id),
        failed=without_result(mine),
        rows=len(mine),
        note="; ".join(notes),
        races=races,
        tuned=tuned,
        sketches=sketches,
    )


def _claims_of(experiment: Any, rows: Sequence[Any], by_id: dict) -> list[tuple[Any, Verdict]]:
    """Claims that an experiment names, and those whose verdict rests on its rows."""
    ids = {row.id for row in rows}
    named = set(experiment.claims)
    return [
        pair
        for name, pair in by_id.items()
        if name in named or (pair[1].rows and ids.intersection(pair[1].rows))
    ]


def _over_time(paper: Any, run: RunData) -> Sketch | None:
    """Figure of the machine's activity over time, or None if no row of the run has a series."""
    points = over_time_points([r for r in run.everything if r.paper == paper.name], paper)
    if not points:
        return None
    title = "Over time: what the machine does meanwhile"
    return Sketch("over_time", "over_time", title, points, dict(over_time_options(points)))
