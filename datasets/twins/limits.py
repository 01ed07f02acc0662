"""Limits of twins as evidence: reasons by kind of quantity, and rules for the papers' claims."""

from __future__ import annotations

import functools
from fnmatch import fnmatchcase
from importlib import resources
from typing import Final, Literal

import msgspec
import yaml

from dgbench.runtime.documents import load_yaml
from dgbench.runtime.errors import DataError, unknown_key

Rule = Literal["allowed", "direction", "never"]
LIMITS_FILE: Final = "limits.yaml"


class ClaimRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule for the claims whose id matches a pattern.

    Attributes:
        match: shell patterns of claim ids.
        rule: `never` or `direction`.
        tag: kind of quantity whose reason applies, or "".
        reason: the reason where there is no tag.
    """

    match: tuple[str, ...]
    rule: Literal["direction", "never"]
    tag: str = ""
    reason: str = ""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file: reasons by tag, and rules by paper in the order they are tried."""

    never: dict[str, str]
    claims: dict[str, tuple[ClaimRule, ...]]


def read_limits(text: str) -> Limits:
    """Parse the rules.

    Raises:
        DataError: an unknown key or tag, or a rule without a reason.
    """
    try:
        limits = msgspec.convert(load_yaml(text.encode()), Limits)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise DataError(f"limits of twins: {error}") from error
    for paper, rules in limits.claims.items():
        for rule in rules:
            if rule.tag and rule.tag not in limits.never:
                raise DataError(f"limits of twins: {paper}: tag '{rule.tag}' has no reason")
            if bool(rule.tag) == bool(rule.reason):
                raise DataError(f"limits of twins: {paper}: {rule.match} needs a tag or a reason")
    return limits


@functools.cache
def limits() -> Limits:
    """The rules that dgbench ships."""
    return read_limits(resources.files(__package__).joinpath(LIMITS_FILE).read_text("utf-8"))


def tags() -> list[str]:
    """Kinds of quantity that no twin decides."""
    return sorted(limits().never)


def never(tag: str) -> str:
    """Why a twin does not decide a kind of quantity.

    Raises:
        UnknownKeyError: no such tag.
    """
    reasons = limits().never
    if tag not in reasons:
        raise unknown_key("kind of quantity", tag, reasons)
    return reasons[tag]


def twin_rule(claim_id: str) -> tuple[Rule, str]:
    """Rule on whether a twin may decide a claim, and its reason.

    Args:
        claim_id: id in a paper's ledger, `<paper>-...`.

    Returns:
        `("allowed", "")`, or `"direction"` or `"never"` with the reason.
    """
    shipped = limits()
    for rule in shipped.claims.get(claim_id.split("-", 1)[0], ()):
        if any(fnmatchcase(claim_id, pattern) for pattern in rule.match):
            return rule.rule, rule.reason or shipped.never[rule.tag]
    return "allowed", ""
