"""Two states of the history suite side by side: exact counters at factor 1, samples by interval.

A state is a result file of asv, or the baseline that is committed: a JSON mapping from a
benchmark's name to its number, or to `{"samples": [...]}`. Smaller is better throughout.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dgbench.harness.compare import NOT_SAME
from dgbench.harness.quantities import welch_ratio
from dgbench.harness.store.files import write_whole
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.statistics import ConfidenceInterval, verdict

MIN_SAMPLES: Final = 6
"""Fewer observations decide nothing."""
FLOOR: Final = 0.05
"""Samples whose ratio lies within this of 1 are the same: two runs of asv are not interleaved."""
LARGEST: Final = 1e150
"""Beyond it, and below its inverse, the ratio of two numbers is no number."""
MAX_GRID: Final = 10_000
"""Sets of parameters of a benchmark; ours have a handful."""
BAD: Final = ("WORSE", "FAILS", "GONE")
ORDER: Final = (*BAD, "AMBG", "BETTER", "NEW", "SKIP", "SAME")

Number = float | list[float] | None
"""A counter, the samples of a measurement, None for a benchmark that failed, NaN for one that said
why it was skipped."""


@dataclass(frozen=True, slots=True)
class BenchmarkChange:
    """One benchmark in both states.

    Attributes:
        word: of `ORDER`; those of `BAD` fail the gate.
        old, new: what was found; None where it failed or is not there.
        ratio: new over old.
    """

    name: str
    word: str
    old: Number = None
    new: Number = None
    ratio: ConfidenceInterval | None = None


@dataclass(frozen=True, slots=True)
class History:
    """Differences between a baseline and a new state, the worst first."""

    a: str
    b: str
    steps: list[BenchmarkChange]

    def count(self, word: str) -> int:
        """Number of benchmarks with this word."""
        return sum(step.word == word for step in self.steps)

    @property
    def exit_code(self) -> int:
        """`NOT_SAME` if a counter grew, samples are slower, or one fails or is gone; else 0."""
        return NOT_SAME if any(step.word in BAD for step in self.steps) else 0

    @property
    def why(self) -> str:
        """The exit code in words, as `exit 3: 2 WORSE, 1 GONE`."""
        said = [f"{self.count(word)} {word}" for word in BAD if self.count(word)]
        return f"exit {self.exit_code}: {', '.join(said) or 'nothing is worse'}"

    def as_plain(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {
            "a": self.a,
            "b": self.b,
            "counts": {word: self.count(word) for word in ORDER},
            "exit_code": self.exit_code,
            "steps": [
                {
                    "name": s.name,
                    "word": s.word,
                    "old": None if _skipped(s.old) else s.old,
                    "new": None if _skipped(s.new) else s.new,
                    "ratio": s.ratio.value if s.ratio else None,
                    "low": s.ratio.low if s.ratio else None,
                    "high": s.ratio.high if s.ratio else None,
                }
                for s in self.steps
            ],
        }


def compare_histories(a: Path, b: Path) -> History:
    """Compare two states.

    Raises:
        InvalidInputError: a file that is neither a baseline nor a result of asv.
    """
    old, new = read_state(a), read_state(b)
    steps = [_step(name, old, new) for name in dict.fromkeys([*old, *new])]
    return History(str(a), str(b), sorted(steps, key=lambda s: (ORDER.index(s.word), s.name)))


def read_state(path: Path) -> dict[str, Number]:
    """A baseline or a result of asv as name -> number; parameters stand in brackets.

    Raises:
        InvalidInputError: the file cannot be read, or is neither.
    """
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"'{path}' cannot be read as JSON: {error}") from error
    if not isinstance(plain, dict):
        raise InvalidInputError(f"'{path}' holds {type(plain).__name__}, a mapping is allowed")
    try:
        if "result_columns" in plain:
            return dict(_asv_results(plain))
        return {name: _number(value) for name, value in plain.items()}
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"'{path}' is neither a baseline nor a result of asv: {error}"
        ) from error


def newest_results(folder: Path) -> Path:
    """The newest result below asv's folder of results.

    Raises:
        InvalidInputError: there is none.
    """
    found = [p for p in folder.glob("*/*.json") if p.name != "machine.json"]
    if not found:
        raise InvalidInputError(f"'{folder}' holds no results of asv; run `nox -s asv` first")
    return max(found, key=lambda p: p.stat().st_mtime)


def keep_baseline(b: Path, path: Path) -> int:
    """Write the state of `b` as a baseline; returns how many benchmarks it holds.

    What was skipped is left out: there is nothing to compare with.

    Raises:
        InvalidInputError: a benchmark of `b` failed, so that nothing would be compared with it.
        StoreError: the file cannot be written; it is then as it was.
    """
    state = read_state(b)
    failed = [name for name, value in state.items() if value is None]
    if failed:
        raise InvalidInputError(f"{failed[0]} failed; a baseline needs every benchmark to work")
    plain = {
        name: {"samples": value} if isinstance(value, list) else value
        for name, value in sorted(state.items())
        if not _skipped(value)
    }
    write_whole(path, json.dumps(plain, indent=1).encode() + b"\n")
    return len(plain)


def _step(name: str, old: Mapping[str, Number], new: Mapping[str, Number]) -> BenchmarkChange:
    one, two = old.get(name), new.get(name)
    if name not in new:
        return BenchmarkChange(name, "GONE", one)
    if two is None:
        return BenchmarkChange(name, "FAILS", one)
    if _skipped(two):
        # Samples may be missing for want of runs; a counter has no reason to be.
        return BenchmarkChange(
            name, "SKIP" if one is None or isinstance(one, list) else "FAILS", one, two
        )
    if one is None or _skipped(one):
        return BenchmarkChange(name, "NEW", None, two)
    if isinstance(one, list) or isinstance(two, list):
        sides = [side if isinstance(side, list) else [side] for side in (two, one)]
        if min(len(side) for side in sides) < MIN_SAMPLES:
            return BenchmarkChange(name, "AMBG", one, two)
        ratio = welch_ratio(*sides)
        word = {"SLOW": "WORSE", "FAST": "BETTER"}.get(found := verdict(ratio, FLOOR), found)
        return BenchmarkChange(name, word, one, two, ratio)
    word = "SAME" if one == two else "WORSE" if two > one else "BETTER"
    ratio = ConfidenceInterval(two / one, None, None, 1) if one else None
    return BenchmarkChange(name, word, one, two, ratio)


def _skipped(value: Number) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _asv_results(plain: dict[str, Any]) -> Iterator[tuple[str, Number]]:
    columns = plain["result_columns"]
    for name, values in plain["results"].items():
        row = dict(zip(columns, values, strict=False))
        count = math.prod(len(values) for values in row["params"])
        if count > MAX_GRID or (row["result"] and len(row["result"]) != count):
            raise ValueError(f"{name} has {count} sets of parameters")
        grids = list(itertools.product(*row["params"]))
        results = row["result"] or [None] * len(grids)
        samples = row.get("samples") or [None] * len(grids)
        for grid, value, taken in zip(grids, results, samples, strict=True):
            label = f"{name}({', '.join(grid)})" if grid else name
            yield label, _number({"samples": taken} if taken else value)


def _number(value: Any) -> Number:
    if isinstance(value, dict):
        found = [float(v) for v in value["samples"]]
        if not found or not all(1 / LARGEST <= v <= LARGEST for v in found):  # nor is NaN
            raise ValueError(f"samples are {found!s:.200}, numbers > 0 are allowed")
        return found
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"found {value!r:.40}, a number is allowed")
    if value and not math.isnan(value) and not 1 / LARGEST <= abs(value) <= LARGEST:
        raise ValueError(f"found {value:g}, 0 or 1e-150 to 1e150 is allowed")
    return value
