"""Speed of a paper's system in a run: outcomes of its main races."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from dgbench.harness.quality import quality_of
from dgbench.harness.store.row import FAILED, VOID
from dgbench.harness.store.standing import judged
from dgbench.harness.trainings import with_trainings
from dgbench.harness.utilisation import IdleGpu, gpu_idle
from dgbench.lab.compare import Ratio, without_control
from dgbench.lab.judging import note_decision
from dgbench.lab.main_race import MainRace, RaceComparison
from dgbench.lab.noise import NoisePairs
from dgbench.lab.quality import Quality
from dgbench.lab.result_checks import NUMERIC
from dgbench.runtime.statistics import control_disturbed, side

Outcome = Literal["faster", "slower", "no difference", "not counted", "not run"]
Fault = Literal[
    "", "failed", "check failed", "not checked", "unreadable", "missing", "control disturbed"
]

COUNTED: tuple[Outcome, ...] = ("faster", "slower", "no difference")
_SIDES: dict[int, Outcome] = {1: "faster", 0: "no difference", -1: "slower"}
_FAULTS: dict[str, Fault] = {"check": "check failed", VOID: "not checked"}


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Hardware, packages and planned cells of a run.

    Attributes:
        cpu, gpu: "2 CPU cores", and the name of the GPU; "" where they are not known.
        packages: versions of installed distributions.
        cells: (paper, experiment, params) of all cells of its plan; empty where no plan is kept.
        stopped: whether the run ended before its plan.
    """

    cpu: str = ""
    gpu: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    cells: Sequence[tuple[str, str, Mapping[str, Any]]] = ()
    stopped: bool = False

    @classmethod
    def of(cls, store: Any) -> RunFacts:
        """Facts of a run from its folder."""
        kept = list(store.provenance().values())
        newest = kept[-1] if kept else {}
        machine = newest.get("machine", {})
        gpus = machine.get("gpus") or []
        cores = machine.get("cpu", {}).get("usable") or machine.get("cpu", {}).get("cores")
        try:
            planned = msgspec.convert(store.read_plan() or {}, _KeptPlan).cells
        except msgspec.ValidationError:  # then only rows say what was to run
            planned = []
        return cls(
            cpu=f"{cores} CPU core{'s' if cores != 1 else ''}" if cores else "",
            gpu=str(gpus[0].get("name", "a GPU")) if gpus else "a GPU",
            packages=newest.get("packages", {}),
            cells=[(one.cell.paper, one.cell.experiment, one.cell.params) for one in planned],
            stopped=store.info.get("state") not in ("done", None),
        )


class _KeptCell(msgspec.Struct):
    paper: str
    experiment: str
    params: dict[str, Any] = {}


class _KeptPlannedCell(msgspec.Struct):
    cell: _KeptCell


class _KeptPlan(msgspec.Struct):
    """The part of plan.json that names cells."""

    cells: list[_KeptPlannedCell] = []


@dataclass(frozen=True, slots=True)
class WorkloadOutcome:
    """One workload of a comparison.

    Attributes:
        dataset: its title. details: titles of its other dims. twin: whether the data are synthetic.
        outcome: for the subject of the comparison.
        within_noise: whether its interval leaves 1x out, but not the noise floor.
        ratio: time of the rival over that of the subject; None where one of them did not run.
        fault: why it is not counted, or did not run.
        culprit: title of the system at fault, "" where it is not one of the two.
        reason: status and reason of its row, or "".
        deviations: largest deviation of outputs, gradients and losses from the reference, of the
            subject and of the rival; None where it is not known apart.
        quality: of the subject's model; None where it was not measured.
    """

    dataset: str
    details: tuple[str, ...]
    twin: bool
    outcome: Outcome
    ratio: Ratio | None = None
    within_noise: bool = False
    fault: Fault = ""
    culprit: str = ""
    status: str = ""
    reason: str = ""
    deviations: tuple[float | None, float | None] = (None, None)
    quality: Quality | None = None

    @property
    def counted(self) -> bool:
        """True if it counts as a comparison: faster, slower or no difference."""
        return self.outcome in COUNTED


@dataclass(frozen=True, slots=True)
class RaceAnswer:
    """A comparison over all workloads of a race, those with real data first.

    Attributes:
        verb: what is timed. subject, rival: titles, a release with its version.
        dataset, details: titles of the dataset and of other dims that all workloads of the race
            have in common; empty where the dataset is not one of them.
        fairer: see `RaceComparison`.
        workloads: a fairer comparison has those only on which it ran.
    """

    verb: str
    subject: str
    rival: str
    fairer: bool
    workloads: tuple[WorkloadOutcome, ...]
    dataset: str = ""
    details: tuple[str, ...] = ()

    @property
    def counted(self) -> list[WorkloadOutcome]:
        """Workloads that count."""
        return [one for one in self.workloads if one.counted]

    def having(self, outcome: Outcome) -> list[WorkloadOutcome]:
        """Workloads with this outcome."""
        return [one for one in self.workloads if one.outcome == outcome]


@dataclass(frozen=True, slots=True)
class PaperAnswer:
    """All main races of a paper in a run.

    Attributes:
        title: of the paper. races: headline comparisons before the fairer ones.
        device: where it ran. stopped: whether the run ended before its plan.
        smoke: whether the run was too short to measure anything.
        idle: how little its races used the GPU, where they left it idle.
        apart: whether its models were trained whole in other runs.
    """

    title: str
    races: tuple[RaceAnswer, ...]
    device: str = ""
    stopped: bool = False
    smoke: bool = False
    idle: IdleGpu | None = None
    apart: bool = False

    @property
    def one_process(self) -> bool:
        """True if every headline ratio rests on a single process, and one has an interval."""
        ratios = [one.ratio for race in self.races if not race.fairer for one in race.counted]
        known = any(r is not None and r.low is not None for r in ratios)
        return known and all(r is not None and len(r.rows) == 1 for r in ratios)


def answers(
    papers: Sequence[Any],
    rows: Sequence[Any],
    facts: RunFacts | None = None,
    trained: Sequence[Any] = (),
) -> list[str]:
    """Sentences that say how much faster the systems of papers were in a run.

    Args:
        papers: `Paper`s. rows: all rows of the run, A/A controls included.
        facts: what the run was made on.
        trained: whole trainings of other runs, for speeds of a run that has none.
    """
    from dgbench.harness.terminal.answer_words import sentences

    facts = facts or RunFacts()
    found = [paper_answer(paper, rows, facts, trained) for paper in papers]
    return [text for one in found if one is not None for text in sentences(one)]


def paper_answer(
    paper: Any, rows: Sequence[Any], facts: RunFacts, trained: Sequence[Any] = ()
) -> PaperAnswer | None:
    """Outcomes of a paper's main races; None where the run was to run none of them."""
    rows = judged(rows)
    noise = NoisePairs.of(rows)
    races: list[RaceAnswer] = []
    used: list[Any] = []
    apart = False
    for experiment in paper.experiments:
        race = experiment.main_race
        if race is None:
            continue
        where = (paper.name, experiment.name)
        of_paper = [r for r in without_control(rows) if r.paper == paper.name]
        scored = with_trainings(of_paper, (r for r in trained if r.paper == paper.name))
        apart = apart or len(scored) > len(of_paper)
        mine = [r for r in of_paper if r.experiment == experiment.name]
        planned = [params for *place, params in facts.cells if tuple(place) == where]
        # Params of cells that an older run planned may lack a dim; their rows are then left out.
        workloads = _workloads(race, [*planned, *(row.params for row in mine)])
        if not workloads:
            continue
        used += [row for row in mine if race.workloads(row.params)]
        floor = noise.floor(paper, [experiment.name])
        common = _common(race, workloads)
        for comparison in race.comparisons:
            outcomes = [
                replace(_outcome(race, comparison, one, mine, floor), quality=found)
                for one in workloads
                for found in [quality_of(comparison, scored, one)]
            ]
            if comparison.fairer:
                outcomes = [one for one in outcomes if one.outcome != "not run"]
            if outcomes:
                races.append(_race_answer(race, comparison, outcomes, common, facts.packages))
    if not races:
        return None
    return PaperAnswer(
        title=paper.title,
        races=tuple(sorted(races, key=lambda one: one.fairer)),
        device=facts.gpu if any(row.device == "cuda" for row in used) else facts.cpu,
        stopped=facts.stopped,
        smoke=any(row.preset == "smoke" for row in used),
        idle=gpu_idle(used),
        apart=apart,
    )


def _race_answer(
    race: MainRace,
    comparison: RaceComparison,
    outcomes: list[WorkloadOutcome],
    common: list[str],
    packages: Mapping[str, str],
) -> RaceAnswer:
    return RaceAnswer(
        verb=comparison.verb or race.verb,
        subject=comparison.subject,
        rival=_rival(comparison, packages),
        fairer=comparison.fairer,
        workloads=tuple(sorted(outcomes, key=lambda one: one.twin)),
        dataset=common[0] if common else "",
        details=tuple(common[1:]),
    )


def _common(race: MainRace, workloads: Sequence[dict[str, str]]) -> list[str]:
    """Titles that several workloads share, where they share the dataset."""
    values = [set(column) for column in zip(*(one.values() for one in workloads), strict=True)]
    if len(workloads) < 2 or len(values[0]) > 1:
        return []
    return [_title(race, value) for (value,) in (v for v in values if len(v) == 1)]


def _title(race: MainRace, value: str) -> str:
    return race.titles.get(value, value)


def _rival(comparison: RaceComparison, packages: Mapping[str, str]) -> str:
    """Title of the rival, with the version of the run where it is a release."""
    if not comparison.package:
        return comparison.rival
    version = packages.get(comparison.package)
    return f"{comparison.rival} {version}" if version else comparison.rival_without


def _workloads(race: MainRace, cells: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Workloads of a race, each once, in the order of its cells."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for params in cells:
        for one in race.workloads(params):
            found.setdefault(tuple(one.values()), one)
    return list(found.values())


def _outcome(
    race: MainRace,
    comparison: RaceComparison,
    workload: dict[str, str],
    rows: Sequence[Any],
    floor: float | None,
) -> WorkloadOutcome:
    """Outcome of a comparison on one workload."""
    mine = [row for row in rows if workload in race.workloads(row.params)]
    timed = [row for row in mine if not race.is_check(row.params)]
    names = [_title(race, value) for value in workload.values()]

    def outcome(word: Outcome, **fields: Any) -> WorkloadOutcome:
        twin = any(bool(row.data.get("twin")) for row in mine)
        return WorkloadOutcome(names[0], tuple(n for n in names[1:] if n), twin, word, **fields)

    for row in sorted(mine, key=lambda row: row.status == VOID):  # what went wrong comes first
        culprit = _culprit(comparison, row)
        if row.status not in (*FAILED, VOID) or row.instrumented or culprit is None:
            continue
        return outcome(
            "not counted",
            fault=_FAULTS.get(row.status, "failed"),
            culprit=culprit,
            status=row.status,
            reason=row.reason,
        )
    try:
        ratio = comparison.ratio(timed, workload)
    except Exception as error:  # plugin code: the run must still end with what the others say
        if said := _dropped(timed):
            return outcome("not counted", fault="check failed", status="check", reason=said)
        return outcome("not counted", fault="unreadable", reason=f"{type(error).__name__}: {error}")
    if ratio is None and (said := _dropped(timed)):
        return outcome("not counted", fault="check failed", status="check", reason=said)
    if ratio is None:
        lacking = next((row for row in timed if row.status != "ok"), None)
        why = (lacking.status, lacking.reason) if lacking is not None else ("", "")
        return outcome("not run", fault="missing", status=why[0], reason=why[1])
    if control_disturbed(floor):
        return outcome("not counted", fault="control disturbed")
    note_decision(ratio)
    which = _SIDES[side(ratio.low, ratio.high, floor)]
    return outcome(
        which,
        ratio=ratio,
        within_noise=which == "no difference" and side(ratio.low, ratio.high) != 0,
        deviations=_deviations(comparison, mine),
    )


def _dropped(rows: Sequence[Any]) -> str:
    """Why numbers of these rows were taken away, or ""."""
    return next((why for row in rows for why in row.dropped.values()), "")


def _culprit(comparison: RaceComparison, row: Any) -> str | None:
    """Title of the system that a row is of; "" where a row is of both, None where of neither."""
    if comparison.systems is None:
        return ""
    titles = dict(zip(comparison.systems, (comparison.subject, comparison.rival), strict=True))
    return titles.get(str(row.params.get("system")))


def _deviations(
    comparison: RaceComparison, rows: Sequence[Any]
) -> tuple[float | None, float | None]:
    """Largest deviation of the subject and of the rival in the rows of a workload."""
    if comparison.systems is None:
        return None, None
    gaps: dict[str, float] = {}
    for row in rows:
        for check in row.checks:
            if check.of in NUMERIC and not check.own:
                name = check.system or str(row.params.get("system"))
                gaps[name] = max(gaps.get(name, 0.0), check.gap)
    subject, rival = comparison.systems
    return gaps.get(subject), gaps.get(rival)
