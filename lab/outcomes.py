"""Outcome of a rule of a claim: its sides, its words, and the finding and check that it becomes.

A rule gives a `RuleOutcome` with a side for each comparison: 1 for the statement, -1 against it, 0
inside the noise. A statement holds where all sides are for it, fails where one is against it, and
is undecided otherwise. The words of a finding are formed here alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Final

from dgbench.lab.estimates import Coords, Estimate, EvaluationContext, PaperForms
from dgbench.lab.estimates import rows_of_all as rows_of_all
from dgbench.lab.evidence import finding, missing
from dgbench.lab.paper import Check, Claim, Finding
from dgbench.lab.quantities import MeasuredQuantity
from dgbench.lab.result_checks import NUMERIC

Required = Mapping[str, Sequence[Any]]
"""Values of dimensions of which every combination must be there."""
ANYTHING: Final[Required] = {}


@dataclass(frozen=True)
class RuleOutcome:
    """Outcome of a rule, before it becomes a finding.

    Attributes:
        sides: of the comparisons, by their words. rows: that it rests on.
        measured: value, or words by label.
        reported: the number that a verdict compares with `target`.
        met: whether printed values are met, None where none are asked for; the sides then say the
            direction alone.
        direction: side of the direction, where it is another than that of the sides.
        estimates: whose processes count. remarks: of the reason.
        lacking: why nothing was found. model, proxy, interpretations: see `Finding`.
    """

    sides: tuple[tuple[str, int], ...] = ()
    rows: tuple[Any, ...] = ()
    measured: Any = None
    reported: Estimate | None = None
    target: float | None = None
    met: bool | None = None
    direction: int | None = None
    estimates: tuple[Estimate, ...] = ()
    remarks: tuple[str, ...] = ()
    lacking: str = ""
    model: str = ""
    proxy: str = ""
    interpretations: Mapping[str, Finding] = field(default_factory=dict)

    @property
    def side(self) -> int:
        """Side of the whole statement."""
        return min((side for _, side in self.sides), default=1)

    def finding(self, judged: str = "") -> Finding:
        """The finding, with its measured text and reason, and the deviation of the system `judged`
        where it has one, else of all rows."""
        if self.lacking:
            return missing(self.lacking)
        if self.interpretations:
            return Finding(readings=dict(self.interpretations), reason="; ".join(self.remarks))
        fields: dict[str, Any] = {}
        if self.met is not None:
            fields = {"holds": self.met, "direction": self.side > 0}
        elif self.sides:
            fields = {"holds": self.side > 0}
        if self.direction is not None:
            fields["direction"] = self.direction > 0
        if self.reported is not None:
            fields |= {"low": self.reported.low, "high": self.reported.high}
        decisive = self.side if self.sides else self.direction
        processes = [one.processes for one in self.estimates if one.processes is not None]
        made = finding(
            self.rows, measured=self.measured, target=self.target, undecided=decisive == 0,
            processes=min(processes, default=None), model=self.model, proxy=self.proxy,
            reason="; ".join(filter(None, (*self.against(), *self.remarks))), **fields,
        )  # fmt: skip
        own = system_deviation(self.rows, judged)
        return made if own is None else replace(made, deviation=own)

    def against(self) -> list[str]:
        """Comparisons that are against the statement, and those that are open, in words."""
        sides = dict.fromkeys(self.sides)
        lost, level = ([name for name, side in sides if side == at] for at in (-1, 0))
        words = [f"not on {', '.join(lost)}"] if lost and len(self.sides) > 1 else []
        return words + ([f"inside the noise on {', '.join(level)}"] if level else [])


def system_deviation(rows: Iterable[Any], system: str) -> float | None:
    """Largest gap of a system's results in these rows to an independent reference; None without."""
    gaps = [
        check.gap for row in rows if row.params.get("system") == system
        for check in row.checks if check.of in NUMERIC and not check.own
    ]  # fmt: skip
    return max(gaps, default=None)


Rule = Callable[[EvaluationContext], RuleOutcome]


def check_of(forms: PaperForms, experiment: str, rule: Rule) -> Check:
    """The check of a claim that stands in an experiment."""

    def check(claim: Claim, rows: Sequence[Any]) -> Finding:
        counted = [row for row in rows if row.params.get("dataset") not in forms.uncounted]
        if forms.stand_ins is not None and claim.workload.get("datasets"):
            counted = forms.stand_ins.of(counted)
        context = EvaluationContext(counted, experiment, forms, claim)
        return rule(context).finding(forms.judged)

    return check


def checks_of(*experiments: Any) -> dict[str, Check]:
    """Claim -> check, of those experiments that are in forms."""
    return {
        name: check_of(one.forms, one.name, rule)
        for one in experiments if hasattr(one, "forms")
        for name, rule in one.claims.items()
    }  # fmt: skip


def outcome(
    context: EvaluationContext, numbers: Mapping[Coords, Estimate], unit: str = ""
) -> RuleOutcome:
    """An outcome without sides that rests on these numbers, and says what all of them are on."""
    shown = zip(labels(context, numbers), numbers.values(), strict=True)
    shared = shared_words(context, numbers)
    return RuleOutcome(
        rows=rows_of_all(*numbers.values()), estimates=tuple(numbers.values()),
        measured={name: one.words(unit) for name, one in shown},
        remarks=(f"on {shared}",) if shared else (),
    )  # fmt: skip


def labels(context: EvaluationContext, numbers: Mapping[Coords, Any]) -> list[str]:
    """Coordinates in words, without what is the same at all of them."""
    same = _shared(numbers) if len(numbers) > 1 else ()
    return [
        words(context, [pair for pair in coords if pair not in same]) or "all" for coords in numbers
    ]


def shared_words(context: EvaluationContext, numbers: Mapping[Coords, Any]) -> str:
    """Coordinates that all numbers have, in words."""
    return words(context, _shared(numbers))


def _shared(numbers: Iterable[Coords]) -> list[tuple[str, Any]]:
    first, *others = [*numbers] or [()]
    return [pair for pair in first if all(pair in coords for coords in others)]


def words(context: EvaluationContext, coords: Iterable[tuple[str, Any]]) -> str:
    """Coordinates in words; a number that has none is named by its dimension."""
    parts = []
    for dim, value in coords:
        label = "" if value is None else context.forms.label(dim, value).strip(", ")
        bare = label == str(value) and isinstance(value, int | float)
        parts.append(f"{dim.replace('_', ' ')} {label}" if bare else label)
    return ", ".join(filter(None, parts))


def lacking_words(
    quantity: MeasuredQuantity, numbers: Mapping[Coords, Any], context: EvaluationContext,
    required: Required,
) -> str:  # fmt: skip
    """Why a claim cannot be decided, or ""."""
    name = quantity.experiment or context.experiment
    if not numbers:
        return f"the experiment '{name}' did not run on what the claim is about"
    there = [dict(coords) for coords in numbers]
    for values in product(*required.values()):
        wanted = dict(zip(required, values, strict=True))
        if not any(wanted.items() <= one.items() for one in there):
            return f"the experiment '{name}' did not run on {words(context, wanted.items())}"
    return ""
