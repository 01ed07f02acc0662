"""Starting ranks on this machine, getting their results, and leaving nothing behind.

Ranks are forks: of this process where that is sound (`may_fork`), else of a server that has
imported torch and started nothing. Four Gloo ranks then stand after 0.05 s;
torch.distributed.elastic's launcher needs 0.3-0.4 s for four forks on the same two cores and more
than ten seconds where it spawns. Several machines and restarts are torchrun's business, see `join`.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing as mp
import os
import pickle
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeVar

from dgbench.runtime.errors import InvalidInputError, UnsupportedError, unknown_key
from dgbench.runtime.meter import kept_spans
from dgbench.runtime.ranks.board import StatusBoard
from dgbench.runtime.ranks.group import choose_backend
from dgbench.runtime.ranks.process import loopback, may_fork
from dgbench.runtime.ranks.seat import RankProcess, run_seat
from dgbench.runtime.ranks.watch import Watch
from dgbench.runtime.threads import default_threads
from dgbench.runtime.touched import add_rank

Start = Literal["auto", "fork", "forkserver", "spawn"]
STARTS: Final[tuple[Start, ...]] = ("auto", "fork", "forkserver", "spawn")

TRAINING: Final = ("torch._dynamo",)
"""Modules that torch's optimisers import at their first step: 0.9 s of processor time."""

MAX_RANKS: Final = 128
"""Most ranks of one machine; each is a process."""

R = TypeVar("R")


class Results(list[R], Generic[R]):
    """Return values of the ranks, in order of rank.

    Attributes:
        peak_bytes: per rank, the most private memory beyond its beginning that was seen at a look
            every 20 ms, or by itself at its end. start_s: until the last rank had joined.
            seconds: until all had ended.
        backend, start: what was used.
    """

    peak_bytes: list[int]
    start_s: float
    seconds: float
    backend: str
    start: str


def launch(
    function: Callable[..., R],
    ranks: int,
    args: Sequence[Any] = (),
    *,
    timeout_s: float,
    backend: str = "auto",
    device: str = "cpu",
    memory_bytes: int | None = None,
    stall_s: float | None = None,
    threads: int | None = None,
    seed: int = 1,
    timing: bool = False,
    start: Start = "auto",
    preload: Sequence[str] = (),
) -> Results[R]:
    """Run `function(communicator, *args)` as `ranks` processes of this machine.

    The first rank that fails ends all of them. None outlives this call, nor this process, also if
    it is killed; Ctrl-C ends them, too.

    Args:
        function: module-level. What it returns is pickled and handed back.
        args: the same for every rank. A fork of this process shares them without a copy.
        timeout_s: limit for all of it, the start included.
        backend: `gloo`, `nccl` or `auto` (NCCL where each rank has a GPU of its own).
        device: `cpu` or `cuda`; GPUs are dealt out by rank and shared if they are too few.
        memory_bytes: private host memory that a rank may take beyond what it began with. It is
            looked at 50 times a second.
        stall_s: how long a rank may keep others waiting in a collective, and a collective last;
            None: until `timeout_s`.
        threads: OpenMP threads of each rank; None: its share of the physical cores.
        seed: of torch and random, the same on all ranks, so that replicated weights agree;
            `communicator.generator` differs from rank to rank.
        timing: whether the communicator's meter reads clocks.
        start: how processes are made; `fork` needs a caller without other Python threads that has
            not used a GPU, and that has not used OpenMP unless ranks have one thread each.
        preload: modules that every rank will need (`TRAINING`). Where ranks are forks of this
            process they are imported here, once; each rank would have to import them else.

    Returns:
        One result per rank, in order, with facts about the run.

    Raises:
        InvalidInputError: an argument out of range, or a function that other processes cannot find.
        UnsupportedError: no such backend, device or way to start here.
        RankError: a rank failed (its subclasses say whether by memory or time); the message names
            it. An error of dgbench raised in a rank is raised as itself.
        CommunicationError: a collective failed and no rank is known to have failed before.
    """
    _check(function, ranks, timeout_s, memory_bytes, stall_s, threads)
    chosen = choose_backend(backend, device, ranks)
    count = threads or max(1, default_threads() // ranks)
    method = _choose_start(start, device, count)
    if method == "fork":
        for module in preload:
            importlib.import_module(module)
    begin, begin_ns = time.monotonic(), time.monotonic_ns()
    folder = Path(tempfile.mkdtemp(prefix="dgbench-ranks-"))
    try:
        board = StatusBoard(folder / "board", ranks, create=True)
        interface = os.environ.get("GLOO_SOCKET_IFNAME", "") or loopback()
        seats = [
            RankProcess(
                rank,
                ranks,
                folder,
                chosen,
                device,
                count,
                seed,
                timeout_s,
                interface,
                timing,
                rank == 0 and kept_spans() is not None,
            )
            for rank in range(ranks)
        ]
        work: Any = (function, tuple(args))
        if method != "fork":
            work = _pickled(work)
        context: Any = _context(method)
        processes = [
            context.Process(target=run_seat, args=(seat, work), name=f"rank-{seat.rank}")
            for seat in seats
        ]
        watch = Watch(
            processes,
            seats,
            board,
            deadline=begin + timeout_s,
            timeout_s=timeout_s,
            memory_bytes=memory_bytes,
            stall_s=stall_s,
        )
        try:
            with _ready_to_fork():
                for process in processes:
                    process.start()
            watch.run()
        finally:
            watch.end()
        results: Results[R] = Results(pickle.loads(seat.result.read_bytes()) for seat in seats)
        results.peak_bytes = watch.peak_bytes
        results.start_s = (max(map(board.joined_ns, range(ranks))) - begin_ns) / 1e9
        results.seconds = time.monotonic() - begin
        results.backend, results.start = chosen, method
        _take_spans(seats[0])
        for seat in seats:
            add_rank(pickle.loads(seat.touched.read_bytes()))
        return results
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _take_spans(seat: RankProcess) -> None:
    """Put a rank's phases into the log of this process, where one is kept and the rank had it."""
    log = kept_spans()
    if log is None or not seat.spans.exists():
        return
    spans, marks = pickle.loads(seat.spans.read_bytes())
    for span in spans:
        log.add(*span)
    for name, times in marks.items():
        for at in times:
            log.mark(name, at)
    if spans:
        log.of = f"rank {seat.rank}"


def _check(
    function: Callable[..., Any],
    ranks: int,
    timeout_s: float,
    memory_bytes: int | None,
    stall_s: float | None,
    threads: int | None,
) -> None:
    if not isinstance(ranks, int) or not 1 <= ranks <= MAX_RANKS:
        raise InvalidInputError(
            f"'ranks' is {ranks!r}, allowed: 1 to {MAX_RANKS}",
            hint="larger groups are counted with collectives.count_ranks, or run by torchrun",
        )
    limits = {"timeout_s": timeout_s, "memory_bytes": memory_bytes, "stall_s": stall_s}
    for name, value in {**limits, "threads": threads}.items():
        if value is not None and not value > 0:
            raise InvalidInputError(f"'{name}' is {value!r}, needed: more than 0")
    name = getattr(function, "__qualname__", "")
    if not callable(function) or not name or "<" in name:
        raise InvalidInputError(
            f"'function' is {name or function!r}, which a new process cannot find by its name",
            hint="use a function at module level",
        )


def _choose_start(start: str, device: str, threads: int) -> str:
    if start not in STARTS:
        raise unknown_key("start", start, STARTS)
    known = mp.get_all_start_methods()
    if start != "auto":
        if start not in known:
            raise UnsupportedError(
                f"processes cannot be started by '{start}' here", hint=f"{known}"
            )
        if start == "fork" and not may_fork(threads):
            raise UnsupportedError(
                f"this process has several threads, a fork of it cannot compute with {threads}",
                hint="start='forkserver', or start='auto'",
            )
        return start
    if "forkserver" not in known:
        return "spawn"
    # What CUDA has left in this process does not work in a fork of it, and cannot be looked for.
    return "fork" if device == "cpu" and may_fork(threads) else "forkserver"


def _context(method: str) -> BaseContext:
    context = mp.get_context(method)
    if method == "forkserver":
        from multiprocessing import forkserver

        context.set_forkserver_preload(["dgbench.runtime.ranks.seat"])
        with _environment(
            OPENBLAS_NUM_THREADS="1",  # or numpy starts threads at import, and threads do not fork
            PYTORCH_NVML_BASED_CUDA_CHECK="1",  # or asking for GPUs leaves traces of CUDA
        ):
            forkserver.ensure_running()
    return context


def _pickled(work: tuple[Callable[..., Any], tuple[Any, ...]]) -> bytes:
    try:
        return pickle.dumps(work, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise InvalidInputError(
            f"'args' cannot be passed to another process: {error}",
            hint="pass tensors, arrays, numbers, or names to open the data by",
        ) from error


@contextlib.contextmanager
def _environment(**settings: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _ready_to_fork() -> Iterator[None]:
    """Write out what is buffered, or a fork would write it again; and ask for no advice."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    with warnings.catch_warnings():
        # From 3.12 on Python warns of any second thread; `may_fork` has looked at them.
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        yield
