"""Run random cells of all papers for a long time and see whether the runner grows.

    python scripts/soak.py --minutes 120 --out soak

One process plans and runs lap after lap, each some groups of every paper at smoke size, in the
order of the preset `full`: rounds that turn round, an A/A control per experiment, instrumented
processes behind. Between cells it notes the memory, descriptors and threads of the runner and of
its fork server, files left in the temporary folder and in the run's, and processes left behind. At
the end the same cells run in turns in the long run of the old server and in a new run of a server
that has just started. Exit code 1 if something grows, or the old is slower than the new, by more
than is allowed.
"""

from __future__ import annotations

import argparse
import csv
import functools
import os
import random
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from soak_laps import draw_groups, lap_of
from soak_pairs import PAIRS, TIMES, pairs_of, slower, times_table
from soak_watch import MARK, ROWS, SERIES, SoakWatch

from dgbench.harness.growth import Growth, growth_of
from dgbench.harness.plugins import Broken, find_paper, paper_names
from dgbench.harness.runner import run_plan
from dgbench.harness.runner.client import ForkServer
from dgbench.harness.store import Store
from dgbench.harness.terminal.text import say, table
from dgbench.runtime.errors import DgbenchError, StoreError
from dgbench.runtime.statistics import ConfidenceInterval
from dgbench.runtime.threads import default_threads
from dgbench.systems.base import get_paper


def soak(
    papers: Sequence[Any],
    folder: Path,
    *,
    minutes: float,
    every: float = 60.0,
    seed: int = 1,
    pairs: int = PAIRS,
    lookup: Any = get_paper,
    watch: type[SoakWatch] = SoakWatch,
    modules: tuple[str, ...] | None = None,
) -> SoakWatch:
    """Run laps until the time is over and return what was read.

    Args:
        papers: loaded. folder: new or empty; the run and the temporary files go there.
        every: seconds between readings. seed: of the draws of groups.
        pairs: of cells that the old run and a new one share at the end.
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
    new = functools.partial(ForkServer, lookup, names, threads=default_threads(), **more)
    try:
        with _store(folder / "runs", names) as store, new(log=folder / "server.log") as server:
            run = functools.partial(run_plan, lookup=lookup, limits=False)
            end = time.monotonic() + 60 * minutes
            seen = watch(server, folder, mark, every=every, end=end)
            for number in range(1, 1 << 30):
                lap = lap_of(draw_groups(papers, draw, seen.slow), str(number))
                summary = run(lap, store, listener=seen, server=server)
                if summary.trouble:
                    raise StoreError(summary.trouble)
                if summary.interrupted:
                    break
            seen.read(time.monotonic())
            with _store(folder / "new", names) as other, new(log=folder / "new.log") as fresh:
                sides = [functools.partial(run, store=store, server=server),
                         functools.partial(run, store=other, server=fresh)]  # fmt: skip
                pairs_of(papers, draw, seen, sides, pairs)
            seen.read(time.monotonic())
            return seen
    finally:
        tempfile.tempdir = None
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _store(folder: Path, names: list[str]) -> Store:
    return Store.create(folder, {"papers": names, "soak": True})


def judge(readings: Sequence[dict[str, float]]) -> list[Growth]:
    """The growth of every series over the laps; the last reading comes after the pairs."""
    found = []
    for name, (unit, allowed) in SERIES.items():
        mine = [(r["seconds"], r[name]) for r in readings[:-1] if name in r]
        if mine:
            seconds, values = zip(*mine, strict=True)
            found.append(growth_of(name, seconds, values, allowed=allowed, unit=unit))
    return found


def verdict(
    found: Sequence[Growth],
    readings: Sequence[dict[str, float]],
    ratios: dict[str, ConfidenceInterval],
) -> list[str]:
    """Sentences about what grows, and what is there at the end that must not be."""
    wrong = [f"{g.name} grows by {g.slope:.3g} {g.unit} an hour".replace("  ", " ")
             for g in found if g.word == "grows"]  # fmt: skip
    # A cache that libraries make once stands there from the first cells on.
    early, last = readings[len(readings) // 4], readings[-1]
    for name in ("temporary files", "processes left behind"):
        if last[name] > early[name]:
            wrong.append(f"{last[name] - early[name]:.0f} {name} at the end")
    for name, ratio in ratios.items():
        if ratio.low is not None and ratio.low > TIMES[name]:
            wrong.append(f"{name} is {ratio.value:.2f} times that of a new run")
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

    figure, axes = pyplot.subplots(3, 2, figsize=(7.0, 5.5), sharex=True, layout="constrained")
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
    try:
        return _main(given)
    except DgbenchError as error:
        print(f"{error} {error.hint}".strip(), file=sys.stderr)
        return 2


def _main(given: argparse.Namespace) -> int:
    names = given.papers or paper_names()
    papers = [p for p in map(find_paper, names) if not isinstance(p, Broken)]
    folder = given.out or Path(tempfile.mkdtemp(prefix="dgbench-soak-"))
    every = given.every or min(60.0, max(5.0, 60 * given.minutes / 60))
    seen = soak(papers, folder, minutes=given.minutes, every=every, seed=given.seed)
    write(seen.readings, folder)
    found = judge(seen.readings)
    draw_readings(seen.readings, found, folder / "soak.svg")
    ratios = slower(seen.beside)
    text = growth_table(found) + "\n\n" + times_table(ratios)
    (folder / "soak.txt").write_text(text + "\n")
    say(text)
    wrong = verdict(found, seen.readings, ratios)
    last = seen.readings[-1]
    say(
        f"{seen.rows} processes in {last['seconds'] / 60:.1f} minutes, {seen.bad} failed; "
        f"their rows take {last[ROWS]:.1f} MiB; {folder}"
    )
    say("; ".join(wrong) or "nothing grows")
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
