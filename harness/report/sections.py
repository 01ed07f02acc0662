"""What pages say of one paper: its figures, its experiments, the words around them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dgbench.harness.claims.evaluate import PaperVerdicts
from dgbench.harness.claims.verdict import Verdict, digits
from dgbench.harness.figures.draw import Drawn, draw_figure, draw_points
from dgbench.harness.figures.palette import looks
from dgbench.harness.figures.style import Context, side, with_interval
from dgbench.harness.report.parallel import side_by_side
from dgbench.harness.report.run import FAILED, STATUS_MEANING, RunData
from dgbench.harness.terminal.progress import describe

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Section:
    """One experiment on a page."""

    name: str
    title: str
    question: str
    reading: str
    answer: str
    state: str
    command: str
    figures: list[Drawn]
    claims: list[tuple[Any, Verdict]]
    failed: list[dict[str, str]]
    rows: int
    note: str = ""

    @property
    def holds(self) -> str:
        """`3 of 7 hold`: claims of this experiment that are reproduced or right in direction."""
        good = sum(v.verdict in ("reproduced", "direction only") for _, v in self.claims)
        return f"{good} of {len(self.claims)} hold" if self.claims else "no claim"


@dataclass(slots=True)
class PaperSection:
    """One paper on a page."""

    paper: Any
    verdicts: PaperVerdicts
    sections: list[Section]
    board: Drawn
    versus: Drawn | None
    fastest: list[dict[str, Any]] = field(default_factory=list)
    quote: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The paper's name."""
        return self.paper.name

    @property
    def claims(self) -> list[tuple[Any, Verdict]]:
        """Every claim with its verdict, in ledger order."""
        return list(zip(self.verdicts.claims, self.verdicts.verdicts, strict=True))

    @property
    def main(self) -> tuple[Section, Drawn] | None:
        """The figure that stands on the overview: the main race, else the first figure."""
        drawn = [(e, f) for e in self.sections for f in e.figures if not f.empty]
        race = main_race(self.sections)
        races = [pair for pair in drawn if pair[1] is race]
        return next(iter(races or drawn), None)

    @property
    def headline(self) -> str:
        """A heading that could be false."""
        title, counts = self.paper.title, self.verdicts.counts
        total = len(self.verdicts.verdicts)
        races = [f for f in self.fastest if f["own"]]
        if not races:
            return f"{title}: {counts['R']} of {total} claims reproduced"
        faster = [f for f in races if f["faster"]]
        if not faster:
            return f"{title}: shown faster on none of {len(races)} workloads"
        low, high = (pick(f["own"]["value"] for f in faster) for pick in (min, max))
        span = f"by {digits(low)}x to {digits(high)}x" if low != high else f"by {digits(low)}x"
        return f"{title}: faster on {len(faster)} of {len(races)} workloads, {span}"


def draw_paper(
    paper: Any, verdicts: PaperVerdicts, run: RunData, folder: Path, context: Context
) -> PaperSection:
    """Draw all figures of a paper and collect what its page says."""
    rows = [r for r in run.rows if r.paper == paper.name]
    by_id = {claim.id: (claim, verdict) for claim, verdict in
             zip(verdicts.claims, verdicts.verdicts, strict=True)}  # fmt: skip
    import matplotlib.pyplot  # noqa: F401 - once, before the processes that draw are forked

    sections = side_by_side(
        lambda e: _section(e, rows, by_id, run, folder, context), paper.experiments
    )
    board = draw_points(
        "claim_board", "claims", f"Claims of {paper.title}", board_points(verdicts), folder, context
    )
    ratios = ratio_points(verdicts)
    versus = None
    if any(not p.get("failed") for p in ratios):
        versus = draw_points(
            "paper_vs_measured", "paper_vs_measured", "Paper against measured", ratios, folder,
            context,
        )  # fmt: skip
    shown = PaperSection(paper, verdicts, sections, board, versus)
    if not run.smoke:  # a heading must not rest on times that are no measurement
        shown.fastest = fastest(paper, sections, context)
    shown.quote = before_you_quote(paper, verdicts, run, rows)
    return shown


def _section(experiment, rows, by_id, run, folder, context) -> Section:
    mine = [r for r in rows if r.experiment == experiment.name]
    command = f"dgbench run {experiment.paper}/{experiment.name}"
    if run.info.get("preset") not in (None, "quick"):
        command += f" --preset {run.info['preset']}"
    answer, figures, notes = "", [], []
    if mine:
        try:
            answer = experiment.answer(mine)
        except Exception as error:  # plugin code: the page must still be written
            notes.append(f"its answer cannot be formed: {type(error).__name__}: {error}")
        for spec in experiment.figures():
            try:
                drawn = draw_figure(spec, [*mine, *run.machine_rows], folder, context)
            except Exception as error:
                log.warning("figure %s/%s: %s", experiment.paper, spec.name, error)
                log.debug("figure failed", exc_info=True)
                notes.append(f"figure '{spec.name}' cannot be drawn: {error}")
                continue
            figures.append(drawn)
    failed = without_result(mine)
    ran = any(r.ok for r in mine)
    state = "ran" if ran else "failed" if any(r.status in FAILED for r in mine) else "not run"
    return Section(
        name=experiment.name,
        title=experiment.title,
        question=experiment.question,
        reading=experiment.reading,
        answer=answer,
        state=state,
        command=command,
        figures=figures,
        claims=_claims_of(experiment, mine, by_id),
        failed=failed,
        rows=len(mine),
        note="; ".join(notes),
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


def once_a_cell(rows: Sequence[Any]) -> list[Any]:
    """The first row that is not ok of each cell."""
    found: dict[str, Any] = {}
    for row in rows:
        if not row.ok:
            found.setdefault(row.cell_hash or row.id, row)
    return list(found.values())


def without_result(rows: Sequence[Any]) -> list[dict[str, str]]:
    """Cells without a result; those that cannot run here for one reason share a line."""
    alike: dict[tuple, list[Any]] = {}
    for row in once_a_cell(rows):
        alone = row.id if row.status in FAILED else ""
        alike.setdefault((row.paper, row.experiment, row.status, row.reason, alone), []).append(row)
    shown = []
    for group in alike.values():
        cell = failed_cell(group[0])
        if len(group) > 1:
            cell["what"] = f"{len(group)} cells, such as {cell['what']}"
        shown.append(cell)
    return shown


def failed_cell(row: Any) -> dict[str, str]:
    """A row without a result as a page shows it."""
    return {
        "id": row.id,
        "experiment": row.experiment,
        "paper": row.paper,
        "what": describe(row),
        "status": STATUS_MEANING.get(row.status, row.status),
        "failed": row.status in FAILED,
        "reason": row.reason,
        "log": row.log,
    }


def board_points(verdicts: PaperVerdicts) -> list[dict[str, Any]]:
    """Points of the claim board."""
    return [
        {
            "paper": verdicts.paper.name,
            "title": verdicts.paper.title,
            "claim": v.id,
            "glyph": v.glyph,
            "analogue": v.evidence == "analogue",
            "twin": v.data == "twin",
            "other_way": v.other_way,
            "row_ids": list(v.rows),
        }
        for v in verdicts.verdicts
    ]


def ratio_points(verdicts: PaperVerdicts) -> list[dict[str, Any]]:
    """Every claimed factor against ours; those without a value are counted, not hidden."""
    from dgbench.harness.claims.verdict import is_factor

    points = []
    for claim, verdict in zip(verdicts.claims, verdicts.verdicts, strict=True):
        target = verdict.target
        if target is None and isinstance(claim.value, int | float) and is_factor(claim):
            target = float(claim.value)
        if target is None or not is_factor(claim) or isinstance(claim.value, bool):
            continue
        point: dict[str, Any] = {"claim": claim.id, "paper": target}
        if isinstance(verdict.measured, int | float) and not isinstance(verdict.measured, bool):
            point |= {
                "measured": float(verdict.measured),
                "low": verdict.low,
                "high": verdict.high,
                "evidence": verdict.evidence,
                "row_ids": list(verdict.rows),
            }
        else:
            point["failed"] = f"not-supported: {verdict.reason}"
        points.append(point)
    return points


def fastest(paper: Any, sections: Sequence[Section], context: Context) -> list[dict[str, Any]]:
    """Per workload of the main race: the fastest correct system and by how much."""
    drawn = main_race(sections)
    if drawn is None:
        return []
    tasks: dict[tuple, list[dict]] = {}
    for point in drawn.points:
        if not point.get("rest") and not point.get("projected"):
            tasks.setdefault((point.get("panel"), point["row"]), []).append(point)
    return [_race(paper, panel, row, points, context) for (panel, row), points in tasks.items()]


def main_race(sections: Sequence[Section]) -> Drawn | None:
    """The speed-ups that stand for a paper: those its spec calls `main`, else the first ones."""
    races = [f for e in sections for f in e.figures if f.kind == "speedup" and _raced(f)]
    return next((f for f in races if f.main), next(iter(races), None))


def _raced(drawn: Drawn) -> bool:
    """Whether anything in a figure of ratios was measured: a projection wins no race."""
    return any(not p.get("projected") for p in drawn.points)


def _race(paper, panel, row, points, context) -> dict[str, Any]:
    good = [p for p in points if not p.get("failed")]
    titles = looks([*(p["system"] for p in points), points[0]["baseline"]])
    best = max(good, key=lambda p: p["value"], default=None)
    own = next((p for p in points if p["system"] == paper.system), None)
    twin = " (twin)" if any(p.get("twin") for p in points) else ""
    entry: dict[str, Any] = {
        "task": f"{row}{twin}" + (f", {panel}" if panel else ""),
        "baseline": titles[points[0]["baseline"]].title,
        "own": own if own is not None and not own.get("failed") else {},
        "faster": False,
        "row": None,
        "deviation": None,
    }
    if entry["own"]:
        entry["faster"] = side(own, context.noise) == "faster"
    elif own is not None:
        entry["own"] = {"value": 0.0}
    if best is None:
        failed = points[0]
        status, _, detail = str(failed["failed"]).partition(":")
        words = f"{STATUS_MEANING.get(status, status)}{':' if detail else ''}{detail}"
        return {**entry, "winner": "no value", "factor": words}
    which = side(best, context.noise)
    alike = which == "same"
    winner = {
        "faster": titles[best["system"]].title,
        "slower": entry["baseline"],
        "same": "none: same",
        "undecided": "undecided",
    }[which]
    return {
        **entry,
        "winner": winner,
        "factor": "same" if alike else with_interval(best["value"], best.get("low"),
                                                     best.get("high")),
        "row": (best.get("row_ids") or [None])[0],
        "deviation": best.get("deviation"),
    }  # fmt: skip


def before_you_quote(
    paper: Any, verdicts: PaperVerdicts, run: RunData, rows: Sequence[Any]
) -> list[str]:
    """What a reader must know before passing a number on."""
    said = []
    if run.smoke:
        said.append("This is a smoke run on tiny data. None of its numbers is a measurement.")
    weak = sum(v.evidence == "analogue" for v in verdicts.verdicts)
    if weak:
        said.append(
            f"{weak} claims of the paper name a GPU and were looked at on {run.machine_name}. "
            "Such an analogue supports a direction, never a value."
        )
    used = (str(r.data["dataset"]) for r in rows if r.ok and r.data.get("twin"))
    twins = sorted({name for names in used for name in names.split(", ")})  # a row may name several
    if twins:
        said.append(
            f"{', '.join(twins)}: synthetic twins stand in for these datasets. A twin copies "
            "published counts and shapes; it is not the dataset."
        )
    names = dict.fromkeys(str(r.params["system"]) for r in rows if r.params.get("system"))
    baselines = []
    for name in names:
        system = _system(name)
        if system is not None and system.kind == "baseline":
            baselines.append(f"{system.title} ({system.provenance or 'origin not stated'})")
    if baselines:
        said.append(f"Baselines: {'; '.join(baselines)}.")
    if run.noise is not None:
        said.append(
            f"Two runs of the same thing differ here by up to {100 * run.noise:.1f} % "
            "(noise floor). Differences inside it are called same."
        )
    elif any(r.samples for r in rows):
        said.append("No noise floor was measured in this run: small differences mean nothing.")
    projected = verdicts.counts["p"]
    if projected:
        words = "verdict is a projection" if projected == 1 else "verdicts are projections"
        said.append(f"{projected} {words} by a model, not a measurement.")
    said += [f"Our own check failed: {w}" for w in verdicts.warnings]
    return said


def _system(name: str) -> Any:
    from dgbench.runtime.errors import DgbenchError
    from dgbench.systems.base import Broken, find_system

    try:
        found = find_system(name)
    except DgbenchError:
        return None
    return None if isinstance(found, Broken) else found
