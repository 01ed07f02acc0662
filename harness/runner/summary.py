"""Summary of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dgbench.harness.store.standing import cell_states
from dgbench.lab.noise import NoisePairs

if TYPE_CHECKING:
    from dgbench.harness.plan import Plan
    from dgbench.harness.store import Row


@dataclass(slots=True)
class RunSummary:
    """Summary of a finished run.

    Attributes:
        run, path: id and folder.
        cells, cells_ok, cells_failed, cells_void, cells_skipped: cells of the plan, see
            `cell_states`; skipped is a cell that never started or lacks something here.
        kept: rows taken over from an earlier part. rows: rows written now.
        seconds: wall time of this part.
        interrupted: Ctrl-C or SIGTERM came. signal: number of the one that came, or 0.
        trouble: why the run stopped early otherwise.
        noise_floor: relative, from the A/A controls; None without any.
        restarts: how often the fork server had to be started again.
        rounds: what became of groups that may get further rounds, in one sentence, or "".
    """

    run: str
    path: Path
    cells: int = 0
    cells_ok: int = 0
    cells_failed: int = 0
    cells_void: int = 0
    cells_skipped: int = 0
    kept: int = 0
    rows: int = 0
    seconds: float = 0.0
    interrupted: bool = False
    signal: int = 0
    trouble: str = ""
    noise_floor: float | None = None
    restarts: int = 0
    rounds: str = ""

    def count(self, plan: Plan, rows: Sequence[Row]) -> None:
        """Set the numbers of cells and the noise floor from a run's rows, judged."""
        states = cell_states(rows)
        processes = Counter(row.cell_hash for row in rows if not row.instrumented)
        for planned in plan.cells:
            state = states.get(planned.hash, "")
            wanted = planned.cell.repeats if not planned.status else 1
            self.cells_failed += state == "failed"
            self.cells_void += state == "void"
            self.cells_skipped += state == "missing"
            self.cells_ok += state == "ok" and processes[planned.hash] >= wanted
        self.noise_floor = NoisePairs.of(rows).of_run()

    @property
    def cells_done(self) -> int:
        """Cells that are over, whatever became of them."""
        return self.cells_ok + self.cells_failed + self.cells_void + self.cells_skipped

    @property
    def sentence(self) -> str:
        """One line for a log or a terminal."""
        minutes, seconds = divmod(int(self.seconds), 60)
        if self.interrupted or self.trouble:
            start = f"Stopped: {self.cells_done} of {self.cells} cells kept."
            return f"{start} {self.trouble}".strip()
        text = f"Done in {minutes}:{seconds:02d}. {self.cells_ok} cells ok"
        text += f", {self.cells_failed} failed" if self.cells_failed else ""
        text += f", {self.cells_void} void" if self.cells_void else ""
        text += f", {self.cells_skipped} not run here" if self.cells_skipped else ""
        floor = self.noise_floor
        return f"{text}." + (f" Noise floor ±{100 * floor:.1f} %." if floor is not None else "")
