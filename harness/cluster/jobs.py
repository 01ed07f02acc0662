"""Jobs of a submission through submitit: submitted as one array, and watched until they end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from dgbench.harness.cluster.config import ClusterFile
from dgbench.harness.cluster.shard import Shard
from dgbench.harness.cluster.submission import Submission
from dgbench.harness.store import Store
from dgbench.runtime.errors import DgbenchError, InvalidInputError, MissingPackageError, StoreError
from dgbench.systems.base.registry import get_paper

POLL_S: Final = {"slurm": 10.0, "local": 0.5, "debug": 0.0}
"""Seconds between two looks at the jobs, by executor."""
SILENT: Final = ("UNKNOWN", "PREEMPTED", "REQUEUED")
"""States that a job leaves soon, or is lost in: where nothing requeues, PREEMPTED is the last."""


def submitit() -> Any:
    """The library that speaks to the batch system. Raises MissingPackageError."""
    try:
        import submitit as found
    except ImportError as error:
        raise MissingPackageError(
            f"--cluster needs the package 'submitit': {error}",
            hint="pip install 'dgbench[cluster]'",
        ) from error
    return found


def executor_of(cluster: ClusterFile, folder: Any) -> Any:
    """The executor of submitit that a cluster file asks for.

    Raises:
        MissingPackageError: there is no submitit.
        InvalidInputError: this host has no Slurm.
    """
    library = submitit()
    if cluster.executor == "debug":
        return library.DebugExecutor(folder)
    kind = library.SlurmExecutor if cluster.executor == "slurm" else library.LocalExecutor
    settings = {"python": cluster.python} if cluster.python else {}
    try:
        executor = kind(folder=folder, max_num_timeout=cluster.requeues, **settings)
        executor.update_parameters(**cluster.parameters)
    except RuntimeError as error:
        raise InvalidInputError(
            f"executor 'slurm' does not work here: {error}",
            hint='submit from a login node, or set executor = "local"',
        ) from error
    return executor


class Jobs:
    """Jobs of a submission.

    Attributes:
        submission: whose groups they run. running: jobs by number of their shard.
        waiting: shards without a job so far.
    """

    def __init__(self, submission: Submission, lookup: Callable[[str], Any] = get_paper) -> None:
        self.submission, self.lookup = submission, lookup
        self.running: dict[int, Any] = {}
        self.waiting: list[int] = []
        self.executor: Any = None
        self._heard: dict[int, tuple[float, Any]] = {}

    @classmethod
    def of(cls, submission: Submission) -> Jobs:
        """Jobs that another process submitted, as far as the batch system can be asked for them."""
        found = cls(submission)
        if submission.info.cluster.executor == "slurm":
            library = submitit()
            found.running = {
                int(number): library.SlurmJob(folder=submission.path / "jobs", job_id=id_)
                for number, id_ in submission.info.jobs.items()
            }
        return found

    def fill(self) -> None:
        """Submit as many shards as may be submitted now: under Slurm all, as one array."""
        cluster = self.submission.info.cluster
        slurm = cluster.executor == "slurm"
        count = len(self.waiting) if slurm else cluster.most - len(self.running)
        now, self.waiting = self.waiting[:count], self.waiting[max(0, count) :]
        if not now:
            return
        shards = [Shard(str(self.submission.path), number, self.lookup) for number in now]
        if slurm and len(shards) > 1:
            with self.executor.batch():
                jobs = [self.executor.submit(shard) for shard in shards]
        else:
            jobs = [self.executor.submit(shard) for shard in shards]
        self.running |= dict(zip(now, jobs, strict=True))
        ids = {str(number): str(self.running[number].job_id) for number in now}
        self.submission.keep(jobs=self.submission.info.jobs | ids)

    def wait(
        self,
        say: Callable[[str], None] = lambda text: None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> dict[int, str]:
        """Wait until every group has its rows or is lost.

        Returns:
            Why a group is lost, by the number of its shard.
        """
        lost: dict[int, str] = {}
        count, total = 0, len(self.running) + len(self.waiting)
        while self.running or self.waiting:
            self.fill()
            for number, reason in self.states(clock()).items():
                if reason is None:
                    continue
                count += 1
                del self.running[number]
                if reason:
                    lost[number] = reason
                name = self.submission.shard_name(number)
                say(f"{count}/{total}  {name}: {reason or 'done'}")
            if self.running:
                sleep(POLL_S[self.submission.info.cluster.executor])
        return lost

    def states(self, now: float) -> dict[int, str | None]:
        """State of each job: None while it goes on, "" where its shard is whole, or why
        its group is lost."""
        if self.running:  # one question for all of them
            first = next(iter(self.running.values()))
            first.watcher.clear()  # or a job that is gone would keep the state that it had
            with contextlib.suppress(Exception):  # sacct may fail for a while
                first.get_info(mode="force")
        return {number: self._state(number, job, now) for number, job in self.running.items()}

    def unsubmitted(self) -> dict[int, str | None]:
        """The same of shards whose jobs cannot be asked for: it says so who writes their runs."""
        found: dict[int, str | None] = {}
        for number in range(len(self.submission.info.groups)):
            if number in self.running:
                continue
            if str(number) not in self.submission.info.jobs:
                found[number] = "its job was never started"
            elif self._whole(number):
                found[number] = ""
            else:
                writing = _is_written(self.submission, number)
                found[number] = None if writing else "its job ended without all of its rows"
        return found

    def _state(self, number: int, job: Any, now: float) -> str | None:
        if self.submission.info.cluster.executor == "debug":
            job.exception()  # runs it, here; `done` would open a debugger where it fails
        ended = job.done()
        if self._whole(number):
            return ""
        state = str(job.state)
        if ended:
            return self._why(number, job, state)
        seen = self._seen(number)
        before, last = self._heard.get(number, (now, None))
        if state.upper() not in SILENT or seen != last:
            before = now
        self._heard[number] = before, seen
        limit = self.submission.info.cluster.lost
        if now - before < 60 * limit:
            return None
        with contextlib.suppress(Exception):
            job.cancel(check=False)  # it must not begin after its group was counted as lost
        return f"no news of its job {job.job_id} for {limit} minutes (state {state})"

    def _whole(self, number: int) -> bool:
        """Return True if a shard has run all of its plan."""
        return self._info(number).get("state") == "done"

    def _info(self, number: int) -> Mapping[str, Any]:
        run = self.submission.shard_run(number)
        try:
            return Store.open(run).info if run is not None else {}
        except DgbenchError:  # damaged, or being written
            return {}

    def _seen(self, number: int) -> Any:
        """Sign of life of a shard: it changes with every row."""
        run = self.submission.shard_run(number)
        with contextlib.suppress(OSError):
            return run and (run / "rows.jsonl").stat().st_size
        return None

    def _why(self, number: int, job: Any, state: str) -> str:
        reason = f"its job {job.job_id} ended without all of its rows (state {state})"
        with contextlib.suppress(Exception):  # what a job says of its end may be unreadable
            if not hasattr(job.paths, "result_pickle") or job.paths.result_pickle.exists():
                said = [line for line in str(job.exception()).splitlines() if line.strip("- ")]
                errors = [line for line in said if "Error" in line.partition(":")[0]]
                return f"{reason}: {(errors or said)[-1].strip()}"
        note = self._info(number).get("note")
        return f"{reason}: {note}" if note else reason


def _is_written(submission: Submission, number: int) -> bool:
    """Return True while a process holds the run of a shard."""
    run = submission.shard_run(number)
    if run is None:
        return False
    try:
        Store.open(run, writable=True).close()
    except StoreError:
        return True
    return False


def submit(submission: Submission, lookup: Callable[[str], Any] = get_paper) -> Jobs:
    """Submit the groups of a submission, as many as may run at once.

    Raises:
        MissingPackageError, InvalidInputError: as `executor_of`.
        DgbenchError: the batch system refuses the jobs.
    """
    jobs = Jobs(submission, lookup)
    jobs.executor = executor_of(submission.info.cluster, submission.path / "jobs")
    jobs.waiting = list(range(len(submission.info.groups)))
    try:
        jobs.fill()
    except (OSError, RuntimeError) as error:
        last = (str(error).strip() or type(error).__name__).splitlines()[-1]
        raise DgbenchError(f"the batch system refuses the jobs: {last}") from error
    return jobs
