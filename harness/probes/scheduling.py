"""Scheduling of processes: priority, class and processors, as the system has them.

All contenders of a run work with what the runner had when it began. The runner looks at every
thread of a cell's process while it runs, and at itself and the fork server when it has ended: a
cell that raises its own priority, or lowers that of its rivals, is seen from outside.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

LOOK_S: Final = 0.1
"""Seconds between looks at a running process."""

_CLASSES: Final = {0: "normal", 1: "FIFO", 2: "round robin", 3: "batch", 5: "idle", 6: "deadline"}
_REAL_TIME: Final = (1, 2, 6)


@dataclass(frozen=True, slots=True)
class Scheduling:
    """Scheduling of a thread.

    Attributes:
        nice: its priority, lower is higher. policy: number of its class. cpus: it may run on.
    """

    nice: int
    policy: int
    cpus: frozenset[int]

    @classmethod
    def of(cls, thread: int) -> Scheduling | None:
        """Scheduling of a thread by its number; None where it is gone or nobody tells."""
        try:
            return cls(
                os.getpriority(os.PRIO_PROCESS, thread),
                os.sched_getscheduler(thread) & ~os.SCHED_RESET_ON_FORK,
                frozenset(os.sched_getaffinity(thread)),
            )
        except (OSError, AttributeError):
            return None

    def above(self, other: Scheduling) -> list[str]:
        """Sentences on what gives this one more of a machine than another."""
        found = []
        if self.nice < other.nice:
            found.append(f"raised its priority from {other.nice} to {self.nice}")
        if self.policy in _REAL_TIME and self.policy != other.policy:
            found.append(f"moved to the scheduling class '{_CLASSES[self.policy]}'")
        if more := sorted(self.cpus - other.cpus):
            found.append(f"runs on processors {', '.join(map(str, more))}, which are not the run's")
        return found

    def restore(self, thread: int) -> bool:
        """Give a thread this scheduling; False where that is not allowed."""
        with contextlib.suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, thread, self.nice)
            os.sched_setaffinity(thread, self.cpus)
            if self.policy not in _REAL_TIME:
                os.sched_setscheduler(thread, self.policy, os.sched_param(0))
        return Scheduling.of(thread) == self


def threads_of(pid: int) -> list[int]:
    """Numbers of the threads of a process; empty where it is gone."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


class SchedulingWatch:
    """Looks at all threads of a tree of processes while it runs.

    Attributes:
        seen: sentences on what gave it more of the machine than its rivals have.
    """

    def __init__(self, allowed: Scheduling | None) -> None:
        self._allowed, self._next = allowed, 0.0
        self.seen: dict[str, None] = {}

    def look(self, pids: Iterable[int]) -> None:
        """Look at the threads of these processes, where the last look is `LOOK_S` ago."""
        now = time.monotonic()
        if self._allowed is None or now < self._next:
            return
        self._next = now + LOOK_S
        for pid in pids:
            for thread in threads_of(pid):
                found = Scheduling.of(thread)
                if found is not None and found != self._allowed:
                    self.seen.update(dict.fromkeys(found.above(self._allowed)))


class KeptScheduling:
    """Scheduling of the processes that all cells inherit theirs from.

    Attributes:
        first: of the runner when the last cell began.
    """

    def __init__(self) -> None:
        self.first = Scheduling.of(os.getpid())
        self._before: dict[int, Scheduling] = {}

    def note(self, pids: Iterable[int]) -> None:
        """Keep the scheduling that every thread of these processes has before a cell."""
        self.first = Scheduling.of(os.getpid())
        numbers = [thread for pid in pids for thread in threads_of(pid)]
        noted = {thread: Scheduling.of(thread) for thread in numbers}
        self._before = {thread: one for thread, one in noted.items() if one is not None}

    def settle(self) -> tuple[list[str], bool]:
        """Put back what a cell has changed.

        Returns:
            Sentences on what had changed, and whether all of it is as it was.
        """
        said, whole = [], True
        for thread, before in self._before.items():
            now = Scheduling.of(thread)
            if now is None or now == before:
                continue
            what = "priority" if now.nice != before.nice else "scheduling"
            said.append(f"changed the {what} of the processes that its rivals start from")
            whole = before.restore(thread) and whole
        return list(dict.fromkeys(said)), whole
