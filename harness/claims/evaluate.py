"""Running a paper's checks over rows: one verdict for every id of the ledger."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.claims.verdict import Verdict, count, decide
from dgbench.harness.quality import Judged, below_dictionary
from dgbench.harness.store.row import VOID, Row
from dgbench.harness.store.standing import failures_of, judged, void_reasons
from dgbench.harness.utilisation import gpu_idle
from dgbench.lab.compare import OWN_DATA, Ratio, split_rounds
from dgbench.lab.evidence import Conditions, conditions, some
from dgbench.lab.judging import Read, judging
from dgbench.lab.noise import NoisePairs
from dgbench.lab.paper import Claim, Finding, Paper
from dgbench.lab.quality import BELOW

log = logging.getLogger(__name__)

TIMED_KINDS: Final = frozenset({"speedup", "time", "throughput", "scaling", "overhead", "ordering"})
"""Kinds of claims that a race decides: they are stamped where it left its GPU idle."""

LACK_OF_ROWS: Final = (ArithmeticError, LookupError, StopIteration, TypeError, ValueError)
"""Errors that a check raises where rows that it was written for are not there."""


@dataclass(frozen=True, slots=True)
class PaperVerdicts:
    """The verdicts of one paper on one run, in ledger order, each with its claim.

    Attributes:
        paper: the plugin.
        claims, verdicts: the same length, the same order; every id of the ledger once.
        warnings: sentences about checks that failed or do not match the ledger.
        deciding: ratios that decide a claim, by its id.
    """

    paper: Paper
    claims: list[Claim]
    verdicts: list[Verdict]
    warnings: list[str] = field(default_factory=list)
    deciding: dict[str, list[Ratio]] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """Verdicts per glyph, all of them, in the fixed order."""
        return count(self.verdicts)

    @property
    def void(self) -> int:
        """Claims whose rows are all void."""
        return sum(verdict.void for verdict in self.verdicts)

    def find(self, claim_id: str) -> tuple[Claim, Verdict] | None:
        """The claim called `claim_id` and its verdict, or None."""
        for claim, verdict in zip(self.claims, self.verdicts, strict=True):
            if claim.id == claim_id:
                return claim, verdict
        return None


def evaluate(paper: Paper, rows: Sequence[Any]) -> PaperVerdicts:
    """Decide every claim of a paper from the rows of a run.

    Rows are judged first (`harness.store.standing`): what is wrong, or was compared with nothing,
    takes no part, and a claim that has only such rows is void. Neither do rows on a
    dataset of the user's own, which no claim is about. Rows that failed for other reasons are
    passed on, because "runs out of memory" can be what a paper claims.

    Raises:
        InvalidInputError: the ledger is broken.
    """
    claims = load_ledger(paper.ledger)
    every = [row for row in _judged(rows) if row.paper == paper.name]
    noise = NoisePairs.of(rows)
    own = sorted({_dataset_of(row) for row in every if OWN_DATA in row.params})
    every = [row for row in every if OWN_DATA not in row.params]
    mine = [row for row in every if row.status not in ("check", VOID)]
    void = _void_claims(paper, every)
    warnings: list[str] = []
    known = {claim.id for claim in claims}
    for extra in sorted(set(paper.checks) - known):
        warnings.append(f"check '{extra}' of {paper.name} has no claim in its ledger")
    if own and not every:
        said = f"the run is on '{', '.join(own)}', and the claim on data of the paper's choice"
        nothing = Finding(reason=said)
        return PaperVerdicts(paper, claims, [decide(claim, nothing) for claim in claims], warnings)
    quality: Judged = {}
    found = PaperVerdicts(paper, claims, [], warnings)
    split = split_rounds(mine)
    for claim in claims:
        floor = noise.floor_of_claim(claim, paper)
        verdict = _decide_one(found, claim, mine, floor, void, quality)
        found.verdicts.append(_of_split_rounds(verdict, claim, paper, split))
    for warning in warnings:
        log.warning(warning)
    return found


def _judged(rows: Sequence[Any]) -> list[Any]:
    """Rows as a store hands them out; rows that came from elsewhere are judged here."""
    return judged(rows) if all(isinstance(row, Row) for row in rows) else list(rows)


def _dataset_of(row: Any) -> str:
    """The dataset of a row that runs on the user's own."""
    return str(row.params.get("dataset") or row.params.get("graphs"))


def _void_claims(paper: Paper, rows: Sequence[Any]) -> dict[str, str]:
    """Why rows, or numbers of them, are void, by the claims of their experiments."""
    reasons: dict[str, dict[str, None]] = {}
    for row in rows:
        wrong = failures_of(row) if row.status == "check" else []
        said = [f"{one.contender or row.paper}: {row.reason}" for one in wrong]
        for reason in (*said, *void_reasons(row)):
            reasons.setdefault(row.experiment, {})[reason] = None
    found: dict[str, list[str]] = {}
    for experiment in paper.experiments:
        for claim in experiment.claims:
            found.setdefault(claim, []).extend(reasons.get(experiment.name, ()))
    return {claim: _several(list(dict.fromkeys(why))) for claim, why in found.items() if why}


def _several(reasons: list[str]) -> str:
    more = f"; and {len(reasons) - 1} more reasons" if len(reasons) > 1 else ""
    return reasons[0] + more


def _unfounded(finding: Finding | None, rows: list[Any]) -> str:
    """Problem with the rows that a finding names, or ""."""
    if finding is None or finding.empty:
        return ""
    if finding.readings:
        return next(filter(None, (_unfounded(one, rows) for one in finding.readings.values())), "")
    if not finding.rows:
        return "its check names no row that it rests on"
    strange = set(finding.rows) - {row.id for row in rows}
    return f"its check rests on rows it was not given: {min(strange)}" if strange else ""


def _decide_one(
    into: PaperVerdicts,
    claim: Claim,
    rows: list[Any],
    floor: float | None,
    void: dict[str, str],
    quality: Judged,
) -> Verdict:
    """The verdict of a claim; its deciding ratios and its warnings are added to `into`."""
    paper, warnings = into.paper, into.warnings
    check = paper.checks.get(claim.id)
    if check is None:
        warnings.append(f"claim '{claim.id}' has no check")
        return decide(claim, Finding(reason="no check is written for this claim"))
    try:
        with judging(floor) as context:
            finding = check(claim, rows)
        if finding is not None and not isinstance(finding, Finding):
            raise TypeError(f"a check returns a Finding, found {type(finding).__name__}")
        if unfounded := _unfounded(finding, rows):
            raise ValueError(unfounded)
        verdict = decide(
            claim,
            finding,
            _conditions(claim, finding, rows, context.reads, paper),
            floor=floor,
            twin_rule=_twin_rule(claim.id),
            smoke=_is_smoke(finding, rows),
        )
        into.deciding[claim.id] = context.deciding(verdict.low, verdict.high)
        if claim.id in void and not claim.definition:
            verdict = _voided(verdict, void[claim.id])
        return stamp_quality(paper, claim, stamp_idle_gpu(claim, verdict, rows), rows, quality)
    except Exception as error:  # a check is plugin code; one bad check must not hide the others
        said = f"check failed: {type(error).__name__}: {error}"
        log.debug("check of %s failed", claim.id, exc_info=True)
        if claim.id in void and isinstance(error, LACK_OF_ROWS):
            return _voided(decide(claim, Finding(reason=said)), void[claim.id])
        warnings.append(f"{claim.id}: {said}")
        verdict = decide(claim, Finding(reason=said))
        return Verdict(**{**_fields(verdict), "broken": True})


def _conditions(
    claim: Claim, finding: Finding | None, rows: list[Any], reads: set[Read], paper: Paper
) -> Conditions | dict[str, Conditions] | None:
    """The conditions of a finding; where it has readings, of each of them."""
    if finding is None:
        return None
    if finding.readings:
        return {
            name: conditions(claim, one, rows, reads, paper)
            for name, one in finding.readings.items()
        }
    return conditions(claim, finding, rows, reads, paper)


def _rows_of(finding: Finding) -> set[str]:
    """Ids of all rows that a finding rests on, under any reading."""
    return set(finding.rows).union(*(_rows_of(one) for one in finding.readings.values()))


def _voided(verdict: Verdict, why: str) -> Verdict:
    """The verdict where rows of its experiments are void: it says so, and without others is."""
    if verdict.source and verdict.measured is not None:
        reason = f"{verdict.reason}; other rows are void: {why}".removeprefix("; ")
        return Verdict(**{**_fields(verdict), "reason": reason})
    return Verdict(**{**_fields(verdict), "reason": f"void: {why}", "void": True})


def _of_split_rounds(
    verdict: Verdict, claim: Claim, paper: Paper, split: Collection[tuple[str, str, str, int]]
) -> Verdict:
    """The verdict, and in its reason how many rounds of its experiments form no pairs, where a race
    decides it."""
    names = {one.name for one in paper.experiments if claim.id in one.claims}
    count = sum(experiment in names for _, experiment, _, _ in split)
    of_race = claim.kind in TIMED_KINDS and verdict.source in ("", "timed")
    if not count or claim.definition or not of_race:
        return verdict
    said = f"{some(count, 'round')} with processes of several starts of the run left unpaired"
    reason = "; ".join(filter(None, (verdict.reason, said)))
    return Verdict(**{**_fields(verdict), "reason": reason})


def stamp_idle_gpu(claim: Claim, verdict: Verdict, rows: list[Any]) -> Verdict:
    """The verdict, and in its reason that the GPU was idle where the rows it rests on left it so.

    What was counted or projected does not depend on how busy a GPU was, and no more do claims
    that are about no time.
    """
    if claim.kind not in TIMED_KINDS or verdict.source not in ("timed", "probed"):
        return verdict
    used = set(verdict.rows)
    idle = gpu_idle(row for row in rows if row.id in used)
    if idle is None:
        return verdict
    reason = f"{verdict.reason}; {idle.words}" if verdict.reason else idle.words
    return Verdict(**{**_fields(verdict), "reason": reason, "gpu_idle": idle.words})


def stamp_quality(
    paper: Paper, claim: Claim, verdict: Verdict, rows: list[Any], known: Judged | None = None
) -> Verdict:
    """The verdict, and in its reason that the model whose speed it is about learned too little.

    A model that predicts worse than a predictor that trains nothing has no speed worth a claim.
    Where quality was not measured, nothing is said. `known` is what other claims have judged.
    """
    if claim.kind not in TIMED_KINDS or verdict.source != "timed":
        return verdict
    names = set(verdict.rows)
    found = below_dictionary(paper, [row for row in rows if row.id in names], rows, known)
    if not found:
        return verdict
    where = "; ".join(f"{workload}: {scores}" for workload, scores in found.items())
    said = f"the model predicts {BELOW} ({where})"
    reason = f"{verdict.reason}; {said}" if verdict.reason else said
    return Verdict(**{**_fields(verdict), "reason": reason})


def _is_smoke(finding: Finding | None, rows: list[Any]) -> bool:
    """Return True if a finding rests on rows of the smoke preset."""
    if finding is None:
        return False
    used = _rows_of(finding)
    return any(getattr(row, "preset", "") == "smoke" for row in rows if row.id in used)


def _fields(verdict: Verdict) -> dict[str, Any]:
    return {name: getattr(verdict, name) for name in verdict.__struct_fields__}


def _twin_rule(claim_id: str) -> tuple[str, str] | None:
    """Rule of the twins' specification for this claim; None where it is not installed."""
    try:
        from dgbench.datasets.twins.limits import twin_rule
    except ImportError:
        return None
    return twin_rule(claim_id)
