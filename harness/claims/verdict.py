"""The rules that turn a finding into a verdict. All of them are in this file.

A verdict is read from a table with two sides: how strong the evidence is, which follows from the
conditions under which it was obtained (`lab.evidence`), and how it agrees with the claim.

              value        direction               undecided   opposite
    strong    reproduced   direction only          undecided   contradicted
    weak      supported    supported (direction)   undecided   opposed

1. What no measurement can decide is *by definition*, and counts in no total.
2. Nothing measured, a check that raised, a clock read in a smoke run, or a twin that was fitted to
   the number: *not run here*.
3. A time or a ratio of times decides nothing in a run without a noise floor. An interval that meets
   the floor around "no difference" is *undecided*; a broken bound is *opposite*.
4. Where the paper leaves a reading open, the verdict holds for all readings or *depends on the
   reading*.
5. A result whose mathematics deviates from the reference agrees in no value.

The table is symmetric: evidence that may support may oppose, and as strongly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from dgbench.harness.claims.shown import number_of, show
from dgbench.lab.evidence import Conditions, Scope, some, strength
from dgbench.lab.paper import Claim, Finding
from dgbench.runtime.statistics import control_disturbed, side

Word = Literal[
    "reproduced", "direction only", "contradicted", "supported", "supported (direction)", "opposed",
    "undecided", "depends on the reading", "by definition", "not run here",
]  # fmt: skip
Agreement = Literal["value", "direction", "undecided", "opposite", "none"]

GLYPHS: Final[dict[str, Word]] = {
    "R": "reproduced",
    "d": "direction only",
    "X": "contradicted",
    "S": "supported",
    "s": "supported (direction)",
    "O": "opposed",
    "u": "undecided",
    "v": "depends on the reading",
    "=": "by definition",
    "-": "not run here",
}
"""Glyph -> verdict, always in this order: strong ones, weak ones, open ones, none."""
FOR: Final = ("R", "d", "S", "s")
AGAINST: Final = ("X", "O")
STRONG: Final = ("R", "d", "X")
WEAK: Final = ("S", "s", "O")
OPEN: Final = ("u", "v")

_TABLE: Final[Mapping[str, Mapping[str, Word]]] = {
    "strong": {
        "value": "reproduced",
        "direction": "direction only",
        "undecided": "undecided",
        "opposite": "contradicted",
    },
    "weak": {
        "value": "supported",
        "direction": "supported (direction)",
        "undecided": "undecided",
        "opposite": "opposed",
    },
}
_GLYPH_OF: Final = {word: glyph for glyph, word in GLYPHS.items()}

MAX_DEVIATION: Final = 1e-5
"""Largest relative deviation from the reference that float rounding explains."""

FACTOR, SHARE, EXACT = 0.25, 0.05, 0.0
_SHARE_KINDS = frozenset({"utilisation", "similarity", "hit_rate", "accuracy"})
_COUNT_KINDS = frozenset({"volume", "dataset_stat", "complexity"})
_DIFFERENCES = ("% less", "% more", "% fewer", "% shorter", "% longer")


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one claim on one machine.

    Attributes:
        id: the claim.
        verdict, glyph: see `GLYPHS`.
        reason: why this verdict, one sentence.
        strength: `strong`, `weak`, or "" where nothing decides.
        agreement: `value`, `direction`, `undecided`, `opposite`, or "".
        lacks: why the evidence is not strong, each in a few words.
        source: `counted`, `printed`, `learned`, `timed`, `probed`, `projected`, or "" when nothing
            was measured. device: `cpu` or `cuda`.
        data: `real`, `part`, `other`, `printed`, `twin`, or "" where no dataset was used.
        measured, low, high, unit: the value found and its interval.
        paper: the paper's value as printed in the ledger.
        target: the paper's scalar that `measured` was compared with, or None.
        rows: ids of the rows it rests on.
        tolerance: relative tolerance that was applied, or None where none applies.
        deviation: largest relative deviation from the reference.
        readings: verdicts under each reading that the paper leaves open.
        gpu_idle: "GPU idle: SM active 0.3 %" where it rests on a race that left its GPU idle.
        broken: the check itself failed; shown as a warning.
        void: every row it could rest on has a result that is wrong or was compared with nothing.
    """

    id: str
    verdict: Word
    glyph: str
    reason: str
    strength: Literal["", "strong", "weak"] = ""
    agreement: Literal["", "value", "direction", "undecided", "opposite"] = ""
    lacks: tuple[str, ...] = ()
    source: str = ""
    device: str = ""
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
    readings: dict[str, Word] = {}
    gpu_idle: str = ""
    broken: bool = False
    void: bool = False

    @property
    def row(self) -> str | None:
        """The first row it rests on, or None."""
        return self.rows[0] if self.rows else None

    @property
    def side(self) -> Literal["for", "against", ""]:
        """`for` the claim, `against` it, or "" where it decides nothing."""
        if self.glyph in FOR:
            return "for"
        return "against" if self.glyph in AGAINST else ""


def count(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """Verdicts per glyph, all keys in the fixed order; their sum is the number of verdicts."""
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
        return EXACT
    return FACTOR


def what_it_needs(claim: Claim) -> str:
    """One sentence: what a machine must have to check this claim."""
    scope = Scope.of(claim)
    parts = []
    if scope.gpus and not claim.needs.get("cpu_only_ok", False):
        parts.append("one CUDA device" if scope.gpus == 1 else f"{scope.gpus} CUDA devices")
    if scope.named_data:
        parts.append("the real dataset")
    if not parts:
        return "no experiment of this run measures it"
    return "needs " + " and ".join(parts)


def decide(
    claim: Claim,
    finding: Finding | None,
    found: Conditions | Mapping[str, Conditions] | None = None,
    *,
    floor: float | None = 0.0,
    twin_rule: tuple[str, str] | None = None,
    smoke: bool = False,
) -> Verdict:
    """Turn what a check found into a verdict.

    Args:
        claim: the statement of the paper.
        finding: what the check found, or None if there was nothing to look at.
        found: the conditions under which it was found; of a finding with readings, by reading.
        floor: relative noise floor of the run; None where none was measured.
        twin_rule: `(allowed | direction | never, reason)` from the specification of the twins;
            of this and the claim's own `twin` the stricter one counts.
        smoke: the rows are of the `smoke` preset, which is too small to time anything; only what
            was counted exactly is kept.
    """
    if finding is not None and finding.readings:
        return _over_readings(claim, finding, found, floor=floor, twin_rule=twin_rule, smoke=smoke)
    where = found if isinstance(found, Conditions) else Conditions()
    if claim.definition:
        shown = finding if finding is not None and not finding.empty else None
        return _verdict(claim, shown, where, "by definition", claim.definition)
    if finding is None or finding.empty:
        said = finding.reason if finding is not None else ""
        return _verdict(claim, None, where, "not run here", said or what_it_needs(claim))
    if smoke and where.source not in ("counted", "printed"):
        reason = "a smoke run is not a measurement; run the quick preset"
        return _verdict(claim, finding, where, "not run here", reason)
    scope = Scope.of(claim, twin_rule)
    strong, lacks = strength(scope, where)
    if strong == "none":
        return _verdict(claim, finding, where, "not run here", "; ".join(lacks))
    value = number_of(finding.measured)
    if value is not None and not math.isfinite(value):
        return _verdict(claim, finding, where, "not run here", f"the measured value is {value}")
    if _of_other_hardware(claim, finding, scope, where):
        reason = "a time of other hardware than the paper's: neither for nor against"
        return _verdict(claim, finding, where, "not run here", reason)
    agreed, reason = agreement(claim, finding, where, floor)
    if agreed == "none":
        return _verdict(claim, finding, where, "not run here", reason)
    if agreed == "value" and _deviates(finding):
        agreed = "direction"
        reason += (
            f", but the mathematics deviates by {finding.deviation:.1e} from the reference "
            f"(at most {MAX_DEVIATION:.0e} is float rounding)"
        )
    if lacks and agreed != "undecided":
        reason += f"; weak: {', '.join(lacks)}"
    if where.disturbed and where.source == "timed":
        reason += f"; disturbed by others: {some(where.disturbed, 'process', 'processes')}"
    return _verdict(
        claim,
        finding,
        where,
        _TABLE[strong][agreed],
        reason,
        strength=strong,
        agreement=agreed,
        lacks=tuple(lacks),
        target=_target(claim, finding)[0],
        tolerance=None if finding.holds is not None else tolerance_of(claim),
    )


def agreement(
    claim: Claim, finding: Finding, found: Conditions, floor: float | None
) -> tuple[Agreement, str]:
    """Return how a finding agrees with its claim, and why.

    Decided from the interval, the tolerance and the noise floor together.
    """
    if found.source == "timed" and floor is None:
        return "undecided", "the run measured no noise floor"
    if found.source == "timed" and floor is not None and control_disturbed(floor):
        return "undecided", (
            f"not judged: the A/A control was disturbed (noise floor {100 * floor:.0f} %)"
        )
    if finding.undecided:
        return "undecided", finding.reason or "the difference lies inside the noise"
    if finding.holds is not None:
        if finding.holds:
            return "value", "the statement holds"
        if finding.direction and not claim.bound:
            return "direction", "right direction, not the whole statement"
        return "opposite", "the statement does not hold"
    value = number_of(finding.measured)
    bounds = _target(claim, finding)[1]
    tolerance = tolerance_of(claim)
    if value is None or bounds is None:
        return _without_scalar(claim, finding, tolerance)
    low, high = _interval(finding, value)
    middle = neutral(claim)
    if found.source == "timed" and middle is not None and finding.low is None:
        return "undecided", "one pair of processes has no interval"
    if claim.bound:
        return _bounded(claim, low, high, bounds)
    inside = _inside(value, bounds, tolerance)
    margin = (floor or 0.0) if found.source == "timed" else 0.0
    if middle is not None and not bounds[0] <= middle <= bounds[1]:
        below, above = (end if middle == 1.0 else 1 + end / 100 for end in (low, high))
        which = side(below, above, margin)
        if not which:
            what = _no_difference(claim)
            wide = low > middle or high < middle
            return "undecided", (
                f"inside the noise floor of {100 * margin:.1f} %"
                if wide
                else f"the interval includes {what}"
            )
        right = (which > 0) == (bounds[0] > middle)
        if finding.direction is not None:
            right = finding.direction
        if not right:
            return "opposite", "the other way"
    elif inside:
        pass
    elif finding.direction is None or not finding.direction:
        if _meets(low, high, bounds, max(tolerance, margin)):
            return "undecided", "the interval includes the paper's value"
        return "opposite", f"not {_within(tolerance)}"
    return ("value", _within(tolerance)) if inside else (
        "direction", f"right direction, not {_within(tolerance)}"
    )  # fmt: skip


def _without_scalar(claim: Claim, finding: Finding, tolerance: float) -> tuple[Agreement, str]:
    """Agreement of words and mappings: value where each printed number is met."""
    if finding.direction is None:
        return "none", "measured, but the paper gives nothing to compare with"
    if not finding.direction:
        return "opposite", "the other way"
    if isinstance(finding.measured, Mapping) and isinstance(claim.value, Mapping):
        numbers = {name: number_of(value) for name, value in claim.value.items()}
        pairs = [
            (number_of(finding.measured.get(name)), there)
            for name, there in numbers.items()
            if there is not None
        ]
        if pairs and all(
            here is not None and _inside(here, (there, there), tolerance) for here, there in pairs
        ):
            return "value", f"all printed numbers {_within(tolerance)}"
    return "direction", "right direction"


def _bounded(
    claim: Claim, low: float, high: float, bounds: tuple[float, float]
) -> tuple[Agreement, str]:
    """Agreement with a printed bound."""
    upper = claim.bound == "upper"
    kept = high <= bounds[1] if upper else low >= bounds[0]
    broken = low > bounds[1] if upper else high < bounds[0]
    if kept:
        return "value", "the bound holds"
    return ("opposite", "the bound is broken") if broken else (
        "undecided", "the interval includes the bound"
    )  # fmt: skip


def _over_readings(claim: Claim, finding: Finding, found: Any, **context: Any) -> Verdict:
    """One verdict of a claim under several readings."""
    places = found if isinstance(found, Mapping) else {}
    each = {
        name: decide(claim, one, places.get(name), **context)
        for name, one in finding.readings.items()
    }
    words = {name: verdict.verdict for name, verdict in each.items()}
    said = "; ".join(
        f"{name}: {verdict.verdict}"
        + (f", {shown}" if (shown := show(verdict.measured, claim.unit)) else "")
        for name, verdict in each.items()
    )
    measured = {name: one for name, one in each.items() if one.glyph != "-"} or each
    # Readings that take one side agree; the weakest of their verdicts holds for all.
    first = max(measured.values(), key=lambda one: list(GLYPHS).index(one.glyph))
    sides = {one.side or one.glyph for one in measured.values()}
    if len(sides) == 1:
        kept = {name: getattr(first, name) for name in first.__struct_fields__}
        told = "; ".join(filter(None, (first.reason, finding.reason)))
        kept |= {"reason": f"{told}; under every reading ({said})", "readings": words}
        if len(measured) < len(each):
            kept |= {"reason": f"{told}; not all readings were measured ({said})"}
            if first.side:  # what holds for some of them is weak
                word = _TABLE["weak"][first.agreement]
                lacks = (*first.lacks, "not all readings")
                kept |= {"verdict": word, "glyph": _GLYPH_OF[word], "strength": "weak"}
                kept |= {"lacks": lacks}
        return Verdict(**kept)
    first = next(iter(measured.values()))
    rows = tuple(dict.fromkeys(row for verdict in each.values() for row in verdict.rows))
    return Verdict(
        id=claim.id,
        verdict="depends on the reading",
        glyph=_GLYPH_OF["depends on the reading"],
        reason="; ".join(filter(None, (said, finding.reason))),
        paper=claim.value,
        unit=claim.unit,
        measured={name: verdict.measured for name, verdict in each.items()},
        rows=rows,
        readings=words,
        source=first.source,
        device=first.device,
        data=first.data,
    )


def _of_other_hardware(claim: Claim, finding: Finding, scope: Scope, found: Conditions) -> bool:
    """Return True for an absolute time or rate that was taken on another class of device."""
    if claim.kind not in ("time", "throughput") or neutral(claim) is not None or claim.bound:
        return False
    absolute = finding.direction is None and finding.holds is None
    other = scope.device not in ("both", "gpu" if found.device == "cuda" else "cpu")
    return absolute and other and found.source in ("timed", "probed")


def _deviates(finding: Finding) -> bool:
    deviation = finding.deviation
    return deviation is not None and not deviation <= MAX_DEVIATION  # also true for NaN


def _verdict(
    claim: Claim, finding: Finding | None, found: Conditions, word: Word, reason: str, **extra: Any
) -> Verdict:
    if finding is not None and finding.reason and finding.reason not in reason:
        reason = f"{reason}; {finding.reason}" if reason else finding.reason
    common: dict[str, Any] = {
        "id": claim.id,
        "verdict": word,
        "glyph": _GLYPH_OF[word],
        "reason": reason,
        "paper": claim.value,
        "unit": claim.unit,
    }
    if finding is None:
        return Verdict(**common, **extra)
    return Verdict(
        **common,
        source=found.source,
        device=found.device,
        data=found.data,
        measured=finding.measured,
        low=finding.low,
        high=finding.high,
        rows=tuple(finding.rows),
        deviation=finding.deviation,
        **extra,
    )


def _target(claim: Claim, finding: Finding) -> tuple[float | None, tuple[float, float] | None]:
    """The paper's scalar, and the range that counts as its value."""
    if finding.target is not None:
        return finding.target, (finding.target, finding.target)
    number = number_of(claim.value)
    if number is not None:
        return number, (number, number)
    if isinstance(claim.value, dict):
        low, high = number_of(claim.value.get("low")), number_of(claim.value.get("high"))
        if low is not None and high is not None:
            return None, (low, high)
        mean = number_of(claim.value.get("mean"))
        if mean is not None and len(claim.value) == 1:
            return mean, (mean, mean)
        only = high if low is None else low
        if only is not None and len(claim.value) == 1:
            return only, (only, only)
    return None, None


def _interval(finding: Finding, value: float) -> tuple[float, float]:
    if finding.low is None or finding.high is None:
        return value, value
    return finding.low, finding.high


def _inside(value: float, bounds: tuple[float, float], tolerance: float) -> bool:
    """Return True if a value equals the paper's within the tolerance."""
    low, high = bounds
    slack = tolerance + 1e-12
    return low - abs(low) * slack <= value <= high + abs(high) * slack


def _meets(low: float, high: float, bounds: tuple[float, float], tolerance: float) -> bool:
    """Return True if an interval reaches into the range that counts as the paper's value."""
    return low <= bounds[1] + abs(bounds[1]) * tolerance and high >= (
        bounds[0] - abs(bounds[0]) * tolerance
    )


def _no_difference(claim: Claim) -> str:
    return "1x" if is_factor(claim) else "0 %"


def _within(tolerance: float) -> str:
    return f"within {tolerance:.0%} of the paper" if tolerance else "equal to the paper"
