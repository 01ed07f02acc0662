"""Combinations of rules: statements of several parts, interpretations, models and proxies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dgbench.lab.estimates import EvaluationContext, unnoted
from dgbench.lab.judging import judging_apart
from dgbench.lab.outcomes import Required, Rule, RuleOutcome, lacking_words, rows_of_all
from dgbench.lab.quantities import MeasuredQuantity


def with_printed_value(sign: Rule, value: Rule) -> Rule:
    """Place by place a printed value is met or, where it is missed, the sign holds: met everywhere,
    the claim holds; elsewhere the sides are its direction. A sign inside the noise stays open."""

    def rule(context: EvaluationContext) -> RuleOutcome:
        first, second = sign(context), value(context)
        if first.lacking or second.lacking:
            return first if first.lacking else second
        met = dict(second.sides)
        sides = tuple(
            (label, 1 if side and met.get(label, 0) > 0 else side) for label, side in first.sides
        )
        return replace(
            first, sides=sides, met=second.side > 0, rows=rows_of_all(first, second),
            measured={**first.measured, **second.measured},
            remarks=(*first.remarks, *second.remarks),
        )  # fmt: skip

    return rule


def both(*rules: Rule, whatever_ran: bool = False) -> Rule:
    """All statements hold; the sides of all decide together. One that lacks what it needs takes no
    part (`whatever_ran`), else nothing is decided without."""

    def rule(context: EvaluationContext) -> RuleOutcome:
        found = [one(context) for one in rules]
        if whatever_ran:
            found = [one for one in found if not one.lacking] or found[:1]
        for one in found:
            if one.lacking:
                return one
        measured: dict[str, str] = {}
        for one in found:
            for name, said in one.measured.items():
                measured[name] = f"{measured[name]}, {said}" if name in measured else said
        return replace(
            found[0], sides=tuple(side for one in found for side in one.sides), measured=measured,
            estimates=tuple(number for one in found for number in one.estimates),
            rows=rows_of_all(*found),
            remarks=tuple(dict.fromkeys(word for one in found for word in one.remarks)),
        )  # fmt: skip

    return rule


def or_direction(statement: Rule, direction: Rule, *, settles: bool = False) -> Rule:
    """A statement and, where it fails, a weaker one that says its direction; `settles`: that counts
    where the statement is open, too."""

    def rule(context: EvaluationContext) -> RuleOutcome:
        found, weaker = statement(context), direction(context)
        if found.lacking or weaker.lacking:
            return found if found.lacking else weaker
        found = replace(found, direction=weaker.side)
        if settles and found.side == 0 and weaker.side > 0:
            found = replace(
                found, sides=(("every comparison", -1),), remarks=tuple(found.against())
            )
        return found

    return rule


def first_found(*rules: Rule) -> Rule:
    """The outcome of the first rule that has what it needs; what others read counts for nothing."""

    def rule(context: EvaluationContext) -> RuleOutcome:
        for one in rules[:-1]:
            with unnoted():
                lacking = one(context).lacking
            if not lacking:
                return one(context)
        return rules[-1](context)

    return rule


def complete(rule: Rule, quantity: MeasuredQuantity, required: Required) -> Rule:
    """The outcome of a rule where a quantity has numbers at all required values."""

    def whole(context: EvaluationContext) -> RuleOutcome:
        with unnoted():
            numbers = quantity.estimates(context)
        lacking = lacking_words(quantity, numbers, context, required)
        return RuleOutcome(lacking=lacking) if lacking else rule(context)

    return whole


def interpretations(why: str, rules: Mapping[str, Rule]) -> Rule:
    """The claim under each interpretation that the paper leaves open; numbers that one reads count
    for it alone."""

    def rule(context: EvaluationContext) -> RuleOutcome:
        found = {}
        for name, one in rules.items():
            with judging_apart() as apart:
                found[name] = one(context).finding(context.forms.judged)
            found[name].reads = frozenset(apart.reads)
        if all(one.empty for one in found.values()):
            return RuleOutcome(lacking=next(iter(found.values())).reason)
        return RuleOutcome(interpretations=found, remarks=(why,))

    return rule


def by_model(
    rule: Rule, model: str, *, on_cpu_only: bool = False, of_parts_only: bool = False
) -> Rule:
    """The outcome of a rule that computes with a model of another machine or of a whole dataset,
    which only rows of a CPU, or only those on a part of a dataset, may need."""

    def modelled(context: EvaluationContext) -> RuleOutcome:
        found = rule(context)
        used = not on_cpu_only or any(row.device != "cuda" for row in found.rows)
        used &= not of_parts_only or any(row.data.get("scale", 1.0) != 1.0 for row in found.rows)
        return replace(found, model=model if used else "")

    return modelled


def as_proxy(rule: Rule, proxy: str, *, on_cpu_only: bool = False) -> Rule:
    """The outcome of a rule whose quantity stands for the claim's."""

    def stands_for(context: EvaluationContext) -> RuleOutcome:
        found = rule(context)
        used = not on_cpu_only or any(row.device != "cuda" for row in found.rows)
        return replace(found, proxy=proxy if used else "")

    return stands_for


def needs_gpu(rule: Rule, reason: str) -> Rule:
    """The outcome of a rule; without rows the reason is what the claim needs."""

    def needing(context: EvaluationContext) -> RuleOutcome:
        found = rule(context)
        return replace(found, lacking=reason) if found.lacking else found

    return needing


def shown_beside(rule: Rule, quantities: Mapping[str, MeasuredQuantity], unit: str = "x") -> Rule:
    """The outcome of a rule, with other numbers in its reason; these are no evidence."""

    def shown(context: EvaluationContext) -> RuleOutcome:
        found = rule(context)
        with unnoted():
            told = [f"{name} {one.words(unit)}" for name, quantity in quantities.items()
                    for one in quantity.estimates(context).values()]  # fmt: skip
        if not told:
            return found
        said = f"beside it: {', '.join(told)}"
        if found.lacking:
            return replace(found, lacking=f"{found.lacking}; {said}")
        return replace(found, remarks=(*found.remarks, said))

    return shown
