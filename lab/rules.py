"""Rules of claims: what is asked of a quantity, and the one finding that follows.

    claims = {"pipad-s43-epochs-similar": all_within(COST, 0.9, 1.1)}

What a rule gives is a `RuleOutcome`, see `outcomes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dgbench.lab.estimates import Coords, Estimate, EvaluationContext
from dgbench.lab.evidence import some
from dgbench.lab.outcomes import (
    ANYTHING,
    Required,
    Rule,
    RuleOutcome,
    labels,
    lacking_words,
    outcome,
    rows_of_all,
    words,
)
from dgbench.lab.quantities import MeasuredQuantity
from dgbench.lab.table import Table

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
        return replace(found, reported=one, measured=one.value, remarks=(shown, *found.remarks))

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


def at_least(quantity: MeasuredQuantity, bar: float, **more: Any) -> Rule:
    """No exact number lies below a bar."""
    return compare_all(quantity, lambda one: 1 if one.value >= bar else -1, **more)


def all_equal(
    quantity: MeasuredQuantity, wanted: Any, required: Required = ANYTHING, *,
    near: float = 0.0, within: float = 0.0,
) -> Rule:  # fmt: skip
    """Every number is the wanted one.

    Args:
        wanted: the number, or a function of the claim's value and the coordinates, which gives
            None where nothing is wanted.
        required: values that must be there.
        near, within: largest distance from it, and the largest as a share of it.
    """

    def rule(context: EvaluationContext) -> RuleOutcome:
        numbers = quantity.estimates(context)
        if lacking := lacking_words(quantity, numbers, context, required):
            return RuleOutcome(lacking=lacking)
        value = context.claim.value
        sides = []
        for label, (at, one) in zip(labels(context, numbers), numbers.items(), strict=True):
            number = wanted(value, dict(at)) if callable(wanted) else wanted
            if number is not None:
                off = abs(one.value - number)
                sides.append((label, 1 if off <= near + within * abs(number) else -1))
        return replace(outcome(context, numbers), sides=tuple(sides))

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
    return lambda context: at_most(quantity, float(context.claim.value), report=largest)(context)


def largest(estimates: Iterable[Estimate]) -> Estimate:
    """The estimate with the largest value."""
    return max(estimates, key=lambda one: one.value)


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
    """More than half of the numbers, each of a `what`, pass a test; `whole`: all of them have to,
    and more than half is the direction alone."""

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
    report: Callable[[Iterable[Estimate]], Estimate] | None = None,
    within: float | None = None,
) -> Rule:  # fmt: skip
    """The one number against the claim's value, or its entry of that name; against its range where
    it has no such entry.

    Args:
        above: bar above which the number has the claim's direction; None where it has none.
        of: the number of the claim's value, in place of an entry.
        needs_interval: without one the claim is open.
        report: picks the number, where there are several.
        within: the claim holds where it is off by this share at most, and has no direction.
    """

    def rule(context: EvaluationContext) -> RuleOutcome:
        numbers = quantity.estimates(context)
        if not numbers:
            return RuleOutcome(lacking=lacking_words(quantity, numbers, context, ANYTHING))
        (one,) = numbers.values() if report is None else (report(numbers.values()),)
        where = (words(context, at) for at, each in numbers.items() if report and each is one)
        value = context.claim.value
        plain = value.get(entry) if isinstance(value, Mapping) and of is None else value
        found = replace(
            outcome(context, numbers), reported=one, measured=one.value,
            target=None if plain is None else float(plain if of is None else of(plain)),
            remarks=tuple(where),
        )  # fmt: skip
        if needs_interval and one.low is None:
            return replace(found, direction=0)
        if within is not None and found.target is not None:
            off = abs(one.value / found.target - 1)
            return replace(found, sides=(("value", 1 if off <= within else -1),))
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
            found, measured={key: one.value for key, one in numbers.items() if one is not None}
            or found.measured,
            rows=rows_of_all(found, *there), estimates=(*found.estimates, *there),
            sides=(), direction=found.side, remarks=(*found.remarks, *found.against()),
        )  # fmt: skip

    return rule


def equals_claim(value: Callable[[Table], Any], metric: str | None = None, **where: Any) -> Rule:
    """A value formed of the observations of the last round equals the claim's exactly."""

    def rule(context: EvaluationContext) -> RuleOutcome:
        rows = Table.of(context.rows, experiment=context.experiment)
        table = rows.where(metric, **where)
        if not table:
            return RuleOutcome(lacking=f"the experiment '{context.experiment}' did not run")
        measured = value(table.where(round=table[-1].row.round))
        side = 1 if measured == context.claim.value else -1
        return RuleOutcome((("value", side),), tuple(table.rows), measured)

    return rule


def not_measurable(reason: str) -> Rule:
    """Nothing that runs here measures the claim."""
    return lambda context: RuleOutcome(lacking=reason)
