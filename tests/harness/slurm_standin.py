"""Stand-in for Slurm: its programs on the path, and nodes that run, lose, kill and requeue jobs.

`sbatch`, `sacct`, `scontrol` and `scancel` are shell scripts over a folder that holds a file with
the state of each job. An element of an array runs in a fork of the test, by submitit's own code.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = {
    "sbatch": """
n=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\)%.*/\\1/p' "$1")
id=$(cat "$STANDIN/next"); echo $((id + 1)) >"$STANDIN/next"
cp "$1" "$STANDIN/batch-$id.sh"
if [ -n "$n" ]; then for k in $(seq 0 "$n"); do echo PENDING >"$STANDIN/jobs/${id}_$k"; done
else echo PENDING >"$STANDIN/jobs/$id"; fi
echo "Submitted batch job $id"
""",
    "sacct": """
echo "JobID|State|NodeList"
for job in "$STANDIN"/jobs/*; do echo "${job##*/}|$(cat "$job")|here"; done
""",
    "scontrol": """
[ "$1" = requeue ] && echo REQUEUED >"$STANDIN/jobs/$2"
""",
    "scancel": """
echo "$1" >>"$STANDIN/cancelled"
""",
    "srun": "exit 1",
}
IDS = itertools.count(4000, 100)
"""First job of each stand-in: submitit remembers jobs by their ids."""

Fault = Callable[[int], None]
"""Called in a job after each row, with the number of rows that it has written."""


def run_on(rows: int) -> None:
    """Let the job go on."""


def after(count: int, number: signal.Signals) -> Fault:
    """The fault that a job gets a signal once it has written so many rows."""

    def fault(rows: int) -> None:
        if rows == count:
            os.kill(os.getpid(), number)

    return fault


@dataclass
class Nodes:
    """The nodes of the stand-in.

    Attributes:
        folder: of the stand-in's state. jobs: of submitit.
        faults: of each element's attempts in turn; None: the job vanishes before it starts.
        host: name of the node of an element's attempt. ran: elements and hosts in turn.
    """

    folder: Path
    jobs: Path = Path()
    faults: dict[int, list[Fault | None]] = field(default_factory=dict)
    host: Callable[[int, int], str] = lambda element, attempt: f"host{element % 2}"
    ran: list[tuple[int, str]] = field(default_factory=list)
    fault: Fault = run_on
    attempts: dict[int, int] = field(default_factory=dict)

    def step(self, seconds: float = 0.0) -> None:
        """Run the next job that waits, to its end."""
        waiting = {}
        for path in (self.folder / "jobs").iterdir():
            if path.read_text().strip() in ("PENDING", "REQUEUED"):
                waiting[int((path.name + "_0").split("_")[1])] = path
        for element in sorted(waiting)[:1]:
            attempt = self.attempts[element] = self.attempts.get(element, 0) + 1
            left = self.faults.get(element, [])
            self.fault = left.pop(0) if left else run_on
            if self.fault is None:
                waiting[element].unlink()
                return
            self._run(element, attempt, waiting[element])

    def _run(self, element: int, attempt: int, path: Path) -> None:
        host = self.host(element, attempt)
        self.ran.append((element, host))
        path.write_text("RUNNING")
        if (pid := os.fork()) == 0:
            code = 70
            try:
                code = self._job(element, attempt, path.name, host)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        if path.read_text().strip() == "RUNNING":
            failed = "NODE_FAIL" if os.WIFSIGNALED(status) else "FAILED"
            path.write_text("COMPLETED" if status == 0 else failed)

    def _job(self, element: int, attempt: int, id_: str, host: str) -> int:
        from submitit.core.submission import process_job

        array, _, number = id_.partition("_")
        ids = {"SLURM_ARRAY_JOB_ID": array, "SLURM_ARRAY_TASK_ID": number} if number else {}
        os.environ.update(
            SUBMITIT_EXECUTOR="slurm", SLURM_JOB_ID=array, SLURMD_NODENAME=host, **ids
        )
        for stream in (1, 2):
            os.dup2(os.open(self.jobs.parent / "job.log", os.O_APPEND | os.O_CREAT | os.O_WRONLY),
                    stream)  # fmt: skip
        try:
            process_job(self.jobs)
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else 1
        return 0


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[Nodes]:
    """The stand-in's programs in front of the path."""
    state, programs = folder / "slurm", folder / "bin"
    (state / "jobs").mkdir(parents=True)
    programs.mkdir()
    (state / "next").write_text(f"{next(IDS)}\n")
    for name, text in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}")
        (programs / name).chmod(0o755)
    before = dict(os.environ)
    os.environ["PATH"] = f"{programs}{os.pathsep}{before['PATH']}"
    os.environ["STANDIN"] = str(state)
    try:
        yield Nodes(state)
    finally:
        os.environ.clear()
        os.environ.update(before)
