"""Quantities of a cell that can be compared with another run: times, gains and counters.

A cell whose processes kept samples is compared by their median. Settings that take turns inside
one process leave a number each instead: every time, and every speed-up with its interval, which is
formed against a peer of the same process and so means the same elsewhere.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dgbench.lab.compare import ratio_of_values
from dgbench.lab.metrics import metric
from dgbench.lab.table import Observation
from dgbench.runtime.statistics import ConfidenceInterval, bounded_exp, measurable, t_quantile

PACE: Final = ("counted_steps", "turns")
"""Counts that say how long a process ran. Where they differ, its other counts may too."""
ONE_PROCESS: Final = 0.10
"""Gains of a single process a side are the same within this: their intervals know the turns of a
process, not how far two processes of the same code lie apart."""

WIDE: Final = 20.0
"""An interval whose ends are further apart than this factor is not spelt out."""

SPEEDUP: Final = "speedup"
"""The metric of ratios that a process formed against a peer; larger is better."""
TURN: Final = "turn"
"""The dimension of repeated observations of one process, which are no quantities of their own."""


@dataclass(slots=True)
class Quantity:
    """One number of a cell, from all processes of a side.

    Attributes:
        found: one observation a process. gain: whether it is a ratio to a peer, larger better.
        words: what it is, for people, see `words_of`.
        low, high: interval of a gain inside its process, where there is one process.
        turns: what that interval rests on.
    """

    found: list[float] = field(default_factory=list)
    gain: bool = False
    low: float | None = None
    high: float | None = None
    turns: int = 0
    words: str = ""


def cell_words(row: Any, params: Mapping[str, Any] | None = None, *, paper: bool = True) -> str:
    """`pipad/fig10 flickr evolvegcn pipad`: a cell in words, of its params or of these."""
    values = (row.params if params is None else params).values()
    words = [str(value) for value in values if value is not None and value is not False]
    return " ".join([f"{row.paper}/{row.experiment}" if paper else row.experiment, *words])


def name_of(one: Observation) -> str:
    """An observation in a few characters: `step_time`, `step_time[setting=all on]`."""
    dims = ", ".join(f"{name}={value}" for name, value in one.dims.items() if name != TURN)
    return f"{one.metric}[{dims}]" if dims else one.metric


def words_of(one: Observation) -> str:
    """An observation for people: "speedup over tcsr, uniform, layers 1, blocks".

    Words stand alone, numbers behind the name of their dimension.
    """
    dims = {name: value for name, value in one.dims.items() if name not in (TURN, "baseline")}
    head = one.metric.replace("_", " ")
    head += f" over {one.dims['baseline']}" if "baseline" in one.dims else ""
    said = [str(v) if isinstance(v, str) else f"{name} {v}" for name, v in dims.items()]
    return ", ".join([head, *said])


def quantities(rows: Sequence[Any]) -> dict[str, Quantity]:
    """Every quantity of a cell by its name; "" is the time that its processes were started for.

    A cell whose processes kept samples of that time has no other clock. Other times and all
    speed-ups are named as `name_of` does; the turns of one become their median.

    Args:
        rows: all processes of one cell; those without a result say nothing.
    """
    found: dict[str, Quantity] = {}
    for row in rows:
        if row.status != "ok":
            continue
        if measurable(row.time):
            found.setdefault("", Quantity()).found.append(row.time)
        else:
            for name, (one, seconds) in _clocks(row).items():
                found.setdefault(name, Quantity(words=words_of(one))).found.append(seconds)
        turns = next((o.value for o in row.observed if o.metric == "turns"), 0)
        for one in row.observed:
            if one.metric == SPEEDUP and measurable(one.value):
                words = words_of(one)
                gain = found.setdefault(name_of(one), Quantity(gain=True, words=words))
                gain.found.append(one.value)
                gain.low, gain.high, gain.turns = one.low, one.high, int(turns)
    return found


def exact(row: Any) -> dict[str, int]:
    """Exact counts of a process by name."""
    return {
        name_of(one): one.value
        for one in row.observed
        if isinstance(one.value, int) and metric(one.metric).exact
    }


def counters(rows: Sequence[Any]) -> dict[str, int]:
    """Counts that all processes of a cell agree on."""
    good = [exact(row) for row in rows if row.status == "ok"]
    if not good:
        return {}
    return {k: v for k, v in good[0].items() if all(other.get(k) == v for other in good)}


def counters_that_differ(
    old: Sequence[Any], new: Sequence[Any]
) -> tuple[dict[str, tuple[int, int]], bool]:
    """Counters of both sides that differ, and whether the sides did the same amount of work.

    Where they did not (`PACE`), nothing is compared.
    """
    one, two = counters(old), counters(new)
    paced = {name for rows in (old, new) for row in rows for name in exact(row) if is_pace(name)}
    if any(one.get(k) is None or one.get(k) != two.get(k) for k in paced):
        return {}, False
    return {k: (one[k], two[k]) for k in sorted(one) if k in two and one[k] != two[k]}, True


def ratio_of(new: Quantity, old: Quantity) -> ConfidenceInterval:
    """Time new over old: above 1 is slower. A gain that shrinks is slower, too.

    Several processes a side give Welch's interval; a single process a side gives that of its
    gain where it has one, and else none.
    """
    if not new.gain:
        return welch_ratio(new.found, old.found)
    if min(len(new.found), len(old.found)) > 1:
        return welch_ratio(old.found, new.found)
    value = statistics.geometric_mean(old.found) / statistics.geometric_mean(new.found)
    ends = (old.low, old.high, new.low, new.high)
    if len(new.found) + len(old.found) > 2 or not all(map(measurable, ends)):
        return ConfidenceInterval(value, None, None, 1)
    below = math.hypot(math.log(old.found[0] / old.low), math.log(new.high / new.found[0]))
    above = math.hypot(math.log(old.high / old.found[0]), math.log(new.found[0] / new.low))
    return ConfidenceInterval(
        value, value * math.exp(-below), value * math.exp(above), _turns(old, new)
    )


def paired_ratios(new: Sequence[Any], old: Sequence[Any]) -> dict[str, ConfidenceInterval]:
    """Time new over old of every quantity of a cell, formed round by round of an interleaved race.

    Args:
        new, old: un-instrumented processes of one cell.
    """
    found: dict[str, list[float]] = {}
    used: dict[str, list[Any]] = {}
    first = {(row.node, row.resumed, row.round): row for row in old}
    for row in new:
        other = first.get((row.node, row.resumed, row.round))
        if other is None:
            continue
        sides = quantities([row]), quantities([other])
        for name in sides[0].keys() & sides[1].keys():
            found.setdefault(name, []).append(ratio_of(sides[0][name], sides[1][name]).value)
            used.setdefault(name, []).extend((row, other))
    pooled = {
        n: ratio_of_values(v, used[n], len(v), nodes=[row.node for row in used[n][::2]])
        for n, v in found.items()
    }
    return {n: ConfidenceInterval(r.value, r.low, r.high, r.n) for n, r in pooled.items()}


def welch_ratio(new: Sequence[float], old: Sequence[float]) -> ConfidenceInterval:
    """Ratio new/old of unpaired positive observations, with Welch's interval on their logs.

    `low` and `high` are None where a side has a single observation.
    """
    logs = [[math.log(v) for v in side] for side in (new, old)]
    means = [sum(side) / len(side) for side in logs]
    value = means[0] - means[1]
    count = min(len(side) for side in logs)
    if count < 2:
        return ConfidenceInterval(bounded_exp(value), None, None, count)
    parts = [
        sum((v - mean) ** 2 for v in side) / (len(side) - 1) / len(side)
        for side, mean in zip(logs, means, strict=True)
    ]
    total = sum(parts)
    if total == 0:
        return ConfidenceInterval(bounded_exp(value), bounded_exp(value), bounded_exp(value), count)
    df = total**2 / sum(p**2 / (len(side) - 1) for p, side in zip(parts, logs, strict=True))
    half = t_quantile(df, 0.95) * math.sqrt(total)
    return ConfidenceInterval(
        bounded_exp(value), bounded_exp(value - half), bounded_exp(value + half), count
    )


def percent(ratio: float) -> str:
    """A ratio as a signed change: `+8.4 %`; from five times on as a factor: `7.2x`."""
    if ratio >= 5:
        return f"{ratio:.1f}x" if ratio < 100 else f"{ratio:.0f}x"
    change = 100 * (ratio - 1)
    return f"{change:+.{0 if abs(change) >= 100 else 1}f} %".replace("-", "−")


def spread(low: float | None, high: float | None) -> str:
    """`[+6.1, +10.8]`, or "" where there is no interval."""
    if low is None or high is None:
        return ""
    if high > WIDE * low:
        return "[too wide]"
    return f"[{percent(low).removesuffix(' %')}, {percent(high).removesuffix(' %')}]"


def is_pace(name: str) -> bool:
    """Return True if a count (by `name_of`) measures how long a process ran."""
    return name in PACE


def _clocks(row: Any) -> dict[str, tuple[Observation, float]]:
    """Times by name, with an observation of each; the turns of one become their median."""
    found: dict[str, list[Observation]] = {}
    for one in row.observed:
        if metric(one.metric).kind == "time" and measurable(one.value):
            found.setdefault(name_of(one), []).append(one)
    return {
        name: (mine[0], statistics.median(one.value for one in mine))
        for name, mine in found.items()
    }


def _turns(old: Quantity, new: Quantity) -> int:
    return min(old.turns, new.turns) or 1
