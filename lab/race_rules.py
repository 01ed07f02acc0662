"""Rules of claims about races: contenders on several workloads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from dgbench.lab.estimates import Coords, EvaluationContext
from dgbench.lab.evidence import some
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


def ahead_of_all(
    race: Callable[[str], MeasuredQuantity], rivals: Iterable[str], *, most: bool = False
) -> Rule:
    """A contender ahead of each rival on every workload where it met all of them, or (`most`) on
    more than half of these.

    Rivals that it met nowhere were not planned. A workload where a rival is missing is not won,
    and lost only to those that ran.

    Args:
        race: rival -> its time over the contender's, by workload.
    """

    def rule(context: EvaluationContext) -> RuleOutcome:
        every = [numbers for rival in rivals if (numbers := race(rival).estimates(context))]
        ratios = {(n, at): one for n, numbers in enumerate(every) for at, one in numbers.items()}
        sides: dict[Coords, int] = {}
        for at in dict.fromkeys(at for _, at in ratios):
            met = [numbers[at].side(1.0) for numbers in every if at in numbers]
            if len(met) == len(every) or (min(met) < 0 and not most):
                sides[at] = min(met)
        if not sides:
            return RuleOutcome(
                lacking=lacking_words(race(next(iter(rivals))), {}, context, ANYTHING)
            )
        won, lost = (sum(side == at for side in sides.values()) for at in (1, -1))
        named = tuple((words(context, at), side) for at, side in sides.items())
        majority = 1 if 2 * won > len(sides) else -1 if 2 * lost >= len(sides) else 0
        return RuleOutcome(
            (("most workloads", majority),) if most else named,
            rows_of_all(*ratios.values()), f"ahead on {won}, behind on {lost} of "
            + some(len(sides), "workload"), estimates=tuple(ratios.values()),
        )  # fmt: skip

    return rule


def extreme_near_claim(
    quantity: MeasuredQuantity, pick: Callable[..., Any], entry: str, at: Mapping[str, Any]
) -> Rule:
    """The least (`pick=min`) or largest number, which must lie at these values of dimensions,
    against an entry of the claim's value; above 1 is its direction.

    A number elsewhere that lies clearly beyond all of these breaks the statement; it is open where
    that is not clear.
    """

    def rule(context: EvaluationContext) -> RuleOutcome:
        numbers = quantity.estimates(context)
        mine = {coords: one for coords, one in numbers.items() if at.items() <= {*coords}}
        if not mine or len(mine) == len(numbers):
            return RuleOutcome(lacking=f"{words(context, at.items())} and others are needed")
        key, far = (pick(them, key=lambda c: numbers[c].value) for them in (mine, numbers))
        against = [numbers[far].compared(one) for one in mine.values()]
        beyond = max(against) < 0 if pick is min else min(against) > 0
        value = numbers[key]
        direction = 1 if value.value > 1 and not beyond else -1
        return replace(
            outcome(context, numbers, "x"), reported=value, measured=value.value,
            target=float(context.claim.value[entry]),
            direction=0 if far not in mine and not beyond else direction,
            remarks=(words(context, key), f"{pick.__name__} of all {words(context, far)}"),
        )  # fmt: skip

    return rule
