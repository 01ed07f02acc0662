"""Rules of claims about lines of numbers, by size or layer, and about a pair of numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dgbench.lab.estimates import Coords, EvaluationContext
from dgbench.lab.outcomes import (
    ANYTHING,
    Rule,
    RuleOutcome,
    lacking_words,
    outcome,
    rows_of_all,
    words,
)
from dgbench.lab.quantities import MeasuredQuantity


def clearly_above(first: MeasuredQuantity, second: MeasuredQuantity, *, unit: str = "x") -> Rule:
    """The one number above the one of another quantity, by intervals that do not meet."""

    def rule(context: EvaluationContext) -> RuleOutcome:
        one, two = (next(iter(side.estimates(context).values()), None) for side in (first, second))
        if one is None or two is None:
            return RuleOutcome(lacking=lacking_words(first, {}, context, ANYTHING))
        measured = f"{one.words(unit)} against {two.words(unit)}"
        sides = (("both", one.compared(two)),)
        return RuleOutcome(sides, rows_of_all(one, two), measured, estimates=(one, two))

    return rule


def each_line(
    quantity: MeasuredQuantity, dim: str, test: Callable[[dict[Any, float]], bool]
) -> Rule:
    """At every other coordinate the numbers by the values of a dimension pass a test."""

    def rule(context: EvaluationContext) -> RuleOutcome:
        numbers = quantity.estimates(context)
        if lacking := lacking_words(quantity, numbers, context, ANYTHING):
            return RuleOutcome(lacking=lacking)
        lines: dict[Coords, dict[Any, float]] = {}
        for at, one in numbers.items():
            rest = tuple(pair for pair in at if pair[0] != dim)
            lines.setdefault(rest, {})[dict(at)[dim]] = one.value
        sides = tuple(
            (words(context, at) or "all", 1 if test(line) else -1) for at, line in lines.items()
        )
        return replace(outcome(context, numbers), sides=sides)

    return rule
