"""What rows of stale aggregation say: each run beside the one that sends everything, and means."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Point:
    """A run of a row.

    Attributes:
        row: the row.
        dataset, model, setting: which run.
        accuracy: share. drop: points below that without stale aggregation.
        noise: one standard error of the drop in points, both runs tested on the same.
        saved_rows, saved_bytes: percent.
    """

    row: Any
    dataset: str
    model: str
    setting: str
    accuracy: float
    drop: float
    noise: float
    saved_rows: float
    saved_bytes: float

    @property
    def twin(self) -> bool:
        return bool(self.row.data.get("twin"))


def points(
    rows: Sequence[Any], *, where: Callable[[str, str, str], bool] | None = None
) -> list[Point]:
    """All runs of rows that have one without stale aggregation beside them.

    Args:
        rows: of the experiments on stale aggregation, status ok.
        where: (dataset, model, setting) -> whether to take it; None: all but `without`.
    """
    found = []
    for row in rows:
        for name in row.values:
            if not name.endswith(" accuracy"):
                continue
            dataset, model, setting = name.removesuffix(" accuracy").split(" ", 2)
            start = f"{dataset} {model}"
            base = row.values.get(f"{start} without accuracy")
            if (
                base is None
                or setting == "without"
                or (where and not where(dataset, model, setting))
            ):
                continue
            c, share = row.counters, row.values[name]
            tested = max(1, c[f"{start} {setting} tested"])
            found.append(
                Point(
                    row=row,
                    dataset=dataset,
                    model=model,
                    setting=setting,
                    accuracy=share,
                    drop=100 * (base - share),
                    noise=100 * (max(base * (1 - base), 0.0) / tested) ** 0.5,
                    saved_rows=_saved(c, start, setting, "rows"),
                    saved_bytes=_saved(c, start, setting, "bytes"),
                )
            )
    return found


def _saved(counters: Mapping[str, int], start: str, setting: str, unit: str) -> float:
    plain = counters[f"{start} {setting} plain_{unit}"]
    return 100 * (1 - counters[f"{start} {setting} {unit}"] / plain) if plain else 0.0


@dataclass(frozen=True, slots=True)
class Mean:
    """Means over runs, in points and percent."""

    drop: float = 0.0
    saved_rows: float = 0.0
    saved_bytes: float = 0.0
    runs: int = 0
    parts: tuple[Point, ...] = field(default=())


def mean(found: Sequence[Point]) -> Mean:
    """Means of drops and savings, every run alike."""
    if not found:
        return Mean()
    n = len(found)
    return Mean(
        drop=sum(p.drop for p in found) / n,
        saved_rows=sum(p.saved_rows for p in found) / n,
        saved_bytes=sum(p.saved_bytes for p in found) / n,
        runs=n,
        parts=tuple(found),
    )
