"""The rules that turn a finding into a verdict. All of them are in this file.

In short, from the strongest rule to the weakest:

1. Nothing measured, a check that raised, a clock read in a smoke run, or a twin where the claim may
   not use one: *not run here*.
2. Weak evidence (an analogue, a projection, or a twin for a number bound to one dataset) supports
   a direction and no more. Pointing the other way it decides nothing: *not run here*, marked. A
   factor whose interval holds 1x, or a saving whose interval holds 0 %, supports neither side.
3. Counted evidence is exact: within the tolerance it reproduces, with the right sign but another
   value it is *direction only*, otherwise it contradicts.
4. Measured evidence reproduces with the right sign and a value within the tolerance. It
   contradicts only if its whole interval lies on the other side; an interval that holds both sides
   is undecided.
5. A result whose mathematics deviates from the reference is never *reproduced*.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec

from dgbench.lab.paper import Claim, Finding

Word = Literal["reproduced", "direction only", "contradicted", "not run here"]

GLYPHS: Final = ("R", "d", "X", "p", "-")
"""Reproduced, direction only, contradicted, projected, not run here: always in this order."""

MAX_DEVIATION: Final = 1e-5
"""Largest relative deviation from the reference that float rounding explains."""

FACTOR, SHARE, EXACT = 0.25, 0.05, 0.0
_SHARE_KINDS = frozenset({"utilisation", "similarity", "hit_rate", "accuracy"})
_COUNT_KINDS = frozenset({"volume", "dataset_stat", "complexity"})
_DIFFERENCES = ("% less", "% more", "% fewer", "% shorter", "% longer")
_STRICTNESS = {"allowed": 0, "direction": 1, "never": 2}


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one claim on one machine.

    Attributes:
        id: the claim.
        verdict: reproduced, direction only, contradicted or not run here.
        evidence: measured, analogue, counted, projected, or "" when nothing was measured.
        data: `real`, `twin`, or "".
        measured, low, high, unit: the value found and its interval.
        paper: the paper's value as printed in the ledger.
        target: the paper's scalar that `measured` was compared with, or None.
        reason: why this verdict, one sentence.
        rows: ids of the rows it rests on.
        tolerance: relative tolerance that was applied, or None where none applies.
        deviation: largest relative deviation from the reference.
        glyph: one of `GLYPHS`.
        other_way: weak evidence points the other way.
        gpu_idle: "GPU idle: SM active 0.3 %" where it rests on a race that left its GPU idle.
        broken: the check itself failed; shown as a warning.
        void: every row it could rest on has a result that is wrong or was compared with nothing.
    """

    id: str
    verdict: Word
    glyph: str
    reason: str
    evidence: str = ""
    data: str = ""
    measured: Any = None
    low: float | None = None
    high: float | None = None
    paper: Any = None
    target: float | None = None
    unit: str | None = None
    rows: tuple[str, ...] = ()
    tolerance: float | None = None
    deviation: float | None = None
    other_way: bool = False
    gpu_idle: str = ""
    broken: bool = False
    void: bool = False

    @property
    def row(self) -> str | None:
        """The first row it rests on, or None."""
        return self.rows[0] if self.rows else None


def count(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """Verdicts per glyph, all five keys in the fixed order; their sum is the number of verdicts."""
    counts = dict.fromkeys(GLYPHS, 0)
    for verdict in verdicts:
        counts[verdict.glyph] += 1
    return counts


def is_factor(claim: Claim) -> bool:
    """Return True if the claim's number is a ratio whose neutral value is 1."""
    unit = (claim.unit or "").lower()
    if unit == "x" or unit.startswith(("x ", "x(")) or "speedup" in unit:
        return True
    return not unit and claim.kind in ("speedup", "ordering")


def neutral(claim: Claim) -> float | None:
    """The value that says "no difference": 1 of a factor, 0 of a saving in percent, else None."""
    if is_factor(claim):
        return 1.0
    return 0.0 if (claim.unit or "").startswith(_DIFFERENCES) else None


def tolerance_of(claim: Claim) -> float:
    """The relative tolerance of a claim: its own, or that of its kind."""
    if claim.tolerance is not None:
        return claim.tolerance
    if is_factor(claim):
        return FACTOR
    unit = claim.unit or ""
    if claim.kind in _SHARE_KINDS or unit.startswith(("%", "fraction", "share")):
        return SHARE
    if claim.kind in _COUNT_KINDS:
        return SHARE if "reading" in claim.notes.lower() else EXACT
    return FACTOR


def what_it_needs(claim: Claim) -> str:
    """One sentence: what a machine must have to check this claim."""
    gpus = int(claim.needs.get("gpus", 0) or 0)
    parts = []
    if gpus and not claim.needs.get("cpu_only_ok", False):
        parts.append("one CUDA device" if gpus == 1 else f"{gpus} CUDA devices")
    if claim.needs.get("real_dataset_required", False) and claim.twin != "allowed":
        parts.append("the real dataset")
    if not parts:
        return "no experiment of this run measures it"
    return "needs " + " and ".join(parts)


def decide(
    claim: Claim,
    finding: Finding | None,
    *,
    twin_rule: tuple[str, str] | None = None,
    smoke: bool = False,
) -> Verdict:
    """Turn what a check found into a verdict.

    Args:
        claim: the statement of the paper.
        finding: what the check found, or None if there was nothing to look at.
        twin_rule: `(allowed | direction | never, reason)` from the specification of the twins;
            of this and the claim's own `twin` the stricter one counts.
        smoke: the rows are of the `smoke` preset, which is too small to time anything; only what
            was counted exactly is kept.
    """
    if finding is None or (finding.measured is None and finding.holds is None):
        said = finding.reason if finding is not None else ""
        return _verdict(claim, None, "not run here", said or what_it_needs(claim))

    if smoke and finding.evidence != "counted":
        reason = "a smoke run is not a measurement; run the quick preset"
        return _verdict(claim, finding, "not run here", reason)
    rule, why = _twin_rule(claim, twin_rule)
    if finding.undecided:
        reason = "undecided: the difference lies inside the noise"
        return _verdict(claim, finding, "not run here", reason)
    if finding.twin and rule == "never":
        why = why or "the twin is fitted to this number, so agreement would be circular"
        return _verdict(claim, finding, "not run here", f"needs the real data: {why}")
    value = _number(finding.measured)
    if value is not None and not math.isfinite(value):
        return _verdict(claim, finding, "not run here", f"the measured value is {value}")

    tolerance = tolerance_of(claim)
    target, bounds = _target(claim, finding)
    agrees = _agrees(finding, value, bounds, tolerance)
    same_way = _direction(claim, finding, value, bounds)
    weak = _weakness(claim, finding, rule)
    extra = {"target": target, "tolerance": None if finding.holds is not None else tolerance}

    if weak:
        side = _interval_side(claim, finding, bounds, tolerance)
        if side == "both" and neutral(claim) is not None:
            reason = f"undecided: the interval of {weak} includes {_no_difference(claim)}"
            return _verdict(claim, finding, "not run here", reason, **extra)
        return _weak(claim, finding, weak, agrees, same_way, extra)
    if finding.evidence == "counted":
        return _counted(claim, finding, agrees, same_way, tolerance, extra)
    return _measured(claim, finding, value, bounds, agrees, same_way, tolerance, extra)


def _weak(claim, finding, weak, agrees, same_way, extra) -> Verdict:
    if same_way is False or (same_way is None and finding.holds is False):
        shown = show(finding.measured, claim.unit)
        reason = f"{weak} points the other way" + (f": {shown}" if shown else "")
        return _verdict(claim, finding, "not run here", reason, other_way=True, **extra)
    if same_way or agrees:
        value = "value agrees too, but " if agrees else ""
        reason = f"{value}{weak} supports a direction only"
        return _verdict(claim, finding, "direction only", reason, **extra)
    reason = f"{weak} found {show(finding.measured, claim.unit)}; it has no direction to compare"
    return _verdict(claim, finding, "not run here", reason, **extra)


def _counted(claim, finding, agrees, same_way, tolerance, extra) -> Verdict:
    if agrees:
        words = "counted exactly" if tolerance == EXACT or finding.holds else _within(tolerance)
        return _reproduced(claim, finding, words, extra)
    if agrees is None:
        verdict: Word = "direction only" if same_way else "not run here"
        reason = (
            "right sign; the paper gives no number to compare"
            if same_way
            else ("counted, but the paper gives nothing to compare with")
        )
        return _verdict(claim, finding, verdict, reason, **extra)
    if same_way:
        return _verdict(
            claim, finding, "direction only", f"right sign, not {_within(tolerance)}", **extra
        )
    return _verdict(claim, finding, "contradicted", "counted exactly, and it differs", **extra)


def _measured(claim, finding, value, bounds, agrees, same_way, tolerance, extra) -> Verdict:
    side = _interval_side(claim, finding, bounds, tolerance)
    if same_way is False or (finding.holds is False and same_way is None):
        if side == "other":
            reason = "the whole interval lies on the other side"
            return _verdict(claim, finding, "contradicted", reason, **extra)
        reason = (
            "undecided: the interval includes both sides"
            if side == "both"
            else "undecided: it points the other way, without an interval"
        )
        return _verdict(claim, finding, "not run here", reason, **extra)
    if side == "both" and neutral(claim) is not None:
        reason = f"right sign, but the interval includes {_no_difference(claim)}"
        return _verdict(claim, finding, "direction only", reason, **extra)
    if agrees:
        words = "the statement holds" if finding.holds is not None else _within(tolerance)
        return _reproduced(claim, finding, words, extra)
    if same_way or (value is not None and bounds is not None):
        words = f"right sign, not {_within(tolerance)}" if same_way else f"not {_within(tolerance)}"
        return _verdict(claim, finding, "direction only", words, **extra)
    reason = "measured, but the paper gives nothing to compare with"
    return _verdict(claim, finding, "not run here", reason, **extra)


def _reproduced(claim, finding, words, extra) -> Verdict:
    deviation = finding.deviation
    if deviation is not None and not deviation <= MAX_DEVIATION:  # also true for NaN
        reason = (
            f"{words}, but the mathematics deviates by {deviation:.1e} from the reference "
            f"(at most {MAX_DEVIATION:.0e} is float rounding)"
        )
        return _verdict(claim, finding, "direction only", reason, **extra)
    return _verdict(claim, finding, "reproduced", words, **extra)


def _verdict(claim, finding, word: Word, reason: str, **extra) -> Verdict:
    evidence = finding.evidence if finding is not None else ""
    glyph = {"reproduced": "R", "contradicted": "X", "not run here": "-"}.get(word)
    if glyph is None:
        glyph = "p" if evidence == "projected" else "d"
    if finding is not None and finding.reason and finding.reason not in reason:
        reason = f"{reason}; {finding.reason}" if reason else finding.reason
    common = {
        "id": claim.id,
        "verdict": word,
        "glyph": glyph,
        "reason": reason,
        "paper": claim.value,
        "unit": claim.unit,
    }
    if finding is None:
        return Verdict(**common, **extra)
    return Verdict(
        **common,
        evidence=evidence,
        data="twin" if finding.twin else "real",
        measured=finding.measured,
        low=finding.low,
        high=finding.high,
        rows=tuple(finding.rows),
        deviation=finding.deviation,
        **extra,
    )


def _twin_rule(claim: Claim, given: tuple[str, str] | None) -> tuple[str, str]:
    rule, why = claim.twin, claim.twin_reason
    if rule == "allowed" and claim.needs.get("real_dataset_required", False):
        rule, why = "direction", why or "the number is bound to one dataset"
    if given is not None and _STRICTNESS[given[0]] > _STRICTNESS[rule]:
        return given
    return rule, why


def _weakness(claim: Claim, finding: Finding, rule: str) -> str:
    """Why the evidence can support a direction only, or "" if it is strong."""
    if finding.evidence == "analogue":
        return "a CPU analogue" if claim.needs.get("gpus") else "an analogue"
    if finding.evidence == "projected":
        return "a projection"
    if finding.twin and rule == "direction":
        return "a twin"
    return ""


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def _target(claim: Claim, finding: Finding) -> tuple[float | None, tuple[float, float] | None]:
    """The paper's scalar, and the range that counts as its value."""
    if finding.target is not None:
        return finding.target, (finding.target, finding.target)
    number = _number(claim.value)
    if number is not None:
        return number, (number, number)
    if isinstance(claim.value, dict):
        low, high = _number(claim.value.get("low")), _number(claim.value.get("high"))
        if low is not None and high is not None:
            return None, (low, high)
        mean = _number(claim.value.get("mean"))
        if mean is not None and len(claim.value) == 1:
            return mean, (mean, mean)
    return None, None


def _agrees(finding: Finding, value, bounds, tolerance: float) -> bool | None:
    """Return True if the value equals the paper's within the tolerance; None if nothing is
    comparable."""
    if finding.holds is not None:
        return finding.holds
    if value is None or bounds is None:
        return None
    low, high = bounds
    slack = 1e-12
    return low - abs(low) * (tolerance + slack) <= value <= high + abs(high) * (tolerance + slack)


def _direction(claim: Claim, finding: Finding, value, bounds) -> bool | None:
    """Return True if the measured value is on the paper's side; None if the claim has no sides."""
    if finding.direction is not None:
        return finding.direction
    if finding.holds is not None:
        return True if finding.holds else None
    middle = neutral(claim)
    if value is None or bounds is None or middle is None:
        return None
    if bounds[0] > middle:
        return value > middle
    if bounds[1] < middle:
        return value < middle
    return None


def _interval_side(claim: Claim, finding: Finding, bounds, tolerance: float) -> str:
    """Where the interval lies: `right`, `other`, `both`, or "" when there is none."""
    if finding.low is None or finding.high is None:
        return ""
    middle = neutral(claim)
    if middle is not None:
        if finding.low <= middle <= finding.high:
            return "both"
        above = finding.low > middle
        wants_above = bounds[0] >= middle if bounds is not None else True
        return "right" if above == wants_above else "other"
    if bounds is None:
        return ""
    low = bounds[0] - abs(bounds[0]) * tolerance
    high = bounds[1] + abs(bounds[1]) * tolerance
    return "other" if finding.high < low or finding.low > high else "both"


def _no_difference(claim: Claim) -> str:
    return "1x" if is_factor(claim) else "0 %"


def _within(tolerance: float) -> str:
    return f"within {tolerance:.0%} of the paper" if tolerance else "equal to the paper"


def show(value: Any, unit: str | None = None, *, printed: bool = False) -> str:
    """A value in few characters: `2.1x`, `38.7 %`, `CSR <= COO`; `printed` keeps every digit."""
    if value is None:
        return ""
    number = _number(value)
    if number is not None:
        text = f"{value:g}" if printed and abs(number) < 1e5 else digits(number)
        head = (unit or "").split(" ")[0]
        if head == "x" or "speedup" in (unit or "").lower():
            return f"{text}x"
        return f"{text} %" if head == "%" else text
    if isinstance(value, dict) and "as_printed" in value:
        return show(value["as_printed"], unit, printed=printed)
    if isinstance(value, dict):
        low, high = _number(value.get("low")), _number(value.get("high"))
        if set(value) == {"low", "high"} and low is not None and high is not None:
            first = show(low, unit, printed=printed).removesuffix(" %").removesuffix("x")
            return f"{first} to {show(high, unit, printed=printed)}"
        if set(value) == {"high"} and high is not None:
            return f"up to {show(high, unit, printed=printed)}"
        words = ((str(k).replace("_", " "), v) for k, v in value.items())
        return ", ".join(f"{k}: {show(v, unit, printed=printed)}" for k, v in words)
    if isinstance(value, list | tuple):
        return ", ".join(show(v, unit, printed=printed) for v in value)
    return str(value)


def unit_rest(unit: str | None) -> str:
    """Rest of a unit beyond the `x` or `%` that `show` writes, without enclosing brackets."""
    text = (unit or "").strip()
    for head in ("x", "%"):
        if text == head:
            return ""
        if text.startswith(f"{head} "):
            text = text[len(head) + 1 :]
            break
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    return text


def digits(number: float) -> str:
    """Two significant digits below 10, three above, whole numbers in full."""
    magnitude = abs(number)
    if magnitude >= 1e15 or not math.isfinite(number):
        return f"{number:.3g}"
    if number == int(number) or magnitude >= 100:
        text = f"{round(number):,}" if magnitude >= 1e4 else str(round(number))
        return text.replace(",", " ")
    if magnitude >= 10:
        return f"{number:.1f}"
    return f"{number:.1f}" if magnitude >= 0.995 else f"{number:.2g}"
