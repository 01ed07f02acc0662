"""History of a machine: the samples of runs that were kept once and have been replaced.

A folder of kept runs, `results/reference/MACHINE`, holds the newest run of a paper alone. Beside it
`history.jsonl.gz` holds a line for each run that ever was there: its commit and the samples of its
series. `scripts/keep_reference.py` writes it when it replaces a run.
"""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from dgbench.harness.report.run import RunData
from dgbench.harness.samples import series_of
from dgbench.harness.store.files import read_lines, to_line, write_whole
from dgbench.lab.compare import without_control
from dgbench.runtime.errors import StoreError

FILE: Final = "history.jsonl.gz"
DIGITS: Final = 5
"""Significant digits of a sample; its spread is a percent or more."""


class PastRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """The samples of a run.

    Attributes:
        paper, preset, device: what ran. commit: of the code that ran. started: of the run.
        noise: its noise floor, None where it measured none.
        series: name -> samples, see `harness.samples`; smaller is better.
    """

    paper: str
    preset: str
    device: str
    commit: str
    started: str
    series: dict[str, list[float]]
    noise: float | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """Key that tells it from other runs of its machine."""
        return (self.started, self.paper, self.preset, self.device, self.commit)


def past_runs(run: RunData) -> list[PastRun]:
    """A run as history keeps it, one for each of its papers; none for smoke or unknown code.

    Whole trainings that were kept beside it are not its own: they ran at another time.
    """
    facts = list(run.store.provenance().values())
    commit = str(facts[-1].get("code", {}).get("commit") or "") if facts else ""
    if not commit or run.smoke:
        return []
    preset, started = (str(run.info.get(key, "")) for key in ("preset", "started"))
    mine = [row for row in run.rows if not row.preset or row.preset == preset]
    found = []
    for paper in dict.fromkeys(row.paper for row in mine):
        series: dict[str, list[float]] = defaultdict(list)
        rows = without_control([row for row in mine if row.paper == paper])
        for name, _, value in series_of(rows):
            series[name].append(float(f"{value:.{DIGITS}g}"))
        if series:
            known = (paper, preset, run.device, commit, started)
            found.append(PastRun(*known, dict(series), run.noise))
    return found


def read_past(machine: Path) -> list[PastRun]:
    """The runs of a machine's folder, oldest first; none without a file.

    Raises:
        StoreError: a line of the file is damaged, or is no past run.
    """
    path = machine / FILE
    if not path.is_file():
        return []
    lines, torn = read_lines(path)
    if torn:
        raise StoreError(f"{path}: {torn[0].reason}")
    try:
        return [msgspec.json.decode(line, type=PastRun) for line in lines]
    except msgspec.DecodeError as error:
        raise StoreError(f"{path}: {error}") from None


def write_past(machine: Path, runs: Iterable[PastRun]) -> None:
    """Write the runs of a machine, each once, oldest first; the same runs give the same bytes.

    Raises:
        StoreError: the folder cannot be written.
    """
    once = {run.key: run for run in runs}
    if not once:
        return
    lines = b"".join(
        to_line(msgspec.json.encode(once[key], order="sorted")) for key in sorted(once)
    )
    write_whole(machine / FILE, gzip.compress(lines, 9, mtime=0))
