"""Comparison of a long run with one that has just begun: is it slower?"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from soak_laps import draw_groups, lap_of
from soak_watch import SoakWatch

from dgbench.harness.runner.listener import Listener
from dgbench.harness.terminal.text import table
from dgbench.lab.probes import probe
from dgbench.runtime.errors import InvalidInputError, StoreError
from dgbench.runtime.statistics import ConfidenceInterval, paired_ratio

PAIRS = 40
"""Cells that the old and the new run share at the end."""
CPU = probe("cpu_percent")
TIMES = {"processor time of a cell": 1.10, "runner's own time per cell": 1.50}
"""Name -> what the old may take of what the new takes. A clock shows a busy machine as much as us,
so times are compared in turns and never with those of an hour before."""


class Times(Listener):
    """The times of the cells of a run, s: name of `TIMES` -> cell -> time."""

    def __init__(self, watch: SoakWatch) -> None:
        self.watch = watch
        self.of: dict[str, dict[tuple, float]] = {name: {} for name in TIMES}

    def on_start(self, cell: Any, round: int) -> None:
        self._started = time.monotonic()

    def on_row(self, row: Any) -> None:
        own = time.monotonic() - self._started - (row.seconds or 0.0)
        self.watch.keep(row)
        # Processor time: others who keep the machine busy are not what is looked for here.
        spent = (row.seconds or 0.0) * (CPU.read(row) or 100.0) / 100
        if row.ok and spent > 0 and own > 0:
            params = tuple(sorted((k, str(v)) for k, v in row.params.items()))
            cell = (row.paper, row.experiment, params, row.instrumented)
            for times, value in zip(self.of.values(), (spent, own), strict=True):
                times[cell] = value


def pairs_of(
    papers: Sequence[Any],
    draw: random.Random,
    seen: SoakWatch,
    sides: Sequence[Callable[..., Any]],
    count: int,
) -> None:
    """Fill `seen.beside` with the times of at least `count` cells of both sides.

    Both run a group before the next one is drawn, and their turns turn, so that a machine that gets
    slower meanwhile is slower for both.
    """
    seen.beside = {name: [] for name in TIMES}
    turn = 0
    # Cells may fail on one of the sides, so there is a last turn.
    while len(next(iter(seen.beside.values()))) < count and turn < 10 * count:
        for group in draw_groups(papers, draw, seen.slow):
            turn += 1
            times = Times(seen), Times(seen)
            for which in (0, 1) if turn % 2 else (1, 0):
                plan = lap_of([group], f"{turn} of {'new' if which else 'old'}", rounds=1)
                summary = sides[which](plan, listener=times[which])
                if summary.trouble or summary.interrupted:
                    raise StoreError(summary.trouble or "stopped by the user")
            for name, found in seen.beside.items():
                old, new = times[0].of[name], times[1].of[name]
                found += [(old[cell], new[cell]) for cell in old if cell in new]


def slower(beside: dict[str, list[tuple[float, float]]]) -> dict[str, ConfidenceInterval]:
    """Times of the old run over those of the new one: the median of the pairs.

    Raises:
        InvalidInputError: no cell ran on both sides.
    """
    if not all(beside.values()):
        raise InvalidInputError("no cell ran both in the old run and in the new one")
    return {
        name: paired_ratio(*zip(*found, strict=True), method="sign")
        for name, found in beside.items()
    }


def times_table(ratios: dict[str, ConfidenceInterval]) -> str:
    """A line per time."""
    rows = [
        [
            name,
            f"{r.value:.3f}",
            "" if r.low is None else f"[{r.low:.3f}, {r.high:.3f}]",
            f"{TIMES[name]:.2f}",
            f"{r.n}",
        ]
        for name, r in ratios.items()
    ]
    head = ["old run beside a new one", "ratio", "95 %", "allowed", "pairs"]
    return table(head, rows, right={1, 2, 3, 4})
