"""Running a plan: every step becomes a row, whatever happens to it."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import msgspec

from dgbench.harness.machine.provenance import provenance
from dgbench.harness.plan import Plan, PlannedCell, PlannedProcess, cell_hash
from dgbench.harness.probes.cpu import MachineActivity
from dgbench.harness.probes.disturbance import disturbance
from dgbench.harness.probes.nvml import GpuSampler, Nvml
from dgbench.harness.probes.series import Recording
from dgbench.harness.runner.adding import Look, RoundAdder
from dgbench.harness.runner.client import MODULES, ForkServer, ProcessExit, ServerDied, Stopped
from dgbench.harness.runner.kept import KeptNumbers
from dgbench.harness.runner.listener import Listener
from dgbench.harness.runner.nodes import ProcessKey, on_node, without_begun_rounds
from dgbench.harness.runner.outcome import blank_row, fill_row
from dgbench.harness.runner.protocol import UNWRITTEN, Job
from dgbench.harness.runner.same_data import SameData
from dgbench.harness.runner.scratch import Scratch, mark_of
from dgbench.harness.runner.summary import RunSummary
from dgbench.harness.store import FAILED, LACKING, Row, Store
from dgbench.lab.compare import CONTROL
from dgbench.lab.experiment import Cell
from dgbench.runtime.errors import DgbenchError, StoreError
from dgbench.runtime.memory import available_memory
from dgbench.runtime.threads import default_threads
from dgbench.systems.base.registry import get_paper

MEMORY_SHARE = 0.95
"""Share of the memory that is free when a process starts that it may take, at most."""

MACHINE = Cell(paper="-", experiment="machine", params={}, group="limits", timeout_s=60.0)
"""The cell that measures the machine's own limits; its row stands first."""
NOISE = Cell(paper="-", experiment="noise", params={"system": "reference"}, group="noise")
"""The cell whose pairs give a noise floor where not every paper of a run has a control."""
SEED = 1
"""Of torch's and Python's own generators in every process, unless another is asked for."""

REWRITTEN = "it changed rows that the run had kept; they were written anew"
"""Reason of a row whose process wrote to the file of rows."""

Retry = Literal["", "failed", "all"]


def run_plan(
    plan: Plan,
    store: Store,
    *,
    threads: int | None = None,
    listener: Listener | None = None,
    retry: Retry = "",
    look: Look | None = None,
    lookup: Callable[[str], Any] = get_paper,
    limits: bool = True,
    watch: bool = True,
    modules: tuple[str, ...] = MODULES,
    seed: int = SEED,
    server: ForkServer | None = None,
    node: str = "",
) -> RunSummary:
    """Run what a plan says and keep a row for each of its processes.

    A cell that crashes, hangs, runs out of memory or lacks something becomes a row that says so,
    and the next one runs. Ctrl-C (and SIGTERM) ends the running process and keeps all rows.

    Args:
        plan: what to run. store: open for writing; the rows it holds count as done.
        threads: OpenMP threads of each process, None for the physical cores.
        listener: told of every event.
        retry: `failed` runs again what is oom, time, crash or check, and `all` whatever is not ok,
            each with the other contenders of its round; else a step that has a row is left out.
        look: from rows to the groups that something undecided rests on; they get further rounds
            where the plan has a rule for them. None adds no rounds.
        lookup: module-level function from a paper's name to its `Paper`.
        limits: also measure the machine's limits, once a run.
        watch: False takes no probes and holds no process to its memory limit, to find out what
            watching costs.
        modules: what the fork server imports ahead, beside the papers.
        seed: of torch's and Python's own generators in every process; workloads carry theirs.
        server: a running fork server for these papers and threads, left open for the next run;
            None starts one when the first process is due.
        node: label of this node of a cluster, kept in every row. Limits and pairs for the noise
            floor are measured once more on a node that has none.

    A round that an earlier part of the run, or another node, began and did not end is begun anew,
    and so is one of which a process is run again: processes of one start of a run form pairs.

    Raises:
        StoreError: the store cannot be written before anything ran.
        DgbenchError: the fork server does not start.
    """
    runner = _Runner(plan, store, threads or default_threads(), listener or Listener(), watch)
    runner.lookup, runner.modules, runner.seed = lookup, modules, seed
    runner.server, runner.lent = server, server
    runner.node = node
    if look is not None and plan.rounds is not None:
        runner.adder = RoundAdder(plan, store, look)
    return runner.run(retry, limits)


class _Runner:
    def __init__(
        self, plan: Plan, store: Store, threads: int, listener: Listener, watch: bool
    ) -> None:
        self.plan, self.store, self.threads = plan, store, threads
        self.listener, self.watch = listener, watch
        self.lookup: Callable[[str], Any] = get_paper
        self.modules: tuple[str, ...] = MODULES
        self.seed = SEED
        self.server: ForkServer | None = None
        self.lent: ForkServer | None = None
        self.adder: RoundAdder | None = None
        self.node = ""
        self.stopping = self.ending = False
        self.mark = mark_of(store.run, store.path)
        self.luck = secrets.token_hex(16)
        self.kept = KeptNumbers()
        self.nvml: Nvml | None = None
        self.provenance = ""
        self.resumed = max((row.resumed + 1 for row in store.written()), default=0)
        self.same = SameData(store.written())
        self._earlier: dict[str, list[Row]] = {}
        for row in store.written():
            if not row.instrumented:
                self._earlier.setdefault(row.cell_hash, []).append(row)
        self._compared = {row.cell_hash for row in store.written() if _has_compared(row)}
        self.summary = RunSummary(run=store.run, path=store.path, cells=len(plan.cells))

    def run(self, retry: Retry, limits: bool) -> RunSummary:
        begin = time.perf_counter()
        with self._signals():
            kept = self._begin(retry)
            try:
                self._all(kept, limits)
            except (Stopped, KeyboardInterrupt):
                self.summary.interrupted = True
            except StoreError as error:
                self.summary.trouble = f"{error}. {error.hint}".strip()
            except BaseException:  # such as the exit of a job that is requeued
                self.summary.interrupted = True
                raise
            finally:
                self.ending = True
                if self.server is not None and self.server is not self.lent:
                    self.server.close()
                if self.nvml is not None:
                    self.nvml.close()
                self.summary.seconds = time.perf_counter() - begin
                self._finish()
        self.listener.on_end(self.summary)
        return self.summary

    def _begin(self, retry: Retry) -> dict[ProcessKey, Row]:
        """Write down what will run, tidy up after an earlier part, tell; the rows that stay."""
        settings = {
            "preset": self.plan.preset,
            "device": self.plan.device,
            "threads": self.threads,
            "budget_s": self.plan.budget_s,
            "seed": self.seed,
        }
        left = Scratch(self.mark).sweep()
        self.store.write_plan(self.plan)
        self.provenance = self.store.add_provenance(provenance(settings))
        self.store.update(state="running", **settings)
        kept = self._kept(retry)
        self.summary.kept = len(kept)
        if left:
            self.listener.on_note(f"ended {len(left)} processes of an earlier part of this run")
        for torn in self.store.torn:
            self.listener.on_note(f"set aside to rows.torn, line {torn.line}: {torn.reason}")
        for sentence in (*self.store.damaged, *self.plan.problems):
            self.listener.on_note(sentence)
        self.listener.on_plan(self.plan, list(kept.values()))
        return kept

    def _all(self, kept: dict[ProcessKey, Row], limits: bool) -> None:
        for planned in self.plan.cells:
            if planned.status and (planned.hash, 1, False) not in kept:
                self._append(self._row(planned.cell, planned.hash, 1, False, planned))
        todo = [step for step in self.plan.steps if self._key(step) not in kept]
        if self.plan.device == "cuda":
            self.nvml = Nvml()
        limit = on_node(MACHINE, self.node)
        machine = cell_hash(limit, self.plan.preset, self.plan.device)
        if limits and todo and (machine, 1, False) not in kept:
            self._one(limit, machine, 1, False)
        pairs = self._noise(kept) if limits and todo else []
        lacking = {row.cell_hash for row in kept.values() if row.status in LACKING}
        self._take(todo, pairs, lacking)
        if pairs:
            self._repeat_noise()
        while self.adder is not None and self.adder.add(self.listener.on_note):
            rows = self.store.written()
            done = {(row.cell_hash, row.round, row.instrumented) for row in rows}
            self.listener.on_more(self.plan, rows)
            self._take([s for s in self.plan.steps if self._key(s) not in done], [], lacking)
        record = self.adder.record if self.adder is not None else None
        if record is not None:
            self.summary.rounds = record.sentence
            self.store.update(rounds=msgspec.to_builtins(record))

    def _take(
        self,
        todo: Sequence[PlannedProcess],
        pairs: Sequence[list[tuple[Cell, str, int]]],
        lacking: set[str],
    ) -> None:
        """Run these steps, and pairs for the noise floor between them."""
        # Spread over the run, as rounds are: the floor is that of the minutes it is held against.
        for number, step in enumerate(todo):
            due = len(pairs) * number // len(todo), len(pairs) * (number + 1) // len(todo)
            for cell, key, round_ in itertools.chain.from_iterable(pairs[slice(*due)]):
                self._one(cell, key, round_, False)
            planned = self.plan.cells[step.index]
            if planned.hash in lacking:
                continue  # a second process would say the same
            if self.adder is not None:
                self.adder.settle(planned, step.round)
            row = self._one(planned.cell, planned.hash, step.round, step.instrumented)
            if row.status in LACKING:
                lacking.add(planned.hash)

    def _noise(self, kept: dict[ProcessKey, Row]) -> list[list[tuple[Cell, str, int]]]:
        """A/A pairs of processes that train the reference, where a paper has no control.

        These are the pairs that are missing, as (cell, hash, round); the two of one stand back to
        back.
        """
        both = self._noise_cells()
        return [
            self._noise_pair(number)
            for number in range(1, self.plan.noise_pairs + 1)
            if any((key, number, False) not in kept for _, key in both)
        ]

    def _noise_cells(self) -> list[tuple[Cell, str]]:
        first = on_node(NOISE, self.node)
        again = msgspec.structs.replace(first, params={**first.params, CONTROL: "aa"})
        return [(c, cell_hash(c, self.plan.preset, self.plan.device)) for c in (first, again)]

    def _noise_pair(self, number: int) -> list[tuple[Cell, str, int]]:
        both = self._noise_cells()
        return [(cell, key, number) for cell, key in both[:: 1 if number % 2 else -1]]

    def _repeat_noise(self) -> None:
        """Run the pairs for the noise floor that were disturbed once more."""
        hashes = {key for _, key in self._noise_cells()}
        planned = self.plan.noise_pairs
        mine = [row for row in self.store.written() if row.cell_hash in hashes]
        for number in sorted({row.round for row in mine if row.disturbed and row.round <= planned}):
            if not any(row.round == planned + number for row in mine):
                for cell, key, round_ in self._noise_pair(planned + number):
                    self._one(cell, key, round_, False)

    def _key(self, step: PlannedProcess) -> tuple[str, int, bool]:
        return self.plan.cells[step.index].hash, step.round, step.instrumented

    def _kept(self, retry: Retry) -> dict[ProcessKey, Row]:
        rows = {(r.cell_hash, r.round, r.instrumented): r for r in self.store.written()}
        lacking = {row.cell_hash for row in rows.values() if row.status in LACKING}
        rows = kept_rows(rows, retry)
        kept = without_begun_rounds(self.plan, rows, lacking)
        if count := len(rows) - len(kept):
            self.listener.on_note(
                f"{count} processes of rounds that an earlier part of this run did not end run "
                "anew: pairs are of one start of a run"
            )
        return kept

    def _one(self, cell: Cell, hash_: str, number: int, instrumented: bool) -> Row:
        if self.stopping:
            raise Stopped
        self.listener.on_start(cell, number)
        row = self._row(cell, hash_, number, instrumented)
        if self.adder is not None:
            self.adder.stamp(row)
        logs = self.store.path.resolve() / "logs"
        log, result = logs / f"{row.id}.log", logs / f"{row.id}.result"
        job = Job(
            cell=cell,
            device=cell.device or self.plan.device,
            preset=self.plan.preset,
            threads=self.threads,
            instrumented=instrumented,
            budget_s=self.plan.budget_s,
            seed=self.seed,
            log=str(log),
            result=str(result),
            round=number if hash_ in self._compared else 1,
            draws=self._draws(cell, number),
            kept=self.kept.of(cell),
        )
        recordings = [Recording()] if self._keeps_series(cell, number, instrumented) else []
        own = (log, result, Path(f"{result}.part"))
        _remove(own)  # of a part of this run that was killed
        try:
            outcome = self._observed(job, row, recordings)
        except BaseException:
            _remove(own)  # it has no row, so nothing leads there
            raise
        found = fill_row(row, cell, outcome, log, result, recordings[-1] if recordings else None)
        self.kept.take(cell, row, found)
        if self.store.restore() and row.ok:
            row.status, row.reason, row.checks = "check", REWRITTEN, []
            row.observed = []
        if outcome is not None and outcome.ended.code == UNWRITTEN:
            self.store.try_disk()  # no row for a cell that only lacked room: it runs again
        self.same.check(row)
        self._disturbed(row)
        self._append(row)
        return row

    def _draws(self, cell: Cell, number: int) -> str:
        """Seed of what is compared in a round: one for all contenders of a group, known to none."""
        place = f"{self.luck}/{cell.paper}/{cell.experiment}/{cell.group}/{number}"
        return hashlib.sha256(place.encode()).hexdigest()

    def _disturbed(self, row: Row) -> None:
        """Note what disturbed a process that was timed, beyond the limits."""
        if row.instrumented or (row.paper, row.experiment) == (MACHINE.paper, MACHINE.experiment):
            return
        earlier = self._earlier.setdefault(row.cell_hash, [])
        row.disturbed = disturbance(row, earlier)
        if row.disturbed:
            row.notes.append(f"disturbed: {row.disturbed}")
        earlier.append(row)

    def _keeps_series(self, cell: Cell, number: int, instrumented: bool) -> bool:
        """The instrumented process of a cell does, or its first one where there is no such."""
        wanted = instrumented or (number == 1 and not cell.phases and CONTROL not in cell.params)
        return self.watch and wanted and cell.paper != MACHINE.paper

    def _observed(self, job: Job, row: Row, recordings: list[Recording]) -> ProcessExit | None:
        """Run a job between the probes; a dead server is started again, once per job.

        `recordings` holds one to fill, or none; a second attempt appends its own.
        """
        limit = int(MEMORY_SHARE * available_memory())
        if job.cell.memory_bytes:
            limit = min(limit, job.cell.memory_bytes)
        for attempt in range(2):
            if recordings and attempt:
                recordings.append(Recording())
            recording = recordings[-1] if recordings else None
            if recording is not None:
                recording.limits["cpu"] = 100.0 * usable_cpus()
            server = self._server()
            around = MachineActivity() if self.watch else None
            sampler = None
            if self.watch and self.nvml is not None:
                sampler = GpuSampler(self.nvml, visible_gpu(), recording=recording).start()
            try:
                outcome = server.run(
                    job,
                    timeout_s=job.cell.timeout_s,
                    limit_bytes=limit,
                    stop=lambda: self.stopping,
                    watch=self.watch,
                    recording=recording,
                )
            except ServerDied:
                server.close()
                self.server = None
                self.summary.restarts += 1
                note = "the fork server died and was started again"
                row.notes.append(note)
                self.listener.on_note(note)
                continue
            finally:
                found = sampler.stop() if sampler is not None else {}
            row.probes.update(found)
            if around is not None:
                row.probes.update(around.probes(outcome.ended.cpu_s))
            return outcome
        return None

    def _server(self) -> ForkServer:
        if self.server is None:
            names = dict.fromkeys(c.cell.paper for c in self.plan.runnable)
            self.server = ForkServer(
                self.lookup,
                list(names),
                threads=self.threads,
                log=self.store.path / "logs" / "server.log",
                modules=self.modules,
                mark=self.mark,
                stop=lambda: self.stopping,
            )
            for note in self.server.notes:
                self.listener.on_note(note)
            if self.server.threads > 1:
                self.listener.on_note(
                    f"the fork server has {self.server.threads} threads, it should have one: "
                    "an imported package starts them"
                )
        return self.server

    def _row(
        self,
        cell: Cell,
        hash_: str,
        number: int,
        instrumented: bool,
        planned: PlannedCell | None = None,
    ) -> Row:
        return blank_row(
            self.plan,
            self.store,
            cell,
            hash_,
            number,
            instrumented,
            status=planned.status if planned else "ok",
            reason=planned.reason if planned else "",
            provenance=self.provenance,
            node=self.node,
            resumed=self.resumed,
        )

    def _append(self, row: Row) -> None:
        self.store.append(row)
        if _has_compared(row):
            self._compared.add(row.cell_hash)
        self.summary.rows += 1
        self.listener.on_row(row)

    def _finish(self) -> None:
        self.store.drop_results()  # a second Ctrl-C may come between a result and its row
        self.summary.count(self.plan, self.store.rows())
        early = self.summary.interrupted or bool(self.summary.trouble)
        note = self.summary.trouble or ("stopped by the user" if early else "")
        with contextlib.suppress(DgbenchError):  # a full disk is already in `trouble`
            self.store.update(
                state="partial" if early else "done",
                note=note,
                ended=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            )

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """The first Ctrl-C, SIGTERM or SIGHUP ends the run in order; a second one ends it at once.

        Also while it begins. What comes while it ends changes nothing: nothing is left half done.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def ask(number: int, frame: FrameType | None) -> None:
            if self.ending:
                return
            self.ending, self.stopping = self.stopping, True
            self.summary.signal = self.summary.signal or number
            if self.ending:
                raise KeyboardInterrupt

        names = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup sets it
            names.append(signal.SIGHUP)
        before = {name: signal.signal(name, ask) for name in names}
        try:
            yield
        finally:
            for name, handler in before.items():
                signal.signal(name, handler)


def _has_compared(row: Row) -> bool:
    """Return True if the harness compared the result of a row, which passed."""
    return row.ok and not all(check.own for check in row.checks)


def _remove(paths: tuple[Path, ...]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def kept_rows(rows: dict[ProcessKey, Row], retry: Retry) -> dict[ProcessKey, Row]:
    """Rows that are not measured again, see `run_plan`."""
    if retry == "failed":
        return {k: r for k, r in rows.items() if r.status not in FAILED}
    if retry == "all":
        return {k: r for k, r in rows.items() if r.ok}
    return rows


def usable_cpus() -> int:
    """Processors that this process and its children may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def visible_gpu() -> int:
    """NVML's number of the first GPU that CUDA shows; 0 where that is not a number."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0].strip()
    return int(first) if first.isdigit() else 0
