"""Rows of the newest runs as samples of a history: ratios to a peer, and seconds per event.

A sample is one process (of a race: one round, in which system and baseline both ran). Six are
needed, so runs of the same code, machine and preset are pooled. Smaller is better throughout.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from dgbench.harness.quantities import SPEEDUP, cell_words, name_of
from dgbench.harness.store import Store
from dgbench.lab.compare import start_of, without_control
from dgbench.lab.metrics import metric
from dgbench.lab.table import in_ratios
from dgbench.runtime.errors import DgbenchError
from dgbench.runtime.statistics import measurable

MIN_SAMPLES: Final = 6
"""Samples that decide something."""
MAX_SAMPLES: Final = 64
"""Samples that are kept, the newest."""
RATIO, PER_EVENT = "ratio", "seconds per event"


@dataclass(slots=True)
class Samples:
    """One series of the history.

    Attributes:
        kind: `RATIO` (system seconds over baseline seconds) or `PER_EVENT`.
        values: one a process or round, oldest first. runs: ids of the runs they are of.
    """

    kind: str
    values: list[float] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)

    @property
    def lack(self) -> str:
        """Why there are too few samples, or ""."""
        if len(self.values) >= MIN_SAMPLES:
            return ""
        runs = "1 run" if len(self.runs) == 1 else f"{len(self.runs)} runs"
        found = "1 sample" if len(self.values) == 1 else f"{len(self.values)} samples"
        return (
            f"{found} of {runs} of the same code and machine, "
            f"{MIN_SAMPLES} are needed: run it again"
        )


def newest_samples(top: Path | None = None) -> dict[str, Samples]:
    """Every series of the newest run of each paper, with the runs that may be pooled with it.

    Args:
        top: folder that holds `results`; runs are looked for in `DGBENCH_RESULTS`, then in
            `results/runs`, and where there are none in `results/reference`.

    Returns:
        name -> samples, by name. Runs that cannot be read, and smoke runs, are left out.
    """
    found: dict[str, Samples] = {}
    for stores in _pools(_stores(Path(top) if top is not None else Path())).values():
        for store in stores:
            for name, kind, value in series_of(without_control(store.rows())):
                series = found.setdefault(name, Samples(kind))
                series.values = [*series.values, value][-MAX_SAMPLES:]
                if store.run not in series.runs:
                    series.runs.append(store.run)
    return dict(sorted(found.items()))


def _stores(top: Path) -> list[Store]:
    given = os.environ.get("DGBENCH_RESULTS")
    for root in (Path(given) if given else top / "results" / "runs", top / "results" / "reference"):
        stores = []
        for path in sorted(root.rglob("run.json")):
            with contextlib.suppress(DgbenchError):
                store = Store.open(path.parent)
                if store.info.get("preset") != "smoke":
                    stores.append(store)
        if stores:
            return sorted(stores, key=lambda s: (str(s.info.get("started", "")), s.run))
    return []


def _pools(stores: Sequence[Store]) -> dict[str, list[Store]]:
    """Of every paper the runs that are like its newest one, oldest first."""
    pools: dict[str, list[Store]] = {}
    for paper in sorted({row.paper for store in stores for row in store.rows()} - {"-"}):
        mine = [s for s in stores if any(row.paper == paper for row in s.rows())]
        like = _identity(mine[-1])
        pools[paper] = [s for s in mine if s is mine[-1] or (like and _identity(s) == like)]
    return {p: [_of(store, p) for store in stores] for p, stores in pools.items()}


class _of:
    """A store that shows the rows of one paper."""

    def __init__(self, store: Store, paper: str) -> None:
        self.run = store.run
        self._rows = [row for row in store.rows() if row.paper == paper]

    def rows(self) -> list[Any]:
        return self._rows


def _identity(store: Store) -> tuple | None:
    """Code, machine, preset and device of a run; None where the code is not known for sure."""
    facts = list(store.provenance().values())
    code = facts[-1].get("code", {}) if facts else {}
    if not code.get("commit") or code.get("dirty"):
        return None
    machine = facts[-1].get("machine", {})
    cpu = machine.get("cpu", {})
    gpus = tuple(str(gpu.get("name")) for gpu in machine.get("gpus") or ())
    info = (store.info.get("preset"), store.info.get("device"), store.info.get("threads"))
    return (code["commit"], cpu.get("model"), cpu.get("usable"), gpus, *info)


def series_of(rows: Sequence[Any]) -> Iterator[tuple[str, str, float]]:
    """Name, kind and value of each sample among rows without controls."""
    good = [row for row in rows if in_ratios(row)]
    for _, name, value in raced(good):
        yield name, RATIO, value
    for row in good:
        for one in row.observed:
            if not measurable(one.value):
                continue
            if one.metric == SPEEDUP:
                yield sample_name(row, one), RATIO, 1 / one.value
            elif metric(one.metric).kind == "rate":
                yield sample_name(row, one), PER_EVENT, 1 / one.value


def sample_name(row: Any, one: Any) -> str:
    """Name of the series that an observation of a row belongs to."""
    return f"{cell_words(row)}: {name_of(one)}"


def raced(rows: Sequence[Any]) -> Iterator[tuple[Any, str, float]]:
    """Ratios of the paper's own system to each other system of the same group, round and start.

    Args:
        rows: `ok`, un-instrumented and without controls.

    Yields:
        the row of the paper's system, the ratio's name, and its seconds over the other's.
    """
    cells: dict[tuple, dict[str, Any]] = {}
    twice: Counter[tuple] = Counter()
    for row in rows:
        system = row.params.get("system")
        if system is None or not measurable(row.time):
            continue
        rest = {k: v for k, v in row.params.items() if k != "system"}
        place = row.experiment, row.group, row.round, row.node, *start_of(row)
        key = (*place, msgspec.json.encode(rest, order="sorted"))
        twice[(*key, system)] += 1
        cells.setdefault(key, {})[system] = row
    for key, sides in cells.items():
        own = next((row for row in sides.values() if row.params["system"] == row.paper), None)
        if own is None or any(twice[(*key, system)] > 1 for system in sides):
            continue
        for system, row in sorted(sides.items()):
            if row is not own:
                rest = {k: v for k, v in own.params.items() if k != "system"}
                yield own, f"{cell_words(own, rest)}: {own.paper} / {system}", own.time / row.time
