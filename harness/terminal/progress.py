"""Progress of a run: three lines redrawn on a terminal, one plain line a cell elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any, TextIO

from dgbench.harness.plan import cell_hash
from dgbench.harness.runner.listener import Listener
from dgbench.harness.terminal.text import WIDTH, colours, encodable, is_utf8
from dgbench.harness.terminal.verdicts import clock

_REASONS = {
    "oom": "out of memory",
    "time": "time limit",
    "crash": "crashed",
    "check": "wrong result",
}


class Progress(Listener):
    """Shows a run while it goes on. Writes to stderr."""

    def __init__(self, stream: TextIO | None = None, *, live: bool | None = None) -> None:
        self.stream = stream or sys.stderr
        self.live = bool(self.stream.isatty()) if live is None else live
        self.done = self.total = self.ok = self.failed = 0
        self._plan: Any = None
        self._left_s = 0.0
        self._spent_s = self._guessed_s = 0.0
        self._now = self._last_failed = self._where = ""
        self._estimates: dict[str, float] = {}
        self._known: set[str] = set()
        self._drawn = 0
        self._started = time.monotonic()

    def on_plan(self, plan: Any, kept: Sequence[Any] = ()) -> None:
        """A plan is about to run; `kept` rows are not measured again."""
        self._plan = plan
        self.total = len(plan.steps)
        self._left_s = plan.seconds
        for planned in plan.cells:
            self._estimates[planned.hash] = planned.estimate_s
            if planned.known:
                self._known.add(planned.hash)
        for row in kept:
            self._count(row)
        self._draw()

    def on_start(self, cell: Any, round: int) -> None:
        """A process starts."""
        if cell.paper == "-":
            self._where, self._now = "machine", "now    measuring what this machine can do"
        else:
            key = cell_hash(cell, self._plan.preset, self._plan.device) if self._plan else ""
            self._where = f"{cell.paper} {cell.experiment}"
            last = f"last time {self._estimates[key]:.1f} s" if key in self._known else ""
            turn = f"pair {round} of {cell.repeats}" if cell.repeats > 1 else "once"
            self._now = _line(f"now    {turn:<13} {describe(cell)}", last)
        self._draw()

    def on_row(self, row: Any) -> None:
        """A row was kept."""
        self._count(row)
        if self.live:
            self._draw()
        elif row.paper != "-":
            self._plain(row)

    def on_note(self, text: str) -> None:
        """Something a reader should know."""
        self._erase()
        print(encodable(f"note: {text}", self.stream), file=self.stream, flush=True)
        self._draw()

    def on_end(self, *_: Any) -> None:
        """The run is over; the redrawn lines are taken away."""
        self._erase()

    def _count(self, row: Any) -> None:
        if row.paper == "-" or row.status in ("no-gpu", "skipped"):
            return
        self.done = min(self.done + 1, self.total)
        guess = self._estimates.get(row.cell_hash, 0.0)
        self._left_s -= guess
        if row.seconds:
            self._spent_s += row.seconds
            self._guessed_s += guess
        if row.status == "ok":
            self.ok += 1
        elif row.status in _REASONS:
            self.failed += 1
            self._last_failed = f"failed {describe(row)}   {failure(row)}"

    @property
    def left_s(self) -> float:
        """Seconds that should be left: the plan's estimates, corrected by how they have held."""
        pace = self._spent_s / self._guessed_s if self._guessed_s > 1 else 1.0
        return max(0.0, self._left_s) * min(max(pace, 0.2), 5.0)

    def lines(self) -> list[str]:
        """The three lines (or two) as they stand now, each at most 79 columns."""
        full = "█" if is_utf8(self.stream) else "#"
        size = 20
        filled = size * self.done // self.total if self.total else 0
        bar = f"[{full * filled}{'.' * (size - filled)}]"
        count = f"{self.done}/{self.total}   ok {self.ok}  failed {self.failed}"
        left = f"left ~{clock(self.left_s)}"
        head = _line(f"{self._where[:24]:<12} {bar}  {count}", left)
        return [line for line in (head, self._now, self._last_failed) if line]

    def _draw(self) -> None:
        if not self.live:
            return
        self._erase()
        lines = [encodable(line[: WIDTH - 1], self.stream) for line in self.lines()]
        if colours(self.stream):
            lines = [f"\x1b[31m{t}\x1b[0m" if t.startswith("failed") else t for t in lines]
        self.stream.write("".join(f"{line}\n" for line in lines))
        self.stream.flush()
        self._drawn = len(lines)

    def _erase(self) -> None:
        if self._drawn:
            self.stream.write(f"\x1b[{self._drawn}A\x1b[0J")
            self.stream.flush()
            self._drawn = 0

    def _plain(self, row: Any) -> None:
        stamp = time.strftime("%H:%M:%S")
        said = f"{row.seconds:.1f} s" if row.status == "ok" else failure(row)
        where = f"{row.paper}/{row.experiment}"
        text = f"{stamp}  {self.done}/{self.total}  {where}  round {row.round}  {describe(row)}"
        print(encodable(f"{text}  {said}", self.stream), file=self.stream, flush=True)


def describe(item: Any) -> str:
    """A cell or row by what identifies it: `pygt | mpnn_lstm | flickr (twin)`."""
    params = dict(item.params)
    twin = bool(getattr(item, "data", {}).get("twin")) or params.get("source") == "twin"
    first = [params.pop(key, None) for key in ("system", "model", "dataset")]
    words = [str(word) for word in first if word]
    if twin and first[2]:
        words[-1] += " (twin)"
    rest = [f"{k}={v}" for k, v in params.items() if k not in ("source", "seed") and v is not None]
    return " | ".join(words + rest[: 3 if words else 5]) or item.group


def failure(row: Any) -> str:
    """Why a row has no result, in words: the kind, then its reason."""
    kind = _REASONS.get(row.status, row.status)
    reason = row.reason.strip()
    if not reason or reason.lower().startswith(kind):
        return reason or kind
    return f"{kind}, {reason}"


def _line(left: str, right: str) -> str:
    """Two texts on one line of 79 columns, the second one at the right end where it fits."""
    room = WIDTH - 1 - len(left) - len(right)
    return f"{left}{' ' * room}{right}" if right and room >= 2 else left
