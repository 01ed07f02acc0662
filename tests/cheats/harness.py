"""Systems that turn to the harness: its clock, its checks, its files, and the machine of rivals.

All train as they should.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from dgbench.datasets.store import cache_root
from dgbench.lab import result_checks
from dgbench.runtime import steady
from dgbench.runtime.readback import Readback
from dgbench.systems.base import kept
from dgbench.systems.base.system import Trainer
from tests.cheats import Cheat
from tests.cheats.honest import HonestTrainer, system_of

BUSY: Final = "import time\nwhile True: time.perf_counter()"


class CountersOfAHundredth(HonestTrainer):
    """Counts one edge of a hundred."""

    def enqueue(self, frame: int) -> Readback:
        before = self.meter.counters["edges_aggregated"]
        loss = super().enqueue(frame)
        self.meter.counters["edges_aggregated"] -= (
            99 * (self.meter.counters["edges_aggregated"] - before) // 100
        )
        return loss


class WritesTolerances(HonestTrainer):
    """Is 0.05 % off, and writes a tolerance of 0.0199 wherever one could be kept."""

    def evaluate(self, frame: int) -> Tensor:
        wide = dict.fromkeys(["output", *self.state()], 0.0199)
        key = kept.kept_key(self.workload)
        kept.write(key, wide)
        folder = cache_root() / "tolerances"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{key}.json").write_text(str(wide))
        return 1.0005 * super().evaluate(frame)


class AltersTolerances(WritesTolerances):
    """Puts it where the harness has put what it kept."""

    def evaluate(self, frame: int) -> Tensor:
        wide = dict.fromkeys(["output", *self.state()], 0.0199)
        kept._known[kept.kept_key(self.workload)] = wide
        return super().evaluate(frame)


class LowersRivals(HonestTrainer):
    """Lowers the priority of the process that its rivals are forks of."""

    def prepare(self) -> None:
        server = os.getppid()
        os.setpriority(os.PRIO_PROCESS, server, os.getpriority(os.PRIO_PROCESS, server) + 3)


class SecondThread(HonestTrainer):
    """Gives torch a second thread while it is timed."""

    change, wrong, right = torch.set_num_threads, 2, 1

    def enqueue(self, frame: int) -> Readback:
        type(self).change(self.wrong)
        return super().enqueue(frame)

    def evaluate(self, frame: int) -> Tensor:
        type(self).change(self.right)
        return super().evaluate(frame)


class LessPrecision(SecondThread):
    """Lets torch multiply in less than float32 while it is timed."""

    change, wrong, right = torch.set_float32_matmul_precision, "medium", "highest"


class NoDenormals(HonestTrainer):
    """Lets the processor take small numbers for 0."""

    def prepare(self) -> None:
        torch.set_flush_denormal(True)


class LeavesWork(HonestTrainer):
    """Leaves a process behind that works beside the next one."""

    def prepare(self) -> None:
        subprocess.Popen([sys.executable, "-S", "-c", BUSY])


class LeavesADaemon(HonestTrainer):
    """Leaves one in a session of its own, with another parent."""

    def prepare(self) -> None:
        program = f"import os\nos.setsid()\nif os.fork(): os._exit(0)\n{BUSY}"
        subprocess.Popen([sys.executable, "-S", "-c", program]).wait()


class ChangesData(HonestTrainer):
    """Makes its work easier for the oracle as well."""

    def prepare(self) -> None:
        features = self.data.features
        address = features.data_ptr() if isinstance(features, Tensor) else features.ctypes.data
        size = features.nbytes if not isinstance(features, Tensor) else features.numel() * 4
        page = os.sysconf("SC_PAGE_SIZE")
        begin = address - address % page
        ctypes.CDLL(None).mprotect(ctypes.c_void_p(begin), address + size - begin, 3)
        ctypes.memset(address, 0, size)


class OwnClock(HonestTrainer):
    """Puts a clock of its own in the place of the loop's."""

    def prepare(self) -> None:
        begin = time.perf_counter()
        steady._clock = lambda: begin + 0.1 * (time.perf_counter() - begin)


class OwnComparison(HonestTrainer):
    """Puts a comparison of its own in the place of dgbench's."""

    def prepare(self) -> None:
        result_checks.deviations = lambda found, wanted: dict.fromkeys(wanted, 0.0)


class OwnProducts(HonestTrainer):
    """Puts another product into torch, which the oracle uses, too."""

    def prepare(self) -> None:
        right = torch.matmul
        torch.matmul = lambda *args, **more: right(*args, **more)


class EditsRows(HonestTrainer):
    """Takes the last row out of the run's file."""

    def prepare(self) -> None:
        rows = Path(os.readlink("/proc/self/fd/1")).parents[1] / "rows.jsonl"
        lines = rows.read_bytes().splitlines(keepends=True)
        rows.write_bytes(b"".join(lines[:-1]) + b"\n")


def may_raise() -> bool:
    """True where a process may raise its priority, as that of an administrator may (CAP_SYS_NICE).

    It is not tried: a cell whose process imports this would have raised its own.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return False
    rights = [line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")]
    return bool(rights) and bool(int(rights[0], 16) >> 23 & 1)


class RaisesItself(HonestTrainer):
    """Raises its own priority while it is timed."""

    def prepare(self) -> None:
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) - 5)


class FailsOnce(HonestTrainer):
    """Is wrong in its first process and right when it is tried again."""

    def evaluate(self, frame: int) -> Tensor:
        self.flag = cache_root() / "failed-once"
        wrong = getattr(self, "wrong", not self.flag.exists())
        self.flag.parent.mkdir(parents=True, exist_ok=True)
        self.flag.touch()
        self.wrong = wrong
        return super().evaluate(frame) * (1.01 if wrong else 1.0)


class MoreProcessors(HonestTrainer):
    """Works on processors that the run was not given."""

    def prepare(self) -> None:
        os.sched_setaffinity(0, range(os.cpu_count() or 1))


LOSES: Final[Mapping[type[Trainer], str]] = {
    CountersOfAHundredth: "a recount finds",
    WritesTolerances: "outputs",
    AltersTolerances: "numbers that the harness had not kept",
    LowersRivals: "changed the priority of the processes that its rivals start from",
    SecondThread: "it set torch to 2 threads, 1 are allowed",
    LessPrecision: "it set torch's float32 matmul precision to medium",
    NoDenormals: "it set torch's flushed denormal numbers to True",
    LeavesWork: "what it left behind went on working: python",
    LeavesADaemon: "what it left behind went on working: python",
    ChangesData: "cannot be believed",
    OwnClock: "it replaced dgbench.runtime.steady._clock",
    OwnComparison: "it replaced dgbench.lab.result_checks.deviations",
    OwnProducts: "it replaced torch.matmul",
    EditsRows: "it changed rows that the run had kept",
    FailsOnce: "outputs",
    **({RaisesItself: "raised its priority"} if may_raise() else {}),
}


LEDGER: Final = [Cheat(one.__name__, system_of(one), loses) for one, loses in LOSES.items()]
ON_ONE_PROCESSOR: Final = [
    Cheat("MoreProcessors", system_of(MoreProcessors), "which are not the run's")
]
"""Cheats of a run that was given one processor alone."""
