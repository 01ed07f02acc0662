"""Run random cells of all papers for a long time and see whether the runner grows.

    python scripts/soak.py --minutes 120 --out soak

One process plans and runs lap after lap, each some groups of every paper at smoke size, in the
order of the preset `full`: rounds that turn round, an A/A control per experiment, instrumented
processes behind. Between cells it notes the memory, descriptors and threads of the runner and of
its fork server, files left in the temporary folder and in the run's, processes left behind, and
what processor time cells take beside their own first time. Exit code 1 if one of them grows by more
than is allowed.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import math
import os
import random
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dgbench.harness.growth import Growth, growth_of
from dgbench.harness.plan import Plan
from dgbench.harness.runner import run_plan
from dgbench.harness.runner.client import ForkServer
from dgbench.harness.runner.listener import Listener
from dgbench.harness.store import Store
from dgbench.harness.terminal.text import say, table
from dgbench.runtime.errors import StoreError
from dgbench.runtime.threads import default_threads
from dgbench.systems.base import Broken, find_paper, get_paper, paper_names
from dgbench.systems.base.compare import CONTROL

ROUNDS = 3
"""Of every cell of a lap; from three on an experiment gets its A/A control, as in `full`."""
SLOW_S = 8.0
"""A group with a cell that took longer is not drawn again: a soak needs many cells."""
MARK = "DGBENCH_SOAK"
"""Environment variable by which processes of this soak are known, wherever they went."""

SERIES = {
    "memory of the runner, without rows": ("MiB", 12.0),
    "memory of the fork server": ("MiB", 12.0),
    "descriptors": ("", 4.0),
    "threads": ("", 4.0),
    "temporary files": ("", 4.0),
    "processes left behind": ("", 1.0),
    "runner's time per cell": ("ms", 30.0),
    "cells beside their first time": ("%", 60.0),
}
"""Name -> (unit, growth an hour that is allowed); times are a busy machine's as much as ours."""
ROWS = "memory of its rows"
"""What a run keeps until its end, MiB; it is read beside the series and taken off the runner's."""


class Watch(Listener):
    """Takes readings between cells, and ends the run when its time is over.

    Attributes:
        readings: one dictionary each, by the names of `SERIES`, `ROWS`, `seconds` and `cells`.
        slow: (paper, experiment, group) with cells that took too long.
    """

    def __init__(self, server: ForkServer, folder: Path, mark: str, *, every: float, end: float):
        self.server, self.folder, self.mark = server, folder, mark
        self.every, self.end = every, end
        self.begin = self.due = self.last = time.monotonic()
        self.readings: list[dict[str, float]] = []
        self.slow: set[tuple[str, str, str]] = set()
        self.rows = self.bad = self.kept = 0
        self._first: dict[tuple, float] = {}
        self._gaps: list[float] = []
        self._beside: list[float] = []

    def on_start(self, cell: Any, round: int) -> None:
        self._started = time.monotonic()

    def on_row(self, row: Any) -> None:
        now = time.monotonic()
        self.rows += 1
        self.bad += row.status in ("oom", "time", "crash", "check")
        self.kept += _deep_size(msgspec.structs.asdict(row), set())
        if row.seconds:
            self._gaps.append(1e3 * (now - self._started - row.seconds))
            group = row.group.partition(" lap ")[0]
            params = tuple(sorted((k, str(v)) for k, v in row.params.items() if k != CONTROL))
            cell = (row.paper, row.experiment, group, params, row.instrumented)
            # Processor time: others who keep the machine busy are not what grows here.
            spent = row.seconds * row.probes.get("cpu_percent", 100.0) / 100
            if cell in self._first and spent > 0:
                self._beside.append(math.log(spent / self._first[cell]))
            elif spent > 0:
                self._first[cell] = spent
            if row.seconds > SLOW_S:
                self.slow.add(cell[:3])
        if now >= self.due:
            self.read(now)
            self.due = now + self.every
        if now >= self.end:
            raise KeyboardInterrupt  # what Ctrl-C does: the row is kept, the run is partial

    def read(self, now: float) -> None:
        """One reading of everything."""
        pids = (os.getpid(), self.server.pid)
        memory = [_resident(pid) for pid in pids]
        left = [pid for pid in _marked(self.mark) if pid != self.server.pid]
        reading = {
            "seconds": now - self.begin,
            "cells": float(self.rows),
            "memory of the runner, without rows": (memory[0] - self.kept) / 2**20,
            ROWS: self.kept / 2**20,
            "memory of the fork server": memory[1] / 2**20,
            "descriptors": float(sum(_entries(f"/proc/{pid}/fd") for pid in pids)),
            "threads": float(sum(_entries(f"/proc/{pid}/task") for pid in pids)),
            "temporary files": float(_files(self.folder)),
            "processes left behind": float(len(left)),
        }
        if self._gaps:
            reading["runner's time per cell"] = statistics.median(self._gaps)
        if self._beside:
            apart = statistics.median(self._beside)
            reading["cells beside their first time"] = 100 * math.expm1(apart)
        self._gaps, self._beside = [], []
        self.readings.append(reading)


class Lap:
    """An experiment with some of its groups, several rounds of each, and a name of its own."""

    def __init__(self, experiment: Any, groups: Iterable[str], number: int) -> None:
        self.name, self.inner = experiment.name, experiment
        self.groups, self.number = set(groups), number

    def cells(self, preset: str, device: str) -> list[Any]:
        return [
            msgspec.structs.replace(
                cell, repeats=max(ROUNDS, cell.repeats), group=f"{cell.group} lap {self.number}"
            )
            for cell in self.inner.cells(preset, device)
            if cell.group in self.groups and not cell.unavailable
        ]


def soak(
    papers: Sequence[Any],
    folder: Path,
    *,
    minutes: float,
    every: float = 60.0,
    seed: int = 1,
    lookup: Any = get_paper,
    watch: type[Watch] = Watch,
    modules: tuple[str, ...] | None = None,
) -> Watch:
    """Run laps until the time is over and return what was read.

    Args:
        papers: loaded. folder: new or empty; the run and the temporary files go there.
        every: seconds between readings. seed: of the draws of groups.
        lookup: as `run_plan` takes it. watch, modules: for tests.
    """
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    mark = uuid.uuid4().hex
    before = {name: os.environ.get(name) for name in ("TMPDIR", MARK)}
    os.environ.update({"TMPDIR": str((folder / "tmp").resolve()), MARK: mark})
    tempfile.tempdir = None
    draw = random.Random(seed)
    names = [paper.name for paper in papers]
    more = {"modules": modules} if modules is not None else {}
    try:
        with (
            Store.create(folder / "runs", {"papers": names, "soak": True}) as store,
            ForkServer(lookup, names, threads=default_threads(), log=folder / "server.log", **more)
            as server,
        ):  # fmt: skip
            end = time.monotonic() + 60 * minutes
            seen = watch(server, folder, mark, every=every, end=end)
            for number in range(1, 1 << 30):
                plan = _lap(papers, number, draw, seen.slow)
                summary = run_plan(
                    plan, store, listener=seen, lookup=lookup, limits=False, server=server
                )
                if summary.trouble:
                    raise StoreError(summary.trouble)
                if summary.interrupted:
                    break
            seen.read(time.monotonic())
            return seen
    finally:
        tempfile.tempdir = None
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _lap(
    papers: Sequence[Any], number: int, draw: random.Random, slow: set[tuple[str, str, str]]
) -> Plan:
    """One group of every paper, papers in any order."""
    chosen = []
    for paper in draw.sample(list(papers), len(papers)):
        groups = sorted(
            {
                (experiment.name, cell.group)
                for experiment in paper.experiments
                for cell in experiment.cells("smoke", "cpu")
                if not cell.unavailable
                and (paper.name, experiment.name, cell.group) not in slow
            }
        )  # fmt: skip
        if not groups:
            continue
        name, group = draw.choice(groups)
        laps = tuple(Lap(e, [group], number) for e in paper.experiments if e.name == name)
        chosen.append(dataclasses.replace(paper, experiments=laps))
    return Plan.build(chosen, None, "smoke", "cpu", control="experiment")


def judge(readings: Sequence[dict[str, float]]) -> list[Growth]:
    """The growth of every series that was read."""
    found = []
    for name, (unit, allowed) in SERIES.items():
        mine = [(r["seconds"], r[name]) for r in readings if name in r]
        if mine:
            seconds, values = zip(*mine, strict=True)
            found.append(growth_of(name, seconds, values, allowed=allowed, unit=unit))
    return found


def verdict(found: Sequence[Growth], readings: Sequence[dict[str, float]]) -> list[str]:
    """Sentences about what grows, and what is there at the end that must not be."""
    wrong = [f"{g.name} grows by {g.slope:.3g} {g.unit} an hour".replace("  ", " ")
             for g in found if g.word == "grows"]  # fmt: skip
    # A cache that libraries make once stands there from the first cells on.
    early, last = readings[len(readings) // 4], readings[-1]
    for name in ("temporary files", "processes left behind"):
        if last[name] > early[name]:
            wrong.append(f"{last[name] - early[name]:.0f} {name} at the end")
    return wrong


def growth_table(found: Sequence[Growth]) -> str:
    """A line per series."""
    rows = [
        [
            f"{g.name}, {g.unit}" if g.unit else g.name,
            f"{g.first:.1f}",
            f"{g.last:.1f}",
            "" if g.slope is None else f"{g.slope:+.2f}",
            "" if g.low is None else f"[{g.low:+.2f}, {g.high:+.2f}]",
            f"{g.allowed:.0f}",
            f"{g.n}",
            g.word,
        ]
        for g in found
    ]
    head = ["series", "begin", "end", "an hour", "95 %", "allowed", "n", "verdict"]
    return table(head, rows, right={1, 2, 3, 4, 5, 6})


def draw_readings(readings: Sequence[dict[str, float]], found: Sequence[Growth], out: Path) -> None:
    """Every series over time, with the slope that was found."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(4, 2, figsize=(7.0, 7.0), sharex=True, layout="constrained")
    for axis, one in zip(axes.flat, found, strict=False):
        mine = [(r["seconds"] / 60, r[one.name]) for r in readings if one.name in r]
        axis.plot(*zip(*mine, strict=True), ".-", color="#4477aa", markersize=3, linewidth=0.8)
        unit = f", {one.unit}" if one.unit else ""
        axis.set_title(f"{one.name}{unit}: {one.word}", fontsize=8, loc="left")
        axis.tick_params(labelsize=7)
        axis.margins(y=0.3)
    for axis in axes[-1]:
        axis.set_xlabel("minutes", fontsize=8)
    figure.savefig(out, metadata={"Date": None})
    pyplot.close(figure)


def write(readings: Sequence[dict[str, float]], folder: Path) -> None:
    """All readings as `readings.csv`."""
    with (folder / "readings.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["seconds", "cells", ROWS, *SERIES])
        writer.writeheader()
        writer.writerows(
            {name: f"{value:.3f}" for name, value in reading.items()} for reading in readings
        )


def _deep_size(value: Any, seen: set[int]) -> int:
    """Bytes of plain values and of all in them, each object once."""
    if id(value) in seen:
        return 0
    seen.add(id(value))
    parts: Iterable[Any] = ()
    if isinstance(value, dict):
        parts = (*value, *value.values())
    elif isinstance(value, list | tuple):
        parts = value
    return sys.getsizeof(value) + sum(_deep_size(part, seen) for part in parts)


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _entries(folder: str) -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir(folder))
    return 0


def _files(folder: Path) -> int:
    """What stands in the temporary folder, and what a process should not leave in the run's."""
    left = sum(1 for _ in (folder / "tmp").rglob("*"))
    runs = (path for path in (folder / "runs").rglob("*") if path.is_file())
    passing = (".result", ".part", ".probe", ".tmp")
    return left + sum(path.name.endswith(passing) for path in runs)


def _marked(mark: str) -> list[int]:
    """Processes of this soak beside the runner itself, whose environment is older than the mark."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                    found.append(int(name))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("papers", nargs="*", help="default: all")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--every", type=float, default=0.0, help="seconds between readings")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None, help="default: a temporary folder")
    given = parser.parse_args()
    if not Path("/proc/self/statm").exists():
        print("a soak reads /proc, which this system has not", file=sys.stderr)
        return 0
    names = given.papers or paper_names()
    papers = [p for p in map(find_paper, names) if not isinstance(p, Broken)]
    folder = given.out or Path(tempfile.mkdtemp(prefix="dgbench-soak-"))
    every = given.every or min(60.0, max(5.0, 60 * given.minutes / 60))
    seen = soak(papers, folder, minutes=given.minutes, every=every, seed=given.seed)
    write(seen.readings, folder)
    found = judge(seen.readings)
    draw_readings(seen.readings, found, folder / "soak.svg")
    text = growth_table(found)
    (folder / "soak.txt").write_text(text + "\n")
    say(text)
    wrong = verdict(found, seen.readings)
    last = seen.readings[-1]
    say(
        f"{seen.rows} processes in {last['seconds'] / 60:.1f} minutes, {seen.bad} failed; "
        f"their rows take {last[ROWS]:.1f} MiB; {folder}"
    )
    say("; ".join(wrong) or "nothing grows")
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
