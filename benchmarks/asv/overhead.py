"""History of what watching a process costs: meters, probes and the recording of its course.

Shares of a core are by the processor time of the reader itself, and so free of others' noise; the
bar of a recording is 0.5 %. The ratio of watched over unwatched processes is formed pair by pair,
both from one fork server; its bar is 1.02.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import torch

from dgbench.harness.plan import Plan
from dgbench.harness.probes.cpu import REFRESH_S, Tree, TreeTime
from dgbench.harness.probes.series import Recording, pack
from dgbench.harness.runner import ForkServer, run_plan
from dgbench.harness.runner.client import TICK_S
from dgbench.harness.store import Store
from dgbench.lab.result_checks import close
from dgbench.runtime.statistics import paired_ratio
from dgbench.runtime.steady import measure_steady
from dgbench.systems.base import Cell, Experiment, Measurement, Paper

PAIRS, READINGS = 5, 2000


class Spin(Experiment):
    """A fixed step that uses all threads."""

    paper, name = "overhead", "spin"
    title = "A fixed step"
    question = "What does watching a process cost it?"

    def cells(self, preset, device):
        """The only cell."""
        return [self.cell_of({"case": "work"}, "work")]

    def run(self, cell: Cell, context) -> Measurement:
        """Multiply matrices."""
        left = torch.rand(512, 512)
        steady = measure_steady(lambda: left @ left, budget_s=context.budget_s, max_iters=100_000)
        found = Measurement(warmup=steady.warmup)
        found.observe("step_time", steady.time, samples=steady.samples)
        exact = left.double() @ left.double()
        found.checks = [close("outputs", left @ left, exact, 1e-5, against="float64 product")]
        return found


def lookup(name: str) -> Paper:
    """The only paper of this race."""
    return Paper(
        name="overhead", title="Overhead", venue="-", about="", system="-", ledger=Path("-"),
        experiments=(Spin(),), checks={},
    )  # fmt: skip


class Watching:
    """Costs of a watched process and of its watcher."""

    timeout = 300

    def setup(self) -> None:
        self.tree = Tree(os.getpid())
        self.recording = Recording(begin=0.0)
        for number in range(READINGS):
            self.recording.add("memory", number * TICK_S, float(number << 20))
            self.recording.add("cpu", number * TICK_S, float(number % 200))

    def track_share_of_watching(self) -> float:
        """Processor seconds a second of looking after a process."""
        start = time.process_time()
        for _ in range(READINGS):
            self.tree.rss()
        reading = (time.process_time() - start) / READINGS
        start = time.process_time()
        for _ in range(READINGS // 10):
            self.tree.pids()
        return reading / TICK_S + (time.process_time() - start) / (READINGS // 10) / REFRESH_S

    def track_share_of_recording(self) -> float:
        """Processor seconds a second of keeping its course, as often as the runner does it."""
        self.tree.rss()
        found, busy = Recording(begin=0.0), TreeTime(self.tree, 0.0)
        begin = time.process_time()
        for number in range(10 * READINGS):
            now = number * TICK_S
            found.add("memory", now, float(number))
            if (percent := busy.percent(now)) is not None:
                found.add("cpu", now, percent)
        return (time.process_time() - begin) / (10 * READINGS * TICK_S)

    def time_packing(self) -> None:
        """The series of a row, made once at the end of a process."""
        pack(self.recording, READINGS * TICK_S)

    def track_ratio_of_watched(self) -> float:
        """Step of a watched process over that of one that is not, in pairs."""
        plan = Plan.build([lookup("")], preset="quick", control="none")
        plan.budget_s = 0.4
        times: dict[bool, list[float]] = {True: [], False: []}
        threads = torch.get_num_threads()
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "server.log"
            with ForkServer(lookup, ["overhead"], threads=threads, log=log) as server:
                for pair in range(PAIRS):
                    for watch in (True, False) if pair % 2 == 0 else (False, True):
                        with Store.create(Path(folder) / "runs") as store:
                            run_plan(plan, store, lookup=lookup, threads=threads, limits=False,
                                     watch=watch, server=server)  # fmt: skip
                            times[watch].append(store.written()[-1].time)
        return paired_ratio(times[True], times[False]).value
