"""Progress of a run: one line and what failed below it on a terminal, a line a group elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from dgbench.harness.plugins import contender_title
from dgbench.harness.runner.listener import Listener
from dgbench.harness.store.row import FAILED, LACKING
from dgbench.harness.terminal.estimate import TimeEstimate
from dgbench.harness.terminal.left_out import failure
from dgbench.harness.terminal.text import colours, columns, encodable, is_utf8
from dgbench.harness.terminal.verdicts import clock

MAX_FAILED = 4
"""Failed cells below the progress of a terminal; the end of the run lists all."""
MAX_PLAIN_FAILED = 10
PLAIN_S = 60.0
"""Seconds after which a line is written elsewhere even if its group goes on."""


class ProgressListener(Listener):
    """Shows a run while it goes on. Writes to stderr."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        live: bool | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stream = stream or sys.stderr
        self.live = bool(self.stream.isatty()) if live is None else live
        self.done = self.ok = self.failed = 0
        self._now = now
        self._estimate: TimeEstimate | None = None
        self._rounds: dict[tuple[str, str], int] = {}
        self._where = self._what = ""
        self._failures: dict[str, str] = {}
        self._said: set[str] = set()
        self._drawn = 0
        self._last_row: float | None = None
        self._group = _Group()

    @property
    def total(self) -> int:
        """Processes that have run and that still will; cells that lack something are left out."""
        return self.done + (self._estimate.left if self._estimate else 0)

    def on_plan(self, plan: Any, kept: Sequence[Any] = ()) -> None:
        """A plan is about to run; `kept` rows are not measured again."""
        self._set_plan(plan)
        for row in kept:
            self._count(row, None)
        self._draw()

    def on_more(self, plan: Any, rows: Sequence[Any]) -> None:
        """The plan got further rounds."""
        self._set_plan(plan)
        assert self._estimate is not None
        for row in rows:
            self._estimate.ended(row.cell_hash, row.instrumented, row.seconds)
            if row.status in LACKING:
                self._estimate.drop(row.cell_hash)
        self._draw()

    def _set_plan(self, plan: Any) -> None:
        self._estimate = TimeEstimate(plan)
        for planned in plan.cells:
            name = planned.cell.paper, planned.cell.experiment
            self._rounds[name] = max(self._rounds.get(name, 0), planned.cell.repeats)

    def on_start(self, cell: Any, round: int) -> None:
        """A process starts."""
        if cell.paper == "-":
            if self._last_row is None:
                self._where, self._what = "machine", "measuring what this machine can do"
        else:
            self._where, self._what = f"{cell.paper}/{cell.experiment}", describe(cell)
            if self._last_row is None:
                self._last_row = self._now()
        self._draw()

    def on_row(self, row: Any) -> None:
        """A row was kept."""
        if row.paper == "-":
            return
        now = self._now()
        self._count(row, None if self._last_row is None else now - self._last_row)
        self._last_row = now if self._last_row is not None else None
        if self.live:
            self._draw()
        else:
            self._plain(row, now)

    def on_note(self, text: str) -> None:
        """Something a reader should know."""
        self._erase()
        self._write(f"{encodable(f'note: {text}', self.stream)}\n")
        self._draw()

    def on_end(self, *_: Any) -> None:
        """The run is over; the redrawn lines are taken away."""
        self._erase()
        if not self.live:
            self._write_group()

    def _count(self, row: Any, passed_s: float | None) -> None:
        """Count a row. passed_s: seconds since the one before, None for a row that was kept."""
        estimate = self._estimate
        if row.paper == "-" or estimate is None:
            return
        left = estimate.left
        if passed_s is None:
            estimate.keep(row.cell_hash, row.instrumented)
        else:
            estimate.ended(row.cell_hash, row.instrumented, row.seconds)
            estimate.between(max(0.0, passed_s - row.seconds))
        ran = estimate.left < left
        if row.status in LACKING:
            estimate.drop(row.cell_hash)
            return
        self.done += ran
        if row.status == "ok":
            self.ok += 1
        elif row.status in FAILED:
            self.failed += 1
            self._failures.pop(row.cell_hash, None)
            self._failures[row.cell_hash] = f"failed  {describe(row)}: {failure(row)}"

    @property
    def left_s(self) -> float | None:
        """Seconds that should be left, or None before enough has run to say it."""
        estimate = self._estimate
        return estimate.left_s if estimate is not None and estimate.learned else None

    def lines(self) -> list[str]:
        """The line of progress and the newest failures, each shorter than the terminal is wide."""
        width = columns(self.stream) - 1
        left = "" if self.left_s is None else f"left ~{clock(self.left_s)}"
        count = f"{self.done}/{self.total}"
        if self.failed:
            count += f", {self.failed} failed"
        size = 20 if width >= 60 else 0
        filled = size * self.done // self.total if self.total else 0
        full = "█" if is_utf8(self.stream) else "#"
        bar = f"[{full * filled}{'.' * (size - filled)}] " if size else ""
        head = f"{bar}{count}  {left}".rstrip()
        shown = [f"{head}  {self._where}  {self._what}".rstrip()]
        newest = list(self._failures.values())[::-1]
        shown += newest[:MAX_FAILED]
        if len(newest) > MAX_FAILED:
            shown.append(f"failed  {len(newest) - MAX_FAILED} more cells")
        return [line[:width] for line in shown]

    def _draw(self) -> None:
        if not self.live:
            return
        self._erase()
        lines = [encodable(line, self.stream) for line in self.lines()]
        if colours(self.stream):
            lines = [f"\x1b[31m{t}\x1b[0m" if t.startswith("failed") else t for t in lines]
        self._write("".join(f"{line}\n" for line in lines))
        self._drawn = len(lines)

    def _erase(self) -> None:
        if self._drawn:
            self._write(f"\x1b[{self._drawn}A\x1b[0J")
            self._drawn = 0

    def _plain(self, row: Any, now: float) -> None:
        group = self._group
        same = (row.paper, row.experiment) == (group.paper, group.experiment)
        # An instrumented process has no round of its own: it follows the last one.
        if not same or not (row.instrumented or row.round == group.round):
            self._write_group()
            group = self._group = _Group(row.paper, row.experiment, row.round, now)
        if row.status in FAILED:
            group.failed.add(row.cell_hash)
            if row.cell_hash not in self._said and len(self._said) < MAX_PLAIN_FAILED:
                self._said.add(row.cell_hash)
                self._say(self._failures[row.cell_hash])
        group.ok += row.status == "ok"
        group.left = self.left_s
        group.count = f"{self.done}/{self.total}"
        if now - group.begin > PLAIN_S:
            self._write_group()
            self._group = _Group(row.paper, row.experiment, row.round, now)

    def _write_group(self) -> None:
        """Write what a round of an experiment came to; nothing where none of it ran."""
        group = self._group
        if not group.ok and not group.failed:
            return
        most = self._rounds.get((group.paper, group.experiment), 1)
        turn = f" round {group.round} of {most}" if most > 1 else ""
        text = f"{time.strftime('%H:%M:%S')}  {group.paper}/{group.experiment}{turn}: {group.ok} ok"
        text += f", {len(group.failed)} failed" if group.failed else ""
        left = "" if group.left is None else f", left ~{clock(group.left)}"
        self._say(f"{text}  {group.count}{left}")
        self._group = _Group()

    def _say(self, text: str) -> None:
        self._write(f"{encodable(text, self.stream)}\n")

    def _write(self, text: str) -> None:
        """Write now; a run goes on where nobody reads any more or the disk is full."""
        with contextlib.suppress(OSError):
            self.stream.write(text)
            self.stream.flush()


class _Group:
    """Rows of one round of an experiment that are not yet written."""

    def __init__(
        self, paper: str = "", experiment: str = "", round: int = 0, begin: float = 0.0
    ) -> None:
        self.paper, self.experiment, self.round, self.begin = paper, experiment, round, begin
        self.ok = 0
        self.failed: set[str] = set()
        self.left: float | None = None
        self.count = ""


def describe(item: Any) -> str:
    """A cell or row by what identifies it: `pygt | mpnn_lstm | flickr (twin)`."""
    params = dict(item.params)
    twin = bool(getattr(item, "data", {}).get("twin")) or params.get("source") == "twin"
    first = [params.pop(key, None) for key in ("system", "model", "dataset")]
    if first[0]:
        first[0] = contender_title(getattr(item, "paper", ""), str(first[0]))
    words = [str(word) for word in first if word]
    if twin and first[2]:
        words[-1] += " (twin)"
    rest = [f"{k}={v}" for k, v in params.items() if k not in ("source", "seed") and v is not None]
    return " | ".join(words + rest[: 3 if words else 5]) or item.group
