"""Watching over ranks: the first failure ends all of them, and is told from its consequences."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import signal
import time
from collections.abc import Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final, NoReturn

import torch

from dgbench.runtime.collectives import CommunicationError
from dgbench.runtime.errors import DgbenchError
from dgbench.runtime.ranks.board import DONE, WAITING, StatusBoard, culprit
from dgbench.runtime.ranks.errors import rank_error
from dgbench.runtime.ranks.process import kill_below, private_bytes, signal_name
from dgbench.runtime.ranks.seat import RankFailure, RankProcess

TICK_S: Final = 0.02
"""Seconds between two looks at memory and age of the ranks."""

SETTLE_S: Final = 0.25
"""Seconds in which a failure may show its consequences (or its cause) in other ranks."""

STACK_S: Final = 0.2
"""Seconds that a rank which hangs gets to say where it stands."""

STUCK_S: Final = 10.0
"""Seconds after which a killed process that does not go away is left behind."""

_FRAME = re.compile(r'\s+File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)')


class Watch:
    """Waits for the processes of a group and ends them together.

    Args:
        memory_bytes: private memory that a rank may take beyond what it began with.
        stall_s: how long a rank may keep others waiting.

    Attributes:
        peak_bytes: per rank, the most private memory beyond its beginning that was seen.
    """

    def __init__(
        self,
        processes: Sequence[BaseProcess],
        seats: Sequence[RankProcess],
        board: StatusBoard,
        *,
        deadline: float,
        timeout_s: float,
        memory_bytes: int | None,
        stall_s: float | None,
    ) -> None:
        self.processes, self.seats, self.board = processes, seats, board
        self.deadline, self.timeout_s = deadline, timeout_s
        self.memory_bytes, self.stall_s = memory_bytes, stall_s
        self.size = len(seats)
        self.peak_bytes = [0] * self.size

    def run(self) -> None:
        """Return when every rank has ended with a result.

        Raises:
            RankError: one failed; or the error of dgbench that it raised.
        """
        alive: dict[Any, int] = {p.sentinel: rank for rank, p in enumerate(self.processes)}
        while alive:
            left = max(0.0, self.deadline - time.monotonic())
            ended = [alive.pop(s) for s in wait(list(alive), timeout=min(TICK_S, left))]
            if not all(map(self._well, ended)):
                self._settle()
                self._blame()
            for rank in ended:
                taken = self.board.held(rank) - self.board.base(rank)
                self.peak_bytes[rank] = max(self.peak_bytes[rank], taken)
            self._look_at_memory(list(alive.values()))
            if self.stall_s is not None:
                self._look_for_stall(self.stall_s)
            if alive and time.monotonic() >= self.deadline:
                self._hang(f"did not end within {self.timeout_s:g} s")

    def end(self) -> None:
        """Kill what is left, and what that has started; returns when it is gone."""
        left = [p for p in self.processes if p.pid is not None and p.is_alive()]
        for process in left:
            with contextlib.suppress(ProcessLookupError, OSError):
                kill_below(process.pid or 0)
                process.kill()
        end = time.monotonic() + STUCK_S
        for process in self.processes:
            if process.pid is not None:
                process.join(timeout=max(0.0, end - time.monotonic()))

    def _well(self, rank: int) -> bool:
        process = self.processes[rank]
        process.join()
        return process.exitcode == 0 and self.seats[rank].result.exists()

    def _settle(self) -> None:
        """Let ranks that fail together come to their end, so that the first can be found."""
        end = time.monotonic() + SETTLE_S
        alive = [p.sentinel for p in self.processes if p.is_alive()]
        while alive and (left := end - time.monotonic()) > 0:
            gone = wait(alive, timeout=left)
            alive = [s for s in alive if s not in gone]

    def _blame(self) -> NoReturn:
        """Raise the failure that came first: a death, then an error, then what these caused."""
        told: list[tuple[int, RankFailure]] = []
        silent: list[int] = []
        for rank, seat in enumerate(self.seats):
            if self.processes[rank].is_alive() or self._well(rank):
                continue
            failure = _failure(seat.failure)
            if failure is None:
                silent.append(rank)
            else:
                told.append((rank, failure))
        own = [(r, f) for r, f in told if f.kind != "communication"]
        if silent:
            self._died(silent[0])
        rank, failure = min(own or told, key=lambda item: item[1].time_ns)
        if failure.kind == "memory":
            raise rank_error(
                rank,
                self.size,
                "memory",
                f"ran out of memory at {self._held(rank)}: {failure.text}",
                trace=failure.trace,
            )
        error = _own_error(failure)
        if error is not None:
            error.args = (f"rank {rank} of {self.size}: {error.args[0] if error.args else ''}",)
            raise error
        if failure.kind == "communication":
            where = culprit(
                [p for p in self.board.places() if p.rank != rank] or [self.board.place(rank)]
            )
            raise CommunicationError(failure.text, hint=f"meanwhile rank {where.rank} {where}")
        raise rank_error(rank, self.size, "raised", f"raised {failure.text}", trace=failure.trace)

    def _died(self, rank: int) -> NoReturn:
        """Raise for a rank that ended without a word."""
        code = self.processes[rank].exitcode or 0
        place = self.board.place(rank)
        if code >= 0:
            raise rank_error(
                rank,
                self.size,
                "exited",
                f"left with exit code {code} before it had a result; it {place}",
            )
        name = signal_name(-code)
        hint = ""
        if -code == signal.SIGKILL:
            hint = "nobody here sent it: most likely the system was short of memory"
        raise rank_error(
            rank,
            self.size,
            "killed",
            f"was killed by {name} at {self._held(rank)}; it {place}",
            hint=hint,
        )

    def _look_at_memory(self, ranks: Sequence[int]) -> None:
        for rank in ranks:
            base = self.board.base(rank)
            now = private_bytes(self.processes[rank].pid or 0) if base else 0
            self.peak_bytes[rank] = max(self.peak_bytes[rank], now - base)
            if base and self.memory_bytes is not None and now - base > self.memory_bytes:
                raise rank_error(
                    rank,
                    self.size,
                    "memory",
                    f"took {_mib(now - base)} of memory, its limit is {_mib(self.memory_bytes)}",
                    hint="more ranks, smaller blocks of time, or a higher limit",
                )

    def _look_for_stall(self, stall_s: float) -> None:
        places = self.board.places()
        waiting = [p for p in places if p.state == WAITING and p.seconds > stall_s]
        if waiting and any(p.state not in (WAITING, DONE) for p in places):
            late = culprit(places)
            if late.seconds > stall_s:
                self._hang(f"kept others waiting for more than {stall_s:g} s")
        elif len(waiting) == sum(p.state != DONE for p in places) and waiting:
            self._hang(f"and the others waited for each other for {stall_s:g} s")

    def _hang(self, what: str) -> NoReturn:
        places = self.board.places()
        late = culprit(places)
        stack = self._stack(late.rank)
        others = "; ".join(f"rank {p.rank} {p}" for p in places if p.rank != late.rank)
        where = f", in {_top(stack)}" if stack else ""
        raise rank_error(
            late.rank,
            self.size,
            "hung",
            f"{what}: it {late}{where}",
            trace=stack,
            hint=others[:400],
        )

    def _stack(self, rank: int) -> str:
        """Where the Python code of a rank stands, "" where it cannot say."""
        path = self.seats[rank].stack
        # Without its file a rank has no handler yet, and the signal would kill it.
        if (
            not path.exists()
            or not self.processes[rank].is_alive()
            or not hasattr(signal, "SIGUSR1")
        ):
            return ""
        with contextlib.suppress(OSError):
            os.kill(self.processes[rank].pid or 0, signal.SIGUSR1)
            end = time.monotonic() + STACK_S
            while time.monotonic() < end:
                text = path.read_text()
                if text.endswith("\n") and text.count("\n") > 1:
                    return text
                time.sleep(0.005)
        return ""

    def _held(self, rank: int) -> str:
        limit = "" if self.memory_bytes is None else f" of its {_mib(self.memory_bytes)}"
        return f"{_mib(self.peak_bytes[rank])}{limit}"


def _failure(path: Path) -> RankFailure | None:
    try:
        return pickle.loads(path.read_bytes())
    except (OSError, pickle.UnpicklingError, EOFError):
        return None


def _own_error(failure: RankFailure) -> DgbenchError | None:
    if not failure.error:
        return None
    found = pickle.loads(failure.error)
    return found if isinstance(found, DgbenchError) else None


def _top(stack: str) -> str:
    """`train.py:33 step` from a dump of faulthandler: the innermost frame that is the user's."""
    plumbing = [Path(torch.__file__).parent, Path(__file__).parents[1]]
    frames = []
    for line in stack.splitlines():  # most recent call first
        found = _FRAME.match(line)
        if found is None:
            continue
        file = Path(found["file"])
        frame = f"{file.name}:{found['line']} {found['function']}"
        if not any(file.is_relative_to(folder) for folder in plumbing):
            return frame
        frames.append(frame)
    return frames[0] if frames else "unknown code"


def _mib(count: int) -> str:
    return f"{count / 2**20:.0f} MiB"
