"""Series over commits as sparklines, with the commit that made each worse.

Series are those of `harness.samples` (a system over its rival, seconds per event), from all runs of
a machine at one preset and those that were kept before, and the benchmarks that asv keeps in
`.asv/results`. Smaller is better.
Most runs of two commits were not interleaved: a step is marked where its interval and its value
lie outside the noise floor, and `dgbench ab` says whether it is the commit's.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from dgbench.harness.compare import ASSUMED
from dgbench.harness.history import read_state
from dgbench.harness.quantities import percent, spread, welch_ratio
from dgbench.harness.report.kept_history import past_runs, read_past
from dgbench.harness.report.run import RunData
from dgbench.runtime.errors import DgbenchError
from dgbench.runtime.statistics import median, verdict

ASV_RESULTS: Final = Path(".asv") / "results"
"""Where asv keeps results, seen from the top of a checkout."""
EDGE: Final = 4


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """A series at one commit: when, its samples, and the noise floor that they were taken at.

    `counted` is a number that is exact; it has one sample.
    """

    commit: str
    date: str
    values: list[float]
    floor: float = ASSUMED
    counted: bool = False


@dataclass(frozen=True, slots=True)
class HistorySeries:
    """A series over commits, oldest first. `place` is its machine and preset."""

    WIDTH: ClassVar[int] = 160
    HEIGHT: ClassVar[int] = 28

    place: str
    name: str
    points: list[HistoryPoint]

    @property
    def steps(self) -> list[str]:
        """Verdict of each point against the one before it; "" for the first."""
        return ["", *(_step(a, b)[0] for a, b in zip(self.points, self.points[1:], strict=False))]

    @property
    def worse(self) -> list[tuple[str, str]]:
        """Commit of each step for the worse, and how far it is: `+5.1 % [+3.2, +7.0]`."""
        pairs = zip(self.points, self.points[1:], strict=False)
        found = [(b.commit, *_step(a, b)) for a, b in pairs]
        return [(commit, said) for commit, step, said in found if step == "SLOW"]

    @property
    def change(self) -> str:
        """The last point over the first one."""
        first, last = (median(p.values) for p in (self.points[0], self.points[-1]))
        return percent(last / first) if first > 0 and last > 0 else f"{last - first:+g}"

    @property
    def marks(self) -> list[tuple[float, float, str, str]]:
        """x, y, outcome and words of each point in a box of `WIDTH` by `HEIGHT`, see `EDGE`."""
        logs = [math.log(v) if (v := median(p.values)) > 0 else 0.0 for p in self.points]
        low, high = min(logs), max(logs)
        across = (self.WIDTH - 2 * EDGE) / (len(logs) - 1)
        down = (self.HEIGHT - 2 * EDGE) / (high - low) if high > low else 0.0
        return [
            (EDGE + k * across,
             self.HEIGHT - EDGE - (y - low) * down if down else self.HEIGHT / 2, step,
             f"{p.commit[:9]}: {median(p.values):.4g}")
            for k, (y, step, p) in enumerate(zip(logs, self.steps, self.points, strict=True))
        ]  # fmt: skip


def series_of_runs(runs: Sequence[RunData]) -> list[HistorySeries]:
    """Series that runs of two commits or more have, by machine, device and preset.

    Where a run is a kept one, those that were kept in its place before count, too.
    """
    places: dict[tuple[str, str], dict[str, HistoryPoint]] = defaultdict(dict)
    folders = dict.fromkeys((run.machine_slug, run.store.path.parent) for run in runs if run.kept)
    known = [(slug, past) for slug, folder in folders for past in read_past(folder)]
    known += [(run.machine_slug, past) for run in runs for past in past_runs(run)]
    once = {(slug, past.key): past for slug, past in known}
    for (slug, _), past in sorted(once.items(), key=lambda one: (one[1].started, one[0])):
        place = f"{slug}, {past.device}, {past.preset}"
        for name, values in past.series.items():
            old = places[place, name].get(past.commit)
            floor = ASSUMED if past.noise is None else past.noise
            places[place, name][past.commit] = HistoryPoint(
                past.commit,
                past.started,
                [*(old.values if old else ()), *values],
                max(floor, old.floor) if old else floor,
            )
    return _with_steps(places)


def series_of_asv(folder: Path) -> list[HistorySeries]:
    """Series of asv's results of two commits or more, by machine; other files are passed over."""
    places: dict[tuple[str, str], dict[str, HistoryPoint]] = defaultdict(dict)
    for path, commit, date in sorted(_asv_files(folder), key=lambda f: (f[2], f[1])):
        with contextlib.suppress(DgbenchError):
            for name, value in read_state(path).items():
                if value is None or value != value:
                    continue
                clock = isinstance(value, list)
                values = value if isinstance(value, list) else [float(value)]
                point = HistoryPoint(commit, date, values, counted=not clock)
                places[f"{path.parent.name}, asv", name][commit] = point
    return _with_steps(places)


def _asv_files(folder: Path) -> Iterator[tuple[Path, str, str]]:
    for path in sorted(folder.glob("*/*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            plain = json.loads(path.read_text(encoding="utf-8"))
            yield path, str(plain["commit_hash"]), f"{int(plain['date']):020d}"


def _with_steps(places: dict[tuple[str, str], dict[str, HistoryPoint]]) -> list[HistorySeries]:
    return [
        HistorySeries(place, name, list(points.values()))
        for (place, name), points in sorted(places.items())
        if len(points) > 1
    ]


def _step(old: HistoryPoint, new: HistoryPoint) -> tuple[str, str]:
    """Outcome of a step, and the step in words."""
    if new.counted and old.counted:
        one, two = old.values[0], new.values[0]
        return "SLOW" if two > one else "FAST" if two < one else "SAME", f"{one:g} -> {two:g}"
    ratio = welch_ratio(new.values, old.values)
    said = f"{percent(ratio.value)} {spread(ratio.low, ratio.high)}".strip()
    return verdict(ratio, max(old.floor, new.floor)), said
