"""Verdicts that differ from those of the first edition, with the rule that made the difference.

The first edition let the author of a check name the strength of its evidence, and weak evidence
agree but never disagree. Its verdicts are kept in `first_edition.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

from dgbench.harness.claims.verdict import Verdict
from dgbench.runtime.documents import load_yaml

UNSAID: Final = "not run here"
POINTED_AWAY: Final = "not run here (points the other way)"


@dataclass(frozen=True, slots=True)
class VerdictChange:
    """A claim whose verdict is another one now.

    Attributes:
        paper, claim: where it stands. before: verdict of the first edition, with the evidence that
            its check named. after: today's verdict. rule: that made the difference.
        here: what it found, in words, or "".
    """

    paper: str
    claim: str
    before: str
    after: str
    rule: str
    here: str


@cache
def first_edition() -> dict[str, tuple[str, str]]:
    """Claim -> (verdict, evidence) of the first edition."""
    text = resources.files(__package__).joinpath("first_edition.yaml").read_bytes()
    return {claim: tuple(found) for claim, found in load_yaml(text).items()}


def changes(verdicts: Iterable[tuple[str, Any, Verdict]]) -> list[VerdictChange]:
    """All changes, in the order of the claims.

    Args:
        verdicts: (paper, claim, verdict) of each claim.
    """
    known = first_edition()
    found = []
    for paper, claim, verdict in verdicts:
        if claim.id not in known:
            continue
        before, evidence = known[claim.id]
        if before != verdict.verdict:
            said = before if evidence == "none" else f"{before} ({evidence})"
            rule, here = reason(before, verdict)
            found.append(VerdictChange(paper, claim.id, said, verdict.verdict, rule, here))
    return found


def reason(before: str, verdict: Verdict) -> tuple[str, str]:
    """The rule that turned a verdict of the first edition into today's, and what it found here."""
    lacks = ", ".join(verdict.lacks)
    match verdict.glyph:
        case "=":
            return "no measurement can decide it", verdict.reason
        case "v":
            return "the kindest of several interpretations had been taken", verdict.reason
        case "-":
            return "what was taken as evidence is none", verdict.reason
        case "u" if before in (UNSAID, POINTED_AWAY):
            return "it was measured, and what was measured is open", verdict.reason
        case "u":
            return "interval and noise floor leave it open", verdict.reason
        case "O" if before == POINTED_AWAY:
            return "weak evidence may disagree", lacks
        case "X" if before == POINTED_AWAY:
            return "strong evidence had been called weak and passed over", ""
        case "S" | "s" | "O" if before in ("reproduced", "contradicted"):
            return "the evidence is weak", lacks
        case "S" | "s" if before in ("direction only", "projected"):
            return "weak evidence is called so", lacks
        case "O" | "X" if before in ("direction only", "projected", "reproduced"):
            return "a broken bound or another value is no agreement", lacks
        case _ if before in (UNSAID, POINTED_AWAY):
            return "what was measured answers it", lacks
    return "strength follows from its conditions", lacks
