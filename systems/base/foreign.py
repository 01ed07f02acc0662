"""Foreign contenders: systems that train in a process of another Python, behind a small protocol.

A `ForeignSystem` is declared as any other system is and races as any other does: its trainer hands
each call to a server (`foreign_server.py`) in the environment that `Foreign` names, and the gate
compares what comes back. Every wait has a limit, and whatever the other side does wrong is an error
with a reason.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

import msgspec
import numpy
import torch
from torch import Tensor

from dgbench.runtime import touched
from dgbench.runtime.errors import (
    CheckFailed,
    DgbenchError,
    InvalidInputError,
    MissingPackageError,
    UnsupportedError,
)
from dgbench.runtime.meter import Meter
from dgbench.runtime.ranks.process import kill_below, signal_name
from dgbench.systems.base.foreign_arrays import SharedResults, written
from dgbench.systems.base.foreign_inputs import KINDS, kind_of, parameters_of
from dgbench.systems.base.foreign_server import PROTOCOL, receive, send
from dgbench.systems.base.moments import AdamMoments
from dgbench.systems.base.system import System, Trainer
from dgbench.systems.base.workload import Workload

SERVER: Final = Path(__file__).with_name("foreign_server.py")
DEATH_S: Final = 5.0
"""Seconds in which a process that has let go of its socket must end; then it is killed."""
CORE_SLACK: Final = 0.25
"""Cores beyond those allowed that are the interpreter's own, as a share of the time."""
_OUR_PYTHON: Final = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
_THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class ForeignError(DgbenchError):
    """A foreign contender failed, died or broke the protocol."""


class ForeignTimeoutError(ForeignError, TimeoutError):
    """A foreign contender did not answer within its limit."""


class ForeignMemoryError(ForeignError, MemoryError):
    """A foreign contender ran out of memory."""


@dataclass(frozen=True)
class Foreign:
    """Environment and module of a foreign contender.

    Attributes:
        python: interpreter of its environment, or the words of a command that ends with it and
            hands descriptors on.
        module: that has a function `open_trainer(task)`.
        path: folder of the module, where it is not installed in the environment.
        environment: variables that its process gets, beside those of this one.
        start_s: seconds that starting, with all imports, opening and preparing may take each.
        answer_s: seconds that any other answer may take.
        server: program that speaks the protocol.
    """

    python: str | Path | Sequence[str]
    module: str
    path: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    start_s: float = 60.0
    answer_s: float = 60.0
    server: Path = SERVER

    @property
    def command(self) -> list[str]:
        """Words that start its interpreter."""
        single = isinstance(self.python, str | Path)
        return [str(self.python)] if single else [str(word) for word in self.python]

    @property
    def missing(self) -> str:
        """Reason why its interpreter cannot be started here, or ""."""
        if not self.command:
            return "Foreign(python=...) names no interpreter"
        if shutil.which(self.command[0]) is None:
            name = self.command[0]
            return f"Foreign(python=...) names '{name}', and there is no such interpreter here"
        return ""


class ForeignSystem(System):
    """A system that trains out of process; a plugin declares `foreign` and what a `System` says.

    Class attributes:
        foreign: where and what it runs.
        trains: frames of snapshots, unless a plugin names `TimelineWorkload` or `StreamWorkload`.
    """

    trains = (Workload, "trains on frames of snapshots")
    code = "released"
    foreign: ClassVar[Foreign]

    def unsupported(self, workload: Any, device: str) -> list[str]:
        reasons = super().unsupported(workload, device)
        if isinstance(workload, self.trains[0]) and (kind := kind_of(workload)) is not None:
            reasons += kind.unsupported(workload)
        return reasons + ([self.foreign.missing] if self.foreign.missing else [])

    def open(
        self,
        workload: Any,
        *,
        device: str = "cpu",
        switches: Mapping[str, bool] | None = None,
        meter: Meter | None = None,
    ) -> ForeignTrainer:
        return ForeignTrainer(
            self.title, self.foreign, workload, None,
            device=device, switches=self.switches(switches), meter=meter,
        )  # fmt: skip


class ForeignProcess:
    """A contender's process and the messages to and from it.

    Args:
        title: of the contender, for reasons.
        foreign: what to start. threads: that it may compute with.
        files: descriptors of the inputs and the results.

    Attributes:
        pid: of the process.
        versions: of its Python and packages, as it tells them.
        messages, bytes: that went both ways so far.
    """

    def __init__(self, title: str, foreign: Foreign, threads: int, files: Sequence[int]) -> None:
        self.title, self._foreign = title, foreign
        self.messages = self.bytes = 0
        ours, theirs = socket.socketpair()
        handed = [theirs.fileno(), *files]
        words = [*map(str, handed), foreign.module, str(foreign.path or "")]
        own = {name: value for name, value in os.environ.items() if name not in _OUR_PYTHON}
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [*foreign.command, "-I", str(foreign.server), *words],
                    env={**own, **dict.fromkeys(_THREADS, str(threads)), **foreign.environment},
                    stdin=subprocess.DEVNULL, stdout=2, pass_fds=handed,
                )  # fmt: skip
            except OSError as error:
                ours.close()
                raise UnsupportedError(
                    f"{title}: '{foreign.command[0]}' cannot be started: {error.strerror}",
                    hint="name the interpreter of its environment in Foreign(python=...)",
                ) from None
        self.pid = self._process.pid
        self._sock = ours
        self.end = weakref.finalize(self, _end, self._process, ours, os.getpid())
        self.versions = self._greeted()

    def call(self, name: str, *, limit_s: float | None = None, **told: Any) -> dict[str, Any]:
        """Answer to a call.

        Raises:
            ForeignError: it raised, ended, was too slow or answered what is no message.
        """
        limit = self._foreign.answer_s if limit_s is None else limit_s
        try:
            self._sock.settimeout(limit)
            self.bytes += send(self._sock, {"call": name, **told})
            self.messages += 1
        except TimeoutError:
            raise self._late(name, limit) from None
        except OSError:
            raise self._gone(name) from None
        answer = self._answer(name, limit)
        self._raise_told(name, answer)
        return answer

    def number(self, answer: Mapping[str, Any], name: str) -> float:
        """A number of an answer. Raises ForeignError where there is none."""
        value = answer.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.broken(f"its '{name}' is {value!r}, a number is needed")
        return float(value)

    def mapping(self, answer: Mapping[str, Any], name: str) -> dict[str, Any]:
        """An object of an answer. Raises ForeignError where there is none."""
        value = answer.get(name)
        if not isinstance(value, dict):
            raise self.broken(f"its '{name}' is {value!r}, an object is needed")
        return value

    def cpu_seconds(self) -> float | None:
        """Processor time of the process so far; None where the system does not tell."""
        if sys.platform != "linux":
            return None
        with contextlib.suppress(OSError):
            return time.clock_gettime((~self.pid << 3) | 2)  # the clock of another process
        return None

    def close(self) -> None:
        """Have the contender close, and end its process."""
        if self.end.alive:
            try:
                self.call("close")
            finally:
                self.end()

    def _greeted(self) -> dict[str, Any]:
        """Versions of the greeting, once it is one of this protocol and without an error."""
        greeting = self._answer("start", self._foreign.start_s)
        if greeting.get("protocol") != PROTOCOL:
            self.end()
            raise UnsupportedError(
                f"{self.title} speaks version {greeting.get('protocol')!r} of the protocol, "
                f"this dgbench speaks {PROTOCOL}",
                hint=f"start {SERVER.name} of this dgbench in its environment",
            )
        error = greeting.get("error")
        if isinstance(error, dict) and error.get("kind") in ("ImportError", "ModuleNotFoundError"):
            self.end()
            raise MissingPackageError(
                f"{self.title}: {' '.join(self._foreign.command)} cannot import its module "
                f"'{self._foreign.module}': {error.get('text')}",
                hint="install it in that environment, or name its folder in Foreign(path=...)",
            )
        self._raise_told("start", greeting)
        return self.mapping(greeting, "versions")

    def _answer(self, name: str, limit: float) -> dict[str, Any]:
        """Next message."""
        try:
            answer, size = receive(self._sock, time.monotonic() + limit)
        except TimeoutError:
            raise self._late(name, limit) from None
        except ValueError as error:
            raise self.broken(f"it answered '{name}' with {error}") from None
        except OSError:
            answer, size = None, 0
        if answer is None:
            raise self._gone(name)
        self.messages += 1
        self.bytes += size
        return answer

    def _raise_told(self, name: str, answer: Mapping[str, Any]) -> None:
        """Raise what the other side says has been raised there."""
        if "error" in answer:
            error = self.mapping(answer, "error")
            self.end()
            of = ForeignMemoryError if error.get("kind") == "MemoryError" else ForeignError
            raise of(f"{self.title} raised in '{name}': {error.get('kind')}: {error.get('text')}")

    def _late(self, name: str, limit: float) -> ForeignTimeoutError:
        self.end()
        what = f"gave no answer to '{name}' within {limit:g} s"
        return ForeignTimeoutError(f"{self.title} {what} and was ended")

    def broken(self, what: str) -> ForeignError:
        """Error of an answer that breaks the protocol; the process is ended."""
        self.end()
        return ForeignError(f"{self.title} broke the protocol: {what}")

    def _gone(self, name: str) -> ForeignError:
        """Error that says how the process ended."""
        how = "closed its connection"
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(DEATH_S)
            how = f"was killed by {signal_name(-code)}" if code < 0 else f"ended with code {code}"
        self.end()
        return ForeignError(f"the process of {self.title} {how} before it answered '{name}'")


def _end(process: subprocess.Popen[bytes], sock: socket.socket, owner: int) -> None:
    """Kill a contender and what it started; reaping it makes its processor time this one's.

    Args:
        owner: process that started it; a fork of that one leaves it alone.
    """
    with sock:  # closed last: a contender that sees it ends, and what it started is not found
        if os.getpid() != owner:
            return
        if process.poll() is None:
            kill_below(process.pid)
            process.kill()
        process.wait()


class ForeignTrainer(Trainer):
    """Trainer whose work is done by a foreign contender.

    Each step counts what the contender counted and notes as spent in `protocol` what the step took
    longer here than there.

    Attributes:
        process: the contender's.
        data: that it was given.
        notes: sentence on where it runs.
    """

    def __init__(
        self,
        title: str,
        foreign: Foreign,
        workload: Any,
        data: Any,
        *,
        device: str = "cpu",
        switches: Mapping[str, bool] | None = None,
        meter: Meter | None = None,
    ) -> None:
        """Args: data: of the workload; None: loaded here."""
        kind = kind_of(workload)
        if kind is None:
            known = ", ".join(of.__name__ for of in KINDS)
            raise InvalidInputError(f"workload is a {type(workload).__name__}, allowed: {known}")
        self.data = kind.load(workload) if data is None else data
        self.meter = meter if meter is not None else Meter(device=device)
        task = kind.inputs(workload, self.data)
        self.num_frames, self._rows = len(task.frames), task.rows
        first = parameters_of(task.model)
        shapes = {
            f"{part}/{name}": value.shape
            for part in ("values", "first", "second")
            for name, value in first.items()
        }
        self._results = SharedResults({"output": (max(task.rows), task.model.output_dim), **shapes})
        given = {f"parameters/{name}": value for name, value in first.items()}
        frames = numpy.array(task.frames, dtype=numpy.int64)
        inputs, places = written({**task.arrays, **given, "frames": frames})
        self._start_s, self._threads = foreign.start_s, torch.get_num_threads()
        self._totals: dict[str, int] = {}
        self._since: tuple[float, float | None] | None = None
        with inputs:
            files = inputs.fileno(), self._results.file.fileno()
            self.process = ForeignProcess(title, foreign, self._threads, files)
        found = ", ".join(f"{name} {version}" for name, version in self.process.versions.items())
        self.notes = [f"it ran in a process of its own: {found}"]
        opened = self.process.call(
            "open", limit_s=foreign.start_s, inputs=places, results=self._results.places,
            kind=kind.name, workload=msgspec.to_builtins(workload), device=device,
            threads=self._threads, switches=dict(switches or {}),
        )  # fmt: skip
        self._compare_shapes(self.process.mapping(opened, "state"), first)
        self._count(opened)

    def _compare_shapes(self, told: Mapping[str, Any], first: Mapping[str, numpy.ndarray]) -> None:
        for name in sorted(told.keys() | first.keys()):
            wanted = list(first[name].shape) if name in first else "none"
            if told.get(name, "none") != wanted:
                self.process.end()
                raise InvalidInputError(
                    f"{self.process.title}: its parameter '{name}' has the shape "
                    f"{told.get(name, 'none')}, that of the workload's model is {wanted}",
                    hint="names and shapes of parameters are those of task.parameters",
                )

    def prepare(self) -> None:
        self._count(self.process.call("prepare", limit_s=self._start_s))

    def step(self, frame: int) -> float:
        if self._since is None:
            self._since = time.perf_counter(), self.process.cpu_seconds()
        begin = time.perf_counter()
        with self.meter.phase("compute"):
            answer = self.process.call("step", frame=frame)
        wall = time.perf_counter() - begin
        loss, there = (self.process.number(answer, name) for name in ("loss", "seconds"))
        if not 0 <= there <= wall:
            raise self._lie(f"says that a step took {there:.4g} s, and we saw {wall:.4g} s")
        self.meter.spend("protocol", wall - there)
        self._count(answer)
        return loss

    def evaluate(self, frame: int) -> Tensor:
        rows = self._rows[frame]
        return self._read("evaluate", "output", frame=frame, rows=rows)[""][:rows]

    def state(self) -> dict[str, Tensor]:
        return self._read("state", "values/")

    def moments(self) -> dict[str, AdamMoments]:
        self._results.forget()
        if not self.process.call("moments").get("known"):
            return {}
        first, second = self._results.read("first/"), self._results.read("second/")
        return {name: AdamMoments(first[name], second[name]) for name in first}

    def gradients(self, frame: int) -> dict[str, Tensor]:
        return self._read("gradients", "values/", frame=frame)

    def report(self) -> dict[str, float]:
        """Hold the timed steps to the threads that were allowed, and note what they reached."""
        seen = dict(self._totals)
        answer = self.process.call("counters")
        self._count(answer)
        if self._totals != seen:
            raise self._lie(f"counted {seen} in its steps, and after them {self._totals}")
        if cuda := self.process.mapping(answer, "cuda"):
            touched.add_rank({"cuda": cuda})
        touched.add_process(self.process.pid)
        begin, spent = self._since or (time.perf_counter(), None)
        now = self.process.cpu_seconds()
        if spent is not None and now is not None:
            cores = (now - spent) / max(time.perf_counter() - begin, 1e-9)
            if cores > self._threads + CORE_SLACK:
                allowed = f"{self._threads} are allowed"
                raise self._lie(f"used {cores:.2f} cores in its steps, {allowed}")
        return {}

    def close(self) -> None:
        self.process.close()

    def _lie(self, what: str) -> CheckFailed:
        return CheckFailed(f"{self.process.title} {what}")

    def _read(self, call: str, prefix: str, **told: Any) -> dict[str, Tensor]:
        self._results.forget()
        self.process.call(call, **told)
        return self._results.read(prefix)

    def _count(self, answer: Mapping[str, Any]) -> None:
        """Add to the meter what the contender's counters grew by."""
        totals = self.process.mapping(answer, "counters")
        for name in totals.keys() | self._totals.keys():
            total, before = totals.get(name, 0), self._totals.get(name, 0)
            if isinstance(total, bool) or not isinstance(total, int):
                raise self.process.broken(f"its counter '{name}' is {total!r}, no whole number")
            if total < before:
                raise self._lie(f"has a counter '{name}' that fell from {before:,} to {total:,}")
            if total > before:
                self.meter.count(name, total - before)
        self._totals = totals
