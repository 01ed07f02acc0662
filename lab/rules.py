"""Rules of claims: what is asked of a quantity, and the one finding that follows.

    claims = {"pipad-s43-epochs-similar": all_within(COST, 0.9, 1.1)}

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
from dgbench.lab.evidence import finding, missing, some
from dgbench.lab.paper import Check, Claim, Finding
from dgbench.lab.quantities import MeasuredQuantity
from dgbench.lab.result_checks import NUMERIC
from dgbench.lab.table import Table

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
        """The finding, with its measured text and reason.

        Args:
            judged: system whose own deviation it shows, where it has one; else that of all rows.
        """
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
        lost, level = ([name for name, side in self.sides if side == at] for at in (-1, 0))
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
        context = EvaluationContext(counted, experiment, forms, claim)
        return rule(context).finding(forms.judged)

    return check


def checks_of(forms: PaperForms, *experiments: Any) -> dict[str, Check]:
    """Claim -> check, of experiments whose claims are rules."""
    return {
        name: check_of(forms, one.name, rule)
        for one in experiments
        for name, rule in one.claims.items()
    }


# Comparisons


def compare_all(
    quantity: MeasuredQuantity, side: Callable[[Estimate], int], *, unit: str = "",
    report: Callable[[Iterable[Estimate]], Estimate] | None = None, required: Required = ANYTHING,
) -> Rule:  # fmt: skip
    """A rule with a comparison at each coordinate.

    Args:
        side: of an estimate. report: picks the one number that is measured, where one stands for
            all. required: values that must be there.
    """

    def rule(context: EvaluationContext) -> RuleOutcome:
        numbers = quantity.estimates(context)
        if lacking := lacking_words(quantity, numbers, context, required):
            return RuleOutcome(lacking=lacking)
        found = outcome(context, numbers, unit)
        sides = zip(labels(context, numbers), map(side, numbers.values()), strict=True)
        found = replace(found, sides=tuple(sides))
        if report is None:
            return found
        one = report(numbers.values())
        shown = ", ".join(f"{name} {words}" for name, words in found.measured.items())
        return replace(found, reported=one, measured=one.value, remarks=(shown,))

    return rule


def all_above(quantity: MeasuredQuantity, bar: float, *, near: float = 0.0, **more: Any) -> Rule:
    """Every number lies above a bar, by its interval or by more than `near`."""
    return compare_all(quantity, lambda one: _beyond(one, bar, near), **more)


def all_below(quantity: MeasuredQuantity, bar: float, *, near: float = 0.0, **more: Any) -> Rule:
    """Every number lies below a bar, by its interval or by more than `near`."""

    def side(one: Estimate) -> int:
        if one.kind == "exact" and not near:
            return 1 if one.value < bar else -1
        return -_beyond(one, bar, near)

    return compare_all(quantity, side, **more)


def at_most(quantity: MeasuredQuantity, bar: float, **more: Any) -> Rule:
    """No exact number lies above a bar."""
    return compare_all(quantity, lambda one: 1 if one.value <= bar else -1, **more)


def all_equal(quantity: MeasuredQuantity, wanted: Any) -> Rule:
    """Every number is the wanted one.

    Args:
        wanted: the number, or a function of the claim's value and the coordinates.
    """

    def rule(context: EvaluationContext) -> RuleOutcome:
        numbers = quantity.estimates(context)
        if lacking := lacking_words(quantity, numbers, context, ANYTHING):
            return RuleOutcome(lacking=lacking)
        value = context.claim.value
        sides = [
            1 if one.value == (wanted(value, dict(at)) if callable(wanted) else wanted) else -1
            for at, one in numbers.items()
        ]
        named = zip(labels(context, numbers), sides, strict=True)
        return replace(outcome(context, numbers), sides=tuple(named))

    return rule


def _beyond(one: Estimate, bar: float, near: float) -> int:
    if near:
        return 0 if abs(one.value - bar) < near else 1 if one.value > bar else -1
    return one.side(bar)


def all_within(quantity: MeasuredQuantity, low: float, high: float, **more: Any) -> Rule:
    """Every interval lies between two ends; one that lies outside of them is against it."""

    def side(one: Estimate) -> int:
        if one.kind == "ratio" and (one.low is None or one.high is None):
            return 0
        least, most = (one.value if end is None else end for end in (one.low, one.high))
        return 1 if low <= least and most <= high else -1 if most < low or least > high else 0

    return compare_all(quantity, side, **more)


def at_least_claim(ratios: MeasuredQuantity) -> Rule:
    """Every ratio of times lies above the claim's by more than the noise floor; the least is
    measured."""

    def rule(context: EvaluationContext) -> RuleOutcome:
        bar = float(context.claim.value)
        found = compare_all(
            ratios, lambda one: 0 if one.ratio is None else one.ratio.beyond(bar), unit="x",
            report=lambda many: min(many, key=lambda one: one.value),
        )(context)  # fmt: skip
        return replace(found, target=bar)

    return rule


def at_most_claim(quantity: MeasuredQuantity) -> Rule:
    """No number lies above the claim's; the largest is measured."""
    return lambda context: at_most(
        quantity, float(context.claim.value),
        report=lambda many: max(many, key=lambda one: one.value),
    )(context)  # fmt: skip


def largest_at(
    quantity: MeasuredQuantity,
    dim: str,
    value: Any,
    *,
    near: float = 0.0,
    required: Required = ANYTHING,
) -> Rule:
    """The number at one value of a dimension leads those at all others, at every coordinate."""

    def rule(context: EvaluationContext) -> RuleOutcome:
        numbers = quantity.estimates(context)
        if lacking := lacking_words(quantity, numbers, context, required):
            return RuleOutcome(lacking=lacking)
        groups: dict[Coords, dict[Any, Estimate]] = {}
        for coords, one in numbers.items():
            rest = tuple(pair for pair in coords if pair[0] != dim)
            groups.setdefault(rest, {})[dict(coords)[dim]] = one
        sides = []
        for rest, by in groups.items():
            if value not in by or len(by) < 2:
                needed = f"{context.forms.label(dim, value)} and another are needed"
                return RuleOutcome(lacking=": ".join(filter(None, (words(context, rest), needed))))
            lead = min(by[value].value - one.value for key, one in by.items() if key != value)
            side = 0 if abs(lead) < near else 1 if lead > 0 else -1
            sides.append((words(context, rest) or "all", side))
        return replace(outcome(context, numbers), sides=tuple(sides))

    return rule


def clearly_larger(
    quantity: MeasuredQuantity, at: Mapping[str, Any], *, unit: str = "x",
    required: Required = ANYTHING,
) -> Rule:  # fmt: skip
    """The number at these values of dimensions above all others, by intervals that do not meet,
    at every other coordinate."""

    def rest(coords: Coords) -> list[tuple[str, Any]]:
        return [pair for pair in coords if pair[0] not in at]

    def rule(context: EvaluationContext) -> RuleOutcome:
        numbers = quantity.estimates(context)
        if lacking := lacking_words(quantity, numbers, context, required):
            return RuleOutcome(lacking=lacking)
        firsts = {coords: one for coords, one in numbers.items() if at.items() <= {*coords}}
        return _ordered(context, quantity, numbers, [
            (first, coords, one.compared(other))
            for first, one in firsts.items()
            for coords, other in numbers.items()
            if coords not in firsts and rest(first) == rest(coords)
        ], unit)  # fmt: skip

    return rule


def rising(quantity: MeasuredQuantity, dim: str, *, falling: bool = False, unit: str = "x") -> Rule:
    """The number at the largest value of a dimension above that at the smallest (`falling`: below
    it), by intervals that do not meet, at every other coordinate."""

    def rule(context: EvaluationContext) -> RuleOutcome:
        numbers = quantity.estimates(context)
        lines: dict[Coords, list[Coords]] = {}
        for coords in numbers:
            rest = tuple(pair for pair in coords if pair[0] != dim)
            lines.setdefault(rest, []).append(coords)
        ends = []
        for line in lines.values():
            first, last = (pick(line, key=lambda at: dict(at)[dim]) for pick in (min, max))
            high, low = (first, last) if falling else (last, first)
            if first != last:
                ends.append((high, low, numbers[high].compared(numbers[low])))
        return _ordered(context, quantity, numbers, ends, unit)

    return rule


def _ordered(
    context: EvaluationContext, quantity: MeasuredQuantity, numbers: Mapping[Coords, Estimate],
    sides: Sequence[tuple[Coords, Coords, int]], unit: str,
) -> RuleOutcome:  # fmt: skip
    """The outcome of comparisons between numbers of one quantity."""
    if not sides:
        lacking = lacking_words(quantity, {}, context, ANYTHING)
        return RuleOutcome(lacking=f"numbers to compare are needed; {lacking}")
    compared = {at for first, second, _ in sides for at in (first, second)}
    used = {at: one for at, one in numbers.items() if at in compared}
    named = tuple((f"{words(context, a)} over {words(context, b)}", side) for a, b, side in sides)
    return replace(outcome(context, used, unit), sides=named)


def on_most(
    quantity: MeasuredQuantity, test: Callable[[float], bool], what: str, *, whole: bool = False
) -> Rule:
    """More than half of the numbers pass a test.

    Args:
        what: word for what the numbers are of. whole: all of them have to; more than half is then
            the direction alone.
    """

    def rule(context: EvaluationContext) -> RuleOutcome:
        numbers = quantity.estimates(context)
        if lacking := lacking_words(quantity, numbers, context, ANYTHING):
            return RuleOutcome(lacking=lacking)
        lost = [words(context, at) for at, one in numbers.items() if not test(one.value)]
        inside = len(numbers) - len(lost)
        return replace(
            outcome(context, numbers), measured=f"{inside} of {some(len(numbers), what)}",
            sides=(("most", 1 if 2 * inside > len(numbers) else -1),),
            met=not lost if whole else None,
            remarks=(f"not on {', '.join(lost)}",) if lost else (),
        )  # fmt: skip

    return rule


# Values of the ledger


def near_claim(
    quantity: MeasuredQuantity, *, above: float | None = None, entry: str = "mean",
    of: Callable[[Any], float] | None = None, needs_interval: bool = False,
) -> Rule:  # fmt: skip
    """The one number against the claim's value, or its entry of that name.

    Args:
        above: bar above which the number has the claim's direction; None where it has none.
        of: the number of the claim's value, in place of an entry.
        needs_interval: without one the claim is open.
    """

    def rule(context: EvaluationContext) -> RuleOutcome:
        numbers = quantity.estimates(context)
        if not numbers:
            return RuleOutcome(lacking=lacking_words(quantity, numbers, context, ANYTHING))
        ((_, one),) = numbers.items()
        value = context.claim.value
        plain = value[entry] if isinstance(value, Mapping) and of is None else value
        found = replace(
            outcome(context, numbers), reported=one, measured=one.value,
            target=float(plain if of is None else of(plain)),
        )  # fmt: skip
        if needs_interval and one.low is None:
            return replace(found, direction=0)
        return found if above is None else replace(found, direction=1 if one.value > above else -1)

    return rule


def entries_near_claim(entries: Mapping[str, MeasuredQuantity], direction: Rule) -> Rule:
    """Entries of the claim's value, each against one number; a rule says the direction."""

    def rule(context: EvaluationContext) -> RuleOutcome:
        found = direction(context)
        if found.lacking:
            return found
        numbers = {key: next(iter(quantity.estimates(context).values()), None)
                   for key, quantity in entries.items()}  # fmt: skip
        there = [one for one in numbers.values() if one is not None]
        if len(there) < len(numbers):
            return RuleOutcome(
                lacking=lacking_words(next(iter(entries.values())), {}, context, ANYTHING)
            )
        return replace(
            found, measured={key: one.value for key, one in numbers.items() if one is not None},
            rows=rows_of_all(found, *there), estimates=(*found.estimates, *there),
            sides=(), direction=found.side, remarks=(*found.remarks, *found.against()),
        )  # fmt: skip

    return rule


def equals_claim(value: Callable[[Table], Any], metric: str | None = None, **where: Any) -> Rule:
    """A value formed of the observations of the last round equals the claim's exactly.

    Args:
        metric, where: of the observations of the claim's experiment, see `Table.where`.
    """

    def rule(context: EvaluationContext) -> RuleOutcome:
        rows = Table.of(context.rows, experiment=context.experiment)
        table = rows.where(metric, **where)
        if not table:
            return RuleOutcome(lacking=f"the experiment '{context.experiment}' did not run")
        measured = value(table.where(round=table[-1].row.round))
        side = 1 if measured == context.claim.value else -1
        return RuleOutcome((("value", side),), tuple(table.rows), measured)

    return rule


# Words


def outcome(
    context: EvaluationContext, numbers: Mapping[Coords, Estimate], unit: str = ""
) -> RuleOutcome:
    """An outcome without sides that rests on these numbers."""
    shown = zip(labels(context, numbers), numbers.values(), strict=True)
    return RuleOutcome(
        rows=rows_of_all(*numbers.values()), estimates=tuple(numbers.values()),
        measured={name: one.words(unit) for name, one in shown},
    )  # fmt: skip


def labels(context: EvaluationContext, numbers: Mapping[Coords, Any]) -> list[str]:
    """Coordinates in words, without what is the same at all of them."""
    every = [dict(coords) for coords in numbers]
    same = {
        dim for dim, value in (every[0] if len(every) > 1 else {}).items()
        if all(other.get(dim) == value for other in every)
    }  # fmt: skip
    return [
        words(context, [pair for pair in one.items() if pair[0] not in same]) or "all"
        for one in every
    ]


def words(context: EvaluationContext, coords: Iterable[tuple[str, Any]]) -> str:
    """Coordinates in words."""
    return ", ".join(context.forms.label(dim, value) for dim, value in coords if value is not None)


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


def rows_of_all(*found: Any) -> tuple[Any, ...]:
    """Rows of outcomes or estimates, each once."""
    return tuple({row.id: row for one in found for row in one.rows}.values())
