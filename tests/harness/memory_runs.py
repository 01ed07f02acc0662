"""Runs in memory, whose rows have the times that a test says."""

from __future__ import annotations

import random

from dgbench.harness.store import Row
from dgbench.lab.table import observation


class MemoryRun:
    """A run without files, as far as comparisons read one."""

    def __init__(self, rows, run="0a1b2c3d", *, facts=None, race=""):
        self._rows, self.run, self.path, self.info = rows, run, f"/nowhere/{run}", {"race": race}
        self._facts = {"k": facts} if facts else {}

    def rows(self):
        return self._rows

    def provenance(self):
        return self._facts


def timed_rows(name, times, *, observed=(), **fields):
    """A row of one cell for each time; one without a time has no samples."""
    about = {"paper": "toy", "experiment": "fig1", "params": {"dataset": name}, "group": name}
    return [
        Row(id=f"{name}-r{number}", cell_hash=name, round=number, **about | fields,
            observed=[*([observation("step_time", t, samples=[t])] if t else []), *observed])
        for number, t in enumerate(times, 1)
    ]  # fmt: skip


def noisy(mean, seed, count=6, spread=0.01):
    """Times around a mean that vary by chance."""
    draw = random.Random(seed)
    return [mean * draw.lognormvariate(0, spread) for _ in range(count)]
