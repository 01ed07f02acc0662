"""Two runs side by side: clocks with an interval, counters exactly.

Runs were not interleaved, so observations cannot be paired; the interval is Welch's on log times,
and the noise floor of the noisier run decides what is *same*.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dgbench.runtime.statistics import Interval, noise_floor, t_quantile, verdict
from dgbench.systems.base.compare import control_ratios, without_control

WORDS = ("SLOW", "FAST", "AMBG", "SAME")


@dataclass(frozen=True, slots=True)
class Change:
    """One cell in both runs.

    Attributes:
        word: SLOW, FAST, SAME or AMBG. ratio: time in B over time in A.
        counters: name -> (A, B), those that differ.
    """

    cell: str
    name: str
    word: str
    ratio: Interval | None
    counters: dict[str, tuple[int, int]]
    status: tuple[str, str] = ("ok", "ok")

    @property
    def grew(self) -> bool:
        """Whether a counter is larger in B."""
        return any(b > a for a, b in self.counters.values())

    @property
    def broke(self) -> bool:
        """Whether the cell ran in A and failed in B."""
        return self.status[0] == "ok" and self.status[1] in ("oom", "time", "crash", "check")


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs between run A and run B."""

    a: str
    b: str
    changes: list[Change]
    only_a: list[str]
    only_b: list[str]
    identity: list[str] = field(default_factory=list)
    floor: float | None = None

    def count(self, word: str) -> int:
        """How many cells have this word."""
        return sum(change.word == word for change in self.changes)

    @property
    def exit_code(self) -> int:
        """1 if something is slower, fails now, or counts more; else 0."""
        return int(any(c.word == "SLOW" or c.grew or c.broke for c in self.changes))

    @property
    def why(self) -> str:
        """The exit code in words."""
        counts = {
            "SLOW cell": self.count("SLOW"),
            "counter that grew": sum(c.grew for c in self.changes),
            "cell that fails now": sum(c.broke for c in self.changes),
        }
        said = [f"{n} {word}" if n == 1 else f"{n} x {word}" for word, n in counts.items() if n]
        return f"exit {self.exit_code}: {', '.join(said) or 'nothing slower'}"

    def as_plain(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {
            "a": self.a,
            "b": self.b,
            "noise_floor": self.floor,
            "counts": {word: self.count(word) for word in WORDS},
            "identity": self.identity,
            "only_a": self.only_a,
            "only_b": self.only_b,
            "exit_code": self.exit_code,
            "changes": [
                {
                    "cell": c.cell,
                    "name": c.name,
                    "word": c.word,
                    "ratio": c.ratio.value if c.ratio else None,
                    "low": c.ratio.low if c.ratio else None,
                    "high": c.ratio.high if c.ratio else None,
                    "n": c.ratio.n if c.ratio else 0,
                    "counters": {k: list(v) for k, v in c.counters.items()},
                    "status": list(c.status),
                }
                for c in self.changes
            ],
        }


def compare_runs(a: Any, b: Any) -> Comparison:
    """Compare two stores cell by cell, the largest change first."""
    first, second = _cells(a.rows()), _cells(b.rows())
    floors = [noise_floor(control_ratios(store.rows())) for store in (a, b)]
    known = [f for f in floors if f is not None]
    floor = max(known, default=None)
    changes = [
        _change(key, first[key], second[key], floor or 0.0) for key in first if key in second
    ]
    changes.sort(key=_size)
    return Comparison(
        a=a.run,
        b=b.run,
        changes=changes,
        only_a=sorted(_name(rows) for key, rows in first.items() if key not in second),
        only_b=sorted(_name(rows) for key, rows in second.items() if key not in first),
        identity=identity(a, b),
        floor=floor,
    )


def identity(a: Any, b: Any) -> list[str]:
    """Sentences about what is not the same of machine, packages and code."""
    one, two = (_flat(_newest(store.provenance())) for store in (a, b))
    notes = []
    for key in sorted({*one, *two}):
        if key.startswith(("settings.", "machine.memory_limit")):
            continue
        if one.get(key) != two.get(key):
            notes.append(f"{key}: {one.get(key, 'missing')} -> {two.get(key, 'missing')}")
    return notes


def _newest(provenance: Mapping[str, Any]) -> Mapping[str, Any]:
    return list(provenance.values())[-1] if provenance else {}


def _flat(value: Any, prefix: str = "") -> dict[str, str]:
    if isinstance(value, Mapping):
        found: dict[str, str] = {}
        for key, inner in value.items():
            found |= _flat(inner, f"{prefix}.{key}" if prefix else str(key))
        return found
    return {prefix: str(value)}


def _cells(rows: Sequence[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for row in without_control(rows):
        if not row.instrumented:
            found.setdefault(row.cell_hash, []).append(row)
    return found


def _name(rows: Sequence[Any]) -> str:
    row = rows[0]
    params = " ".join(str(v) for v in row.params.values() if v is not None and v is not False)
    return f"{row.paper}/{row.experiment} {params}"


def _change(cell: str, first: list[Any], second: list[Any], floor: float) -> Change:
    status = tuple(_status(rows) for rows in (first, second))
    old = [row.time for row in first if row.status == "ok" and row.time]
    new = [row.time for row in second if row.status == "ok" and row.time]
    ratio = welch_ratio(new, old) if old and new else None
    if ratio is not None:
        word = verdict(ratio, floor)
    else:
        word = "SAME" if status[0] == status[1] else "AMBG"
    return Change(cell, _name(first), word, ratio, _counters(first, second), status)


def _status(rows: list[Any]) -> str:
    return next((row.status for row in rows if row.status != "ok"), "ok")


def _counters(first: list[Any], second: list[Any]) -> dict[str, tuple[int, int]]:
    one = next((row.counters for row in first if row.status == "ok"), {})
    two = next((row.counters for row in second if row.status == "ok"), {})
    return {k: (one[k], two[k]) for k in sorted(one) if k in two and one[k] != two[k]}


def welch_ratio(new: Sequence[float], old: Sequence[float]) -> Interval:
    """Ratio new/old of unpaired positive observations, with Welch's interval on their logs.

    `low` and `high` are None where a side has a single observation.
    """
    logs = [[math.log(v) for v in side] for side in (new, old)]
    means = [sum(side) / len(side) for side in logs]
    value = means[0] - means[1]
    count = min(len(side) for side in logs)
    if count < 2:
        return Interval(math.exp(value), None, None, count)
    parts = [
        sum((v - mean) ** 2 for v in side) / (len(side) - 1) / len(side)
        for side, mean in zip(logs, means, strict=True)
    ]
    total = sum(parts)
    if total == 0:
        return Interval(math.exp(value), math.exp(value), math.exp(value), count)
    df = total**2 / sum(p**2 / (len(side) - 1) for p, side in zip(parts, logs, strict=True))
    half = t_quantile(df, 0.95) * math.sqrt(total)
    return Interval(math.exp(value), math.exp(value - half), math.exp(value + half), count)


def _size(change: Change) -> tuple[int, float, str]:
    size = abs(math.log(change.ratio.value)) if change.ratio else 0.0
    return WORDS.index(change.word), -size, change.name
