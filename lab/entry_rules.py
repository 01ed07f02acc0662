"""Rules of claims whose value has entries by name: numbers near them, in their order, in their
range."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from dgbench.lab.estimates import Estimate, EvaluationContext
from dgbench.lab.judging import current_floor
from dgbench.lab.outcomes import ANYTHING, Rule, RuleOutcome, labels, lacking_words, rows_of_all
from dgbench.lab.printed import plain
from dgbench.lab.quantities import MeasuredQuantity
from dgbench.lab.rules import all_within

Entries = Mapping[str, MeasuredQuantity]
"""Quantity by name of the entry of the claim's value that it stands beside."""


def near_entries(entries: Entries, *, points: float = 0.0, share: float = 0.0) -> Rule:
    """Every number lies near the entry of its name: by `points`, or by a share of the entry."""

    def rule(context: EvaluationContext) -> RuleOutcome:
        numbers = _numbers(context, entries)
        sides, gaps = [], []
        for label, (name, one) in numbers.items():
            printed = plain(context.claim.value[name])
            near = abs(one.value - printed) <= points + share * printed
            sides.append((f"{label} as printed", 1 if near else -1))
            gaps.append(f"{one.value - printed:+.3g} ({label})")
        remarks = (f"off by {', '.join(gaps)}",)
        return replace(_outcome(context, entries, numbers), sides=tuple(sides), remarks=remarks)

    return rule


def in_order_of_entries(entries: Entries, *, times: bool = False) -> Rule:
    """Numbers, one for each entry, lie in the order of the claim's entries; `times` are open where
    the noise floor is wider than what lies between them."""

    def rule(context: EvaluationContext) -> RuleOutcome:
        numbers = _numbers(context, entries)
        values = {name: one.value for name, one in numbers.values()}
        sides = []
        for low, high in pairwise(sorted(values, key=lambda one: plain(context.claim.value[one]))):
            least, most = sorted((values[low], values[high]))
            near = most <= (1 + current_floor()) * least
            side = 0 if times and near else 1 if values[low] <= values[high] else -1
            sides.append((f"{high} over {low}", side))
        return replace(_outcome(context, entries, numbers), sides=tuple(sides))

    return rule


def within_claim(quantity: MeasuredQuantity, *, slack: float = 0.0, **more: Any) -> Rule:
    """Every number lies between the ends of the claim's value, or outside by `slack` at most."""
    return lambda context: all_within(
        quantity, context.claim.value["low"] - slack, context.claim.value["high"] + slack, **more
    )(context)  # fmt: skip


def _numbers(context: EvaluationContext, entries: Entries) -> dict[str, tuple[str, Estimate]]:
    """Name of the entry and number, by the number's words."""
    numbers: dict[str, tuple[str, Estimate]] = {}
    for name, quantity in entries.items():
        mine = quantity.estimates(context)
        for label, one in zip(labels(context, mine), mine.values(), strict=True):
            numbers[name if len(mine) == 1 else f"{name}, {label}"] = name, one
    return numbers


def _outcome(
    context: EvaluationContext, entries: Entries, numbers: Mapping[str, tuple[str, Estimate]]
) -> RuleOutcome:
    """An outcome whose measured numbers stand beside the claim's entries, or what lacks."""
    for name, quantity in entries.items():
        if name not in {name for name, _ in numbers.values()}:
            return RuleOutcome(lacking=f"{name}: {lacking_words(quantity, {}, context, ANYTHING)}")
    every = tuple(one for _, one in numbers.values())
    measured = {label: one.value for label, (_, one) in numbers.items()}
    return RuleOutcome(rows=rows_of_all(*every), estimates=every, measured=measured)
