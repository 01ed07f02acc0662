"""Main function and failure report of a launched rank's process."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import pickle
import random
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist

from dgbench.runtime import touched
from dgbench.runtime.collectives import CommunicationError, LocalCommunicator
from dgbench.runtime.errors import DgbenchError
from dgbench.runtime.meter import Meter, SpanLog, keep_spans
from dgbench.runtime.precision import plain_products
from dgbench.runtime.ranks.board import DONE, WORKING, BoardProgress, StatusBoard
from dgbench.runtime.ranks.group import enter_group, own_device
from dgbench.runtime.ranks.process import (
    die_with_launcher,
    drop_freed_memory,
    keep_freed_memory,
    kill_below,
    private_bytes,
)

_MEMORY = re.compile(r"out of memory|can.?t allocate memory|cannot allocate memory|bad_alloc", re.I)


@dataclass(frozen=True, slots=True)
class RankProcess:
    """A rank's place in its group.

    Attributes:
        folder: where board, store, results and failures lie. interface: network interface for
            Gloo, "" for its own choice. timing: whether its meter reads clocks.
        keeps_spans: whether its clocks run and its phases stand for all ranks of a launcher that
            keeps some.
    """

    rank: int
    size: int
    folder: Path
    backend: str
    device: str
    threads: int
    seed: int
    timeout_s: float
    interface: str
    timing: bool
    keeps_spans: bool

    @property
    def result(self) -> Path:
        return self.folder / f"result-{self.rank}"

    @property
    def spans(self) -> Path:
        return self.folder / f"spans-{self.rank}"

    @property
    def touched(self) -> Path:
        return self.folder / f"touched-{self.rank}"

    @property
    def failure(self) -> Path:
        return self.folder / f"failure-{self.rank}"

    @property
    def stack(self) -> Path:
        return self.folder / f"stack-{self.rank}"


@dataclass(frozen=True, slots=True)
class RankFailure:
    """Why a rank has no result. `error` is a pickled error of dgbench, or b""."""

    time_ns: int
    kind: Literal["raised", "memory", "communication"]
    text: str
    trace: str
    error: bytes


def run_seat(seat: RankProcess, work: tuple[Callable[..., Any], tuple[Any, ...]] | bytes) -> None:
    """Be a rank: prepare the process, join, work, leave the result, and end the process.

    Args:
        work: function and arguments, pickled unless they were inherited by a fork.
    """
    board = _prepare(seat)
    code = 1
    try:
        function, args = pickle.loads(work) if isinstance(work, bytes) else work
        _work(seat, board, function, args)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:
        _fail(seat, error)
    finally:
        kill_below(os.getpid())
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        # Threads of Gloo or NCCL may wait for ranks that are gone; nobody waits for them.
        os._exit(code & 0xFF)


def _prepare(seat: RankProcess) -> StatusBoard:
    """Make the process one that cannot be left behind, and is not in others' way."""
    gc.freeze()  # or its first collection would copy every page that a fork has inherited
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher decides what Ctrl-C means
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with_launcher()
    drop_freed_memory()
    keep_freed_memory()
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # if memory runs out, a rank goes and not its launcher
    board = StatusBoard(seat.folder / "board", seat.size)
    board.base(seat.rank, private_bytes(os.getpid()))
    if hasattr(signal, "SIGUSR1"):
        # Kept open for as long as the process lives.
        stack = os.open(seat.stack, os.O_WRONLY | os.O_CREAT, 0o600)
        faulthandler.register(signal.SIGUSR1, file=stack, all_threads=False)
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(seat.threads)
    torch.set_num_threads(seat.threads)
    plain_products()
    with contextlib.suppress(RuntimeError):  # fixed already where the launcher has used it
        torch.set_num_interop_threads(1)
    torch.manual_seed(seat.seed)
    random.seed(seat.seed)
    if seat.interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", seat.interface)
    return board


def _work(
    seat: RankProcess, board: StatusBoard, function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    touched.clear()
    log = SpanLog() if seat.keeps_spans else None
    keep_spans(log)
    device = own_device(seat.device, seat.rank)
    comm = enter_group(
        rank=seat.rank,
        size=seat.size,
        backend=seat.backend,
        device=device,
        # The launcher's own watch comes first; this is for a rank that has lost its launcher.
        timeout_s=seat.timeout_s + 30,
        store=dist.FileStore(str(seat.folder / "store"), seat.size),
        meter=Meter(timing=seat.timing or log is not None, device=str(device)),
        seed=seat.seed,
        progress=BoardProgress(board, seat.rank),
    )
    board.joined_ns(seat.rank, time.monotonic_ns())
    board.note(seat.rank, WORKING)
    result = function(comm, *args)
    board.held(seat.rank, private_bytes(os.getpid()))  # a short run may lie between two looks
    try:
        payload = pickle.dumps(result, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise DgbenchError(
            f"its result of type {type(result).__name__} cannot be passed back: {error}",
            hint="return tensors, arrays, numbers, or containers of them",
        ) from error
    part = seat.folder / f"result-{seat.rank}.part"
    part.write_bytes(payload)
    seat.touched.write_bytes(pickle.dumps(touched.record()))
    if log is not None:
        seat.spans.write_bytes(pickle.dumps((log.spans, log.marks)))
    part.replace(seat.result)
    board.note(seat.rank, DONE)
    if not isinstance(comm, LocalCommunicator):
        # A rank that left at once might take with it what others have not read yet.
        dist.barrier()
        if seat.backend == "nccl":  # Gloo's end takes 20 ms, and the process ends anyway
            dist.destroy_process_group()


def _fail(seat: RankProcess, error: BaseException) -> None:
    text = " ".join(str(error).split())
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    kind: Literal["raised", "memory", "communication"] = "raised"
    pickled = b""
    if isinstance(error, CommunicationError):
        kind = "communication"
    elif isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and _MEMORY.search(text)
    ):
        kind, text = "memory", text or "MemoryError"
    elif isinstance(error, DgbenchError):
        with contextlib.suppress(Exception):
            found = pickle.dumps(error)
            pickle.loads(found)  # an error with arguments of its own may not come back
            pickled = found
    if kind == "raised" and not isinstance(error, DgbenchError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    failure = RankFailure(time.monotonic_ns(), kind, text, trace, pickled)
    part = seat.folder / f"failure-{seat.rank}.part"
    with contextlib.suppress(OSError):
        part.write_bytes(pickle.dumps(failure))
        part.replace(seat.failure)
