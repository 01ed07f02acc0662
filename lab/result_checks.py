"""Result checks: what a system made, compared with an independent reference.

A row whose process compared its result with nothing decides nothing (`harness.store.standing`), so
an experiment hands back at least one `ResultCheck` of what it measured, in every process.

Checks that count are formed by dgbench: by an oracle, a recount or an experiment of its own. One
that a plugin forms of numbers of its own choice is an *own check*: it can fail a row and never lets
one stand.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dgbench.runtime.touched import comparing

if TYPE_CHECKING:  # who reads rows or draws figures needs no torch
    from torch import Tensor

NUMERIC = ("outputs", "gradients", "losses", "updates", "moments")
LIVENESS = "liveness"
"""Checks that say how alive what was compared is (`systems.base.liveness`)."""
LOOSEST = 0.02
"""Largest tolerance of a numeric check: a comparison that allows more says nothing."""


_FORMED: Final[set[bytes]] = set()
"""Checks that code of dgbench has formed in this process."""


class ResultCheck(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One comparison of a result with an independent reference.

    Attributes:
        of: what was compared: `outputs`, `gradients`, `losses`, `samples`, `counters`, `order`,
            or another plural noun.
        against: the reference (`float64 oracle`, `count over all edges`).
        gap: largest relative deviation, or the share of entries that differ.
        tolerance: what is rounding on this workload; 0 where results must be equal.
        compared: numbers or entries that were compared. A check of nothing does not pass.
        system: contender whose result it is, as observations name it; "" where it is the one that
            the params of the cell name. Where a cell compares several, only what is named so falls.
        workload: dimensions of observations that tell its workload from others of its cell.
        part: the tensor, frame or entry with the largest gap.
        plain: gap of torch's own operators in float32 to the same reference, where it is known.
        own: whether a plugin formed it, and not dgbench. Set by the harness.
        frames: numbers of the frames that were compared, where results are of frames.
        alive: of a check of `liveness`, its measures by name; its gap is how many times the
            smallest lies below its bar.
    """

    of: str
    against: str
    gap: float
    tolerance: float
    compared: int
    system: str = ""
    part: str = ""
    plain: float | None = None
    workload: dict[str, Any] = {}
    own: bool = False
    frames: list[int] = []
    alive: dict[str, float] = {}

    @property
    def passed(self) -> bool:
        """True if something was compared, `gap` is within `tolerance`, and `tolerance` is not too
        loose."""
        most = max(LOOSEST, 2 * (self.plain or 0.0))  # what torch itself is off, a release may be
        loose = self.of in NUMERIC and self.tolerance > most
        return self.compared > 0 and not loose and self.gap <= self.tolerance

    @property
    def words(self) -> str:
        """Outcome in words: `outputs deviate from the float64 oracle by 0.5 (at most 1e-05)`."""
        return f"own check of the plugin: {self._outcome}" if self.own else self._outcome

    @property
    def _outcome(self) -> str:
        if self.of == LIVENESS:
            return f"compares a dead network: {self.part}"
        where = f" ({self.part})" if self.part else ""
        if self.compared <= 0:
            return f"{self.of}{where} were compared with nothing"
        if self.tolerance == 0:
            share = f"{self.gap:.2g} of {self.compared:,}"
            return f"{self.of}{where} differ from the {self.against}: {share}"
        torch_too = "" if self.plain is None else f"; torch's own float32: {self.plain:.2g}"
        return (
            f"{self.of}{where} deviate from the {self.against} by {self.gap:.2g} "
            f"(at most {self.tolerance:.1g}{torch_too})"
        )


@comparing()
def equal(of: str, found: Any, wanted: Any, *, against: str, system: str = "") -> ResultCheck:
    """A check that two results are the same: tensors, arrays, numbers, or mappings of them.

    Its gap is the share of entries that differ; another shape or another set of names is 1.
    """
    pairs = _named(found), _named(wanted)
    count = sum(part.numel() for part in pairs[1].values())
    if pairs[0].keys() != pairs[1].keys():
        names = ", ".join(sorted(map(str, pairs[0].keys() ^ pairs[1].keys())))[:80]
        return _formed(ResultCheck(
            of=of, against=against, gap=1.0, tolerance=0.0, compared=max(1, count),
            system=system, part=names,
        ))  # fmt: skip
    wrong, worst, part = 0, 0, ""
    for name, expected in pairs[1].items():
        own = pairs[0][name]
        same_shape = own.shape == expected.shape  # NaN differs from everything
        bad = int((own != expected).sum()) if same_shape else max(1, expected.numel())
        wrong += bad
        if bad > worst:
            worst, part = bad, str(name)
    return _formed(ResultCheck(
        of=of, against=against, gap=min(1.0, wrong / max(1, count)), tolerance=0.0,
        compared=max(count, wrong), system=system, part=part,
    ))  # fmt: skip


@comparing()
def close(
    of: str,
    found: Any,
    wanted: Any,
    tolerance: float | Mapping[str, float],
    *,
    against: str,
    system: str = "",
    plain: Any = None,
    part: str = "",
) -> ResultCheck:
    """A check that two results agree up to rounding, tensor by tensor.

    Args:
        of, against, system: as in `ResultCheck`.
        found, wanted: a tensor, an array, a number, a sequence, or a mapping of them by name.
        tolerance: largest relative deviation ||found - wanted|| / ||wanted||, for all or by name.
        plain: the same result by torch's own operators in float32, to be shown beside.
        part: what the comparison is of, put before the tensor's name.
    """
    own, reference = _named(found), _named(wanted)
    count = sum(expected.numel() for expected in reference.values())
    gap, allowed, name = 0.0, 0.0, ""
    if own.keys() != reference.keys():
        gap = math.inf
        name = "missing " + ", ".join(sorted(map(str, own.keys() ^ reference.keys())))[:80]
        allowed = _allowed(tolerance, "")
    else:
        # The part that is furthest from its tolerance stands for all.
        worst = -1.0
        for key, deviation in deviations(own, reference).items():
            limit = _allowed(tolerance, key)
            excess = deviation / limit if limit else (math.inf if deviation else 0.0)
            if math.isnan(excess) or excess > worst:
                worst, gap, allowed, name = excess, deviation, limit, key
                if math.isnan(excess):
                    break
    beside = None
    if plain is not None:
        beside = largest(_named(plain), reference)
        beside = beside if math.isfinite(beside) else None
    where = ", ".join(text for text in (part, str(name)) if text)
    return _formed(ResultCheck(
        of=of, against=against, gap=_finite(gap), tolerance=allowed, compared=count,
        system=system, part=where, plain=beside,
    ))  # fmt: skip


def at_most(
    of: str, gap: float, tolerance: float, *, against: str, compared: int, part: str = "",
    system: str = "", alive: Mapping[str, float] | None = None,
) -> ResultCheck:  # fmt: skip
    """A check from a gap that the caller formed himself; not finite fails."""
    return _formed(ResultCheck(
        of=of, against=against, gap=_finite(gap), tolerance=tolerance, compared=compared,
        part=part, system=system, alive=dict(alive or {}),
    ))  # fmt: skip


def of_contender(name: str, checks: Iterable[ResultCheck], /, **workload: Any) -> list[ResultCheck]:
    """The checks as those of a contender of their cell, on a workload of it.

    Checks that name another contender keep it.
    """
    return [
        _like(one, msgspec.structs.replace(
            one, system=one.system or name, workload={**workload, **one.workload}
        ))
        for one in checks
    ]  # fmt: skip


def with_frames(checks: Iterable[ResultCheck], frames: Iterable[int]) -> list[ResultCheck]:
    """The checks as those of these frames."""
    every = sorted(frames)
    return [_like(one, msgspec.structs.replace(one, frames=every)) for one in checks]


def with_owners(checks: Iterable[ResultCheck]) -> list[ResultCheck]:
    """Checks that a plugin handed in, each `own` unless dgbench formed it in this process."""
    return [msgspec.structs.replace(one, own=_key(one) not in _FORMED) for one in checks]


def _formed(check: ResultCheck) -> ResultCheck:
    """The check, remembered where code of dgbench called the function that made it."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") in (__name__, "contextlib"):
        frame = frame.f_back  # type: ignore[assignment]
    name = str(frame.f_globals.get("__name__")) if frame is not None else ""
    module = sys.modules.get(name)
    if name.startswith("dgbench.") and module is not None and frame.f_globals is vars(module):
        _FORMED.add(_key(check))
    return check


def _like(first: ResultCheck, second: ResultCheck) -> ResultCheck:
    """The second check, remembered where the first one is, of which it is another form."""
    if _key(first) in _FORMED:
        _FORMED.add(_key(second))
    return second


def _key(check: ResultCheck) -> bytes:
    """Check as bytes, without what is said of it later."""
    return msgspec.json.encode(msgspec.structs.replace(check, own=False, workload={}))


@comparing()
def summarised(checks: Sequence[ResultCheck]) -> list[ResultCheck]:
    """All checks that failed, and of those that passed the closest of a kind, for all of them."""
    found = [check for check in checks if not check.passed]
    kinds: dict[tuple[str, str], list[ResultCheck]] = {}
    for check in checks:
        if check.passed:
            kinds.setdefault((check.of, check.against), []).append(check)
    for alike in kinds.values():
        closest = max(alike, key=lambda one: one.gap / (one.tolerance or 1.0))
        compared = sum(one.compared for one in alike)
        found.append(_like(closest, msgspec.structs.replace(closest, compared=compared)))
    return found


def deviations(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> dict[str, float]:
    """||found - wanted|| / ||wanted|| of each named tensor, in float64.

    A tensor that cancels to rounding (the gradient of a bias before a norm) has no size of its
    own: below a thousandth of the norm of all it is measured against that norm.
    """
    own = {name: tensor.double() for name, tensor in wanted.items()}
    total = math.sqrt(sum(float(tensor.square().sum()) for tensor in own.values())) or 1.0
    result = {}
    for name, tensor in own.items():
        size = float(tensor.norm())
        if found[name].shape != tensor.shape:
            result[name] = math.inf
            continue
        gap = float((found[name].double() - tensor).norm())
        result[name] = gap / (size if size > 1e-3 * total else total)
    return result


def largest(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> float:
    """Largest of the `deviations`; 0 where there is nothing to compare."""
    return max(deviations(found, wanted).values(), default=0.0)


def _allowed(tolerance: float | Mapping[str, float], name: str) -> float:
    if isinstance(tolerance, Mapping):
        return tolerance[name] if name in tolerance else min(tolerance.values(), default=0.0)
    return tolerance


def _finite(value: float) -> float:
    """The value, or the largest float where it is none: rows hold finite numbers only."""
    return float(value) if math.isfinite(value) else sys.float_info.max


def _named(value: Any) -> dict[str, Tensor]:
    if isinstance(value, Mapping):
        return {str(name): _tensor(part) for name, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        if all(isinstance(part, (int, float)) for part in value):
            return {"": _tensor(value)}
        return {str(number): _tensor(part) for number, part in enumerate(value)}
    return {"": _tensor(value)}


def _tensor(value: Any) -> Tensor:
    import torch

    found = value if isinstance(value, torch.Tensor) else torch.as_tensor(value)
    return found.detach().to("cpu")
